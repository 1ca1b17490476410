"""The size of a graph kind over the cases of a generation, and two of them side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.compare import Figure, figure, ratio

NODE_COLUMNS = ["case_id", "node_id", "kind"]
EDGE_COLUMNS = ["case_id", "source", "target", "kind"]


@dataclass(frozen=True)
class GraphSize:
    """What graphs of one kind have.

    Attributes:
        cases: Cases with a graph.
        nodes: Node kind -> nodes.
        edges: Edge kind -> edges.
        max_degree: Most edges at one node, those that leave and those that enter it.
        isolated: File nodes without an edge.
    """

    cases: int = 0
    nodes: Mapping[str, int] = field(default_factory=dict)
    edges: Mapping[str, int] = field(default_factory=dict)
    max_degree: int = 0
    isolated: int = 0


def measure(nodes: pa.Table, edges: pa.Table) -> GraphSize:
    """Measure the graphs of one kind in one shard.

    Args:
        nodes: Table `nodes`, at least `NODE_COLUMNS`, of one graph kind.
        edges: Table `edges`, at least `EDGE_COLUMNS`, of the same cases.
    """
    names = pc.unique(_plain(nodes, "case_id"))
    case = np.asarray(pc.index_in(_plain(nodes, "case_id"), value_set=names), dtype=np.int64)
    sizes = np.bincount(case, minlength=len(names))
    starts = np.cumsum(sizes) - sizes
    at = starts[case] + np.asarray(nodes["node_id"])
    owner = np.asarray(pc.index_in(_plain(edges, "case_id"), value_set=names), dtype=np.int64)
    ends = [starts[owner] + np.asarray(edges[end]) for end in ("source", "target")]
    degree = np.bincount(np.concatenate(ends), minlength=nodes.num_rows)
    files = at[np.asarray(pc.equal(_plain(nodes, "kind"), "file"))]
    return GraphSize(
        len(names),
        _kinds(nodes),
        _kinds(edges),
        int(degree.max(initial=0)),
        int((degree[files] == 0).sum()),
    )


def total(sizes: Iterable[GraphSize]) -> GraphSize:
    """Put the sizes of shards together."""
    cases = most = isolated = 0
    nodes: Counter[str] = Counter()
    edges: Counter[str] = Counter()
    for size in sizes:
        cases, isolated, most = cases + size.cases, isolated + size.isolated, max(most, size.max_degree)
        nodes.update(size.nodes)
        edges.update(size.edges)
    return GraphSize(cases, nodes, edges, most, isolated)


def compare_graphs(graph: str, a: GraphSize | None, b: GraphSize | None) -> Iterator[Figure]:
    """Yield the figures of section graph for one graph kind; None where a side has no graph of that kind."""
    both = [_numbers(size) if size else {} for size in (a, b)]
    for name in sorted({*both[0], *both[1]}, key=_order):
        # A kind that a side's graph does not have is 0 there; a graph that it does not have is unknown.
        values = [numbers.get(name, 0 if numbers and ":" in name else None) for numbers in both]
        yield figure("graph", name, graph, *values)


_ORDER = ("nodes", "edges", "nodes_per_case", "edges_per_case", "degree_mean", "degree_max", "isolated_files")


def _numbers(size: GraphSize) -> dict[str, float | None]:
    nodes, edges = sum(size.nodes.values()), sum(size.edges.values())
    return {
        "nodes": nodes,
        **{f"nodes:{kind}": count for kind, count in size.nodes.items()},
        "edges": edges,
        **{f"edges:{kind}": count for kind, count in size.edges.items()},
        "nodes_per_case": ratio(nodes, size.cases),
        "edges_per_case": ratio(edges, size.cases),
        "degree_mean": ratio(2 * edges, nodes),
        "degree_max": size.max_degree,
        "isolated_files": size.isolated,
    }


def _order(name: str) -> tuple[int, str]:
    return _ORDER.index(name.partition(":")[0]), name


def _kinds(table: pa.Table) -> dict[str, int]:
    counted = pc.value_counts(_plain(table, "kind"))
    return dict(zip(counted.field(0).to_pylist(), counted.field(1).to_pylist(), strict=True))


def _plain(table: pa.Table, name: str) -> pa.Array:
    return table.column(name).cast(pa.string()).combine_chunks()
