"""YAML read as plain data: texts, lists and mappings. No tags, no types, no aliases; one document costs itself only."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, BinaryIO

import yaml

from transforms.jsonstream import Piece
from transforms.text import clean, decode

LIMIT = 16 << 20
"""Bytes of the largest document, or item of a list of documents, that is held."""

_DEPTH = 32
_SAMPLE = 800
_LOADER: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
_NULLS = frozenset(("", "~", "null", "Null", "NULL"))
# What YAML does not allow in a text.
_CONTROL = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def documents(stream: BinaryIO) -> Iterator[Piece]:
    """Split a stream into its documents, and a document that is a list into its items.

    Lines that begin with ``---`` or ``...`` part documents; in a document whose first line begins with ``- ``, so do
    all lines that begin so. In valid YAML such a line is never part of a text.

    Yields:
        Pieces with the number of their first line, from 1. Blank ones and mere comments are passed over; larger ones
        than `LIMIT` carry the fault ``too_large``.
    """
    held: list[bytes] = []
    size, begun, number = 0, 1, 0
    listed = filled = False
    fresh = True
    while line := stream.readline(LIMIT + 1):
        number += fresh
        # A line of one or two dashes without an end is where the input was cut.
        boundary = fresh and ((line[:3] in (b"---", b"...") and not line[3:4].strip()) or line in (b"-", b"--"))
        item = fresh and line.startswith((b"- ", b"-\n", b"-\r"))
        fresh = line.endswith(b"\n")
        if boundary or (item and listed):
            yield from _piece(held, begun, size, filled)
            held, size, begun, filled = [], 0, number, False
        content = line[3:] if boundary else line
        if not filled and content.strip()[:1] not in (b"", b"#", b"%"):
            filled, listed = True, item
        size += len(line)
        if size <= LIMIT or not held:
            held.append(line)
    yield from _piece(held, begun, size, filled)


def _piece(held: list[bytes], begun: int, size: int, filled: bool) -> Iterator[Piece]:
    if filled:
        data = b"".join(held)
        yield Piece(begun, data[:_SAMPLE], "too_large") if size > LIMIT else Piece(begun, data)


def load(data: bytes, repairs: Counter[str]) -> Any:
    """Read one document; every scalar is its text as written, and null where it is empty, ``~`` or ``null``.

    Args:
        data: The document.
        repairs: Where bad_utf8, cp1252, nul_character, lone_surrogate and control_character are counted.

    Raises:
        ValueError: It is not YAML, uses aliases, or is nested deeper than any record; the message says why.
    """
    text = clean(decode(data, repairs), repairs)
    if _CONTROL.search(text):
        text = _CONTROL.sub("\ufffd", text)
        repairs["control_character"] += 1
    try:
        return _built(yaml.parse(text, Loader=_LOADER))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1} of it" if mark else ""
        raise ValueError(f"{getattr(error, 'problem', None) or 'not YAML'}{where}") from None


def _built(events: Iterator[Any]) -> Any:
    root: list[Any] = []
    stack: list[Any] = [root]
    keys: list[str | None] = [None]
    for event in events:
        if isinstance(event, yaml.AliasEvent):
            raise ValueError("an alias; a document must stand for itself")
        if isinstance(event, yaml.ScalarEvent):
            null = event.implicit[0] and event.value in _NULLS
            _add(stack, keys, None if null else event.value)
        elif isinstance(event, yaml.SequenceStartEvent | yaml.MappingStartEvent):
            if len(stack) > _DEPTH:
                raise ValueError("nested too deep")
            made: Any = [] if isinstance(event, yaml.SequenceStartEvent) else {}
            _add(stack, keys, made)
            stack.append(made)
            keys.append(None)
        elif isinstance(event, yaml.SequenceEndEvent | yaml.MappingEndEvent):
            stack.pop()
            keys.pop()
    return root[0] if root else None


def _add(stack: list[Any], keys: list[str | None], value: Any) -> None:
    holder = stack[-1]
    if isinstance(holder, list):
        holder.append(value)
    elif keys[-1] is not None:
        holder[keys[-1]] = value
        keys[-1] = None
    elif isinstance(value, dict | list):
        raise ValueError("a key that is no text")
    else:
        keys[-1] = "" if value is None else value
