"""Re-indexing LoCoMo with an engine (`make drill`): what is made again, and what that takes of a whole run."""

import json
import subprocess
import sys
import time
from importlib.resources import files
from pathlib import Path

import pytest

from pipelines.store import Store
from tests.engines.stub_server import running
from tests.pipelines.corpora import live

TAGLOOM = str(Path(sys.executable).with_name("tagloom"))

pytestmark = pytest.mark.slow


def tagloom(*arguments):
    """Run the command; returns what it printed as JSON, and the seconds it took."""
    started = time.perf_counter()
    done = subprocess.run([TAGLOOM, *map(str, arguments), "--quiet", "--json"], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout), time.perf_counter() - started


def settings(server):
    return [
        *("--set", "extract.extractor=openai", "--set", "extract.model=stub"),
        *("--set", f"extract.options.base_url={server.base_url}", "--set", "evaluate.resamples=1000"),
    ]


def manifests(corpus, name):
    generation = Store.open(str(corpus)).generation(name)
    return {unit: generation.manifest(unit) for unit in generation.units}


def test_reindexing_locomo(shared_data, tmp_path):
    source = json.loads((shared_data / "locomo" / "locomo10.json").read_text())
    logs = tmp_path / "locomo.json"
    logs.write_text(json.dumps(source))
    prompt = tmp_path / "notes-v2.md"
    own = files("transforms.prompts").joinpath("notes.md").read_text()
    prompt.write_text(own.replace("=== user ===", "Be brief.\n=== user ===", 1))
    with running("--delay", "0.05") as server:
        corpus = tmp_path / "c"
        told, whole = tagloom("run", "-C", corpus, logs, *settings(server))
        assert told["interactions"] == server.stats()["requests"] == 5882

        # Nothing changed: nothing is made.
        heads = (corpus / "heads.json").read_bytes()
        _, nothing = tagloom("reindex", "-C", corpus)
        assert (corpus / "heads.json").read_bytes() == heads
        assert server.stats()["requests"] == 5882

        # Another prompt: extract and what follows, and no more.
        _, prompted = tagloom("reindex", "-C", corpus, "--yes", "--set", f"extract.prompt={prompt}")
        before, after = manifests(corpus, "main"), manifests(corpus, "main-2")
        same = {unit for unit in after if before[unit].fingerprint == after[unit].fingerprint}
        assert same == {"ingest", "questions", "index/raw", "rank/bm25-raw"}
        assert server.stats()["requests"] == 2 * 5882

        # One session more in one case: its shard alone, and the bytes of a fresh build.
        conversation = source[3]["conversation"]
        last = max(int(k.split("_")[1]) for k in conversation if k.startswith("session_") and k.endswith("date_time"))
        conversation[f"session_{last + 1}_date_time"] = "1:00 pm on 1 December, 2024"
        speaker = conversation["speaker_a"]
        conversation[f"session_{last + 1}"] = [
            {"speaker": speaker, "dia_id": f"D{last + 1}:{n}", "text": f"I walked {n} miles by the river."}
            for n in (1, 2, 3)
        ]
        logs.write_text(json.dumps(source))
        told, added = tagloom("run", "-C", corpus, logs, *settings(server))
        assert server.stats()["requests"] == 2 * 5882 + 3
        assert told["parts_made"]["extract"] == told["parts_made"]["ingest"] == told["parts_made"]["index/note"] == 1
        tagloom("run", "-C", tmp_path / "fresh", logs, *settings(server))
        assert live(corpus) == live(tmp_path / "fresh")
    print(
        f"\nLoCoMo, an engine that answers after 0.05 s: whole run {whole:.1f} s; nothing changed {nothing:.2f} s "
        f"({nothing / whole:.1%}); another prompt {prompted:.1f} s; three messages more {added:.1f} s"
    )
