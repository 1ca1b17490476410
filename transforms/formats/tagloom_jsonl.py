"""Tagloom's own format: JSON lines, one session or one question a line (see docs/formats.md)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, BinaryIO

from transforms.formats._fields import (
    FieldError,
    answer_text,
    identifier,
    kind_of,
    load_object,
    message,
    optional_text,
    reject,
    text_list,
)
from transforms.formats._head import first_keys
from transforms.jsonstream import lines
from transforms.records import Message, Question, ReadContext, Record, Session, Unit
from transforms.timestamps import parse_time

NAME = "tagloom"
VERSION = 1
UNIT: Unit = "exchange"
_MARK = re.compile(rb'(?<!\\)"(?:messages|question)"\s*:')


def sniff(head: bytes, name: str) -> bool:
    """True when some line is an object with ``case_id`` and ``messages`` or ``question``: the first may be broken."""
    lines_ = (line.strip() for line in head.splitlines())
    likely = (line for line in lines_ if line.startswith(b"{") and b'"case_id"' in line and _MARK.search(line))
    return any("case_id" in keys and keys & {"messages", "question"} for keys in map(first_keys, likely))


def read(stream: BinaryIO, context: ReadContext) -> Iterator[Record]:
    """Yield a session, a question or a reject a line; offsets are line numbers from 1."""
    for piece in lines(stream):
        try:
            record = load_object(piece, context)
            if "question" in record:
                yield _question(record, context, piece.offset)
                continue
            session, faults = _session(record, context, piece.offset)
        except FieldError as fault:
            yield reject(fault, piece.data, piece.offset)
            continue
        for part in faults:
            yield reject(part, piece.data, piece.offset)
        yield session


def _session(record: dict[str, Any], context: ReadContext, offset: int) -> tuple[Session, list[FieldError]]:
    case_id, session_id = identifier(record, "case_id"), identifier(record, "session_id")
    items = record.get("messages")
    if items is None:
        raise FieldError("missing_field", "no 'messages' and no 'question'")
    if not isinstance(items, list):
        raise FieldError("wrong_type", f"'messages' is a {kind_of(items)}, not a list")
    messages: list[Message] = []
    faults: list[FieldError] = []
    for number, item in enumerate(items):
        try:
            made = message(item, context, number=number)
        except FieldError as fault:
            faults.append(fault)
            continue
        if faults and made.id is None:
            made.id = f"{session_id}:{number}"
        messages.append(made)
    written = record.get("started_at")
    text = None if written is None or isinstance(written, dict | list) else optional_text(record, "started_at")
    started = parse_time(written, context.timezone, context.repairs)
    return Session(case_id, session_id, messages, started, text, offset), faults


def _question(record: dict[str, Any], context: ReadContext, offset: int) -> Question:
    text = record["question"]
    if not isinstance(text, str) or not text.strip():
        raise FieldError("wrong_type", f"'question' is {'empty' if text == '' else 'a ' + kind_of(text)}, not text")
    answerable = record.get("answerable")
    if answerable is not None and not isinstance(answerable, bool):
        raise FieldError("wrong_type", f"'answerable' is a {kind_of(answerable)}, not true or false")
    return Question(
        case_id=identifier(record, "case_id"),
        question_id=identifier(record, "question_id"),
        question=text,
        question_type=optional_text(record, "type") or "",
        asked_at=parse_time(record.get("asked_at"), context.timezone, context.repairs),
        answer=answer_text(record.get("answer")),
        gold_session_ids=text_list(record, "gold_session_ids"),
        gold_message_ids=text_list(record, "gold_message_ids"),
        expected_contains=text_list(record, "expected_contains"),
        answerable=answerable is not False,
        offset=offset,
    )
