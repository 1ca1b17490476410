"""ShareGPT: conversations with turns ``{"from": "human", "value": ...}``, an array or one a line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, BinaryIO

from transforms.formats._cases import case_name
from transforms.formats._chats import messages_of, session_of, user_of
from transforms.formats._fields import FieldError, load_object, reject
from transforms.formats._records import head_keys, records
from transforms.records import Message, ReadContext, Record, Unit
from transforms.text import content_text

NAME = "sharegpt"
VERSION = 1
UNIT: Unit = "exchange"
_SPEAKER = re.compile(rb'(?<!\\)"(?:from|role)"\s*:')
ROLES = {
    **dict.fromkeys(("human", "prompter"), "user"),
    **dict.fromkeys(("gpt", "chatgpt", "bing", "bard", "bot", "ai", "model", "function_call"), "assistant"),
    "observation": "tool",
}
"""What turns call their speakers, where that is no role already."""


def sniff(head: bytes, name: str) -> bool:
    """True when an object at the beginning has ``conversations`` with speakers."""
    return _SPEAKER.search(head) is not None and any("conversations" in keys for keys in head_keys(head))


def read(stream: BinaryIO, context: ReadContext) -> Iterator[Record]:
    """Yield a session a conversation; offsets are as `transforms.formats._records.records` gives them."""
    case_id = case_name(context.source, "")
    for piece in records(stream, ("id", "conversations")):
        try:
            record = load_object(piece, context)
            messages, faults = messages_of(record, "conversations", _prepared, context)
        except FieldError as fault:
            yield reject(fault, piece.data, piece.offset)
            continue
        for part in faults:
            yield reject(part, piece.data, piece.offset)
        if record.get("system"):
            messages.insert(0, Message("system", content_text(record["system"], {}, context.repairs)))
        yield session_of(record, user_of(record) or case_id, messages, context, piece.offset)


def _prepared(item: dict[str, Any]) -> dict[str, Any]:
    """Give a turn the names of fields that other formats use; some files have those in the first place."""
    speaker = item.get("from", item.get("role"))
    role = ROLES.get(speaker.strip().lower(), speaker) if isinstance(speaker, str) else speaker
    return {**item, "role": role, "content": item.get("value", item.get("content"))}
