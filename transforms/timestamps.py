"""Absolute times as sources write them, made aware and UTC. Nothing here looks at the clock."""

from __future__ import annotations

import re
from collections import Counter
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import Any

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LOWEST, _HIGHEST = datetime(1, 1, 2, tzinfo=UTC), datetime(9999, 12, 30, tzinfo=UTC)
_NAMES = (
    *("january", "february", "march", "april", "may", "june", "july"),
    *("august", "september", "october", "november", "december"),
)
_MONTHS = {name: number for number, name in enumerate(_NAMES, start=1)}
_MONTHS |= {name[:3]: number for name, number in _MONTHS.items()} | {"sept": 9}
# 2023/05/30 (Tue) 23:40, 2023-05-30T23:40:59.123Z, 2023-05-30 23:40 +02:00, 20230530T234059Z, 2023-05-30
_NUMERIC = re.compile(
    r"(\d{4})([-/.]?)(\d{1,2})\2(\d{1,2})(?:\s*\([A-Za-z]{2,9}\.?\))?"
    r"(?:(?:\s*[Tt]\s*|\s+)(\d{1,2}):?(\d{2})(?::?(\d{2})(?:[.,](\d{1,9}))?)?\s*(Z|z|UTC|GMT|[+-]\d{2}(?::?\d{2})?)?)?"
)
# 1:56 pm on 8 May, 2023
_SPOKEN = re.compile(
    r"(\d{1,2}):(\d{2})\s*([AaPp])\.?[Mm]\.?\s+on\s+(\d{1,2})(?:st|nd|rd|th)?\s+([A-Za-z]{3,9}),?\s+(\d{4})"
)
_ABSOLUTE = re.compile(r"(?=.*\d{4})(?=.*[^\W\d_]|.*\d\D+\d)", re.DOTALL)
_LONGEST = 80


def parse_time(value: Any, timezone: tzinfo, repairs: Counter[str] | None = None) -> datetime | None:
    """Read an absolute time.

    Known forms: ISO 8601 with or without zone, ``2023/05/30 (Tue) 23:40`` (LongMemEval), ``1:56 pm on 8 May, 2023``
    (LoCoMo), seconds, milliseconds, microseconds or nanoseconds since 1970 as a number or digits
    (from 1973 on), and free text that
    names day, month and year (English; all-numeric dates that do not begin with the year are read month first).

    Args:
        value: Text, number, datetime, or None.
        timezone: Zone of times that name none.
        repairs: Where naive_time (no zone), free_text_time and unparsed_time are counted.

    Returns:
        An aware time in UTC; None when there is no value or it cannot be read.
    """
    if value is None or value == "":
        return None
    when: datetime | None
    faults: tuple[str, ...]
    if isinstance(value, str):
        long = len(value) > _LONGEST  # no date, and nothing to keep in the cache
        when, faults = (None, ("unparsed_time",)) if long else _read(value.strip(), timezone)
    elif isinstance(value, datetime):
        when, faults = _aware(value, timezone), () if value.tzinfo else ("naive_time",)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        when = _from_epoch(value)
        faults = () if when else ("unparsed_time",)
    else:
        when, faults = None, ("unparsed_time",)
    if repairs is not None:
        for fault_name in faults:
            repairs[fault_name] += 1
    return when


def micros(when: datetime | None) -> int | None:
    """Return microseconds since 1970 of an aware time."""
    return None if when is None else (when - EPOCH) // timedelta(microseconds=1)


@lru_cache(maxsize=65536)
def _read(text: str, timezone: tzinfo) -> tuple[datetime | None, tuple[str, ...]]:
    try:
        if found := _NUMERIC.fullmatch(text):
            return _numeric(found, timezone)
        if found := _SPOKEN.fullmatch(text):
            return _spoken(found, timezone)
        if re.fullmatch(r"\d{9,19}(?:\.\d{1,9})?", text):
            when = _from_epoch(float(text) if "." in text else int(text))
            return when, () if when else ("unparsed_time",)
    except (ValueError, OverflowError):
        return None, ("unparsed_time",)
    return _free(text, timezone)


def _numeric(found: re.Match[str], timezone: tzinfo) -> tuple[datetime | None, tuple[str, ...]]:
    year, separator, month, day, hour, minute, second, fraction, zone = found.groups()
    if not separator and (len(month) != 2 or len(day) != 2):
        raise ValueError("digits without separators")
    when = datetime(
        int(year), int(month), int(day), int(hour or 0), int(minute or 0), min(int(second or 0), 59),
        int((fraction or "0").ljust(6, "0")[:6]),
    )  # fmt: skip
    if not zone:
        return _aware(when, timezone), ("naive_time",)
    if zone[0] in "+-":
        digits = zone[1:].replace(":", "").ljust(4, "0")
        shift = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
        when = when - shift if zone[0] == "+" else when + shift
    return _aware(when, UTC), ()


def _spoken(found: re.Match[str], timezone: tzinfo) -> tuple[datetime | None, tuple[str, ...]]:
    hour, minute, half, day, month, year = found.groups()
    number = _MONTHS.get(month.lower())
    if number is None or not 1 <= int(hour) <= 12:
        raise ValueError("no such month or hour")
    when = datetime(int(year), number, int(day), int(hour) % 12 + (12 if half in "pP" else 0), int(minute))
    return _aware(when, timezone), ("naive_time",)


def _aware(when: datetime, timezone: tzinfo) -> datetime | None:
    try:
        moved = (when if when.tzinfo else when.replace(tzinfo=timezone)).astimezone(UTC)
    except (OverflowError, ValueError):
        return None
    return moved if _LOWEST <= moved <= _HIGHEST else None


def _from_epoch(value: float) -> datetime | None:
    if not 1e8 <= value < 1e20:  # smaller numbers are years, days or counters, not seconds
        return None
    scale = 1_000_000 if value < 1e11 else 1_000 if value < 1e14 else 1
    whole = value // 1000 if value >= 1e17 else value * scale
    try:
        return EPOCH + timedelta(microseconds=int(whole))
    except OverflowError:
        return None


def _free(text: str, timezone: tzinfo) -> tuple[datetime | None, tuple[str, ...]]:
    """Ask dateparser, for texts that can hold a whole date only: it costs about a millisecond."""
    if not _ABSOLUTE.match(text):
        return None, ("unparsed_time",)
    import dateparser

    settings: Any = {
        "PARSERS": ["absolute-time"],
        "REQUIRE_PARTS": ["day", "month", "year"],
        "RELATIVE_BASE": datetime(2000, 1, 1),
        "DATE_ORDER": "MDY",
        "STRICT_PARSING": True,
    }
    try:
        when = dateparser.parse(text, languages=["en"], settings=settings)
    except Exception:  # dateparser raises many kinds on odd text (also from regex and its own tables)
        when = None
    aware = None if when is None else _aware(when, timezone)
    if aware is None or when is None:
        return None, ("unparsed_time",)
    return aware, ("free_text_time",) if when.tzinfo else ("free_text_time", "naive_time")
