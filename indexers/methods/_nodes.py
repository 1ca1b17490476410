"""Cosines of questions and the nodes of a graph, and files by the nodes that they stand behind."""

from __future__ import annotations

import numpy as np

from indexers.batch import Batch
from indexers.csr import Graphs
from indexers.scores import Floats, Ints, Scores, spread_over
from indexers.shard import Shard, Singles
from indexers.vectors import Vectors, cosine
from schemas.errors import SchemaError


def node_units(graph: str) -> tuple[str, ...]:
    """Return the units that `node_cosines` reads."""
    return (f"index/{graph}", "embed/interactions", f"embed/{graph}", "embed/questions")


def node_vectors(shard: Shard, graph: str) -> Singles:
    """Return (nodes, dimensions) vectors of all nodes of a graph kind: files by their text, others by theirs.

    Raises:
        SchemaError: Vectors and nodes differ in number.
    """

    def make() -> Singles:
        graphs = shard.graphs(graph)
        others, files = shard.vectors(f"embed/{graph}"), shard.vectors("embed/interactions")
        inner = np.flatnonzero(~graphs.nodes_of(("file",)))
        if len(inner) != len(others.vectors.values):
            raise SchemaError("vectors and nodes differ in number", where=f"embed/{graph}", remedy="Run again.")
        out = np.zeros((len(graphs.node_kinds), files.vectors.values.shape[1]), np.float32)
        out[graphs.file_nodes] = files.vectors.values
        if len(inner):
            out[inner] = others.vectors.values
        return out

    return shard.once(("node vectors", graph), make)


def node_cosines(batch: Batch, graph: str) -> Scores:
    """Return the cosines, not below 0, of each question and the nodes of its case."""

    def make() -> Scores:
        offsets = batch.shard.graphs(graph).node_offsets
        nodes = Vectors(batch.shard.cases, offsets, node_vectors(batch.shard, graph))
        return cosine(batch.vectors(), batch.case, nodes)

    return batch.once(("node cosines", graph), make)


def files_behind(batch: Batch, graphs: Graphs, nodes: Scores, links: tuple[tuple[str, str], ...]) -> Scores:
    """Return for each file the best score of itself and of the nodes that were drawn from it.

    Args:
        batch: The questions.
        graphs: The graphs.
        nodes: Scores of all nodes of each question's case.
        links: (node kind, edge kind) of edges that lead from a node to what it was drawn from, nearest to the files
            last; a node passes its score on along them.
    """
    values = nodes.values.copy()
    for kind, edge in links:
        source = np.repeat(np.arange(len(graphs.node_kinds)), np.diff(graphs.indptr))
        kept = np.flatnonzero(graphs.edges_of((edge,)) & graphs.nodes_of((kind,))[source])
        # Edges of a case come together, in order of source.
        first = np.searchsorted(source[kept], graphs.node_offsets)
        _, edge_of = spread_over(batch.case, first)
        base = np.repeat(nodes.offsets[:-1] - graphs.node_offsets[batch.case], np.diff(first)[batch.case])
        chosen = kept[edge_of]
        np.maximum.at(values, base + graphs.indices[chosen], values[base + source[chosen]])
    return files_of(batch.case, graphs, Scores(nodes.offsets, values))


def behind(
    graphs: Graphs, base: int, values: Floats, node: int, links: tuple[tuple[str, str], ...]
) -> tuple[float, list[int]]:
    """Return the score that `files_behind` gives one node, and the way of that score.

    Args:
        graphs: The graphs.
        base: Where the nodes of the case begin.
        values: Scores of all nodes of the case.
        node: The node, numbered within the case.
        links: As given to `files_behind`.

    Returns:
        The score; the node that has it, what it is passed on to, .., the node asked for.
    """
    best, way = float(values[node]), [node]
    for number, (kind, edge) in enumerate(links):
        kept = graphs.edges_of((edge,)) & (graphs.indices == node + base)
        sources = np.searchsorted(graphs.indptr, np.flatnonzero(kept), side="right") - 1
        for source in np.unique(sources[graphs.nodes_of((kind,))[sources]]).tolist():
            score, before = behind(graphs, base, values, source - base, links[:number])
            if score > best:
                best, way = score, [*before, node]
    return best, way


def files_of(case: Ints, graphs: Graphs, nodes: Scores) -> Scores:
    """Return the files' part of the scores of all nodes, by position."""
    offsets, place = spread_over(case, graphs.file_offsets)
    base = np.repeat(nodes.offsets[:-1] - graphs.node_offsets[case], np.diff(offsets))
    return Scores(offsets, nodes.values[base + graphs.file_nodes[place]])


def spread_nodes(case: Ints, graphs: Graphs, owner: Ints, nodes: Ints, values: Floats) -> Scores:
    """Return scores over all nodes of each question's case out of those of some nodes."""
    size = np.diff(graphs.node_offsets)[case]
    offsets = np.concatenate([[0], np.cumsum(size)]).astype(np.int64)
    out = np.zeros(int(offsets[-1]))
    out[offsets[owner] + nodes - graphs.node_offsets[case[owner]]] = values
    return Scores(offsets, out)
