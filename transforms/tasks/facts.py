"""Facts and concepts of interactions (GAAMA, arXiv 2603.27910)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from transforms.replies import BadReplyError
from transforms.reply_fields import fields, items, text
from transforms.tasks import Case, Result
from transforms.tasks._labels import concepts, in_turn
from transforms.tasks._tables import INTERACTIONS, answered, array, closed, outcomes, pieces, rows, string

NAME = "facts"
VERSION = 1
TABLES = ("facts", "concepts", "outcomes")
READS = INTERACTIONS
PLACEHOLDERS = {"text": True, "vocabulary": False, "when": False, "speakers": False}
REPLY_TOKENS = 1024

_FACTS = 12
_CONCEPTS = 3
_FACT = 300
_LABEL = 48

SCHEMA = closed(
    {
        "facts": array(closed({"text": string(_FACT), "concepts": array(string(_LABEL), _CONCEPTS)}), _FACTS),
        "concepts": array(string(_LABEL), _CONCEPTS),
    }
)


@dataclass(frozen=True, slots=True)
class Facts:
    """What one interaction tells.

    Attributes:
        facts: (claim, its concepts), each claim once.
        concepts: Concepts of the interaction as a whole.
    """

    facts: tuple[tuple[str, tuple[str, ...]], ...]
    concepts: tuple[str, ...]


def cases(source: pa.Table) -> list[Case]:
    """Return every interaction as one piece."""
    return pieces(source)


def read(value: Mapping[str, Any]) -> tuple[Facts, list[str]]:
    """Read facts; one without text is dropped, as is one that is there already.

    Raises:
        BadReplyError: It has none of the fields, or a field has a type that cannot be mended.
    """
    repairs: list[str] = []
    given = fields(value, ("facts", "concepts"), repairs)
    found: list[tuple[str, tuple[str, ...]]] = []
    odd = 0
    for item in items(given.get("facts"), "facts", _FACTS, repairs, "objects"):
        if isinstance(item, str):
            repairs.append("a fact was a string")
            item = {"text": item, "concepts": []}  # noqa: PLW2901
        try:
            one = fields(item if isinstance(item, dict) else {}, ("text", "concepts"), repairs)
            claim = text(one.get("text"), "text", _FACT, repairs)
            labels = tuple(concepts(one.get("concepts"), "concepts", _CONCEPTS, repairs))
        except BadReplyError:
            odd += 1
            continue
        if claim:
            found.append((claim, labels))
    if odd:
        repairs.append(f"{odd} of 'facts' had no usable text")
    labels = tuple(concepts(given.get("concepts"), "concepts", _CONCEPTS, repairs))
    return Facts(_distinct(found), labels), repairs


def _distinct(found: Sequence[tuple[str, tuple[str, ...]]]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    kept: dict[str, tuple[str, tuple[str, ...]]] = {}
    for claim, labels in found:
        key = claim.casefold().rstrip(" .!")
        first, known = kept.get(key, (claim, ()))
        kept[key] = first, tuple(in_turn([known, labels])[:_CONCEPTS])
    return tuple(kept.values())


def is_empty(record: Facts) -> bool:
    """Tell whether there is neither fact nor concept."""
    return not record.facts and not record.concepts


def merge(records: Sequence[Facts]) -> Facts:
    """Join the facts of all parts; of the concepts the first of all parts first, up to three."""
    facts = _distinct([fact for one in records for fact in one.facts])
    return Facts(facts, tuple(in_turn(one.concepts for one in records)[:_CONCEPTS]))


def vocabulary(record: Facts) -> list[str]:
    """Return the concepts of the interaction and of its facts."""
    return list(dict.fromkeys([*record.concepts, *(label for _, labels in record.facts for label in labels)]))


def tables(source: pa.Table, cases: Sequence[Case], results: Sequence[Sequence[Result]]) -> dict[str, pa.Table]:
    """Make the tables; facts are called ``INTERACTION/fN``, N from 0."""
    done = list(answered(cases, results))
    facts = [
        (case_id, f"{piece.key}/f{number}", claim, [piece.key], list(labels))
        for case_id, piece, result in done
        if result.record is not None
        for number, (claim, labels) in enumerate(result.record.facts)
    ]
    told = [
        (case_id, piece.key, [] if result.record is None else list(result.record.concepts))
        for case_id, piece, result in done
    ]
    return {"facts": rows("facts", facts), "concepts": rows("concepts", told), "outcomes": outcomes(done)}
