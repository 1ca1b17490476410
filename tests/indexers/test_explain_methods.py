"""Explanations of whole presets: every part of every score of a small corpus is accounted for."""

import numpy as np
import pyarrow as pa
import pytest

from indexers import presets
from indexers.batch import RankStats
from indexers.explain import Edge, Part, named, shortened
from indexers.explain.blends import rank_of, summed
from indexers.rank import batches
from indexers.scores import Scores, ranked
from indexers.shard import open_shard
from pipelines.embed import Kept
from pipelines.held import make as make_units
from schemas import tables
from schemas.config import RunConfig
from tests.indexers.test_rank import CASES, QUESTIONS, make

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
    "own-rrf": {"method": "fusion", "arms": ARMS, "fusion": {"rule": "rrf", "k": 60, "depth": 2}},
    "context": {"method": "neighbours", "arms": {"own": {"preset": "bm25-stem"}}, "before": 0.2, "after": 0.4},
    "one-session": {"base": "coarse-to-fine", "sessions": 1},
    "near": {"base": "gaama", "seeds": {"top": 2, "hops": 1}},
    "wide-hops": {"base": "entity-2hop", "floor": 0.2, "roots": 2},
    "wide-note": {"base": "bm25", "window": {"reach": 1}},
    "cut": {"base": "openclaw", "min_score": 0.5, "candidates": 3},
    "cued": {"base": "typed-relations", "cues": ["dog"]},
}
VECTORS = [[1, 0], [0.6, 0.8], [-1, 0], [0, 0], [0, 1], [0.8, 0.6], [0.8, -0.6], [1, 0], [1, 0], [0, 1], [1, 0]]
ASKED = [[1, 0], [0, 1], [0.6, 0.8], [0, 0], [1, 0]]


@pytest.fixture(scope="module")
def batch():
    """The cases and questions of the rank tests."""
    held = make(CASES, QUESTIONS)
    return batch_of(held, Kept(held.table))


class Given:
    def questions(self, some):
        return np.array(ASKED, np.float32)[: len(some)]


def batch_of(held, embedding):
    asked, interactions = held.table("questions", "questions"), held.table("ingest", "interactions")
    (one,) = batches(open_shard(interactions, asked, held.table), asked, embedding)
    return one


@pytest.fixture(scope="module")
def flat():
    """The same with vectors of two dimensions."""
    held = make(CASES, QUESTIONS, ("bm25-raw",))
    interactions = held.table("ingest", "interactions")
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
    return batch_of(held, Given())


@pytest.fixture(scope="module")
def extracted():
    """The same with facts, entities, relations and triples, one of each that is the second question word for word."""
    held = make(CASES, QUESTIONS, ("bm25-raw",))
    lists = {"case_id": ["u"], "concepts": [[]]}
    facts = {**lists, "fact_id": ["f0"], "text": ["the weather"], "interaction_ids": [["i3"]]}
    insight = {"reflection_id": ["r0"], "text": ["dinner in rome"], "fact_ids": [["f0"]], "interaction_ids": [["i3"]]}
    named = {"case_id": ["u"] * 3, "kind": ["event", "entity", "entity"], "attributes": [[]] * 3, "role": ["user"] * 3}
    titles = {"title": ["dinner in rome", "zyx qwv", "vwq xyz"], "interaction_id": ["i1", "i5", "i7"]}
    related = {"case_id": ["u"] * 2, "interaction_id": ["i5", "i7"], "kind": ["knows"] * 2, "attributes": [[]] * 2}
    ends = {"source": ["dinner in rome", "vwq xyz"], "target": ["zyx qwv", "zyx qwv"]}
    triple = {
        "case_id": ["u"],
        "interaction_id": ["i2"],
        "subject": ["dinner"],
        "predicate": ["in"],
        "object": ["rome"],
    }
    every = held.table("ingest", "interactions", ["case_id", "interaction_id"])
    concepts = {"case_id": every["case_id"], "interaction_id": every["interaction_id"], "concepts": [[]] * len(every)}
    for unit, table, columns in (
        ("extract/facts", "facts", facts),
        ("extract/facts", "concepts", concepts),
        ("extract/reflections", "reflections", {**lists, **insight}),
        ("extract/entities", "entities", {**named, **titles}),
        ("extract/entities", "relations", {**related, **ends}),
        ("extract/triples", "triples", triple),
    ):
        held.tables[unit, table] = tables.build(table, columns)
    names = ["gaama", "entity-2hop", "hipporag"]
    config = RunConfig(corpus="memory://unused", rank={"presets": names})
    make_units(config, held, sorted({unit for name in names for unit in presets.get(name).units}), 0)
    return held, batch_of(held, Kept(held.table))


def preset_of(name):
    return presets.get(name, OWN)


# Of ablations some; all others.
SOME = ["adaptivegraph-no-diffusion", "adaptivegraph-no-chronology-no-file-seeds", "gaama-semantic"]
MANY = {*presets.groups()["ablations"], *presets.groups()["gaama-ablations"]} - {"adaptivegraph", "gaama", *SOME}
EVERY = [*(name for name in presets.shipped() if name not in MANY), *OWN]


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


def test_counts_of_a_window_are_not_split(batch):
    # "dog" is in the interaction before it: once in the text, once in the tag.
    (dog,) = [part for part in explain(batch, "wide-note", 0, 1).parts if part.label == "dog"]
    assert dog.facts[:2] == (("count", 2), ("files with it", 2))
    assert {part.label for part in explain(batch, "bm25-user", 1, 4).parts} == {"dinner", "rome"}


def test_a_walk_is_told_from_word_to_file(batch):
    told = explain(batch, "adaptivegraph-no-file-seeds", 0, 0)
    first = told.parts[0]
    assert first.words == ("dog",)
    assert [step.kind for step in first.steps] == ["tag", "topic", "file"]
    assert [edge.kind for step in first.steps for edge in step.edges] == ["tag_topic", "topic_file"]
    assert explain(batch, "adaptivegraph", 0, 0).parts[0].words == ("dog",)  # the file is a seed, for its text
    nothing = explain(batch, "adaptivegraph", 3, 0)
    assert nothing.remarks[0].startswith("nothing in the case is a seed")


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


def test_vectors(flat):
    batch = flat
    assert [(part.kind, part.value) for part in explain(batch, "dense", 0, 1).parts] == [("vector", pytest.approx(0.6))]
    assert explain(batch, "dense", 0, 2).remarks == ("the cosine is -1.000, and only one above 0 counts",)
    assert explain(batch, "dense", 0, 3).remarks == ("the interaction has no word that the embedder knows",)
    assert explain(batch, "dense", 3, 3).remarks == (
        "the interaction and the question have no word that the embedder knows",
    )
    # The best cosine is 1 and the best text score its own, so each arm adds 1.
    told = explain(batch, "blend", 0, 0)
    assert {part.label: part.value for part in told.parts} == pytest.approx({"bm25": 1, "dense": 1})


def keys(held, explanation, part):
    nodes = held.table(f"graph/{explanation.graph}", "nodes").to_pylist()
    own = [node for node in nodes if node["case_id"] == "u"]
    return [(step.kind, own[step.node]["key"]) for step in part.steps]


def test_a_file_has_the_score_of_what_was_drawn_from_it(extracted):
    held, batch = extracted
    told = explain(batch, "gaama", 1, 3)
    cosine, walk = told.parts
    # The reflection is the question word for word; its fact was taken from the file.
    assert keys(held, told, cosine) == [("reflection", "r0"), ("fact", "f0"), ("file", "i3")]
    assert [edge for step in cosine.steps for edge in step.edges] == [Edge("derived_from_fact"), Edge("derived_from")]
    assert cosine.value == pytest.approx(1)
    assert dict(cosine.facts)["cosine"] == pytest.approx(1, abs=1e-3)
    assert keys(held, told, walk.inner.parts[0])[-1] == ("reflection", "r0")


def test_entities_are_told_from_their_roots(extracted):
    held, batch = extracted
    ways = set()
    for document in (1, 5, 7):
        told = explain(batch, "entity-2hop", 1, document)
        for part in told.parts:
            *entities, file = [key for _, key in keys(held, told, part)]
            assert part.value == pytest.approx(dict(part.facts)["cosine of the root"] * 0.5 ** (len(entities) - 1))
            ways.add((len(entities), file))
    # A relation mentions both its ends: the first leads from the root to the second entity, the other to the third.
    assert ways == {(1, "i1"), (1, "i5"), (2, "i5"), (2, "i7"), (3, "i7")}
    far = explain(batch, "entity-2hop", 1, 2)
    assert (far.score, far.remarks) == (0, ("none of the 3 entities that are kept is in it",))
    assert explain(batch, "entity-2hop", 3, 2).remarks[0].startswith("no entity has a cosine of 0.75")


def test_triples_lead_to_the_phrases_that_they_made_seeds(extracted):
    held, batch = extracted
    told = explain(batch, "hipporag", 1, 2)
    ways = [keys(held, told, part) for part in told.parts if part.kind == "path"]
    named = [way for way in ways if way[0][0] == "triple"]
    assert {tuple(kind for kind, _ in way) for way in named} >= {("triple", "phrase", "file")}
    first = next(part for part in told.parts if part.steps[0].kind == "triple")
    assert first.steps[0].value is None
    assert first.steps[1].edges[0].kind in ("subject", "object")
    assert first.steps[2].edges == (Edge("contains", against=True),)


def test_questions_without_a_cue_have_the_other_ranking(batch):
    assert explain(batch, "cued", 0, 0).method == "the ranking for questions with a cue: dog"
    told = explain(batch, "cued", 1, 4)
    assert told.method == "the ranking without a cue"
    assert told.parts[0].inner == explain(batch, "bm25-raw", 1, 4)


def test_sessions_that_are_not_looked_into(flat):
    # The question is (1, 0). The vectors of s3 sum to (2.6, 0), those of s0 to (1.6, 0.8), that of s1 is (-1, 0).
    assert explain(flat, "one-session", 0, 5).score == pytest.approx(0.8)
    beside = explain(flat, "one-session", 0, 1)
    assert beside.remarks == ("its session has rank 2 (cosine 0.894), and only the first 1 are looked into",)
    assert explain(flat, "one-session", 0, 2).remarks[0].startswith("its session has rank none (cosine 0.000)")


def test_chunks_below_the_cut_are_told(batch):
    assert explain(batch, "cut", 0, 0).remarks == ("its 0.434 is below the 0.5 that is kept",)
    dense, text = explain(batch, "openclaw", 1, 4).parts
    facts = dict(text.facts)
    assert facts["r / (1 + r)"] == pytest.approx(text.inner.score / (1 + text.inner.score))
    assert text.value == pytest.approx(0.3 * facts["r / (1 + r)"])
    assert dense.value == pytest.approx(0.7 * dict(dense.facts)["cosine"])


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
