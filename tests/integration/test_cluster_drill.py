"""Slow drills on a cluster (`make drill`): nodes, the driver and the head are killed, and the bytes are the same."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.integration.cluster import cluster
from tests.integration.poison import installed
from tests.pipelines.corpora import live, run
from transforms import synth

TAGLOOM = str(Path(sys.executable).with_name("tagloom"))
SHARDS = 32
OWN = {"extract.extractor": "poisoned", "shards": SHARDS}
PRESETS = ["bm25", "bm25-raw", "taggraph-basic", "adaptivegraph"]

pytestmark = pytest.mark.slow


@pytest.fixture
def poison(tmp_path, monkeypatch):
    with installed(tmp_path / "plugin", monkeypatch) as made:
        yield made


@pytest.fixture(scope="module")
def talks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("talks")
    synth.write(str(folder), size=1500, cases=60, seed=11)
    return folder


def start(corpus, talks, made, **more):
    settings = {**OWN, "compute.workers": 2, "compute.address": made.address, "evaluate.resamples": 200, **more}
    sets = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    presets = [part for name in PRESETS for part in ("--preset", name)]
    command = [TAGLOOM, "run", "-C", str(corpus), str(talks), *presets, "--quiet", *sets]
    environment = {**os.environ, **made.environment}
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment)


def parts(corpus, table=""):
    """Path -> (inode, time of change) of finished parts; a part made again would differ in both."""
    found = {}
    for path in (corpus / "tables" / table).rglob("*.parquet"):
        if not path.name.startswith("."):
            status = path.stat()
            found[str(path)] = (status.st_ino, status.st_mtime_ns)
    return found


def until_parts(process, corpus, table, count):
    """Wait until a table has some parts; returns all that is finished then."""
    while len(parts(corpus, table)) < count:
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.02)
    return parts(corpus)


def kept(corpus, before):
    after = parts(corpus)
    return {path: after.get(path) for path in before} == before


def plugged(poison):
    return {"PYTHONPATH": str(poison.folder)}


def test_a_node_is_killed_while_extracting_and_another_while_ranking(talks, poison, tmp_path):
    run(tmp_path / "calm", talks, **OWN, **{"rank.presets": PRESETS})
    shards = len(parts(tmp_path / "calm", "notes"))
    corpus = tmp_path / "c"
    poison.fail(seconds=0.5)
    with cluster(1, environment=plugged(poison)) as made:
        node = made.add_node(1)
        process = start(corpus, talks, made)
        before = until_parts(process, corpus, "notes", shards // 2)
        node.kill()
        killed = time.monotonic()
        until_parts(process, corpus, "notes", min(shards, len(parts(corpus, "notes")) + 3))
        print(f"\nthree shards after {time.monotonic() - killed:.1f} s of the node's death")
        other = made.add_node(1)
        later = until_parts(process, corpus, "runs", 4)
        other.kill()
        _, err = process.communicate(timeout=400)
        assert process.returncode == 0, err
    assert kept(corpus, before) and kept(corpus, later)
    assert live(corpus) == live(tmp_path / "calm")


def test_the_driver_is_killed_and_then_the_head(talks, poison, tmp_path):
    run(tmp_path / "calm", talks, **OWN, **{"rank.presets": PRESETS})
    shards = len(parts(tmp_path / "calm", "notes"))
    corpus = tmp_path / "c"
    poison.fail(seconds=0.5)
    with cluster(1, environment={**plugged(poison), "RAY_gcs_rpc_server_reconnect_timeout_s": "5"}) as made:
        made.add_node(1)
        process = start(corpus, talks, made)
        first = until_parts(process, corpus, "notes", shards // 4)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        process = start(corpus, talks, made)
        second = until_parts(process, corpus, "notes", shards // 2)
        made.kill_head()
        killed = time.monotonic()
        _, err = process.communicate(timeout=200)
        print(f"\nthe driver ended {time.monotonic() - killed:.1f} s after the head, with {process.returncode}: {err}")
        assert process.returncode not in (0, None)
    with cluster(1, environment=plugged(poison)) as made:
        made.add_node(1)
        process = start(corpus, talks, made)
        _, err = process.communicate(timeout=400)
        assert process.returncode == 0, err
    assert kept(corpus, first) and kept(corpus, second)
    assert live(corpus) == live(tmp_path / "calm")
