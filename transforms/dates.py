"""Dates in text, resolved against the time of the message, as tags ``2023/05/07``, ``2023/05`` or ``2023``.

One regular expression finds the mentions of a whole column at once. Each distinct mention is understood once;
the calendar arithmetic runs over all mentions together. The readings chosen are listed in docs/extractors.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_MONTHS = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
]
_SHORT = frozenset(month[:3] for month in _MONTHS)
_DAYS = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
_WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
_SEASON_MONTHS = {"spring": (3, 5), "summer": (6, 8), "fall": (9, 11), "autumn": (9, 11)}

_MONTH = (
    r"(?:jan(?:uary|\.)?|feb(?:ruary|\.)?|mar(?:ch|\.)?|apr(?:il|\.)?|may|june?|july?|aug(?:ust|\.)?"
    r"|sept?(?:ember|\.)?|oct(?:ober|\.)?|nov(?:ember|\.)?|dec(?:ember|\.)?)"
)
_FULL_MONTH = f"(?:{'|'.join(_MONTHS)})"
_WEEKDAY = f"(?:{'|'.join(_DAYS)})"
_DAY = r"(?:3[01]|[12][0-9]|0?[1-9])(?:st|nd|rd|th)?"
_YEAR = r"(?:19|20)[0-9]{2}"
_COUNT = rf"(?:[0-9]{{1,3}}|an?|a\s+couple\s+of|{'|'.join(_WORDS[1:])})"
_UNIT = r"(?:day|week|month|year)"
_COUNTED = r"(?:words|people|calories|dollars|euros|pounds|steps|miles|meters|feet|square|characters|tokens)"
_STEP = r"(?:this\s+past|this\s+coming|this|last|past|previous|next|coming|upcoming)"
# A preposition may stand before any date, so that "by April 14" is not read as "by April".
_LEAD = r"(?:(?:in|since|during|until|till|by|early|late|mid|of|for|on|from|to|around|before|after)[\s-]+)?"
_FORMS = {
    "iso": rf"(?P<iso>{_LEAD}[0-9]{{4}}[-/][0-9]{{1,2}}[-/][0-9]{{1,2}})",
    "numeric": r"(?P<numeric>[0-9]{1,2}/[0-9]{1,2}/(?:[0-9]{4}|[0-9]{2}))",
    "month_day": rf"(?P<month_day>{_LEAD}{_MONTH}\s+(?:the\s+)?{_DAY}(?:,?\s+{_YEAR})?)",
    "day_month": rf"(?P<day_month>{_DAY}\s+(?:of\s+)?{_MONTH}(?:,?\s+{_YEAR})?)",
    "month_year": rf"(?P<month_year>{_LEAD}{_MONTH},?\s+(?:of\s+)?{_YEAR})",
    "near": r"(?P<near>(?:the\s+)?day\s+before\s+yesterday|(?:the\s+)?day\s+after\s+tomorrow|yesterday|today|tomorrow"
    r"|tonight|last\s+night|this\s+(?:morning|afternoon|evening))",
    "ago": rf"(?P<ago>{_COUNT}\s+{_UNIT}s?\s+(?:ago|from\s+now))",
    "habit": rf"(?P<habit>(?:every|each)\s+(?:{_WEEKDAY}|{_FULL_MONTH}))",
    "step": rf"(?P<step>{_STEP}\s+(?:{_WEEKDAY}|{_FULL_MONTH}|weekend|week|month|year|spring|summer|fall|autumn))",
    "month": rf"(?P<month>(?:in|since|during|until|by|early|late|mid|of|for)[\s-]+{_FULL_MONTH})",
    "amount": rf"(?P<amount>(?:of|from|by|around|before|after|until)\s+{_YEAR}\s+{_COUNTED})",
    "year": r"(?P<year>(?:in|since|during|of|from|to|by|until|around|before|after|summer|spring|fall|autumn)"
    rf"\s+{_YEAR})",
    "weekday": rf"(?P<weekday>{_WEEKDAY})",
}
_BODY = "|".join(_FORMS.values())
_FIND = rf"(?i)(?-u:\b)(?:{re.sub(r'[?]P<[a-z_]+>', '?:', _BODY)})(?-u:\b)"
_READ = re.compile(_BODY, re.IGNORECASE | re.ASCII)

# What a mention asks of the calendar. Columns of the plan: operation, a, b, precision (3 day, 2 month, 1 year).
_ABSOLUTE, _SHIFT, _WEEKDAY_AT, _NEAREST_DAY, _MONTH_AT, _SEASON_AT, _WEEKEND = range(7)
_BACK, _HERE, _FORTH = -1, 0, 1
_Plan = tuple[int, int, int, int]


@dataclass(frozen=True)
class Dates:
    """Dates found in a column of texts, in order of row and of appearance; repeated ones are kept.

    Attributes:
        rows: int64 array, the row of each date.
        tags: ``string`` array, the date tags.
    """

    rows: npt.NDArray[np.int64]
    tags: pa.Array


def resolve(texts: pa.Array | pa.ChunkedArray, times: pa.Array | pa.ChunkedArray) -> Dates:
    """Find and resolve the dates of many texts.

    Args:
        texts: Strings.
        times: Timestamps of the same length, null where not known; relative dates of such a row are left out.
            The day is the timestamp's day in UTC.

    Returns:
        The resolved dates; impossible ones (30 February) and years outside 1 to 9999 are left out.
    """
    # A list-valued expression keeps the order of appearance and needs no Python object for a row without a date.
    import polars as pl  # a plan loads this module and needs no polars

    series = pl.Series(pl.from_arrow(texts)).cast(pl.String)
    found = pl.DataFrame({"text": series}).select(mention=pl.col("text").str.extract_all(_FIND)).with_row_index("row")
    found = found.filter(pl.col("mention").list.len() > 0).explode("mention", keep_nulls=False, empty_as_null=False)
    rows = found["row"].cast(pl.Int64).to_numpy()
    encoded = found["mention"].to_arrow().cast(pa.large_string()).dictionary_encode()
    plans = np.array([_plan(m) or (-1, 0, 0, 0) for m in encoded.dictionary.to_pylist()], dtype=np.int64)
    plan = plans.reshape(-1, 4)[encoded.indices.to_numpy(zero_copy_only=False)]
    stamps = times.combine_chunks() if isinstance(times, pa.ChunkedArray) else times
    days = pc.fill_null(stamps.cast(pa.timestamp("us")).cast(pa.int64()), np.iinfo(np.int64).min)
    anchors = days.to_numpy(zero_copy_only=False).view("datetime64[us]").astype("datetime64[D]")[rows]
    known = (plan[:, 0] == _ABSOLUTE) | (~np.isnat(anchors) & (plan[:, 0] >= 0))
    rows, plan, anchors = rows[known], plan[known], anchors[known]
    resolved = _calculate(plan, anchors)
    year = resolved.astype("datetime64[Y]").astype(np.int64) + 1970
    good = ~np.isnat(resolved) & (year >= 1) & (year <= 9999)
    return Dates(rows[good], _tags(resolved[good], plan[good, 3]))


def _tags(days: npt.NDArray[np.datetime64], precision: npt.NDArray[np.int64]) -> pa.Array:
    iso = pa.array(np.datetime_as_string(days).astype(object), type=pa.string())
    full = pc.replace_substring(iso, "-", "/")
    ends = np.array([0, 4, 7, 10])
    out = full
    for level in (1, 2):
        out = pc.if_else(pa.array(precision == level), pc.utf8_slice_codeunits(full, 0, int(ends[level])), out)
    return out


def _calculate(plan: npt.NDArray[np.int64], day: npt.NDArray[np.datetime64]) -> npt.NDArray[np.datetime64]:
    out = np.full(len(plan), np.datetime64("NaT"), dtype="datetime64[D]")
    operation, a, b = plan[:, 0], plan[:, 1], plan[:, 2]
    for code, function in (
        (_ABSOLUTE, lambda d, a, b: a.astype("datetime64[D]")),
        (_SHIFT, _shift),
        (_WEEKDAY_AT, _weekday),
        (_NEAREST_DAY, _nearest_day),
        (_MONTH_AT, _month),
        (_SEASON_AT, _season),
        (_WEEKEND, lambda d, a, b: d - (d.astype(np.int64) + 3) % 7 + 5 + 7 * a),
    ):
        at = np.flatnonzero(operation == code)
        if len(at):
            out[at] = function(day[at], a[at], b[at])
    return out


_Days = npt.NDArray[np.datetime64]
_Ints = npt.NDArray[np.int64]


def _shift(day: _Days, count: _Ints, unit: _Ints) -> _Days:
    """Move by days (unit 3), or to the first of the month (2) or of the year (1) so many away."""
    month = (day.astype("datetime64[M]") + count).astype("datetime64[D]")
    year = (day.astype("datetime64[Y]") + count).astype("datetime64[D]")
    moved: _Days = np.where(unit == 3, day + count, np.where(unit == 2, month, year))
    return moved


def _weekday(day: _Days, weekday: _Ints, way: _Ints) -> _Days:
    """Find the weekday (0 Monday): strictly before (-2), at or before (-1), at or after (1), strictly after (2)."""
    number = (day.astype(np.int64) + 3) % 7
    back = (number - weekday) % 7
    forth = (weekday - number) % 7
    back = np.where((way == -2) & (back == 0), 7, back)
    forth = np.where((way == 2) & (forth == 0), 7, forth)
    moved: _Days = day + np.where(way < 0, -back, forth)
    return moved


def _nearest_day(day: _Days, month: _Ints, date: _Ints) -> _Days:
    """Find the day and month nearest to `day`, the earlier of two; 29 February looks up to eight years away."""
    year = day.astype("datetime64[Y]")
    best = np.full(len(day), np.datetime64("NaT"), dtype="datetime64[D]")
    least = np.full(len(day), np.iinfo(np.int64).max)
    for offset in range(-8, 9):
        first: _Days = (year + offset).astype("datetime64[M]") + (month - 1).astype("timedelta64[M]")
        candidate: _Days = first.astype("datetime64[D]") + (date - 1).astype("timedelta64[D]")
        distance = np.abs((candidate - day).astype(np.int64))
        better = (candidate.astype("datetime64[M]") == first) & (distance < least)
        best, least = np.where(better, candidate, best), np.where(better, distance, least)
    return best


def _month(day: _Days, month: _Ints, way: _Ints) -> _Days:
    """Find the month: nearest, the earlier of two (0), the last before (-1), the first after (1), this year's (2)."""
    here = day.astype("datetime64[M]").astype(np.int64)
    ahead = (month - 1 - here) % 12
    step = np.where(ahead < 6, ahead, ahead - 12)
    step = np.where(way == -1, ahead - 12, step)
    step = np.where((way == 1) & (ahead == 0), 12, np.where(way == 1, ahead, step))
    step = np.where(way == 2, month - 1 - here % 12, step)
    moved: _Days = (here + step).astype("datetime64[M]").astype("datetime64[D]")
    return moved


def _season(day: _Days, span: _Ints, way: _Ints) -> _Days:
    """Find the year of a northern season: the last one that is over (-1), this year's (0), the first to come (1)."""
    first, last = span // 100, span % 100
    month = day.astype("datetime64[M]").astype(np.int64) % 12 + 1
    step = np.where((way == -1) & (month <= last), -1, 0)
    step = np.where((way == 1) & (month >= first), 1, step)
    moved: _Days = (day.astype("datetime64[Y]") + step).astype("datetime64[D]")
    return moved


@lru_cache(maxsize=1 << 14)
def _plan(mention: str) -> _Plan | None:
    match = _READ.fullmatch(mention)
    if match is None or match.lastgroup is None:
        return None
    text = " ".join(mention.lower().replace(".", "").replace(",", " ").split())
    return _PLANNERS[match.lastgroup](text)


def _day_plan(year: int, month: int, date: int) -> _Plan | None:
    if not 1 <= month <= 12 or not 1 <= year <= 9999 or date < 1:
        return None
    first = np.datetime64(f"{year:04d}-{month:02d}-01", "D")
    day = first + (date - 1)
    if day.astype("datetime64[M]") != first.astype("datetime64[M]"):
        return None
    return _ABSOLUTE, int(day.astype(np.int64)), 0, 3


def _period_plan(year: int, month: int, precision: int) -> _Plan:
    return _ABSOLUTE, int(np.datetime64(f"{year:04d}-{month:02d}-01", "D").astype(np.int64)), 0, precision


def _iso(text: str) -> _Plan | None:
    year, month, date = (int(n) for n in re.findall("[0-9]+", text))
    return _day_plan(year, month, date)


def _numeric(text: str) -> _Plan | None:
    month, date, year = (int(n) for n in text.split("/"))
    if month > 12:
        month, date = date, month
    return _day_plan(year + 2000 if year < 100 else year, month, date)


def _named_day(text: str) -> _Plan | None:
    words = re.split("[ -]", text)
    month = next(_month_number(w) for w in words if w[:3] in _SHORT)
    numbers = [int(re.sub("[a-z]", "", w)) for w in words if w[0].isdigit()]
    if len(numbers) == 2:
        return _day_plan(numbers[1], month, numbers[0])
    # 2024 is a leap year: only days that no year has are turned down here.
    return (_NEAREST_DAY, month, numbers[0], 3) if _day_plan(2024, month, numbers[0]) else None


def _month_year(text: str) -> _Plan:
    words = re.split("[ -]", text)
    return _period_plan(int(words[-1]), next(_month_number(w) for w in words if w[:3] in _SHORT), 2)


def _near(text: str) -> _Plan:
    if "before yesterday" in text:
        return _SHIFT, -2, 3, 3
    if "after tomorrow" in text:
        return _SHIFT, 2, 3, 3
    return _SHIFT, {"yesterday": -1, "last night": -1, "tomorrow": 1}.get(text, 0), 3, 3


def _ago(text: str) -> _Plan:
    words = text.split()
    if words[0].isdigit():
        count = int(words[0])
    elif words[1] == "couple":
        count = 2
    else:
        count = 1 if words[0] in ("a", "an") else _WORDS.index(words[0])
    if words[-1] == "ago":
        count = -count
        unit = words[-2].rstrip("s")
    else:
        unit = words[-3].rstrip("s")
    if unit in ("day", "week"):
        return _SHIFT, count * (7 if unit == "week" else 1), 3, 3
    precision = 2 if unit == "month" else 1
    return _SHIFT, count, precision, precision


def _step(text: str) -> _Plan:
    *steps, noun = text.split()
    past = any(s in ("last", "past", "previous") for s in steps)
    future = any(s in ("next", "coming", "upcoming") for s in steps)
    way = _BACK if past else _FORTH if future else _HERE
    if noun in _DAYS:
        return _WEEKDAY_AT, _DAYS.index(noun), -2 if past else 2 if future else 1, 3
    if noun in _MONTHS:
        return _MONTH_AT, _MONTHS.index(noun) + 1, way or 2, 2
    if noun in _SEASON_MONTHS:
        first, last = _SEASON_MONTHS[noun]
        return _SEASON_AT, 100 * first + last, way, 1
    if noun == "weekend":
        return _WEEKEND, way, 0, 3
    if noun == "week":
        return _SHIFT, 7 * way, 3, 2
    precision = 2 if noun == "month" else 1
    return _SHIFT, way, precision, precision


def _month_number(word: str) -> int:
    return next(i for i, name in enumerate(_MONTHS, 1) if name.startswith(word[:3]))


_PLANNERS: dict[str, Callable[[str], _Plan | None]] = {
    "iso": _iso,
    "numeric": _numeric,
    "month_day": _named_day,
    "day_month": _named_day,
    "month_year": _month_year,
    "near": _near,
    "ago": _ago,
    "habit": lambda text: None,
    "amount": lambda text: None,
    "step": _step,
    "month": lambda text: (_MONTH_AT, _month_number(re.split("[ -]", text)[-1]), 0, 2),
    "year": lambda text: _period_plan(int(text.split()[-1]), 1, 1),
    "weekday": lambda text: (_WEEKDAY_AT, _DAYS.index(text), -1, 3),
}
