"""Commands that look: query, explain, compare, report, export, status, profile, doctor.

Modules that do the work load inside each command, so that help answers at once.
"""

from __future__ import annotations

from typing import Annotated

import typer

from jobs import console
from jobs.app import app
from jobs.options import (
    Corpus,
    Json,
    Name,
    Verbose,
)


@app.command(epilog="Example: tagloom query --corpus ./corpus --case conv-26 'When did Caroline join the group?'")
def query(
    corpus: Corpus,
    text: Annotated[str, typer.Argument(help="The question.", show_default=False)],
    case: Annotated[str | None, typer.Option("--case", help="Case to search; needed when there are several.")] = None,
    retriever: Annotated[str, typer.Option("--retriever", "-r", help="Preset.")] = "bm25",
    k: Annotated[int, typer.Option("-k", min=1, help="How many interactions.")] = 5,
    name: Name = "main",
    full: Annotated[bool, typer.Option("--full", help="Show whole texts.")] = False,
    verbose: Verbose = False,
    as_json: Json = False,
) -> None:
    """Search one case."""
    from jobs import commands

    console.set_up_logging(verbose)
    commands.query(corpus, name, case, text, retriever, k, full=full, as_json=as_json)


@app.command(epilog="Example: tagloom explain -C ./corpus --case conv-26 -r adaptivegraph 'When did Caroline join?'")
def explain(
    corpus: Corpus,
    text: Annotated[str | None, typer.Argument(help="The question, or else --question-id.", show_default=False)] = None,
    question_id: Annotated[
        str | None, typer.Option("--question-id", metavar="ID", help="A question of the corpus.")
    ] = None,
    case: Annotated[str | None, typer.Option("--case", help="Case; needed when there are several.")] = None,
    retriever: Annotated[str, typer.Option("--retriever", "-r", help="Preset.")] = "bm25",
    interaction: Annotated[
        str | None, typer.Option("--interaction", metavar="ID", help="Interaction to explain, or else --rank.")
    ] = None,
    rank: Annotated[int, typer.Option("--rank", min=1, help="Rank to explain.")] = 1,
    k: Annotated[int, typer.Option("-k", min=1, help="Terms or paths shown; JSON has all.")] = 10,
    form: Annotated[str, typer.Option("--format", "-f", help="text, json, or svg (a drawing).")] = "text",
    to: Annotated[str | None, typer.Option("--to", metavar="FILE", help="Write there.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")] = False,
    name: Name = "main",
    verbose: Verbose = False,
    as_json: Json = False,
) -> None:
    """Tell why an interaction stands where it stands: terms, tag paths, PageRank's paths, arms, with their shares."""
    from jobs import explain_view

    console.set_up_logging(verbose)
    form = "json" if as_json else form
    explain_view.explain(
        corpus, name, case, text, question_id, interaction, retriever, rank, k, form, to, overwrite=overwrite
    )


@app.command(epilog="Example: tagloom report --corpus ./corpus main main-2 --to report.html")
def report(
    corpus: Corpus,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="Generations [main].", show_default=False)
    ] = None,
    to: Annotated[str, typer.Option("--to", metavar="FILE", help="The HTML file.")] = "report.html",
    explained: Annotated[
        int, typer.Option("--explain", metavar="N", min=0, help="First ranks to explain, some 20 a second.")
    ] = 200,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")] = False,
    verbose: Verbose = False,
    as_json: Json = False,
) -> None:
    """Write one HTML file with all results, and every question with what each preset returned."""
    from jobs import commands

    console.set_up_logging(verbose)
    commands.report(corpus, names or (), to, explained, overwrite=overwrite, as_json=as_json)


@app.command(epilog="Example: tagloom compare --corpus ./corpus main main-2 --preset bm25 --to comparison")
def compare(
    corpus: Corpus,
    a: Annotated[str, typer.Argument(help="Generation to compare with, such as the old one.", show_default=False)],
    b: Annotated[str, typer.Argument(help="The other one.", show_default=False)],
    cases: Annotated[
        list[str] | None, typer.Option("--cases", metavar="CASE", help="Only this case; repeatable.")
    ] = None,
    all_cases: Annotated[
        bool, typer.Option("--all-cases", help="Also cases that a tried extractor is not for.")
    ] = False,
    presets: Annotated[
        list[str] | None, typer.Option("--preset", metavar="NAME", help="Only this one; repeatable.")
    ] = None,
    to: Annotated[str | None, typer.Option("--to", metavar="FOLDER", help="Also write Parquet files there.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")] = False,
    verbose: Verbose = False,
    as_json: Json = False,
) -> None:
    """Put two generations side by side: notes, tags, graphs, metrics, questions gained and lost, cost."""
    from jobs import commands

    console.set_up_logging(verbose)
    chosen = presets or (), cases or ()
    commands.compare(corpus, a, b, *chosen, all_cases=all_cases, to=to, overwrite=overwrite, as_json=as_json)


@app.command(epilog="Example: tagloom export --corpus ./corpus edges --to edges.parquet")
def export(
    corpus: Corpus,
    what: Annotated[str, typer.Argument(help="A table, 'qrels', or 'graphs'.", show_default=False)],
    to: Annotated[str | None, typer.Option("--to", help="Target file or folder [./WHAT.EXT].")] = None,
    fmt: Annotated[
        str | None, typer.Option("--format", "-f", help="parquet, csv, jsonl, trec, markdown, graphml.")
    ] = None,
    by_case: Annotated[bool, typer.Option("--by-case", help="Partition Parquet by case.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")] = False,
    name: Name = "main",
    verbose: Verbose = False,
    as_json: Json = False,
) -> None:
    """Write tables for analysis elsewhere."""
    from jobs import commands

    console.set_up_logging(verbose)
    commands.export(corpus, name, what, to, fmt, by_case=by_case, overwrite=overwrite, as_json=as_json)


@app.command(epilog="Example: tagloom status --corpus ./corpus --follow")
def status(
    corpus: Corpus,
    follow: Annotated[
        bool, typer.Option("--follow", help="Show the newest run until it ends; exits with its exit code.")
    ] = False,
    verbose: Verbose = False,
    as_json: Json = False,
) -> None:
    """Show the generations of a corpus and what they hold, and the run at work on it or the last one."""
    from jobs import status_view

    console.set_up_logging(verbose)
    if follow:
        raise typer.Exit(status_view.follow(corpus, as_json=as_json))
    status_view.status(corpus, as_json=as_json)


@app.command(epilog="Example: tagloom profile --corpus ./corpus")
def profile(
    corpus: Corpus,
    run: Annotated[
        str | None, typer.Argument(metavar="RUN_ID", help="The run [the newest].", show_default=False)
    ] = None,
    verbose: Verbose = False,
    as_json: Json = False,
) -> None:
    """Show where the time, the bytes and the memory of a run went, stage by stage, and what bounds it."""
    from jobs import profile_view

    console.set_up_logging(verbose)
    profile_view.show(corpus, run, as_json=as_json)


@app.command(epilog="Example: tagloom doctor")
def doctor(verbose: Verbose = False, as_json: Json = False) -> None:
    """Show what is installed, what is missing and how to get it; formats, extractors, graphs and presets by name."""
    from jobs import commands

    console.set_up_logging(verbose)
    commands.doctor(as_json=as_json)
