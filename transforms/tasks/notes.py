"""5W notes after the rules of TAGGRAPH (arXiv 2609.38353): tags in six fields, and a summary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from schemas import tables as schema
from schemas.tables import NOTE_FIELDS
from transforms.extractors._notes import LIMITS
from transforms.replies import BadReplyError, refusal
from transforms.reply_fields import fields, text
from transforms.tags import MAX_CHARACTERS
from transforms.tasks import Case, Result
from transforms.tasks._labels import in_turn, tags
from transforms.tasks._tables import INTERACTIONS, answered, array, closed, pieces, string, tail

NAME = "notes"
VERSION = 1
TABLES = ("notes",)
READS = INTERACTIONS
PLACEHOLDERS = {"text": True, "vocabulary": False, "when": False, "speakers": False}
REPLY_TOKENS = 512

_SUMMARY = 400

SCHEMA = closed(
    {field: array(string(MAX_CHARACTERS), LIMITS[field]) for field in NOTE_FIELDS} | {"summary": string(_SUMMARY)}
)


@dataclass(frozen=True, slots=True)
class Note:
    """One note.

    Attributes:
        tags: Tags in normal form, by field; every field is there.
        summary: One or two sentences.
    """

    tags: Mapping[str, tuple[str, ...]]
    summary: str


def cases(source: pa.Table) -> list[Case]:
    """Return every interaction as one piece."""
    return pieces(source)


def read(value: Mapping[str, Any]) -> tuple[Note, list[str]]:
    """Read a note; tags get their normal form, and those that are sentences are dropped.

    Raises:
        BadReplyError: It has none of the fields, a field has a type that cannot be mended, or it is a refusal.
    """
    repairs: list[str] = []
    given = fields(value, (*NOTE_FIELDS, "summary"), repairs)
    found = {field: tuple(tags(given.get(field), field, LIMITS[field], repairs)) for field in NOTE_FIELDS}
    summary = text(given.get("summary"), "summary", _SUMMARY, repairs)
    if not any(found.values()) and refusal(summary):
        raise BadReplyError(f"a refusal: {summary[:80]}")
    return Note(found, summary), repairs


def is_empty(record: Note) -> bool:
    """Tell whether a note has neither tag nor summary."""
    return not record.summary and not any(record.tags.values())


def merge(records: Sequence[Note]) -> Note:
    """Join the notes of parts: of each field the first tags of all parts first, up to the field's limit."""
    joined = {field: tuple(in_turn(one.tags[field] for one in records)[: LIMITS[field]]) for field in NOTE_FIELDS}
    summary = " ".join(dict.fromkeys(one.summary for one in records if one.summary))
    return Note(joined, text(summary, "summary", _SUMMARY, []))


def vocabulary(record: Note) -> list[str]:
    """Return the tags of all fields but `when`: dates are no ontology to reuse."""
    return list(dict.fromkeys(tag for field in NOTE_FIELDS if field != "when" for tag in record.tags[field]))


def tables(source: pa.Table, cases: Sequence[Case], results: Sequence[Sequence[Result]]) -> dict[str, pa.Table]:
    """Make the notes table, one row an interaction; a failed one has no tags and no summary."""
    done = list(answered(cases, results))
    records: list[Note | None] = [result.record for _, _, result in done]
    columns: dict[str, Any] = {
        "case_id": [case_id for case_id, _, _ in done],
        "interaction_id": [piece.key for _, piece, _ in done],
        "summary": ["" if one is None else one.summary for one in records],
        **tail([result for _, _, result in done]),
    }
    for field in NOTE_FIELDS:
        columns[field] = [[] if one is None else list(one.tags[field]) for one in records]
    return {"notes": schema.build("notes", columns)}
