"""ChatGPT's data export, ``conversations.json``: an array of conversations, each a tree of messages."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, BinaryIO

from transforms.formats._cases import case_name
from transforms.formats._fields import FieldError, identifier, kind_of, load_object, reject, role_of
from transforms.formats._head import first_keys
from transforms.formats._tree import sessions
from transforms.jsonstream import array_elements
from transforms.records import Message, ReadContext, Record, Session, Unit
from transforms.text import content_text, scalar_text
from transforms.timestamps import parse_time

NAME = "chatgpt"
VERSION = 1
UNIT: Unit = "exchange"
PLACE = r"[^/]+/conversations(?:-\d+)?\.json(?:\.gz|\.zst)?"
_OWN = r"conversations(?:-\d+)?"
_REASONING = frozenset(("thoughts", "reasoning_recap"))
_CONTEXT = frozenset(("user_editable_context", "model_editable_context"))
# Fields of a content that hold text, whatever its type, in the order in which they are read.
_TEXTS = (
    *("name", "title", "parts", "text", "result", "summary", "content", "snippet"),
    *("user_profile", "user_instructions", "model_set_context"),
)


def sniff(head: bytes, name: str) -> bool:
    """True when the first object has a ``mapping``, the tree of a conversation."""
    return "mapping" in first_keys(head)


def read(stream: BinaryIO, context: ReadContext) -> Iterator[Record]:
    """Yield each conversation and its branches; offsets are the byte at which the conversation begins."""
    case_id = case_name(context.source, _OWN)
    for piece in array_elements(stream):
        try:
            record = load_object(piece, context)
            named = record.get("conversation_id")
            key = named if isinstance(named, str) and named else identifier(record, "id")
            mapping = record.get("mapping")
            if not isinstance(mapping, dict):
                raise FieldError(
                    "missing_field" if mapping is None else "wrong_type", f"{key}: no object 'mapping' of its messages"
                )
        except FieldError as fault:
            yield reject(fault, piece.data, piece.offset)
            continue
        messages, faults = _messages(mapping, key, context)
        for part in faults:
            yield reject(part, piece.data, piece.offset)
        current = record.get("current_node")
        if mapping and (not isinstance(current, str) or current not in mapping):
            context.repairs["no_current_node"] += 1
            current = None
        began = parse_time(record.get("create_time"), context.timezone, context.repairs)
        whole = Session(case_id, key, [], began, None, piece.offset)
        yield from sessions(whole, messages, _parents(mapping, messages), current, context.repairs)


def _messages(
    mapping: dict[str, Any], key: str, context: ReadContext
) -> tuple[dict[str, Message | None], list[FieldError]]:
    """Make the message of each node; None for those that say nothing, are hidden or do not fit."""
    made: dict[str, Message | None] = {}
    faults: list[FieldError] = []
    for node_id, node in mapping.items():
        made[node_id] = None
        try:
            if not isinstance(node, dict):
                raise FieldError("wrong_type", f"{key}: node '{node_id}' is a {kind_of(node)}, not an object")
            item = node.get("message")
            if item is None:
                continue
            if not isinstance(item, dict):
                raise FieldError("wrong_type", f"{key}: the message of node '{node_id}' is a {kind_of(item)}")
            made[node_id] = _message(item, node_id, context)
        except FieldError as fault:
            faults.append(fault)
    return made, faults


def _message(item: dict[str, Any], node_id: str, context: ReadContext) -> Message | None:
    content = item.get("content")
    kind = str(content.get("content_type")) if isinstance(content, dict) else ""
    metadata = item.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    weight = item.get("weight")
    unweighted = weight is not None and not isinstance(weight, bool) and weight == 0
    if unweighted or metadata.get("is_visually_hidden_from_conversation") is True or kind in _REASONING:
        context.repairs["hidden_message"] += 1
        return None
    text = _content(content) if isinstance(content, dict) else content_text(content, {}, context.repairs)
    if "attachments" in metadata:
        text = "\n".join(filter(None, (text, *_files(metadata))))
    if not text or text.isspace():
        context.repairs["empty_message"] += 1
        return None
    author = item.get("author")
    author = author if isinstance(author, dict) else {}
    name = author.get("name")
    return Message(
        # What a user has set for all conversations is not said in this one.
        role="system" if kind in _CONTEXT else role_of(author.get("role"), context),
        content=text,
        name=name.strip() or None if isinstance(name, str) else None,
        at=parse_time(item.get("create_time"), context.timezone, context.repairs),
        id=node_id,
    )


def _content(content: dict[str, Any]) -> str:
    parts = content.get("parts")
    if type(parts) is list and len(parts) == 1 and type(parts[0]) is str and len(content) == 2:
        return parts[0]  # almost every message; the long way round gives the same
    held = [content[field] for field in _TEXTS if field in content]
    kind = content.get("content_type")
    if not held and isinstance(kind, str) and kind:
        return f"[{kind}]"
    texts = [_part(part) for value in held for part in (value if isinstance(value, list) else [scalar_text(value)])]
    return "\n".join(filter(None, texts))


def _part(part: Any) -> str:
    """Give the text of one part; an image or a sound without words is its type in brackets."""
    if not isinstance(part, dict):
        return scalar_text(part)
    text = part.get("text")
    if isinstance(text, str):
        return text
    kind = part.get("content_type") or part.get("type")
    kind = kind if isinstance(kind, str) else "part"
    metadata = part.get("metadata")
    made = metadata.get("dalle") if isinstance(metadata, dict) else None
    prompt = made.get("prompt") if isinstance(made, dict) else None
    return f"[{kind}: {prompt}]" if isinstance(prompt, str) and prompt else f"[{kind}]"


def _files(metadata: dict[str, Any]) -> list[str]:
    attached = metadata.get("attachments")
    names = [one.get("name") for one in attached if isinstance(one, dict)] if isinstance(attached, list) else []
    return [f"[file: {name}]" for name in names if isinstance(name, str) and name]


def _parents(mapping: dict[str, Any], messages: dict[str, Message | None]) -> dict[str, str | None]:
    """Return the parent of each node, the oldest node first; nodes without a time stand where the file has them."""
    told: dict[str, str] = {}
    for node_id, node in mapping.items():
        children = node.get("children") if isinstance(node, dict) else None
        for child in children if isinstance(children, list) else ():
            if isinstance(child, str):
                told.setdefault(child, node_id)
    parents: dict[str, str | None] = {}
    for node_id in sorted(mapping, key=lambda node: _age(messages[node])):
        node = mapping[node_id]
        parent = node.get("parent") if isinstance(node, dict) else None
        known = isinstance(parent, str) and parent in mapping
        parents[node_id] = parent if known else told.get(node_id)
    return parents


def _age(message: Message | None) -> float:
    return -math.inf if message is None or message.at is None else message.at.timestamp()
