"""Exports: tables of a generation, written for other tools (docs/export.md)."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from jobs.export_formats import flat, graphml, markdown, trec
from jobs.export_formats.joins import QRELS, view
from pipelines import asides
from pipelines.store import Generation
from schemas.errors import UsageError
from schemas.ids import nearest
from schemas.tables import TABLES, schema

GRAPHS = "graphs"
"""What to export for nodes and edges together."""

EXPORTABLE = (*TABLES, QRELS, GRAPHS)
"""Everything that can be exported."""


@dataclass(frozen=True)
class Exported:
    """What an export wrote.

    Attributes:
        target: The file or folder.
        files: The files, sorted.
        rows: Rows, lines, notes, or nodes and edges.
    """

    target: Path
    files: tuple[Path, ...]
    rows: int


@dataclass(frozen=True)
class _Format:
    """How one thing is written: suffix of its files, whether they go into a folder, and the writer (gives the rows)."""

    suffix: str
    folder: bool
    write: Callable[[Generation, str, Path], int]


FORMATS: dict[tuple[str, str], _Format] = {
    ("parquet", ""): _Format(".parquet", False, lambda g, what, to: flat.write_parquet(view(g, what), to)),
    ("csv", ""): _Format(".csv", False, lambda g, what, to: flat.write_csv(view(g, what), to)),
    ("jsonl", ""): _Format(".jsonl", False, lambda g, what, to: flat.write_jsonl(view(g, what), to)),
    ("trec", "runs"): _Format(".run", True, lambda g, what, to: trec.write_runs(g, to)),
    ("trec", QRELS): _Format(".qrels", False, lambda g, what, to: trec.write_qrels(view(g, what), to)),
    ("markdown", "notes"): _Format(".md", True, lambda g, what, to: markdown.write_notes(view(g, what), to)),
    ("graphml", GRAPHS): _Format(".graphml", True, lambda g, what, to: graphml.write_graphs(g, to)),
}
"""(Format, what it can hold) -> how; "" stands for every table."""

_BY_CASE = _Format(".parquet", True, lambda g, what, to: flat.write_parquet_by_case(view(g, what), to))
_SUFFIXES = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".qrels": "trec",
    ".trec": "trec",
}


def export(
    generation: Generation,
    what: str,
    fmt: str | None = None,
    target: str | Path | None = None,
    *,
    by_case: bool = False,
    overwrite: bool = False,
) -> Exported:
    """Write a table, the qrels or the graphs of a generation.

    Everything is written aside and renamed at the end, so a target is either whole or not there. One shard is in memory
    at a time.

    Args:
        generation: What to read.
        what: One of `EXPORTABLE`.
        fmt: parquet, csv, jsonl, trec (runs, qrels), markdown (notes) or graphml (graphs). By default the target's
            suffix tells, else it is graphml for graphs, trec for qrels and parquet for tables.
        target: Local file or folder; by default WHAT and the format's suffix, in the working directory.
        by_case: Parquet only: a folder with one ``case=ID`` folder a case.
        overwrite: Replace a target that holds something. A folder is replaced only when it holds nothing but files of
            the format.

    Raises:
        UsageError: There is no such table or format, they do not go together, or the target is taken.
        StoreError: The generation does not hold the table, or its parts are damaged.
    """
    if what not in EXPORTABLE:
        guess = nearest(what, EXPORTABLE)
        hint = f"Did you mean '{guess}'?" if guess else f"There are: {', '.join(EXPORTABLE)}."
        raise UsageError(f"nothing is called '{what}'", where="export", remedy=hint)
    how = _format(what, fmt, target, by_case)
    path = _target(what, target, how.suffix, how.folder, overwrite)
    tables = {QRELS: ("questions",), GRAPHS: ("nodes", "edges")}.get(what, (what,))
    asides.warn(generation, [unit for table in tables for unit in generation.tables().get(table, ())])
    return _written(path, how.folder, lambda aside: how.write(generation, what, aside))


def write_folder(target: str | Path, suffix: str, write: Callable[[Path], int], *, overwrite: bool = False) -> Exported:
    """Fill a folder as an export does: written aside and renamed at the end, nothing foreign replaced.

    Args:
        target: Local folder.
        suffix: Suffix of its files.
        write: Writes the files into the empty folder that it is given, and returns their rows.
        overwrite: Replace a folder that holds nothing but files of that suffix.

    Raises:
        UsageError: The target is taken.
    """
    return _written(free_folder(target, suffix, overwrite), True, write)


def free_folder(target: str | Path, suffix: str, overwrite: bool) -> Path:
    """Check that a folder may be filled, and return its path.

    Raises:
        UsageError: The target is taken.
    """
    return _target("", target, suffix, True, overwrite)


def _written(path: Path, folder: bool, write: Callable[[Path], int]) -> Exported:
    aside = path.with_name(f".{path.name}.writing")
    _remove(aside)
    try:
        if folder:
            aside.mkdir()
        rows = write(aside)
        _remove(path)
        aside.rename(path)
    finally:
        _remove(aside)
    files = sorted(f for f in path.rglob("*") if f.is_file()) if folder else [path]
    return Exported(path, tuple(files), rows)


def _format(what: str, fmt: str | None, target: str | Path | None, by_case: bool) -> _Format:
    known = sorted({name for name, _ in FORMATS})
    suffix = Path(target or "").suffix.lower()
    own = {QRELS: "trec", GRAPHS: "graphml"}.get(what)
    if fmt is None and suffix and suffix not in _SUFFIXES and not (own or by_case):
        raise UsageError(
            f"no format goes with '{suffix}'", where=str(target), remedy=f"Name one: -f {', -f '.join(known)}."
        )
    fmt = fmt or _SUFFIXES.get(suffix) or own or "parquet"
    if fmt not in known:
        guess = nearest(fmt, known)
        hint = f"Did you mean '{guess}'?" if guess else f"There are: {', '.join(known)}."
        raise UsageError(f"no format is called '{fmt}'", where="export", remedy=hint)
    how = FORMATS.get((fmt, what)) or (FORMATS.get((fmt, "")) if what != GRAPHS else None)
    if how is None:
        holds = [name for other, name in FORMATS if other == fmt and name] or ["tables"]
        raise UsageError(f"{fmt} does not hold '{what}'", where="export", remedy=f"It holds: {', '.join(holds)}.")
    if not by_case:
        return how
    if fmt != "parquet":
        raise UsageError(f"{fmt} is not partitioned by case", where="export", remedy="Use parquet with --by-case.")
    if what != QRELS and "case_id" not in schema(what).names:
        raise UsageError(f"'{what}' is not kept by case", where="export", remedy="Leave --by-case out.")
    return _BY_CASE


def _target(what: str, target: str | Path | None, suffix: str, folder: bool, overwrite: bool) -> Path:
    if "://" in str(target or ""):
        raise UsageError("is not a local path", where=str(target), remedy="Export to a local path and copy it there.")
    path = Path(target or (what if folder else f"{what}{suffix}")).absolute()
    if path.is_dir() and not folder:
        path = path / f"{what}{suffix}"
    if path.is_dir() and any(path.iterdir()):
        if not folder:
            raise UsageError("is a folder", where=str(path), remedy="Name a file.")
        if not overwrite:
            raise UsageError("is not empty", where=str(path), remedy="Name another folder, or give --overwrite.")
        foreign = next((f for f in path.rglob("*") if f.is_symlink() or (f.is_file() and f.suffix != suffix)), None)
        if foreign is not None or path.is_symlink():
            raise UsageError(
                f"also holds other files, such as '{foreign or path}'", where=str(path), remedy="Name another folder."
            )
    elif path.exists() and not path.is_dir():
        if folder:
            raise UsageError("is a file, a folder is needed", where=str(path), remedy="Name a folder.")
        if path.stat().st_size and not overwrite:
            raise UsageError("is there already", where=str(path), remedy="Name another file, or give --overwrite.")
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
