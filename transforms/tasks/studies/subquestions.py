"""GRAFT's sub-questions: what to look for where a pack cannot answer a question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from transforms.reply_fields import fields, strings
from transforms.tasks._tables import array, closed, string
from transforms.tasks.studies._shared import no_vocabulary

NAME = "subquestions"
VERSION = 1
PLACEHOLDERS = {"text": True, "question": True, "when": False}
REPLY_TOKENS = 256

_MOST = 4
_LONGEST = 200

SCHEMA = closed({"questions": array(string(_LONGEST), _MOST)})

vocabulary = no_vocabulary

Questions = tuple[str, ...]


def read(value: Mapping[str, Any]) -> tuple[Questions, list[str]]:
    """Read sub-questions, each once.

    Raises:
        BadReplyError: It has no list of them.
    """
    repairs: list[str] = []
    given = fields(value, ("questions",), repairs)
    return tuple(strings(given["questions"], "questions", _MOST, _LONGEST, repairs)), repairs


def is_empty(record: Questions) -> bool:
    """Tell whether there is none."""
    return not record


def merge(records: Sequence[Questions]) -> Questions:
    """Join those of all parts, each once, up to the limit."""
    return tuple(dict.fromkeys(one for record in records for one in record))[:_MOST]
