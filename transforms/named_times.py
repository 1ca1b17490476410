"""Years, months and days that a question names outright, such as "in May 2023" or "on 7 June". English."""

from __future__ import annotations

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
