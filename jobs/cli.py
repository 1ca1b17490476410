"""The `tagloom` command.

Modules that do the work load inside each command, so that help answers at once.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated, Any, NoReturn

import typer

from jobs import console
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

_CommandLineError: Any = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")
"""Base of what typer raises for a bad command line; typer keeps it in a private copy of click."""

Corpus = Annotated[
    str, typer.Option("--corpus", "-C", metavar="URI", envvar="TAGLOOM_CORPUS", help="Corpus URI or folder.")
]
MaybeCorpus = Annotated[
    str | None, typer.Option("--corpus", "-C", metavar="URI", envvar="TAGLOOM_CORPUS", help="Corpus URI or folder.")
]
Inputs = Annotated[
    list[str] | None,
    typer.Argument(help="Input files, folders or globs; or one run.yaml.", metavar="INPUT", show_default=False),
]
Config = Annotated[
    str | None, typer.Option("--config", "-c", metavar="FILE", help="A run.yaml with the whole configuration.")
]
Set = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override one setting; repeatable.")]
Name = Annotated[str, typer.Option("--name", "-n", metavar="NAME", help="Name of the generation.")]
MaybeName = Annotated[str | None, typer.Option("--name", "-n", metavar="NAME", help="Name of the generation [main].")]
Format = Annotated[
    str | None, typer.Option("--format", metavar="NAME", help="Input format; auto looks at the content.")
]
UnitOption = Annotated[
    str | None, typer.Option("--unit", metavar="UNIT", help="exchange, message, or auto (the format's own).")
]
Questions = Annotated[list[str] | None, typer.Option("--questions", metavar="FILE", help="Question file; repeatable.")]
Presets = Annotated[
    list[str] | None,
    typer.Option("--preset", metavar="NAME", help="Preset to rank, or 'all', 'ablations'; repeatable."),
]
Append = Annotated[bool, typer.Option("--append", help="Add the inputs to those ingested before.")]
Wait = Annotated[
    float, typer.Option("--wait", metavar="SECONDS", help="Seconds to wait while another run holds the corpus.")
]
Workers = Annotated[
    str | None, typer.Option("--workers", metavar="N", help="Ray workers: a number, auto, or 0 for none.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Show more, and tracebacks of faults.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


def _config(
    inputs: list[str] | None,
    config: str | None,
    sets: list[str] | None,
    **options: Any,
) -> Any:
    from schemas.config import load_config

    given = list(inputs or [])
    if config is None and len(given) == 1 and given[0].endswith((".yaml", ".yml")) and _is_run_file(given[0]):
        config, given = given[0], []
    base = {key.replace("__", "."): value for key, value in options.items() if value not in (None, [])}
    if given:
        base["inputs"] = given
    if isinstance(base.get("compute.workers"), str) and base["compute.workers"] != "auto":
        text = base["compute.workers"]
        if not text.isdigit():
            raise UsageError(f"'{text}' is neither a number nor auto", where="--workers")
        base["compute.workers"] = int(text)
    return load_config(config, [*_beam_settings, *(sets or [])], base)


def _is_run_file(path: str) -> bool:
    import yaml

    try:
        with open(path, encoding="utf-8-sig") as handle:  # noqa: PTH123  (a plain local file)
            found = yaml.safe_load(handle)
    except (OSError, UnicodeError, yaml.YAMLError):
        return False
    return isinstance(found, dict) and bool({"corpus", "inputs"} & set(found))


_beam_settings: list[str] = []


def _take_beam_options(arguments: list[str]) -> list[str]:
    """Turn ``--beam.OPTION=VALUE`` and ``--beam.OPTION VALUE`` into settings and return the other arguments."""
    _beam_settings.clear()
    rest, waiting = [], iter(arguments)
    for argument in waiting:
        if not argument.startswith("--beam."):
            rest.append(argument)
            continue
        key, sign, value = argument[2:].partition("=")
        if not sign:
            value = next(waiting, "")
            if not value or value.startswith("--"):
                raise UsageError(f"'{argument}' needs a value", remedy=f"Example: {argument}=VALUE")
        _beam_settings.append(f"{key}={value}")
    return rest


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
    settings = _config(
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
    settings = _config(
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
    from jobs import commands

    console.set_up_logging(verbose)
    settings = _config(
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
    commands.plan(settings, append=append, as_json=as_json)


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
    wait: Wait = 0.0,
    verbose: Verbose = False,
    as_json: Json = False,
) -> None:
    """Remove what no generation needs any more."""
    from jobs import commands

    console.set_up_logging(verbose)
    commands.gc(corpus, dry_run=dry_run, drop=tuple(drop or ()), wait=wait, as_json=as_json)


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

    0 done, 1 failed, 2 bad usage, 3 finished with rejects above the limit, 130 stopped by Ctrl-C.
    """
    given = sys.argv[1:] if arguments is None else arguments
    verbose = "-v" in given or "--verbose" in given
    try:
        code = app(args=_take_beam_options(given), standalone_mode=False, prog_name="tagloom")
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
        console.tell("tagloom: stopped; finished parts stay, the same command goes on from there")
        sys.exit(INTERRUPTED)
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
    sys.exit(0)


if __name__ == "__main__":
    main()
