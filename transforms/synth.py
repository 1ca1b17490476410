"""Synthetic corpora: records, and their files. What they tell of is in transforms.synth_cases."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import orjson

from schemas.errors import UsageError
from transforms.records import Question, Session
from transforms.synth_cases import Case, Record, Truth

MAX_SIZE = 10_000_000
"""Interactions that can be asked for."""

TRUTH = ".truth"
"""Folder of the ground truth, beside the logs; a run that takes the folder as its input passes hidden ones over."""

_FILE_BYTES = 256_000_000


def records(size: int, seed: int = 0, cases: int | None = None) -> Iterator[Session | Question]:
    """Generate a corpus, case after case; the questions of a chapter follow its sessions. `write` adds the truth.

    The content of a case depends on the seed, its number and its size only. Memory does not grow with the size.

    Args:
        size: Interactions in all (pairs of a user's and an assistant's message).
        seed: Any whole number from 0.
        cases: Cases that share the interactions evenly; one for every 200 when left out.

    Yields:
        Sessions in order of time within a case, and questions. Question types: single-hop, multi-hop-introduction,
        multi-hop-recommendation, temporal, unanswerable.

    Raises:
        UsageError: The size is not within 1 to `MAX_SIZE`, or there are more cases than interactions.
    """
    return (record for record in _made(size, seed, cases) if not isinstance(record, Truth))


def _made(size: int, seed: int, cases: int | None) -> Iterator[Record]:
    cases = default_cases(size) if cases is None else cases
    if not 1 <= size <= MAX_SIZE:
        raise UsageError(f"size is {size}", where="synth", remedy=f"Give 1 to {MAX_SIZE:,} interactions.")
    if not 1 <= cases <= size or seed < 0:
        raise UsageError(f"{cases} cases, seed {seed}", where="synth", remedy="Give 1 to SIZE cases and a seed from 0.")
    small, larger = divmod(size, cases)
    sizes = (small + (number < larger) for number in range(cases))
    return (record for n, own in enumerate(sizes) for record in Case(seed, n, own).records())


def default_cases(size: int) -> int:
    """Return the number of cases of a corpus when none is given."""
    return max(1, size // 200)


def write(
    target: str, size: int, seed: int = 0, cases: int | None = None, *, overwrite: bool = False
) -> dict[str, Any]:
    """Write a corpus as Tagloom JSONL: ``sessions-00000.jsonl``, ... (256 MB each at most) and ``questions.jsonl``.

    The ground truth goes to ``.truth/entities.jsonl`` and ``.truth/relations.jsonl``, rows of the tables of those names
    for corpora of the unit ``exchange``. Same arguments, same bytes.

    Args:
        target: Folder, as a path or any fsspec URI.
        size: As in `records`.
        seed: As in `records`.
        cases: As in `records`.
        overwrite: Replace a synthetic corpus that is there.

    Returns:
        ``files`` (paths, the question file last), ``truth`` (paths: entities, relations), and the numbers of ``cases``,
        ``sessions``, ``interactions`` and ``questions``.

    Raises:
        UsageError: The target holds a corpus and `overwrite` is not set, or the numbers are out of range.
    """
    import fsspec

    made = _made(size, seed, cases)
    fs, root = fsspec.core.url_to_fs(target)
    truth = [f"{root}/{TRUTH}/{name}.jsonl" for name in ("entities", "relations")]
    old = sorted(fs.glob(f"{root}/sessions-*.jsonl") + fs.glob(f"{root}/questions.jsonl"))
    if old and not overwrite:
        raise UsageError(f"already holds {len(old)} files of a corpus", where=target, remedy="Give --overwrite.")
    for path in [*old, *filter(fs.exists, truth)]:
        fs.rm_file(path)
    fs.makedirs(f"{root}/{TRUTH}", exist_ok=True)
    files: list[str] = []
    counts = [0, 0, 0]
    out: Any = None
    left = 0
    with (
        fs.open(f"{root}/questions.jsonl", "wb") as asked,
        fs.open(truth[0], "wb") as entities,
        fs.open(truth[1], "wb") as relations,
    ):
        for record in made:
            if isinstance(record, Question):
                asked.write(question_line(record))
                counts[2] += 1
                continue
            if isinstance(record, Truth):
                entities.writelines(entity_lines(record))
                relations.writelines(relation_lines(record))
                continue
            line = session_line(record)
            if left < len(line):
                if out is not None:
                    out.close()
                files.append(f"{root}/sessions-{len(files):05d}.jsonl")
                out, left = fs.open(files[-1], "wb"), _FILE_BYTES
            out.write(line)
            left -= len(line)
            counts[0] += 1
            counts[1] += len(record.messages) // 2
    out.close()
    cases = default_cases(size) if cases is None else cases
    files.append(f"{root}/questions.jsonl")
    sessions, interactions, questions = counts
    return {
        "files": files,
        "truth": truth,
        "cases": cases,
        "sessions": sessions,
        "interactions": interactions,
        "questions": questions,
    }


def entity_lines(truth: Truth) -> list[bytes]:
    """Return the people, places and things that an interaction names, as lines of the table ``entities``."""
    return [_line(truth, title=title, kind=kind, attributes=[], role="user") for title, kind in truth.entities]


def relation_lines(truth: Truth) -> list[bytes]:
    """Return the introduction or recommendation that an interaction tells, as lines of the table ``relations``."""
    return [
        _line(truth, source=source, target=target, kind=kind, attributes=[f"venue: {venue}"] if venue else [])
        for source, target, kind, venue in truth.relations
    ]


def _line(truth: Truth, **fields: Any) -> bytes:
    line = {"case_id": truth.case_id, "interaction_id": truth.interaction_id, **fields}
    return orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)


def session_line(session: Session) -> bytes:
    """Return a session as one line of Tagloom JSONL."""
    messages = []
    for message in session.messages:
        made = {"role": message.role, "content": message.content}
        if message.name is not None:
            made["name"] = message.name
        if message.at is not None:
            made["at"] = _iso(message.at)
        if message.id is not None:
            made["id"] = message.id
        messages.append(made)
    line = {"case_id": session.case_id, "session_id": session.session_id}
    if session.started_at is not None:
        line["started_at"] = _iso(session.started_at)
    return orjson.dumps({**line, "messages": messages}, option=orjson.OPT_APPEND_NEWLINE)


def question_line(question: Question) -> bytes:
    """Return a question as one line of Tagloom JSONL."""
    line = {
        "case_id": question.case_id,
        "question_id": question.question_id,
        "question": question.question,
        "type": question.question_type,
        "asked_at": _iso(question.asked_at) if question.asked_at else None,
        "answer": question.answer,
        "gold_session_ids": question.gold_session_ids,
        "gold_message_ids": question.gold_message_ids,
        "answerable": question.answerable,
    }
    return orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)


def _iso(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")
