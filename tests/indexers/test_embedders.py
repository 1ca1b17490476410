import json
import socket

import numpy as np
import psutil
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from indexers import embedders
from indexers.embedders import wordllama
from indexers.embedders._passes import SHORTEST, passes
from indexers.embedders._rows import prefixes, unit
from schemas.errors import ConfigError, UsageError

TEXTS = [
    "Melanie said that Caroline went to the LGBTQ support group yesterday.",
    "two  spaces,   three, and\na line\n\n  - with an indent",
    "naïve café, Größe, 日本語のテキスト, 한국어, емоджи 🎉🎉",
    "a",
    "for (int i = 0; i < 10; ++i) { x[i] *= 2.5; }\t// tab",
    "▁▁ a text of the tokenizer's own mark ▁",
]


@pytest.fixture(scope="module")
def static():
    return wordllama.open(None, wordllama.Options())


def bits(rows):
    return [row.tobytes() for row in rows]


def test_every_embedder_has_what_one_needs():
    assert set(embedders.names()) >= {"wordllama", "sentence_transformers", "onnx", "openai"}
    for name in embedders.names():
        module = embedders.load(name)
        assert name == module.NAME
        assert module.VERSION >= 1
        assert module.Options.model_config["extra"] == "forbid"
        assert callable(module.identity)
        assert callable(module.located)
        assert callable(module.open)


def test_an_unknown_embedder_and_an_unknown_option_are_told():
    with pytest.raises(UsageError, match="Did you mean 'wordllama'"):
        embedders.load("word_llama")
    with pytest.raises(ConfigError, match="Did you mean 'query_prefix'"):
        embedders.options_of(embedders.load("onnx"), {"query_prefx": "x"})
    with pytest.raises(ConfigError, match="has no options"):
        embedders.options_of(embedders.load("wordllama"), {"dim": 64})


def test_another_model_of_wordllama_is_refused():
    with pytest.raises(ConfigError, match=r"embed\.model.*no model 'l3"):
        wordllama.open("l3_supercat_256", wordllama.Options())
    plain = wordllama.Options()
    assert wordllama.identity("l2_supercat_256", plain) == wordllama.identity(None, plain)


def test_the_identity_of_wordllama_is_its_files():
    (weights, words) = wordllama.identity(None, wordllama.Options())["files"]
    assert len(weights) == len(words) == 32
    assert weights != words


def test_vectors_are_those_of_the_library(static):
    inference = pytest.importorskip("wordllama.inference")
    found = static.embed(TEXTS[:5], "document")
    try:
        theirs = inference.WordLlamaInference(static._table, static._tokenizer)
        expected = theirs.embed(TEXTS[:5], norm=True, batch_size=1)
    finally:
        static._tokenizer.no_padding()
    assert found == pytest.approx(expected, abs=2e-6)
    assert found.dtype == np.float32


def whole(static, text):
    """Return the vector by the definition: the tokens of the whole text."""
    text = text.replace("▁", " ").strip()
    ids = static._tokenizer.encode(text or " ", add_special_tokens=False).ids
    total = static._table[ids].astype(np.float64).sum(axis=0)
    return total / np.linalg.norm(total)


@settings(max_examples=150, deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=80))
@example(" leading and  trailing  ")
@example("</s> <s><unk> <0x0A>")
@example("\u00a0 \u2003x")
def test_cutting_at_spaces_changes_no_token(static, text):
    (found,) = static.embed([text], "document")
    if text.isspace():
        assert not found.any()
    else:
        assert found == pytest.approx(whole(static, text), abs=1e-7)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from([*TEXTS, "", " \n\t", "word " * 50]), max_size=12), st.integers(1, 5))
def test_the_texts_beside_one_change_no_bit(static, texts, size):
    together = static.embed(texts, "document")
    assert together.shape == (len(texts), 256)
    apart = [static.embed(texts[low : low + size], "query") for low in range(0, len(texts), size)]
    assert bits(together) == [row for part in apart for row in bits(part)]
    lengths = np.sqrt((together.astype(np.float64) ** 2).sum(axis=1))
    assert lengths == pytest.approx([1.0 if text.strip() else 0.0 for text in texts], abs=1e-6)


def test_blocks_and_forgotten_words_change_no_bit(static, monkeypatch):
    before = static.embed(TEXTS * 3, "document")
    monkeypatch.setattr(wordllama, "_BLOCK", 40)
    monkeypatch.setattr(wordllama, "_REMEMBERED", 3)
    monkeypatch.setattr(wordllama, "_LONG", 4)
    fresh = wordllama.open(None, wordllama.Options())
    assert bits(fresh.embed(TEXTS * 3, "document")) == bits(before)
    assert len(fresh._tokens_of) < 60


def test_nobody_writes_control_tokens_into_a_text(static):
    ids = [static._tokenizer.token_to_id(token) for token in ("<s>", "</s>", "<unk>")]
    (found,) = static.embed(["<s></s><unk>"], "document")
    forged = static._table[ids].astype(np.float64).sum(axis=0)
    assert abs(found @ forged / np.linalg.norm(forged)) < 0.9


def test_a_text_without_spaces_is_cut_after_every_4000_characters(static):
    long = static.embed(["x" * 100_001, "x" * 4000, "日本" * 50_000, "\ud800 x\0", "\ud83d"], "document")
    assert np.isfinite(long).all()
    assert float(long[0] @ long[1]) > 0.999
    assert wordllama._spaced("x" * 8001) == f"{'x' * 4000} {'x' * 4000} x"
    assert wordllama._spaced("ab " * 5000) == ("ab " * 5000).rstrip()


def test_wordllama_needs_no_network(monkeypatch):
    def refuse(*arguments):
        raise AssertionError(f"a connection to {arguments[1:]}")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    assert wordllama.open(None, wordllama.Options()).embed(["no network"], "query").any()


def test_words_are_looked_up_without_further_threads(static):
    process = psutil.Process()
    before = process.num_threads()
    static.embed([f"text{number}" for number in range(2000)], "document")
    assert process.num_threads() == before


def test_rows_become_unit_length_and_broken_ones_zeros():
    rows = unit(np.array([[3.0, 4.0], [0.0, 0.0], [np.nan, 1.0], [np.inf, 1.0], [3e200, 4e200], [3e-200, -4e-200]]))
    assert rows.tolist() == [
        pytest.approx([0.6, 0.8]),
        [0.0, 0.0],
        [0.0, 0.0],
        [0.0, 0.0],
        pytest.approx([0.6, 0.8]),
        pytest.approx([0.6, -0.8]),
    ]


def test_prefixes_are_the_options_or_the_models_own():
    own = {"query": "q: ", "passage": "p: ", "sts": "s: "}
    assert prefixes(None, None, own, "sts") == {"query": "q: ", "document": "p: "}
    assert prefixes("", "d: ", own, "sts") == {"query": "", "document": "d: "}
    assert prefixes(None, None, {"sts": "s: "}, "sts") == {"query": "s: ", "document": "s: "}
    assert prefixes(None, None, {}, None) == {"query": "", "document": ""}


@given(st.lists(st.integers(1, 300), min_size=1, max_size=60), st.integers(1, 400), st.integers(16, 2000))
def test_passes_hold_every_text_once_in_few_shapes(lengths, limit, tokens):
    lengths = np.minimum(lengths, limit)
    done = list(passes(lengths, limit, tokens))
    assert sorted(row for one in done for row in one.rows[: one.real].tolist()) == list(range(len(lengths)))
    shapes = {}
    for one in done:
        assert lengths[one.rows].max() <= one.length <= max(limit, SHORTEST)
        assert shapes.setdefault(one.length, len(one.rows)) == len(one.rows)
        assert len(one.rows) == 1 or len(one.rows) * one.length <= tokens
        assert one.length <= SHORTEST or one.length * 2 <= 3 * lengths[one.rows].min() + 3


def test_the_lengths_of_passes():
    lengths = {one.length for one in passes(np.arange(1, 101), 100, 256)}
    assert sorted(lengths) == [16, 24, 32, 48, 64, 96, 100]


def test_the_identity_is_plain_data():
    for name, model in (("wordllama", None), ("openai", "text-embedding-3-small")):
        module = embedders.load(name)
        assert json.loads(json.dumps(module.identity(model, module.Options()))) == module.identity(
            model, module.Options()
        )
