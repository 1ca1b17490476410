"""Commands for experiments: experiment, replay.

Modules that do the work load inside each command, so that help answers at once.
"""

from __future__ import annotations

from typing import Annotated

import typer

from jobs import console
from jobs.app import app
from jobs.options import Corpus, Json, MaybeCorpus, Name, Quiet, Verbose, Wait, Workers


@app.command(epilog="Example: tagloom experiment distractors --corpus ./corpus --preset bm25 --preset adaptivegraph")
def experiment(
    corpus: Corpus,
    what: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="ablation, diagnostics, distractors, extraction, pooled, store-size, strictness or transfer.",
            show_default=False,
        ),
    ],
    presets: Annotated[
        list[str] | None,
        typer.Option("--preset", metavar="NAME", help="Preset or group [those of the generation]; repeatable."),
    ] = None,
    baseline: Annotated[
        str | None, typer.Option("--baseline", metavar="NAME", help="Preset to compare with [the first one].")
    ] = None,
    other: Annotated[
        str | None,
        typer.Option("--with", metavar="NAME", help="The other generation, or a corpus URI (transfer, extraction)."),
    ] = None,
    other_name: Annotated[
        str, typer.Option("--with-name", metavar="NAME", help="Name of the generation in that other corpus.")
    ] = "main",
    sets: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Set an option of the experiment, such as counts=[0,8]."),
    ] = None,
    name: Name = "main",
    workers: Workers = None,
    wait: Wait = 0.0,
    quiet: Quiet = False,
    verbose: Verbose = False,
    as_json: Json = False,
) -> None:
    """Run an experiment on a generation and show its table (docs/experiments.md)."""
    from jobs import experiment_view

    console.set_up_logging(verbose)
    experiment_view.run(
        corpus,
        name,
        what,
        presets=tuple(presets or ()),
        baseline=baseline,
        other=other,
        other_name=other_name,
        sets=tuple(sets or ()),
        workers=workers,
        wait=wait,
        quiet=quiet,
        as_json=as_json,
    )


@app.command(epilog="Example: tagloom replay --corpus ./corpus replay.json --recompute")
def replay(
    what: Annotated[
        str | None,
        typer.Argument(
            metavar="FILE", help="Replay file to check; with --record, the experiment [all].", show_default=False
        ),
    ] = None,
    corpus: MaybeCorpus = None,
    record: Annotated[str | None, typer.Option("--record", metavar="FILE", help="Write a replay file instead.")] = None,
    recompute: Annotated[
        bool, typer.Option("--recompute", help="Also rank some shards again, and compare bytes.")
    ] = False,
    name: Annotated[
        str | None, typer.Option("--name", "-n", metavar="NAME", help="Generation [the file's own; main].")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")] = False,
    verbose: Verbose = False,
    as_json: Json = False,
) -> None:
    """Check that results can be had again: data, prompts, models, settings, code and environment of a replay file."""
    from jobs import experiment_view

    console.set_up_logging(verbose)
    if record is not None:
        experiment_view.record(corpus, name or "main", what, record, overwrite=overwrite, as_json=as_json)
        return
    experiment_view.check(what, corpus, name, recompute=recompute, as_json=as_json)
