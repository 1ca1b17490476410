"""What the tasks share: pieces from interactions, rows from results, and JSON schemas."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from schemas import tables
from transforms.replies import told
from transforms.reply_fields import line_of
from transforms.tasks import Case, Piece, Result

INTERACTIONS = ("ingest", "interactions")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_SPEAKERS = 12
_NAME_LENGTH = 60


def pieces(source: pa.Table) -> list[Case]:
    """Return a piece for each interaction, with its time and speakers, by case.

    The sides of an exchange begin with ``USER: `` and ``ASSISTANT: ``; a message with a name begins with that name.
    """
    columns = source.select(["case_id", "interaction_id", "user_text", "assistant_text", "speakers", "started_at_text"])
    micros = source["started_at"].cast(pa.int64()).to_pylist()
    found: dict[str, list[Piece]] = {}
    for row, (one, at) in enumerate(zip(columns.to_pylist(), micros, strict=True)):
        names = [line_of(name)[:_NAME_LENGTH] for name in one["speakers"]]
        piece = Piece(
            one["interaction_id"],
            _text(one["user_text"], one["assistant_text"], one["speakers"]),
            {"when": _when(at, one["started_at_text"]), "speakers": ", ".join(names[:_SPEAKERS])},
            (row,),
        )
        found.setdefault(one["case_id"], []).append(piece)
    return [Case(case_id, of_case) for case_id, of_case in found.items()]


def _text(user: str, assistant: str, speakers: Sequence[str]) -> str:
    if user and assistant:
        return f"USER: {user}\nASSISTANT: {assistant}"
    alone = user or assistant
    if not alone or any(alone.startswith(f"{name}: ") for name in speakers):
        return alone
    return f"{'USER' if user else 'ASSISTANT'}: {alone}"


def _when(micros: int | None, written: str | None) -> str:
    """Write a time as ``2023-05-10T13:14Z (Wednesday)``, else as the source wrote it."""
    if micros is not None:
        try:
            at = _EPOCH + timedelta(microseconds=micros)
        except OverflowError:
            return "unknown"
        return f"{at.replace(tzinfo=None).isoformat(timespec='minutes')}Z ({_DAYS[at.weekday()]})"
    return line_of(written or "")[:_NAME_LENGTH] or "unknown"


def answered(cases: Sequence[Case], results: Sequence[Sequence[Result]]) -> Iterator[tuple[str, Piece, Result]]:
    """Yield (case id, piece, result) in order of the source's rows."""
    joined = [
        (case.case_id, piece, result)
        for case, of_case in zip(cases, results, strict=True)
        for piece, result in zip(case.pieces, of_case, strict=True)
    ]
    yield from sorted(joined, key=lambda one: one[1].rows[:1])


def outcomes(done: Sequence[tuple[str, Piece, Result]]) -> pa.Table:
    """Make the outcomes table of answered pieces."""
    return tables.build(
        "outcomes",
        {
            "case_id": [case_id for case_id, _, _ in done],
            "key": [piece.key for _, piece, _ in done],
            **tail([result for _, _, result in done]),
        },
    )


def tail(results: Sequence[Result]) -> dict[str, list[Any]]:
    """Return the columns that tell what became of pieces."""
    return {
        "status": [result.status for result in results],
        "error": [None if result.error is None else told([result.error]) for result in results],
        "prompt_tokens": [result.prompt_tokens for result in results],
        "completion_tokens": [result.completion_tokens for result in results],
    }


def rows(name: str, found: Sequence[Sequence[Any]]) -> pa.Table:
    """Make a table of rows whose values are in order of its columns."""
    names = tables.schema(name).names
    return tables.build(name, {key: [row[place] for row in found] for place, key in enumerate(names)})


def string(longest: int) -> dict[str, Any]:
    """Return the schema of a string of at most `longest` characters."""
    return {"type": "string", "maxLength": longest}


def array(item: Mapping[str, Any], most: int) -> dict[str, Any]:
    """Return the schema of a list of at most `most` items."""
    return {"type": "array", "items": dict(item), "maxItems": most}


def choice(values: Sequence[Any]) -> dict[str, Any]:
    """Return the schema of one of some values."""
    return {"type": "integer" if isinstance(values[0], int) else "string", "enum": list(values)}


def closed(properties: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the schema of an object that has these fields and no other."""
    return {
        "type": "object",
        "properties": {name: dict(one) for name, one in properties.items()},
        "required": list(properties),
        "additionalProperties": False,
    }
