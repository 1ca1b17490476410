import numpy as np
import pyarrow as pa
import pytest

from indexers import csr
from schemas import tables
from schemas.errors import SchemaError


def table(nodes, edges):
    """Make `matrices` of (case, graph, kind) nodes and (case, graph, source, target, kind, weight) edges."""
    numbers, seen = [], {}
    for case, graph, _ in nodes:
        numbers.append(seen.setdefault((case, graph), 0))
        seen[case, graph] += 1
    node_table = tables.build(
        "nodes",
        {
            "case_id": pa.array([n[0] for n in nodes], pa.string()),
            "graph": pa.array([n[1] for n in nodes], pa.string()),
            "node_id": pa.array(numbers, pa.int32()),
            "kind": pa.array([n[2] for n in nodes], pa.string()),
            "key": pa.array([str(n) for n in numbers], pa.string()),
            "text": pa.nulls(len(nodes), pa.string()),
            "interaction_id": pa.nulls(len(nodes), pa.string()),
        },
    )
    edge_table = tables.build(
        "edges",
        {
            "case_id": pa.array([e[0] for e in edges], pa.string()),
            "graph": pa.array([e[1] for e in edges], pa.string()),
            "source": pa.array([e[2] for e in edges], pa.int32()),
            "target": pa.array([e[3] for e in edges], pa.int32()),
            "kind": pa.array([e[4] for e in edges], pa.string()),
            "weight": pa.array([e[5] for e in edges], pa.float32()),
            "interaction_id": pa.nulls(len(edges), pa.string()),
        },
    )
    return csr.matrices(node_table, edge_table)


NODES = [
    ("a", "g", "file"),
    ("a", "g", "file"),
    ("a", "g", "tag"),
    ("b", "g", "topic"),
    ("c", "g", "tag"),
    ("c", "g", "file"),
    ("c", "h", "file"),
]
EDGES = [
    ("a", "g", 0, 1, "next", 1),
    ("a", "g", 2, 0, "has", 2),
    ("a", "g", 2, 1, "has", 3),
    ("c", "g", 0, 1, "has", 4),
    ("c", "h", 0, 0, "next", 5),
]


def test_rows_by_hand():
    rows = table(NODES, EDGES).to_pylist()
    assert [(r["case_id"], r["graph"]) for r in rows] == [("a", "g"), ("b", "g"), ("c", "g"), ("c", "h")]
    first = rows[0]
    assert first["node_kind_names"] == ["file", "tag", "topic"]
    assert first["node_kinds"] == [0, 0, 1]
    assert first["file_nodes"] == [0, 1]
    assert first["indptr"] == [0, 1, 1, 3]
    assert first["indices"] == [1, 0, 1]
    assert [first["edge_kind_names"][k] for k in first["edge_kinds"]] == ["next", "has", "has"]
    assert first["weights"] == [1, 2, 3]
    assert (rows[1]["indptr"], rows[1]["indices"], rows[1]["file_nodes"]) == ([0, 0], [], [])
    assert (rows[3]["indptr"], rows[3]["indices"]) == ([0, 1], [0])


def dense(graphs, edges=None):
    return graphs.adjacency(edges).toarray().tolist()


def test_block_diagonal_of_the_cases_in_the_order_asked():
    graphs = csr.graphs(table(NODES, EDGES), "g", ["c", "missing", "a", "b"])
    assert graphs.node_offsets.tolist() == [0, 2, 2, 5, 6]
    assert graphs.file_offsets.tolist() == [0, 1, 1, 3, 3]
    assert graphs.file_nodes.tolist() == [1, 2, 3]
    wanted = np.zeros((6, 6))
    wanted[0, 1], wanted[2, 3], wanted[4, 2], wanted[4, 3] = 4, 1, 2, 3
    assert dense(graphs) == wanted.tolist()
    wanted[2, 3] = 0
    assert dense(graphs, ~graphs.edges_of(("next",))) == wanted.tolist()
    assert graphs.nodes_of(("tag",)).tolist() == [True, False, False, False, True, False]
    assert not graphs.edges_of(("no such kind",)).any()


def test_all_cases_of_a_graph_by_default():
    assert csr.graphs(table(NODES, EDGES), "g").case_ids == ("a", "b", "c")
    assert csr.graphs(table(NODES, EDGES), "h").case_ids == ("c",)


def test_kind_codes_of_different_rows_are_unified():
    one = table([("a", "g", "tag"), ("a", "g", "topic")], [("a", "g", 0, 1, "has", 1)])
    two = table([("b", "g", "file"), ("b", "g", "topic")], [("b", "g", 0, 1, "about", 1)])
    graphs = csr.graphs(pa.concat_tables([one, two]), "g")
    assert [graphs.node_kind_names[k] for k in graphs.node_kinds] == ["tag", "topic", "file", "topic"]
    assert [graphs.edge_kind_names[k] for k in graphs.edge_kinds] == ["has", "about"]


def test_nothing_at_all():
    graphs = csr.graphs(table([], []), "g")
    assert graphs.cases == 0
    assert graphs.adjacency().shape == (0, 0)
    assert csr.graphs(table([], []), "g", ["a"]).node_offsets.tolist() == [0, 0]


def test_blocks_cut_out_equal_the_dense_blocks():
    graphs = csr.graphs(table(NODES, EDGES), "g")
    low, high = graphs.node_offsets[[2, 0]], graphs.node_offsets[[3, 1]]
    wanted = np.zeros((5, 5))
    whole = graphs.adjacency().toarray()
    wanted[:2, :2], wanted[2:, 2:] = whole[4:6, 4:6], whole[:3, :3]
    assert csr.take_rows(graphs.adjacency(), low, high).toarray().tolist() == wanted.tolist()


def test_ranges_are_written_out():
    values, owner = csr.expand(np.array([5, 0, 9]), np.array([2, 0, 3]))
    assert values.tolist() == [5, 6, 9, 10, 11]
    assert owner.tolist() == [0, 0, 2, 2, 2]


@pytest.mark.parametrize(
    ("edge", "message"),
    [
        (("a", "g", 0, 3, "next", 1), "lacks"),
        (("a", "g", -1, 0, "next", 1), "lacks"),
        (("a", "g", 0, 1, "next", 0), "above 0"),
        (("a", "g", 0, 1, "next", float("nan")), "above 0"),
        (("z", "g", 0, 1, "next", 1), "without nodes"),
    ],
)
def test_bad_edges_are_refused(edge, message):
    with pytest.raises(SchemaError, match=message):
        table(NODES, [edge])


def test_disorder_is_refused():
    with pytest.raises(SchemaError, match="not in order"):
        table(NODES, [EDGES[1], EDGES[0]])
    with pytest.raises(SchemaError, match="stand together"):
        table([NODES[0], NODES[3], NODES[1]], [])
    with pytest.raises(SchemaError, match="another order"):
        table(NODES, [EDGES[3], EDGES[0]])
    both = table(NODES, EDGES)
    with pytest.raises(SchemaError, match="two rows"):
        csr.graphs(pa.concat_tables([both, both]), "g")
