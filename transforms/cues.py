"""What messages and questions give away without regard to their subject: lengths, dates, names, what is asked for.

English only; in other languages most cues stay silent. Patterns are run by RE2, in time linear in the text.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

VERSION = 1
"""Raised whenever the same text gives other cues."""

Singles = npt.NDArray[np.float32]

_NUMBERS = (
    "one two three four five six seven eight nine ten eleven twelve once twice half dozen hundred thousand million "
    "first second third"
)
_DATES = (
    "january february march april june july august september october november december monday tuesday wednesday "
    "thursday friday saturday sunday yesterday today tomorrow tonight week weeks weekend month months year years ago "
    "last next morning day days night recently"
)
_WORD = r"[\pL\pN_]+"

MESSAGE_CUES = (
    "length",
    "number",
    "date",
    "place",
    "names",
    "asks",
    "ends_asking",
    "first_person",
    "user",
)
"""ln(1 + words); whether it has a number, a date word, a place after a preposition; capitalised words inside sentences
(fifths, at most 1); share of question marks among sentence ends; whether it ends with one; share of first-person words
(times 5, at most 1); whether the user, or a person in a dialogue, said something."""

QUESTION_CUES = ("when", "who", "where", "how_many", "how_long", "why", "about_me", "about_you", "reminder", "name")
"""What is asked for; whether the asker speaks of himself, the assistant, an earlier talk; whether a name is there."""

CROSSES = (
    ("when", "date"),
    ("how_many", "number"),
    ("how_long", "number"),
    ("how_long", "date"),
    ("where", "place"),
    ("who", "names"),
    ("name", "names"),
    ("about_me", "user"),
    ("reminder", "user"),
    ("when", "first_person"),
)
"""Pairs of a question's and a message's cue that count together."""

_ASKED = {
    "when": r"^\W*when\b|\bwhat (?:date|day|month|year)\b|\bwhich (?:date|day|month|year)\b",
    "who": r"\bwho(?:m|se)?\b",
    "where": r"\bwhere\b|\bwhich (?:city|country|place|town)\b",
    "how_many": r"\bhow (?:many|much)\b",
    "how_long": r"\bhow (?:long|old|often)\b",
    "why": r"\bwhy\b|\breasons?\b",
    "about_me": r"\b(?:i|my|me|we|our|mine)\b",
    "about_you": r"\byour?\b",
    "reminder": r"\byou (?:mentioned|suggested|recommended|told|said|gave)\b|\bremind\b|\b(?:previous|earlier|last) "
    r"(?:chat|conversation|time)\b",
}


def message_cues(interactions: pa.Table) -> Singles:
    """Return (interactions, `MESSAGE_CUES`) of interactions with the columns user_text and assistant_text."""
    user, other = (_joined(interactions[name]) for name in ("user_text", "assistant_text"))
    # What assistants say at length would hide what the user gives away.
    text = pc.if_else(pc.greater(pc.utf8_length(user), 0), user, other)
    words = np.maximum(_count(text, _WORD), 1)
    ends = np.maximum(_count(text, r"[.!?]+"), 1)
    return np.stack(
        [
            np.log1p(_count(text, _WORD)),
            _has(text, r"\d|" + _any(_NUMBERS)),
            _has(text, _any(_DATES)),
            _has(text, r"\b(?:in|at|to|from|near|visited|visiting) (?:the )?\p{Lu}\w+", case=True),
            np.minimum(_count(text, r"[\pL\pN,;] \p{Lu}\p{Ll}+"), 5) / 5,
            np.minimum(_count(text, r"\?") / ends, 1),
            _has(text, r"\?\s*$"),
            np.minimum(5 * _count(text, r"(?i)\b(?:i|my|me|we|our)\b") / words, 1),
            np.asarray(pc.greater(pc.utf8_length(user), 0), np.float64),
        ],
        axis=1,
    ).astype(np.float32)


def question_cues(questions: pa.ChunkedArray | pa.Array) -> Singles:
    """Return (questions, `QUESTION_CUES`) of questions' texts."""
    text = _joined(questions)
    columns = [_has(text, pattern) for pattern in _ASKED.values()]
    columns.append(_has(text, r"[\pL\pN,;] \p{Lu}\p{Ll}+|^\p{Lu}\p{Ll}+'s\b", case=True))
    return np.stack(columns, axis=1).astype(np.float32)


def _any(words: str) -> str:
    return rf"\b(?:{'|'.join(words.split())})\b"


def _has(text: pa.Array, pattern: str, *, case: bool = False) -> npt.NDArray[np.float64]:
    return np.asarray(pc.match_substring_regex(text, pattern, ignore_case=not case), np.float64)


def _count(text: pa.Array, pattern: str) -> npt.NDArray[np.float64]:
    return np.asarray(pc.count_substring_regex(text, pattern), np.float64)


def _joined(column: Any) -> pa.Array:
    joined = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return pc.fill_null(joined, "")
