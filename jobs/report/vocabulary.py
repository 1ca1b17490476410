"""The tags of a generation: how many a case has, how often they are used again, which are used most.

A tag is *used* once by each note and field that holds it, however often it stands there. A case's *distinct* tags are
told apart by their path alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from schemas.tables import NOTE_FIELDS, NOTE_STATUSES

if TYPE_CHECKING:
    import polars as pl

COLUMNS = ["case_id", *NOTE_FIELDS, "status"]
"""Columns of table `notes` that are read."""

TOP = 20
"""Tags shown."""

QUANTILES = (("lowest", 0.0), ("25 %", 0.25), ("median", 0.5), ("75 %", 0.75), ("highest", 1.0))
"""What is told of the spread over cases."""

_BINS = ((1, 1), (2, 2), (3, 5), (6, 10), (11, 50), (51, None))
_KEPT = 200_000
"""Rows of shards that are held before they are added up."""


@dataclass(frozen=True)
class Vocabulary:
    """The tags of a generation.

    Attributes:
        notes: Notes by status, those that there are.
        fields: (field, distinct tags, uses, uses a note).
        cases: Cases with notes.
        spread: (what, a value for each of `QUANTILES`) over the cases.
        reuse: (uses within a case, as text; tags; share of all), so that a tag counts once in each of its cases.
        top: (field, tag, uses, cases), most used first.
        distinct: Distinct (field, tag) pairs.
    """

    notes: tuple[tuple[str, int], ...]
    fields: tuple[tuple[str, int, int, float], ...]
    cases: int
    spread: tuple[tuple[str, tuple[float, ...]], ...]
    reuse: tuple[tuple[str, int, float], ...]
    top: tuple[tuple[str, str, int, int], ...]
    distinct: int


def vocabulary(parts: Iterable[pa.Table]) -> Vocabulary | None:
    """Count tags shard by shard; None where there are no notes.

    Args:
        parts: Tables `notes`, at least `COLUMNS`; a case lies wholly in one of them.
    """
    import polars as pl

    statuses: dict[str, int] = dict.fromkeys(NOTE_STATUSES, 0)
    cases, tags, waiting, reuse = [], None, [], [0] * len(_BINS)
    for part in parts:
        frame = _frame(part)
        for status, count in frame.group_by("status").len().iter_rows():
            statuses[status] = statuses.get(status, 0) + count
        uses = _uses(frame)
        each = uses.group_by("case_id", "tag").agg(uses=pl.col("uses").sum())
        cases.append(_by_case(frame, each))
        reuse = [n + count for n, count in zip(reuse, _binned(each), strict=True)]
        waiting.append(uses.group_by("field", "tag").agg(pl.col("uses").sum(), cases=pl.len()))
        if tags is None or sum(map(len, waiting)) > max(_KEPT, len(tags)):
            tags, waiting = _added([*([] if tags is None else [tags]), *waiting]), []
    total = sum(statuses.values())
    if not total or tags is None:
        return None
    tags = _added([tags, *waiting]).sort("uses", "field", "tag", descending=[True, False, False])
    by_field = {f: (n, u) for f, n, u in tags.group_by("field").agg(pl.len(), pl.col("uses").sum()).iter_rows()}
    every = pl.concat(cases)
    counted = max(sum(reuse), 1)
    return Vocabulary(
        tuple((status, count) for status, count in statuses.items() if count),
        tuple((f, *by_field.get(n, (0, 0)), by_field.get(n, (0, 0))[1] / total) for n, f in enumerate(NOTE_FIELDS)),
        len(every),
        tuple((what, _quantiles(every[column])) for what, column in _SPREAD),
        tuple((_bin(*bounds), n, n / counted) for bounds, n in zip(_BINS, reuse, strict=True)),
        tuple((NOTE_FIELDS[f], tag, u, c) for f, tag, u, c in tags.head(TOP).iter_rows()),
        len(tags),
    )


_SPREAD = (
    ("notes", "notes"),
    ("distinct tags", "tags"),
    ("uses of a distinct tag", "reuse"),
    ("share of tags used once", "once"),
)


def _frame(part: pa.Table) -> pl.DataFrame:
    import polars as pl

    plain = {name: part.column(name) for name in NOTE_FIELDS}
    plain |= {name: part.column(name).cast(pa.string()) for name in ("case_id", "status")}
    return cast("pl.DataFrame", pl.from_arrow(pa.table(plain))).with_row_index("note")


def _uses(notes: pl.DataFrame) -> pl.DataFrame:
    """Return the uses of each case, field and tag."""
    import polars as pl

    marks = [
        notes.select("case_id", "note", field=pl.lit(n, pl.Int8), tag=name).explode("tag").drop_nulls("tag").unique()
        for n, name in enumerate(NOTE_FIELDS)
    ]
    return pl.concat(marks).group_by("case_id", "field", "tag").agg(uses=pl.len().cast(pl.Int64))


def _by_case(notes: pl.DataFrame, each: pl.DataFrame) -> pl.DataFrame:
    import polars as pl

    own = each.group_by("case_id").agg(tags=pl.len(), reuse=pl.col("uses").mean(), once=(pl.col("uses") == 1).mean())
    counted = notes.group_by("case_id").agg(notes=pl.len())
    return counted.join(own, on="case_id", how="left").with_columns(pl.col("tags").fill_null(0))


def _binned(each: pl.DataFrame) -> list[int]:
    import polars as pl

    return [each.filter(pl.col("uses").is_between(low, high or 2**62)).height for low, high in _BINS]


def _bin(low: int, high: int | None) -> str:
    return f"{low}" if low == high else f"{low} and more" if high is None else f"{low} to {high}"


def _added(frames: list[pl.DataFrame]) -> pl.DataFrame:
    import polars as pl

    return pl.concat(frames).group_by("field", "tag").agg(pl.col("uses", "cases").sum())


def _quantiles(values: Any) -> tuple[float, ...]:
    known = values.drop_nulls()
    return tuple(float(known.quantile(q, "nearest") or 0.0) if len(known) else 0.0 for _, q in QUANTILES)
