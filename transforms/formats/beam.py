"""BEAM (arXiv 2510.27246): long chats with an assistant, a folder each, and the questions that probe them."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from typing import Any, BinaryIO, cast

from transforms.formats._fields import FieldError, answer_text, kind_of, load_object, message, reject
from transforms.formats._head import first_keys
from transforms.jsonstream import array_elements
from transforms.records import Message, Question, ReadContext, Record, Session, Unit
from transforms.timestamps import parse_time

NAME = "beam"
VERSION = 1
UNIT: Unit = "exchange"
PLACE = r"(?:[^/]+/){0,2}(?:chat(?:_trunecated)?|(?:probing_questions/)?probing_questions)\.json(?:\.(?:gz|zst))?"
TYPES = frozenset(
    (
        *("abstention", "contradiction_resolution", "event_ordering", "information_extraction"),
        *("instruction_following", "knowledge_update", "multi_session_reasoning", "preference_following"),
        *("summarization", "temporal_reasoning"),
    )
)
_PLAN = re.compile(r"plan-\d{1,9}")
_ANSWERS = ("answer", "ideal_response", "ideal_answer", "ideal_summary")
# Which bullet of the plan a message was made for; the generator left it at the end of most user messages.
_MARK = re.compile(r"\s*->->\s*\d+\s*,\s*(?:\d+|N/A)\)?\s*$")


def sniff(head: bytes, name: str) -> bool:
    """True for batches of turns, for plans of them, and for an object whose keys are types of probing questions."""
    keys = first_keys(head)
    if head.lstrip()[:1] == b"{":
        return bool(keys & TYPES) and (len(keys) == 1 or len(keys & TYPES) > 1)
    return {"batch_number", "turns"} <= keys or (bool(keys) and all(map(_PLAN.fullmatch, keys)))


def read(stream: BinaryIO, context: ReadContext) -> Iterator[Record]:
    """Yield a session a batch, or the questions; offsets are the byte at which the batch or the object begins."""
    case_id = _case(context.source)
    keys = first_keys(cast(io.BufferedReader, stream).peek(64 << 10)[: 64 << 10])
    # A plan holds batches, whose first key then tells nothing of where an element begins.
    marks = () if any(map(_PLAN.fullmatch, keys)) else ("batch_number",)
    for piece in array_elements(stream, keys=marks):
        try:
            record = load_object(piece, context)
        except FieldError as fault:
            yield reject(fault, piece.data, piece.offset)
            continue
        for part in _parts(record, case_id, context):
            if isinstance(part, FieldError):
                yield reject(part, piece.data, piece.offset)
            else:
                part.offset = piece.offset
                yield part


def _case(source: str) -> str:
    """Name a chat after its folder and the one above, such as ``100K-3``."""
    folders = source.split("/")[:-1]
    if folders[-1:] == ["probing_questions"]:
        folders.pop()
    return "-".join(folders[-2:]) or NAME


def _parts(record: dict[str, Any], case_id: str, context: ReadContext) -> Iterator[Session | Question | FieldError]:
    if "turns" in record or "batch_number" in record:
        yield from _batch(record, "", case_id, context)
        return
    for key, value in record.items():
        if not isinstance(value, list):
            if value is not None or not _PLAN.fullmatch(key):
                yield FieldError("wrong_type", f"{case_id}: '{key}' is a {kind_of(value)}, not a list")
        elif _PLAN.fullmatch(key):
            for batch in value:
                yield from _batch(batch, f"{key}:", case_id, context)
        else:
            yield from _questions(case_id, key, value)
    if not record:
        yield FieldError("missing_field", f"{case_id}: neither turns nor questions")


def _batch(batch: Any, prefix: str, case_id: str, context: ReadContext) -> Iterator[Session | FieldError]:
    if not isinstance(batch, dict):
        yield FieldError("wrong_type", f"{case_id}: a batch is a {kind_of(batch)}, not an object")
        return
    number = batch.get("batch_number")
    if not isinstance(number, int | str) or isinstance(number, bool) or number == "":
        yield FieldError("missing_field", f"{case_id}: a batch without 'batch_number'")
        return
    key = f"{prefix}{number}"
    turns = batch.get("turns")
    if not isinstance(turns, list):
        yield FieldError("wrong_type", f"{case_id}: 'turns' of batch {key} is a {kind_of(turns)}, not a list")
        return
    messages: list[Message] = []
    anchor = batch.get("time_anchor")
    first = anchor if isinstance(anchor, str) else None
    at = parse_time(first, context.timezone, context.repairs)
    started = at
    for number, item in enumerate(one for turn in turns for one in (turn if isinstance(turn, list) else [turn])):
        try:
            made = message(item, context, number=number)
        except FieldError as fault:
            yield FieldError(fault.reason, f"{case_id}, batch {key}: {fault.detail}")
            continue
        anchor = item.get("time_anchor")
        if isinstance(anchor, str) and anchor:
            # An anchor holds until the next one.
            at = parse_time(anchor, context.timezone, context.repairs)
            first, started = first or anchor, started or at
        made.at = at
        stripped = _MARK.sub("", made.content)
        if stripped != made.content:
            context.repairs["plan_mark"] += 1
            made.content = stripped
        messages.append(made)
    yield Session(case_id, key, messages, started, first)


def _questions(case_id: str, kind: str, items: list[Any]) -> Iterator[Question | FieldError]:
    for number, item in enumerate(items):
        key = f"{kind}-{number}"
        try:
            if not isinstance(item, dict):
                raise FieldError("wrong_type", f"a {kind_of(item)}, not an object")
            text = item.get("question")
            if not isinstance(text, str) or not text.strip():
                raise FieldError("missing_field" if text is None else "wrong_type", "no text in 'question'")
            gold, odd = _gold(item.get("source_chat_ids"))
            answer = next((item[name] for name in _ANSWERS if item.get(name) is not None), None)
            made = Question(
                case_id=case_id,
                question_id=key,
                question=text,
                question_type=kind,
                answer=answer_text(answer),
                gold_message_ids=gold,
                answerable=kind != "abstention",
            )
        except FieldError as fault:
            yield FieldError(fault.reason, f"{case_id}, question {key}: {fault.detail}")
            continue
        for one in odd:
            yield FieldError(
                "evidence_malformed", f"{case_id}, question {key}: evidence '{one!s:.80}' is no message id"
            )
        yield made


def _gold(value: Any) -> tuple[list[str], list[Any]]:
    """Take message ids out of a list, a mapping of lists, or one id; what is no id comes apart."""
    ids: dict[str, None] = {}
    odd: list[Any] = []
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            waiting += reversed(one.values())
        elif isinstance(one, list):
            waiting += reversed(one)
        elif isinstance(one, str | int) and not isinstance(one, bool) and one != "":
            ids[str(one)] = None
        elif one is not None:
            odd.append(one)
    return list(ids), odd
