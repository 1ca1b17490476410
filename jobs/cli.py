"""The `tagloom` command.

Modules that do the work load inside each command, so that help answers at once.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated, Any, NoReturn

import typer

from jobs import console
from jobs.options import (
    Append,
    Config,
    Corpus,
    Format,
    Inputs,
    Json,
    MaybeCorpus,
    MaybeName,
    Name,
    Presets,
    Questions,
    Quiet,
    Set,
    UnitOption,
    Verbose,
    Wait,
    Workers,
    configure,
    take_beam_options,
)
from schemas.errors import FAULT, TagloomError, UsageError

app = typer.Typer(
    name="tagloom",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Turn logs of conversations into searchable memory graphs, and measure how well memories are found again.",
    epilog="Example: tagloom run --corpus ./corpus logs/   (docs: docs/ in the repository)",
)

INTERRUPTED = 130
STOPPED = "tagloom: stopped; finished parts stay, the same command goes on from there"

_CommandLineError: Any = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")
"""Base of what typer raises for a bad command line; typer keeps it in a private copy of click."""


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


@app.command(epilog="Example: tagloom status --corpus ./corpus")
def status(corpus: Corpus, verbose: Verbose = False, as_json: Json = False) -> None:
    """Show the generations of a corpus, what they hold and whether a run is at work."""
    from jobs import commands

    console.set_up_logging(verbose)
    commands.status(corpus, as_json=as_json)


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


@app.command(epilog="Example: tagloom doctor")
def doctor(verbose: Verbose = False, as_json: Json = False) -> None:
    """Show what is installed, what is missing and how to get it; formats, extractors, graphs and presets by name."""
    from jobs import commands

    console.set_up_logging(verbose)
    commands.doctor(as_json=as_json)


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> None:
    if version:
        from importlib.metadata import version as installed

        console.emit(f"tagloom {installed('tagloom')}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        console.emit(context.get_help())
        raise typer.Exit


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the command and exit.

    0 done, 1 failed, 2 bad usage, 3 finished with rejects above the limit, 130 stopped by Ctrl-C, 143 by SIGTERM
    (1 where Ray was at work).
    """
    console.heed_sigterm()
    given = sys.argv[1:] if arguments is None else arguments
    verbose = "-v" in given or "--verbose" in given
    try:
        code = app(args=take_beam_options(given), standalone_mode=False, prog_name="tagloom")
        if code == INTERRUPTED:  # typer returns this where it caught Ctrl-C itself
            raise KeyboardInterrupt
    except TagloomError as error:
        if verbose:
            raise
        console.tell(f"tagloom: {error}")
        sys.exit(error.exit_code)
    except typer.Exit as done:
        sys.exit(done.exit_code)
    except _CommandLineError as error:
        error.show(file=sys.stderr)
        sys.exit(2)
    except (KeyboardInterrupt, typer.Abort):
        console.tell(STOPPED)
        sys.exit(INTERRUPTED)
    except SystemExit:
        console.tell(STOPPED)
        raise
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as error:
        if verbose:
            raise
        console.tell(f"tagloom: {error.filename or 'storage'}: {error.strerror or error}")
        sys.exit(1)
    except Exception as error:  # the last resort: users never see a traceback unless they ask for it
        if verbose:
            raise
        console.tell(f"tagloom: {type(error).__name__}: {error}\n  {FAULT}")
        sys.exit(1)
    sys.exit(code or 0)


if __name__ == "__main__":
    main()
