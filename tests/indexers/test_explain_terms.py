"""Explanations of text scores and of the traversal, against the scorers themselves and values worked out by hand."""

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexers import bm25, tfidf, traversal
from indexers.explain import Edge, Explanation, Step, named
from indexers.explain.paths import explain_traversal, words_of_files, words_of_nodes
from indexers.explain.terms import explain_terms, words_of
from indexers.postings import build_postings, vocabulary_table
from indexers.queries import distinct, questions_to_queries
from tests.indexers.test_traversal import CASES, make, oracle
from tests.indexers.tools import index_texts
from transforms.tokens import tokenize, tokenize_one


class Texts:
    """The texts of one case, asked one question."""

    def __init__(self, texts, question):
        tokens = tokenize(pa.array(texts, pa.large_string()))
        self.postings = build_postings(tokens, np.array([0, len(texts)]))
        vocabulary = vocabulary_table(tokens.terms)
        self.queries = questions_to_queries(pa.array([question], pa.string()), np.array([0]), vocabulary)
        self.words = words_of(question, vocabulary)

    def bm25(self, queries):
        return bm25.bm25_scores(self.postings, queries)

    def tfidf(self, queries):
        return tfidf.tfidf_scores(self.postings, queries)

    def explain(self, scorer, document, queries=None):
        asked = self.queries if queries is None else queries
        return explain_terms("text", scorer, self.postings, asked, 0, document, self.words)


FIVE = ["red fox red den", "a fox", "blue sea", "a grey sea", "the end"]


def test_bm25_by_hand():
    case = Texts(FIVE, "The red fox, red!")
    told = case.explain(case.bm25, 0)
    # 13 words in 5 files: the mean is 2.6. "red" is in one file of five, "fox" in two.
    norm = 1.5 * (1 - 0.75 + 0.75 * 4 / 2.6)
    red = (math.log(4.5) - math.log(1.5)) * 2 * 2.5 / (2 + norm)
    fox = (math.log(3.5) - math.log(2.5)) * 1 * 2.5 / (1 + norm)
    assert [(part.label, part.value) for part in told.parts] == [
        ("red", pytest.approx(2 * red)),
        ("fox", pytest.approx(fox)),
    ]
    assert dict(told.parts[0].facts) == {
        "count": 2,
        "files with it": 1,
        "files": 5,
        "words in this file": 4,
        "times asked": 2,
    }
    assert told.remarks == ("only in other files (how many): the (1)",)
    assert told.remainder == pytest.approx(0, abs=1e-15)


def test_a_word_in_exactly_half_of_the_files_still_counts():
    case = Texts(["fox", "den"], "fox")
    (part,) = case.explain(case.bm25, 0).parts
    assert 0 < part.value < 1e-11


@pytest.mark.parametrize(
    ("question", "remarks"),
    [
        ("", ("the question has no words",)),
        ("unheard of", ("no word that counts is in this file", "in no file of the case: unheard, of")),
        ("red", ("no word that counts is in this file", "only in other files (how many): red (1)")),
    ],
)
def test_why_a_file_is_not_found(question, remarks):
    case = Texts(FIVE, question)
    assert case.explain(case.bm25, 4) == Explanation("text", 0.0, (), remarks)


def test_words_left_out_on_purpose_are_told():
    case = Texts([*["a fox"] * 9, "a red den"], "a red fox")
    kept = tfidf.drop_common(case.queries, case.postings)
    told = case.explain(case.tfidf, 9, distinct(kept))
    assert [part.label for part in told.parts] == ["red"]
    assert told.remarks == ("left out, being in too many files: a, fox",)


def test_stems_are_told_by_the_words_of_the_question():
    vocabulary = vocabulary_table(pa.array(["fox", "run"]))
    words = words_of("The foxes were running home", vocabulary, "english")
    assert (words.texts, words.terms.tolist(), words.stops) == (
        ("foxes", "running", "home"),
        [0, 1, -1],
        ("the", "were"),
    )
    assert words.first == {0: "foxes", 1: "running", -1: "home"}


def test_counts_in_the_interaction_and_in_its_note_stand_apart():
    fields, terms = index_texts(
        pa.array(["fox den", "sea"]),
        pa.array(["fox fox tail", ""]),
        pa.array(["x"]),
        np.array([0, 2]),
        np.array([0, 1]),
    )
    vocabulary = vocabulary_table(terms)
    queries = questions_to_queries(pa.array(["fox tail"]), np.array([0]), vocabulary)
    note = fields["note"]
    told = explain_terms(
        "note",
        lambda asked: bm25.bm25_scores(note, asked),
        note,
        queries,
        0,
        0,
        words_of("fox tail", vocabulary),
        raw=fields["raw"],
    )
    facts = {part.label: dict(part.facts) for part in told.parts}
    assert (facts["fox"]["count"], facts["fox"]["in the interaction"], facts["fox"]["in its note"]) == (3, 1, 2)
    assert (facts["tail"]["in the interaction"], facts["tail"]["in its note"]) == (0, 1)


def test_a_question_of_very_many_words_is_explained():
    texts = [" ".join(f"w{n + 7 * document}" for n in range(300)) for document in range(40)]
    case = Texts(texts, " ".join(f"w{n % 700}" for n in range(20_000)) + " " + "x" * 100_000)
    told = case.explain(case.bm25, 3)
    assert len(told.parts) == 300
    assert told.score == case.bm25(case.queries).values[3]
    assert abs(told.remainder) < 1e-9 * told.score
    assert max(map(len, told.remarks)) < 1500
    assert "and 253 more" in told.remarks[0]


@settings(deadline=None, max_examples=40)
@given(st.lists(st.text("abc ", max_size=10), min_size=1, max_size=6), st.text("abcd ", max_size=12), st.data())
def test_parts_sum_to_the_score_to_the_bit(texts, question, data):
    case = Texts(texts, question)
    document = data.draw(st.integers(0, len(texts) - 1))
    once = distinct(case.queries)
    for scorer, queries in ((case.bm25, case.queries), (case.tfidf, once)):
        told = case.explain(scorer, document, queries)
        assert told.score == scorer(queries).values[document]
        assert abs(told.remainder) <= 1e-15 * max(1, abs(told.score))
        assert all(part.value for part in told.parts)
        mentioned = {part.label for part in told.parts}
        assert mentioned <= set(tokenize_one(texts[document]))


class Tags:
    """A traversal over the tags of `CASES`, asked one question, without content."""

    def __init__(self, cases, case, question):
        self.graphs, postings, vocabulary, self.nodes = make(cases)
        number = self.graphs.case_ids.index(case)
        queries = questions_to_queries(pa.array([question], pa.string()), np.array([number]), vocabulary)
        self.matches = traversal.match_nodes(self.graphs, ("tag",), postings, queries)
        words = words_of(question, vocabulary)
        self.origins = words_of_nodes(self.graphs, ("tag",), postings, queries, 0, words)

    def explain(self, document, content=0.0, **options):
        inner = Explanation("content", content)
        told = explain_traversal(self.graphs, "taggraph", self.matches, self.origins, 0, document, inner, **options)
        rows = self.nodes.to_pylist()
        return named(told, lambda _, node: (rows[node]["key"], ""))

    def score(self, **options):
        reached = traversal.traverse(self.graphs, self.matches, **options)
        return reached.values / traversal.units(options.get("depth", 2))


def ways(told):
    return [
        (part.value, part.words, [(step.kind, step.name, step.edges) for step in part.steps])
        for part in told.parts
        if part.kind == "tag"
    ]


def test_the_way_from_a_word_to_a_file():
    told = Tags(CASES, "u", "food").explain(1, content=3.0)
    up, down = (Edge("ontology", against=True),), (Edge("ontology"),)
    # pet/dog_food is two steps from pet/dog, over pet.
    assert ways(told) == [
        (
            pytest.approx(1 / 3),
            ("food",),
            [
                ("tag", "pet/dog_food", ()),
                ("ontology", "pet", up),
                ("tag", "pet/dog", down),
                ("topic", "pet/dog", (Edge("tag_topic"),)),
                ("file", "i1", (Edge("topic_file"),)),
            ],
        )
    ]
    tie = told.parts[-1]
    assert (tie.kind, tie.value, tie.inner.score) == ("content", pytest.approx(0.75 / 6), 3.0)
    assert told.score == pytest.approx(1 / 3 + 0.75 / 6)
    assert abs(told.remainder) < 1e-15


def test_tags_past_the_cap_are_told_and_do_not_count():
    told = Tags(CASES, "u", "dog").explain(0, fan_in=2)
    assert [(part.value, part.label) for part in told.parts if part.kind == "tag"] == [
        (1, "tag at distance 0"),
        (1, "tag at distance 0"),
        (0, "tag at distance 2, past those that count"),
    ]
    assert told.score == 2


def test_a_word_that_names_several_tags_and_a_tag_of_several_words():
    assert set(Tags(CASES, "u", "dog pet food").origins.values()) == {("dog", "pet"), ("pet",), ("dog", "pet", "food")}


@pytest.mark.parametrize(
    ("question", "document", "remark", "tags"),
    [
        ("nothing", 0, "no word of the question is a word of a tag", []),
        ("rome", 0, "none of the 1 matched tags is within 2 ontology steps of the 2 tags", ["travel/rome", "pet/dog"]),
        ("rome", 5, "the file's topic has no tags", ["travel/rome"]),
    ],
)
def test_why_no_tag_leads_to_a_file(question, document, remark, tags):
    told = Tags(CASES, "u", question).explain(document)
    assert (told.score, told.remainder) == (0, 0)
    assert remark in told.remarks[0]
    assert [part.steps[0].name for part in told.parts][: len(tags)] == tags


def test_nodes_with_many_children_are_not_descended():
    wide = {"u": [[f"root/leaf{n}"] for n in range(5)]}
    assert Tags(wide, "u", "leaf0").explain(1, max_children=5).score == pytest.approx(1 / 3)
    assert Tags(wide, "u", "leaf0").explain(1, max_children=4).score == 0


tag = st.lists(st.sampled_from("abc"), min_size=1, max_size=4).map("/".join)
case = st.lists(st.lists(tag, max_size=4), min_size=1, max_size=5)


@settings(deadline=None, max_examples=25)
@given(
    case, case, st.sampled_from(["a", "b c", "a b c", "c c"]), st.integers(1, 4), st.integers(1, 3), st.integers(0, 2)
)
def test_explains_what_the_traversal_scores(first, second, question, fan_in, max_children, depth):
    asked = Tags({"u": first, "v": second}, "v", question)
    options = {"depth": depth, "fan_in": fan_in, "max_children": max_children}
    scores = asked.score(**options)
    for document in range(len(second)):
        told = asked.explain(document, **options)
        assert told.score == pytest.approx(scores[document])
        assert abs(told.remainder) < 1e-14
        for part in told.parts:
            if part.value and part.kind == "tag":
                ontology = sum(step.edges[0].kind == "ontology" for step in part.steps[1:])
                assert part.value == pytest.approx(1 / (1 + ontology))
    if depth == 2:
        whole = oracle(asked.nodes, asked.graphs, "v", question, fan_in, max_children)
        assert [asked.explain(d, **options).score for d in range(len(second))] == pytest.approx(np.array(whole) / 6)


def test_names_reach_what_is_explained_inside():
    inner = Explanation("inner", 1.0, (), (), "other")
    told = Tags(CASES, "u", "training").explain(0)
    both = Explanation("outer", 1.0, (told.parts[0].__class__("arm", "x", 1.0, inner=told),), (), "")
    names = named(both, lambda graph, node: (f"{graph}:{node}", "text"))
    first = names.parts[0].inner.parts[0].steps[0]
    assert isinstance(first, Step)
    assert (first.name, first.text) == (f"taggraph:{first.node}", "text")
    assert named(inner, lambda *_: ("", "")) == inner


def test_files_know_the_words_that_they_hold():
    graphs, _, _, _ = make(CASES)
    tokens = tokenize(pa.array(["red fox", "den", "fox den", "", "", "", "fox"], pa.large_string()))
    postings = build_postings(tokens, graphs.file_offsets)
    vocabulary = vocabulary_table(tokens.terms)
    queries = questions_to_queries(pa.array(["fox den"]), np.array([0]), vocabulary)
    found = words_of_files(graphs, postings, queries, 0, words_of("fox den", vocabulary))
    files = graphs.file_nodes
    assert found == {int(files[0]): ("fox",), int(files[1]): ("den",), int(files[2]): ("fox", "den")}
