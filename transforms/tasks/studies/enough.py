"""The judge of GRAFT's online mode: says whether a pack holds what it takes to answer a question."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transforms.reply_fields import fields
from transforms.tasks._tables import closed
from transforms.tasks.studies._shared import first, flag, no_vocabulary

NAME = "enough"
VERSION = 1
PLACEHOLDERS = {"text": True, "question": True, "when": False}
REPLY_TOKENS = 32

SCHEMA = closed({"enough": {"type": "boolean"}})

vocabulary = no_vocabulary
merge = first


def read(value: Mapping[str, Any]) -> tuple[bool, list[str]]:
    """Read a verdict.

    Raises:
        BadReplyError: It has none.
    """
    repairs: list[str] = []
    return flag(fields(value, ("enough",), repairs)["enough"], "enough", repairs), repairs


def is_empty(record: bool) -> bool:
    """Return False: a verdict of either kind says something."""
    return False
