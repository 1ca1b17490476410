"""What format readers yield: sessions, questions and rejects, as plain data classes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, tzinfo
from typing import BinaryIO, Literal, Protocol

Unit = Literal["exchange", "message"]

REJECT_REASONS = (
    "not_json",
    "not_yaml",
    "not_an_object",
    "missing_field",
    "wrong_type",
    "bad_encoding",
    "truncated",
    "empty_session",
    "no_messages",
    "duplicate_question",
    "evidence_malformed",
    "evidence_unresolved",
    "unreadable",
)
"""Why a record, or a part of one, was not taken."""


@dataclass(slots=True)
class Message:
    """One message of a session.

    Attributes:
        role: user, assistant, tool, system, developer, function, or whatever the source says.
        content: Text, already cleaned.
        name: Name of the speaker, where the source tells one.
        at: Its own time (aware, UTC), where the source tells one.
        id: Id within the case; None lets the interaction builder make ``SESSION:INDEX``.
        gold: True where the source marks it as evidence for the case's question.
    """

    role: str
    content: str
    name: str | None = None
    at: datetime | None = None
    id: str | None = None
    gold: bool = False


@dataclass(slots=True)
class Session:
    """One conversation. `offset` is its place in the source (line, byte or index: see docs/formats.md)."""

    case_id: str
    session_id: str
    messages: list[Message]
    started_at: datetime | None = None
    started_at_text: str | None = None
    offset: int = 0


@dataclass(slots=True)
class Question:
    """One question, with evidence as the source names it; ids are resolved once all sessions are known."""

    case_id: str
    question_id: str
    question: str
    question_type: str = ""
    asked_at: datetime | None = None
    answer: str | None = None
    gold_session_ids: list[str] = field(default_factory=list)
    gold_message_ids: list[str] = field(default_factory=list)
    expected_contains: list[str] = field(default_factory=list)
    answerable: bool = True
    offset: int = 0


@dataclass(slots=True)
class Reject:
    """A record that could not be taken; `reason` is one of REJECT_REASONS."""

    reason: str
    detail: str
    sample: str = ""
    offset: int = 0


Record = Session | Question | Reject


@dataclass(slots=True)
class ReadContext:
    """What a reader is told, and where it counts its repairs. `names` by id are those of files beside the source."""

    source: str
    timezone: tzinfo
    repairs: Counter[str] = field(default_factory=Counter)
    names: dict[str, str] = field(default_factory=dict)


class Reader(Protocol):
    """A format: one module in `transforms.formats` with these names at its top level.

    More may be there. ``PLACE``, a regular expression without anchors, matches the end of the paths of files whose
    names say nothing by themselves, with the folders that the reader goes by: sources are then called by at least that
    much. ``PARQUET = True`` makes the reader see Parquet files too: `sniff` is then shown ``PAR1`` and the paths of
    the columns, one a line, and `read` gets a seekable stream. ``BESIDE``, with ``PLACE``, lists the names of files in
    the folder above that of a source, from which ``names(stream)`` reads names by id for `ReadContext.names`.
    """

    NAME: str
    VERSION: int
    """Raised whenever the same file gives other records."""
    UNIT: Unit

    def sniff(self, head: bytes, name: str) -> bool:
        """Tell from the first 64 KiB (decompressed) and the file's name whether a file is of this format."""
        ...

    def read(self, stream: BinaryIO, context: ReadContext) -> Iterator[Record]:
        """Yield the records of a decompressed stream; memory is bounded by one record."""
        ...
