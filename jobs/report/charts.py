"""Geometry of the report's drawings: scales, intervals in table rows, lines.

Places along the x axis are percent of the drawing's width, so that a drawing fits any screen and its letters keep their
size; places along the y axis are pixels.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

STYLES = 8
"""Colours and marks that lines can have, so also the lines of one drawing."""

HEIGHT = 240
_TOP, _BOTTOM = 12, 212
_LEFT, _RIGHT = 11.0, 97.0
_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)


Ends = tuple[float, float | None, float | None]
"""Value, low, high."""

Measured = tuple[float, float, float | None, float | None]
"""x, value, low, high."""


@dataclass(frozen=True)
class Scale:
    """An axis.

    Attributes:
        low: Value at its start.
        high: Value at its end.
        ticks: (value, label), ascending.
    """

    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]
    log: bool = False

    def share(self, value: float) -> float:
        """Return where a value lies, from 0 to 1; values outside lie at the nearer end."""
        low, high, at = self.low, self.high, value
        if self.log:
            low, high, at = math.log(low), math.log(high), math.log(max(value, self.low))
        return min(max((at - low) / (high - low), 0.0), 1.0)


@dataclass(frozen=True)
class Mark:
    """A value with its interval in a row, in percent of the width."""

    at: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Tick:
    """A tick at a place in percent; the label of a minor one is left out where there is little room."""

    at: float
    label: str
    minor: bool


@dataclass(frozen=True)
class Axis:
    """The axis above a column of marks, and the place of 0 on it where they are differences."""

    ticks: tuple[Tick, ...]
    zero: float | None


@dataclass(frozen=True)
class Point:
    """A point of a line: x in percent, y and the ends of its interval in pixels."""

    x: float
    y: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Line:
    """One line of a drawing; `style` is a number below `STYLES`."""

    name: str
    style: int
    points: tuple[Point, ...]


@dataclass(frozen=True)
class Lines:
    """A drawing of lines with its values as a table.

    Attributes:
        title: What the values are.
        x_label: What changes along x.
        x_ticks: (percent, label).
        y_ticks: (pixels, label).
        zero: Pixels of the line at 0, where values lie on both sides of it.
        lines: The lines drawn.
        left_out: Lines that are in the table only.
        columns: x values, as text.
        rows: (name, (value, low, high) or None at each x) of every line, drawn or not.
    """

    title: str
    x_label: str
    x_ticks: tuple[tuple[float, str], ...]
    y_ticks: tuple[tuple[float, str], ...]
    zero: float | None
    lines: tuple[Line, ...]
    left_out: int
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Ends | None, ...]], ...]


def scale(values: Iterable[float | None], *, zero: bool = False, steps: int = 5) -> Scale:
    """Return a linear axis with round ticks that holds all values.

    Args:
        values: What is to be shown; None and infinite values are passed over.
        zero: The axis holds 0 too.
        steps: About how many ticks.
    """
    known = [float(v) for v in values if v is not None and math.isfinite(v)] + ([0.0] if zero else [])
    low, high = min(known, default=0.0), max(known, default=1.0)
    if high - low < 1e-9 * max(abs(low), abs(high), 1.0):
        half = abs(high) / 2 or 0.5
        low, high = low - half, high + half
    step = _round_step((high - low) / steps)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    if round(step, digits) != step:  # 0.25 needs a digit more than 0.2
        digits += 1
    ticks = tuple((n * step, short(n * step, digits)) for n in range(first, last + 1))
    return Scale(first * step, last * step, ticks)


def _round_step(raw: float) -> float:
    power = 10.0 ** math.floor(math.log10(raw))
    return next((s for s in _STEPS if s >= raw / power - 1e-9), 10.0) * power


def short(value: float, digits: int) -> str:
    """Write a number for an axis: thousands as k, millions as M."""
    for limit, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= limit:
            return _sign(f"{value / (1e3 if letter == 'k' else limit):g}{letter}")
    return _sign(f"{value:z.{digits}f}")


def _sign(text: str) -> str:
    return text.replace("-", "−")


def axis(held: Scale, *, zero: bool = False) -> Axis:
    """Return an axis for a column of marks."""
    first = next((n for n, (value, _) in enumerate(held.ticks) if value == 0), 0)
    ticks = tuple(
        Tick(_percent(held.share(value)), label, (n - first) % 2 == 1) for n, (value, label) in enumerate(held.ticks)
    )
    return Axis(ticks, _percent(held.share(0.0)) if zero else None)


def mark(held: Scale, value: float, low: float | None, high: float | None) -> Mark:
    """Return a value with its interval on an axis."""
    at, *ends = (None if v is None else _percent(held.share(v)) for v in (value, low, high))
    assert at is not None
    return Mark(at, *ends)


def _percent(share: float) -> float:
    # A margin of 2 % on both sides keeps marks at the ends whole.
    return round(2 + 96 * share, 2)


def lines(title: str, x_label: str, series: Sequence[tuple[str, Sequence[Measured]]], names: Sequence[str]) -> Lines:
    """Lay out lines; of more than `STYLES` those with the highest mean value are drawn, in the order given.

    Args:
        title: What the values are.
        x_label: What changes along x.
        series: Name and (x, value, low, high) of each line.
        names: Names of this and of related drawings: a name has the same style in all of them, as far as styles go.
    """
    best = sorted(range(len(series)), key=lambda n: -_mean([v for _, v, _, _ in series[n][1]]))[:STYLES]
    drawn = [series[n] for n in sorted(best)]
    xs = sorted({x for _, points in series for x, *_ in points})
    held = _x_scale(xs)
    ys = scale((v for _, points in drawn for _, *values in points for v in values))

    def right(x: float) -> float:
        return round(_LEFT + (_RIGHT - _LEFT) * held.share(x), 2)

    def down(value: float | None) -> float | None:
        return None if value is None else round(_BOTTOM - (_BOTTOM - _TOP) * ys.share(value), 1)

    made: list[Line] = []
    for name, points in drawn:
        wanted = names.index(name)
        taken = {line.style for line in made}
        style = next(n % STYLES for n in range(wanted, wanted + STYLES) if n % STYLES not in taken)
        placed = (Point(right(x), down(v) or 0.0, down(low), down(high)) for x, v, low, high in sorted(points))
        made.append(Line(name, style, tuple(placed)))
    return Lines(
        title,
        x_label,
        _apart([(right(x), _plain(x)) for x in xs]),
        tuple((down(value) or 0.0, label) for value, label in ys.ticks),
        down(0.0) if ys.low < 0 < ys.high else None,
        tuple(made),
        len(series) - len(drawn),
        tuple(_plain(x) for x in xs),
        tuple((name, _values(points, xs)) for name, points in series),
    )


def _values(points: Sequence[Measured], xs: Sequence[float]) -> tuple[Ends | None, ...]:
    known = {x: (value, low, high) for x, value, low, high in points}
    return tuple(known.get(x) for x in xs)


def _x_scale(xs: Sequence[float]) -> Scale:
    low, high = min(xs, default=0.0), max(xs, default=1.0)
    if high <= low:
        return Scale(low - 1, low + 1, ())
    return Scale(low, high, (), log=low > 0 and high / low > 50)


def _apart(ticks: list[tuple[float, str]]) -> tuple[tuple[float, str], ...]:
    """Leave labels out that would stand on others on a narrow screen; the last one stays."""
    kept: list[tuple[float, str]] = []
    for place, label in reversed(ticks):
        if not kept or kept[-1][0] - place >= 2.2 * len(label) + 4:
            kept.append((place, label))
    return tuple(reversed(kept))


def _plain(x: float) -> str:
    return _sign(f"{int(x):,}" if float(x).is_integer() else f"{x:g}")


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else 0.0
