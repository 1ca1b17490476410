from collections import Counter
from itertools import combinations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas import tables
from schemas.errors import ConfigError, SchemaError, UsageError
from transforms import graphs
from transforms.graphs import taggraph


def notes(*rows):
    """Make a notes table of (case, interaction, {field: tags})."""
    columns = {name: [row[2].get(name, []) for row in rows] for name in tables.NOTE_FIELDS}
    columns["case_id"] = pa.array([row[0] for row in rows], pa.string())
    columns["interaction_id"] = pa.array([row[1] for row in rows], pa.string())
    columns["summary"] = pa.array([""] * len(rows), pa.string())
    columns["status"] = pa.array(["ok"] * len(rows), pa.string())
    columns["error"] = pa.nulls(len(rows), pa.string())
    columns["prompt_tokens"] = columns["completion_tokens"] = pa.array([0] * len(rows), pa.int32())
    for name in tables.NOTE_FIELDS:
        columns[name] = pa.array(columns[name], pa.list_(pa.string()))
    return tables.build("notes", columns)


def build(*rows, **options):
    return taggraph.build({"notes": notes(*rows)}, taggraph.Options(**options))[:2]


def node_rows(nodes):
    return list(zip(*(nodes[c].to_pylist() for c in ("case_id", "node_id", "kind", "key")), strict=True))


def edge_rows(nodes, edges):
    """Return edges as (kind, source key, target key, weight) in order."""
    key = {(case, number): key for case, number, _, key in node_rows(nodes)}
    cases = edges["case_id"].to_pylist()
    return [
        (kind, key[case, source], key[case, target], weight)
        for case, kind, source, target, weight in zip(
            cases, *(edges[c].to_pylist() for c in ("kind", "source", "target", "weight")), strict=True
        )
    ]


def test_small_case_by_hand():
    nodes, edges = build(
        ("u", "i0", {"what": ["career/software/python", "food"], "who": ["anna"]}),
        ("u", "i1", {"what": ["career/software/rust"], "who": ["anna"], "extra": ["food"]}),
        ("u", "i2", {"when": ["2023/05/07"]}),
        ("u", "i3", {}),
    )
    assert node_rows(nodes) == [
        ("u", 0, "file", "i0"),
        ("u", 1, "file", "i1"),
        ("u", 2, "file", "i2"),
        ("u", 3, "file", "i3"),
        ("u", 4, "topic", "career/software"),
        ("u", 5, "topic", "2023/05"),
        ("u", 6, "topic", "note:i3"),
        ("u", 7, "tag", "2023/05/07"),
        ("u", 8, "tag", "anna"),
        ("u", 9, "tag", "career/software/python"),
        ("u", 10, "tag", "career/software/rust"),
        ("u", 11, "tag", "food"),
        ("u", 12, "ontology", "2023"),
        ("u", 13, "ontology", "2023/05"),
        ("u", 14, "ontology", "career"),
        ("u", 15, "ontology", "career/software"),
    ]
    assert edge_rows(nodes, edges) == [
        ("chronological", "i0", "i1", 1),
        ("chronological", "i1", "i2", 1),
        ("chronological", "i2", "i3", 1),
        ("topic_file", "career/software", "i0", 1),
        ("topic_file", "career/software", "i1", 1),
        ("topic_file", "2023/05", "i2", 1),
        ("topic_file", "note:i3", "i3", 1),
        ("tag_topic", "2023/05/07", "2023/05", 1),
        ("tag_topic", "anna", "career/software", 2),
        ("tag_topic", "career/software/python", "career/software", 1),
        ("tag_topic", "career/software/rust", "career/software", 1),
        ("tag_topic", "food", "career/software", 2),
        ("ontology", "2023", "2023/05", 1),
        ("ontology", "2023/05", "2023/05/07", 1),
        ("ontology", "career", "career/software", 1),
        ("ontology", "career/software", "career/software/python", 1),
        ("ontology", "career/software", "career/software/rust", 1),
    ]
    assert nodes["interaction_id"].to_pylist()[:5] == ["i0", "i1", "i2", "i3", None]


def test_prefix_that_is_a_tag_is_no_ontology_node():
    nodes, edges = build(("u", "i", {"what": ["a", "a/b/c"]}))
    assert [(kind, key) for _, _, kind, key in node_rows(nodes)] == [
        ("file", "i"),
        ("topic", "a"),
        ("tag", "a"),
        ("tag", "a/b/c"),
        ("ontology", "a/b"),
    ]
    assert [e for e in edge_rows(nodes, edges) if e[0] == "ontology"] == [
        ("ontology", "a", "a/b", 1),
        ("ontology", "a/b", "a/b/c", 1),
    ]


def test_a_tag_counts_once_a_note_whatever_its_fields():
    nodes, edges = build(("u", "i", {"what": ["x", "x"], "why": ["x"]}))
    assert [e for e in edge_rows(nodes, edges) if e[0] == "tag_topic"] == [("tag_topic", "x", "x", 1)]


def test_first_what_tag_wins_over_fields_that_come_before():
    nodes, _ = build(("u", "i", {"who": ["anna"], "what": ["b/c/d", "a"]}), ("u", "j", {"where": ["z"], "why": ["y"]}))
    assert [key for _, _, kind, key in node_rows(nodes) if kind == "topic"] == ["b/c", "z"]


def test_similar_topics_share_three_attributes_and_the_field_counts():
    common = {"who": ["anna", "bob"], "where": ["rome"]}
    nodes, edges = build(
        ("u", "i", {"what": ["one"], **common}),
        ("u", "j", {"what": ["two"], **common}),
        ("u", "k", {"what": ["three"], "who": ["anna", "bob"], "extra": ["rome"]}),
    )
    assert [e for e in edge_rows(nodes, edges) if e[0] == "topic_topic"] == [
        ("topic_topic", "one", "two", 3),
        ("topic_topic", "two", "one", 3),
    ]


def test_same_notes_again_add_no_tags_and_double_the_weights():
    once, twice = [("u", f"i{n}", {"what": ["a"], "who": ["b"]}) for n in range(2)], []
    twice = once + [("u", f"again{n}", row[2]) for n, row in enumerate(once)]
    nodes, edges = build(*once)
    nodes2, edges2 = build(*twice)
    for kind in ("topic", "tag", "ontology"):
        assert [n[3] for n in node_rows(nodes) if n[2] == kind] == [n[3] for n in node_rows(nodes2) if n[2] == kind]
    weights = [e[3] for e in edge_rows(nodes, edges) if e[0] == "tag_topic"]
    assert [e[3] for e in edge_rows(nodes2, edges2) if e[0] == "tag_topic"] == [2 * w for w in weights]


@pytest.mark.parametrize(
    "tag", ["/a", "a/", "a//b", "/", "//", "a" * 10_000, "/".join("abcdefghijkl"), "é/日本", "note:i"]
)
def test_odd_tags_build_a_graph_with_every_file_reachable(tag):
    nodes, edges = build(("u", "i", {"what": [tag, ""]}), ("u", "j", {"what": [""]}))
    targets = {(e[0], e[2]) for e in edge_rows(nodes, edges)}
    assert {("topic_file", "i"), ("topic_file", "j")} <= targets
    assert ("tag", tag) in [(n[2], n[3]) for n in node_rows(nodes)]
    assert "" not in [n[3] for n in node_rows(nodes)]
    assert sum(e[0] == "ontology" for e in edge_rows(nodes, edges)) <= taggraph.MAX_LEVELS


def test_a_topic_of_its_own_stays_apart_from_a_tag_of_that_name():
    nodes, _ = build(("u", "i", {"what": ["note:j"]}), ("u", "j", {}))
    assert [n[3] for n in node_rows(nodes) if n[2] == "topic"] == ["note:j", "note:j"]


def test_no_notes_and_no_tags():
    nodes, edges = build()
    assert len(nodes) == len(edges) == 0
    nodes, edges = build(("u", "i", {}))
    assert [n[2:] for n in node_rows(nodes)] == [("file", "i"), ("topic", "note:i")]
    assert edge_rows(nodes, edges) == [("topic_file", "note:i", "i", 1)]


def test_scattered_case_is_refused():
    with pytest.raises(SchemaError, match="stand together"):
        build(("u", "i", {}), ("v", "i", {}), ("u", "j", {}))


tag = st.sampled_from(["a", "b", "a/b", "a/b/c", "c/a", "c/b/a", "d", "e"])
note = st.dictionaries(st.sampled_from(tables.NOTE_FIELDS), st.lists(tag, max_size=4), max_size=4)
case = st.lists(note, max_size=6)


@settings(deadline=None, max_examples=60)
@given(st.lists(case, min_size=1, max_size=3))
def test_cases_do_not_depend_on_each_other_and_edges_are_simple(cases):
    rows = [[(f"c{c}", f"i{n}", note) for n, note in enumerate(rows)] for c, rows in enumerate(cases)]
    nodes, edges = build(*(row for part in rows for row in part))
    alone = [build(*part) for part in rows]
    assert node_rows(nodes) == [row for n, _ in alone for row in node_rows(n)]
    assert edge_rows(nodes, edges) == [row for n, e in alone for row in edge_rows(n, e)]
    ends = list(zip(*(edges[c].to_pylist() for c in ("case_id", "source", "target")), strict=True))
    assert ends == sorted(set(ends))
    assert all(source != target for _, source, target in ends)
    files = Counter(e[2] for e in edge_rows(nodes, edges) if e[0] == "topic_file")
    assert files == Counter(row[1] for part in rows for row in part)


def brute_force(sets, options):
    held_by = Counter(a for s in sets for a in s)
    shared = {}
    for i, j in combinations(range(len(sets)), 2):
        both = sets[i] & sets[j]
        if len(both) >= options.shared_attributes and any(held_by[a] <= options.hub_topics for a in both):
            shared[i, j] = shared[j, i] = len(both)
    kept = set()
    for i in range(len(sets)):
        mine = sorted((-n, b) for (a, b), n in shared.items() if a == i)[: options.max_neighbours]
        kept |= {(i, b) for _, b in mine} | {(b, i) for _, b in mine}
    return sorted((i, j, shared[i, j]) for i, j in kept)


@settings(deadline=None, max_examples=150)
@given(
    st.lists(st.sets(st.integers(0, 9), max_size=8), max_size=12),
    st.integers(1, 4),
    st.integers(2, 6),
    st.integers(1, 5),
)
def test_similar_topics_equal_brute_force(sets, least, hub, most):
    options = taggraph.Options(shared_attributes=least, hub_topics=hub, max_neighbours=most)
    topic = np.repeat(np.arange(len(sets)), [len(s) for s in sets])
    attribute = np.array([a for s in sets for a in sorted(s)], np.int64)
    found = taggraph.similar_topics(topic, attribute, len(sets), options)
    assert list(zip(found.source, found.target, found.shared, strict=True)) == brute_force(sets, options)


def test_hub_attributes_make_no_work():
    topics = 20_000
    every = np.arange(topics)
    # Three hubs that all topics have, and one attribute of its own for each.
    topic = np.tile(every, 4)
    attribute = np.concatenate([np.zeros(topics), np.ones(topics), np.full(topics, 2), 3 + every]).astype(np.int64)
    found = taggraph.similar_topics(topic, attribute, topics, taggraph.Options())
    assert found.candidates == 0
    assert len(found.source) == 0


def test_work_and_output_are_linear_in_the_case():
    topics, group = 4_000, 100
    options = taggraph.Options()
    # Groups of 100 topics share three attributes, so that within a group all pairs are similar.
    topic = np.tile(np.arange(topics), 3)
    attribute = np.concatenate([np.arange(topics) // group * 3 + n for n in range(3)])
    found = taggraph.similar_topics(topic, attribute, topics, options)
    assert found.candidates == topics // group * (group * (group - 1) // 2)
    assert len(found.source) <= 2 * topics * options.max_neighbours
    assert (np.bincount(found.source) >= options.max_neighbours).all()


def test_kinds_are_found_by_name():
    assert "taggraph" in graphs.names()
    assert graphs.load("taggraph").NAME == "taggraph"
    with pytest.raises(UsageError, match="Did you mean 'taggraph'"):
        graphs.load("tagraph")


def test_options_are_checked():
    kind = graphs.load("taggraph")
    assert graphs.parse_options(kind, {"max_neighbours": 3}).max_neighbours == 3
    with pytest.raises(ConfigError, match="Did you mean 'max_neighbours'"):
        graphs.parse_options(kind, {"max_neighbour": 3})
    with pytest.raises(ConfigError, match="hub_topics"):
        graphs.parse_options(kind, {"hub_topics": 0})
