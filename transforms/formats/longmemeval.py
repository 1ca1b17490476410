"""LongMemEval (arXiv 2410.10813): an array of questions, each with the history ("haystack") it is asked over."""

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
from transforms.jsonstream import array_elements
from transforms.records import Message, Question, ReadContext, Record, Session, Unit
from transforms.timestamps import parse_time

NAME = "longmemeval"
VERSION = 1
UNIT: Unit = "exchange"
_HAYSTACK = ("haystack_sessions", "haystack_session_ids", "haystack_dates")
_KEYS = ("question_id", "question_type", "question", "question_date", "answer", "answer_session_ids", *_HAYSTACK)
_MARK = re.compile(rb'(?<!\\)"haystack_(?:sessions|session_ids|dates)"\s*:')


def sniff(head: bytes, name: str) -> bool:
    """True for an array or object whose head names a haystack field."""
    return head.lstrip()[:1] in (b"[", b"{") and _MARK.search(head) is not None


def read(stream: BinaryIO, context: ReadContext) -> Iterator[Record]:
    """Yield each record's sessions and its question; offsets are the byte at which the record begins."""
    for piece in array_elements(stream, keys=_KEYS):
        try:
            record = load_object(piece, context)
            case_id = identifier(record, "question_id")
        except FieldError as fault:
            yield reject(fault, piece.data, piece.offset)
            continue
        try:
            history = _history(record)
        except FieldError as fault:
            yield reject(fault, piece.data, piece.offset)
            history = []
        for session_id, date, items in history:
            session, faults = _session(case_id, session_id, date, items, context, piece.offset)
            for part in faults:
                yield reject(part, piece.data, piece.offset)
            if session is not None:
                yield session
        lengths = [len(v) if isinstance(v := record.get(key), list) else 0 for key in _HAYSTACK]
        if max(lengths) > len(history) > 0:
            counts = ", ".join(f"{key} {n}" for key, n in zip(_HAYSTACK, lengths, strict=True))
            uneven = FieldError("wrong_type", f"{case_id}: lists of different length, the rest is left out: {counts}")
            yield reject(uneven, piece.data, piece.offset)
        try:
            yield _question(record, case_id, context, piece.offset)
        except FieldError as fault:
            yield reject(fault, piece.data, piece.offset)


def _history(record: dict[str, Any]) -> list[tuple[Any, Any, Any]]:
    for key in _HAYSTACK:
        value = record.get(key)
        if value is None:
            raise FieldError("missing_field", f"no '{key}'")
        if not isinstance(value, list):
            raise FieldError("wrong_type", f"'{key}' is a {kind_of(value)}, not a list")
    sessions, ids, dates = (record[key] for key in _HAYSTACK)
    return list(zip(ids, dates, sessions, strict=False))


def _session(
    case_id: str, session_id: Any, date: Any, items: Any, context: ReadContext, offset: int
) -> tuple[Session | None, list[FieldError]]:
    try:
        key = identifier({"haystack_session_ids": session_id}, "haystack_session_ids")
        if not isinstance(items, list):
            raise FieldError("wrong_type", f"session '{key}' of {case_id} is a {kind_of(items)}, not a list")
    except FieldError as fault:
        return None, [fault]
    messages: list[Message] = []
    faults: list[FieldError] = []
    for number, item in enumerate(items):
        # Almost every message has this shape; the long way round gives the same.
        if type(item) is dict and ((size := len(item)) == 2 or (size == 3 and "has_answer" in item)):
            role, content = item.get("role"), item.get("content")
            if type(content) is str and role in ("user", "assistant"):
                gold = size == 3 and item["has_answer"] is True
                messages.append(Message(role, content, None, None, None, gold))
                continue
        try:
            made = message(item, context, number=number)
        except FieldError as fault:
            faults.append(fault)
            continue
        made.gold = item.get("has_answer") is True
        messages.append(made)
    if faults:
        _number(messages, items, key)
    text = date if isinstance(date, str) else optional_text({"date": date}, "date") if _scalar(date) else None
    started = parse_time(date, context.timezone, context.repairs)
    return Session(case_id, key, messages, started, text, offset), faults


def _scalar(value: Any) -> bool:
    return not isinstance(value, dict | list)


def _number(messages: list[Message], items: list[Any], session_id: str) -> None:
    """Number messages as the source does, where some of its messages were rejected."""
    kept = [number for number, item in enumerate(items) if isinstance(item, dict)]
    for number, one in zip(kept, messages, strict=True):
        one.id = one.id or f"{session_id}:{number}"


def _question(record: dict[str, Any], case_id: str, context: ReadContext, offset: int) -> Question:
    text = record.get("question")
    if text is None:
        raise FieldError("missing_field", f"{case_id}: no 'question'")
    if not isinstance(text, str):
        raise FieldError("wrong_type", f"{case_id}: 'question' is a {kind_of(text)}, not text")
    return Question(
        case_id=case_id,
        question_id=case_id,
        question=text,
        question_type=optional_text(record, "question_type") or "",
        asked_at=parse_time(record.get("question_date"), context.timezone, context.repairs),
        answer=answer_text(record.get("answer")),
        gold_session_ids=text_list(record, "answer_session_ids"),
        answerable=not case_id.endswith("_abs"),
        offset=offset,
    )
