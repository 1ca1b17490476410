"""The table `results`: curves where a variant has a place on an axis, rows where it has none, differences apart."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jobs.report import charts
from jobs.report.figures import LEVELS, label, verdict
from pipelines.store import Generation

LISTED = 200
"""Rows of an experiment that stand in its whole table."""

_SHOWN = ("mrr", "recall@10")
_CHARTS = 8

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Value:
    """One value in a table with its place on the table's axis."""

    row: Row
    mark: charts.Mark
    verdict: str


@dataclass(frozen=True)
class Values:
    """A table of values, or of paired differences, of one metric."""

    title: str
    differences: bool
    axis: charts.Axis
    values: tuple[Value, ...]
    left_out: int


@dataclass(frozen=True)
class Experiment:
    """One experiment.

    Attributes:
        name: Its name.
        note: Questions and cases behind it.
        curves: Values over an axis.
        tables: Values without one, and paired differences.
        rows: All rows, as far as `LISTED` goes.
        total: Rows that there are.
    """

    name: str
    note: str
    curves: tuple[charts.Lines, ...]
    tables: tuple[Values, ...]
    rows: tuple[Row, ...]
    total: int


def experiments(generation: Generation) -> list[Experiment]:
    """Read what experiments measured on a generation, in order of their first rows."""
    if "results" not in generation.tables():
        return []
    rows = generation.table("results").to_pylist()
    return [_experiment(name, own) for name, own in _grouped(rows, "experiment").items()]


def _experiment(name: str, rows: Sequence[Row]) -> Experiment:
    shown = [row for row in rows if row["scope"] in ("all", "") and math.isfinite(row["value"])]
    main = next((level for level in LEVELS if any(row["level"] == level for row in shown)), "")
    shown = [row for row in shown if row["level"] in (main, "")]
    metrics = list(dict.fromkeys(row["metric"] for row in shown))
    ranking = [row["metric"] for row in shown if row["level"]]
    # Of metrics of rankings the two that the report speaks of, of counts and sizes all.
    kept = [m for m in _SHOWN if m in ranking] or list(dict.fromkeys(ranking))[: len(_SHOWN)]
    kept += [m for m in metrics if m not in ranking]
    presets = list(dict.fromkeys(row["retriever"] for row in shown))
    curves: list[charts.Lines] = []
    tables: list[Values] = []
    for metric in kept[:_CHARTS]:
        own = [row for row in shown if row["metric"] == metric]
        title = f"{label(metric)}, {main} level" if metric in ranking else metric.replace("_", " ")
        for baseline, members in _grouped(own, "baseline").items():
            against = "" if baseline is None else f": difference to {baseline}"
            placed = [row for row in members if row["x"] is not None]
            drawn = len({row["x"] for row in placed}) > 1
            if drawn:
                curves.append(_curve(name, f"{title}{against}", placed, presets))
            if left := [row for row in members if not drawn or row["x"] is None]:
                tables.append(_values(f"{title}{against}", left, differences=baseline is not None))
    behind = {(row["questions"], row["cases"]) for row in shown if row["level"] or not main}
    note = ""
    if behind:
        most = max(behind)
        note = f"{'up to ' if len(behind) > 1 else ''}{most[0]:,} questions, {most[1]:,} cases"
    return Experiment(name, note, tuple(curves), tuple(tables), tuple(rows[:LISTED]), len(rows))


def _curve(experiment: str, title: str, rows: Sequence[Row], presets: Sequence[str]) -> charts.Lines:
    axes = {row["variant"].partition("=")[0] for row in rows if "=" in row["variant"]}
    x_label = axes.pop() if len(axes) == 1 else experiment
    series = [
        (name, [(row["x"], row["value"], row["low"], row["high"]) for row in own])
        for name, own in _grouped(rows, "retriever").items()
    ]
    return charts.lines(title, x_label, series, presets)


def _values(title: str, rows: Sequence[Row], *, differences: bool) -> Values:
    ends = (row[name] for row in rows for name in ("value", "low", "high"))
    scale = charts.scale(ends, zero=differences)
    made = tuple(
        Value(
            row,
            charts.mark(scale, row["value"], row["low"], row["high"]),
            verdict(row["low"], row["high"]) if differences else "",
        )
        for row in rows[:LISTED]
    )
    return Values(title, differences, charts.axis(scale, zero=differences), made, len(rows) - len(made))


def _grouped(rows: Iterable[Row], column: str) -> dict[Any, list[Row]]:
    found: dict[Any, list[Row]] = {}
    for row in rows:
        found.setdefault(row[column], []).append(row)
    return found
