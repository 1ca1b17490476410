"""Forgetting: importance by hand, the replay against a slow one, and what must hold whatever the history."""

import math

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from indexers.csr import matrices
from schemas.config import ForgetConfig
from schemas.tables import build, validate
from tests.transforms.graph_tools import inputs
from transforms.forgetting import accessing, forget, importance, retrieved
from transforms.graphs import load

OWN = ForgetConfig()


def weigh(days=0.0, access=0.0, degree=0, turns=0, own=OWN):
    found = importance(np.array([days]), np.array([access]), np.array([degree]), np.array([turns]), own)
    return float(found[0])


def graph(*rows, kind="entity"):
    """Nodes, edges and interactions of cases; each row is (case, interaction, {note field: tags, day})."""
    made = inputs(*rows)
    builder = load(kind)
    nodes, edges, *_ = builder.build({name: made[name] for name in builder.INPUTS}, builder.Options())
    return nodes, edges, made["interactions"]


def history(*tags, case="a", step=1.0):
    return [(case, f"i{n}", {"what": list(one), "day": n * step}) for n, one in enumerate(tags)]


def keys(table, kind=None):
    return [row["key"] for row in table.to_pylist() if kind in (None, row["kind"])]


# -- importance -------------------------------------------------------------------------------------------------------


def test_importance_by_hand():
    assert weigh() == pytest.approx(0.35 + 0.20)
    assert weigh(days=90, turns=1000) == pytest.approx(0.175 + 0.10)
    assert weigh(days=90, degree=10, turns=1000) == pytest.approx(0.175 + 0.20 + 0.10)
    assert weigh(days=180, degree=10_000, turns=2000) == pytest.approx(0.0875 + 0.20 + 0.05)
    assert weigh(days=1e9, degree=1, turns=10**9) == pytest.approx(0.20 * math.log(2) / math.log(11), abs=1e-11)
    assert weigh(days=1e9, turns=10**9, access=math.log(4) / math.log(5)) == pytest.approx(
        0.25 * math.log(4) / math.log(5), abs=1e-11
    )


@given(
    st.floats(0, 1e6),
    st.floats(0, 1),
    st.integers(0, 10**6),
    st.integers(0, 10**7),
    st.sampled_from(["days", "access", "degree", "turns"]),
)
def test_importance_is_a_share_and_monotone(days, access, degree, turns, which):
    one = {"days": days, "access": access, "degree": degree, "turns": turns}
    more = {"days": days + 5, "access": min(access + 0.1, 1), "degree": degree + 3, "turns": turns + 9}
    before, after = weigh(**one), weigh(**{**one, which: more[which]})
    assert 0 <= before <= 1
    assert after >= before if which in ("access", "degree") else after <= before


def test_weights_are_one_at_most():
    with pytest.raises(ValidationError, match=r"1.2 in all"):
        ForgetConfig(weights={"age": 0.55})


# -- the replay -------------------------------------------------------------------------------------------------------


def test_a_node_goes_by_hand_and_comes_back():
    own = ForgetConfig(threshold=0.25, every=2, half_life_days=1, half_life_turns=1)
    tags = [["cat"], ["dog"], ["dog"], ["dog"], ["cat"], ["dog"]]
    nodes, edges, interactions = graph(*history(*tags))
    kept = forget(nodes, edges, interactions, own)
    one = 0.20 * math.log(2) / math.log(11)
    # Round 1: the cat was last told of one day and one turn ago, .35/2 + .20/2 + one edge = .33. Round 2: three ago.
    assert kept.forgotten.select(["kind", "key", "round", "returned"]).to_pylist() == [
        {"kind": "entity", "key": "cat", "round": 2, "returned": True}
    ]
    assert kept.forgotten["importance"][0].as_py() == pytest.approx(0.55 / 8 + one)
    assert keys(kept.nodes) == keys(nodes)
    left = {(row["source"], row["interaction_id"]) for row in kept.edges.to_pylist()}
    cat = keys(nodes).index("cat")
    assert {name for source, name in left if source == cat} == {"i4"}
    assert kept.edges.num_rows == edges.num_rows - 1

    gone = forget(*graph(*history(*tags[:4])), own)
    assert keys(gone.nodes) == ["i0", "i1", "i2", "i3", "dog"]
    assert gone.nodes["node_id"].to_pylist() == [0, 1, 2, 3, 4]
    assert gone.forgotten["returned"].to_pylist() == [False]
    assert set(gone.edges["source"].to_pylist()) == {4}


def test_losing_a_neighbour_lowers_the_degree_in_the_next_round():
    relations = [("a", "i0", "Ann", "Bob", "knows", []), ("a", "i0", "Bob", "Cid", "knows", [])]
    made = inputs(*[("a", f"i{n}", {"day": 0}) for n in range(30)], relations=relations)
    builder = load("entity")
    nodes, edges, _ = builder.build({name: made[name] for name in builder.INPUTS}, builder.Options())
    own = ForgetConfig(threshold=0.15, every=10, half_life_turns=1, weights={"age": 0, "access": 0})
    kept = forget(nodes, edges, made["interactions"], own)
    # Two edges are worth .2 ln 3 / ln 11 = .092, three .116: with .2 * 2^-9 all are below .15 in round 1.
    assert kept.forgotten["round"].to_pylist() == [1, 1, 1]
    own = own.model_copy(update={"threshold": 0.10})
    kept = forget(nodes, edges, made["interactions"], own)
    # Ann and Cid go first; Bob has three edges until then and one after.
    assert [(row["key"], row["round"]) for row in kept.forgotten.to_pylist()] == [("Ann", 1), ("Bob", 2), ("Cid", 1)]
    assert kept.forgotten["importance"][1].as_py() == pytest.approx(
        0.2 * math.log(2) / math.log(11) + 0.2 / 2**19, abs=1e-9
    )


def test_days_are_those_of_the_history():
    tags = [["cat"], ["dog"], ["dog"], ["dog"]]
    own = ForgetConfig(threshold=0.12, every=4, half_life_turns=1e9, weights={"age": 0.8, "turns": 0, "access": 0})
    assert forget(*graph(*history(*tags, step=1)), own).forgotten.num_rows == 0
    assert keys(forget(*graph(*history(*tags, step=200)), own).forgotten) == ["cat"]
    untimed = [(case, name, {**row, "day": None}) for case, name, row in history(*tags)]
    assert forget(*graph(*untimed), own).forgotten.num_rows == 0
    # What comes before the first time is taken to be of that time, and nothing runs backwards.
    late = [
        (case, name, {**row, "day": day}) for (case, name, row), day in zip(untimed, [None, 0, 900, 5], strict=True)
    ]
    found = forget(*graph(*late), own).forgotten
    assert keys(found) == ["cat"]
    assert found["importance"][0].as_py() == pytest.approx(0.8 * 2**-10 + 0.2 * math.log(2) / math.log(11))


def test_files_and_pinned_nodes_stay():
    tags = [[f"t{n}"] for n in range(9)] + [["last.one*"]]
    nodes, edges, interactions = graph(*history(*tags))
    all_gone = ForgetConfig(threshold=1, every=10)
    kept = forget(nodes, edges, interactions, all_gone)
    assert (keys(kept.nodes), kept.edges.num_rows, kept.pinned) == (keys(nodes, "file"), 0, 0)
    names = keys(nodes, "entity")
    for pinned, stay in ((["T1", "t?"], names[:9]), (["*.one[*"], []), (["*"], names), (["last*"], names[9:])):
        kept = forget(nodes, edges, interactions, all_gone.model_copy(update={"pinned": tuple(pinned)}))
        assert (keys(kept.nodes, "entity"), kept.pinned) == (stay, len(stay))
    kept = forget(nodes, edges, interactions, all_gone.model_copy(update={"pinned_kinds": ("entity", "file")}))
    assert (kept.nodes, kept.edges, kept.pinned) == (nodes, edges, 10)


def test_accesses_keep_a_node():
    tags = [["cat"], ["dog"], ["ant"], ["ant"]]
    nodes, edges, interactions = graph(*history(*tags, step=1e4))
    own = ForgetConfig(threshold=0.25, every=4, half_life_turns=0.01)
    assert keys(forget(nodes, edges, interactions, own).forgotten) == ["cat", "dog"]
    hits = pa.table({"case_id": ["a", "a", "zzz"], "interaction_id": ["i0", "i1", "i0"], "count": [3, 1, 99]})
    kept = forget(nodes, edges, interactions, own, hits)
    # ln 4 / ln 5 and ln 2 / ln 5 of .25, and .058 for the edge.
    assert keys(kept.forgotten) == ["dog"]
    assert kept.forgotten["importance"][0].as_py() == pytest.approx(
        0.25 * math.log(2) / math.log(5) + 0.2 * math.log(2) / math.log(11)
    )


def test_half_of_the_questions_count_as_accesses():
    asked = [f"q{n}" for n in range(200)]
    half = accessing(pa.chunked_array([["a"] * 200]), pa.chunked_array([asked]))
    assert 60 < half.sum() < 140
    again = accessing(pa.chunked_array([["a"] * 3]), pa.chunked_array([[asked[7], asked[0], asked[7]]]))
    assert again.tolist() == [half[7], half[0], half[7]]
    rows = [(q, r, f"i{r}") for q in asked for r in (1, 2, 3)]
    ids, ranks, files = map(list, zip(*rows, strict=True))
    runs = build(
        "runs",
        {
            "case_id": ["a"] * 600,
            "question_id": ids,
            "retriever": ["x"] * 600,
            "rank": ranks,
            "interaction_id": files,
            "score": [1.0] * 600,
        },
    )
    count = int(half.sum())
    assert retrieved(runs, 2).to_pylist() == [
        {"case_id": "a", "interaction_id": "i1", "count": count},
        {"case_id": "a", "interaction_id": "i2", "count": count},
    ]
    assert retrieved(runs.slice(0, 0), 2).num_rows == 0


def slow(nodes, edges, interactions, own):
    """Replay one case interaction by interaction; returns the keys that went by round, and the edges that are left."""
    rows, ids = nodes.to_pylist(), interactions["interaction_id"].to_pylist()
    days = [time.timestamp() / 86400 for time in interactions["started_at"].to_pylist()]
    place = {name: n for n, name in enumerate(ids)}
    date = [place[edge["interaction_id"]] for edge in edges.to_pylist()]
    ends = [(edge["source"], edge["target"]) for edge in edges.to_pylist()]
    alive, last, gone = set(), {}, []
    for position in range(len(ids)):
        for edge, when in enumerate(date):
            if when == position:
                alive.add(edge)
                last.update(dict.fromkeys(ends[edge], position))
        if (position + 1) % own.every:
            continue
        dropped = set()
        for node, told in list(last.items()):
            degree = sum(node in ends[edge] for edge in alive)
            value = weigh(max(days[: position + 1]) - max(days[: told + 1]), 0, degree, position - told, own)
            if rows[node]["kind"] != "file" and value < own.threshold:
                dropped.add(node)
        alive = {edge for edge in alive if not dropped & set(ends[edge])}
        for node in sorted(dropped):
            del last[node]
            gone.append((rows[node]["key"], (position + 1) // own.every))
    return sorted(gone), sorted(alive)


TAG = st.sampled_from([f"t{n}" for n in range(6)])
CASES = st.lists(
    st.lists(st.tuples(st.lists(TAG, max_size=3), st.integers(0, 60)), min_size=1, max_size=14), max_size=3
)


def shard(drawn):
    rows = []
    for n, case in enumerate(drawn):
        for i, (tags, day) in enumerate(case):
            rows.append((f"case{n}", f"i{i}", {"what": tags, "day": day}))
    return graph(*rows)


@settings(max_examples=20, deadline=None)
@given(CASES.filter(bool), st.integers(1, 4), st.sampled_from([0.1, 0.2, 0.3, 0.4]))
def test_the_replay_equals_a_slow_one_in_any_batch_of_cases(drawn, every, threshold):
    own = ForgetConfig(threshold=threshold, every=every, half_life_days=20, half_life_turns=3)
    nodes, edges, interactions = shard(drawn)
    whole = forget(nodes, edges, interactions, own)
    for table in ("nodes", "edges", "forgotten"):
        validate(table, getattr(whole, table))
    matrices(whole.nodes, whole.edges)  # refuses gaps, disorder and edges that lead nowhere
    for n, case in enumerate(drawn):
        alone = forget(*shard([*[[([], 0)]] * n, case]), own)
        mine = {name: getattr(whole, name).filter(of(getattr(whole, name), f"case{n}")) for name in TABLES}
        for name in TABLES:
            other = getattr(alone, name).filter(of(getattr(alone, name), f"case{n}"))
            assert mine[name].to_pylist() == other.to_pylist()
        parts = (nodes, edges, interactions)
        own_nodes, own_edges, own_interactions = (part.filter(of(part, f"case{n}")) for part in parts)
        gone, left = slow(own_nodes, own_edges, own_interactions, own)
        forgotten = mine["forgotten"]
        assert sorted(zip(keys(forgotten), forgotten["round"].to_pylist(), strict=True)) == gone
        assert mine["edges"].num_rows == len(left)
        lost = forgotten.filter(pc.invert(forgotten["returned"])).num_rows
        assert mine["nodes"].num_rows == own_nodes.num_rows - lost
        assert all(value < threshold for value in forgotten["importance"].to_pylist())
        assert keys(mine["nodes"], "file") == own_interactions["interaction_id"].to_pylist()


TABLES = ("nodes", "edges", "forgotten")


def of(table, case):
    return pc.equal(table["case_id"].cast(pa.string()), case)


@settings(max_examples=25, deadline=None)
@given(CASES.filter(bool))
def test_threshold_0_changes_nothing(drawn):
    nodes, edges, interactions = shard(drawn)
    kept = forget(nodes, edges, interactions, ForgetConfig(threshold=0, every=1, half_life_turns=0.1))
    assert kept.nodes is nodes
    assert kept.edges is edges
    assert kept.forgotten.num_rows == 0


@pytest.mark.parametrize("kind", ["concept", "entity", "relations", "taggraph", "triples"])
def test_every_graph_kind_can_forget(kind):
    tags = [
        {"who": ["ann"], "what": [f"pet/t{n % 7}", f"x{n}"], "where": ["lisbon"], "extra": [f"y{n}"]} for n in range(40)
    ]
    rows = [("a", f"i{n}", {**one, "day": n}) for n, one in enumerate(tags)]
    nodes, edges, interactions = graph(*rows, kind=kind)
    own = ForgetConfig(threshold=0.3, every=5, half_life_days=1, half_life_turns=1)
    kept = forget(nodes, edges, interactions, own)
    assert kept.forgotten.num_rows > 0
    assert kept.nodes.num_rows < nodes.num_rows
    made = matrices(kept.nodes, kept.edges)
    assert len(made["file_nodes"][0].as_py()) == 40


def test_no_interactions_and_no_edges_are_no_trouble():
    nodes, edges, interactions = graph(*history(["cat"], []))
    own = ForgetConfig(threshold=1, every=1)
    for rows in (0, 1):
        kept = forget(nodes.slice(0, rows), edges.slice(0, 0), interactions.slice(0, rows), own)
        assert (kept.nodes.num_rows, kept.forgotten.num_rows) == (rows, 0)
