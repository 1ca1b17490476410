import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.config import EvaluateConfig
from schemas.errors import SchemaError
from schemas.tables import build, validate
from transforms.contains import expecting, holders
from transforms.evaluate import evaluate, summarise
from transforms.metrics import from_hits, metric_names, question_metrics

KS = (1, 3)


def interactions(rows):
    return pa.table(
        {
            "case_id": pa.array([r[0] for r in rows], pa.string()).dictionary_encode(),
            "session_id": pa.array([r[1] for r in rows], pa.string()).dictionary_encode(),
            "interaction_id": pa.array([r[2] for r in rows], pa.string()),
            "message_ids": pa.array([r[3] for r in rows], pa.list_(pa.string())),
        }
    )


def questions(rows):
    return build(
        "questions",
        {
            "case_id": [r["case"] for r in rows],
            "question_id": [r["id"] for r in rows],
            "question": ["?"] * len(rows),
            "question_type": [r.get("type", "") for r in rows],
            "asked_at": [None] * len(rows),
            "answer": [None] * len(rows),
            "gold_session_ids": [r.get("sessions", []) for r in rows],
            "gold_message_ids": [r.get("messages", []) for r in rows],
            "gold_interaction_ids": [r.get("gold", []) for r in rows],
            "expected_contains": [r.get("expected", []) for r in rows],
            "answerable": [r.get("answerable", True) for r in rows],
        },
    )


def run(rows, name="p"):
    return build(
        "runs",
        {
            "case_id": [r[0] for r in rows],
            "question_id": [r[1] for r in rows],
            "retriever": [name] * len(rows),
            "rank": [r[2] for r in rows],
            "interaction_id": [r[3] for r in rows],
            "score": [r[4] if len(r) > 4 else 1.0 / r[2] for r in rows],
        },
    )


def values(table, question="q", level="interaction", preset="p"):
    return {
        r["metric"]: r["value"]
        for r in table.to_pylist()
        if (r["question_id"], r["level"], r["retriever"]) == (question, level, preset)
    }


CORPUS = interactions(
    [
        ("a", "s1", "i1", ["m1", "m2"]),
        ("a", "s1", "i2", ["m3", "m4"]),
        ("a", "s2", "i3", ["m5", "m2"]),
        ("a", "s3", "i4", ["m6"]),
        ("b", "s1", "i1", ["m1"]),
    ]
)


def test_formulas_by_hand():
    got = from_hits(np.array([0, 0]), np.array([2, 4]), np.array([3, 2]), (1, 3, 5))
    expected = dict.fromkeys(metric_names((1, 3, 5)), 0.0)
    expected |= {"mrr": 1 / 2, "recall@3": 1 / 3, "recall@5": 2 / 3, "hit@3": 1, "hit@5": 1}
    ideal = 1 + 1 / math.log2(3) + 1 / 2
    expected["ndcg@10"] = (1 / math.log2(3) + 1 / math.log2(5)) / ideal
    expected["map"] = (1 / 2 + 2 / 4) / 3
    assert dict(zip(metric_names((1, 3, 5)), got[0], strict=True)) == pytest.approx(expected, abs=1e-12)
    assert not got[1].any()


def test_ndcg_ideal_stops_at_ten():
    got = from_hits(np.zeros(10, int), np.arange(1, 11), np.array([25]), (10,))
    assert dict(zip(metric_names((10,)), got[0], strict=True))["ndcg@10"] == pytest.approx(1.0)
    assert dict(zip(metric_names((10,)), got[0], strict=True))["recall@10"] == pytest.approx(10 / 25)


def test_three_levels_by_hand():
    asked = questions([{"case": "a", "id": "q", "gold": ["i3"], "sessions": ["s2", "s3"], "messages": ["m2", "m5"]}])
    ranked = run([("a", "q", 1, "i2"), ("a", "q", 2, "i1"), ("a", "q", 3, "i3"), ("a", "q", 4, "i4")])
    got = question_metrics({"p": ranked}, asked, CORPUS, ks=KS, depth=3)
    validate("question_metrics", got)
    assert values(got) == pytest.approx(
        {"mrr": 1 / 3, "recall@1": 0, "recall@3": 1, "hit@1": 0, "hit@3": 1, "ndcg@10": 0.5, "map": 1 / 3}
    )
    # Messages in order: m3 m4 m1 m2 m5 (m2 of i3 is a repeat): gold at 4 and 5.
    message = values(got, level="message")
    assert message["mrr"] == pytest.approx(1 / 4)
    assert message["map"] == pytest.approx((1 / 4 + 2 / 5) / 2)
    # Sessions in order: s1 s2 s3; the row past the depth counts for them.
    session = values(got, level="session")
    assert session["mrr"] == pytest.approx(1 / 2)
    assert session["recall@3"] == 1.0
    assert session["map"] == pytest.approx((1 / 2 + 2 / 3) / 2)


def test_rows_past_the_depth_count_for_sessions_only():
    asked = questions([{"case": "a", "id": "q", "gold": ["i4"], "sessions": ["s3"], "messages": ["m6"]}])
    ranked = run([("a", "q", 1, "i1"), ("a", "q", 2, "i4")])
    got = question_metrics({"p": ranked}, asked, CORPUS, ks=KS, depth=1)
    assert values(got)["mrr"] == 0.0
    assert values(got, level="message")["mrr"] == 0.0
    assert values(got, level="session")["mrr"] == 0.5


def test_sessions_end_at_forty():
    corpus = interactions([("a", f"s{n}", f"i{n}", [f"m{n}"]) for n in range(50)])
    asked = questions([{"case": "a", "id": f"q{n}", "sessions": [f"s{n}"]} for n in (39, 40)])
    ranked = run([("a", q, n + 1, f"i{n}") for q in ("q39", "q40") for n in range(50)])
    got = question_metrics({"p": ranked}, asked, corpus, ks=KS, depth=10)
    assert values(got, "q39", "session")["mrr"] == pytest.approx(1 / 40)
    assert values(got, "q40", "session")["mrr"] == 0.0


def test_question_that_the_run_lacks_counts_zero():
    asked = questions([{"case": "a", "id": "q", "gold": ["i1"]}, {"case": "a", "id": "q2", "gold": ["i1"]}])
    out = evaluate({"p": run([("a", "q", 1, "i1")]), "none": run([])}, asked, CORPUS, EvaluateConfig(ks=KS), 10)
    assert set(values(out["question_metrics"], "q2").values()) == {0.0}
    means = {(r["retriever"], r["metric"]): r["mean"] for r in out["metrics"].to_pylist() if r["scope"] == "all"}
    assert means["p", "mrr"] == 0.5
    assert means["none", "mrr"] == 0.0


def test_population_is_the_questions_with_gold_at_that_level():
    asked = questions([{"case": "a", "id": "q", "sessions": ["s1"]}, {"case": "a", "id": "q2", "gold": ["i1"]}])
    got = question_metrics({"p": run([])}, asked, CORPUS, ks=KS, depth=10)
    assert {(r["question_id"], r["level"]) for r in got.to_pylist()} == {("q", "session"), ("q2", "interaction")}


def test_a_constant_scorer_gains_nothing():
    asked = questions([{"case": "a", "id": "q", "gold": ["i4"]}])
    ranked = run([("a", "q", n + 1, f"i{n + 1}", 7.0) for n in range(4)])
    shuffled = ranked.take(pa.array([3, 1, 0, 2]))
    for table in (ranked, shuffled):
        assert values(question_metrics({"p": table}, asked, CORPUS, ks=KS, depth=10))["mrr"] == 0.25


def test_same_ids_in_another_case_are_another_document():
    asked = questions([{"case": "b", "id": "q", "gold": ["i1"]}, {"case": "a", "id": "q", "gold": ["i2"]}])
    ranked = run([("a", "q", 1, "i1"), ("a", "q", 2, "i2"), ("b", "q", 1, "i1")])
    got = question_metrics({"p": ranked}, asked, CORPUS, ks=KS, depth=10).to_pylist()
    assert {r["case_id"]: r["value"] for r in got if r["metric"] == "mrr"} == {"a": 0.5, "b": 1.0}


def test_gold_counts_once_and_gold_that_nothing_holds_counts_as_missed():
    asked = questions([{"case": "a", "id": "q", "gold": ["i1", "i1", "gone"]}])
    got = question_metrics({"p": run([("a", "q", 1, "i1")])}, asked, CORPUS, ks=KS, depth=10)
    assert values(got)["recall@1"] == 0.5


def test_unknown_questions_are_ignored_and_unknown_interactions_are_an_error():
    asked = questions([{"case": "a", "id": "q", "gold": ["i1"]}])
    ignored = run([("a", "other", 1, "i1"), ("nowhere", "q", 1, "i1"), ("a", "q", 1, "i1")])
    assert values(question_metrics({"p": ignored}, asked, CORPUS, ks=KS, depth=10))["mrr"] == 1.0
    with pytest.raises(SchemaError, match="'i9' of case 'a'"):
        question_metrics({"p": run([("a", "q", 1, "i9")])}, asked, CORPUS, ks=KS, depth=10)


def test_nothing_at_all():
    for runs in ({}, {"p": run([])}):
        out = evaluate(runs, questions([]), interactions([]), EvaluateConfig(), 10)
        assert {name: table.num_rows for name, table in out.items()} == dict.fromkeys(out, 0)
        for name, table in out.items():
            validate(name, table)


def three_cases():
    corpus = interactions([(c, "s", f"i{n}", [f"m{n}"]) for c in "abc" for n in range(4)])
    asked = questions(
        [
            {"case": "a", "id": "q1", "gold": ["i0"], "type": "x"},
            {"case": "a", "id": "q2", "gold": ["i1"], "type": "y"},
            {"case": "b", "id": "q1", "gold": ["i2"], "type": "x"},
            {"case": "c", "id": "q1", "gold": ["i3"], "type": "x", "answerable": False},
            {"case": "c", "id": "q2", "type": "z", "answerable": False},
        ]
    )
    up = run([(c, q, n + 1, f"i{n}") for c, q in _pairs() for n in range(4)])
    down = run([(c, q, n + 1, f"i{3 - n}") for c, q in _pairs() for n in range(4)])
    return corpus, asked, {"up": up, "down": down}


def _pairs():
    return [("a", "q1"), ("a", "q2"), ("b", "q1"), ("c", "q1")]


def test_scopes_means_and_comparisons_by_hand():
    corpus, asked, runs = three_cases()
    out = evaluate(runs, asked, corpus, EvaluateConfig(ks=(1, 5, 10)), 10)
    for name, table in out.items():
        validate(name, table)
    rows = {
        (r["retriever"], r["scope"]): r
        for r in out["metrics"].to_pylist()
        if r["level"] == "interaction" and r["metric"] == "mrr"
    }
    assert {scope for _, scope in rows} == {"all", "answerable", "unanswerable", "type:x", "type:y"}
    assert rows["up", "all"]["mean"] == pytest.approx((1 + 1 / 2 + 1 / 3 + 1 / 4) / 4, abs=1e-12)
    assert (rows["up", "all"]["questions"], rows["up", "all"]["cases"]) == (4, 3)
    assert rows["up", "answerable"]["mean"] == pytest.approx((1 + 1 / 2 + 1 / 3) / 3, abs=1e-12)
    assert rows["up", "unanswerable"]["mean"] == 0.25
    assert rows["up", "unanswerable"]["low"] is None
    assert rows["up", "all"]["low"] <= rows["up", "all"]["mean"] <= rows["up", "all"]["high"]
    # Drawing one case three times gives the ends: case c (1/4) and case a (3/4), each with chance 1/27 > 2.5 %.
    assert (rows["up", "all"]["low"], rows["up", "all"]["high"]) == pytest.approx((0.25, 0.75), abs=1e-9)
    compared = {(r["level"], r["metric"]): r for r in out["comparisons"].to_pylist()}
    assert set(compared) == {("interaction", metric) for metric in ("mrr", "recall@5", "recall@10", "ndcg@10")}
    row = compared["interaction", "mrr"]
    # No baseline of the configuration was run, so the first preset is one.
    assert (row["retriever"], row["baseline"]) == ("down", "up")
    # Sums of differences per case: a (1/4-1)+(1/3-1/2) = -11/12, b 1/2-1/3 = 1/6, c 1-1/4 = 3/4; their sum is 0.
    assert row["difference"] == pytest.approx(0.0, abs=1e-12)
    assert row["p_value"] == 1.0
    means = np.array([-11 / 24, 1 / 6, 3 / 4])
    assert row["effect"] == pytest.approx(means.mean() / means.std(ddof=1), abs=1e-9)


def test_parts_in_any_order_give_the_same_tables():
    corpus, asked, runs = three_cases()
    config = EvaluateConfig(ks=KS, resamples=500)
    whole = evaluate(runs, asked, corpus, config, 10)
    judged = whole["question_metrics"]
    cases = judged.column("case_id").cast(pa.string())
    parts = [judged.filter(pa.compute.equal(cases, case)) for case in "cab"]
    again = summarise(parts, tuple(runs), config)
    for name in ("metrics", "comparisons"):
        assert again[name].equals(whole[name])


def test_small_blocks_change_nothing(monkeypatch):
    corpus, asked, runs = three_cases()
    config = EvaluateConfig(ks=KS, resamples=500)
    whole = evaluate(runs, asked, corpus, config, 10)
    monkeypatch.setattr("transforms.evaluate._BLOCK", 1000)
    monkeypatch.setattr("transforms.significance._CHUNK", 50)
    again = evaluate(runs, asked, corpus, config, 10)
    assert all(again[name].equals(whole[name]) for name in whole)


def told(*rows):
    """Interactions with texts: (case, id, user text, assistant text)."""
    table = interactions([(case, "s", key, [key]) for case, key, *_ in rows])
    for name, column in (("user_text", 2), ("assistant_text", 3)):
        table = table.append_column(name, pa.array([row[column] for row in rows], pa.large_string()))
    return table


STORY = told(
    ("a", "i1", "Miso the CAT moved to Bern.", "Lovely."),
    ("a", "i2", "My cat sleeps.", "On a chair in Bern?"),
    ("a", "i3", "The car is red.", ""),
    ("b", "i1", "A cat in Bern, but not mine.", ""),
)


def test_expected_texts_strict_and_permissive_by_hand():
    asked = questions([{"case": "a", "id": "q", "expected": ["Cat", "bern", "CAT", ""]}, {"case": "a", "id": "none"}])
    ranked = run([("a", "q", 1, "i3"), ("a", "q", 2, "i2"), ("a", "q", 3, "i1")])
    got = question_metrics({"p": ranked}, asked, STORY, ks=KS, depth=2)
    validate("question_metrics", got)
    assert {(r["question_id"], r["level"]) for r in got.to_pylist()} == {("q", "contains"), ("q", "contains_any")}
    # i1 and i2 hold both texts, in whatever part and case; the row past the depth does not count.
    for level in ("contains", "contains_any"):
        assert values(got, level=level) == pytest.approx(
            {
                **{"mrr": 1 / 2, "recall@1": 0, "recall@3": 1 / 2, "hit@1": 0, "hit@3": 1, "map": 1 / 4},
                "ndcg@10": (1 / math.log2(3)) / (1 + 1 / math.log2(3)),
            }
        )


def test_strict_relevance_asks_for_all_texts_in_one_interaction():
    asked = questions(
        [
            {"case": "a", "id": "one", "expected": ["cat", "sleeps"]},
            {"case": "a", "id": "apart", "expected": ["sleeps", "red"]},
            {"case": "a", "id": "nowhere", "expected": ["parrot"]},
            {"case": "elsewhere", "id": "q", "expected": ["cat"]},
            {"case": "b", "id": "blank", "expected": [""]},
        ]
    )
    ranked = run([("a", q, n, f"i{n}") for q in ("one", "apart", "nowhere") for n in (1, 2, 3)])
    got = question_metrics({"p": ranked}, asked, STORY, ks=KS, depth=10)
    mrr = {(r["question_id"], r["level"]): r["value"] for r in got.to_pylist() if r["metric"] == "mrr"}
    assert mrr == {("one", "contains"): 1 / 2, ("one", "contains_any"): 1.0, ("apart", "contains_any"): 1 / 2}


@pytest.mark.parametrize(
    ("expected", "said"),
    [("STRASSE", "strasse 5"), ("\u0130zmir", "i\u0307zmir"), ("\u039f\u0394\u039f\u03a3", "\u03bf\u03b4\u03bf\u03c2")],
)
def test_texts_are_compared_in_lower_case_as_python_makes_it(expected, said):
    asked = questions([{"case": "a", "id": "q", "expected": [expected]}])
    got = question_metrics(
        {"p": run([("a", "q", 1, "i1")])}, asked, told(("a", "i1", said, ""), ("a", "i2", "x", "")), ks=KS, depth=10
    )
    assert values(got, level="contains")["mrr"] == 1.0


@given(st.lists(st.lists(st.text("aAbB\u00df \0", max_size=4), max_size=3), min_size=1, max_size=4), st.data())
@settings(deadline=None, max_examples=60)
def test_holders_are_those_of_plain_python(expected, data):
    texts = data.draw(st.lists(st.tuples(st.sampled_from("xy"), st.text("aAbB\u00df ", max_size=8)), max_size=6))
    cases = [data.draw(st.sampled_from("xyz")) for _ in expected]
    rows = told(*((case, f"i{n}", text, "") for n, (case, text) in enumerate(texts)))
    wishes = list(zip(cases, expected, strict=True))
    asked = questions([{"case": case, "id": f"q{n}", "expected": some} for n, (case, some) in enumerate(wishes)])
    strict, permissive = holders(asked, rows)
    for pairs, held in ((strict, all), (permissive, any)):
        wanted = [
            (q, r)
            for q, (case, some) in enumerate(wishes)
            for r, (of, text) in enumerate(texts)
            if of == case and any(some) and held(one.lower() in text.lower() for one in some if one)
        ]
        assert list(zip(*(a.tolist() for a in pairs), strict=True)) == wanted
    assert expecting(asked) == any(any(some) for some in expected)


def test_a_corpus_without_expected_texts_keeps_its_bytes():
    asked = questions([{"case": "a", "id": "q", "gold": ["i1"]}])
    got = question_metrics({"p": run([("a", "q", 1, "i1")])}, asked, CORPUS, ks=KS, depth=10)
    assert got["level"].chunk(0).dictionary.to_pylist() == ["interaction", "message", "session"]


def test_means_and_comparisons_of_expected_texts():
    asked = questions([{"case": c, "id": "q", "expected": ["cat", "bern"]} for c in "ab"])
    runs = {
        "up": run([("a", "q", 1, "i1"), ("b", "q", 1, "i1")]),
        "down": run([("a", "q", 1, "i3"), ("a", "q", 2, "i2"), ("b", "q", 1, "i1")]),
    }
    out = evaluate(runs, asked, STORY, EvaluateConfig(ks=KS, resamples=100), 10)
    means = {
        (r["retriever"], r["level"]): r["mean"]
        for r in out["metrics"].to_pylist()
        if (r["scope"], r["metric"]) == ("all", "mrr")
    }
    assert means == {(p, level): m for p, m in (("up", 1.0), ("down", 0.75)) for level in ("contains", "contains_any")}
    assert {r["level"] for r in out["comparisons"].to_pylist()} == {"contains", "contains_any"}


def test_a_corpus_of_one_case_is_drawn_by_question():
    corpus = interactions([("a", "s", f"i{n}", []) for n in range(4)])
    asked = questions([{"case": "a", "id": f"q{n}", "gold": [f"i{n}"]} for n in range(4)])
    runs = {"p": run([("a", f"q{n}", 1, f"i{n}" if n < 3 else "i0") for n in range(4)])}
    config = EvaluateConfig(ks=(1,), resamples=2000)
    out = evaluate(runs, asked, corpus, config, 10)
    (row,) = [
        r for r in out["metrics"].to_pylist() if (r["level"], r["scope"], r["metric"]) == ("interaction", "all", "mrr")
    ]
    assert (row["mean"], row["questions"], row["cases"]) == (0.75, 4, 1)
    # Of four draws from (1, 1, 1, 0), at most one in 256 has no hit, and one in 20 only one.
    assert (row["low"], row["high"]) == (0.25, 1.0)
    by_case = evaluate(runs, asked, corpus, config.model_copy(update={"draw": "case"}), 10)
    assert {r["low"] for r in by_case["metrics"].to_pylist()} == {None}


def test_holm_counts_the_presets_of_each_baseline():
    corpus, asked, runs = three_cases()
    runs["same"] = runs["up"]
    out = evaluate(runs, asked, corpus, EvaluateConfig(ks=KS, baselines=("down", "same", "not-run")), 10)
    pairs = [(r["retriever"], r["baseline"]) for r in out["comparisons"].to_pylist() if r["metric"] == "mrr"]
    assert pairs == [("up", "down"), ("same", "down"), ("up", "same"), ("down", "same")]
    first = evaluate(runs, asked, corpus, EvaluateConfig(ks=KS, baselines=("not-run",)), 10)
    assert {r["baseline"] for r in first["comparisons"].to_pylist()} == {"up"}
