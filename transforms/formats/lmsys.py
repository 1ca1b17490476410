"""LMSYS-Chat-1M (arXiv 2309.11998): conversations with many models, one row each, with no word of who asked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO

from transforms.formats import wildchat
from transforms.formats._chats import conversation_id
from transforms.formats._records import head_keys
from transforms.formats._rows import read_rows, row_keys
from transforms.records import Message, ReadContext, Record, Unit

NAME = "lmsys"
VERSION = 1
UNIT: Unit = "exchange"
PARQUET = True
_COLUMNS = ("conversation_id",)


def sniff(head: bytes, name: str) -> bool:
    """True when rows have a ``conversation`` and are none of WildChat's."""
    listed = (row_keys(head), *head_keys(head))
    return any({"conversation", "conversation_id"} <= keys for keys in listed) and not wildchat.sniff(head, name)


def read(stream: BinaryIO, context: ReadContext) -> Iterator[Record]:
    """Yield a session a row, which is a case of its own."""
    return read_rows(stream, context, _COLUMNS, _ids)


def _ids(row: dict[str, Any], messages: list[Message]) -> tuple[str, str]:
    key = conversation_id(row, messages)
    return key, key
