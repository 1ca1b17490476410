"""The command `forget`."""

from __future__ import annotations

from typing import Annotated

import typer

from jobs import console
from jobs.app import app
from jobs.options import Corpus, Json, Quiet, Verbose, Wait, Workers, configure, parse_sweep


@app.command(epilog="Example: tagloom forget -C ./corpus --graph entity --sweep threshold=0.05,0.1,0.2")
def forget(
    corpus: Corpus,
    graph: Annotated[str, typer.Option("--graph", "-g", metavar="KIND", help="Graph kind.")] = "entity",
    origin: Annotated[str, typer.Option("--from", metavar="NAME", help="Generation with the whole graph.")] = "main",
    name: Annotated[
        str | None, typer.Option("--name", "-n", metavar="NAME", help="Name of the new generation [FROM-forgotten].")
    ] = None,
    threshold: Annotated[
        float | None, typer.Option("--threshold", metavar="X", help="Importance below which nodes go [0.1].")
    ] = None,
    every: Annotated[
        int | None, typer.Option("--every", metavar="N", help="Interactions of a case between two rounds [400].")
    ] = None,
    sets: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Other setting, such as half_life_days=30 or weights.age=0.2; repeatable.",
        ),
    ] = None,
    sweep: Annotated[
        list[str] | None,
        typer.Option("--sweep", metavar="KEY=V1,V2", help="Values to try for a setting, all with all; repeatable."),
    ] = None,
    pin: Annotated[
        list[str] | None,
        typer.Option("--pin", metavar="KEY", help="Node to keep, * and ? stand for any; repeatable."),
    ] = None,
    pin_kind: Annotated[
        list[str] | None, typer.Option("--pin-kind", metavar="KIND", help="Node kind to keep; repeatable.")
    ] = None,
    access: Annotated[
        str | None,
        typer.Option(
            "--access", metavar="PRESET", help="Ranking that tells what was retrieved, for half of the questions."
        ),
    ] = None,
    to: Annotated[str | None, typer.Option("--to", metavar="FOLDER", help="Also write results.parquet there.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")] = False,
    workers: Workers = None,
    wait: Wait = 0.0,
    quiet: Quiet = False,
    verbose: Verbose = False,
    as_json: Json = False,
) -> None:
    """Make a generation in which unimportant nodes of a graph are forgotten, and measure what that does."""
    from jobs import forget_view

    console.set_up_logging(verbose)
    given = {"threshold": threshold, "every": every, "pinned": pin, "pinned_kinds": pin_kind}
    forget_view.forget(
        configure(None, None, None, corpus=corpus, compute__workers=workers),
        graph,
        {key: value for key, value in given.items() if value is not None} | forget_view.parse_settings(sets or ()),
        sweep=parse_sweep(sweep) or {},
        origin=origin,
        name=name,
        access=access,
        to=to,
        overwrite=overwrite,
        wait=wait,
        quiet=quiet,
        as_json=as_json,
    )
