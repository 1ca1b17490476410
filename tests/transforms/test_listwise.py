import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transforms import listwise
from transforms.listwise import Lists, folds, gate_rows, per_question, rounded, select, train


def planted(weights, gate_weights, questions=300, size=8, seed=1):
    """Make questions whose gold is drawn from the softmax of a known model."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(questions * size, len(weights))).astype(np.float32)
    gates = rng.normal(size=(questions, 1)).astype(np.float32)
    per = np.asarray(weights) + gates * np.asarray(gate_weights)
    scores = (features.reshape(questions, size, -1) * per[:, None, :]).sum(axis=2)
    chance = np.exp(scores - scores.max(axis=1, keepdims=True))
    chance /= chance.sum(axis=1, keepdims=True)
    gold = np.array([rng.choice(size, p=row) for row in chance])
    relevant = np.zeros((questions, size), bool)
    relevant[np.arange(questions), gold] = True
    offsets = np.arange(questions + 1) * size
    return Lists(np.arange(questions), gates, offsets, features, relevant.ravel(), np.zeros(questions * size))


def test_planted_weights_are_found():
    lists = planted([2.0, 0.0, -1.0], [1.0, 0.0, 0.0], questions=2000)
    found = train(lists, 0.2, 0.2)
    assert found.weights[:, 0] == pytest.approx([2.0, 0.0, -1.0], abs=0.2)
    own = per_question(found, np.array([[1.0], [-1.0]], np.float32))
    assert own[0] - own[1] == pytest.approx([2.0, 0.0, 0.0], abs=0.4)


def test_one_question_by_hand():
    # Two documents, one feature that tells them apart by 1, gold the first: the slope of
    # ln(1 + exp(-w)) + l2 / 2 w^2 is 0 where 1 / (1 + exp(w)) = l2 w; feature scaled by its deviation 1/2: w = 2 w'.
    lists = Lists(
        np.zeros(1, np.int64),
        np.zeros((1, 0), np.float32),
        np.array([0, 2]),
        np.array([[1], [0]], np.float32),
        np.array([True, False]),
        np.zeros(2),
    )
    found = train(lists, 0.1, 1.0).weights[0, 0]
    scaled = found / 2
    assert 2 / (1 + np.exp(found)) == pytest.approx(0.1 * scaled, rel=1e-3)


def test_strength_draws_weights_to_nothing():
    lists = planted([2.0, 1.0], [1.0, 0.0])
    strong, weak = train(lists, 3e4, 3e4), train(lists, 3.0, 3e4)
    assert np.abs(strong.weights).max() < 0.05
    assert np.abs(weak.weights[:, 1]).max() < 0.05 < np.abs(weak.weights[:, 0]).max()


def test_few_questions_leave_the_weights_near_those_given():
    lists = planted([2.0, -1.0], [0.0, 0.0], questions=2000)
    given = np.array([5.0, 5.0])
    few, many = train(select(lists, np.arange(5)), 100.0, 1e4, given), train(lists, 100.0, 1e4, given)
    assert few.weights[:, 0] == pytest.approx(given, abs=1.0)
    assert many.weights[:, 0] == pytest.approx([2.0, -1.0], abs=0.6)


def test_a_sampled_document_stands_for_many():
    # Gold beside one other that stands for 99 is as gold beside 99 of that kind.
    feature = np.array([[1], [0]], np.float32)
    one = Lists(
        np.zeros(1, np.int64),
        np.zeros((1, 0), np.float32),
        np.array([0, 2]),
        feature,
        np.array([True, False]),
        np.log([1.0, 99.0]),
    )
    many = Lists(
        np.zeros(1, np.int64),
        np.zeros((1, 0), np.float32),
        np.array([0, 100]),
        feature[[0] + [1] * 99],
        np.array([True] + [False] * 99),
        np.zeros(100),
    )
    scale = [lists.features.std() for lists in (one, many)]
    # Strengths are for scaled features, so they are scaled alike.
    found = [train(lists, 0.01 / s**2, 1.0).weights[0, 0] for lists, s in zip((one, many), scale, strict=True)]
    assert found[0] == pytest.approx(found[1], rel=1e-3)


def test_the_order_of_questions_does_not_matter():
    lists = planted([1.0, -1.0], [0.5, 0.0], questions=80)
    turned = select(lists, np.arange(80)[::-1])
    assert train(turned, 8.0, 80.0).weights == pytest.approx(train(lists, 8.0, 80.0).weights, rel=1e-2, abs=1e-3)


def test_features_that_are_all_alike_count_nothing():
    lists = planted([1.0, 1.0], [0.0, 0.0])
    flat = Lists(**{**vars(lists), "features": lists.features * np.array([1, 0], np.float32) + np.float32(3)})
    assert train(flat, 30.0, 300.0).weights[1].tolist() == [0.0, 0.0]


def test_odd_gates_are_clipped():
    rows = gate_rows(np.array([[100.0], [-100.0], [1.0]], np.float32), np.zeros(1), np.ones(1))
    assert rows.tolist() == [[1, 4], [1, -4], [1, 1]]


def test_rounding_keeps_five_digits():
    assert rounded(np.array([123456.0, -0.000123456, 0.0])).tolist() == pytest.approx([123460.0, -0.00012346, 0.0])


@settings(max_examples=50, deadline=None)
@given(st.sets(st.text(min_size=1, max_size=5), min_size=1, max_size=30), st.integers(2, 12))
def test_folds_are_a_fair_partition(cases, count):
    dealt = folds(sorted(cases), count)
    assert sorted(case for fold in dealt for case in fold) == sorted(cases)
    assert len(dealt) == min(count, len(cases))
    assert max(map(len, dealt)) - min(map(len, dealt)) <= 1
    assert folds(sorted(cases, reverse=True), count) == dealt


def test_the_gradient_is_that_of_the_loss(monkeypatch):
    from scipy import optimize

    seen = {}

    def look(function, start, **_):
        seen["function"], seen["size"] = function, len(start)
        return optimize.OptimizeResult(x=start)

    monkeypatch.setattr(optimize, "minimize", look)
    listwise.train(planted([1.0, -0.5], [0.3, 0.0], questions=40), 0.1, 0.2)
    point = np.random.default_rng(3).normal(size=seen["size"]) * 0.3
    _, gradient = seen["function"](point)
    step = 1e-3
    for number in range(seen["size"]):
        move = np.zeros(seen["size"])
        move[number] = step
        slope = (seen["function"](point + move)[0] - seen["function"](point - move)[0]) / (2 * step)
        assert gradient[number] == pytest.approx(slope, abs=2e-3)
