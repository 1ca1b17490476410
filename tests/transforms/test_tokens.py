import re
import sys

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transforms import tokens as module
from transforms.tokens import tokenize, tokenize_one

TRICKY = "aZ_09 .\n\0éÉßẞİıΣσςǅǲKÅȺⱥΩ𐐀𐐨日本かナทไΚາក᠐က々ー〇ｱﾞ😀️\u0301\u200dЖж٣²½ªꙮ"
texts = st.lists(st.text(st.sampled_from(TRICKY) | st.characters(exclude_categories=["Cs"]), max_size=30), max_size=8)


def words(array):
    result = tokenize(array)
    terms = result.terms.to_pylist()
    assert len(set(terms)) == len(terms)
    return [
        [terms[i] for i in result.ids[first:last]]
        for first, last in zip(result.offsets[:-1], result.offsets[1:], strict=True)
    ]


@settings(deadline=None, max_examples=300)
@given(texts)
def test_many_texts_at_once_are_as_one_by_one(values):
    assert words(pa.array(values, pa.large_string())) == [tokenize_one(v) for v in values]


@settings(deadline=None, max_examples=150)
@given(st.lists(st.text(st.sampled_from("aB_1 é-ΣİÄжß'\n"), max_size=40), max_size=6))
def test_spaced_scripts_are_the_plain_regex(values):
    expected = [re.findall(r"\w+", v.lower()) for v in values]
    assert words(pa.array(values, pa.string())) == expected
    assert [tokenize_one(v) for v in values] == expected


def test_every_code_point_beside_a_letter():
    points = [chr(i) for i in range(sys.maxunicode + 1) if not 0xD800 <= i < 0xE000]
    # Spread over documents of 64 characters, each between letters, so that joins and breaks both show.
    values = ["x".join(points[i : i + 64]) + "y" for i in range(0, len(points), 64)]
    assert words(pa.array(values)) == [tokenize_one(v) for v in values]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("It's 9 o'clock_now", ["it", "s", "9", "o", "clock_now"]),
        ("ΟΔΟΣ ΟΔΟΣΑ", ["οδος", "οδοσα"]),
        ("İstanbul", ["i", "stanbul"]),
        ("我爱NLP", ["我", "爱", "nlp"]),
        ("カナかな", ["カ", "ナ", "か", "な"]),
        ("한국어 텍스트", ["한국어", "텍스트"]),
        ("a\0b", ["a", "b"]),
        ("👩\u200d💻 code", ["code"]),
        ("abcdefgh abcdefghi abcdefgh", ["abcdefgh", "abcdefghi", "abcdefgh"]),
    ],
)
def test_known_texts(text, expected):
    assert tokenize_one(text) == expected
    assert words(pa.array([text])) == [expected]


def test_documents_do_not_run_into_each_other():
    assert words(pa.array(["ab", "", "cd", "日", "本", "x" * 9, "y" * 9])) == [
        ["ab"], [], ["cd"], ["日"], ["本"], ["x" * 9], ["y" * 9],
    ]  # fmt: skip


def test_chunks_slices_nulls_and_both_string_types():
    array = pa.array(["zero", "One two", None, "THREE one"])
    expected = [["one", "two"], [], ["three", "one"]]
    assert words(array.slice(1)) == expected
    assert words(array.cast(pa.large_string()).slice(1)) == expected
    chunked = pa.chunked_array([array.slice(1, 1), pa.array([], pa.string()), array.slice(2)])
    assert words(chunked) == expected


def test_terms_are_in_order_of_first_appearance():
    result = tokenize(pa.array(["the extraordinary b", "b the a internationalisation extraordinary"]))
    assert result.terms.to_pylist() == ["the", "extraordinary", "b", "a", "internationalisation"]
    assert result.ids.tolist() == [0, 1, 2, 2, 0, 3, 4, 1]
    assert result.offsets.tolist() == [0, 3, 8]


def test_nothing_gives_nothing():
    for empty in (pa.array([], pa.string()), pa.chunked_array([], pa.large_string())):
        result = tokenize(empty)
        assert (len(result.ids), result.offsets.tolist(), len(result.terms)) == (0, [0], 0)
    assert tokenize(pa.array(["", "!?"])).offsets.tolist() == [0, 0, 0]


def test_blocks_do_not_change_the_result(monkeypatch):
    rng = np.random.default_rng(7)
    letters = list("abcXYZ éΣİ日ßk.")
    values = ["".join(rng.choice(letters, size)) for size in rng.integers(0, 60, 200)]
    whole = tokenize(pa.array(values))
    monkeypatch.setattr(module, "_BLOCK", 64)
    parts = tokenize(pa.array(values))
    assert whole.terms.equals(parts.terms)
    assert whole.ids.tolist() == parts.ids.tolist()
    assert whole.offsets.tolist() == parts.offsets.tolist()


def test_one_text_of_many_megabytes():
    text = "Grüße " * 400_000
    result = tokenize(pa.array([text, "x"]))
    assert result.terms.to_pylist() == ["grüße", "x"]
    assert result.offsets.tolist() == [0, 400_000, 400_001]
