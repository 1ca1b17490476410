"""Personalised PageRank against networkx, igraph and a sparse direct solve."""

import igraph
import networkx
import numpy as np
import pytest
from scipy import sparse
from scipy.sparse.linalg import splu

from indexers.csr import Graphs
from indexers.ppr import Seeds, personalized_pagerank, walk

ALPHA = 0.85


def make(nodes, edges, weights=None):
    """Make the graph of one case; every node is a file."""
    pairs = sorted(set(edges))
    source = np.array([s for s, _ in pairs], np.int64)
    return Graphs(
        case_ids=("a",),
        node_offsets=np.array([0, nodes]),
        node_kinds=np.zeros(nodes, np.int8),
        node_kind_names=("file",),
        file_offsets=np.array([0, nodes]),
        file_nodes=np.arange(nodes),
        indptr=np.searchsorted(source, np.arange(nodes + 1)),
        indices=np.array([t for _, t in pairs], np.int64),
        edge_kinds=np.zeros(len(pairs), np.int8),
        edge_kind_names=("edge",),
        weights=np.array([1.0 + (s + 2 * t) % 5 if weights else 1.0 for s, t in pairs]),
    )


def solve(graphs, questions):
    nodes = len(graphs.node_kinds)
    start = Seeds(
        np.zeros(len(questions), np.int64),
        np.concatenate([[0], np.cumsum([len(q) for q in questions])]).astype(np.int64),
        np.array([n for q in questions for n in q], np.int64),
        np.array([w for q in questions for w in q.values()], np.float64),
    )
    return personalized_pagerank(walk(graphs), start, ALPHA)[0].values.reshape(len(questions), nodes)


def random_graph(seed, nodes, edges):
    rng = np.random.default_rng(seed)
    popular = 1 / np.arange(1, nodes + 1) ** 0.7
    ends = rng.choice(nodes, (edges, 2), p=popular / popular.sum())
    return [(int(s), int(t)) for s, t in ends]


GRAPHS = {
    "dangling": (3, [(0, 1), (1, 2), (0, 2)]),
    "isolated": (4, [(0, 1), (1, 0)]),
    "disconnected": (6, [(0, 1), (1, 2), (2, 0), (3, 4), (4, 5)]),
    "self loop": (3, [(0, 0), (0, 1), (1, 2), (2, 0)]),
    "no edges": (5, []),
    "one node": (1, []),
    "random": (200, random_graph(1, 200, 900)),
    "sparse random": (300, random_graph(2, 300, 250)),
}


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("weights", [False, True])
def test_equals_networkx(name, weights):
    nodes, edges = GRAPHS[name]
    graphs = make(nodes, edges, weights)
    questions = [{0: 1.0}, {n: 1.0 + n % 3 for n in range(0, nodes, 3)}, {nodes - 1: 2.0}]
    other = networkx.DiGraph()
    other.add_nodes_from(range(nodes))
    matrix = graphs.adjacency().tocoo()
    other.add_weighted_edges_from(zip(*matrix.coords, matrix.data, strict=True))
    for found, start in zip(solve(graphs, questions), questions, strict=True):
        expected = networkx.pagerank(other, ALPHA, personalization=start, tol=1e-13, max_iter=1000)
        assert found == pytest.approx([expected[n] for n in range(nodes)], abs=1e-6)


@pytest.mark.parametrize("name", GRAPHS)
def test_equals_igraph(name):
    nodes, edges = GRAPHS[name]
    graphs = make(nodes, edges)
    other = igraph.Graph(n=nodes, edges=sorted(set(edges)), directed=True)
    questions = [{0: 1.0}, {nodes // 2: 1.0, nodes - 1: 1.0}]
    for found, start in zip(solve(graphs, questions), questions, strict=True):
        expected = other.personalized_pagerank(damping=ALPHA, reset_vertices=list(start), implementation="prpack")
        assert found == pytest.approx(expected, abs=1e-6)


def test_equals_a_sparse_direct_solve():
    nodes = 1500
    graphs = make(nodes, random_graph(3, nodes, 7000), weights=True)
    questions = [{(q * 37) % nodes: 1.0, (q * 91) % nodes: 0.5} for q in range(20)]
    forward = graphs.adjacency()
    out = forward.sum(axis=1)
    scale = sparse.diags_array(np.where(out > 0, 1 / np.where(out > 0, out, 1), 0))
    system = (sparse.eye_array(nodes) - ALPHA * (scale @ forward).T).tocsc()
    right = np.zeros((nodes, len(questions)))
    for column, start in enumerate(questions):
        for node, weight in start.items():
            right[node, column] += weight
    expected = splu(system, permc_spec="MMD_AT_PLUS_A").solve(right)
    # Dangling mass that goes to the seeds scales the solution.
    expected /= expected.sum(axis=0)
    assert np.abs(solve(graphs, questions) - expected.T).sum(axis=1).max() < 1e-8
