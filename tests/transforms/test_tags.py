from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transforms import tags


@pytest.mark.parametrize(
    ("raw", "normal"),
    [
        ("career/software_engineering", "career/software_engineering"),
        ("Career / Software Engineering", "career/software_engineering"),
        ("  LGBTQ+ ", "lgbtq"),
        ("Caroline's", "caroline"),
        ("caroline’s dog", "caroline_dog"),
        ("O'Brien", "obrien"),
        ("Café Noir", "café_noir"),
        ("Cafe\u0301", "café"),
        ("東京/渋谷", "東京/渋谷"),
        ("ＡＢＣ", "abc"),
        ("हिन्दी", "हिन्दी"),
        ("a/b/c/d/e", "a/b/c/d"),
        ("//a//b/", "a/b"),
        ("1,000 km", "1_000_km"),
        ("work/She went to the shop and bought seven new shirts", "work"),
        ("She went to the shop and bought seven new shirts", None),
        ("x" * 65, None),
        ("a/" + "x" * 65 + "/b", "a"),
        ("", None),
        ("/", None),
        ("!?🙂", None),
        ("'", None),
        ("\x00\ud800", None),
    ],
)
def test_normal_forms(raw, normal):
    assert tags.normalise(raw) == normal


@given(st.text(max_size=90))
@settings(deadline=None, max_examples=400)
def test_normal_form_is_its_own(raw):
    once = tags.normalise(raw)
    if once is not None:
        assert tags.normalise(once) == once
        levels = once.split("/")
        assert 1 <= len(levels) <= tags.MAX_LEVELS
        assert all(level and len(level.split("_")) <= tags.MAX_WORDS for level in levels)


@given(st.lists(st.one_of(st.none(), st.text(alphabet="aB/_ 'é", max_size=8)), max_size=20))
@settings(deadline=None, max_examples=50)
def test_vectorised_form_agrees(raw):
    expected = [None if t is None else tags.normalise(t) for t in raw]
    assert tags.normalise_all(raw).to_pylist() == expected
    column = pa.chunked_array([pa.array(raw, type=pa.large_string()), pa.array(raw, type=pa.large_string())])
    assert tags.normalise_all(column).to_pylist() == expected * 2
    assert tags.normalise_all(column.dictionary_encode()).to_pylist() == expected * 2


def test_no_chunks():
    assert tags.normalise_all(pa.chunked_array([], type=pa.string())).to_pylist() == []


def test_prefixes_are_the_ontology():
    assert tags.prefixes(["b/c/d", "a", "b/c", "b/x"]).to_pylist() == ["a", "b", "b/c", "b/c/d", "b/x"]
    assert tags.prefixes([]).to_pylist() == []
    assert tags.prefixes(pa.array(["z/é"]).dictionary_encode()).to_pylist() == ["z", "z/é"]
