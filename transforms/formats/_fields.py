"""What readers share: fields taken out of parsed JSON, with a named fault where they do not fit."""

from __future__ import annotations

from typing import Any

from transforms.jsonstream import Piece, load
from transforms.records import Message, ReadContext, Reject
from transforms.text import clean, content_text, scalar_text
from transforms.timestamps import parse_time

KNOWN_ROLES = frozenset(("user", "assistant", "tool", "system", "developer", "function"))
_PIECE_FAULTS = {
    "truncated": ("truncated", "the input ends inside this record"),
    "too_large": ("unreadable", "the record is larger than the reader holds"),
    "unclosed": ("not_json", "the next record begins before this one ends"),
}


class FieldError(Exception):
    """A record, or a part of one, that does not fit; `reason` is one of REJECT_REASONS."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


def sample_of(data: bytes) -> str:
    """Return the start of a record as safe text."""
    return clean(data[:800].decode("utf-8", "replace"))[:200]


def reject(fault: FieldError, data: bytes, offset: int) -> Reject:
    """Make the reject of a fault."""
    return Reject(fault.reason, fault.detail, sample_of(data), offset)


def load_object(piece: Piece, context: ReadContext) -> dict[str, Any]:
    """Parse a piece that must be a JSON object.

    Raises:
        FieldError: It is cut, too large, not JSON, or no object.
    """
    if piece.fault:
        raise FieldError(*_PIECE_FAULTS[piece.fault])
    try:
        value = load(piece.data, context.repairs)
    except ValueError as error:
        raise FieldError("not_json", str(error)) from None
    if not isinstance(value, dict):
        raise FieldError("not_an_object", f"a {kind_of(value)} where an object should be")
    return value


def kind_of(value: Any) -> str:
    """Name the JSON type of a value."""
    names = {dict: "object", list: "list", str: "string", bool: "boolean", int: "number", float: "number"}
    return names.get(type(value), "null")


def identifier(record: dict[str, Any], key: str) -> str:
    """Take a required id; whole numbers become text.

    Raises:
        FieldError: It is missing, empty, or neither text nor a whole number.
    """
    value = record.get(key)
    if isinstance(value, str) and value:
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if value is None or value == "":
        raise FieldError("missing_field", f"no '{key}'")
    raise FieldError("wrong_type", f"'{key}' is a {kind_of(value)}, not text")


def optional_text(record: dict[str, Any], key: str) -> str | None:
    """Take text that may be missing; numbers and booleans become text.

    Raises:
        FieldError: It is an object or a list.
    """
    value = record.get(key)
    if value is None:
        return None
    if isinstance(value, dict | list):
        raise FieldError("wrong_type", f"'{key}' is a {kind_of(value)}, not text")
    return scalar_text(value)


def answer_text(value: Any) -> str | None:
    """Give an answer as text: numbers as written, the items of a list joined by ``; ``.

    Raises:
        FieldError: It is an object, or a list that holds one.
    """
    if value is None:
        return None
    if isinstance(value, dict) or (isinstance(value, list) and any(isinstance(v, dict | list) for v in value)):
        raise FieldError("wrong_type", f"the answer is a {kind_of(value)} that has no text form")
    if isinstance(value, list):
        return "; ".join(scalar_text(item) for item in value if item is not None)
    return scalar_text(value)


def text_list(record: dict[str, Any], key: str) -> list[str]:
    """Take a list of texts that may be missing; one text stands for a list of one, whole numbers become text.

    Raises:
        FieldError: It, or one of its items, is of another type.
    """
    value = record.get(key)
    if value is None:
        return []
    items = value if isinstance(value, list) else [value]
    if any(isinstance(item, bool) or not isinstance(item, str | int) for item in items):
        raise FieldError("wrong_type", f"'{key}' is not a list of texts")
    return [str(item) for item in items]


def role_of(value: Any, context: ReadContext) -> str:
    """Take a message's role: lower case; a missing one counts as the user's."""
    if isinstance(value, str) and value:
        return value if value in KNOWN_ROLES else value.strip().lower() or "user"
    context.repairs["missing_role"] += 1
    return "user"


def message(item: Any, context: ReadContext, *, number: int) -> Message:
    """Make a message of its JSON object (`role`, `content`, `name`, `at`, `id`).

    Raises:
        FieldError: It is no object.
    """
    if not isinstance(item, dict):
        raise FieldError("wrong_type", f"message {number} is a {kind_of(item)}, not an object")
    content = item.get("content")
    if type(content) is not str or not content:
        content = content_text(content, item, context.repairs)
    name, key = item.get("name"), item.get("id")
    return Message(
        role=role_of(item.get("role"), context),
        content=content,
        name=name.strip() or None if isinstance(name, str) else None,
        at=parse_time(item.get("at"), context.timezone, context.repairs),
        id=str(key) if isinstance(key, str | int) and not isinstance(key, bool) and key != "" else None,
    )
