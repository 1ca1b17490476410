import pyarrow as pa
import pytest
import Stemmer
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.errors import ConfigError
from transforms.stems import STOP_WORDS, check_language, stem_terms, stemmed
from transforms.tokens import tokenize, tokenize_one


def words_of(tokens):
    terms = tokens.terms.to_pylist()
    return [
        [terms[i] for i in tokens.ids[low:high]]
        for low, high in zip(tokens.offsets[:-1], tokens.offsets[1:], strict=True)
    ]


def test_published_examples():
    # Of Snowball's English (Porter2) vocabulary.
    pairs = {
        "running": "run",
        "consigned": "consign",
        "knightly": "knight",
        "consolatory": "consolatori",
        "dying": "die",
    }
    assert stem_terms(pa.array(list(pairs))).to_pylist() == list(pairs.values())
    assert stem_terms(pa.array(["häuser", "and", "der"]), "german").to_pylist() == ["haus", "and", "der"]


def test_stop_words_go_before_they_are_stemmed():
    # "doing" is a stop word, "thing" none; "haves" has the stem of the stop word "have" and stays.
    assert stem_terms(pa.array(["doing", "thing", "haves", "we"])).to_pylist() == [None, "thing", "have", None]


def test_stop_words_are_tokens():
    # A word that no tokenizer gives would never be dropped: of "don't" it makes "don" and "t".
    assert all(tokenize_one(word) == [word] for word in STOP_WORDS["english"])
    assert {"don", "t", "ll", "s"} <= STOP_WORDS["english"]


def test_words_of_one_stem_are_one():
    tokens = stemmed(tokenize(pa.array(["The dogs ran", "", "dog, dogs; DOG!", "the of and"])))
    assert words_of(tokens) == [["dog", "ran"], [], ["dog", "dog", "dog"], []]
    assert tokens.terms.to_pylist() == ["dog", "ran"]
    assert words_of(stemmed(tokenize(pa.array([], pa.string())))) == []
    assert words_of(stemmed(tokenize(pa.array(["", "the"])))) == [[], []]


WORDS = ["the", "cats", "cat", "Running", "ran", "über", "北京", "_x", "12", "naïve"]


@given(st.lists(st.lists(st.sampled_from(WORDS), max_size=6), max_size=5))
@settings(max_examples=25, deadline=None)
def test_equal_to_stemming_each_word(documents):
    texts = [" ".join(words) for words in documents]
    stem = Stemmer.Stemmer("english").stemWord
    wanted = [[stem(w) for w in tokenize_one(text) if w not in STOP_WORDS["english"]] for text in texts]
    assert words_of(stemmed(tokenize(pa.array(texts, pa.string())))) == wanted


def test_languages():
    check_language("spanish")
    with pytest.raises(ConfigError, match=r"(?s)no stemmer for 'englisch'.*Did you mean 'english'"):
        check_language("englisch")
    with pytest.raises(ConfigError, match=r"(?s)no stemmer for '../x'.*Languages: .*english"):
        check_language("../x")
