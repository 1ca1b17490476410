"""Explanations of whole presets: every part of every score of a small corpus is accounted for."""

import numpy as np
import pyarrow as pa
import pytest

from indexers import presets
from indexers.batch import RankStats
from indexers.explain import Part, named, shortened
from indexers.explain.blends import rank_of, summed
from indexers.rank import batches
from indexers.scores import Scores, ranked
from indexers.shard import open_shard
from schemas import tables
from tests.indexers.test_rank import CASES, QUESTIONS, make

NAMES = ("bm25", "bm25-raw", "bm25-stem", "taggraph", "ablations", "adaptivegraph-undirected")
SESSION = {"method": "bm25", "text": {"field": "stem"}, "idf": "lucene", "unit": "session"}
ARMS = {
    "text": {"preset": "bm25-stem"},
    "tags": {"preset": "taggraph-tfidf", "weight": 0.5},
    "walk": {"preset": "adaptivegraph"},
}
OWN = {
    "sessions": SESSION,
    "slow": {"base": "adaptivegraph", "edges": {"undirected": True, "hub_above": 1}, "seeds": {"match": "all"}},
    "sum": {"method": "fusion", "arms": {**ARMS, "session": {"preset": SESSION, "weight": 0.3}}},
    "minmax": {"method": "fusion", "arms": ARMS, "fusion": {"normalise": "minmax", "depth": 3}},
    "plain": {"method": "fusion", "arms": ARMS, "fusion": {"normalise": "none"}},
    "against": {"method": "fusion", "arms": {**ARMS, "not": {"preset": "bm25", "weight": -3}}},
    "rrf": {"method": "fusion", "arms": ARMS, "fusion": {"rule": "rrf", "k": 60, "depth": 2}},
    "context": {"method": "neighbours", "arms": {"own": {"preset": "bm25-stem"}}, "before": 0.2, "after": 0.4},
}


VECTORS = [[1, 0], [0.6, 0.8], [-1, 0], [0, 0], [0, 1], [0.8, 0.6], [0.8, -0.6], [1, 0], [1, 0], [0, 1], [1, 0]]
ASKED = [[1, 0], [0, 1], [0.6, 0.8], [0, 0], [1, 0]]


@pytest.fixture(scope="module")
def batch():
    held = make(CASES, QUESTIONS, NAMES)
    asked, interactions = held.table("questions", "questions"), held.table("ingest", "interactions")
    held.tables["embed/interactions", "vectors"] = tables.build(
        "vectors",
        {
            "case_id": interactions["case_id"],
            "kind": ["interaction"] * len(VECTORS),
            "key": interactions["interaction_id"],
            "content_hash": [""] * len(VECTORS),
            "vector": pa.array(VECTORS, pa.list_(pa.float32())),
        },
    )
    shard = open_shard(interactions, asked, held.table)
    (one,) = batches(shard, asked, lambda some: np.array(ASKED, np.float32)[: len(some)])
    return one


def preset_of(name):
    return presets.get(name, {key: spec for key, spec in OWN.items() if key != "rrf"} | {"own-rrf": OWN["rrf"]})


EVERY = [*presets.expand([*NAMES, "dense", "blends"]), *(name for name in OWN if name != "rrf"), "own-rrf"]


def remarks(explanation):
    return [*explanation.remarks, *(r for part in explanation.parts if part.inner for r in remarks(part.inner))]


@pytest.mark.parametrize("name", EVERY)
def test_every_score_is_accounted_for(batch, name):
    preset = preset_of(name)
    scores = preset.code.scores(preset, batch, RankStats())
    for question in range(len(batch.case)):
        own = scores.values[scores.offsets[question] : scores.offsets[question + 1]]
        for document, score in enumerate(own.tolist()):
            told = preset.code.explain(preset, batch, question, document)
            assert told.score == pytest.approx(score, rel=1e-12, abs=1e-15)
            if score:
                assert abs(told.remainder) < 2e-8
                assert told.parts
            else:
                assert remarks(told), (question, document)
            values = [part.value for part in told.parts if part.kind not in ("beginning", "rest")]
            assert values == pytest.approx(sorted(values, reverse=True), rel=1e-8)


def explain(batch, name, question, document):
    preset = preset_of(name)
    return preset.code.explain(preset, batch, question, document)


def test_counts_of_interaction_and_note(batch):
    # "dog" is in the text of the first interaction, and in its tag pet/dog.
    told = explain(batch, "bm25", 0, 0)
    (dog,) = [part for part in told.parts if part.label == "dog"]
    facts = dict(dog.facts)
    assert (facts["count"], facts["in the interaction"], facts["in its note"], facts["files with it"]) == (2, 1, 1, 1)
    assert explain(batch, "bm25-raw", 0, 0).parts[0].facts[0] == ("count", 1)


def test_stems_and_sessions(batch):
    told = explain(batch, "sessions", 1, 3)
    # Session s2 holds "dinner in rome with anna"; its other interaction has the same score.
    assert {part.label for part in told.parts} == {"dinner", "rome"}
    assert told.parts == explain(batch, "sessions", 1, 4).parts
    assert told.remarks == ("left out, being stop words: in",)
    assert dict(told.parts[0].facts)["sessions"] == 4


def test_a_walk_is_told_from_word_to_file(batch):
    told = explain(batch, "adaptivegraph-no-file-seeds", 0, 0)
    first = told.parts[0]
    assert first.words == ("dog",)
    assert [step.kind for step in first.steps] == ["tag", "topic", "file"]
    assert [edge.kind for step in first.steps for edge in step.edges] == ["tag_topic", "topic_file"]
    assert explain(batch, "adaptivegraph", 0, 0).parts[0].words == ("dog",)  # the file is a seed, for its text
    nothing = explain(batch, "adaptivegraph", 3, 0)
    assert nothing.remarks[0].startswith("the question has no seed")


def test_arms_are_explained_inside(batch):
    told = explain(batch, "sum", 1, 4)
    arms = {part.label: part for part in told.parts}
    assert set(arms) == {"text", "tags", "walk", "session"}
    # It is the best of every arm, so each adds its weight.
    assert {name: part.value for name, part in arms.items()} == pytest.approx(
        {"text": 1, "tags": 0.5, "walk": 1, "session": 0.3}
    )
    assert told.score == pytest.approx(2.8)
    # The other interaction of its session has the same session score, and stands before it.
    ranks = {name: dict(part.facts)["rank"] for name, part in arms.items()}
    assert ranks == {"text": 1, "tags": 1, "walk": 1, "session": 2}
    assert arms["text"].inner.score == dict(arms["text"].facts)["score"]
    assert arms["walk"].inner.parts[0].kind == "path"


def test_reciprocal_ranks(batch):
    told = explain(batch, "own-rrf", 1, 4)
    assert {part.label: part.value for part in told.parts} == pytest.approx(
        {"text": 1 / 61, "tags": 0.5 / 61, "walk": 1 / 61}
    )
    assert told.method == "sum of weight / (60 + rank), of each arm's first 2"
    far = explain(batch, "own-rrf", 1, 7)
    assert far.score == 0
    assert all(part.value == 0 for part in far.parts)


def test_a_sum_below_nothing_is_not_retrieved(batch):
    told = explain(batch, "against", 1, 4)
    assert told.score == 0
    assert sum(part.value for part in told.parts) < 0
    assert told.remarks == ("the sum is below 0, which counts as not retrieved",)


def test_neighbours_within_the_session_alone(batch):
    labels = [part.label for part in explain(batch, "context", 1, 4).parts]
    assert sorted(labels) == ["own: itself", "own: the one before"]
    told = explain(batch, "context", 1, 3)
    after = next(part for part in told.parts if part.label.endswith("after"))
    alone = explain(batch, "bm25-stem", 1, 4)
    assert after.value == pytest.approx(0.4 * alone.score)
    assert after.inner == alone
    assert told.score == pytest.approx(after.value)


def test_vectors(batch):
    assert [(part.kind, part.value) for part in explain(batch, "dense", 0, 1).parts] == [("vector", pytest.approx(0.6))]
    assert explain(batch, "dense", 0, 2).remarks == ("the cosine is -1.000, and only one above 0 counts",)
    assert explain(batch, "dense", 0, 3).remarks == ("the interaction has no word that the embedder knows",)
    assert explain(batch, "dense", 3, 3).remarks == (
        "the interaction and the question have no word that the embedder knows",
    )
    # The best cosine is 1 and the best text score its own, so each arm adds 1.
    told = explain(batch, "blend", 0, 0)
    assert {part.label: part.value for part in told.parts} == pytest.approx({"bm25": 1, "dense": 1})


def test_ranks_are_those_of_the_run():
    values = np.array([0.0, 3.0, -1.0, 3.0, 5.0])
    _, document, rank = ranked(Scores(np.array([0, 5]), values))
    assert {d: rank_of(values, d) for d in range(5)} == {
        0: None,
        **dict(zip(document.tolist(), rank.tolist(), strict=True)),
    }


def test_shortened_keeps_the_sum():
    parts = [Part("arm", f"a{n}", 5.0 - n) for n in range(4)]
    whole = summed("sum", 14.0, [*parts, Part("rest", "all other", 0.5)])
    short = shortened(whole, 2)
    assert [(part.label, part.value) for part in short.parts] == [("a0", 5.0), ("a1", 4.0), ("3 more", 5.5)]
    assert short.remainder == whole.remainder
    assert shortened(whole, 9).parts == (*parts, Part("rest", "all other", 0.5))
    nested = summed("sum", 1.0, [Part("arm", "x", 1.0, inner=whole)])
    assert len(shortened(nested, 1).parts[0].inner.parts) == 2
    assert named(nested, lambda *_: ("", "")) == nested
