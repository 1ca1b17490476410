from itertools import product

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from transforms.significance import (
    bootstrap_means,
    effect_sizes,
    grid_sum,
    holm,
    interval,
    sign_flip_p_values,
)

RNG = np.random.default_rng(3)


def ratio(sums, counts, axis=-1):
    return np.sum(sums, axis=axis) / np.sum(counts, axis=axis)


def test_bootstrap_interval_agrees_with_scipy():
    counts = RNG.integers(1, 30, 25).astype(float)
    sums = counts * RNG.random(25)
    own = interval(bootstrap_means(sums[None], counts, 20_000, 1))
    theirs = scipy.stats.bootstrap(
        (sums, counts), ratio, n_resamples=20_000, paired=True, method="percentile", rng=np.random.default_rng(2)
    ).confidence_interval
    width = theirs.high - theirs.low
    assert own[0][0] == pytest.approx(theirs.low, abs=0.03 * width)
    assert own[1][0] == pytest.approx(theirs.high, abs=0.03 * width)


def test_bootstrap_of_two_cases_by_hand():
    # Means are 0, 2/3 and 1 with chances 1/4, 1/2, 1/4.
    means = bootstrap_means(np.array([[0.0, 2.0]]), np.array([1.0, 2.0]), 40_000, 5)[0]
    values, seen = np.unique(np.round(means, 9), return_counts=True)
    assert values == pytest.approx([0, 2 / 3, 1])
    assert seen / 40_000 == pytest.approx([0.25, 0.5, 0.25], abs=0.01)


def test_all_series_see_the_same_draws():
    counts = np.ones(9)
    sums = RNG.random((1, 9))
    both = bootstrap_means(np.vstack([sums, sums]), counts, 300, 1)
    assert np.array_equal(both[0], both[1])
    assert np.array_equal(both[0], bootstrap_means(sums, counts, 300, 1)[0])
    assert not np.array_equal(both[0], bootstrap_means(sums, counts, 300, 2)[0])


def test_order_of_summation_does_not_reach_the_result():
    counts = np.ones(501)
    sums = RNG.random((3, 501))
    whole = bootstrap_means(sums, counts, 200, 1)
    one_by_one = np.concatenate([bootstrap_means(row[None], counts, 200, 1) for row in sums])
    assert np.array_equal(whole, one_by_one)
    assert grid_sum(sums[:, ::-1]).tolist() == grid_sum(sums).tolist()
    assert grid_sum(sums) == pytest.approx(sums.sum(axis=1), abs=1e-9)


@given(st.lists(st.integers(-8, 8), min_size=2, max_size=9))
@settings(deadline=None, max_examples=30)
def test_exact_sign_flips_agree_with_brute_force(numbers):
    differences = np.array(numbers) / 8
    sums = [
        abs(sum(s * d for s, d in zip(signs, differences, strict=True)))
        for signs in product((1, -1), repeat=len(numbers))
    ]
    expected = np.mean(np.array(sums) >= abs(differences.sum()))
    assert sign_flip_p_values(differences[None], 10_000, 1)[0] == expected


def test_exact_sign_flips_agree_with_scipy():
    a, b = RNG.random(9), RNG.random(9) + 0.2

    def statistic(x, y, axis=-1):
        return np.mean(x - y, axis=axis)

    theirs = scipy.stats.permutation_test((a, b), statistic, permutation_type="samples", n_resamples=np.inf)
    assert sign_flip_p_values((a - b)[None], 512, 1)[0] == pytest.approx(theirs.pvalue, abs=1e-12)


def test_random_sign_flips_come_near_the_exact_test_and_are_never_zero():
    differences = RNG.normal(0.2, 0.5, (2, 11))
    exact = sign_flip_p_values(differences, 2048, 1)
    drawn = sign_flip_p_values(np.hstack([differences, np.zeros((2, 9))]), 20_000, 1)
    assert drawn == pytest.approx(exact, abs=0.015)
    assert sign_flip_p_values(np.ones((1, 60)), 999, 1)[0] == 1 / 1000


def test_no_difference_at_all_has_p_one():
    assert sign_flip_p_values(np.zeros((1, 5)), 10_000, 1)[0] == 1.0
    assert sign_flip_p_values(np.zeros((1, 50)), 100, 1)[0] == 1.0


def test_holm_worked_example():
    # Sorted .01 .02 .03 .04 times 4 3 2 1 are .04 .06 .06 .04, made monotone: .04 .06 .06 .06.
    assert holm(np.array([0.03, 0.01, 0.04, 0.02])) == pytest.approx([0.06, 0.04, 0.06, 0.06])
    assert holm(np.array([0.9, 0.8])) == pytest.approx([1.0, 1.0])
    assert len(holm(np.array([]))) == 0


@given(st.lists(st.floats(0, 1), min_size=1, max_size=7))
@settings(deadline=None, max_examples=50)
def test_holm_rejects_as_the_step_down_procedure_does(p_values):
    adjusted = holm(np.array(p_values))
    for alpha in (0.01, 0.05, 0.3, 0.7):
        left = sorted(range(len(p_values)), key=lambda n: p_values[n])
        rejected = set()
        while left and p_values[left[0]] * len(left) <= alpha:
            rejected.add(left.pop(0))
        assert {n for n, p in enumerate(adjusted) if p <= alpha} == rejected


def test_effect_sizes():
    got = effect_sizes(np.array([[1.0, 2.0, 3.0], [0.1, 0.1, 0.1]]))
    assert got[0] == pytest.approx(2.0)
    assert np.isnan(got[1])
    assert np.isnan(effect_sizes(np.array([[1.0]]))[0])
