"""Claude's data export, ``conversations.json``: an array of conversations with their ``chat_messages``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO

from transforms.formats._cases import case_name, parted
from transforms.formats._fields import FieldError, identifier, kind_of, load_object, reject, role_of
from transforms.formats._head import first_keys
from transforms.formats._tree import sessions
from transforms.jsonstream import array_elements
from transforms.records import Message, ReadContext, Record, Session, Unit
from transforms.text import scalar_text
from transforms.timestamps import parse_time

NAME = "claude"
VERSION = 1
UNIT: Unit = "exchange"
PLACE = r"[^/]+/conversations(?:-\d+)?\.json(?:\.gz|\.zst)?"
_OWN = r"conversations(?:-\d+)?"
_BESIDE = {"users": "uuid", "projects": "uuid", "memories": "account_uuid"}
"""Files of the export that hold no conversation, each with a key of its records."""
_FILE_LISTS = ("attachments", "files")
_REASONING = frozenset(("thinking", "redacted_thinking"))


def sniff(head: bytes, name: str) -> bool:
    """True when the first object has ``chat_messages``, and for the files that lie beside the conversations."""
    keys = first_keys(head)
    return "chat_messages" in keys or _BESIDE.get(parted(name)[1]) in keys


def read(stream: BinaryIO, context: ReadContext) -> Iterator[Record]:
    """Yield each conversation and its branches; offsets are the byte at which the conversation begins."""
    beside = _BESIDE.get(parted(context.source)[1])
    for piece in array_elements(stream):
        try:
            record = load_object(piece, context)
            if beside in record and "chat_messages" not in record:
                context.repairs["passed_over"] += 1
                continue
            key = identifier(record, "uuid")
            items = record.get("chat_messages")
            if not isinstance(items, list):
                raise FieldError("missing_field" if items is None else "wrong_type", f"{key}: no list 'chat_messages'")
        except FieldError as fault:
            yield reject(fault, piece.data, piece.offset)
            continue
        fitting: list[tuple[int, dict[str, Any]]] = []
        for number, item in enumerate(items):
            if isinstance(item, dict):
                fitting.append((number, item))
            else:
                odd = FieldError("wrong_type", f"{key}: message {number} is a {kind_of(item)}, not an object")
                yield reject(odd, piece.data, piece.offset)
        yield from _sessions(record, key, fitting, context, piece.offset)


def _sessions(
    record: dict[str, Any], key: str, items: list[tuple[int, dict[str, Any]]], context: ReadContext, offset: int
) -> Iterator[Session]:
    account = record.get("account")
    owner = account.get("uuid") if isinstance(account, dict) else None
    case_id = owner if isinstance(owner, str) and owner else case_name(context.source, _OWN)
    messages = {str(number): _message(item, f"{key}:{number}", context) for number, item in items}
    date = record.get("created_at")
    began = parse_time(date, context.timezone, context.repairs)
    whole = Session(case_id, key, [], began, date if isinstance(date, str) else None, offset)
    yield from sessions(whole, messages, *_tree(record, items), context.repairs)


def _tree(record: dict[str, Any], items: list[tuple[int, dict[str, Any]]]) -> tuple[dict[str, str | None], str | None]:
    """Return the parent of each message, by numbers, and the last message that is shown, where the export tells it."""
    number_of: dict[str, str] = {}
    for number, item in items:
        if isinstance(uuid := item.get("uuid"), str):
            number_of.setdefault(uuid, str(number))
    named = [_looked_up(number_of, item.get("parent_message_uuid")) for _, item in items]
    linear = not any(named)
    parents: dict[str, str | None] = {}
    before: str | None = None
    for (number, item), parent in zip(items, named, strict=True):
        follows = linear or "parent_message_uuid" not in item
        parents[str(number)] = before if follows else parent
        before = str(number)
    return parents, _looked_up(number_of, record.get("current_leaf_message_uuid"))


def _looked_up(number_of: dict[str, str], uuid: Any) -> str | None:
    return number_of.get(uuid) if isinstance(uuid, str) else None


def _message(item: dict[str, Any], key: str, context: ReadContext) -> Message | None:
    content = item.get("content")
    text = _parts(content, context) if isinstance(content, list) else scalar_text(content)
    text = "\n".join(filter(None, (text or scalar_text(item.get("text")), *_files(item))))
    if not text or text.isspace():
        context.repairs["empty_message"] += 1
        return None
    uuid = item.get("uuid")
    sender = item.get("sender")
    return Message(
        role="user" if sender == "human" else role_of(sender, context),
        content=text,
        at=parse_time(item.get("created_at"), context.timezone, context.repairs),
        id=uuid if isinstance(uuid, str) and uuid else key,
    )


def _parts(parts: list[Any], context: ReadContext) -> str:
    texts: list[str] = []
    for part in parts:
        kind = str(part.get("type")) if isinstance(part, dict) else ""
        if not isinstance(part, dict):
            texts.append(scalar_text(part))
        elif kind in _REASONING:
            context.repairs["hidden_part"] += 1
        elif kind == "tool_use":
            texts.append(f"[tool_call: {scalar_text(part.get('name')) or 'unknown'}]")
            given = part.get("input")
            texts += [one for one in given.values() if isinstance(one, str)] if isinstance(given, dict) else []
        elif kind == "tool_result":
            result = part.get("content")
            texts += [_shown(one) for one in result] if isinstance(result, list) else [scalar_text(result)]
        else:
            texts.append(_shown(part))
    return "\n".join(filter(None, texts))


def _shown(part: Any) -> str:
    if not isinstance(part, dict):
        return scalar_text(part)
    text, kind = part.get("text"), part.get("type")
    return text if isinstance(text, str) else f"[{kind if isinstance(kind, str) and kind else 'part'}]"


def _files(item: dict[str, Any]) -> list[str]:
    """Name the files of a message, with the text that was taken out of them; `files` repeats names of `attachments`."""
    attachments, files = ([one for one in _listed(item, key) if isinstance(one, dict)] for key in _FILE_LISTS)
    shown = [
        "\n".join(filter(None, (f"[file: {_name(one) or 'unnamed'}]", scalar_text(one.get("extracted_content")))))
        for one in attachments
    ]
    names = {_name(one) for one in attachments}
    return shown + [f"[file: {name}]" for one in files if (name := _name(one)) and name not in names]


def _listed(item: dict[str, Any], key: str) -> list[Any]:
    value = item.get(key)
    return value if isinstance(value, list) else []


def _name(file: dict[str, Any]) -> str:
    return scalar_text(file.get("file_name"))
