"""Methods that put other rankings together: fusion, neighbours, gate. Values worked out by hand."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexers import presets
from indexers.batch import Batch
from indexers.methods.fusion import Rule, contribution
from indexers.methods.gate import cued
from indexers.scores import Scores
from schemas.errors import ConfigError
from tests.indexers.drawn import Case, batch, preset, scored

OFFSETS = np.array([0, 4, 4, 8])
LEFT = np.array([4.0, 2, 0, 1, 0, 0, 0, 0])
RIGHT = np.array([0.0, 0.5, 0.5, 0.25, 0.5, 0, 0, 0.5])


@pytest.fixture
def two(monkeypatch):
    """A batch in which the arms `left` and `right` have the scores above; the second case has no files."""
    files = [[1, 0]] * 4
    made = batch({"a": Case(files, ["s", "s", "t", "t"]), "c": Case(files)}, [("a", [1, 0]), ("c", [1, 0])])
    offsets = np.array([0, 4, 8])
    values = {"left": LEFT, "right": RIGHT}
    monkeypatch.setattr(Batch, "scores", lambda self, arm, stats=None: Scores(offsets, values[arm.options.unit]))
    return made


def arms(left=1.0, right=1.0):
    """Two arms; BM25's option `unit` tells the patched batch which one it is."""
    return {"l": {"preset": "left", "weight": left}, "r": {"preset": "right", "weight": right}}


def blend(made, weights=(1.0, 1.0), **rule):
    options = presets.get("rrf").code.Options.model_validate({"arms": arms(*weights), "fusion": rule})
    inner = {"l": _Arm("left"), "r": _Arm("right")}
    one = presets.Preset("x", "", "fusion", options, inner)
    return [part.tolist() for part in scored(one, made)[0]]


class _Arm:
    """Stands for a preset; only its name is looked at."""

    def __init__(self, name):
        self.options = self
        self.unit = name


def test_sums_of_scores_over_the_best(two):
    # left / 4 and right / .5 of the first question; left gives the second nothing.
    assert blend(two) == [[1, 0.5 + 1, 1, 0.25 + 0.5], [1, 0, 0, 1]]
    assert blend(two, (2, 0.5)) == [[2, 1 + 0.5, 0.5, 0.5 + 0.25], [0.5, 0, 0, 0.5]]
    assert blend(two, normalise="none") == [[4, 2.5, 0.5, 1.25], [0.5, 0, 0, 0.5]]


def test_minmax_goes_from_the_least_retrieved_to_the_best(two):
    # left: (4, 2, -, 1) -> (1, 1/3, -, 0); right: (-, .5, .5, .25) -> (-, 1, 1, 0); all alike -> all 1.
    assert blend(two, normalise="minmax")[0] == pytest.approx([1, 1 / 3 + 1, 1, 0])
    assert blend(two, normalise="minmax")[1] == [1, 0, 0, 1]


def test_a_negative_weight_speaks_against_and_never_retrieves(two):
    assert blend(two, (1, -1)) == [[1, 0, 0, 0], [0, 0, 0, 0]]


def test_reciprocal_ranks_by_hand(two):
    # Ranks, ties by position: left 1, 2, -, 3; right -, 1, 2, 3.
    found = blend(two, rule="rrf", k=60)
    assert found[0] == pytest.approx([1 / 61, 1 / 62 + 1 / 61, 1 / 62, 2 / 63], rel=1e-15)
    assert found[1] == pytest.approx([1 / 61, 0, 0, 1 / 62], rel=1e-15)
    assert blend(two, (1, 3), rule="rrf", k=1)[0] == pytest.approx([1 / 2, 1 / 3 + 3 / 2, 3 / 3, 1 / 4 + 3 / 4])


def test_beyond_the_depth_an_arm_counts_nothing(two):
    assert blend(two, depth=1) == [[1, 1, 0, 0], [1, 0, 0, 0]]
    assert blend(two, rule="rrf", k=60, depth=2)[0] == pytest.approx([1 / 61, 1 / 62 + 1 / 61, 1 / 62, 0])
    # Least and best are those of the two that count.
    assert blend(two, normalise="minmax", depth=2)[0] == [1, 0 + 1, 1, 0]


@given(
    st.lists(st.lists(st.sampled_from([0, 0.1, 1, 2.5, -1, 7]), max_size=6), max_size=4),
    st.sampled_from(["max", "minmax", "none"]),
    st.sampled_from(["sum", "rrf"]),
    st.sampled_from([None, 1, 2]),
)
@settings(max_examples=30, deadline=None)
def test_what_an_arm_did_not_retrieve_it_gives_nothing(lists, normalise, rule, depth):
    offsets = np.concatenate([[0], np.cumsum([len(one) for one in lists])]).astype(np.int64)
    values = np.array([value for one in lists for value in one], np.float64)
    found = contribution(
        Scores(offsets, values), Rule.model_validate({"normalise": normalise, "rule": rule, "depth": depth})
    )
    assert np.isfinite(found).all()
    assert not found[values == 0].any()
    for low, high in pairwise(offsets):
        if normalise == "max" and rule == "sum" and (values[low:high] > 0).any():
            assert found[low:high].max() == 1
        if depth is not None:
            assert np.count_nonzero(found[low:high]) <= depth


def test_the_shipped_blends_are_what_they_say():
    rrf, session, context = (presets.get(name) for name in ("rrf", "blend-session", "blend-context"))
    assert (rrf.options.fusion.rule, rrf.options.fusion.k, set(rrf.arms)) == ("rrf", 60, {"bm25", "dense"})
    weights = {name: arm.weight for name, arm in session.options.arms.items()}
    assert weights == {"bm25": 1, "dense": 0.5, "session": 0.3}
    assert session.arms["session"].options.unit == "session"
    assert (context.method, context.options.before, context.options.after) == ("neighbours", 0.2, 0.2)
    assert context.arms["own"].mark == session.mark


def test_neighbours_share_within_their_session_alone():
    dense = {"own": {"preset": "dense"}}
    # Cosines with (1, 0): 1, .6, 0 | .8, 0 in two sessions; the next question is of another case.
    cases = {
        "a": Case([[1, 0], [0.6, 0.8], [0, 1], [0.8, 0.6], [0, 1]], ["s", "s", "s", "t", "t"]),
        "b": Case([[1, 0]], ["t"]),
    }
    made = batch(cases, [("a", [1, 0]), ("b", [1, 0]), ("a", [0, 1])])
    parts, _ = scored(preset(method="neighbours", arms=dense, before=0.5, after=0.25), made)
    assert parts[0] == pytest.approx([1 + 0.25 * 0.6, 0.6 + 0.5, 0.5 * 0.6, 0.8, 0.5 * 0.8], abs=1e-6)
    assert parts[1] == pytest.approx([1])
    assert parts[2] == pytest.approx([0.25 * 0.8, 0.8 + 0.25, 1 + 0.5 * 0.8, 0.6 + 0.25, 1 + 0.5 * 0.6], abs=1e-6)
    alone, _ = scored(preset(method="neighbours", arms=dense, before=0, after=0), made)
    assert alone[0].tolist() == scored(presets.get("dense"), made)[0][0].tolist()


def test_neighbours_have_one_arm():
    with pytest.raises(ConfigError, match="at most 1"):
        preset(method="neighbours", arms={"a": {"preset": "bm25"}, "b": {"preset": "dense"}})


GATE = {"cued": {"preset": {"method": "dense"}}, "other": {"preset": {"method": "coarse", "sessions": 1}}}


def gate(*cues):
    return preset(method="gate", cues=list(cues), arms=GATE)


def test_each_question_takes_the_ranking_that_it_is_for():
    case = Case([[1, 0], [0.6, 0.8], [0.8, 0.6]], ["s", "s", "t"])
    texts = ["Who introduced Ann?", "Where is Ann?", "INTRODUCED?", "introducedness"]
    made = batch({"a": case}, [("a", [1, 0], text) for text in texts])
    one = gate("Introduced", "met")
    assert cued(one.options, made).tolist() == [True, False, True, False]
    parts, _ = scored(one, made)
    dense, coarse = scored(one.arms["cued"], made)[0], scored(one.arms["other"], made)[0]
    assert dense[0].tolist() != coarse[0].tolist()
    for number, from_cued in enumerate([True, False, True, False]):
        assert parts[number].tolist() == (dense if from_cued else coarse)[number].tolist()


def test_a_cue_of_several_words_is_found_as_they_stand():
    made = batch({"a": Case([[1, 0]])}, [("a", [1, 0], text) for text in ("Put me in touch", "touch in", "紹介した")])
    assert cued(gate("in touch").options, made).tolist() == [True, False, False]
    assert cued(gate("紹介").options, made).tolist() == [False, False, True]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"cues": [], "arms": GATE}, "at least 1"),
        ({"cues": ["met", " ?"], "arms": GATE}, "cue ' [?]' has no word"),
        ({"cues": ["met"], "arms": {"cued": {"preset": "bm25"}}}, "the arms are 'cued' and 'other'"),
        ({"cues": ["met"], "arms": {**GATE, "third": {"preset": "bm25"}}}, "the arms are 'cued' and 'other'"),
    ],
)
def test_gates_that_cannot_be(given, says):
    with pytest.raises(ConfigError, match=says):
        preset(method="gate", **given)
