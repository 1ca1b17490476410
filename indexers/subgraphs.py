"""The part of a graph that lies around some nodes, one for each question, as graphs of their own."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy

from indexers.csr import Bools, Graphs, Ints, expand


@dataclass(frozen=True)
class Subgraphs:
    """Induced subgraphs; "case" c of `graphs` is the one of question c.

    Attributes:
        graphs: The subgraphs; all edges between their nodes.
        nodes: (nodes of all subgraphs,) the node of the whole graph that each is, ascending within a question.
    """

    graphs: Graphs
    nodes: Ints


def around(graphs: Graphs, owner: Ints, nodes: Ints, questions: int, hops: int, edges: Bools) -> Subgraphs:
    """Return the subgraph within some steps of each question's nodes.

    Args:
        graphs: Graphs of a shard.
        owner: (starts,) question of each start.
        nodes: (starts,) its node.
        questions: Number of questions.
        hops: Steps, along edges in either direction.
        edges: (E,) which edges may be stepped along, and are kept.
    """
    size = len(graphs.node_kinds)
    reach = scipy.sparse.csr_array((np.ones(len(nodes), bool), (owner, nodes)), shape=(questions, size))
    forward = graphs.adjacency(edges).astype(bool)
    both = (forward + forward.T).tocsr()
    for _ in range(hops):
        reach = (reach + reach @ both).tocsr()
    reach.sort_indices()
    member = reach.indices.astype(np.int64)
    offsets = reach.indptr.astype(np.int64)
    question = np.repeat(np.arange(questions), np.diff(offsets))
    key = question * size + member
    entry, row = expand(graphs.indptr[member], np.diff(graphs.indptr)[member])
    kept = edges[entry]
    entry, row = entry[kept], row[kept]
    wanted = question[row] * size + graphs.indices[entry]
    place = np.searchsorted(key, wanted)
    there = key[np.minimum(place, len(key) - 1)] == wanted if len(key) else np.zeros(0, bool)
    entry, row, place = entry[there], row[there], place[there]
    files = np.isin(member, graphs.file_nodes)
    own = replace(
        graphs,
        case_ids=tuple(map(str, range(questions))),
        node_offsets=offsets,
        node_kinds=graphs.node_kinds[member],
        file_offsets=np.concatenate([[0], np.cumsum(files)])[offsets],
        file_nodes=np.flatnonzero(files),
        indptr=np.searchsorted(row, np.arange(len(member) + 1)),
        indices=place,
        edge_kinds=graphs.edge_kinds[entry],
        weights=graphs.weights[entry],
    )
    return Subgraphs(own, member)
