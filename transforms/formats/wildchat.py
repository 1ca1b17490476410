"""WildChat (arXiv 2405.01470): conversations of a public chatbot, one row each, with who asked as a hash."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO

from transforms.formats._chats import conversation_id
from transforms.formats._records import head_keys
from transforms.formats._rows import read_rows, row_keys
from transforms.records import Message, ReadContext, Record, Unit

NAME = "wildchat"
VERSION = 1
UNIT: Unit = "exchange"
PARQUET = True
_COLUMNS = ("conversation_hash", "conversation_id", "hashed_ip")


def sniff(head: bytes, name: str) -> bool:
    """True when rows have a ``conversation`` with a hash, or with an id and a time, which LMSYS-Chat-1M lacks."""
    return any(
        "conversation" in keys and ("conversation_hash" in keys or {"conversation_id", "timestamp"} <= keys)
        for keys in (row_keys(head), *head_keys(head))
    )


def read(stream: BinaryIO, context: ReadContext) -> Iterator[Record]:
    """Yield a session a row; a case is all that came from one address, or else the conversation alone."""
    return read_rows(stream, context, _COLUMNS, _ids)


def _ids(row: dict[str, Any], messages: list[Message]) -> tuple[str, str]:
    key = row.get("conversation_hash")
    session_id = key if isinstance(key, str) and key else conversation_id(row, messages)
    user = row.get("hashed_ip")
    return (user if isinstance(user, str) and user else session_id), session_id
