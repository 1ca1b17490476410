"""Kinds of plug-ins: each in its own words, ours before those of others, nothing loaded before it is asked for."""

import subprocess
import sys

import pytest

from indexers import embedders, methods
from schemas import registry
from schemas.errors import UsageError
from transforms import engines, extractors, graphs, tasks
from transforms.tasks import studies

KINDS = [
    (graphs, "concpt", "graph.kinds: no graph kind is called 'concpt'", "concept", "Kinds: concept, entity, "),
    (engines, "opnai", "extract.extractor: no engine is called 'opnai'", "openai", "Engines: llamacpp, openai, vllm."),
    (extractors, "lexcal", "extract.extractor: no extractor is called 'lexcal'", "lexical", "Extractors: lexical, "),
    (embedders, "onxn", "embed.embedder: no embedder is called 'onxn'", "onnx", "Embedders: onnx, openai, "),
    (methods, "bm52", "rank.define: no method is called 'bm52'", "bm25", "Methods: bm25, "),
    (tasks, "note", "extract.tasks: no task is called 'note'", "notes", "Tasks: entities, facts, "),
    (studies, "raeding", "no study is called 'raeding'", None, "Studies: "),
]


@pytest.mark.parametrize(("kind", "wrong", "told", "meant", "listed"), KINDS)
def test_what_is_not_there_is_told_in_the_words_of_its_kind(kind, wrong, told, meant, listed):
    with pytest.raises(UsageError) as caught:
        kind.load(wrong)
    hint = f"Did you mean '{meant}'? " if meant else ""
    assert str(caught.value).startswith(f"{told}\n  {hint}{listed}")
    with pytest.raises(UsageError, match=r"no .* is called '_rows'"):
        kind.load("_rows")


def test_who_names_it_can_be_told():
    with pytest.raises(UsageError) as caught:
        graphs.load("concpt", "rank.define.mine.graph")
    assert caught.value.where == "rank.define.mine.graph"


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Another distribution that brings an embedder, and one of a name that is taken."""
    (tmp_path / "their_embedder.py").write_text('NAME = "theirs"\n')
    facts = tmp_path / "their_embedder-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: their-embedder\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text("[tagloom.embedders]\ntheirs = their_embedder\nonnx = their_embedder\n")
    monkeypatch.syspath_prepend(tmp_path)
    registry.theirs.cache_clear()
    yield
    registry.theirs.cache_clear()


def test_others_are_found_and_ours_win(installed):
    assert embedders.names() == ("onnx", "openai", "sentence_transformers", "theirs", "wordllama")
    assert embedders.load("theirs").NAME == "theirs"
    assert embedders.load("onnx").__name__ == "indexers.embedders.onnx"
    # Not of their kind, and a kind without entry points.
    assert "theirs" not in {*methods.names(), *tasks.names()}


def test_names_load_no_module_of_a_kind():
    code = (
        "import sys; from indexers import embedders, methods; from transforms import engines, graphs; "
        "[kind.names() for kind in (embedders, methods, engines, graphs)]; "
        "print([name for name in sys.modules if name.startswith(('indexers.methods.', 'indexers.embedders.', "
        "'transforms.engines.')) or name == 'transforms.graphs.concept'])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"
