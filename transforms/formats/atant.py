"""ATANT: stories told in batches, as YAML, with questions whose evidence is the notes that hold expected texts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, BinaryIO

from transforms.formats._fields import (
    FieldError,
    answer_text,
    identifier,
    kind_of,
    optional_text,
    reject,
    text_list,
)
from transforms.formats._head import first_keys
from transforms.formats._yaml import documents, load
from transforms.jsonstream import Piece
from transforms.records import Message, Question, ReadContext, Record, Session, Unit
from transforms.text import clean
from transforms.timestamps import parse_time

NAME = "atant"
VERSION = 1
UNIT: Unit = "exchange"
_STORY = re.compile(rb"""^ {0,8}(?:- +)?["']?story_id["']?[ \t]*:""", re.MULTILINE)
_BATCHES = re.compile(rb"""^ {0,8}(?:- +)?["']?batches["']?[ \t]*:""", re.MULTILINE)


def sniff(head: bytes, name: str) -> bool:
    """True when lines of YAML, or the first object of JSON, name a story and its batches."""
    if head.lstrip()[:1] in (b"{", b"["):
        return {"story_id", "batches"} <= first_keys(head)
    return _STORY.search(head) is not None and _BATCHES.search(head) is not None


def read(stream: BinaryIO, context: ReadContext) -> Iterator[Record]:
    """Yield each story's batches, then its questions; offsets are the line at which the story begins."""
    for piece in documents(stream):
        try:
            stories = _stories(piece, context)
        except FieldError as fault:
            yield reject(fault, piece.data, piece.offset)
            continue
        for story in stories:
            for part in _story(story, context):
                if isinstance(part, FieldError):
                    yield reject(part, piece.data, piece.offset)
                else:
                    part.offset = piece.offset
                    yield part


def _stories(piece: Piece, context: ReadContext) -> list[Any]:
    if piece.fault:
        raise FieldError("unreadable", "the story is larger than the reader holds")
    try:
        value = load(piece.data, context.repairs)
    except ValueError as error:
        raise FieldError("not_yaml", clean(str(error))) from None
    if isinstance(value, dict) and isinstance(value.get("stories"), list):
        value = value["stories"]
    return value if isinstance(value, list) else [value]


def _story(story: Any, context: ReadContext) -> Iterator[Session | Question | FieldError]:
    if not isinstance(story, dict):
        yield FieldError("not_an_object", f"a {kind_of(story)} where a story should be")
        return
    try:
        case_id = identifier(story, "story_id")
    except FieldError as fault:
        yield fault
        return
    for key, make in (("batches", _batch), ("questions", _question)):
        items = story.get(key)
        if not isinstance(items, list):
            if items is not None or key == "batches":
                reason = "missing_field" if items is None else "wrong_type"
                yield FieldError(reason, f"{case_id}: '{key}' is a {kind_of(items)}, not a list")
            continue
        for number, item in enumerate(items, start=1):
            try:
                if not isinstance(item, dict):
                    raise FieldError("wrong_type", f"a {kind_of(item)}, not an object")
                yield make(story, case_id, number, item, context)
            except FieldError as fault:
                yield FieldError(fault.reason, f"{case_id}, {key} {number}: {fault.detail}")


def _batch(story: dict[str, Any], case_id: str, number: int, item: dict[str, Any], context: ReadContext) -> Session:
    said = optional_text(item, "user_input")
    if said is None:
        raise FieldError("missing_field", "no 'user_input'")
    told = optional_text(item, "time")
    return Session(
        case_id=case_id,
        session_id=optional_text(item, "batch") or str(number),
        messages=[Message("user", said)],
        started_at=parse_time(told, context.timezone, context.repairs),
        started_at_text=told,
    )


def _question(story: dict[str, Any], case_id: str, number: int, item: dict[str, Any], context: ReadContext) -> Question:
    text = optional_text(item, "question")
    if not text or not text.strip():
        raise FieldError("missing_field", "no text in 'question'")
    expected = item.get("expected_contains")
    if isinstance(expected, list):
        expected = [one for one in expected if one is not None]
    return Question(
        case_id=case_id,
        question_id=optional_text(item, "question_id") or f"q{number}",
        question=text,
        question_type=optional_text(item, "category") or optional_text(story, "category") or "",
        answer=answer_text(item.get("answer")),
        expected_contains=text_list({"expected_contains": expected}, "expected_contains"),
    )
