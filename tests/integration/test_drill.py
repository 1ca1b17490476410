"""Slow drills (`make drill`): runs killed at random points, and every reader fed with broken input."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from pipelines.gc import gc
from pipelines.storage import TEMPORARY
from pipelines.store import Store
from tests.pipelines.corpora import live, tables
from tests.transforms import fuzz_replies
from tests.transforms.fuzz_readers import fuzz

TAGLOOM = str(Path(sys.executable).with_name("tagloom"))
KILLS = 20
KILLS_A_CORPUS = 4
PRESETS = ("bm25-raw", "taggraph-basic", "adaptivegraph", "router")


def command(corpus, logs, workers):
    presets = [part for name in PRESETS for part in ("--preset", name)]
    settings = ["--set", "evaluate.resamples=200", "--workers", str(workers), "--quiet"]
    return [TAGLOOM, "run", "-C", str(corpus), str(logs), *presets, *settings]


def parts(corpus):
    """Path -> (inode, time of change) of finished part files; a part made again would differ in both."""
    found = {}
    for path in (Path(corpus) / "tables").rglob("*.parquet"):
        if TEMPORARY not in path.name:
            status = path.stat()
            found[str(path)] = (status.st_ino, status.st_mtime_ns)
    return found


@pytest.mark.slow
def test_twenty_kills_end_in_the_same_bytes(logs, tmp_path):
    started = time.monotonic()
    subprocess.run(command(tmp_path / "calm", logs, 2), check=True, capture_output=True)
    whole_run = time.monotonic() - started
    expected = live(tmp_path / "calm")
    rng = random.Random(int(os.environ.get("DRILL_SEED", "2024")))
    kills = corpora = 0
    orphans: list[psutil.Process] = []
    while kills < KILLS:
        corpus = tmp_path / f"c{corpora}"
        corpora += 1
        workers = (2, 0)[corpora % 2]
        left = KILLS_A_CORPUS
        while True:
            before = parts(corpus) if corpus.exists() else {}
            process = subprocess.Popen(
                command(corpus, logs, workers), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
            )
            try:
                _, errors = process.communicate(timeout=rng.uniform(0.1, 0.9) * whole_run if left else None)
            except subprocess.TimeoutExpired:
                orphans += psutil.Process(process.pid).children(recursive=True)
                os.kill(process.pid, signal.SIGKILL)
                process.communicate()
                kills += 1
                left -= 1
                continue
            finally:
                after = parts(corpus) if corpus.exists() else {}
                # What was whole before this run is not made again; a file caught half-written never has its name.
                assert {path: after.get(path) for path in before} == before
            assert process.returncode == 0, errors.decode()
            break
        assert live(corpus) == expected
        gc(Store.open(str(corpus)))
        assert set(tables(corpus)) == set(tables(tmp_path / "calm"))
        assert tables(corpus) == tables(tmp_path / "calm")
    print(f"\n{kills} kills over {corpora} corpora; a whole run takes {whole_run:.1f} s")
    _, alive = psutil.wait_procs(orphans, timeout=60)
    assert not alive, "processes of killed runs are left behind"


@pytest.mark.slow
def test_readers_survive_ten_thousand_broken_inputs():
    told = fuzz(10_000, seed=2024)
    print(f"\n{told}")
    assert told["inputs"] >= 10_000


@pytest.mark.slow
def test_twenty_thousand_replies_raise_nothing_but_their_fault():
    told = fuzz_replies.fuzz(20_000, seed=2024)
    print(f"\n{told}")
    assert told["replies"] == 20_000
