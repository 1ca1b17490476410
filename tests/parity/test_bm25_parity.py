import json
import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rank_bm25 import BM25Okapi

from indexers.bm25 import bm25_scores, bm25_weights
from indexers.postings import build_postings, vocabulary_table
from indexers.queries import questions_to_queries
from transforms.tokens import tokenize, tokenize_one

LOCOMO = Path(__file__).parents[3] / "shared" / "data" / "locomo" / "locomo10.json"


def scores_of(cases, questions, case, **options):
    """Return the scores of every question as lists."""
    tokens = tokenize(pa.array([d for c in cases for d in c], pa.large_string()))
    offsets = np.append(0, np.cumsum([len(c) for c in cases])).astype(np.int64)
    postings = build_postings(tokens, offsets)
    queries = questions_to_queries(pa.array(questions, pa.string()), np.array(case), vocabulary_table(tokens.terms))
    scores = bm25_scores(postings, queries, **options)
    again = bm25_scores(postings, queries, weights=bm25_weights(postings, **options))
    assert again.values.tolist() == scores.values.tolist()
    assert np.isfinite(scores.values).all()
    return [v.tolist() for v in np.split(scores.values, scores.offsets[1:-1])] if questions else []


def oracle(documents, question, **options):
    if not any(tokenize_one(d) for d in documents):
        return [0.0] * len(documents)
    return BM25Okapi([tokenize_one(d) for d in documents], **options).get_scores(tokenize_one(question)).tolist()


def check(cases, questions, case, **options):
    found = scores_of(cases, questions, case, **options)
    for values, question, c in zip(found, questions, case, strict=True):
        assert values == pytest.approx(oracle(cases[c], question, **options), abs=1e-9)


@settings(deadline=None, max_examples=150)
@given(
    st.lists(st.lists(st.text("abcdefg  ", max_size=20), max_size=6), min_size=1, max_size=4),
    st.lists(st.text("abcdefgz ", max_size=10), max_size=5),
    st.data(),
)
def test_random_corpora(cases, questions, data):
    case = [data.draw(st.integers(0, len(cases) - 1)) for _ in questions]
    check(cases, questions, case)
    check(cases, questions, case, k1=0.9, b=0.4, epsilon=0.1)


@pytest.mark.parametrize(
    ("documents", "question"),
    [
        (["a b", "a c", "d", "e"], "a"),  # in half of the documents: idf is 0
        (["a b", "a c", "a d e", "f"], "a b"),  # in three of four: negative idf replaced
        (["a", "a", "a"], "a"),  # all idf negative, and so is their mean
        (["", "a b c", ""], "a"),  # empty documents
        (["a b a"], "a"),  # a case of one document
        (["a b", "c"], ""),  # a question without tokens
        (["a b", "c"], "zz yy"),  # unknown tokens
        (["a b", "c d", "e f"], "a a a c"),  # repeated tokens count each time
        (["", ""], "a"),  # no token at all
        ([], "a"),  # no document at all
    ],
)
def test_edges(documents, question):
    others = [["x y", "a z", "q"], documents, ["a"]]
    check(others, [question, "x a"], [1, 0])


def test_by_hand():
    # Three documents of length 2, 1 and 3, so the mean is 2. "a" is in one: idf = ln 2.5 - ln 1.5.
    (values,) = scores_of([["a b", "b", "c c d"]], ["a"], [0])
    idf = math.log(2.5) - math.log(1.5)
    assert values == pytest.approx([idf * 1 * 2.5 / (1 + 1.5), 0.0, 0.0], abs=1e-12)


def test_statistics_are_those_of_the_case_alone():
    case = ["red fox", "blue fox", "green bird", "red bird sings", "nothing"]
    alone = scores_of([case], ["red fox"], [0])
    among = scores_of([["red"] * 50, case, ["fox fox"]], ["red fox"], [1])
    assert among == alone


@pytest.mark.skipif(not LOCOMO.exists(), reason="the LoCoMo data is not beside this checkout")
def test_a_locomo_conversation():
    case = json.loads(LOCOMO.read_text(encoding="utf-8"))[0]
    talk = case["conversation"]
    sessions = [v for k, v in talk.items() if isinstance(v, list)]
    documents = [f"{m['speaker']} {m['text']} {m.get('blip_caption', '')}" for s in sessions for m in s]
    questions = [q["question"] for q in case["qa"]]
    index = BM25Okapi([tokenize_one(d) for d in documents])
    found = scores_of([documents], questions, [0] * len(questions))
    for values, question in zip(found, questions, strict=True):
        assert values == pytest.approx(index.get_scores(tokenize_one(question)).tolist(), abs=1e-9)
