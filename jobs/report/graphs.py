"""The graphs of a generation: nodes and edges by kind, how degrees are spread, hubs.

A node's degree is the number of its edges, those that leave it and those that enter it.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.store import Generation
from schemas.tables import empty

HUBS = 10
"""Hubs shown of each graph kind."""

_NODES = ["case_id", "node_id", "kind", "key", "text"]
_EDGES = ["case_id", "source", "target", "kind"]

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class NodeKind:
    """Degrees of the nodes of one kind."""

    kind: str
    nodes: int
    mean: float
    median: int
    high: int
    most: int
    isolated: int


@dataclass(frozen=True)
class Hub:
    """A node with many edges; `name` is its text, or else its key."""

    case: str
    kind: str
    name: str
    degree: int


@dataclass(frozen=True)
class GraphFigures:
    """Graphs of one kind.

    Attributes:
        graph: The kind.
        cases: Cases with a graph.
        nodes: Node kinds, in order of name, and all of them as the last.
        edges: (edge kind up to a colon, edges, share of all), most first.
        spread: (degrees as text, nodes, share of all, file nodes, share of those).
        hubs: The nodes with most edges.
    """

    graph: str
    cases: int
    nodes: tuple[NodeKind, ...]
    edges: tuple[tuple[str, int, float], ...]
    spread: tuple[tuple[str, int, float, int, float], ...]
    hubs: tuple[Hub, ...]


def graphs(generation: Generation) -> Iterator[GraphFigures]:
    """Measure every graph kind of a generation. One shard is in memory at a time."""
    for unit in generation.tables().get("nodes", []):
        found = _measured(generation, unit)
        if found is not None:
            yield found


def _measured(generation: Generation, unit: str) -> GraphFigures | None:
    manifest = generation.manifest(unit)
    counts: dict[str, Ints] = {}
    edges: Counter[str] = Counter()
    hubs: list[tuple[int, str, str, str]] = []
    cases = 0
    for part in manifest.parts:
        nodes = generation.store.read_part("nodes", part.shard, part.key, _NODES)
        linked = (
            generation.store.read_part("edges", part.shard, part.key, _EDGES)
            if "edges" in part.tables
            else empty("edges").select(_EDGES)
        )
        degree = _degrees(nodes, linked)
        kinds = _plain(nodes, "kind").dictionary_encode()
        codes = np.asarray(kinds.indices)
        for code, kind in enumerate(kinds.dictionary.to_pylist()):
            counts[kind] = _added(counts.get(kind, np.zeros(0, np.int64)), np.bincount(degree[codes == code]))
        for found in pc.value_counts(_plain(linked, "kind")).to_pylist():
            edges[found["values"].partition(":")[0]] += found["counts"]
        cases += len(pc.unique(_plain(nodes, "case_id")))
        hubs = heapq.nsmallest(HUBS, [*hubs, *_hubs(nodes, degree)])
    if not counts:
        return None
    every = np.zeros(0, np.int64)
    for own in counts.values():
        every = _added(every, own)
    total = max(sum(edges.values()), 1)
    return GraphFigures(
        unit.partition("/")[2] or unit,
        cases,
        (*(_kind(kind, counts[kind]) for kind in sorted(counts)), _kind("all", every)),
        tuple((kind, n, n / total) for kind, n in sorted(edges.items(), key=lambda item: (-item[1], item[0]))),
        tuple(_spread(every, counts.get("file", np.zeros(1, np.int64)))),
        tuple(Hub(case, kind, name, -negated) for negated, case, kind, name in hubs if negated),
    )


def _degrees(nodes: pa.Table, edges: pa.Table) -> Ints:
    """Return the degree of each row of `nodes`, whatever their order."""
    names = pc.unique(_plain(nodes, "case_id"))
    case = np.asarray(pc.index_in(_plain(nodes, "case_id"), value_set=names), dtype=np.int64)
    number = np.asarray(nodes.column("node_id"), dtype=np.int64)
    sizes = np.zeros(len(names) + 1, np.int64)
    np.maximum.at(sizes[1:], case, number + 1)
    starts = np.cumsum(sizes)
    owner = np.asarray(pc.index_in(_plain(edges, "case_id"), value_set=names), dtype=np.int64)
    ends = [starts[owner] + np.asarray(edges.column(end), dtype=np.int64) for end in ("source", "target")]
    counted: Ints = np.bincount(np.concatenate(ends), minlength=int(starts[-1]))[starts[case] + number]
    return counted


def _hubs(nodes: pa.Table, degree: Ints) -> Iterator[tuple[int, str, str, str]]:
    """Yield the nodes of a shard with most edges, ready to be sorted; of equal ones the first in the table."""
    chosen = np.argsort(-degree, kind="stable")[:HUBS]
    rows = nodes.take(pa.array(chosen)).to_pylist()
    for row, own in zip(rows, degree[chosen].tolist(), strict=True):
        yield -own, row["case_id"], row["kind"], row["text"] or row["key"]


def _kind(kind: str, counts: Ints) -> NodeKind:
    nodes = int(counts.sum())
    below = np.cumsum(counts)

    def quantile(share: float) -> int:
        return int(np.searchsorted(below, max(share * nodes, 1)))

    edges = int((counts * np.arange(len(counts))).sum())
    isolated = int(counts[0]) if len(counts) else 0
    return NodeKind(kind, nodes, edges / max(nodes, 1), quantile(0.5), quantile(0.95), len(counts) - 1, isolated)


def _spread(every: Ints, files: Ints) -> Iterator[tuple[str, int, float, int, float]]:
    """Yield how many nodes have a degree of 0, 1, 2, 3-4, 5-8, and so on."""
    low, high = 0, 0
    totals = max(int(every.sum()), 1), max(int(files.sum()), 1)
    while low < len(every):
        own, file = int(every[low : high + 1].sum()), int(files[low : high + 1].sum())
        yield f"{low:,}" if low == high else f"{low:,}–{high:,}", own, own / totals[0], file, file / totals[1]
        low, high = high + 1, max(1, 2 * high)


def _added(a: Ints, b: Ints) -> Ints:
    longer, shorter = (a, b) if len(a) >= len(b) else (b, a)
    made = longer.copy()
    made[: len(shorter)] += shorter
    return made


def _plain(table: pa.Table, name: str) -> pa.Array:
    return table.column(name).cast(pa.string()).combine_chunks()
