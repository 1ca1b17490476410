import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexers import csr, traversal
from indexers.postings import build_postings, vocabulary_table
from indexers.queries import questions_to_queries
from indexers.scores import Scores
from schemas import tables
from schemas.errors import SchemaError
from transforms.graphs import taggraph
from transforms.tokens import tokenize


def make_notes(cases):
    """Make notes of {case: [what tags of each interaction]}."""
    rows = [(case, f"i{n}", tags) for case, notes in cases.items() for n, tags in enumerate(notes)]
    columns = {name: pa.array([[]] * len(rows), pa.list_(pa.string())) for name in tables.NOTE_FIELDS}
    columns["what"] = pa.array([r[2] for r in rows], pa.list_(pa.string()))
    columns["case_id"] = pa.array([r[0] for r in rows], pa.string())
    columns["interaction_id"] = pa.array([r[1] for r in rows], pa.string())
    columns["summary"] = columns["status"] = pa.array([""] * len(rows), pa.string())
    columns["error"] = pa.nulls(len(rows), pa.string())
    columns["prompt_tokens"] = columns["completion_tokens"] = pa.array([0] * len(rows), pa.int32())
    return tables.build("notes", columns)


def make(cases):
    nodes, edges, _ = taggraph.build({"notes": make_notes(cases)}, taggraph.Options())
    graphs = csr.graphs(csr.matrices(nodes, edges), "taggraph")
    texts, owner = traversal.searched_texts(nodes, ("tag",))
    tokens = tokenize(texts)
    case = [graphs.case_ids.index(c) for c in owner.to_pylist()]
    offsets = np.searchsorted(case, np.arange(graphs.cases + 1))
    return graphs, build_postings(tokens, offsets), vocabulary_table(tokens.terms), nodes


def ask(graphs, postings, vocabulary, *questions, **options):
    case = np.array([graphs.case_ids.index(c) for c, _ in questions], np.int64)
    queries = questions_to_queries(pa.array([q for _, q in questions], pa.string()), case, vocabulary)
    matches = traversal.match_nodes(graphs, ("tag",), postings, queries)
    scores = traversal.traverse(graphs, matches, **options)
    return [scores.values[a:b].tolist() for a, b in zip(scores.offsets[:-1], scores.offsets[1:], strict=True)]


CASES = {
    "u": [["pet/dog/training"], ["pet/dog"], ["pet/cat"], ["pet/dog_food", "budget"], ["travel/rome"], []],
    "v": [["dog"]],
}


def test_distances_by_hand():
    graphs, postings, vocabulary, _ = make(CASES)
    # "training" opens pet/dog/training (topic pet/dog); pet/dog is one step up, in the same topic; pet two; the others
    # are further. In sixths: 1 -> 6, 1/2 -> 3, 1/3 -> 2.
    # "food" opens pet/dog_food; its siblings pet/dog and pet/cat are two steps away.
    # "dog" opens three tags: topic pet/dog has two of them at 0 and pet/dog_food's at 2; pet/cat two at 2, for
    # pet/dog/training is three steps away; pet/dog_food's own topic one at 0, one at 2.
    assert ask(
        graphs,
        postings,
        vocabulary,
        ("u", "training"),
        ("u", "FOOD!"),
        ("u", "dog"),
        ("u", "Rome"),
        ("v", "dog"),
        ("u", "x"),
    ) == [
        [6, 6, 0, 0, 0, 0],
        [2, 2, 2, 6, 0, 0],
        [14, 14, 4, 8, 0, 0],
        [0, 0, 0, 0, 6, 0],
        [6],
        [0, 0, 0, 0, 0, 0],
    ]


def test_depth_and_fan_in():
    graphs, postings, vocabulary, _ = make(CASES)
    assert ask(graphs, postings, vocabulary, ("u", "dog"), depth=0) == [[2, 2, 0, 1, 0, 0]]
    assert ask(graphs, postings, vocabulary, ("u", "dog"), depth=1) == [[4, 4, 0, 2, 0, 0]]
    assert ask(graphs, postings, vocabulary, ("u", "dog"), fan_in=2) == [[12, 12, 4, 8, 0, 0]]
    assert ask(graphs, postings, vocabulary, ("u", "dog"), fan_in=1) == [[6, 6, 2, 6, 0, 0]]
    with pytest.raises(ValueError, match="depth"):
        ask(graphs, postings, vocabulary, ("u", "dog"), depth=3)


def test_wide_ontology_nodes_are_not_descended():
    wide = {"u": [[f"root/leaf{n}"] for n in range(5)]}
    graphs, postings, vocabulary, _ = make(wide)
    assert ask(graphs, postings, vocabulary, ("u", "leaf0"), max_children=5) == [[6, 2, 2, 2, 2]]
    assert ask(graphs, postings, vocabulary, ("u", "leaf0"), max_children=4) == [[6, 0, 0, 0, 0]]
    assert ask(graphs, postings, vocabulary, ("u", "root"), max_children=4) == [[6, 6, 6, 6, 6]]


def test_nothing_matches_in_empty_graphs():
    graphs, postings, vocabulary, _ = make({"u": [[], []]})
    assert ask(graphs, postings, vocabulary, ("u", "anything"), ("u", "")) == [[0, 0], [0, 0]]
    assert ask(graphs, postings, vocabulary) == []


def test_other_tags_in_postings_than_in_graphs_are_refused():
    graphs, _, vocabulary, _ = make(CASES)
    _, postings, _, _ = make({"u": [["a"]], "v": [["a"]]})
    queries = questions_to_queries(pa.array(["a"]), np.array([0]), vocabulary)
    with pytest.raises(SchemaError, match="same tags"):
        traversal.match_nodes(graphs, ("tag",), postings, queries)


def oracle(nodes, graphs, case, question, fan_in, max_children):
    """Walk the graph of one case with dictionaries."""
    number = graphs.case_ids.index(case)
    base = graphs.node_offsets[number]
    rows = [r for r in nodes.select(["case_id", "kind", "key"]).to_pylist() if r["case_id"] == case]
    adjacency = graphs.adjacency()
    kinds = [graphs.edge_kind_names[k] for k in graphs.edge_kinds]
    out = {"ontology": {}, "tag_topic": {}, "topic_file": {}}
    for node in range(len(rows)):
        for e in range(adjacency.indptr[base + node], adjacency.indptr[base + node + 1]):
            if kinds[e] in out:
                out[kinds[e]].setdefault(node, []).append(int(adjacency.indices[e] - base))
    parents = {c: p for p, children in out["ontology"].items() for c in children}
    words = set(question.split())
    given = {}
    for tag, row in enumerate(rows):
        if row["kind"] != "tag" or not words & set(row["key"].replace("/", " ").replace("_", " ").split()):
            continue
        distance, border = {tag: 0}, [tag]
        for step in (1, 2):
            following = []
            for node in border:
                children = out["ontology"].get(node, [])
                near = (children if len(children) <= max_children else []) + (
                    [parents[node]] if node in parents else []
                )
                following += [n for n in near if n not in distance and not distance.update({n: step})]
            border = following
        best = {}
        for node, d in distance.items():
            for topic in out["tag_topic"].get(node, []):
                best[topic] = min(best.get(topic, 9), d)
        for topic, d in best.items():
            given.setdefault(topic, []).append(6 // (1 + d))
    files = [0] * int(np.diff(graphs.file_offsets)[number])
    for topic, values in given.items():
        for file in out["topic_file"][topic]:
            files[file] = max(files[file], sum(sorted(values, reverse=True)[:fan_in]))
    return files


tag = st.lists(st.sampled_from("abc"), min_size=1, max_size=4).map("/".join)
case = st.lists(st.lists(tag, max_size=4), min_size=1, max_size=5)


@settings(deadline=None, max_examples=80)
@given(case, case, st.sampled_from(["a", "b c", "a b c", "c c"]), st.integers(1, 4), st.integers(1, 3))
def test_equals_a_walk_by_hand(first, second, question, fan_in, max_children):
    graphs, postings, vocabulary, nodes = make({"u": first, "v": second})
    asked = [("u", question), ("v", question), ("u", "b")]
    found = ask(graphs, postings, vocabulary, *asked, fan_in=fan_in, max_children=max_children)
    assert found == [oracle(nodes, graphs, c, q, fan_in, max_children) for c, q in asked]


def test_work_in_parts_changes_nothing(monkeypatch):
    graphs, postings, vocabulary, _ = make(CASES)
    asked = [("u", "dog"), ("v", "dog"), ("u", "training"), ("u", "x"), ("u", "food rome")]
    whole = ask(graphs, postings, vocabulary, *asked)
    monkeypatch.setattr(traversal, "_CHUNK", 1)
    assert ask(graphs, postings, vocabulary, *asked) == whole


def test_content_orders_equals_and_never_others():
    offsets = np.array([0, 5])
    graph = Scores(offsets, np.array([6.0, 6.0, 7.0, 0.0, 6.0]))
    content = Scores(offsets, np.array([1.0, 1e300, 0.0, 1e300, 0.0]))
    scores = traversal.with_content(graph, content).values
    assert scores.argsort().tolist() == [3, 4, 0, 1, 2]
    assert scores[3] == 0
    assert scores[0] == pytest.approx(6.5 / 6)
