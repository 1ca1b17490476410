"""Typed nodes and edges of interactions (Selective Forgetting, arXiv 2608.28978)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from transforms.replies import BadReplyError
from transforms.reply_fields import fields, items, line_of, strings, text
from transforms.tags import normalise
from transforms.tasks import Case, Result
from transforms.tasks._labels import in_turn
from transforms.tasks._tables import INTERACTIONS, answered, array, choice, closed, outcomes, pieces, rows, string

NAME = "entities"
VERSION = 1
TABLES = ("entities", "relations", "outcomes")
READS = INTERACTIONS
PLACEHOLDERS = {"text": True, "vocabulary": False, "when": False, "speakers": False}
REPLY_TOKENS = 1024

KINDS = ("entity", "fact", "event", "preference", "task")
ROLES = ("user", "assistant")

_NODES = 12
_EDGES = 12
_TITLE = 120
_KIND = 48
_ATTRIBUTES = 4
_ATTRIBUTE = 120

SCHEMA = closed(
    {
        "nodes": array(
            closed(
                {
                    "title": string(_TITLE),
                    "kind": choice(KINDS),
                    "role": choice(ROLES),
                    "attributes": array(string(_ATTRIBUTE), _ATTRIBUTES),
                }
            ),
            _NODES,
        ),
        "edges": array(
            closed(
                {
                    "source": string(_TITLE),
                    "kind": string(_KIND),
                    "target": string(_TITLE),
                    "attributes": array(string(_ATTRIBUTE), _ATTRIBUTES),
                }
            ),
            _EDGES,
        ),
    }
)


@dataclass(frozen=True, slots=True)
class Node:
    """A typed node; no two of a record have the same title in folded case."""

    title: str
    kind: str
    attributes: tuple[str, ...]
    role: str


@dataclass(frozen=True, slots=True)
class Edge:
    """A typed edge; its ends are titles of nodes of the same record."""

    source: str
    target: str
    kind: str
    attributes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Entities:
    """Nodes and edges of one interaction."""

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]


def cases(source: pa.Table) -> list[Case]:
    """Return every interaction as one piece."""
    return pieces(source)


def read(value: Mapping[str, Any]) -> tuple[Entities, list[str]]:
    """Read nodes and edges; an edge whose ends are not both among the nodes is dropped and told.

    Raises:
        BadReplyError: It has none of the fields, or a field has a type that cannot be mended.
    """
    repairs: list[str] = []
    given = fields(value, ("nodes", "edges"), repairs)
    nodes = _read_each(given.get("nodes"), "nodes", _NODES, _node, repairs)
    titles = {node.title.casefold(): node.title for node in reversed(nodes)}
    edges = []
    loose = 0
    for edge in _read_each(given.get("edges"), "edges", _EDGES, _edge, repairs):
        ends = titles.get(edge.source.casefold()), titles.get(edge.target.casefold())
        if ends[0] is None or ends[1] is None:
            loose += 1
        else:
            edges.append(replace(edge, source=ends[0], target=ends[1]))
    if loose:
        repairs.append(f"{loose} of 'edges' {'has' if loose == 1 else 'have'} an end that is no node")
    return _joined(nodes, edges), repairs


def _read_each(value: Any, name: str, limit: int, reader: Any, repairs: list[str]) -> list[Any]:
    found = []
    odd = 0
    for item in items(value, name, limit, repairs, "objects"):
        try:
            found.append(reader(item if isinstance(item, dict) else {}, repairs))
        except BadReplyError:
            odd += 1
    if odd:
        repairs.append(f"{odd} of '{name}' {'was' if odd == 1 else 'were'} not as asked")
    return found


def _node(item: Mapping[str, Any], repairs: list[str]) -> Node:
    given = fields(item, ("title", "kind", "role", "attributes"), repairs)
    title = _needed(given, "title", _TITLE, repairs)
    kind, role = (_word(given.get(name)) for name in ("kind", "role"))
    if kind not in KINDS:
        repairs.append(f"unknown kind of node '{kind}'")
        kind = "entity"
    if role not in ROLES:
        repairs.append("a node's role was neither user nor assistant")
        role = "user"
    return Node(title, kind, _attributes(given.get("attributes"), repairs), role)


def _word(value: Any) -> str:
    return (normalise(value[:_KIND]) or "").partition("/")[0] if isinstance(value, str) else ""


def _edge(item: Mapping[str, Any], repairs: list[str]) -> Edge:
    given = fields(item, ("source", "kind", "target", "attributes"), repairs)
    kind = normalise(_needed(given, "kind", 2 * _KIND, repairs).replace("/", " "))
    if kind is None:
        raise BadReplyError("the kind of an edge is a sentence")
    source, target = (_needed(given, end, _TITLE, repairs) for end in ("source", "target"))
    return Edge(source, target, kind, _attributes(given.get("attributes"), repairs))


def _needed(given: Mapping[str, Any], name: str, longest: int, repairs: list[str]) -> str:
    found = text(given.get(name), name, longest, repairs)
    if not found:
        raise BadReplyError(f"'{name}' is empty")
    return found


def _attributes(value: Any, repairs: list[str]) -> tuple[str, ...]:
    if isinstance(value, dict):
        if value:
            repairs.append("'attributes' was no list")
        value = [f"{line_of(str(key))}: {item}" for key, item in value.items() if isinstance(item, str | int | float)]
    return tuple(strings(value, "attributes", _ATTRIBUTES, _ATTRIBUTE, repairs))


def _joined(nodes: Sequence[Node], edges: Sequence[Edge]) -> Entities:
    """Make one of nodes with the same title and of edges with the same ends and kind; the first gives the rest."""
    kept: dict[str, Node] = {}
    for node in nodes:
        first = kept.setdefault(node.title.casefold(), node)
        both = tuple(in_turn([first.attributes, node.attributes])[:_ATTRIBUTES])
        kept[node.title.casefold()] = replace(first, attributes=both)
    lines: dict[tuple[str, str, str], Edge] = {}
    for edge in edges:
        ends = kept[edge.source.casefold()].title, kept[edge.target.casefold()].title
        lines.setdefault((*ends, edge.kind), replace(edge, source=ends[0], target=ends[1]))
    return Entities(tuple(kept.values()), tuple(lines.values()))


def is_empty(record: Entities) -> bool:
    """Tell whether there is no node."""
    return not record.nodes


def merge(records: Sequence[Entities]) -> Entities:
    """Join nodes and edges of all parts."""
    return _joined([node for one in records for node in one.nodes], [edge for one in records for edge in one.edges])


def vocabulary(record: Entities) -> list[str]:
    """Return the titles of the nodes."""
    return [node.title for node in record.nodes]


def tables(source: pa.Table, cases: Sequence[Case], results: Sequence[Sequence[Result]]) -> dict[str, pa.Table]:
    """Make the tables of nodes, edges and outcomes."""
    done = list(answered(cases, results))
    given = [(case_id, piece.key, result.record) for case_id, piece, result in done if result.record is not None]
    nodes = [
        (case_id, key, one.title, one.kind, list(one.attributes), one.role)
        for case_id, key, record in given
        for one in record.nodes
    ]
    edges = [
        (case_id, key, one.source, one.target, one.kind, list(one.attributes))
        for case_id, key, record in given
        for one in record.edges
    ]
    return {"entities": rows("entities", nodes), "relations": rows("relations", edges), "outcomes": outcomes(done)}
