"""Reflections: insights over the facts of a case (GAAMA, arXiv 2603.27910)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from transforms.replies import BadReplyError, told
from transforms.reply_fields import fields, items, line_of, text
from transforms.tasks import Case, Piece, Result
from transforms.tasks._tables import answered, array, choice, closed, outcomes, rows, string

NAME = "reflections"
VERSION = 1
TABLES = ("reflections", "outcomes")
READS = ("extract/facts", "facts")
PLACEHOLDERS = {"text": True}
REPLY_TOKENS = 640

GROUP = 20
"""Facts that one request is about."""

_REFLECTIONS = 5
_TEXT = 300
_CONCEPTS = 10

SCHEMA = closed(
    {
        "reflections": array(
            closed({"text": string(_TEXT), "facts": array(choice(range(1, GROUP + 1)), 10)}), _REFLECTIONS
        )
    }
)

Reflections = tuple[tuple[str, tuple[int, ...]], ...]
"""(insight, numbers of its facts within the group, from 1)."""


def cases(source: pa.Table) -> list[Case]:
    """Return groups of `GROUP` facts of a case, numbered line by line from 1."""
    found: dict[str, list[tuple[int, str]]] = {}
    names = source["case_id"].cast(pa.string()).to_pylist()
    for row, (case_id, claim) in enumerate(zip(names, source["text"].to_pylist(), strict=True)):
        found.setdefault(case_id, []).append((row, line_of(claim)))
    return [Case(case_id, _groups(facts)) for case_id, facts in found.items()]


def _groups(facts: Sequence[tuple[int, str]]) -> list[Piece]:
    groups = [facts[start : start + GROUP] for start in range(0, len(facts), GROUP)]
    return [
        Piece(
            str(number),
            "\n".join(f"{place}. {claim}" for place, (_, claim) in enumerate(group, 1)),
            rows=tuple(row for row, _ in group),
        )
        for number, group in enumerate(groups)
    ]


def read(value: Mapping[str, Any]) -> tuple[Reflections, list[str]]:
    """Read reflections; one without text or without a fact that it rests on is dropped.

    Raises:
        BadReplyError: It has no reflections, or not as a list.
    """
    repairs: list[str] = []
    given = fields(value, ("reflections",), repairs)
    found: list[tuple[str, tuple[int, ...]]] = []
    odd = 0
    for item in items(given["reflections"], "reflections", _REFLECTIONS, repairs, "objects"):
        try:
            one = fields(item if isinstance(item, dict) else {}, ("text", "facts"), repairs)
            insight = text(one.get("text"), "text", _TEXT, repairs)
            cited = _numbers(one.get("facts"), repairs)
        except BadReplyError:
            odd += 1
            continue
        if insight and cited:
            found.append((insight, cited))
        else:
            odd += bool(insight)
    if odd:
        repairs.append(f"{odd} of 'reflections' had no text or no fact of the list")
    return _distinct(found), repairs


def _numbers(value: Any, repairs: list[str]) -> tuple[int, ...]:
    found: dict[int, None] = {}
    odd = 0
    single = not isinstance(value, list | dict) and value is not None
    for item in items([value] if single else value, "facts", 2 * GROUP, repairs, "numbers"):
        number = item
        if isinstance(item, str):
            digits = re.fullmatch(r"\D{0,12}(\d{1,3})\D{0,3}", item)
            number = int(digits[1]) if digits else None
        if isinstance(number, bool) or number not in range(1, GROUP + 1):
            odd += 1
        else:
            found[int(number)] = None
    if odd:
        repairs.append(f"{odd} of 'facts' {'is' if odd == 1 else 'are'} not in the list")
    return tuple(found)


def _distinct(found: Sequence[tuple[str, tuple[int, ...]]]) -> Reflections:
    kept: dict[str, tuple[str, tuple[int, ...]]] = {}
    for insight, cited in found:
        key = insight.casefold().rstrip(" .!")
        first, known = kept.get(key, (insight, ()))
        kept[key] = first, tuple(dict.fromkeys([*known, *cited]))
    return tuple(kept.values())


def is_empty(record: Reflections) -> bool:
    """Tell whether there is no reflection."""
    return not record


def merge(records: Sequence[Reflections]) -> Reflections:
    """Join the reflections of all parts."""
    return _distinct([one for record in records for one in record])


def vocabulary(record: Reflections) -> list[str]:
    """Return nothing: reflections have no terms to reuse."""
    return []


def tables(source: pa.Table, cases: Sequence[Case], results: Sequence[Sequence[Result]]) -> dict[str, pa.Table]:
    """Make the tables; reflections are called ``rGROUP/N``, N from 0.

    A cited number that the group does not reach is dropped, and the piece then counts as repaired.
    """
    facts = source.select(["fact_id", "interaction_ids", "concepts"]).to_pylist()
    made: list[tuple[Any, ...]] = []
    done: list[tuple[str, Piece, Result]] = []
    for case_id, piece, result in answered(cases, results):
        beyond = 0
        kept = []
        for insight, cited in result.record or ():
            resting = [facts[piece.rows[number - 1]] for number in cited if number <= len(piece.rows)]
            beyond += len(cited) - len(resting)
            if resting:
                kept.append((insight, resting))
        made += (
            (
                case_id,
                f"r{piece.key}/{number}",
                insight,
                [one["fact_id"] for one in resting],
                _union(resting, "interaction_ids"),
                _union(resting, "concepts")[:_CONCEPTS],
            )
            for number, (insight, resting) in enumerate(kept)
        )
        done.append((case_id, piece, _lowered(result, beyond) if beyond else result))
    return {"reflections": rows("reflections", made), "outcomes": outcomes(done)}


def _lowered(result: Result, beyond: int) -> Result:
    fault = f"{beyond} of 'facts' {'is' if beyond == 1 else 'are'} not in the list"
    return replace(result, status="repaired", error=told([*([result.error] if result.error else []), fault]))


def _union(facts: Sequence[Mapping[str, Any]], name: str) -> list[str]:
    return list(dict.fromkeys(item for one in facts for item in one[name]))
