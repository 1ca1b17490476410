"""Sessions cut into interactions, the units that are retrieved. Texts are joined, never altered, never dropped."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc

from transforms.records import Message, Session, Unit
from transforms.timestamps import micros

ANSWERING_ROLES = frozenset(("assistant", "tool", "system", "developer", "function"))
"""Roles whose text counts as the assistant's side in the message unit."""


@dataclass(slots=True)
class Rows:
    """Interactions as flat columns. Ragged columns come as values and a count a row.

    Attributes:
        user_text: Text of the user's side; a message with a name begins with ``NAME: ``.
        assistant_text: Text of everybody else, likewise.
        started_at: Microseconds since 1970 (UTC), or None.
        speakers: Names, or else roles, in order of first appearance.
        speaker_counts: Speakers of each row.
        message_ids: Ids of the joined messages, in order.
        gold: For each of those messages, whether the source marks it as evidence.
        message_counts: Messages of each row.
    """

    user_text: list[str] = field(default_factory=list)
    assistant_text: list[str] = field(default_factory=list)
    started_at: list[int | None] = field(default_factory=list)
    speakers: list[str] = field(default_factory=list)
    speaker_counts: list[int] = field(default_factory=list)
    message_ids: list[str] = field(default_factory=list)
    gold: list[bool] = field(default_factory=list)
    message_counts: list[int] = field(default_factory=list)


def session_time(session: Session) -> int | None:
    """Return when a session began: its own time, else that of its first message that tells one (microseconds)."""
    when = session.started_at or next((one.at for one in session.messages if one.at is not None), None)
    return micros(when)


def add_session(rows: Rows, session: Session, unit: Unit) -> int:
    """Append a session's interactions.

    ``exchange``: every user message opens one; messages of all other roles join the open one; those before the first
    user message make one with an empty user text. ``message``: every message is one; its text is the user's unless
    its role is among `ANSWERING_ROLES`. Texts that are joined are joined by line feeds,
    empty ones leave no line.

    Args:
        rows: Columns to append to.
        session: A session with at least one message. Messages without an id get ``SESSION:INDEX``.
        unit: Retrieval unit.

    Returns:
        Number of interactions added.
    """
    messages = session.messages
    began = session_time(session)
    key = session.session_id
    rows.message_ids += [
        f"{key}:{index}" if one.id is None else one.id for index, one in enumerate(messages)
    ]  # fmt: skip
    rows.gold += [one.gold for one in messages]
    if unit == "message":
        for one in messages:
            _message_row(rows, one, began)
        return len(messages)
    starts = [index for index, one in enumerate(messages) if one.role == "user"]
    if not starts or starts[0]:
        starts.insert(0, 0)
    starts.append(len(messages))
    for start, end in pairwise(starts):
        first = messages[start]
        size = end - start
        if size == 2 and first.role == "user" and first.name is None:
            second = messages[start + 1]
            if second.name is None:
                rows.user_text.append(first.content)
                rows.assistant_text.append(second.content)
                rows.started_at.append(began if first.at is None else micros(first.at))
                rows.speakers += ("user", second.role)
                rows.speaker_counts.append(2)
                rows.message_counts.append(2)
                continue
        _exchange_row(rows, messages[start:end], began)
    return len(starts) - 1


def _exchange_row(rows: Rows, messages: list[Message], began: int | None) -> None:
    own = messages[0].role == "user"
    rows.user_text.append(_shown(messages[0]) if own else "")
    rows.assistant_text.append("\n".join(filter(None, map(_shown, messages[1:] if own else messages))))
    at = messages[0].at
    rows.started_at.append(began if at is None else micros(at))
    speakers = dict.fromkeys(one.name or one.role for one in messages)
    rows.speakers += speakers
    rows.speaker_counts.append(len(speakers))
    rows.message_counts.append(len(messages))


def _message_row(rows: Rows, one: Message, began: int | None) -> None:
    answering = one.role in ANSWERING_ROLES
    text = _shown(one)
    rows.user_text.append("" if answering else text)
    rows.assistant_text.append(text if answering else "")
    rows.started_at.append(began if one.at is None else micros(one.at))
    rows.speakers.append(one.name or one.role)
    rows.speaker_counts.append(1)
    rows.message_counts.append(1)


def _shown(one: Message) -> str:
    return f"{one.name}: {one.content}" if one.name else one.content


def full_text(table: pa.Table) -> pa.ChunkedArray:
    """Return the text of each interaction: user text and assistant text, joined by a line feed.

    Args:
        table: Rows with the columns ``user_text`` and ``assistant_text``.

    Returns:
        (rows,) large_string; where one side is empty, the other side alone.
    """
    user, assistant = table["user_text"], table["assistant_text"]
    kind = pa.large_string()
    both = pc.and_(pc.not_equal(user, ""), pc.not_equal(assistant, ""))
    between = pc.if_else(both, pa.scalar("\n", kind), pa.scalar("", kind))
    joined = pc.binary_join_element_wise(user, between, assistant, pa.scalar("", kind))
    return joined if isinstance(joined, pa.ChunkedArray) else pa.chunked_array([joined], kind)
