"""GRAFT's repairs: facts that answer a question, written from episodes that were read again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from transforms.replies import BadReplyError
from transforms.reply_fields import fields, items, text
from transforms.tasks._labels import concepts
from transforms.tasks._tables import array, choice, closed, string
from transforms.tasks.studies._shared import no_vocabulary

NAME = "repairs"
VERSION = 1
PLACEHOLDERS = {"text": True, "question": True, "known": False}
REPLY_TOKENS = 512

EPISODES = 12
"""Episodes that one request shows, numbered from 1."""

_FACTS = 6
_CONCEPTS = 3
_FACT = 300
_LABEL = 48

SCHEMA = closed(
    {
        "facts": array(
            closed(
                {
                    "text": string(_FACT),
                    "concepts": array(string(_LABEL), _CONCEPTS),
                    "episodes": array(choice(range(1, EPISODES + 1)), 4),
                }
            ),
            _FACTS,
        )
    }
)

vocabulary = no_vocabulary


@dataclass(frozen=True, slots=True)
class Repair:
    """A fact to add.

    Attributes:
        text: The claim.
        concepts: Its concepts.
        episodes: Numbers of the episodes that it rests on, from 1.
    """

    text: str
    concepts: tuple[str, ...]
    episodes: tuple[int, ...]


Repairs = tuple[Repair, ...]


def read(value: Mapping[str, Any]) -> tuple[Repairs, list[str]]:
    """Read facts; one without text or without an episode that it rests on is dropped.

    Raises:
        BadReplyError: It has no list of them.
    """
    repairs: list[str] = []
    given = fields(value, ("facts",), repairs)
    found: dict[str, Repair] = {}
    odd = 0
    for item in items(given["facts"], "facts", _FACTS, repairs, "objects"):
        try:
            one = fields(item if isinstance(item, dict) else {}, ("text", "concepts", "episodes"), repairs)
            claim = text(one.get("text"), "text", _FACT, repairs)
            labels = tuple(concepts(one.get("concepts"), "concepts", _CONCEPTS, repairs))
        except BadReplyError:
            odd += 1
            continue
        cited = one.get("episodes")
        cited = cited if isinstance(cited, list) else [cited]
        shown = tuple(dict.fromkeys(n for n in cited if type(n) is int and 1 <= n <= EPISODES))
        if claim and shown:
            found.setdefault(claim.casefold(), Repair(claim, labels, shown))
        else:
            odd += 1
    if odd:
        repairs.append(f"{odd} of 'facts' had no usable text or episode")
    return tuple(found.values()), repairs


def is_empty(record: Repairs) -> bool:
    """Tell whether there is none."""
    return not record


def merge(records: Sequence[Repairs]) -> Repairs:
    """Join those of all parts, each once, up to the limit."""
    found = {one.text.casefold(): one for record in reversed(records) for one in reversed(record)}
    return tuple(reversed(found.values()))[:_FACTS]
