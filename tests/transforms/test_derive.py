"""Stores made of sessions: what is in them, what they are called, and what knows nothing of what they lack."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.tables import build
from transforms.derive import Log, pooled, sampled
from transforms.derived import groups

DAY = 86_400_000_000


def interactions(rows):
    """Rows of (case, session, number, day, text); the position is the place within the case."""
    seen: dict[str, int] = {}
    positions = []
    for case, *_ in rows:
        positions.append(seen.get(case, 0))
        seen[case] = positions[-1] + 1
    return build(
        "interactions",
        {
            "case_id": [r[0] for r in rows],
            "session_id": [r[1] for r in rows],
            "interaction_id": [f"{r[1]}/{r[2]}" for r in rows],
            "content_hash": [f"{r[3]} {r[4]}" for r in rows],
            "position": positions,
            "started_at": pa.array([None if r[3] is None else r[3] * DAY for r in rows], pa.timestamp("us", tz="UTC")),
            "started_at_text": [None] * len(rows),
            "user_text": [r[4] for r in rows],
            "assistant_text": [""] * len(rows),
            "speakers": [["user"]] * len(rows),
            "message_ids": [[f"{r[1]}:{r[2]}"] for r in rows],
            "source": ["a"] * len(rows),
            "source_offset": [0] * len(rows),
        },
    )


def questions(rows):
    """Rows of (case, id, gold sessions, gold interactions, gold messages, expected)."""
    return build(
        "questions",
        {
            "case_id": [r[0] for r in rows],
            "question_id": [r[1] for r in rows],
            "question": ["what?"] * len(rows),
            "question_type": ["t"] * len(rows),
            "asked_at": [None] * len(rows),
            "answer": [None] * len(rows),
            "gold_session_ids": [r[2] for r in rows],
            "gold_message_ids": [r[4] for r in rows],
            "gold_interaction_ids": [r[3] for r in rows],
            "expected_contains": [r[5] for r in rows],
            "answerable": [True] * len(rows),
        },
    )


@pytest.fixture
def log():
    rows = [("a", f"s{n}", i, n, f"text {n} {i}") for n in range(6) for i in range(2)]
    rows += [("b", f"s{n}", 0, n, "Lisbon" if n == 2 else "rain") for n in range(4)]
    asked = [
        ("a", "q1", ["s1"], ["s4/0"], [], []),
        ("a", "q2", [], [], ["s1:0", "s4:1"], []),
        ("a", "q3", ["gone"], [], [], []),
        ("b", "q1", [], [], [], ["lisbon", "nowhere"]),
    ]
    return Log(interactions(rows), questions(asked))


def stores(log, made):
    """Question id -> sessions of its store."""
    ids = log.interactions["session_id"].to_pylist()
    first = {int(number): ids[place] for place, number in reversed(list(enumerate(log.session)))}
    names = [(c, q) for c, q in zip(*(log.questions[n].to_pylist() for n in ("case_id", "question_id")), strict=True)]
    return {
        names[q]: {first[int(s)] for s in made.sessions[made.offsets[n] : made.offsets[n + 1]]}
        for q, n in zip(made.questions.tolist(), made.store.tolist(), strict=True)
    }


def test_without_others_a_store_has_its_evidence_alone(log):
    made = sampled(log, 7, count=0)
    assert stores(log, made) == {("a", "q1"): {"s1", "s4"}, ("a", "q2"): {"s1", "s4"}, ("b", "q1"): {"s2"}}
    # Two questions with the same sessions share a store; one whose evidence is nowhere is left out.
    assert made.store.tolist() == [0, 0, 1]


def test_as_many_others_as_asked_for_and_nested(log):
    sizes = []
    before: dict = {}
    for count in range(6):
        found = stores(log, sampled(log, 7, count=count))
        sizes.append([len(sessions) for sessions in found.values()])
        assert all(found[name] >= sessions for name, sessions in before.items())
        before = found
    assert sizes == [[2, 2, 1], [3, 3, 2], [4, 4, 3], [5, 5, 4], [6, 6, 4], [6, 6, 4]]


def test_shares_are_of_the_others(log):
    assert [len(s) for s in stores(log, sampled(log, 7, share=0.5)).values()] == [4, 4, 3]
    assert [len(s) for s in stores(log, sampled(log, 7, share=1.0)).values()] == [6, 6, 4]


def test_the_seed_draws_and_other_cases_do_not(log):
    drawn = {seed: stores(log, sampled(log, seed, count=1)) for seed in range(20)}
    assert len({frozenset(found["a", "q1"]) for found in drawn.values()}) > 2
    alone = Log(log.interactions.slice(0, 12), log.questions.slice(0, 3))
    assert stores(alone, sampled(alone, 3, count=1))["a", "q1"] == drawn[3]["a", "q1"]


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_samples_hold_evidence_and_are_nested(data):
    sizes = data.draw(st.lists(st.integers(1, 8), min_size=1, max_size=4))
    rows = [(f"c{c}", f"s{n}", 0, n, "x") for c, size in enumerate(sizes) for n in range(size)]
    asked = []
    for c, size in enumerate(sizes):
        gold = data.draw(st.lists(st.integers(0, size - 1), max_size=3, unique=True))
        asked.append((f"c{c}", "q", [f"s{n}" for n in gold], [], [], []))
    log = Log(interactions(rows), questions(asked))
    small, large = (stores(log, sampled(log, 1, count=count)) for count in (1, 3))
    assert set(small) == {(case, "q") for case, _, gold, *_ in asked if gold}
    for case, _, gold, *_ in asked:
        if gold:
            assert set(gold) <= small[case, "q"] <= large[case, "q"]
            others = sizes[int(case[1:])] - len(gold)
            assert len(small[case, "q"]) == len(gold) + min(1, others)


def test_tables_of_derived_stores(log):
    (some,) = groups(log, sampled(log, 7, count=0))
    made = some.interactions()
    assert made["interaction_id"].to_pylist() == ["s1/0", "s1/1", "s4/0", "s4/1", "s2/0"]
    assert made["position"].to_pylist() == [0, 1, 2, 3, 0]
    assert made["case_id"].to_pylist() == ["00000000"] * 4 + ["00000001"]
    asked = some.questions()
    assert asked["question_id"].to_pylist() == ["0", "1", "3"]
    assert asked["case_id"].to_pylist() == ["00000000", "00000000", "00000001"]
    relations = build(
        "triples",
        {
            "case_id": ["a", "a", "a", "b"],
            "interaction_id": ["s4/1", "s1/0", "s2/0", "s2/0"],
            "subject": ["one", "two", "three", "four"],
            "predicate": ["is"] * 4,
            "object": [""] * 4,
        },
    )
    # In order of the store; what stands for an interaction of another session or case is not there.
    assert some.by_interaction("triples", relations)["subject"].to_pylist() == ["two", "one", "four"]


def test_facts_go_where_all_that_they_rest_on_is(log):
    facts = build(
        "facts",
        {
            "case_id": ["a", "a", "a", "b"],
            "fact_id": ["f1", "f2", "f3", "f1"],
            "text": ["in", "half", "of nothing", "other"],
            "interaction_ids": [["s4/0", "s1/0"], ["s1/0", "s2/0"], [], ["s2/0"]],
            "concepts": [[]] * 4,
        },
    )
    (some,) = groups(log, sampled(log, 7, count=0))
    made = some.by_evidence("facts", facts)
    assert made["text"].to_pylist() == ["in", "other"]
    assert made["interaction_ids"].to_pylist() == [["s4/0", "s1/0"], ["s2/0"]]
    (whole,) = groups(log, pooled(log), pool=True)
    pool = whole.by_evidence("facts", facts)
    assert pool["fact_id"].to_pylist() == ["a/f1", "a/f2", "b/f1"]
    assert pool["interaction_ids"].to_pylist() == [["a/s4/0", "a/s1/0"], ["a/s1/0", "a/s2/0"], ["b/s2/0"]]


def test_stores_are_made_some_at_once(log):
    made = sampled(log, 7, count=0)
    parts = list(groups(log, made, rows=2))
    assert [part.interactions().num_rows for part in parts] == [4, 1]
    assert [part.questions()["question_id"].to_pylist() for part in parts] == [["0", "1"], ["3"]]


def test_vectors_and_names_come_back(log):
    (some,) = groups(log, sampled(log, 7, count=0))

    def vectors(kind, table, column):
        ids = table[column].to_pylist()
        rows = [[float(n), 0.0] for n in range(len(ids))]
        return build(
            "vectors",
            {
                "case_id": table["case_id"],
                "kind": [kind] * len(ids),
                "key": ids,
                "content_hash": ["h"] * len(ids),
                "vector": pa.array(rows, pa.list_(pa.field("element", pa.float32(), nullable=False))),
            },
        )

    found = some.vectors(vectors("interaction", log.interactions, "interaction_id"), "interactions")
    assert [v[0] for v in found["vector"].to_pylist()] == [2, 3, 8, 9, 14]
    assert found["key"].to_pylist() == ["s1/0", "s1/1", "s4/0", "s4/1", "s2/0"]
    asked = some.vectors(vectors("question", log.questions, "question_id"), "questions")
    assert [v[0] for v in asked["vector"].to_pylist()] == [0, 1, 3]
    judged = build(
        "question_metrics",
        {
            "case_id": ["00000001"],
            "question_id": ["3"],
            "question_type": ["t"],
            "answerable": [True],
            "retriever": ["bm25"],
            "level": ["session"],
            "metric": ["mrr"],
            "value": [0.5],
        },
    )
    (row,) = some.asked_by(judged).to_pylist()
    assert (row["case_id"], row["question_id"], row["value"]) == ("b", "q1", 0.5)


def test_a_pool_merges_what_is_the_same_and_nothing_else():
    rows = [("a", "s1", 0, 5, "same"), ("a", "s1", 1, 5, "too"), ("a", "s2", 0, 1, "mine")]
    rows += [
        ("b", "s1", 0, 5, "same"),
        ("b", "s1", 1, 5, "too"),
        ("b", "s2", 0, None, "other"),
        ("c", "s1", 0, 5, "same"),
    ]
    asked = [("b", "q", ["s1"], ["s1/1", "s9/0"], ["s2:0"], []), ("a", "q", ["s2"], [], [], [])]
    log = Log(interactions(rows), questions(asked))
    (some,) = groups(log, pooled(log), pool=True)
    made = some.interactions()
    # By time, those without one last; b's s1 is a's, and c's, which lacks an interaction, is not.
    assert made["interaction_id"].to_pylist() == ["a/s2/0", "a/s1/0", "a/s1/1", "c/s1/0", "b/s2/0"]
    assert made["session_id"].to_pylist() == ["a/s2", "a/s1", "a/s1", "c/s1", "b/s2"]
    assert made["message_ids"].to_pylist()[2] == ["a/s1:1"]
    assert made["position"].to_pylist() == [0, 1, 2, 3, 4]
    first, second = some.questions().to_pylist()
    assert first["gold_session_ids"] == ["a/s1"]
    assert first["gold_interaction_ids"] == ["a/s1/1", "b/s9/0"]
    assert first["gold_message_ids"] == ["b/s2:0"]
    assert second["gold_session_ids"] == ["a/s2"]


def test_ids_do_not_mix_cases_up():
    rows = [("a", "b\x1fc", 0, 0, "x"), ("a\x1fb", "c", 0, 0, "y")]
    log = Log(interactions(rows), questions([("a\x1fb", "q", ["c"], [], [], [])]))
    assert sampled(log, 7, count=5).sessions.tolist() == [1]


def test_nothing_asked_gives_nothing(log):
    none = Log(log.interactions, log.questions.slice(0, 0))
    made = sampled(none, 7, count=3)
    assert made.offsets.tolist() == [0]
    assert not list(groups(none, made))
    assert np.array_equal(pooled(none).questions, [])
