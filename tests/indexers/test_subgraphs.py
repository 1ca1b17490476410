"""Subgraphs around nodes, against networkx."""

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexers.subgraphs import around
from tests.indexers.drawn import Case, batch

KINDS = ("near", "far")


@st.composite
def drawn_case(draw):
    files, others = draw(st.integers(1, 4)), draw(st.integers(0, 5))
    size = files + others
    pairs = st.tuples(st.integers(0, size - 1), st.integers(0, size - 1), st.sampled_from(KINDS), st.integers(1, 3))
    edges = draw(st.lists(pairs, max_size=12, unique_by=lambda edge: edge[:3]))
    return Case([[1, 0]] * files, nodes=[("node", [1, 0])] * others, edges=edges)


@given(
    st.lists(drawn_case(), min_size=1, max_size=3), st.integers(0, 3), st.sampled_from([KINDS, ("near",)]), st.data()
)
@settings(max_examples=25, deadline=None)
def test_equal_to_ego_graphs(cases, hops, kinds, data):
    named = {f"c{n}": case for n, case in enumerate(cases)}
    graphs = batch(named, [(name, [1, 0]) for name in named]).shard.graphs("concept")
    questions = data.draw(st.integers(0, 4))
    starts = [
        (
            number := data.draw(st.integers(0, len(cases) - 1)),
            data.draw(st.lists(st.integers(0, len(cases[number].files) + len(cases[number].nodes) - 1), max_size=3)),
        )
        for _ in range(questions)
    ]
    owner = np.array([q for q, (_, nodes) in enumerate(starts) for _ in nodes], np.int64)
    nodes = np.array([graphs.node_offsets[case] + node for case, nodes in starts for node in nodes], np.int64)
    part = around(graphs, owner, nodes, questions, hops, graphs.edges_of(kinds))
    inner = part.graphs
    assert len(inner.node_offsets) == questions + 1
    for question, (number, begun) in enumerate(starts):
        case = cases[number]
        whole = nx.MultiDiGraph()
        whole.add_nodes_from(range(len(case.files) + len(case.nodes)))
        whole.add_edges_from((a, b, {"kind": kind, "weight": w}) for a, b, kind, w in case.edges if kind in kinds)
        undirected = whole.to_undirected()
        wanted = sorted({n for start in begun for n in nx.ego_graph(undirected, start, hops).nodes})
        low, high = inner.node_offsets[question], inner.node_offsets[question + 1]
        own = (part.nodes[low:high] - graphs.node_offsets[number]).tolist()
        assert own == wanted
        found = [
            (own[row - low], own[inner.indices[edge] - low], inner.edge_kind_names[inner.edge_kinds[edge]],
             inner.weights[edge])
            for row in range(low, high)
            for edge in range(inner.indptr[row], inner.indptr[row + 1])
        ]  # fmt: skip
        induced = whole.subgraph(wanted)
        assert sorted(found) == sorted((a, b, d["kind"], d["weight"]) for a, b, d in induced.edges(data=True))
        files = inner.file_nodes[inner.file_offsets[question] : inner.file_offsets[question + 1]]
        assert [own[node - low] for node in files] == [node for node in wanted if node < len(case.files)]


def test_no_questions_and_no_starts():
    graphs = batch({"a": Case([[1, 0]])}, [("a", [1, 0])]).shard.graphs("concept")
    none = np.zeros(0, np.int64)
    edges = np.zeros(0, bool)
    assert around(graphs, none, none, 0, 2, edges).graphs.node_offsets.tolist() == [0]
    part = around(graphs, none, none, 3, 2, edges)
    assert part.graphs.node_offsets.tolist() == [0, 0, 0, 0]
    assert part.nodes.tolist() == []


def test_a_start_may_be_named_twice():
    graphs = batch({"a": Case([[1, 0]] * 2, edges=[(0, 1, "near", 2)])}, [("a", [1, 0])]).shard.graphs("concept")
    part = around(graphs, np.array([0, 0]), np.array([1, 1]), 1, 1, np.ones(1, bool))
    assert part.nodes.tolist() == [0, 1]
    assert part.graphs.weights.tolist() == pytest.approx([2])
