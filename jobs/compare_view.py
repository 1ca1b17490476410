"""How `tagloom compare` shows a comparison: as tables, as JSON, as Parquet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from jobs import console
from jobs.export import Exported, write_folder
from jobs.export_formats.flat import write_parquet
from jobs.export_formats.joins import plain
from schemas.tables import NOTE_FIELDS, NOTE_STATUSES
from transforms.compare import Comparison

TAGS = 10
"""Tags gained and lost that are shown of each."""

QUESTIONS = 5
"""Questions gained and lost that are shown of each."""

TABLES = ("summary", "tags", "metrics", "questions")
"""The tables of a comparison."""

_ROWS = 100_000
_ID = 48
_TEXT = 100
"""Characters shown of ids and of texts."""

_WORDS = {
    "tags_per_note": "tags a note",
    "distinct_per_case_mean": "distinct tags a case, mean",
    "distinct_per_case_median": "distinct tags a case, median",
    "uses_per_distinct": "uses of a distinct tag",
    "gini_mean": "Gini of tag uses, mean of cases",
    "distinct_field_tags": "distinct tags by field, all cases",
    "nodes_per_case": "nodes a case",
    "edges_per_case": "edges a case",
    "degree_mean": "degree, mean",
    "degree_max": "degree, highest",
    "isolated_files": "files without an edge",
    "from_journal": "replies from the journal",
    "prompt_tokens": "prompt tokens",
    "completion_tokens": "reply tokens",
}

Row = Mapping[str, Any]


def as_dict(compared: Comparison, corpus: str) -> dict[str, Any]:
    """Return everything for JSON: of tags and questions those that differ, as they are in the tables."""
    tables = {name: plain(getattr(compared, name)) for name in TABLES}
    for name in ("tags", "questions"):
        tables[name] = tables[name].filter(pc.not_equal(tables[name]["difference"], 0))
    return {
        "corpus": corpus,
        "a": asdict(compared.a),
        "b": asdict(compared.b),
        "cases": None if compared.cases is None else list(compared.cases),
        "level": compared.level,
        "remarks": list(compared.remarks),
        **{name: table.to_pylist() for name, table in tables.items()},
    }


def write(compared: Comparison, target: str, *, overwrite: bool) -> Exported:
    """Write the four tables as Parquet files into a folder.

    Raises:
        UsageError: The folder is taken.
    """

    def into(folder: Path) -> int:
        return sum(write_parquet(_slices(getattr(compared, name)), folder / f"{name}.parquet") for name in TABLES)

    return write_folder(target, ".parquet", into, overwrite=overwrite)


def _slices(table: pa.Table) -> Iterator[pa.Table]:
    for start in range(0, max(table.num_rows, 1), _ROWS):
        yield plain(table.slice(start, _ROWS))


def show(compared: Comparison, corpus: str) -> None:
    """Print the comparison."""
    figures = _Figures(compared.summary.to_pylist())
    for letter, side in (("A", compared.a), ("B", compared.b)):
        console.emit(f"{letter} = {side.name}: {_cut(side.extractor)}")
    cases, files = (figures.row("interactions", name) for name in ("cases", "interactions"))
    alone = ", ".join(f"only in {side}: {_number(files[side.lower()] - files['both'])}" for side in "AB")
    console.emit(f"{_number(cases['both'])} cases and {_number(files['both'])} interactions are in both; {alone}")
    for remark in compared.remarks:
        console.emit(f"note: {_cut(remark, 2 * _TEXT)}")
    _show_sides("\nnotes and tags", _note_rows(figures), compared)
    _show_agreement(figures)
    _show_tags(compared.tags, compared)
    for graph in figures.scopes("graph"):
        rows = [(_word(row["name"]), row) for row in figures.rows("graph", graph)]
        _show_sides(f"\ngraph {_cut(graph, _ID)}", rows, compared)
    _show_metrics(compared)
    _show_questions(compared, corpus)
    _show_sides("\nextraction", [(_word(row["name"]), row) for row in figures.rows("cost", "")], compared)


class _Figures:
    """The summary, by section, name and scope."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self._rows = {(row["section"], row["name"], row["scope"]): row for row in rows}

    def row(self, section: str, name: str, scope: str = "") -> Row:
        return self._rows[section, name, scope]

    def rows(self, section: str, scope: str) -> list[Row]:
        return [row for (own, _, about), row in self._rows.items() if (own, about) == (section, scope)]

    def scopes(self, section: str) -> list[str]:
        return list(dict.fromkeys(scope for own, _, scope in self._rows if own == section))


def _note_rows(figures: _Figures) -> list[tuple[str, Row]]:
    rows: list[tuple[str, Row]] = [("notes", figures.row("interactions", "interactions"))]
    rows += [(f"  {status}", figures.row("notes", "notes", status)) for status in NOTE_STATUSES]
    rows.append((_word("tags_per_note"), figures.row("tags", "tags_per_note")))
    rows += [(f"  {name}", figures.row("tags", "tags_per_note", name)) for name in NOTE_FIELDS]
    rows += [(_word(row["name"]), row) for row in figures.rows("tags", "") if row["name"] != "tags_per_note"]
    return rows


def _word(name: str) -> str:
    """Say what a figure is."""
    _, sign, kind = name.partition(":")
    return f"  {_cut(kind, _ID)}" if sign else _WORDS.get(name, name)


def _show_sides(title: str, rows: Sequence[tuple[str, Row]], compared: Comparison) -> None:
    console.emit(title)
    cells = []
    for word, row in rows:
        digits = 1 if max(row["a"] or 0, row["b"] or 0) >= 100 else 3
        sign = "+" if row["difference"] else ""
        cells.append([word, *(_number(row[side], digits) for side in "ab"), _number(row["difference"], digits, sign)])
    console.emit(console.table(["", compared.a.name, compared.b.name, "difference"], cells))


def _show_agreement(figures: _Figures) -> None:
    def both(name: str, scope: str = "") -> Any:
        return figures.row("agreement", name, scope)["both"]

    failed = figures.row("interactions", "interactions")["both"] - both("interactions")
    console.emit(
        f"\nagreement of tags on {_number(both('interactions'))} interactions"
        + (f" ({_number(failed)} more have a failed note)" if failed else "")
        + f": mean Jaccard {_number(both('jaccard_mean'))} over the {_number(both('with_tags'))} with a tag"
    )
    cells = []
    for scope in ("", *NOTE_FIELDS):
        tags = figures.row("agreement", "tags", scope)
        numbers = [tags["a"], tags["b"], tags["both"], *(both(name, scope) for name in ("precision", "recall", "f1"))]
        cells.append([scope or "all", *map(_number, numbers)])
    console.emit(console.table(["field", "tags of A", "tags of B", "common", "precision", "recall", "F1"], cells))


def _show_tags(tags: pa.Table, compared: Comparison) -> None:
    for word, table in zip(("gained", "lost"), _apart(tags), strict=True):
        console.emit(f"\ntags {word}: {table.num_rows:,}")
        if not table.num_rows:
            continue
        cells = [
            [_cut(f"{row['field']}: {row['tag']}", _ID), *(f"{row[name]:{form}}" for name, form in _USES)]
            for row in table.slice(0, TAGS).to_pylist()
        ]
        heads = [f"uses in {compared.a.name}", f"in {compared.b.name}", "difference", "cases of A", "of B"]
        console.emit(console.table(["tag", *heads], cells))


_USES = (("uses_a", ","), ("uses_b", ","), ("difference", "+,"), ("cases_a", ","), ("cases_b", ","))


def _show_metrics(compared: Comparison) -> None:
    rows = compared.metrics.to_pylist()
    if not rows:
        return
    console.emit(
        f"\nmetrics over {rows[0]['questions']:,} questions of {rows[0]['cases']:,} cases ({compared.level} level); "
        "difference [95 % paired bootstrap interval by case], sign-flip p by case, Holm over presets"
    )
    cells = [
        [row["retriever"], row["metric"], f"{row['mean_a']:.3f}", f"{row['mean_b']:.3f}", _difference(row)]
        + [f"{row[name]:z.{digits}f}" if row[name] is not None else "-" for name, digits in _TESTS]
        for row in rows
    ]
    heads = ["preset", "metric", compared.a.name, compared.b.name, "difference", "effect", "p", "p (Holm)"]
    console.emit(console.table(heads, cells, "llrrlrrr"))


_TESTS = (("effect", 2), ("p_value", 4), ("p_holm", 4))


def _difference(row: Row) -> str:
    span = "" if row["low"] is None else f" [{row['low']:+z.3f}, {row['high']:+z.3f}]"
    return f"{row['difference']:+z.3f}{span}"


def _show_questions(compared: Comparison, corpus: str) -> None:
    if not compared.metrics.num_rows:
        return
    preset = compared.metrics["retriever"][0].as_py()
    table = compared.questions
    table = table.filter(pc.equal(table["retriever"].cast(pa.string()), preset))
    more, less = _apart(table)
    same = table.num_rows - more.num_rows - less.num_rows
    console.emit(
        f"\nquestions of {preset} by rank of the first gold: gained {more.num_rows:,}, lost {less.num_rows:,}, "
        f"same {same:,}"
    )
    for word, rows in (("gained", more), ("lost", less)):
        for row in rows.slice(0, QUESTIONS).to_pylist():
            ranks = " -> ".join(str(row[name] or "none") for name in ("rank_a", "rank_b"))
            asked = " ".join(_cut(row[name], _ID) for name in ("case_id", "question_id"))
            console.emit(f"{word}: rank {ranks}   {asked}   {_cut(row['question'])}")
            console.emit(f"    gold  {_cut(', '.join(row['gold_ids']), _ID)}   {_cut(row['gold_text'])}")
            for side in "ab":
                first = "nothing" if row[f"first_{side}"] is None else row[f"first_{side}"]
                console.emit(f"    {side.upper()} 1st {_cut(first, _ID)}   {_cut(row[f'first_{side}_text'] or '')}")
    if more.num_rows or less.num_rows:
        side = compared.b.name
        console.emit(
            f"more: --to FOLDER, --json   |   tagloom query -C {corpus} --name {side} --case CASE -r {preset} TEXT"
        )


def _apart(table: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Return what was gained and what was lost, most first; equal ones stay in order."""
    lost = table.filter(pc.less(table["difference"], 0))
    return table.filter(pc.greater(table["difference"], 0)), lost.take(
        pc.sort_indices(lost, [("difference", "ascending")])
    )


def _number(value: float | None, digits: int = 3, sign: str = "") -> str:
    if value is None:
        return "-"
    return f"{value:{sign}z,.{0 if float(value).is_integer() else digits}f}"


def _cut(text: str, limit: int = _TEXT) -> str:
    """Return the start of a text on one line."""
    line = " ".join(text[: 4 * limit].split())
    return line if len(line) <= limit else line[: limit - 3].rstrip() + "..."
