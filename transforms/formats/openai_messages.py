"""Logs in the form of OpenAI's chat API: objects with ``messages``, one a line or in an array."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, BinaryIO

from transforms.formats._cases import case_name
from transforms.formats._chats import messages_of, session_of, user_of
from transforms.formats._fields import FieldError, load_object, reject
from transforms.formats._records import head_keys, records
from transforms.records import ReadContext, Record, Unit

NAME = "openai_messages"
VERSION = 1
UNIT: Unit = "exchange"
_ROLE = re.compile(rb'(?<!\\)"role"\s*:')


def sniff(head: bytes, name: str) -> bool:
    """True when an object at the beginning has ``messages`` with roles and is no session of Tagloom's own format.

    Nor is it a batch of BEAM's ``user_messages.json``, whose messages ``chat.json`` holds with their answers.
    """
    if _ROLE.search(head) is None:
        return False
    return any("messages" in keys and "case_id" not in keys and "time_anchor" not in keys for keys in head_keys(head))


def read(stream: BinaryIO, context: ReadContext) -> Iterator[Record]:
    """Yield a session a conversation; offsets are as `transforms.formats._records.records` gives them."""
    case_id = case_name(context.source, "")
    for piece in records(stream, ("messages",)):
        try:
            record = load_object(piece, context)
            messages, faults = messages_of(record, "messages", _prepared, context)
        except FieldError as fault:
            yield reject(fault, piece.data, piece.offset)
            continue
        for part in faults:
            yield reject(part, piece.data, piece.offset)
        yield session_of(record, user_of(record) or case_id, messages, context, piece.offset)


def _prepared(item: dict[str, Any]) -> dict[str, Any]:
    """Put what was said where `content` holds nothing of it: a refusal, or the words of an audio answer."""
    content = item.get("content")
    if isinstance(content, list):
        refused = [_refusal(part) for part in content]
        return {
            **item,
            "content": [part if said is None else said for part, said in zip(content, refused, strict=True)],
        }
    audio = item.get("audio")
    spoken = audio.get("transcript") if isinstance(audio, dict) else None
    said = [text for text in (item.get("refusal"), spoken) if isinstance(text, str) and text]
    return {**item, "content": said[0]} if said and not content else item


def _refusal(part: Any) -> str | None:
    said = part.get("refusal") if isinstance(part, dict) and "text" not in part else None
    return said if isinstance(said, str) else None
