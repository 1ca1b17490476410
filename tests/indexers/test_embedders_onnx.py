import importlib.util
import os
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnxruntime")

from indexers.embedders import EmbedderError, load, onnx, options_of
from schemas.errors import ConfigError
from tests.indexers import onnx_model
from tests.indexers.onnx_model import graph, write

INPUTS = ("input_ids", "attention_mask", "token_type_ids")
HALF = 0.5**0.5


def opened(folder, **options):
    return onnx.open(folder, options_of(onnx, options))


def test_a_text_is_the_mean_of_its_tokens_and_padding_does_not_count(tmp_path):
    embedder = opened(write(tmp_path, graph(*INPUTS)))
    found = embedder.embed(["red", "red green", "", "red green green", " \n", "red blue", "nothing known"], "document")
    assert found.dtype == np.float32
    assert found == pytest.approx(
        np.array([[1, 0], [HALF, HALF], [0, 0], [0.2**0.5, 0.8**0.5], [0, 0], [0, 0], [0, 0]]), abs=1e-6
    )
    assert embedder.embed([], "query").shape == (0, 2)
    assert embedder.embed([""], "query").tolist() == [[0, 0]]
    embedder.close()


@pytest.mark.parametrize(
    ("pooling", "expected"),
    [
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, [1, 0]),
        ({"pooling_mode_lasttoken": True}, [0, 1]),
        ({"pooling_mode": "cls", "include_prompt": True}, [1, 0]),
        ({"pooling_mode": "mean", "include_prompt": True}, [0.2**0.5, 0.8**0.5]),
    ],
)
def test_the_folder_says_how_tokens_become_one(tmp_path, pooling, expected):
    embedder = opened(write(tmp_path, graph(*INPUTS), pooling=pooling))
    assert embedder.embed(["red green green", "blue"], "document") == pytest.approx(
        np.array([expected, [-1, 0]]), abs=1e-6
    )


def test_what_it_cannot_do_is_told(tmp_path):
    both = {"pooling_mode_cls_token": True, "pooling_mode_max_tokens": True}
    with pytest.raises(ConfigError, match=r"needs cls_token\+max_tokens.*\n.*sentence_transformers"):
        opened(write(tmp_path / "a", graph(*INPUTS), pooling=both))
    modules = [{"type": "sentence_transformers.models.Transformer"}, {"type": "sentence_transformers.models.Dense"}]
    with pytest.raises(ConfigError, match="needs Dense"):
        opened(write(tmp_path / "b", graph(*INPUTS), modules=modules))
    with pytest.raises(EmbedderError, match="takes input_ids, position_ids and gives"):
        opened(write(tmp_path / "c", graph("input_ids", "position_ids")))
    (Path(write(tmp_path / "d", graph(*INPUTS))) / "config.json").write_text("{")
    with pytest.raises(ConfigError, match=r"config\.json.*no JSON"):
        opened(str(tmp_path / "d"))


def test_missing_and_damaged_files_are_told(tmp_path):
    for call in (onnx.open, onnx.identity):
        with pytest.raises(ConfigError, match="needs a model"):
            call(None, onnx.Options())
        with pytest.raises(ConfigError, match="no folder '/nowhere'"):
            call("/nowhere", onnx.Options())
        with pytest.raises(ConfigError, match="no folder 'xxxx"):
            call("x" * 5000, onnx.Options())
        with pytest.raises(ConfigError, match=r"has no model\.onnx and no tokenizer\.json"):
            call(str(tmp_path), onnx.Options())
    folder = write(tmp_path / "x", b"no protobuf at all")
    with pytest.raises(EmbedderError, match="cannot be used"):
        opened(folder)


def test_prefixes_are_embedded_and_part_of_the_identity(tmp_path):
    told = {"prompts": {"query": "q: ", "document": ""}, "default_prompt_name": None}
    folder = write(tmp_path, graph(*INPUTS), config_sentence_transformers=told)
    embedder = opened(folder)
    assert embedder.prefixes == {"query": "q: ", "document": ""}
    assert embedder.embed(["blue"], "document").tolist() == [[-1, 0]]
    assert embedder.embed(["blue"], "query") == pytest.approx(np.array([[-1, 8]]) / 65**0.5)
    assert opened(folder, query_prefix="", document_prefix="d: ").embed(["blue"], "query").tolist() == [[-1, 0]]
    plain, other = (onnx.identity(folder, options_of(onnx, o)) for o in ({}, {"query_prefix": "x"}))
    assert plain["model"] == other["model"]
    assert plain != other


def test_the_identity_is_the_content_and_not_the_path(tmp_path):
    one = onnx.identity(write(tmp_path / "one", graph(*INPUTS)), onnx.Options())
    assert onnx.identity(write(tmp_path / "two", graph(*INPUTS)), onnx.Options()) == one
    other = onnx.identity(write(tmp_path / "three", graph(*INPUTS[:2])), onnx.Options())
    assert other["model"] != one["model"]


def test_the_shortest_limit_that_the_folder_names_cuts_texts(tmp_path):
    folder = write(
        tmp_path,
        graph(*INPUTS),
        sentence_bert_config={"max_seq_length": 3},
        tokenizer_config={"model_max_length": 1e30},
        config={"max_position_embeddings": 512},
    )
    found = opened(folder).embed(["red red green " + "blue " * 100_000, "red red green"], "document")
    assert found[0].tolist() == found[1].tolist()


def test_models_of_the_hub_and_int32_models_are_taken(tmp_path):
    folder = write(tmp_path, graph(*INPUTS, kind=6, output="token_embeddings"), place="onnx/model.onnx")
    assert opened(folder).embed(["red red"], "query").tolist() == [[1, 0]]
    embedder = opened(write(tmp_path / "ids", graph("input_ids")))
    assert embedder.embed(["green"], "query").tolist() == [[0, 1]]


def test_an_open_model_says_where_it_lies(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models" / "x").mkdir(parents=True)
    assert onnx.located("models/x") == str(tmp_path / "models" / "x")
    assert load("onnx").located(None) is None


def exported() -> Path | None:
    """Return a folder with a real model in ONNX's format, which no package ships: the variable names it."""
    named = os.environ.get("TAGLOOM_TEST_ONNX", "")
    return Path(named) if named and importlib.util.find_spec("sentence_transformers") else None


@pytest.mark.skipif(exported() is None, reason="needs sentence-transformers, and MiniLM in TAGLOOM_TEST_ONNX")
def test_a_real_model_gives_the_vectors_of_sentence_transformers():
    from tests.indexers.test_embedders_sentence_transformers import MINILM, TEXTS, reference

    embedder = opened(str(exported()))
    found = embedder.embed(TEXTS, "document")
    assert found == pytest.approx(reference(str(MINILM)), abs=2e-6)
    alone = np.concatenate([embedder.embed([text], "document") for text in TEXTS])
    assert found.tobytes() == alone.tobytes()


def test_the_table_of_the_small_model():
    assert len(onnx_model.TABLE) == len(onnx_model.WORDS)
