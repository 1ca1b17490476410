"""What the studies share: their delimiters, and flags in replies."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from transforms.replies import BadReplyError

_DELIMITER = re.compile(r"<(?=/?(?:memory|question|gold|reply|known)[ ]*>)", re.IGNORECASE)
_WORDS = {"true": True, "yes": True, "false": False, "no": False}


def shut(text: str) -> str:
    """Break the delimiters of the studies' prompts in a text by a space, so that it cannot close them."""
    return _DELIMITER.sub("< ", text)


def flag(value: Any, name: str, repairs: list[str]) -> bool:
    """Return a field as a boolean.

    Raises:
        BadReplyError: It is none, and neither 0, 1, nor a word for one.
    """
    if isinstance(value, bool):
        return value
    known = _WORDS.get(value.strip().strip(".!").lower()) if isinstance(value, str) else None
    if known is None and value in (0, 1) and isinstance(value, int):
        known = bool(value)
    if known is None:
        raise BadReplyError(f"'{name}' is neither true nor false")
    repairs.append(f"'{name}' was no boolean")
    return known


def no_vocabulary(record: Any) -> list[str]:
    """Return nothing: the pieces of a study do not build on each other."""
    return []


def first(records: Sequence[Any]) -> Any:
    """Return the first record."""
    return records[0]
