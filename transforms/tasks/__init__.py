"""Tasks: what a model is asked about conversations, and what its replies become.

Each module of this package whose name has no leading underscore is a task and has the names of `Task`. A task knows
its prompt's placeholders, the JSON schema of a reply, how to read one, and the tables that the results make. It knows
nothing of engines, order, retries or storage.

What studies ask about questions is asked in the same way: the modules of `transforms.tasks.studies`, which make no
tables of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from schemas.registry import Registry


@dataclass(frozen=True, slots=True)
class Piece:
    """One thing to ask about.

    Attributes:
        key: What identifies it within its case: an interaction id, or the number of a group of facts.
        text: The text that the prompt is about (placeholder ``text``); it may be split.
        values: Values of the prompt's other placeholders, ``vocabulary`` aside.
        rows: Rows of the source table that the piece covers.
    """

    key: str
    text: str
    values: Mapping[str, str] = field(default_factory=dict)
    rows: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Case:
    """The pieces of one case, in time order."""

    case_id: str
    pieces: Sequence[Piece]


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a piece.

    Attributes:
        record: What the task's `read` made of the reply (merged, where the text was split); None when it failed.
        status: One of schemas.tables.NOTE_STATUSES.
        error: Why it is repaired, empty or failed; None when it is ok.
        prompt_tokens: Tokens of the first prompt (of all parts, where the text was split).
        completion_tokens: Tokens of the reply that counts (likewise).
    """

    record: Any
    status: str
    error: str | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0


class Asked(Protocol):
    """What it takes to ask something and to read the replies: the top level of a study's module, and of a task's.

    Attributes:
        NAME: Name of the task or study.
        VERSION: Goes up by one whenever the same reply would make other rows.
        PLACEHOLDERS: Placeholder -> whether a prompt must have it.
        REPLY_TOKENS: Tokens of a reply at most, unless the configuration says otherwise.
        SCHEMA: JSON schema of a reply; every list and string in it is bounded.
    """

    NAME: str
    VERSION: int
    PLACEHOLDERS: Mapping[str, bool]
    REPLY_TOKENS: int
    SCHEMA: Mapping[str, Any]

    def read(self, value: Mapping[str, Any]) -> tuple[Any, list[str]]:
        """Read the JSON object of a reply.

        Returns:
            The record, and what had to be mended (short phrases; none when the reply was as wanted).

        Raises:
            transforms.replies.BadReplyError: The object cannot be used; the message names the fault for the model.
        """
        ...

    def is_empty(self, record: Any) -> bool:
        """Tell whether a record holds nothing."""
        ...

    def merge(self, records: Sequence[Any]) -> Any:
        """Join the records of the parts of a text, in order."""
        ...

    def vocabulary(self, record: Any) -> list[str]:
        """Return the terms of a record that later pieces of the case shall reuse."""
        ...


class Task(Asked, Protocol):
    """What a task's module has at its top level.

    Attributes:
        TABLES: Tables that it makes.
        READS: (unit, table) that it reads: ``("ingest", "interactions")``, or the facts of another task.
    """

    TABLES: tuple[str, ...]
    READS: tuple[str, str]

    def cases(self, source: pa.Table) -> list[Case]:
        """Return what to ask, case by case, from the rows that the task reads."""
        ...

    def tables(
        self, source: pa.Table, cases: Sequence[Case], results: Sequence[Sequence[Result]]
    ) -> dict[str, pa.Table]:
        """Make the tables from the results of all cases, in the order of `cases`; a failed piece keeps its row."""
        ...


TASKS: Registry[Task] = Registry(__name__, "task", "Tasks", "extract.tasks")
names, load = TASKS.names, TASKS.load


def asked(name: str) -> Asked:
    """Return a task or a study by name.

    Raises:
        UsageError: There is none.
    """
    from transforms.tasks import studies

    if name in studies.names():
        return studies.load(name)
    return load(name)
