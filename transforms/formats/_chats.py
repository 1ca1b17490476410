"""What readers of chat logs share: conversations that name their user, or nobody, and messages without ids."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from schemas.ids import content_hash
from transforms.formats._fields import FieldError, kind_of, message
from transforms.records import Message, ReadContext, Session
from transforms.timestamps import parse_time

_USER = ("case_id", "user_id", "user")
_ID = ("id", "conversation_id", "session_id")
_TIME = ("started_at", "created_at", "created", "timestamp")


def user_of(record: dict[str, Any]) -> str | None:
    """Return who a conversation belongs to, as it or its ``metadata`` says."""
    return _named(record, _USER) or _named(record.get("metadata"), _USER)


def conversation_id(record: dict[str, Any], messages: list[Message]) -> str:
    """Return the id of a conversation; without one it is a digest of what was said, the same wherever it stands."""
    named = _named(record, _ID) or _named(record.get("metadata"), _ID)
    return named or content_hash([part for one in messages for part in (one.role, one.content)])[:16]


def _named(record: Any, keys: tuple[str, ...]) -> str | None:
    if isinstance(record, dict):
        for key in keys:
            value = record.get(key)
            if isinstance(value, str | int) and not isinstance(value, bool) and value != "":
                return str(value)
    return None


def messages_of(
    record: dict[str, Any], key: str, prepared: Callable[[dict[str, Any]], dict[str, Any]], context: ReadContext
) -> tuple[list[Message], list[FieldError]]:
    """Make the messages of a conversation.

    Args:
        record: The conversation.
        key: Where its messages are.
        prepared: Makes of each what `transforms.formats._fields.message` takes.
        context: Where repairs are counted.

    Returns:
        The messages, and faults of those that do not fit.

    Raises:
        FieldError: There is no list of messages.
    """
    items = record.get(key)
    if items is None:
        raise FieldError("missing_field", f"no '{key}'")
    if not isinstance(items, list):
        raise FieldError("wrong_type", f"'{key}' is a {kind_of(items)}, not a list")
    made: list[Message] = []
    faults: list[FieldError] = []
    for number, item in enumerate(items):
        try:
            made.append(message(prepared(item) if isinstance(item, dict) else item, context, number=number))
        except FieldError as fault:
            faults.append(fault)
    return made, faults


def session_of(
    record: dict[str, Any], case_id: str, messages: list[Message], context: ReadContext, offset: int
) -> Session:
    """Make the session of a conversation, which began when it says."""
    told = next((value for key in _TIME if isinstance(value := record.get(key), str | int | float)), None)
    key = conversation_id(record, messages)
    return Session(
        case_id=case_id,
        session_id=key,
        messages=messages,
        started_at=parse_time(told, context.timezone, context.repairs),
        started_at_text=told if isinstance(told, str) else None,
        offset=offset,
    )
