"""Published collections of chats (WildChat, LMSYS-Chat-1M): one row a conversation, as Parquet or JSON."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, cast

from transforms.formats import _parquet
from transforms.formats._chats import messages_of
from transforms.formats._fields import FieldError, load_object, reject
from transforms.formats._records import records
from transforms.records import Message, ReadContext, Record, Session
from transforms.timestamps import parse_time

_FIELDS = frozenset(("role", "content", "timestamp"))


def row_keys(head: bytes) -> frozenset[str]:
    """Return the columns of a Parquet file, without what is nested in them; nothing for other files."""
    if not head.startswith(_parquet.MAGIC):
        return frozenset()
    return frozenset(line.partition(".")[0] for line in head.decode("utf-8", "replace").splitlines()[1:])


def read_rows(
    stream: BinaryIO,
    context: ReadContext,
    columns: tuple[str, ...],
    ids: Callable[[dict[str, Any], list[Message]], tuple[str, str]],
) -> Iterator[Record]:
    """Yield a session a row.

    Args:
        stream: The file.
        context: What the reader was told.
        columns: Columns that tell ids and the time.
        ids: Makes case and session id of a row and its messages.

    Yields:
        Records; offsets are row numbers from 0 in Parquet, else as `transforms.formats._records.records` gives them.
    """
    for row, sample, offset in _rows(stream, context, columns):
        if isinstance(row, FieldError):
            yield reject(row, sample, offset)
            continue
        try:
            messages, faults = messages_of(row, "conversation", _prepared, context)
        except FieldError as fault:
            yield reject(fault, sample, offset)
            continue
        for part in faults:
            yield reject(part, sample, offset)
        case_id, session_id = ids(row, messages)
        written = row.get("timestamp")
        timed = any(one.at is not None for one in messages)
        started = None if timed else parse_time(written, context.timezone, context.repairs)
        _fill_times(messages)
        yield Session(case_id, session_id, messages, started, written if isinstance(written, str) else None, offset)


def _rows(
    stream: BinaryIO, context: ReadContext, columns: tuple[str, ...]
) -> Iterator[tuple[dict[str, Any] | FieldError, bytes, int]]:
    if cast(io.BufferedReader, stream).peek(4).startswith(_parquet.MAGIC):
        found = _parquet.rows(stream, frozenset((*columns, "timestamp")), "conversation", _FIELDS, context.repairs)
        for number, row in enumerate(found):
            yield row, b"", number
        return
    for piece in records(stream, columns):
        try:
            yield load_object(piece, context), piece.data, piece.offset
        except FieldError as fault:
            yield fault, piece.data, piece.offset


def _prepared(item: dict[str, Any]) -> dict[str, Any]:
    return {"role": item.get("role"), "content": item.get("content"), "at": item.get("timestamp")}


def _fill_times(messages: list[Message]) -> None:
    """Give a question the time of its answer, where only answers are timed."""
    following = None
    for one in reversed(messages):
        if one.at is None and one.role == "user":
            one.at = following
        following = one.at
