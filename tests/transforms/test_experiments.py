"""Rows of results: by hand, and against scipy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kendalltau

from schemas.config import EvaluateConfig
from schemas.tables import build
from transforms.experiments import (
    Row,
    deltas,
    differences,
    draws,
    kendall,
    labelled,
    means,
    of_cases,
    ratio,
    results,
    taus,
)

CONFIG = EvaluateConfig(resamples=500)


def judged(rows):
    """Rows of (case, question, retriever, level, value), for every metric."""
    every = [(*row, metric) for row in rows for metric in ("mrr", "recall@5", "recall@10", "ndcg@10")]
    return build(
        "question_metrics",
        {
            "case_id": [r[0] for r in every],
            "question_id": [r[1] for r in every],
            "question_type": [""] * len(every),
            "answerable": [True] * len(every),
            "retriever": [r[2] for r in every],
            "level": [r[3] for r in every],
            "metric": [r[5] for r in every],
            "value": [float(r[4]) for r in every],
        },
    )


def pick(rows, **wanted):
    found = [row for row in rows if all(getattr(row, name) == value for name, value in wanted.items())]
    assert len(found) == 1, found
    return found[0]


def two_levels(order_a, order_b, cases=4):
    rows = []
    for case in range(cases):
        for level, order in (("interaction", order_a), ("session", order_b)):
            rows += [(f"c{case}", "q", name, level, place / 10) for place, name in enumerate(order)]
    return judged(rows)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=2, max_size=7))
def test_kendall_is_that_of_scipy(pairs):
    a, b = np.array(pairs, float).T
    expected = kendalltau(a, b).statistic
    found = kendall(a[:, None], b[:, None])[0]
    assert found == pytest.approx(0.0 if np.isnan(expected) else expected)


def test_tau_of_the_same_order_and_of_the_reverse():
    names = ["x", "y", "z"]
    same = pick(taus(lambda: [two_levels(names, names)], names, CONFIG, "mrr"), variant="interaction ~ session")
    assert (same.value, same.low, same.high, same.cases, same.questions) == (1.0, 1.0, 1.0, 4, 4)
    back = pick(taus(lambda: [two_levels(names, names[::-1])], names, CONFIG, "mrr"), variant="interaction ~ session")
    assert back.value == -1.0
    assert not list(taus(lambda: [two_levels(["x"], ["x"])], ["x"], CONFIG, "mrr"))


def test_draws_are_cases_or_the_questions_of_the_only_one():
    rows = judged([("a", "q1", "x", "session", 0.5), ("a", "q2", "x", "session", 1.0)])
    by_case = draws([rows], "session", "mrr", ["x"])
    assert (by_case.keys, by_case.sums.tolist(), by_case.counts.tolist()) == (["a"], [[1.5]], [2.0])
    auto = draws([rows], "session", "mrr", ["x"], "auto")
    assert (auto.sums.tolist(), auto.counts.tolist(), auto.cases) == ([[0.5, 1.0]], [1.0, 1.0], 1)
    more = [rows, judged([("b", "q", "x", "session", 0.0)])]
    assert draws(more, "session", "mrr", ["x"], "auto").keys == ["a", "b"]
    assert draws(more, "session", "mrr", ["nobody"]).keys == []
    assert draws([], "session", "mrr", ["x"]).cases == 0


def test_ratios_are_of_sums_and_skip_what_has_no_count():
    row = ratio("v", "p", "m", np.array([1.0, 3.0, 0.0]), np.array([2.0, 4.0, 0.0]), CONFIG)
    assert row.value == pytest.approx(4 / 6)
    # Draws of two cases: twice the first, one of each, twice the second.
    assert (row.low, row.high) == (pytest.approx(0.5), pytest.approx(0.75))
    assert ratio("v", "p", "m", np.zeros(1), np.zeros(1), CONFIG).value == 0.0
    large = ratio("v", "", "m", np.array([5000.0, 7000.0]), np.ones(2), CONFIG)
    assert (large.value, large.low, large.high) == (6000.0, 5000.0, 7000.0)


def test_a_change_of_deltas_is_of_both_sides():
    a = judged(
        [(f"c{n}", "q", name, "session", value) for n in range(5) for name, value in (("graph", 0.8), ("bm25", 0.3))]
    )
    b = judged(
        [(f"d{n}", "q", name, "session", value) for n in range(3) for name, value in (("graph", 0.4), ("bm25", 0.5))]
    )
    rows = list(deltas([("A", lambda: [a]), ("B", lambda: [b])], [("graph", "bm25")], CONFIG))
    own = [pick(rows, variant=name, metric="recall@10") for name in ("A", "B", "B - A")]
    assert [row.value for row in own] == pytest.approx([0.5, -0.1, -0.6])
    assert [(row.low, row.high) for row in own] == [pytest.approx((v, v)) for v in (0.5, -0.1, -0.6)]
    assert [(row.questions, row.cases, row.baseline) for row in own] == [(5, 5, "bm25"), (3, 3, "bm25"), (8, 8, "bm25")]


def test_sides_are_drawn_independently():
    """The change of two like sides is not certain to be 0, as it would be with the same draws."""
    values = (0.0, 0.2, 0.6, 1.0)
    side = judged(
        [
            (f"c{n}", "q", name, "session", value * (name == "graph"))
            for n, value in enumerate(values)
            for name in ("graph", "bm25")
        ]
    )
    rows = list(deltas([("A", lambda: [side]), ("B", lambda: [side])], [("graph", "bm25")], CONFIG))
    change = pick(rows, variant="B - A", metric="mrr")
    assert change.value == 0
    assert change.low < -0.1 < 0.1 < change.high


def test_means_and_differences_of_renamed_sides():
    a = judged([(f"c{n}", "q", "bm25", "session", 0.25) for n in range(3)])
    b = judged([(f"c{n}", "q", "bm25", "session", 0.75) for n in range(3)])
    (row,) = [
        r for r in means(lambda: [a], ["bm25"], CONFIG, variant="v", x=2.0) if r.metric == "mrr" and r.scope == "all"
    ]
    assert (row.value, row.x, row.cases) == (0.25, 2.0, 3)
    both = lambda: [*labelled([b], "@b"), *labelled([a], "@a")]  # noqa: E731
    rows = list(differences(both, [("bm25@b", "bm25@a")], CONFIG, variant="b", as_named=lambda x, y: (x[:-2], "a")))
    row = pick(rows, metric="mrr")
    assert (row.retriever, row.baseline, row.value, row.level) == ("bm25", "a", 0.5, "session")
    assert [part.num_rows for part in of_cases([a], ["c1"])] == [4]
    assert results("e", [row]).to_pylist()[0]["experiment"] == "e"
    assert results("e", []).num_rows == 0
    assert Row("v", "", "m", 1.0).scope == "all"
