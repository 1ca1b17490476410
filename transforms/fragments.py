"""The bulk side of ingest: records become fragments, Arrow tables by shard, which `transforms.merge` puts together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import xxhash

from schemas.ids import fingerprint, shard_of
from schemas.tables import build, empty, schema
from transforms.interactions import Rows, add_session, session_time
from transforms.records import Question, Record, Reject, Session, Unit
from transforms.text import clean
from transforms.timestamps import micros

_TIME = pa.timestamp("us", tz="UTC")
_STRINGS = pa.list_(pa.field("item", pa.string(), nullable=False))
_FLAGS = pa.list_(pa.field("item", pa.bool_(), nullable=False))
_END = b"\xff"

FRAGMENT_SCHEMAS: dict[str, pa.Schema] = {
    "sessions": pa.schema(
        [
            ("case_id", pa.string()),
            ("session_id", pa.string()),
            ("started_at", _TIME),
            ("started_at_text", pa.string()),
            ("source", pa.string()),
            ("offset", pa.int64()),
            ("order", pa.int32()),  # number among the sessions with this offset
            ("rows", pa.int32()),  # interactions that follow in `interactions`
            ("signature", pa.string()),  # digest of times, texts and message ids
        ]
    ),
    "interactions": pa.schema(
        [
            ("content_hash", pa.string()),
            ("started_at", _TIME),
            ("user_text", pa.large_string()),
            ("assistant_text", pa.large_string()),
            ("speakers", _STRINGS),
            ("message_ids", _STRINGS),
            ("gold", _FLAGS),  # for each message id
        ]
    ),
    "questions": pa.schema(
        [
            ("case_id", pa.string()),
            ("question_id", pa.string()),
            ("question", pa.string()),
            ("question_type", pa.string()),
            ("asked_at", _TIME),
            ("answer", pa.string()),
            ("gold_session_ids", _STRINGS),
            ("gold_message_ids", _STRINGS),
            ("expected_contains", _STRINGS),
            ("answerable", pa.bool_()),
            ("source", pa.string()),
            ("offset", pa.int64()),
            ("order", pa.int32()),
            ("signature", pa.string()),
        ]
    ),
    "rejects": schema("rejects"),
}
"""Layout of fragment tables; rows of `interactions` follow the order of `sessions`."""


@dataclass(frozen=True)
class FragmentTables:
    """Part of one shard: tables of `FRAGMENT_SCHEMAS`."""

    sessions: pa.Table
    interactions: pa.Table
    questions: pa.Table
    rejects: pa.Table


@dataclass(slots=True)
class _Part:
    """What one shard has gathered since the last flush."""

    sessions: list[tuple[Any, ...]] = field(default_factory=list)  # columns of the fragment table up to `rows`
    rows: Rows = field(default_factory=Rows)
    questions: list[tuple[Question, int]] = field(default_factory=list)
    rejects: list[Reject] = field(default_factory=list)


def fragments(
    records: Iterable[Record], source: str, unit: Unit, shards: int, limit_bytes: int
) -> Iterator[dict[int, FragmentTables]]:
    """Turn the records of one source into fragments by shard.

    A session without messages, or with nothing but white space, becomes a reject. Rejects lie in the shard of the
    source's name.

    Args:
        records: What a reader yields.
        source: Name of the source, as rows will carry it.
        unit: Retrieval unit.
        shards: Number of shards.
        limit_bytes: Text held before a group is given out; memory is bounded by a small multiple of it.

    Yields:
        Groups: shard number -> tables, shards ascending. No group is empty.
    """
    parts: dict[int, _Part] = {}
    home = shard_of(source, shards)
    held = 0
    case: str | None = None
    shard = -1
    orders: dict[type[Record], tuple[int, int]] = {}
    for record in records:
        if isinstance(record, Reject):
            parts.setdefault(home, _Part()).rejects.append(record)
            held += 500
            continue
        offset, order = orders.get(type(record), (-1, -1))
        order = order + 1 if record.offset == offset else 0
        orders[type(record)] = (record.offset, order)
        if record.case_id != case:
            case, shard = record.case_id, shard_of(record.case_id, shards)
        if isinstance(record, Question):
            parts.setdefault(shard, _Part()).questions.append((record, order))
            held += 500 + len(record.question)
        elif fault := _unfit(record):
            parts.setdefault(home, _Part()).rejects.append(fault)
            held += 500
        else:
            part = parts.setdefault(shard, _Part())
            added = add_session(part.rows, record, unit)
            held += 200 + sum([len(one.content) for one in record.messages])
            key, began, text = record.session_id, session_time(record), record.started_at_text
            part.sessions.append((case, key, began, text, source, record.offset, order, added))
        if held >= limit_bytes:
            yield _flush(parts, source)
            parts, held = {}, 0
    if parts:
        yield _flush(parts, source)


def _unfit(session: Session) -> Reject | None:
    where = f"session '{session.session_id}' of case '{session.case_id}'"
    if not session.messages:
        return Reject("no_messages", f"{where} has no messages", "", session.offset)
    for one in session.messages:
        if one.content and not one.content.isspace():
            return None
    return Reject("empty_session", f"{where} holds nothing but white space", "", session.offset)


def _flush(parts: dict[int, _Part], source: str) -> dict[int, FragmentTables]:
    return {shard: _tables(parts[shard], source) for shard in sorted(parts)}


def _tables(part: _Part, source: str) -> FragmentTables:
    rows = part.rows
    speakers = _ragged(rows.speakers, rows.speaker_counts, _STRINGS)
    message_ids = _ragged(rows.message_ids, rows.message_counts, _STRINGS)
    user, assistant = _texts(rows.user_text), _texts(rows.assistant_text)
    counts = [one[7] for one in part.sessions]
    time_texts = [one[3] or "" for one in part.sessions for _ in range(one[7])]
    hashes = _row_hashes(rows, time_texts, user, assistant)
    interactions = pa.table(
        [
            pa.array(hashes, pa.string()),
            _times(rows.started_at),
            user,
            assistant,
            speakers,
            message_ids,
            _ragged(rows.gold, rows.message_counts, _FLAGS),
        ],
        schema=FRAGMENT_SCHEMAS["interactions"],
    )
    signatures = _signatures(part.sessions, counts, rows, hashes)
    sessions = _table("sessions", [(*one, mark) for one, mark in zip(part.sessions, signatures, strict=True)])
    questions = _table("questions", [_question_row(one, order, source) for one, order in part.questions])
    return FragmentTables(sessions, interactions, questions, _rejects(part.rejects, source))


def _row_hashes(rows: Rows, time_texts: list[str], user: pa.Array, assistant: pa.Array) -> list[str]:
    """Hash each row as `schemas.ids.content_hash` does over time, time text, speakers, user and assistant text."""
    said, answered = _bytes_of(user), _bytes_of(assistant)
    prefixes: dict[tuple[Any, ...], bytes] = {}
    digest = xxhash.xxh3_128_hexdigest
    hashes, at = [], 0
    speakers = rows.speakers
    for index, (when, text, count) in enumerate(zip(rows.started_at, time_texts, rows.speaker_counts, strict=True)):
        # One instant may be written in many ways; how it was written counts only where it was not understood.
        words = (text if when is None else "", *speakers[at : at + count])
        key = (when, *words)
        at += count
        prefix = prefixes.get(key)
        if prefix is None:
            told = ("" if when is None else str(when), *words)
            prefix = prefixes[key] = b"".join([word.encode("utf-8", "replace") + _END for word in told])
        hashes.append(digest(b"".join((prefix, said(index), _END, answered(index), _END))))
    return hashes


def _bytes_of(texts: pa.Array) -> Callable[[int], memoryview]:
    """Give access to each text's UTF-8 without making Python strings."""
    _, ends, data = texts.buffers()
    offsets = np.frombuffer(ends, np.int64, len(texts) + 1).tolist() if len(texts) else [0]
    view = memoryview(data) if data is not None else memoryview(b"")
    return lambda index: view[offsets[index] : offsets[index + 1]]


def _signatures(sessions: Sequence[tuple[Any, ...]], counts: list[int], rows: Rows, hashes: list[str]) -> list[str]:
    made, row, message = [], 0, 0
    for one, count in zip(sessions, counts, strict=True):
        size = sum(rows.message_counts[row : row + count])
        words = [str(one[2]), *hashes[row : row + count], *rows.message_ids[message : message + size]]
        made.append(xxhash.xxh3_128_hexdigest(b"".join([w.encode("utf-8", "replace") + _END for w in words])))
        row, message = row + count, message + size
    return made


def _question_row(one: Question, order: int, source: str) -> tuple[Any, ...]:
    said = (
        one.case_id,
        one.question_id,
        one.question,
        one.question_type,
        micros(one.asked_at),
        one.answer,
        one.gold_session_ids,
        one.gold_message_ids,
        one.expected_contains,
        one.answerable,
    )
    return (*said, source, one.offset, order, fingerprint(said))


def _rejects(rejects: list[Reject], source: str) -> pa.Table:
    if not rejects:
        return empty("rejects")
    return build(
        "rejects",
        {
            "source": [source] * len(rejects),
            "source_offset": [one.offset for one in rejects],
            "reason": [one.reason for one in rejects],
            "detail": [clean(one.detail) for one in rejects],
            "sample": [clean(one.sample)[:200] for one in rejects],
        },
    )


def _table(name: str, rows: list[tuple[Any, ...]]) -> pa.Table:
    wanted = FRAGMENT_SCHEMAS[name]
    if not rows:
        return wanted.empty_table()
    columns = zip(wanted, zip(*rows, strict=True), strict=True)
    return pa.table([_times(v) if f.type == _TIME else pa.array(v, f.type) for f, v in columns], schema=wanted)


def _times(values: Sequence[int | None]) -> pa.Array:
    return pa.array(values, pa.int64()).cast(_TIME)


def _texts(values: list[str]) -> pa.Array:
    try:
        return pa.array(values, pa.large_string())
    except UnicodeEncodeError:  # a third party's reader that does not clean its texts
        return pa.array([clean(value) for value in values], pa.large_string())


def _ragged(values: Sequence[Any], counts: list[int], kind: pa.DataType) -> pa.Array:
    offsets = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values, kind.value_type), type=kind)
