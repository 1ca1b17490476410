"""Open triples of interactions (HippoRAG style)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from transforms.replies import BadReplyError
from transforms.reply_fields import fields, items, text
from transforms.tasks import Case, Result
from transforms.tasks._tables import INTERACTIONS, answered, array, closed, outcomes, pieces, rows, string

NAME = "triples"
VERSION = 1
TABLES = ("triples", "outcomes")
READS = INTERACTIONS
PLACEHOLDERS = {"text": True, "when": False, "speakers": False}
REPLY_TOKENS = 768

_PARTS = ("subject", "predicate", "object")
_TRIPLES = 16
_PHRASE = 100

SCHEMA = closed({"triples": array(closed({part: string(_PHRASE) for part in _PARTS}), _TRIPLES)})

Triples = tuple[tuple[str, str, str], ...]
"""(subject, predicate, object), each once."""


def cases(source: pa.Table) -> list[Case]:
    """Return every interaction as one piece."""
    return pieces(source)


def read(value: Mapping[str, Any]) -> tuple[Triples, list[str]]:
    """Read triples; lists of three strings count as such, what lacks a part is dropped.

    Raises:
        BadReplyError: It has no triples, or not as a list.
    """
    repairs: list[str] = []
    given = fields(value, ("triples",), repairs)
    found: list[tuple[str, str, str]] = []
    odd = 0
    for item in items(given["triples"], "triples", _TRIPLES, repairs, "objects"):
        if isinstance(item, list) and len(item) == 3:
            repairs.append("a triple was a list")
            item = dict(zip(_PARTS, item, strict=True))  # noqa: PLW2901
        try:
            one = fields(item if isinstance(item, dict) else {}, _PARTS, repairs)
            subject, predicate, end = (text(one.get(part), part, _PHRASE, repairs) for part in _PARTS)
        except BadReplyError:
            odd += 1
            continue
        if subject and predicate and end:
            found.append((subject, predicate, end))
        else:
            odd += 1
    if odd:
        repairs.append(f"{odd} of 'triples' {'lacks' if odd == 1 else 'lack'} a part")
    return _distinct(found), repairs


def _distinct(found: Sequence[tuple[str, str, str]]) -> Triples:
    kept: dict[tuple[str, ...], tuple[str, str, str]] = {}
    for triple in found:
        kept.setdefault(tuple(part.casefold() for part in triple), triple)
    return tuple(kept.values())


def is_empty(record: Triples) -> bool:
    """Tell whether there is no triple."""
    return not record


def merge(records: Sequence[Triples]) -> Triples:
    """Join the triples of all parts."""
    return _distinct([triple for record in records for triple in record])


def vocabulary(record: Triples) -> list[str]:
    """Return nothing: open triples share no vocabulary."""
    return []


def tables(source: pa.Table, cases: Sequence[Case], results: Sequence[Sequence[Result]]) -> dict[str, pa.Table]:
    """Make the tables of triples and outcomes."""
    done = list(answered(cases, results))
    made = [(case_id, piece.key, *triple) for case_id, piece, result in done for triple in result.record or ()]
    return {"triples": rows("triples", made), "outcomes": outcomes(done)}
