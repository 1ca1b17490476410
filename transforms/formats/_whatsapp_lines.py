"""The lines of a WhatsApp export: how a message begins, in which order its date is written, who sent it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime

# 15/01/2024, 21:05 - | [1/15/24, 9:05:33 PM] | 15.1.2024 klo 21.05 - | [2024/1/15 下午9:05:33] | 24/3/14, 13:59:59:
_HALF = r"[AaPp]\.?\s?[Mm]\.?|上午|下午|오전|오후|午前|午後"
_HEAD = re.compile(
    r"[\u200e\u200f\u202a\u202c\u2066-\u2069\ufeff]*(?P<bracket>\[)?"
    r"(?P<a>\d{1,4})(?P<sep>[./-])\s?(?P<b>\d{1,2})(?P=sep)\s?(?P<c>\d{1,4})\.?"
    rf"(?:,\s?|\s)(?:(?P<before>{_HALF})\s?)?(?:[^\W\d]{{1,4}}\.?\s)?"
    r"(?P<hour>\d{1,2})[:.](?P<minute>\d{2})(?:[:.](?P<second>\d{2}))?"
    rf"(?:\s?(?P<after>{_HALF}))?"
    r"(?(bracket)\]\s?|(?:\s[-–](?:\s|$)|:\s))(?P<rest>.*)",
    re.DOTALL,
)
_AFTERNOON = frozenset("pP下후後")
_DIRECTION = dict.fromkeys(map(ord, "\u200e\u202a\u202c\u2066\u2067\u2068\u2069\ufeff"))
_LONGEST_NAME = 80
_SURE = 3
_NOT_A_NAME = re.compile(r"\bchanged th(?:e|is)\b|\bcreated (?:the )?group\b|\bsecurity code\b|end-to-end encrypted")

Shape = tuple[bool, str]
"""What the lines of one export have in common: whether the time stands in brackets, and what parts its date."""


@dataclass(frozen=True, slots=True)
class Head:
    """The beginning of a message.

    Attributes:
        shape: The shape of the line.
        date: The three numbers of the date, as written.
        time: Hour (24-hour clock), minute, second.
        capitals: True for ``AM`` or ``PM`` in capitals.
        rest: What follows: the sender and the text, or what the service says.
    """

    shape: Shape
    date: tuple[str, str, str]
    time: tuple[int, int, int]
    capitals: bool
    rest: str


def head_of(line: str) -> Head | None:
    """Read the beginning of a message; None for a line that goes on with the message before."""
    found = _HEAD.match(line)
    if found is None:
        return None
    hour = int(found["hour"])
    half = found["before"] or found["after"] or ""
    if half and hour <= 12:
        hour = hour % 12 + (12 if _AFTERNOON & set(half) else 0)
    time = (hour % 24, int(found["minute"]), int(found["second"] or 0))
    date = (found["a"], found["b"], found["c"])
    return Head((found["bracket"] is not None, found["sep"]), date, time, half[:2] in ("AM", "PM"), found["rest"])


def plain(text: str) -> str:
    """Drop the invisible marks of direction that the service puts into its lines."""
    return text if text.isascii() else text.translate(_DIRECTION)


@dataclass
class Evidence:
    """What the lines of one shape tell together.

    Attributes:
        lines: How many there are.
        day_second: Dates whose second number can be no month, and `day_first` those whose first cannot.
        backward: Steps back in time if the day stands first, and if the month does.
        padded: True where a number of a date begins with a zero; `capitals` where AM or PM was in capitals.
    """

    lines: int = 0
    day_first: int = 0
    day_second: int = 0
    backward: list[int] = field(default_factory=lambda: [0, 0])
    padded: bool = False
    capitals: bool = False
    _last: tuple[tuple[int, ...], ...] = ()
    _senders: dict[str, tuple[int, list[str]]] = field(default_factory=dict)
    _names: dict[str, tuple[str | None, int]] = field(default_factory=dict)

    def add(self, head: Head) -> None:
        """Take a message's beginning into account; in the order of the file."""
        self.lines += 1
        a, b, c = map(int, head.date)
        self.day_first += a > 12
        self.day_second += b > 12
        self.padded = self.padded or head.date[0][0] == "0" or head.date[1][0] == "0"
        self.capitals = self.capitals or head.capitals
        dates = ((c, b, a), (c, a, b))
        for order, before in enumerate(self._last):
            self.backward[order] += dates[order] < before
        self._last = dates
        parts = head.rest[: 4 * _LONGEST_NAME].split(": ", 4)[:-1]
        if parts and len(parts[0]) <= _LONGEST_NAME:
            count, common = self._senders.get(parts[0], (0, parts))
            same = 0
            while same < min(len(common), len(parts)) and common[same] == parts[same]:
                same += 1
            self._senders[parts[0]] = (count + 1, common[:same])

    def month_first(self, separator: str) -> bool:
        """Tell the order of day and month.

        A number above 12 can be no month: where more dates tell one order than the other, that is it. Else the order
        in which fewer messages lie before the one that they follow. Else the month stands first only where dates
        look American: parted by ``/``, without zeros, with AM or PM in capitals.
        """
        if self.day_first != self.day_second:
            return self.day_second > self.day_first
        if self.backward[0] != self.backward[1]:
            return self.backward[1] < self.backward[0]
        return separator == "/" and self.capitals and not self.padded

    def split(self, rest: str) -> tuple[str | None, str]:
        """Part a message into its sender and its text; no sender where the service speaks.

        A name ends at the first colon, unless all lines (three or more) that begin with it go on to the same next one.
        """
        first, colon, _ = rest.partition(": ")
        if not colon:
            if not rest.endswith(":"):
                return None, rest
            first = rest[:-1]
        if len(first) > _LONGEST_NAME:
            return None, rest
        if first not in self._names:
            self._names[first] = self._named(first)
        name, length = self._names[first]
        return (None, rest) if name is None else (name, rest[length + 2 :])

    def _named(self, first: str) -> tuple[str | None, int]:
        """Return the name that ends at the first colon or goes on after it, and its length as written."""
        count, common = self._senders.get(first, (0, [first]))
        written = ": ".join(common) if count >= _SURE and common else first
        name = " ".join(plain(written).split()).lstrip("~ ")
        fits = name and not _NOT_A_NAME.search(name) and not _quoted(name)
        return name if fits else None, len(written)


def _quoted(name: str) -> bool:
    """True where a quotation begins that does not end: the colon is part of a subject that the service quotes."""
    return name.count('"') % 2 == 1 or name.count("“") != name.count("”") or name.count("«") != name.count("»")


def date_of(head: Head, *, month_first: bool) -> tuple[datetime | None, bool]:
    """Read a message's local time.

    Args:
        head: Its beginning.
        month_first: The order of the file; only the numbers of a date that begins with the year need none.

    Returns:
        The time without a zone, None where there is no such time; and whether only the other order gave one.
    """
    first, second, third = head.date
    if len(first) > 2:
        orders = [(first, second, third)]
    elif len(third) in (2, 4):
        orders = [(third, first, second), (third, second, first)]
        orders = orders if month_first else orders[::-1]
    else:
        return None, False
    for swapped, (year, month, day) in enumerate(orders):
        try:
            whole = int(year) + (2000 if len(year) == 2 else 0)
            return datetime(whole, int(month), int(day), *head.time), bool(swapped)
        except ValueError:
            continue
    return None, False
