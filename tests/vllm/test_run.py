"""A run whose notes vLLM makes: the driver under this Python, the replica under that of the vLLM environment."""

import shutil
from collections import Counter
from pathlib import Path

import pytest

from pipelines.store import Store
from schemas import tables
from tests.pipelines.corpora import live, run
from transforms import synth

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
CASES, INTERACTIONS = 8, 48
ASKS = {
    "extract.extractor": "vllm",
    "extract.model": str(ROOT / "build" / "smollm2"),
    "extract.python": str(ROOT / ".venv-vllm" / "bin" / "python"),
    "extract.options": {"gpus": 0, "context_tokens": 4096, "cpu_kv_gb": 1},
    "extract.max_tokens": 256,
    "extract.ontology_window": 2,  # two of each case at once fill the engine's slots
    "compute.workers": 1,
    "rank.presets": ["bm25", "adaptivegraph"],
}


def test_every_interaction_gets_its_note_and_the_journal_gives_them_again(ray_session, tmp_path):
    synth.write(str(tmp_path / "logs"), size=INTERACTIONS, cases=CASES, seed=5)
    result = run(tmp_path / "corpus", tmp_path / "logs", **ASKS)
    table = Store.open(str(tmp_path / "corpus")).generation("main").table("notes")
    notes = table.to_pylist()
    assert table.schema.equals(tables.schema("notes"))
    assert (len(notes), len({note["case_id"] for note in notes})) == (INTERACTIONS, CASES)
    status = Counter(note["status"] for note in notes)
    spent = result.manifests["extract"].run
    print("\nnotes:", dict(status), *(f"{name}: {value}" for name, value in spent.items()), sep="\n  ")
    # The model is small and its notes are nonsense, but decoding is guided: only a reply that was cut needs mending.
    assert {note["error"] for note in notes} <= {None, "the reply was cut at its limit", "the reply names nothing"}
    assert status["failed"] == 0 and status["ok"] > INTERACTIONS / 2
    assert spent["requests"] == INTERACTIONS and spent["corrupt"] == 0 and spent["engine_deaths"] == 0
    assert spent["cached_tokens"] > spent["prompt_tokens"] / 2, "the constant part of the prompt comes from the cache"

    expected = live(tmp_path / "corpus")
    for folder in ("tables/notes", "manifests/extract"):
        shutil.rmtree(tmp_path / "corpus" / folder)
    (tmp_path / "corpus" / "heads.json").unlink()
    again = run(tmp_path / "corpus", tmp_path / "logs", **ASKS)
    spent = again.manifests["extract"].run
    assert (spent["requests"], spent["from_journal"]) == (0, INTERACTIONS)
    assert live(tmp_path / "corpus") == expected
