"""LoCoMo (arXiv 2402.17753): long dialogues between two people, with questions whose evidence is dialogue turns."""

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
    optional_text,
    reject,
)
from transforms.jsonstream import array_elements
from transforms.records import Message, Question, ReadContext, Record, Session, Unit
from transforms.text import content_text
from transforms.timestamps import parse_time

NAME = "locomo"
VERSION = 1
UNIT: Unit = "message"
CATEGORIES = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop", 5: "adversarial"}
_KEYS = ("qa", "conversation", "sample_id", "event_summary", "observation", "session_summary")
_MARK = re.compile(rb'(?<!\\)"(?:speaker_a|dia_id|adversarial_answer)"\s*:')
_FIRST = re.compile(rb'\s*\[?\s*\{\s*"(?:' + "|".join(_KEYS).encode() + rb')"\s*:')
_EVIDENCE = re.compile(r"D(\d{1,9}):(\d{1,9})")
_LOOSE = re.compile(r"D:?\s*(\d{1,9}):(\d{1,9})")
_SESSION = re.compile(r"session_(\d{1,9})")
_DATE = re.compile(r"session_(\d{1,9})_date_time")


def sniff(head: bytes, name: str) -> bool:
    """True when the first element begins as a LoCoMo conversation does."""
    if _FIRST.match(head) is None:
        return False
    return _MARK.search(head) is not None or re.search(rb'"(?:evidence|conversation)"\s*:', head) is not None


def read(stream: BinaryIO, context: ReadContext) -> Iterator[Record]:
    """Yield each conversation's sessions, then its questions; offsets are the byte at which the element begins."""
    for piece in array_elements(stream, keys=_KEYS):
        try:
            record = load_object(piece, context)
            case_id = identifier(record, "sample_id")
            conversation = record.get("conversation")
            if not isinstance(conversation, dict):
                raise FieldError(
                    "missing_field" if conversation is None else "wrong_type", f"{case_id}: no 'conversation' object"
                )
        except FieldError as fault:
            yield reject(fault, piece.data, piece.offset)
            continue
        parts = [*_sessions(case_id, conversation, context), *_questions(case_id, record.get("qa"), context)]
        for part in parts or [FieldError("missing_field", f"{case_id}: neither sessions nor questions")]:
            if isinstance(part, FieldError):
                yield reject(part, piece.data, piece.offset)
            else:
                part.offset = piece.offset
                yield part


def _sessions(case_id: str, conversation: dict[str, Any], context: ReadContext) -> Iterator[Session | FieldError]:
    numbers = sorted({int(m.group(1)): key for key in conversation if (m := _SESSION.fullmatch(key))}.items())
    for key in conversation:
        dated = _DATE.fullmatch(key)
        if dated and f"session_{dated.group(1)}" not in conversation:
            context.repairs["date_without_session"] += 1
    for _, key in numbers:
        turns = conversation[key]
        if not isinstance(turns, list):
            yield FieldError("wrong_type", f"{case_id}: '{key}' is a {kind_of(turns)}, not a list")
            continue
        messages = []
        for number, turn in enumerate(turns):
            if not isinstance(turn, dict):
                yield FieldError("wrong_type", f"{case_id}: turn {number} of {key} is a {kind_of(turn)}, not an object")
                continue
            messages.append(_message(turn, f"{key}:{number}", context))
        date = conversation.get(f"{key}_date_time")
        started = parse_time(date, context.timezone, context.repairs)
        yield Session(case_id, key, messages, started, date if isinstance(date, str) else None)


def _message(turn: dict[str, Any], fallback: str, context: ReadContext) -> Message:
    text = content_text(turn.get("text"), turn, context.repairs)
    caption = turn.get("blip_caption")
    if isinstance(caption, str) and caption:
        text = f"{text}\n[{caption}]"
    name, turn_id = turn.get("speaker"), turn.get("dia_id")
    return Message(
        role="user",
        content=text,
        name=name.strip() or None if isinstance(name, str) else None,
        id=turn_id if isinstance(turn_id, str) and turn_id else fallback,
    )


def _questions(case_id: str, items: Any, context: ReadContext) -> Iterator[Question | FieldError]:
    if items is None:
        return
    if not isinstance(items, list):
        yield FieldError("wrong_type", f"{case_id}: 'qa' is a {kind_of(items)}, not a list")
        return
    for number, item in enumerate(items):
        key = f"q{number:04d}"
        try:
            yield from _question(case_id, key, item, context)
        except FieldError as fault:
            yield FieldError(fault.reason, f"{case_id} {key}: {fault.detail}")


def _question(case_id: str, key: str, item: Any, context: ReadContext) -> Iterator[Question | FieldError]:
    if not isinstance(item, dict):
        raise FieldError("wrong_type", f"a {kind_of(item)}, not an object")
    text = item.get("question")
    if not isinstance(text, str) or not text.strip():
        raise FieldError("missing_field" if text is None else "wrong_type", "no text in 'question'")
    category = item.get("category")
    known = CATEGORIES.get(category) if isinstance(category, int) else None
    adversarial = known == "adversarial"
    answer = None if adversarial else answer_text(item.get("answer"))
    written = item.get("evidence")
    evidence = written if isinstance(written, list) else [] if written is None else [written]
    gold: list[str] = []
    for entry in evidence:
        try:
            gold += _evidence(entry, context)
        except FieldError as fault:
            yield FieldError(fault.reason, f"{case_id} {key}: {fault.detail}")
    yield Question(
        case_id=case_id,
        question_id=key,
        question=text,
        question_type=known or optional_text({"category": category}, "category") or "",
        answer=answer,
        gold_message_ids=gold,
        answerable=not adversarial,
    )


def _evidence(entry: Any, context: ReadContext) -> list[str]:
    """Read one evidence string; several ids in one, zeros before numbers and ``D:`` are repaired and counted."""
    if not isinstance(entry, str):
        raise FieldError("evidence_malformed", f"evidence is a {kind_of(entry)}, not text")
    found = [f"D{int(a)}:{int(b)}" for a, b in _LOOSE.findall(entry)]
    if not found or _LOOSE.sub("", entry).strip(" ;,\t\n"):
        raise FieldError("evidence_malformed", f"evidence '{entry[:80]}' names no turn")
    if found != [entry]:
        context.repairs["evidence_repaired"] += 1
    return found
