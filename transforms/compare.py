"""Two generations, A and B, side by side: what a comparison holds, and how its figures are written.

The parts are made by `transforms.compare_notes`, `transforms.compare_graphs` and `transforms.compare_questions`.
Comparing B with A gives the mirror: a and b change places, differences and intervals change sign.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

from schemas import comparison


class Figure(NamedTuple):
    """One row of the table `summary` of `schemas.comparison`."""

    section: str
    name: str
    scope: str = ""
    a: float | None = None
    b: float | None = None
    both: float | None = None
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    p_value: float | None = None
    p_holm: float | None = None


@dataclass(frozen=True)
class Side:
    """One of the two generations.

    Attributes:
        name: Its name.
        extractor: What made its notes, in words.
    """

    name: str
    extractor: str


@dataclass(frozen=True)
class Comparison:
    """Everything that two generations are compared by.

    Attributes:
        a: The generation that is compared with, such as the old one.
        b: The other one.
        cases: The cases compared, sorted; None = all.
        level: Level at which rankings are judged; empty where there are none in both.
        remarks: What a reader must know, in words.
        summary, tags, metrics, questions: The tables of `schemas.comparison`.
    """

    a: Side
    b: Side
    cases: tuple[str, ...] | None
    level: str
    remarks: tuple[str, ...]
    summary: pa.Table
    tags: pa.Table
    metrics: pa.Table
    questions: pa.Table


def figure(section: str, name: str, scope: str, a: float | None, b: float | None, both: float | None = None) -> Figure:
    """Return a figure that both sides may have."""
    return Figure(section, name, scope, a, b, both, None if a is None or b is None else b - a)


def joint(section: str, name: str, scope: str, both: float | None) -> Figure:
    """Return a figure about both sides together."""
    return Figure(section, name, scope, both=both)


def ratio(part: float, whole: float) -> float | None:
    """Return part / whole, None where there is nothing to divide by."""
    return part / whole if whole else None


def summary_table(figures: Iterable[Figure]) -> pa.Table:
    """Return the table `summary`."""
    rows = list(figures)
    columns = zip(*rows, strict=True) if rows else [()] * len(Figure._fields)
    return comparison.build("summary", {n: list(c) for n, c in zip(Figure._fields, columns, strict=True)})
