"""The notes of two generations: tags a note, their reuse, and how far both agree on the same interactions.

A tag is *used* once by each note and field that holds it, however often it stands there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import fsum
from typing import TYPE_CHECKING, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from schemas import comparison
from schemas.tables import NOTE_FIELDS, NOTE_STATUSES, empty
from transforms.compare import Figure, figure, joint, ratio

if TYPE_CHECKING:
    import polars as pl

COLUMNS = ["case_id", "interaction_id", *NOTE_FIELDS, "status"]
"""Columns of table `notes` that are read."""

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


def compare_notes(shards: Iterable[tuple[pa.Table, pa.Table]]) -> tuple[list[Figure], pa.Table]:
    """Compare notes shard by shard; what is kept of each are counts by tag and by case.

    A note that failed says nothing about its interaction, so agreement is judged on the interactions that have a note
    that did not fail on both sides. Micro precision is the share of B's tags that A has, recall the share of A's that
    B has; a tag counts with its field. The Jaccard index is the mean over the interactions that have a tag in A or B.

    Args:
        shards: (A, B) tables `notes`, at least `COLUMNS`; a case lies wholly in one shard.

    Returns:
        Figures of the sections interactions, notes, tags and agreement, and the table `tags` of
        `schemas.comparison`: most gained first, then in order of field and tag.
    """
    total, fresh, rows = None, [], 0
    for a, b in shards:
        fresh.append(_count(a, b))
        rows += len(fresh[-1].tags)
        if total is None or rows > len(total.tags):
            total, fresh, rows = _add([*([total] if total else []), *fresh]), [], 0
    total = _add([total, *fresh] if total else [_count(empty("notes"), empty("notes"))])
    return list(_figures(total)), _tag_table(total.tags)


def gini(owner: Ints, uses: Ints) -> Floats:
    """Return the Gini coefficient of each owner's uses: 0 where all are equal, towards 1 where one has them all.

    With x_1 <= ... <= x_n: G = sum_i (2i - n - 1) x_i / (n sum_i x_i).

    Args:
        owner: (values,) owner of each value, from 0.
        uses: (values,) values, at least 0.

    Returns:
        (owners,) coefficients; NaN where an owner has no values or only zeros.
    """
    order = np.lexsort((uses, owner))
    owner, uses = owner[order], uses[order]
    size = np.bincount(owner)
    place = np.arange(len(owner)) - (np.cumsum(size) - size)[owner] + 1
    weighted = np.bincount(owner, (2 * place - size[owner] - 1) * uses)
    whole = size * np.bincount(owner, uses)
    coefficients: Floats = np.divide(weighted, whole, out=np.full(len(size), np.nan), where=whole > 0)
    return coefficients


@dataclass(frozen=True)
class _Counted:
    """Counts of some shards; columns a and b are the two sides.

    Attributes:
        notes: status_a, status_b (null where a side has no such interaction) -> notes.
        cases: One row a case: notes, tags (distinct) and gini of each side.
        tags: field, tag -> uses and cases of each side.
        shared: field -> a, b and common uses, where agreement is judged.
        overlaps: common, either (tags of an interaction, where agreement is judged) -> notes.
    """

    notes: pl.DataFrame
    cases: pl.DataFrame
    tags: pl.DataFrame
    shared: pl.DataFrame
    overlaps: pl.DataFrame


_KEYS = (("status_a", "status_b"), (), ("field", "tag"), ("field",), ("common", "either"))
"""What the rows of each frame are grouped by; cases stand alone."""


def _add(counted: list[_Counted]) -> _Counted:
    import polars as pl

    frames = []
    for keys, *parts in zip(_KEYS, *(c.__dict__.values() for c in counted), strict=True):
        frame = pl.concat(parts)
        frames.append(frame.group_by(keys).agg(pl.all().sum()).sort(keys) if keys else frame)
    return _Counted(*frames)


def _count(a: pa.Table, b: pa.Table) -> _Counted:
    import polars as pl

    sides = _frame(a, "a"), _frame(b, "b")
    ids = ["case_id", "interaction_id"]
    notes = sides[0].select(*ids, "status_a").join(sides[1].select(*ids, "status_b"), on=ids, how="full", coalesce=True)
    case = (pl.col("case_id").rank("dense") - 1).cast(pl.Int64)
    notes = notes.with_row_index("note").with_columns(case=case, judged=_agreed())
    places = notes.select(*ids, "note", "case", "judged")
    marks = pl.concat(
        [
            _uses(side.join(places, on=ids)).with_columns(a=pl.lit(n == 0), b=pl.lit(n == 1))
            for n, side in enumerate(sides)
        ]
    )
    marks = marks.group_by("note", "case", "judged", "field", "tag").agg(pl.col("a", "b").any())
    by_case = marks.group_by("case", "field", "tag").agg(pl.col("a", "b").sum().cast(pl.Int64))
    uses = pl.col("a", "b").sum().name.prefix("uses_")
    cases = (pl.col("a", "b") > 0).sum().cast(pl.Int64).name.prefix("cases_")
    judged = marks.filter("judged")
    common = (pl.col("a") & pl.col("b")).sum().cast(pl.Int64).alias("common")
    return _Counted(
        notes.group_by("status_a", "status_b").agg(notes=pl.len().cast(pl.Int64)),
        _by_case(notes, by_case),
        by_case.group_by("field", "tag").agg(uses, cases),
        judged.group_by("field").agg(pl.col("a", "b").sum().cast(pl.Int64), common),
        judged.group_by("note")
        .agg(common, either=pl.len().cast(pl.Int64))
        .group_by("common", "either")
        .agg(notes=pl.len().cast(pl.Int64)),
    )


def _frame(notes: pa.Table, side: str) -> pl.DataFrame:
    import polars as pl

    plain = {name: notes.column(name) for name in COLUMNS}
    plain |= {name: notes.column(name).cast(pa.string()) for name in ("case_id", "status")}
    return cast("pl.DataFrame", pl.from_arrow(pa.table(plain))).rename({"status": f"status_{side}"})


def _uses(notes: pl.DataFrame) -> pl.DataFrame:
    """Return one row a note, field and tag."""
    import polars as pl

    return pl.concat(
        [
            notes.select("note", "case", "judged", field=pl.lit(n, pl.Int8), tag=name).explode("tag").drop_nulls("tag")
            for n, name in enumerate(NOTE_FIELDS)
        ]
    ).unique()


def _by_case(notes: pl.DataFrame, uses: pl.DataFrame) -> pl.DataFrame:
    import polars as pl

    count = int(notes["case"].max() or 0) + 1 if len(notes) else 0  # type: ignore[arg-type]
    columns: dict[str, npt.NDArray[np.generic]] = {}
    each = uses.group_by("case", "tag").agg(pl.col("a", "b").sum())
    for side in "ab":
        own = notes.filter(pl.col(f"status_{side}").is_not_null())["case"].to_numpy()
        used = each.filter(pl.col(side) > 0)
        owner = used["case"].to_numpy()
        coefficients = np.full(count, np.nan)
        found = gini(owner, used[side].to_numpy())
        coefficients[: len(found)] = found
        columns[f"notes_{side}"] = np.bincount(own, minlength=count)
        columns[f"tags_{side}"] = np.bincount(owner, minlength=count)
        columns[f"gini_{side}"] = coefficients
    return pl.DataFrame(columns)


def _figures(total: _Counted) -> Iterator[Figure]:
    import polars as pl

    sides = [_own(total, side) for side in "ab"]
    there = total.notes.drop_nulls()
    common = {
        ("interactions", "cases", ""): total.cases.filter(pl.min_horizontal("notes_a", "notes_b") > 0).height,
        ("interactions", "interactions", ""): _sum(there, "notes"),
        ("tags", "distinct_field_tags", ""): total.tags.filter(pl.min_horizontal("uses_a", "uses_b") > 0).height,
    }
    for key, value in sides[0].items():
        yield figure(*key, value, sides[1][key], common.get(key))
    yield from _agreement(total, _sum(there.filter(_agreed()), "notes"))


def _own(total: _Counted, side: str) -> dict[tuple[str, str, str], float | None]:
    """Return section, name and scope -> value, of what one side has."""
    import polars as pl

    notes = total.notes.drop_nulls(f"status_{side}").group_by(f"status_{side}").agg(pl.col("notes").sum())
    statuses = dict(notes.iter_rows())
    cases = total.cases.filter(pl.col(f"notes_{side}") > 0)
    tags = total.tags.filter(pl.col(f"uses_{side}") > 0)
    by_field = dict(tags.group_by("field").agg(pl.col(f"uses_{side}").sum()).iter_rows())
    count, uses, distinct = _sum(notes, "notes"), _sum(tags, f"uses_{side}"), cases[f"tags_{side}"]
    ginis = cases[f"gini_{side}"].drop_nans().to_list()
    return {
        ("interactions", "cases", ""): cases.height,
        ("interactions", "interactions", ""): count,
        **{("notes", "notes", status): statuses.get(status, 0) for status in NOTE_STATUSES},
        ("tags", "tags_per_note", ""): ratio(uses, count),
        **{("tags", "tags_per_note", f): ratio(by_field.get(n, 0), count) for n, f in enumerate(NOTE_FIELDS)},
        ("tags", "distinct_per_case_mean", ""): ratio(_sum(cases, f"tags_{side}"), cases.height),
        ("tags", "distinct_per_case_median", ""): cast("float | None", distinct.median()),
        ("tags", "uses_per_distinct", ""): ratio(uses, _sum(cases, f"tags_{side}")),
        ("tags", "gini_mean", ""): ratio(fsum(ginis), len(ginis)),
        ("tags", "distinct_field_tags", ""): tags.height,
    }


def _agreement(total: _Counted, judged: int) -> Iterator[Figure]:
    tagged = _sum(total.overlaps, "notes")
    indices = [common / either * count for common, either, count in total.overlaps.iter_rows()]
    yield joint("agreement", "interactions", "", judged)
    yield joint("agreement", "with_tags", "", tagged)
    yield joint("agreement", "jaccard_mean", "", ratio(fsum(indices), tagged))
    uses = {n: counts for n, *counts in total.shared.iter_rows()}
    uses[-1] = [_sum(total.shared, column) for column in ("a", "b", "common")]
    for n, name in ((-1, ""), *enumerate(NOTE_FIELDS)):
        a, b, common = uses.get(n, (0, 0, 0))
        yield figure("agreement", "tags", name, a, b, common)
        yield joint("agreement", "precision", name, ratio(common, b))
        yield joint("agreement", "recall", name, ratio(common, a))
        yield joint("agreement", "f1", name, ratio(2 * common, a + b))


def _agreed() -> pl.Expr:
    """Tell whether a note is there on both sides and failed on neither."""
    import polars as pl

    return ((pl.col("status_a") != "failed") & (pl.col("status_b") != "failed")).fill_null(False)


def _sum(frame: pl.DataFrame, column: str) -> int:
    return int(frame[column].sum())


def _tag_table(tags: pl.DataFrame) -> pa.Table:
    import polars as pl

    tags = tags.with_columns(difference=pl.col("uses_b") - pl.col("uses_a"))
    tags = tags.sort("difference", "field", "tag", descending=[True, False, False])
    columns = {name: tags[name].to_arrow() for name in comparison.SCHEMAS["tags"].names}
    columns["field"] = pa.array(NOTE_FIELDS).take(columns["field"])
    return comparison.build("tags", columns)
