"""Options that several commands have, and the configuration that they make."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from schemas.errors import UsageError

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
    list[str] | None,
    typer.Option(
        "--config",
        "-c",
        "--profile",
        metavar="FILE",
        help="Settings: a run.yaml, or a profile such as infra/beam/flink.yaml over it; repeatable, later ones win.",
        show_default=False,
    ),
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


Sweep = Annotated[
    list[str] | None,
    typer.Option(
        "--sweep",
        metavar="KEY=V1,V2",
        help="Values to try for a number of the presets, such as diffusion.alpha=0.1,0.5; repeatable.",
        show_default=False,
    ),
]


def parse_sweep(items: list[str] | None) -> dict[str, list[Any]] | None:
    """Return the values of each ``KEY=V1,V2``; None where there is none.

    Raises:
        UsageError: One is not of that form.
    """
    import yaml

    found: dict[str, list[Any]] = {}
    for item in items or ():
        key, sign, text = item.partition("=")
        try:
            values = yaml.safe_load(f"[{text}]") if sign and key.strip() else []
        except yaml.YAMLError:
            values = []
        if not values:
            raise UsageError(
                f"'{item}' is not KEY=V1,V2", where="--sweep", remedy="Example: --sweep diffusion.alpha=0.1,0.5,0.85"
            )
        found[key.strip()] = values
    return found or None


def configure(
    inputs: list[str] | None,
    config: Sequence[str] | str | None,
    sets: list[str] | None,
    **options: Any,
) -> Any:
    """Make the configuration of a run.

    Args:
        inputs: Inputs, or one run file.
        config: Settings files, later ones over earlier ones; a run file among `inputs` comes before them.
        sets: ``KEY=VALUE`` settings, which win over all else.
        options: Settings by key, with ``__`` for the dot; None and an empty list are not given.
    """
    from schemas.config import load_config

    given = list(inputs or [])
    files = [config] if isinstance(config, str) else list(config or [])
    if len(given) == 1 and given[0].endswith((".yaml", ".yml")) and _is_run_file(given[0]):
        files, given = [given[0], *files], []
    base = {key.replace("__", "."): value for key, value in options.items() if value not in (None, [])}
    if given:
        base["inputs"] = given
    if isinstance(base.get("compute.workers"), str) and base["compute.workers"] != "auto":
        text = base["compute.workers"]
        if not text.isdigit():
            raise UsageError(f"'{text}' is neither a number nor auto", where="--workers")
        base["compute.workers"] = int(text)
    return load_config(files, [*_beam_settings, *(sets or [])], base)


def _is_run_file(path: str) -> bool:
    import yaml

    try:
        with open(path, encoding="utf-8-sig") as handle:  # noqa: PTH123  (a plain local file)
            found = yaml.safe_load(handle)
    except (OSError, UnicodeError, yaml.YAMLError):
        return False
    return isinstance(found, dict) and bool({"corpus", "inputs"} & set(found))


_beam_settings: list[str] = []


def take_beam_options(arguments: list[str]) -> list[str]:
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
