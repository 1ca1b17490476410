"""BM25 over sessions, over stems and with Lucene's idf: against rank-bm25, and by hand."""

import math

import numpy as np
import pyarrow as pa
import pytest
from rank_bm25 import BM25Okapi

from indexers import postings as lists
from tests.indexers.drawn import Case, batch, preset, scored
from transforms.stems import STOP_WORDS, stemmed
from transforms.tokens import tokenize, tokenize_one

TEXTS = {
    "a": [
        ("s", "we trained the dog today"),
        ("s", "the cat slept, and the dog"),
        ("t", "a trip to rome by train"),
        ("s", "dogs bark"),
        ("u", ""),
        ("u", "dinner in rome with Anna"),
    ],
    "b": [("t", "dog dog rome"), ("s", "cat"), ("v", "train")],
}
QUESTIONS = [("a", "the dog in Rome"), ("b", "dog dog trains"), ("a", "xyzzy"), ("b", ""), ("a", "Anna's dinner")]


@pytest.fixture(scope="module")
def made():
    cases = {name: Case([[1, 0]] * len(rows), [session for session, _ in rows]) for name, rows in TEXTS.items()}
    raw = tokenize(pa.array([text for rows in TEXTS.values() for _, text in rows], pa.string()))
    offsets = np.concatenate([[0], np.cumsum([len(rows) for rows in TEXTS.values()])]).astype(np.int64)
    tables = {}
    for field, tokens in (("raw", raw), ("stem", stemmed(raw))):
        counted = lists.to_table(lists.build_postings(tokens, offsets), list(TEXTS), field)
        tables[f"index/{field}", "postings"] = counted
        tables[f"index/{field}", "vocabulary"] = lists.vocabulary_table(tokens.terms)
    asked = [(case, [1, 0], text) for case, text in QUESTIONS]
    return batch(cases, asked, tables_of=lambda unit, table: tables[unit, table])


def sessions_of(case):
    joined = {}
    for session, text in TEXTS[case]:
        joined[session] = f"{joined.get(session, '')} {text}"
    return joined


@pytest.mark.parametrize("numbers", [{}, {"k1": 0.9, "b": 0.4, "epsilon": 0.1}])
def test_sessions_equal_rank_bm25_on_joined_texts(made, numbers):
    parts, _ = scored(preset(method="bm25", unit="session", **numbers), made)
    for (case, question), part in zip(QUESTIONS, parts, strict=True):
        joined = sessions_of(case)
        oracle = BM25Okapi([tokenize_one(text) for text in joined.values()], **numbers)
        wanted = dict(zip(joined, oracle.get_scores(tokenize_one(question)), strict=True))
        # rank-bm25 gives 0 to a term in exactly half of the documents, which counts as next to nothing here.
        assert part == pytest.approx([wanted[session] for session, _ in TEXTS[case]], abs=1e-9)


def lucene(documents, words, k1=1.5, b=0.75):
    """Return BM25 with Lucene's idf, word by word."""
    average = sum(map(len, documents)) / len(documents)
    scores = []
    for document in documents:
        total = 0.0
        for word in words:
            df = sum(word in other for other in documents)
            tf = document.count(word)
            if df and tf:
                idf = math.log(1 + (len(documents) - df + 0.5) / (df + 0.5))
                total += idf * tf * (k1 + 1) / (tf + k1 * (1 - b + b * len(document) / average))
        scores.append(total)
    return scores


def stems(text):
    (low, high) = (tokens := stemmed(tokenize(pa.array([text])))).offsets
    return [tokens.terms[int(i)].as_py() for i in tokens.ids[low:high]]


@pytest.mark.parametrize("field", ["raw", "stem"])
def test_lucenes_idf_is_never_negative(made, field):
    words = tokenize_one if field == "raw" else stems
    parts, _ = scored(preset(method="bm25", text={"field": field}, idf="lucene"), made)
    for (case, question), part in zip(QUESTIONS, parts, strict=True):
        assert part == pytest.approx(lucene([words(text) for _, text in TEXTS[case]], words(question)), rel=1e-12)
        assert (part >= 0).all()


def test_stems_find_other_forms_and_stop_words_nothing(made):
    assert "the" in STOP_WORDS["english"]
    stem, raw = (
        scored(preset(method="bm25", text={"field": field}, idf="lucene"), made)[0] for field in ("stem", "raw")
    )
    assert raw[1].tolist()[2] == 0  # "trains" is no word of the third text, "train" is
    assert stem[1].tolist()[2] > 0
    assert np.flatnonzero(stem[0]).tolist() == [0, 1, 2, 3, 5]  # "dogs" too, and not for "the" or "in"


def test_by_hand():
    # One session of two texts, one of one: of two documents of 3 and 1 tokens, "b" is in the first alone.
    cases = {"a": Case([[1, 0]] * 3, ["s", "t", "s"])}
    tokens = tokenize(pa.array(["a b", "a", "b"]))
    tables = {
        ("index/raw", "postings"): lists.to_table(lists.build_postings(tokens, np.array([0, 3])), ["a"], "raw"),
        ("index/raw", "vocabulary"): lists.vocabulary_table(tokens.terms),
    }
    given = batch(cases, [("a", [1, 0], "b")], tables_of=lambda unit, table: tables[unit, table])
    own = preset(method="bm25", unit="session", idf="lucene", k1=1.5, b=0.75)
    # idf = ln(1 + 1.5/1.5), tf 2, length 3 of a mean of 2.
    wanted = math.log(2) * 2 * 2.5 / (2 + 1.5 * (0.25 + 0.75 * 1.5))
    assert scored(own, given)[0][0] == pytest.approx([wanted, 0, wanted], rel=1e-12)


@pytest.mark.parametrize("unit", ["interaction", "session"])
@pytest.mark.parametrize("idf", ["okapi", "lucene"])
def test_cases_without_a_word(unit, idf):
    cases = {"empty": Case([[1, 0]] * 2, ["s", "t"]), "one": Case([[1, 0]])}
    tokens = tokenize(pa.array(["", "?!", "北京 is north"]))
    tables = {
        ("index/raw", "postings"): lists.to_table(
            lists.build_postings(tokens, np.array([0, 2, 3])), list(cases), "raw"
        ),
        ("index/raw", "vocabulary"): lists.vocabulary_table(tokens.terms),
    }
    asked = [("empty", [1, 0], "north"), ("one", [1, 0], "京"), ("one", [1, 0], "")]
    given = batch(cases, asked, tables_of=lambda unit, table: tables[unit, table])
    parts, _ = scored(preset(method="bm25", unit=unit, idf=idf), given)
    assert parts[0].tolist() == [0, 0]
    assert parts[1][0] != 0  # each Han character is a word of its own
    assert parts[2].tolist() == [0]
