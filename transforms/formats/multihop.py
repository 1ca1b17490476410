"""Multi-hop questions over passages: MuSiQue, HotpotQA, 2WikiMultihopQA, and HippoRAG's samples and corpora of them.

All passages of a file are one case, as in HippoRAG (arXiv 2405.14831), and not the ten or twenty of each question.
"""

from __future__ import annotations

import io
import posixpath
import re
from collections.abc import Iterator
from typing import Any, BinaryIO, cast

import xxhash

from transforms.formats._fields import FieldError, answer_text, identifier, kind_of, load_object, reject
from transforms.formats._records import head_keys, records
from transforms.records import Message, Question, ReadContext, Record, Session, Unit

NAME = "multihop"
VERSION = 1
UNIT: Unit = "message"
_ENDINGS = r"(?:\.(?:json|jsonl))?(?:\.(?:gz|zst))?"
_SPLITS = r"(?:train|dev|test|val|validation)"
PLACE = rf"(?:[^/]+/)?{_SPLITS}(?:_corpus)?{_ENDINGS}"
_CORPUS = frozenset(("title", "text", "idx", "id", "_id"))
_ASKING = frozenset(("question", "paragraphs", "contexts", "context"))
_HOPS = re.compile(r"(\dhop\d?)__")

_Passage = tuple[str, str, bool]


def sniff(head: bytes, name: str) -> bool:
    """True for questions with their passages, and for a corpus of passages (titles and texts, nothing else)."""
    return any(_asks(keys) or _holds(keys) or _extracted(head, keys) for keys in head_keys(head))


def _asks(keys: frozenset[str]) -> bool:
    return "question" in keys and bool(keys & {"paragraphs", "contexts"} or {"context", "supporting_facts"} <= keys)


def _holds(keys: frozenset[str]) -> bool:
    return {"title", "text"} <= keys <= _CORPUS


def _extracted(head: bytes, keys: frozenset[str]) -> bool:
    return "docs" in keys and re.search(rb'"extracted_(?:triples|entities)"\s*:', head) is not None


def read(stream: BinaryIO, context: ReadContext) -> Iterator[Record]:
    """Yield a session a passage, with what is asked after the passages of each question."""
    head = cast(io.BufferedReader, stream).peek(64 << 10)[: 64 << 10]
    listed = head_keys(head)
    if any(_extracted(head, keys) for keys in listed):
        # Triples of passages, which the extractor `replay` reads.
        context.repairs["passed_over"] += 1
        return
    case_id = _case(context.source)
    corpus = any(map(_holds, listed))
    for piece in records(stream, ("title",) if corpus else ("_id",)):
        try:
            record = load_object(piece, context)
            parts = _question_parts(record, case_id) if record.keys() & _ASKING else _corpus_part(record, case_id)
            for part in parts:
                if isinstance(part, FieldError):
                    yield reject(part, piece.data, piece.offset)
                else:
                    part.offset = piece.offset
                    yield part
        except FieldError as fault:
            yield reject(fault, piece.data, piece.offset)


def _case(source: str) -> str:
    """Name the case that questions and corpus share after their files; after the folder too where that says nothing."""
    folder, name = posixpath.split(source)
    stem = re.sub(rf"{_ENDINGS}(~\d+)?$", r"\1", name)
    stem = re.sub(r"_corpus(?=~\d+$|$)", "", stem) or name
    above = posixpath.basename(folder)
    return f"{above}-{stem}" if above and re.fullmatch(_SPLITS, stem) else stem


def _corpus_part(record: dict[str, Any], case_id: str) -> Iterator[Session]:
    yield _session(case_id, *_texts(record.get("title"), record.get("text")))


def _question_parts(record: dict[str, Any], case_id: str) -> Iterator[Session | Question | FieldError]:
    """Yield the passages of a question, which are kept even if it does not fit, and the question."""
    key = str(record.get("_id") or record.get("id") or "")
    passages, faults = _passages(record)
    for fault in faults:
        yield FieldError(fault.reason, f"question '{key}': {fault.detail}")
    gold = []
    for title, text, supports in passages:
        session = _session(case_id, title, text)
        yield session
        if supports:
            gold.append(f"{session.session_id}:0")
    asked = record.get("question")
    key = identifier(record, "_id" if record.get("_id") else "id")
    if not isinstance(asked, str) or not asked.strip():
        raise FieldError("missing_field" if asked is None else "wrong_type", f"question '{key}': no text in 'question'")
    answerable = record.get("answerable") is not False
    hops = _HOPS.match(key)
    kind = record.get("type")
    yield Question(
        case_id=case_id,
        # MuSiQue's full version asks every question twice under one id, once without what would answer it.
        question_id=key if answerable else f"{key}:unanswerable",
        question=asked,
        question_type=kind if isinstance(kind, str) else hops.group(1) if hops else "",
        answer=answer_text(record.get("answer")),
        gold_message_ids=list(dict.fromkeys(gold)),
        answerable=answerable,
    )


def _session(case_id: str, title: str, text: str) -> Session:
    """Make a passage a session; its id is a digest of its letters, so that it is one wherever it stands."""
    letters = "".join(f"{title}\0{text}".split()).encode("utf-8", "replace")
    return Session(case_id, xxhash.xxh3_64_hexdigest(letters), [Message("user", f"{title}\n{text}" if title else text)])


def _passages(record: dict[str, Any]) -> tuple[list[_Passage], list[FieldError]]:
    faults: list[FieldError] = []
    if (context := record.get("context")) is not None:
        named = _named(record.get("supporting_facts"), faults)
        made = _pairs(context, faults)
        passages = [(title, text, title in named) for title, text in made]
        for title in sorted(named - {title for title, _ in made}):
            faults.append(FieldError("evidence_unresolved", f"no passage is called '{title[:80]}'"))
        return passages, faults
    items = record.get("paragraphs", record.get("contexts"))
    if not isinstance(items, list):
        raise FieldError("missing_field" if items is None else "wrong_type", "no list of passages")
    found: list[_Passage] = []
    for number, item in enumerate(items):
        try:
            if not isinstance(item, dict):
                raise FieldError("wrong_type", f"a {kind_of(item)}, not an object")
            found.append(
                (
                    *_texts(item.get("title"), item.get("paragraph_text", item.get("text"))),
                    item.get("is_supporting") is True,
                )
            )
        except FieldError as fault:
            faults.append(FieldError(fault.reason, f"passage {number}: {fault.detail}"))
    return found, faults


def _pairs(context: Any, faults: list[FieldError]) -> list[tuple[str, str]]:
    """Take titles and sentences: pairs, as published, or a list of each, as Hugging Face has them."""
    if isinstance(context, dict):
        titles, sentences = context.get("title"), context.get("sentences")
        if not isinstance(titles, list) or not isinstance(sentences, list):
            raise FieldError("wrong_type", "'context' has no lists of titles and sentences")
        context = [list(pair) for pair in zip(titles, sentences, strict=False)]
    if not isinstance(context, list):
        raise FieldError("wrong_type", f"'context' is a {kind_of(context)}, not a list")
    made = []
    for number, pair in enumerate(context):
        try:
            if not isinstance(pair, list) or len(pair) != 2:
                raise FieldError("wrong_type", "no pair of title and sentences")
            made.append(_texts(*pair))
        except FieldError as fault:
            faults.append(FieldError(fault.reason, f"passage {number}: {fault.detail}"))
    return made


def _texts(title: Any, text: Any) -> tuple[str, str]:
    """Return title and text of a passage; sentences are joined by spaces, which some files bring along."""
    if isinstance(text, list) and all(isinstance(one, str) for one in text):
        text = " ".join(one.strip() for one in text if one.strip())
    if not isinstance(text, str):
        raise FieldError("missing_field" if text is None else "wrong_type", f"a text that is a {kind_of(text)}")
    if title is not None and not isinstance(title, str):
        raise FieldError("wrong_type", f"a title that is a {kind_of(title)}")
    return (title or "").strip(), text.strip()


def _named(facts: Any, faults: list[FieldError]) -> set[str]:
    """Return the titles that hold the evidence."""
    titles = facts.get("title") if isinstance(facts, dict) else facts
    if isinstance(titles, list):
        titles = [one[0] if isinstance(one, list) and one else one for one in titles]
    if titles is None:
        return set()
    if not isinstance(titles, list):
        faults.append(FieldError("evidence_malformed", f"'supporting_facts' is a {kind_of(facts)}"))
        return set()
    odd = [title for title in titles if not isinstance(title, str)]
    if odd:
        faults.append(FieldError("evidence_malformed", f"{len(odd)} supporting facts name no passage"))
    return {title.strip() for title in titles if isinstance(title, str)}
