"""Adjacency of many cases as flat CSR arrays, edge kinds kept, so that an ablation is a mask and not a rebuild."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import scipy

from schemas.errors import SchemaError
from schemas.tables import build as build_table

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Graphs:
    """The graphs of one kind over the cases of a shard; C cases, N nodes, E edges, F file nodes.

    Nodes are numbered through all cases (case c has ``node_offsets[c]`` up to ``node_offsets[c + 1]``), so that the
    arrays are the CSR form of the block-diagonal matrix of all cases.

    Attributes:
        case_ids: Cases, in order.
        node_offsets: (C + 1,) where the nodes of each case begin.
        node_kinds: (N,) index into `node_kind_names`.
        node_kind_names: Node kinds.
        file_offsets: (C + 1,) where the file nodes of each case begin in `file_nodes`.
        file_nodes: (F,) file node of the interaction at each position.
        indptr: (N + 1,) where the edges of each node begin.
        indices: (E,) targets, ascending within a row.
        edge_kinds: (E,) index into `edge_kind_names`.
        edge_kind_names: Edge kinds.
        weights: (E,) weights, above 0.
    """

    case_ids: tuple[str, ...]
    node_offsets: Ints
    node_kinds: npt.NDArray[np.int8]
    node_kind_names: tuple[str, ...]
    file_offsets: Ints
    file_nodes: Ints
    indptr: Ints
    indices: Ints
    edge_kinds: npt.NDArray[np.int8]
    edge_kind_names: tuple[str, ...]
    weights: Floats

    @property
    def cases(self) -> int:
        """Number of cases."""
        return len(self.case_ids)

    def edges_of(self, kinds: Sequence[str]) -> Bools:
        """Tell for each edge whether its kind is one of `kinds`; unknown kinds have no edges."""
        chosen = [name in kinds for name in self.edge_kind_names]
        return np.array([*chosen, False])[self.edge_kinds]

    def nodes_of(self, kinds: Sequence[str]) -> Bools:
        """Tell for each node whether its kind is one of `kinds`; unknown kinds have no nodes."""
        chosen = [name in kinds for name in self.node_kind_names]
        return np.array([*chosen, False])[self.node_kinds]

    def adjacency(self, edges: Bools | None = None) -> scipy.sparse.csr_array:
        """Return the block-diagonal adjacency (N x N, weights) of the chosen edges; all edges by default."""
        nodes = len(self.node_kinds)
        if edges is None:
            return scipy.sparse.csr_array((self.weights, self.indices, self.indptr), shape=(nodes, nodes))
        count = np.concatenate([[0], np.cumsum(edges)])
        return scipy.sparse.csr_array(
            (self.weights[edges], self.indices[edges], count[self.indptr]), shape=(nodes, nodes)
        )


def expand(starts: Ints, lengths: Ints) -> tuple[Ints, Ints]:
    """Write ranges out: the numbers ``starts[i] .. starts[i] + lengths[i] - 1`` of every range i, and each one's i."""
    owner = np.repeat(np.arange(len(lengths), dtype=np.int64), lengths)
    shift = starts - (np.cumsum(lengths) - lengths)
    numbers = np.repeat(shift, lengths)
    numbers += np.arange(len(owner), dtype=np.int64)
    return numbers, owner


def take_rows(matrix: scipy.sparse.csr_array, low: Ints, high: Ints) -> scipy.sparse.csr_array:
    """Cut blocks out of a block-diagonal matrix: a block-diagonal one of the blocks `low[i]` up to `high[i]`."""
    rows, block = expand(low, high - low)
    shift = np.cumsum(high - low) - (high - low) - low
    length = np.diff(matrix.indptr)[rows].astype(np.int64)
    entries, row = expand(matrix.indptr[rows].astype(np.int64), length)
    indptr = np.concatenate([[0], np.cumsum(length)])
    indices = matrix.indices[entries] + shift[block[row]]
    kind = np.int32 if max(len(entries), len(rows)) < 2**31 else np.int64
    return scipy.sparse.csr_array(
        (matrix.data[entries], indices.astype(kind), indptr.astype(kind)), shape=(len(rows), len(rows))
    )


def matrices(nodes: pa.Table, edges: pa.Table) -> pa.Table:
    """Make the table `matrices`: one row a case and graph, in order of the nodes.

    Raises:
        SchemaError: Rows of a case and graph do not stand together, nodes are not numbered from 0, edges are not in
            order of source and target, or an edge names a node that is not there or has a weight not above 0.
    """
    node_group, groups = _groups("nodes", nodes, None)
    edge_group, _ = _groups("edges", edges, groups)
    size = np.bincount(node_group, minlength=len(groups))
    offsets = np.concatenate([[0], np.cumsum(size)])
    number = _numbers(nodes["node_id"])
    if not np.array_equal(number, np.arange(len(number)) - offsets[node_group]):
        raise SchemaError("nodes of a case and graph are not numbered from 0 in order", where="nodes.node_id")
    source, target = _numbers(edges["source"]), _numbers(edges["target"])
    weight = edges["weight"].combine_chunks().to_numpy(zero_copy_only=False)
    for name, end in (("source", source), ("target", target)):
        if ((end < 0) | (end >= size[edge_group])).any():
            raise SchemaError("an edge names a node that its graph lacks", where=f"edges.{name}")
    if not (np.isfinite(weight) & (weight > 0)).all():
        raise SchemaError("a weight is not a number above 0", where="edges.weight")
    flat = offsets[edge_group] + source
    if ((np.diff(flat) < 0) | ((np.diff(flat) == 0) & (np.diff(target) < 0))).any():
        raise SchemaError("edges are not in order of case, source and target", where="edges")

    node_kinds, node_names = _kinds(nodes)
    edge_kinds, edge_names = _kinds(edges)
    out_degree = np.bincount(flat, minlength=len(number))
    edge_count = np.bincount(edge_group, minlength=len(groups))
    # One row start more than nodes in each graph: a 0 goes in front of each graph's running sums.
    running = np.cumsum(out_degree)
    before = np.cumsum(edge_count) - edge_count
    indptr = np.zeros(len(number) + len(groups), np.int64)
    indptr[np.arange(len(number)) + node_group + 1] = running - before[node_group]
    is_file = np.array([*(name == "file" for name in node_names), False])[node_kinds]
    files = np.bincount(node_group[is_file], minlength=len(groups))
    return build_table(
        "matrices",
        {
            "case_id": pa.array([case for case, _ in groups], pa.string()),
            "graph": pa.array([graph for _, graph in groups], pa.string()),
            "node_kinds": _lists(node_kinds, size, pa.int8()),
            "node_kind_names": pa.array([node_names] * len(groups), pa.list_(pa.string())),
            "file_nodes": _lists(number[is_file], files, pa.int32()),
            "indptr": _lists(indptr, size + 1, pa.int32()),
            "indices": _lists(target, edge_count, pa.int32()),
            "edge_kinds": _lists(edge_kinds, edge_count, pa.int8()),
            "edge_kind_names": pa.array([edge_names] * len(groups), pa.list_(pa.string())),
            "weights": _lists(weight, edge_count, pa.float32()),
        },
    )


def graphs(table: pa.Table, graph: str, case_ids: Sequence[str] | None = None) -> Graphs:
    """Read the graphs of one kind out of a `matrices` table.

    Args:
        table: The table.
        graph: Graph kind.
        case_ids: Cases wanted, in this order; one without a row has an empty graph. By default the table's.

    Raises:
        SchemaError: A case has two rows of this kind.
    """
    names = table["graph"].cast(pa.string()).to_pylist()
    cases = table["case_id"].cast(pa.string()).to_pylist()
    row_of: dict[str, int] = {}
    for row, (case, name) in enumerate(zip(cases, names, strict=True)):
        if name == graph and row_of.setdefault(case, row) != row:
            raise SchemaError(f"case '{case}' has two rows of graph '{graph}'", where="matrices")
    wanted = tuple(row_of) if case_ids is None else tuple(case_ids)
    rows = pa.array([row_of.get(case) for case in wanted], pa.int64())
    taken = table.take(rows).combine_chunks()

    node_kinds, nodes = _flat(taken["node_kinds"])
    file_nodes, files = _flat(taken["file_nodes"])
    indptr, _ = _flat(taken["indptr"])
    indices, edges = _flat(taken["indices"])
    edge_kinds, _ = _flat(taken["edge_kinds"])
    weights, _ = _flat(taken["weights"])
    node_offsets = np.concatenate([[0], np.cumsum(nodes)])
    edge_offsets = np.concatenate([[0], np.cumsum(edges)])
    present = np.array([case in row_of for case in wanted], np.bool_)
    # The first of each graph's row starts repeats the last of the graph before.
    starts = (np.cumsum(nodes + present) - (nodes + present))[present]
    inner = np.delete(indptr.astype(np.int64), starts)
    node_names, node_kinds = _unify(taken["node_kind_names"].to_pylist(), node_kinds, nodes)
    edge_names, edge_kinds = _unify(taken["edge_kind_names"].to_pylist(), edge_kinds, edges)
    return Graphs(
        case_ids=wanted,
        node_offsets=node_offsets,
        node_kinds=node_kinds,
        node_kind_names=node_names,
        file_offsets=np.concatenate([[0], np.cumsum(files)]),
        file_nodes=file_nodes.astype(np.int64) + np.repeat(node_offsets[:-1], files),
        indptr=np.concatenate([[0], inner + np.repeat(edge_offsets[:-1], nodes)]),
        indices=indices.astype(np.int64) + np.repeat(node_offsets[:-1], edges),
        edge_kinds=edge_kinds,
        edge_kind_names=edge_names,
        weights=weights.astype(np.float64),
    )


def _groups(where: str, table: pa.Table, known: list[tuple[str, str]] | None) -> tuple[Ints, list[tuple[str, str]]]:
    """Number the runs of equal (case, graph); `known` fixes the numbers."""
    case = table["case_id"].combine_chunks().cast(pa.string()).dictionary_encode()
    graph = table["graph"].combine_chunks().cast(pa.string()).dictionary_encode()
    kinds = len(graph.dictionary)
    code = _numbers(case.indices) * max(kinds, 1) + _numbers(graph.indices)
    heads = np.flatnonzero(np.diff(code, prepend=-1))
    keys = [
        (case.dictionary[int(c // max(kinds, 1))].as_py(), graph.dictionary[int(c % max(kinds, 1))].as_py())
        for c in code[heads]
    ]
    if len(set(keys)) < len(keys):
        raise SchemaError("rows of one case and graph do not stand together", where=where)
    order = keys if known is None else known
    place = {key: number for number, key in enumerate(order)}
    if not set(keys) <= set(place):
        raise SchemaError("an edge belongs to a case and graph without nodes", where=where)
    numbers = np.array([place[key] for key in keys], np.int64)
    if (np.diff(numbers) < 0).any():
        raise SchemaError("cases stand in another order than in nodes", where=where)
    return np.repeat(numbers, np.diff(np.append(heads, len(code)))), order


def _kinds(table: pa.Table) -> tuple[Ints, list[str]]:
    coded = table["kind"].combine_chunks().cast(pa.string()).dictionary_encode()
    names = coded.dictionary.to_pylist()
    if len(names) > 127:
        raise SchemaError(f"{len(names)} kinds, more than the 127 that fit", where="kind")
    order = sorted(names)
    rank = np.array([order.index(name) for name in names], np.int64)
    codes = _numbers(coded.indices)
    return (rank[codes] if len(codes) else codes), order


def _unify(
    names: list[list[str] | None], codes: npt.NDArray[np.int8], lengths: Ints
) -> tuple[tuple[str, ...], npt.NDArray[np.int8]]:
    every = sorted({name for row in names for name in row or ()})
    place = {name: number for number, name in enumerate(every)}
    table = np.full((len(names) + 1, max((len(row or ()) for row in names), default=0) + 1), -1, np.int8)
    for number, row in enumerate(names):
        for code, name in enumerate(row or ()):
            table[number, code] = place[name]
    owner = np.repeat(np.arange(len(names)), lengths)
    return tuple(every), table[owner, codes]


def _numbers(column: pa.Array | pa.ChunkedArray) -> Ints:
    joined = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    numbers: Ints = joined.to_numpy(zero_copy_only=False).astype(np.int64)
    return numbers


def _flat(column: pa.ChunkedArray) -> tuple[npt.NDArray[Any], Ints]:
    joined = column.combine_chunks()
    lengths = joined.value_lengths().fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    return joined.flatten().to_numpy(zero_copy_only=False), lengths


def _lists(values: npt.NDArray[np.generic], lengths: Ints, kind: pa.DataType) -> pa.Array:
    if lengths.sum() > 2**31 - 1:
        raise SchemaError("more than 2**31 entries in one shard", where="matrices", remedy="Use more shards.")
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    items = pa.array(values).cast(kind)
    field = pa.field("item", kind, nullable=False)
    return pa.ListArray.from_arrays(pa.array(offsets), items, type=pa.list_(field))
