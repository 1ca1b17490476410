"""Commands that make something: ingest, run, plan, reindex, synth, gc.

Modules that do the work load inside each command, so that help answers at once.
"""

from __future__ import annotations

from typing import Annotated

import typer

from jobs import console
from jobs.app import app
from jobs.options import (
    Append,
    Config,
    Corpus,
    Format,
    Inputs,
    Json,
    MaybeCorpus,
    MaybeName,
    Presets,
    Questions,
    Quiet,
    Set,
    Sweep,
    UnitOption,
    Verbose,
    Wait,
    Workers,
    configure,
    parse_sweep,
)
from schemas.errors import UsageError


@app.command(epilog="Example: tagloom ingest --corpus ./corpus --append new_logs.jsonl")
def ingest(
    corpus: MaybeCorpus = None,
    inputs: Inputs = None,
    config: Config = None,
    sets: Set = None,
    name: MaybeName = None,
    fmt: Format = None,
    unit: UnitOption = None,
    questions: Questions = None,
    append: Append = False,
    wait: Wait = 0.0,
    quiet: Quiet = False,
    verbose: Verbose = False,
    as_json: Json = False,
) -> None:
    """Read logs into the corpus: interactions, questions, rejects."""
    from jobs import commands

    console.set_up_logging(verbose)
    settings = configure(
        inputs, config, sets, corpus=corpus, name=name, ingest__format=fmt, ingest__unit=unit, questions=questions
    )
    commands.run(settings, stages=(), append=append, wait=wait, quiet=quiet, as_json=as_json)


@app.command(epilog="Example: tagloom run --corpus ./corpus locomo10.json --preset bm25 --preset adaptivegraph")
def run(
    corpus: MaybeCorpus = None,
    inputs: Inputs = None,
    config: Config = None,
    sets: Set = None,
    name: MaybeName = None,
    fmt: Format = None,
    unit: UnitOption = None,
    questions: Questions = None,
    presets: Presets = None,
    sweep: Sweep = None,
    workers: Workers = None,
    append: Append = False,
    wait: Wait = 0.0,
    quiet: Quiet = False,
    verbose: Verbose = False,
    as_json: Json = False,
) -> None:
    """Run everything that is not done yet: ingest, extract, graph, index, rank, evaluate."""
    from jobs import commands
    from pipelines.stage import STAGES

    console.set_up_logging(verbose)
    settings = configure(
        inputs,
        config,
        sets,
        corpus=corpus,
        name=name,
        ingest__format=fmt,
        ingest__unit=unit,
        questions=questions,
        rank__presets=presets,
        rank__sweep=parse_sweep(sweep),
        compute__workers=workers,
    )
    commands.run(settings, stages=STAGES, append=append, wait=wait, quiet=quiet, as_json=as_json)


@app.command(epilog="Example: tagloom plan run.yaml --set rank.depth=200")
def plan(
    corpus: MaybeCorpus = None,
    inputs: Inputs = None,
    config: Config = None,
    sets: Set = None,
    name: MaybeName = None,
    fmt: Format = None,
    unit: UnitOption = None,
    questions: Questions = None,
    presets: Presets = None,
    sweep: Sweep = None,
    append: Append = False,
    verbose: Verbose = False,
    as_json: Json = False,
) -> None:
    """Tell what a run would do, why, and how much; does nothing."""
    from jobs import plans

    console.set_up_logging(verbose)
    settings = configure(
        inputs,
        config,
        sets,
        corpus=corpus,
        name=name,
        ingest__format=fmt,
        ingest__unit=unit,
        questions=questions,
        rank__presets=presets,
        rank__sweep=parse_sweep(sweep),
    )
    plans.plan(settings, append=append, as_json=as_json)


@app.command(epilog="Example: tagloom reindex --corpus ./corpus --set extract.prompt=notes.md --sample 0.05")
def reindex(
    corpus: MaybeCorpus = None,
    run_file: Annotated[
        str | None,
        typer.Argument(metavar="RUN.YAML", help="Settings; inputs in it are passed over.", show_default=False),
    ] = None,
    sets: Set = None,
    origin: Annotated[
        str | None, typer.Option("--from", metavar="NAME", help="Generation to go on from [main].")
    ] = None,
    name: Annotated[
        str | None,
        typer.Option("--name", "-n", metavar="NAME", help="Name of the new generation [FROM-2]; one in use moves."),
    ] = None,
    keep: Annotated[
        str | None, typer.Option("--keep", metavar="NAME", help="Name for what is replaced [NAME-1].")
    ] = None,
    cases: Annotated[
        list[str] | None, typer.Option("--cases", metavar="CASE", help="Case to try it on; repeatable.")
    ] = None,
    sample: Annotated[
        float | None, typer.Option("--sample", metavar="SHARE", help="Share of the cases to try it on, such as 0.05.")
    ] = None,
    budget_tokens: Annotated[
        int | None, typer.Option("--budget-tokens", metavar="N", min=1, help="Tokens to try it with.")
    ] = None,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Ask again about what failed.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only tell.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before a model is asked.")] = False,
    workers: Workers = None,
    wait: Wait = 0.0,
    quiet: Quiet = False,
    verbose: Verbose = False,
    as_json: Json = False,
) -> None:
    """Make a generation anew under other settings; the old one stays."""
    from jobs import plans
    from pipelines.trial import Trial

    console.set_up_logging(verbose)
    settings = configure(None, run_file, sets, corpus=corpus, compute__workers=workers)
    if sum(given not in (None, []) for given in (cases, sample, budget_tokens)) > 1:
        raise UsageError("--cases, --sample and --budget-tokens exclude each other")
    trial = Trial(tuple(cases or ()), sample, budget_tokens)
    plans.reindex(
        settings,
        origin=origin,
        name=name,
        keep=keep,
        trial=None if trial == Trial() else trial,
        retry_failed=retry_failed,
        dry_run=dry_run,
        yes=yes,
        wait=wait,
        quiet=quiet,
        as_json=as_json,
    )


@app.command(epilog="Example: tagloom synth --size 10000 --cases 20 --seed 7 --to ./synthetic")
def synth(
    to: Annotated[str, typer.Option("--to", help="Folder to write into.")],
    size: Annotated[int, typer.Option("--size", min=10, max=10_000_000, help="Interactions in all.")] = 1000,
    cases: Annotated[int | None, typer.Option("--cases", min=1, help="Cases [one per 200 interactions].")] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed; same seed, same bytes.")] = 7,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")] = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
    as_json: Json = False,
) -> None:
    """Make a synthetic corpus with planted questions."""
    from jobs import commands

    console.set_up_logging(verbose)
    commands.synth(to, size, cases, seed, overwrite=overwrite, quiet=quiet, as_json=as_json)


@app.command(epilog="Example: tagloom gc --corpus ./corpus --dry-run")
def gc(
    corpus: Corpus,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only tell.")] = False,
    drop: Annotated[
        list[str] | None, typer.Option("--drop", metavar="NAME", help="Generation to forget first; repeatable.")
    ] = None,
    journal: Annotated[
        bool,
        typer.Option("--journal", help="Also replies that no kept generation was made with."),
    ] = False,
    wait: Wait = 0.0,
    verbose: Verbose = False,
    as_json: Json = False,
) -> None:
    """Remove what no generation needs any more."""
    from jobs import commands

    console.set_up_logging(verbose)
    commands.gc(corpus, dry_run=dry_run, drop=tuple(drop or ()), journal=journal, wait=wait, as_json=as_json)
