"""Times that a question names: outright, such as "in May 2023", or from when it is asked, as "10 days ago". English."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Ints = npt.NDArray[np.int64]

_MONTHS = (
    "january february march april may june july august september october november december".split()  # noqa: SIM905
)
# "may" and "march" are verbs as well: as months they are written large, or stand by a number.
_NAME = rf"(?i:{'|'.join(m for m in _MONTHS if m not in ('may', 'march'))})|May|March"
_DAY_FIRST = rf"\b(?P<day>\d{{1,2}})(?:st|nd|rd|th)?(?: of)? (?P<month>{_NAME})\b"
_MONTH_FIRST = rf"\b(?P<month>{_NAME})(?: (?P<day>\d{{1,2}})(?:st|nd|rd|th)?)?\b"
_YEAR = r"\b(?P<year>(?:19|20)\d\d)\b"


@dataclass(frozen=True)
class NamedTimes:
    """What each question names; 0 for nothing.

    Attributes:
        year, month, day: (questions,) int64.
    """

    year: Ints
    month: Ints
    day: Ints


def named_times(texts: pa.ChunkedArray | pa.Array) -> NamedTimes:
    """Read the times that questions name; the first of each kind counts. "May" at the head of a question is a verb."""
    joined = texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts
    text = pc.replace_substring_regex(pc.fill_null(joined, ""), r"^\W*(?:May|March) (?:i|I|we|you)\b", "")
    before, after = pc.extract_regex(text, _DAY_FIRST), pc.extract_regex(text, _MONTH_FIRST)
    month = pc.coalesce(pc.struct_field(before, "month"), pc.struct_field(after, "month"))
    day = pc.coalesce(pc.struct_field(before, "day"), pc.struct_field(after, "day"))
    number = pc.index_in(pc.utf8_lower(month), value_set=pa.array(_MONTHS))
    return NamedTimes(
        _numbers(pc.struct_field(pc.extract_regex(text, _YEAR), "year")),
        np.asarray(pc.fill_null(number, -1), np.int64) + 1,
        _numbers(day),
    )


def _numbers(texts: Any) -> Ints:
    return np.asarray(pc.fill_null(pc.cast(pc.if_else(pc.equal(texts, ""), None, texts), pa.int64()), 0), np.int64)


_NUMBERS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_COUNTS = {"a": 1, "an": 1, "a couple of": 2, "a couple": 2, "couple": 2, "a few": 3, "few": 3}
_COUNTS |= {word: number for number, word in enumerate(_NUMBERS, 1)}
_COUNT = r"(?P<count>\d{1,3}|" + "|".join(sorted(_COUNTS, key=len, reverse=True)) + ")"
_DAYS = {"day": 1.0, "week": 7.0, "month": 30.4, "year": 365.0}
_BLUR = {"day": 1.0, "week": 2.0, "month": 6.0, "year": 40.0}
_UNIT = r"(?P<unit>day|week|month|year)"
_AGO = rf"\b{_COUNT} {_UNIT}s? ago\b"
_WITHIN = rf"\b(?:past|last|previous) {_COUNT} {_UNIT}s\b"
_LAST = r"\b(?P<which>last|past|this) (?P<unit>weekend|week|month|year)\b"
_WEEKDAYS = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
_WEEKDAY = rf"\b(?:last|past|on) (?P<day>{'|'.join(_WEEKDAYS)})\b"
_SPANS = {
    "last week": (3.0, 13.0, 2.0),
    "past week": (0.0, 10.0, 2.0),
    "this week": (0.0, 7.0, 2.0),
    "last weekend": (1.0, 8.0, 1.5),
    "past weekend": (1.0, 8.0, 1.5),
    "this weekend": (0.0, 3.0, 1.5),
    "last month": (8.0, 55.0, 6.0),
    "past month": (0.0, 31.0, 4.0),
    "this month": (0.0, 31.0, 4.0),
    "last year": (60.0, 650.0, 40.0),
    "past year": (0.0, 365.0, 30.0),
    "this year": (0.0, 365.0, 30.0),
}
"""What people mean by such words, in days before they say them: from, to, and how far off it may be (ours)."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Ago:
    """How long before it is asked the time lies that a question names; NaN for nothing.

    Attributes:
        low, high: (questions,) days before, from and to.
        blur: (questions,) days that it may be off.
    """

    low: Floats
    high: Floats
    blur: Floats


def times_ago(texts: pa.ChunkedArray | pa.Array, asked_at: pa.ChunkedArray | pa.Array) -> Ago:
    """Read "10 days ago", "last Saturday", "the past two weeks", "last month", "yesterday"; the first kind counts.

    Args:
        texts: (questions,) their texts.
        asked_at: (questions,) when they were asked; nothing is read of a question without.
    """
    joined, asked = (x.combine_chunks() if isinstance(x, pa.ChunkedArray) else x for x in (texts, asked_at))
    text = pc.utf8_lower(pc.fill_null(joined, ""))
    size = len(text)
    found = np.full((3, size), np.nan)

    def put(low: Floats, high: Floats, blur: Floats) -> None:
        new = np.isnan(found[0]) & ~np.isnan(low)
        for row, values in enumerate((low, high, blur)):
            found[row, new] = values[new]

    count, days, blur = _counted(text, _AGO)
    put(count * days, count * days, blur)
    count, days, _ = _counted(text, _WITHIN)
    put(0 * count, count * days, 0.15 * days)
    match = pc.extract_regex(text, _WEEKDAY)
    weekday = _coded(pc.struct_field(match, "day"), dict(zip(_WEEKDAYS, range(7), strict=True)))
    back = (np.asarray(pc.fill_null(pc.day_of_week(asked), 0), np.float64) - weekday) % 7
    back = np.where(back == 0, 7.0, back)
    put(back, back, 0 * back + 0.8)
    match = pc.extract_regex(text, _LAST)
    named = pc.binary_join_element_wise(pc.struct_field(match, "which"), pc.struct_field(match, "unit"), " ")
    put(*(_coded(named, {name: span[row] for name, span in _SPANS.items()}) for row in range(3)))
    yesterday = np.where(np.asarray(pc.match_substring_regex(text, r"\byesterday\b")), 1.0, np.nan)
    put(yesterday, yesterday, 0.7 * yesterday)
    found[:, np.asarray(pc.is_null(asked))] = np.nan
    return Ago(*found)


def _counted(text: pa.Array, pattern: str) -> tuple[Floats, Floats, Floats]:
    match = pc.extract_regex(text, pattern)
    count = pc.struct_field(match, "count")
    digits = pc.if_else(pc.match_substring_regex(pc.fill_null(count, ""), r"^\d+$"), count, None)
    number = np.asarray(pc.cast(pc.cast(digits, pa.int64()), pa.float64()).fill_null(np.nan), np.float64)
    worded = _coded(count, {word: float(value) for word, value in _COUNTS.items()})
    unit = pc.struct_field(match, "unit")
    return np.where(np.isnan(number), worded, number), _coded(unit, _DAYS), _coded(unit, _BLUR)


def _coded(words: pa.Array, values: Mapping[str, float]) -> Floats:
    place = pc.index_in(words, value_set=pa.array(list(values), pa.string()))
    table = np.array([*values.values(), np.nan], np.float64)
    coded: Floats = table[np.asarray(pc.fill_null(place, len(values)), np.int64)]
    return coded
