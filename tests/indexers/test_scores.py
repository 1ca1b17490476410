import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexers.scores import Scores, ranked


def order(lists):
    offsets = np.append(0, np.cumsum([len(v) for v in lists])).astype(np.int64)
    values = np.array([x for v in lists for x in v], dtype=np.float64)
    return [a.tolist() for a in ranked(Scores(offsets, values))]


def test_higher_first_zero_left_out():
    assert order([[0.5, 0.0, 2.0], [0.0], [-1.0, 3.0]]) == [[0, 0, 2, 2], [2, 0, 1, 0], [1, 2, 1, 2]]


def test_ties_by_position():
    assert order([[1.0, 2.0, 1.0, 2.0]])[1] == [1, 3, 0, 2]


def test_a_constant_scorer_ranks_by_position():
    assert order([[7.0] * 100])[1:] == [list(range(100)), list(range(1, 101))]


def test_negative_zero_is_zero():
    assert order([[-0.0, 0.0, 1.0]])[1] == [2]


@pytest.mark.parametrize("lists", [[], [[]], [[], [0.0, 0.0], []]])
def test_nothing_retrieved(lists):
    assert order(lists) == [[], [], []]


def test_questions_without_documents_between_others():
    assert order([[], [1.0], [], [2.0, 3.0], []]) == [[1, 3, 3], [0, 1, 0], [1, 1, 2]]


def test_nan_is_refused():
    with pytest.raises(ValueError, match="NaN"):
        order([[1.0, float("nan")]])


def test_infinite_scores_have_their_place():
    assert order([[1.0, np.inf, -np.inf]])[1] == [1, 0, 2]


@settings(deadline=None, max_examples=80)
@given(st.lists(st.lists(st.sampled_from([-1.0, 0.0, 0.5, 1.0, 2.0]), max_size=12), max_size=6))
def test_equal_to_sorting_each_list(lists):
    expected = [
        (q, d, rank)
        for q, values in enumerate(lists)
        for rank, d in enumerate(sorted((d for d, v in enumerate(values) if v), key=lambda d: (-values[d], d)), 1)
    ]
    assert list(zip(*order(lists), strict=True)) == expected
