from collections import Counter
from itertools import chain

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas import comparison
from schemas.config import EvaluateConfig
from schemas.errors import SchemaError
from schemas.tables import NOTE_FIELDS, build, empty
from transforms.compare import summary_table
from transforms.compare_graphs import GraphSize, compare_graphs, measure, total
from transforms.compare_notes import compare_notes, gini
from transforms.compare_questions import (
    count,
    metrics_table,
    pair,
    question_figures,
    question_rows,
    questions_table,
)
from transforms.metrics import question_metrics

CONFIG = EvaluateConfig(resamples=200)
METRICS = ("mrr", "recall@5")


def notes(*rows):
    """A notes table of (case, interaction, status, {field: tags})."""
    columns = {
        "case_id": [row[0] for row in rows],
        "interaction_id": [row[1] for row in rows],
        **{name: [list(row[3].get(name, [])) for row in rows] for name in NOTE_FIELDS},
        "summary": [""] * len(rows),
        "status": [row[2] for row in rows],
        "error": [None] * len(rows),
        "prompt_tokens": [0] * len(rows),
        "completion_tokens": [0] * len(rows),
    }
    return build("notes", columns)


OLD = (
    ("c1", "n1", "ok", {"who": ["ann"], "what": ["trip/lisbon", "tram"]}),
    ("c1", "n2", "ok", {"what": ["trip/lisbon", "trip/lisbon"]}),  # said twice, used once
    ("c1", "n3", "failed", {}),
    ("c2", "m1", "empty", {}),
)
NEW = (
    ("c1", "n1", "repaired", {"who": ["ann"], "what": ["trip/lisbon"]}),
    ("c1", "n2", "ok", {"what": ["cat"], "extra": ["trip/lisbon"]}),
    ("c1", "n3", "ok", {"what": ["x"]}),
    ("c1", "n4", "ok", {"what": ["tram"]}),
    ("c2", "m1", "empty", {}),
)


def figures(rows):
    return {(r.section, r.name, r.scope): r for r in rows}


def sides(found, *key):
    row = figures(found)[(*key, "") if len(key) == 2 else key]
    return row.a, row.b


def both(found, *key):
    return figures(found)[(*key, "") if len(key) == 2 else key].both


@pytest.mark.parametrize(
    ("uses", "expected"),
    [
        ([1, 1, 1, 1], 0.0),
        ([0, 0, 0, 4], 0.75),
        ([1, 1, 2], 1 / 6),
        ([3], 0.0),
        ([2, 1], 1 / 6),
    ],
)
def test_gini_by_hand(uses, expected):
    assert gini(np.zeros(len(uses), np.int64), np.array(uses)).tolist() == [pytest.approx(expected)]


def test_gini_of_several_owners_and_of_nothing():
    found = gini(np.array([2, 0, 2, 3, 2]), np.array([1, 5, 2, 0, 1]))
    assert found[[0, 2]] == pytest.approx([0.0, 1 / 6])
    assert np.isnan(found[[1, 3]]).all()
    assert gini(np.zeros(0, np.int64), np.zeros(0, np.int64)).size == 0


def test_notes_by_hand():
    found, tags = compare_notes([(notes(*OLD), notes(*NEW))])
    assert sides(found, "interactions", "cases") == (2, 2)
    assert sides(found, "interactions", "interactions") == (4, 5)
    assert both(found, "interactions", "interactions") == 4
    statuses = {s: sides(found, "notes", "notes", s) for s in ("ok", "repaired", "empty", "failed")}
    assert statuses == {"ok": (2, 3), "repaired": (0, 1), "empty": (1, 1), "failed": (1, 0)}
    assert sides(found, "tags", "tags_per_note") == (4 / 4, 6 / 5)
    assert sides(found, "tags", "tags_per_note", "who") == (1 / 4, 1 / 5)
    assert sides(found, "tags", "tags_per_note", "what") == (3 / 4, 4 / 5)
    assert sides(found, "tags", "tags_per_note", "extra") == (0, 1 / 5)
    assert sides(found, "tags", "distinct_per_case_mean") == (1.5, 2.5)
    assert sides(found, "tags", "distinct_per_case_median") == (1.5, 2.5)
    assert sides(found, "tags", "uses_per_distinct") == (4 / 3, 6 / 5)
    # Uses 1 1 2 of three tags and 1 1 1 1 2 of five; the case without tags has no coefficient.
    assert sides(found, "tags", "gini_mean") == (pytest.approx(1 / 6), pytest.approx(2 / 15))
    assert (*sides(found, "tags", "distinct_field_tags"), both(found, "tags", "distinct_field_tags")) == (3, 6, 3)
    assert figures(found)["tags", "tags_per_note", ""].difference == pytest.approx(0.2)
    columns = ("field", "tag", "uses_a", "uses_b", "difference", "cases_a", "cases_b")
    assert [tuple(row[name] for name in columns) for row in tags.to_pylist()] == [
        ("what", "cat", 0, 1, 1, 0, 1),
        ("what", "x", 0, 1, 1, 0, 1),
        ("extra", "trip/lisbon", 0, 1, 1, 0, 1),
        ("who", "ann", 1, 1, 0, 1, 1),
        ("what", "tram", 1, 1, 0, 1, 1),
        ("what", "trip/lisbon", 2, 1, -1, 1, 1),
    ]


def test_agreement_by_hand():
    found, _ = compare_notes([(notes(*OLD), notes(*NEW))])
    # n3 failed in A and n4 is in B alone; of n1, n2 and m1 the last has no tag on either side.
    assert both(found, "agreement", "interactions") == 3
    assert both(found, "agreement", "with_tags") == 2
    assert both(found, "agreement", "jaccard_mean") == pytest.approx((2 / 3 + 0 / 3) / 2)
    assert (*sides(found, "agreement", "tags"), both(found, "agreement", "tags")) == (4, 4, 2)
    assert [both(found, "agreement", name) for name in ("precision", "recall", "f1")] == [0.5, 0.5, 0.5]
    assert [both(found, "agreement", name, "what") for name in ("precision", "recall", "f1")] == [
        pytest.approx(1 / 2),
        pytest.approx(1 / 3),
        pytest.approx(2 / 5),
    ]
    assert [both(found, "agreement", name, "extra") for name in ("precision", "recall", "f1")] == [0.0, None, 0.0]
    assert [both(found, "agreement", name, "why") for name in ("precision", "recall", "f1")] == [None, None, None]


def test_the_same_notes_agree_wholly():
    found, tags = compare_notes([(notes(*NEW), notes(*NEW))])
    assert both(found, "agreement", "jaccard_mean") == 1.0
    assert {row.difference for row in found if row.a is not None} == {0}
    assert set(tags["difference"].to_pylist()) == {0}


def test_a_side_of_failures_leaves_nothing_to_agree_on():
    failed = [(case, name, "failed", {}) for case, name, _, _ in NEW]
    found, tags = compare_notes([(notes(*NEW), notes(*failed))])
    assert sides(found, "notes", "notes", "failed") == (0, 5)
    assert sides(found, "tags", "gini_mean") == (pytest.approx(2 / 15), None)
    assert figures(found)["tags", "gini_mean", ""].difference is None
    assert both(found, "agreement", "interactions") == 0
    assert both(found, "agreement", "jaccard_mean") is None
    assert {row["difference"] for row in tags.to_pylist()} == {-1}


@pytest.mark.parametrize("shards", [[], [(empty("notes"), empty("notes"))]])
def test_without_notes_there_are_only_zeros_and_nothing(shards):
    found, tags = compare_notes(shards)
    assert {value for row in found for value in (row.a, row.b, row.both)} == {0, None}
    assert tags.schema.equals(comparison.SCHEMAS["tags"])
    assert tags.num_rows == 0
    assert summary_table(found).num_rows == len(found)


TAGS = st.sampled_from(["a", "b", "a/b", "c_d"])
NOTE = st.fixed_dictionaries({name: st.lists(TAGS, max_size=3) for name in ("who", "what", "extra")})
SIDE = st.dictionaries(
    st.tuples(st.sampled_from(["c0", "c1", "c2"]), st.sampled_from(["i0", "i1", "i2", "i3"])),
    st.tuples(st.sampled_from(["ok", "empty", "failed"]), NOTE),
    max_size=8,
)


def table_of(side, case=None):
    rows = [(c, i, status, {} if status == "failed" else tags) for (c, i), (status, tags) in sorted(side.items())]
    return notes(*(row for row in rows if case in (None, row[0])))


def entries(side, key):
    status, tags = side[key]
    return set() if status == "failed" else {(name, tag) for name, found in tags.items() for tag in found}


@given(SIDE, SIDE)
@settings(deadline=None, max_examples=40)
def test_notes_agree_with_plain_counting(a, b):
    found, tags = compare_notes([(table_of(a), table_of(b))])
    judged = [key for key in a if key in b and "failed" not in (a[key][0], b[key][0])]
    pairs = [(entries(a, key), entries(b, key)) for key in judged]
    indices = [len(one & two) / len(one | two) for one, two in pairs if one | two]
    assert both(found, "agreement", "interactions") == len(judged)
    assert both(found, "agreement", "jaccard_mean") == (pytest.approx(sum(indices) / len(indices)) if indices else None)
    common, all_b = sum(len(x & y) for x, y in pairs), sum(len(y) for _, y in pairs)
    assert both(found, "agreement", "precision") == (pytest.approx(common / all_b) if all_b else None)
    uses = [Counter(chain.from_iterable(entries(side, key) for key in side)) for side in (a, b)]
    counted = {(r["field"], r["tag"]): (r["uses_a"], r["uses_b"]) for r in tags.to_pylist()}
    assert counted == {key: (uses[0][key], uses[1][key]) for key in {*uses[0], *uses[1]}}


@given(SIDE, SIDE)
@settings(deadline=None, max_examples=30)
def test_notes_the_other_way_round_are_the_mirror_and_shards_do_not_matter(a, b):
    found, tags = compare_notes([(table_of(a), table_of(b))])
    back, back_tags = compare_notes([(table_of(b), table_of(a))])
    mirrored = {}
    for key, row in figures(back).items():
        swapped = {"precision": "recall", "recall": "precision"}.get(key[1], key[1])
        difference = None if row.difference is None else -row.difference
        mirrored[key[0], swapped, key[2]] = (row.b, row.a, row.both, difference)
    assert {key: (row.a, row.b, row.both, row.difference) for key, row in figures(found).items()} == mirrored
    assert {(r["field"], r["tag"], r["uses_a"], r["cases_b"], r["difference"]) for r in tags.to_pylist()} == {
        (r["field"], r["tag"], r["uses_b"], r["cases_a"], -r["difference"]) for r in back_tags.to_pylist()
    }
    cut = [(table_of(a, case), table_of(b, case)) for case in ("c2", "c0", "c1")]
    split, split_tags = compare_notes(cut)
    assert split == found
    assert split_tags.equals(tags)


def graph(*cases):
    """Tables nodes and edges of (case, kinds of nodes, [(source, target, kind)])."""
    nodes = [(case, n, kind) for case, kinds, _ in cases for n, kind in enumerate(kinds)]
    edges = [(case, *edge) for case, _, found in cases for edge in found]
    columns = {
        "case_id": [row[0] for row in nodes],
        "graph": ["g"] * len(nodes),
        "node_id": [row[1] for row in nodes],
        "kind": [row[2] for row in nodes],
        "key": [str(row[1]) for row in nodes],
        "text": [None] * len(nodes),
        "interaction_id": [None] * len(nodes),
    }
    ends = {
        "case_id": [row[0] for row in edges],
        "graph": ["g"] * len(edges),
        "source": [row[1] for row in edges],
        "target": [row[2] for row in edges],
        "kind": [row[3] for row in edges],
        "weight": [1.0] * len(edges),
        "interaction_id": [None] * len(edges),
    }
    return build("nodes", columns), build("edges", ends)


def test_graph_size_by_hand():
    # Node 2 of c1 has three edges; file 1 of c1 and the only file of c2 have none.
    size = measure(
        *graph(
            ("c1", ["file", "file", "tag", "topic"], [(2, 3, "tag_topic"), (3, 0, "topic_file"), (2, 0, "tag_topic")]),
            ("c2", ["file", "tag", "tag"], [(1, 2, "ontology")]),
        )
    )
    assert size == GraphSize(
        2,
        {"file": 3, "tag": 3, "topic": 1},
        {"tag_topic": 2, "topic_file": 1, "ontology": 1},
        2,
        2,
    )
    both_shards = total(
        [size, measure(*graph(("c3", ["file", "tag", "tag"], [(1, 0, "x"), (2, 0, "x"), (0, 1, "x")])))]
    )
    assert (both_shards.cases, both_shards.max_degree, both_shards.isolated) == (3, 3, 2)
    assert dict(both_shards.edges) == {"tag_topic": 2, "topic_file": 1, "ontology": 1, "x": 3}


def test_graphs_side_by_side():
    size = measure(*graph(("c1", ["file", "tag"], [(1, 0, "tag_file")]), ("c2", ["file"], [])))
    other = measure(*graph(("c1", ["file"], []), ("c2", ["file"], [])))
    rows = {(r.name, r.scope): (r.a, r.b, r.difference) for r in compare_graphs("g", size, other)}
    assert rows["nodes", "g"] == (3, 2, -1)
    assert rows["nodes:tag", "g"] == (1, 0, -1)
    assert rows["edges:tag_file", "g"] == (1, 0, -1)
    assert rows["nodes_per_case", "g"] == (1.5, 1.0, -0.5)
    assert rows["degree_mean", "g"] == (pytest.approx(2 / 3), 0, pytest.approx(-2 / 3))
    assert rows["isolated_files", "g"] == (1, 2, 1)
    alone = {r.name: (r.a, r.b, r.difference) for r in compare_graphs("g", None, size)}
    assert alone["nodes"] == (None, 3, None)
    assert alone["nodes:tag"] == (None, 1, None)
    nothing = {r.name: (r.a, r.b) for r in compare_graphs("g", total([]), measure(empty("nodes"), empty("edges")))}
    assert nothing["degree_mean"] == (None, None)
    assert nothing["nodes"] == (0, 0)


def interactions(*cases, size=4):
    ids = [(case, n) for case in cases for n in range(size)]
    return build(
        "interactions",
        {
            "case_id": [case for case, _ in ids],
            "session_id": [f"s{n}" for _, n in ids],
            "interaction_id": [f"i{n}" for _, n in ids],
            "content_hash": ["0"] * len(ids),
            "position": [n for _, n in ids],
            "started_at": [None] * len(ids),
            "started_at_text": [None] * len(ids),
            "user_text": [f"{case} said {n} " + "é" * 300 for case, n in ids],
            "assistant_text": [""] * len(ids),
            "speakers": [["user"]] * len(ids),
            "message_ids": [[f"m{n}"] for _, n in ids],
            "source": ["a"] * len(ids),
            "source_offset": [0] * len(ids),
        },
    )


def questions(*rows, sessions_only=False):
    """A questions table of (case, question, gold interactions)."""
    gold = [[] if sessions_only else list(row[2]) for row in rows]
    return build(
        "questions",
        {
            "case_id": [row[0] for row in rows],
            "question_id": [row[1] for row in rows],
            "question": [f"what of {row[1]}?" for row in rows],
            "question_type": ["" for _ in rows],
            "asked_at": [None for _ in rows],
            "answer": [None for _ in rows],
            "gold_session_ids": [[f"s{name[1:]}" for name in row[2]] for row in rows],
            "gold_message_ids": [[] for _ in rows],
            "gold_interaction_ids": gold,
            "expected_contains": [[] for _ in rows],
            "answerable": [True for _ in rows],
        },
    )


def run(preset, rankings):
    """A runs table of {(case, question): ranked interactions}."""
    rows = [(*key, n + 1, name) for key, names in rankings.items() for n, name in enumerate(names)]
    return build(
        "runs",
        {
            "case_id": [row[0] for row in rows],
            "question_id": [row[1] for row in rows],
            "retriever": [preset] * len(rows),
            "rank": [row[2] for row in rows],
            "interaction_id": [row[3] for row in rows],
            "score": [1.0 / row[2] for row in rows],
        },
    )


def compared(asked, old, new, level="interaction", cases=("c1", "c2"), config=CONFIG):
    """Compare {preset: rankings} of two sides; gives metrics, questions, counts and figures."""
    held = interactions(*cases)
    runs = [{name: run(name, rankings) for name, rankings in side.items()} for side in (old, new)]
    judged = [question_metrics(side, asked, held, ks=(5,), depth=10) for side in runs]
    presets = list(old)
    paired = pair(*judged, presets, level, METRICS)
    firsts = [pa.concat_tables(side.values()) for side in runs]
    firsts = [table.filter(pa.compute.equal(table["rank"], 1)) for table in firsts]
    rows = question_rows(paired, asked, tuple(firsts), (held, held), level)
    made = metrics_table([paired], presets, level, METRICS, config)
    table = questions_table([rows], presets)
    return made, table, count(tuple(judged), paired, presets[0], level), list(question_figures(table, made))


ASKED = (("c1", "q1", ["i0"]), ("c1", "q2", ["i1", "i2"]), ("c2", "q1", ["i3"]))
OLD_RUN = {("c1", "q1"): ["i1", "i0"], ("c1", "q2"): ["i2", "i1"], ("c2", "q1"): ["i0"]}
NEW_RUN = {("c1", "q1"): ["i0"], ("c1", "q2"): ["i0", "i3", "i1"], ("c2", "q1"): ["i0", "i1", "i2", "i3"]}


def test_questions_by_hand():
    made, table, counts, found = compared(questions(*ASKED), {"p": OLD_RUN}, {"p": NEW_RUN})
    rows = table.to_pylist()
    # mrr 1/2 -> 1, 1 -> 1/3, 0 -> 1/4; most gained first.
    assert [(r["case_id"], r["question_id"], r["rank_a"], r["rank_b"]) for r in rows] == [
        ("c1", "q1", 2, 1),
        ("c2", "q1", None, 4),
        ("c1", "q2", 1, 3),
    ]
    assert [r["difference"] for r in rows] == pytest.approx([0.5, 0.25, -2 / 3])
    assert [(r["first_a"], r["first_b"]) for r in rows] == [("i1", "i0"), ("i0", "i0"), ("i2", "i0")]
    assert rows[0]["first_a_text"].startswith("c1 said 1 é")
    assert rows[1]["gold_text"].startswith("c2 said 3 é")
    assert rows[2]["gold_ids"] == ["i1", "i2"]
    assert rows[2]["gold_text"].startswith("c1 said 1 é")
    assert {len(r["gold_text"]) for r in rows} == {200}
    assert rows[0]["question"] == "what of q1?"
    assert counts == (3, 3, 3)
    by_name = {(r.section, r.name): r for r in found}
    assert [by_name["questions", name].both for name in ("gained", "lost", "same")] == [2, 1, 0]
    (mrr, recall) = made.to_pylist()
    assert (mrr["metric"], recall["metric"]) == ("mrr", "recall@5")
    assert (mrr["mean_a"], mrr["mean_b"]) == (pytest.approx(0.5), pytest.approx((1 + 1 / 3 + 1 / 4) / 3))
    assert mrr["difference"] == pytest.approx(mrr["mean_b"] - mrr["mean_a"])
    assert (mrr["questions"], mrr["cases"]) == (3, 2)
    # Cases differ by -1/6 and 1/4 in sum: of four sign patterns, only the two that weigh them alike are as far off.
    assert mrr["p_value"] == 1.0
    assert recall["p_value"] == 1.0
    assert (by_name["metrics", "mrr"].a, by_name["metrics", "mrr"].p_holm) == (mrr["mean_a"], 1.0)


def test_effect_and_p_of_cases_that_all_gain():
    cases = [f"c{n}" for n in range(6)]
    asked = questions(*((case, "q", ["i0"]) for case in cases))
    second = {(case, "q"): ["i1", "i0"] for case in cases}
    first = {(case, "q"): ["i0"] for case in cases}
    lucky = {key: (["i0"] if n else ["i1", "i2", "i0"]) for n, key in enumerate(second)}
    made, *_ = compared(asked, {"p": second, "r": second}, {"p": first, "r": lucky}, cases=cases)
    rows = {(r["retriever"], r["metric"]): r for r in made.to_pylist()}
    # 2 of 64 sign patterns are as far off as six gains of 1/2; Holm over the two presets, not over the metrics.
    assert rows["p", "mrr"]["p_value"] == 2 / 64
    assert rows["p", "mrr"]["p_holm"] == 4 / 64
    assert (rows["p", "mrr"]["low"], rows["p", "mrr"]["high"]) == (0.5, 0.5)
    assert rows["p", "mrr"]["effect"] is None
    # One case loses 1/6; turning it alone gives a sum that is further off still.
    gains = np.array([-1 / 6] + [1 / 2] * 5)
    assert rows["r", "mrr"]["effect"] == pytest.approx(gains.mean() / gains.std(ddof=1))
    assert rows["r", "mrr"]["p_value"] == 4 / 64
    assert rows["r", "mrr"]["p_holm"] == 4 / 64


def test_one_case_is_drawn_by_question_and_one_question_has_no_interval():
    made, table, *_ = compared(questions(*ASKED[:2]), {"p": OLD_RUN}, {"p": NEW_RUN}, cases=("c1",))
    (mrr, _) = made.to_pylist()
    assert (mrr["mean_a"], mrr["mean_b"]) == (0.75, pytest.approx(2 / 3))
    # Two questions, which gain 1/2 and lose 2/3: one of them twice, with chance 1/4 each, gives the ends.
    assert (mrr["low"], mrr["high"]) == pytest.approx((-2 / 3, 1 / 2))
    assert table.num_rows == 2
    made, *_ = compared(questions(ASKED[0]), {"p": OLD_RUN}, {"p": NEW_RUN}, cases=("c1",))
    assert [made.to_pylist()[0][name] for name in ("low", "high", "effect", "p_value", "p_holm")] == [None] * 5


def test_a_question_without_ranking_is_found_nowhere():
    _, table, *_ = compared(questions(*ASKED), {"p": OLD_RUN}, {"p": {("c1", "q1"): ["i0"]}})
    lost = {(r["case_id"], r["question_id"]): r for r in table.to_pylist()}["c1", "q2"]
    assert (lost["rank_b"], lost["first_b"], lost["first_b_text"], lost["mrr_b"]) == (None, None, None, 0.0)
    assert lost["first_a"] == "i2"


def test_only_questions_of_both_sides_are_compared():
    held = interactions("c1", "c2")
    a = question_metrics({"p": run("p", OLD_RUN)}, questions(*ASKED[:2]), held, ks=(5,), depth=10)
    b = question_metrics({"p": run("p", NEW_RUN)}, questions(*ASKED[1:]), held, ks=(5,), depth=10)
    paired = pair(a, b, ["p"], "interaction", METRICS)
    assert paired["question_id"].unique().to_list() == ["q2"]
    assert count((a, b), paired, "p", "interaction") == (2, 2, 1)


def test_sessions_where_there_is_no_gold_interaction():
    asked = questions(*ASKED, sessions_only=True)
    made, table, *_ = compared(asked, {"p": OLD_RUN}, {"p": NEW_RUN}, level="session")
    row = {(r["case_id"], r["question_id"]): r for r in table.to_pylist()}["c1", "q2"]
    assert (row["gold_ids"], row["gold_text"], row["rank_a"], row["rank_b"]) == (["s1", "s2"], "", 1, 3)
    assert set(made["level"].to_pylist()) == {"session"}
    none, nothing, counts, found = compared(asked, {"p": OLD_RUN}, {"p": NEW_RUN})
    assert (none.num_rows, nothing.num_rows, counts, found) == (0, 0, (0, 0, 0), [])


RANKING = st.permutations(["i0", "i1", "i2", "i3"]).flatmap(lambda p: st.integers(0, 4).map(lambda n: list(p[:n])))
RANKINGS = st.fixed_dictionaries({(case, name): RANKING for case, name, _ in ASKED})


@given(RANKINGS, RANKINGS, RANKINGS)
@settings(deadline=None, max_examples=25)
def test_questions_the_other_way_round_are_the_mirror(p, q, r):
    asked = questions(*ASKED)
    made, table, *_ = compared(asked, {"p": p, "r": r}, {"p": q, "r": r})
    back, back_table, *_ = compared(asked, {"p": q, "r": r}, {"p": p, "r": r})
    for one, two in zip(made.to_pylist(), back.to_pylist(), strict=True):
        assert (one["mean_a"], one["mean_b"], one["difference"]) == (two["mean_b"], two["mean_a"], -two["difference"])
        assert (one["p_value"], one["p_holm"]) == (two["p_value"], two["p_holm"])
        assert (one["low"], one["high"]) == (pytest.approx(-two["high"]), pytest.approx(-two["low"]))
        if one["retriever"] == "r":
            assert (one["difference"], one["low"], one["high"], one["p_value"]) == (0, 0, 0, 1)
    mirrored = {(x["retriever"], x["case_id"], x["question_id"]): x for x in back_table.to_pylist()}
    for row in table.to_pylist():
        other = mirrored[row["retriever"], row["case_id"], row["question_id"]]
        assert (row["rank_a"], row["first_b"], row["difference"]) == (
            other["rank_b"],
            other["first_a"],
            -other["difference"],
        )


def test_every_field_of_a_comparison_is_documented():
    for name, layout in comparison.SCHEMAS.items():
        assert all(field.metadata and field.metadata[b"doc"] for field in layout), name


def test_a_column_that_does_not_fit_is_refused():
    columns = {name: [] for name in comparison.SCHEMAS["tags"].names}
    assert comparison.build("tags", columns).num_rows == 0
    with pytest.raises(SchemaError, match=r"tags\.uses_a"):
        comparison.build("tags", {**columns, "uses_a": ["many"]})
    with pytest.raises(SchemaError, match=r"tags\.tag: 1 null"):
        comparison.build("tags", {**columns, "tag": [None]})
