"""The reader: answers a question from what was retrieved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from transforms.replies import BadReplyError
from transforms.reply_fields import fields, text
from transforms.tasks._tables import closed, string
from transforms.tasks.studies._shared import flag, no_vocabulary

NAME = "answer"
VERSION = 1
PLACEHOLDERS = {"text": True, "question": True, "when": False}
REPLY_TOKENS = 160

_ANSWER = 400

SCHEMA = closed({"found": {"type": "boolean"}, "answer": string(_ANSWER)})

vocabulary = no_vocabulary


@dataclass(frozen=True, slots=True)
class Answer:
    """What a reader replied.

    Attributes:
        text: The answer; may be empty where it was not found.
        found: False where the reader says that the memory does not tell.
    """

    text: str
    found: bool


def read(value: Mapping[str, Any]) -> tuple[Answer, list[str]]:
    """Read an answer; numbers and truth values become words.

    Raises:
        BadReplyError: It has neither field, or one cannot be mended, or it says that it has an answer and gives none.
    """
    repairs: list[str] = []
    given = fields(value, ("found", "answer"), repairs)
    answer = given.get("answer")
    if isinstance(answer, bool):
        answer = "yes" if answer else "no"
    line = text(answer, "answer", _ANSWER, repairs)
    found = flag(given["found"], "found", repairs) if "found" in given else bool(line)
    if found and not line:
        raise BadReplyError("'answer' is empty though 'found' is true")
    return Answer(line, found), repairs


def is_empty(record: Answer) -> bool:
    """Tell whether there is no answer."""
    return not record.found


def merge(records: Sequence[Answer]) -> Answer:
    """Return the first answer that was found, of the parts of a text in order."""
    return next((one for one in records if one.found), records[0])
