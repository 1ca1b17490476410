"""A corpus on S3: the same bytes as on a disk, one writer at a time, whatever faults the store has for a while."""

import hashlib
import json
import logging
import os
import random
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from jobs.export import export
from pipelines import lock
from pipelines.driver import memory_sources
from pipelines.gc import gc
from pipelines.sources import find_sources, opened
from pipelines.storage import Storage
from pipelines.store import Store
from schemas.errors import InputError, LockedError
from schemas.ids import escape_id
from tagloom import Memory
from tests.pipelines.corpora import live, run, session, tables, write_lines

TAGLOOM = str(Path(sys.executable).with_name("tagloom"))
PRESETS = ["taggraph-basic"]
ODD = [
    "../x",
    "a/b",
    "con",
    "%2e",
    "😀",
    "x" * 300,
    "[x]*?",
    ".",
    "Con",
    "a?versionId=1",
    "a#b",
    "{a,b}",
    " x",
    "CASE=1",
]


def upload(uri, folder):
    """Copy a folder to S3 and return its URI."""
    there = Storage(uri)
    for path in folder.rglob("*"):
        if path.is_file():
            there.write(path.relative_to(folder).as_posix(), path.read_bytes())
    return uri


def part_bytes(uri):
    """Path -> SHA-256 of all table files there, read back."""
    there = Storage(uri)
    return {
        path.removeprefix("tables/"): hashlib.sha256(there.read(path)).hexdigest() for path, _ in there.walk("tables")
    }


@pytest.fixture(scope="module")
def local(logs, tmp_path_factory):
    corpus = tmp_path_factory.mktemp("local") / "c"
    run(corpus, logs, **{"rank.presets": PRESETS})
    return corpus


# -- whole runs -------------------------------------------------------------------------------------------------------


def test_a_run_gives_the_bytes_of_a_disk_and_again_asks_for_little(place, logs, local):
    uri, proxy = place
    inputs = upload(f"{uri}/logs", logs)
    made = run(f"{uri}/corpus", inputs, **{"rank.presets": PRESETS})
    assert sum(made.made.values()) > 0
    assert part_bytes(f"{uri}/corpus") == tables(local)
    proxy.seen.clear()
    again = run(f"{uri}/corpus", inputs, **{"rank.presets": PRESETS})
    assert sum(again.made.values()) == 0
    assert again.generation.units == made.generation.units
    corpus = [(method, path) for method, path in proxy.seen if "/corpus/" in path]
    assert not any("/tables/" in path for _, path in corpus)
    manifests = [path for method, path in corpus if "/manifests/" in path or "/fragments/" in path]
    sources = len(made.generation.head["sources"])
    assert len(manifests) == len(set(manifests)) == len(made.generation.units) + sources


def test_faults_of_every_kind_change_no_byte(place, logs, local, caplog):
    uri, proxy = place
    kinds = ("slow", "reset", "broken", "lost", "busy", "cut")
    away = []

    def faults(number, method, path):
        if number >= 120 and not away:
            away.append(time.monotonic() + 2.0)
        if away and time.monotonic() < away[0]:
            return "reset"
        return kinds[number // 25 % len(kinds)] if number % 25 == 7 else None

    proxy.faults = faults
    with caplog.at_level(logging.WARNING):
        run(f"{uri}/corpus", logs, **{"rank.presets": PRESETS})
    proxy.faults = lambda *_: None
    assert set(proxy.met) == set(kinds)
    assert "; attempt 2 in 0.2 s" in caplog.text
    assert part_bytes(f"{uri}/corpus") == tables(local)
    assert live(f"{uri}/corpus") == live(local)


def test_what_a_memory_was_told_is_kept_though_no_listing_shows_it(place):
    uri, proxy = place
    for case in ("alice", "b/b"):
        with Memory(f"{uri}/corpus", case) as memory:
            memory.remember(f"The cat of {case} is called Miso.")
    made = run(f"{uri}/corpus", stages=()).generation
    assert sorted(made.table("interactions")["case_id"].to_pylist()) == ["alice", "b/b"]
    listed = memory_sources(made.store, made)
    proxy.faults = lambda number, method, path: "blind" if "list-type=" in path else None
    assert memory_sources(made.store, made) == listed
    assert memory_sources(made.store) == []
    assert [source.name for source in listed] == [f"memory/{escape_id(case)}.jsonl" for case in ("alice", "b/b")]
    made.store.storage.remove("memory/alice.jsonl")
    assert memory_sources(made.store, made) == listed[1:]


def test_an_input_that_changes_after_it_was_looked_at_is_told(place):
    uri, _ = place
    there = Storage(f"{uri}/logs")
    there.write("[1]*.jsonl", b"12345")
    (source,) = find_sources([f"{uri}/logs"])
    assert (source.name, source.bytes, source.hashed) == ("[1]*.jsonl", 5, False)
    with opened(source) as stream:
        assert stream.read(2) + stream.read() == b"12345"
    assert find_sources([source.uri])[0].digest == source.digest
    there.write("[1]*.jsonl", b"12346")
    with pytest.raises(InputError, match="has changed"), opened(source):
        pass
    with pytest.raises(InputError, match="no such file or folder"):
        find_sources([f"{uri}/other"])


def test_the_corpus_is_none_of_its_own_inputs(place):
    uri, _ = place
    Storage(uri).write("a.jsonl", b"{}")
    Storage(uri).write("corpus/corpus.json", b"{}")
    for folder in (uri, f"{uri}/", f"{uri}/**"):
        assert [source.name for source in find_sources([folder], without=f"{uri}/corpus")] == ["a.jsonl"]


# -- odd ids ----------------------------------------------------------------------------------------------------------


def test_odd_ids_stay_inside_the_corpus(place, tmp_path):
    uri, _ = place
    lines = [session(case, 1, f"The word of case {n} is w{n}.", "Noted.") for n, case in enumerate(ODD)]
    logs = write_lines(tmp_path / "odd.jsonl", *lines)
    run(f"{uri}/corpus", logs, stages=("extract",), shards=2)
    generation = Store.open(f"{uri}/corpus").generation()
    made = export(generation, "interactions", target=tmp_path / "out", by_case=True)
    assert sorted(generation.table("interactions")["case_id"].to_pylist()) == sorted(ODD)
    assert len(made.files) == len({file.parent.name.lower() for file in made.files}) == len(ODD)
    assert {file.parent.parent for file in made.files} == {tmp_path / "out"}
    for n, case in enumerate(ODD):
        with Memory(f"{uri}/corpus", case) as memory:
            memory.remember(f"Also, m{n} is mine.")
    with Memory(f"{uri}/corpus", ODD[6]) as memory:
        assert len(memory) == 2
        assert memory.query("m6")[0].text.startswith("Also,")
    held = [path for path, _ in Storage(f"{uri}/corpus").walk("memory")]
    assert held == sorted(f"memory/{escape_id(case)}.jsonl" for case in ODD)
    outside = [path for path, _ in Storage(uri).walk() if not path.startswith("corpus/")]
    assert outside == []


def test_two_that_tell_a_memory_at_once_lose_nothing(place):
    uri, _ = place
    memories = [Memory(f"{uri}/corpus", "case") for _ in range(3)]

    def tell(memory):
        for n in range(4):
            memory.remember(f"{id(memory)} says {n}")

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(tell, memories))
    lines = Storage(f"{uri}/corpus").read("memory/case.jsonl").splitlines()
    ids = [json.loads(line)["session_id"] for line in lines]
    assert ids == [f"memory-{n:06d}" for n in range(1, 13)]
    assert len(memories[0]) == 12
    for memory in memories:
        memory.close()


# -- drills -----------------------------------------------------------------------------------------------------------


def command(corpus, logs, workers=0, *more):
    presets = [part for name in PRESETS for part in ("--preset", name)]
    settings = ["--set", "evaluate.resamples=200", "--workers", str(workers), "--quiet", *more]
    return [TAGLOOM, "run", "-C", str(corpus), str(logs), *presets, *settings]


@pytest.mark.slow
def test_runs_killed_at_random_points_end_in_the_same_bytes(place, logs, local):
    uri, _ = place
    rng = random.Random(int(os.environ.get("DRILL_SEED", "2024")))
    orphans: list[psutil.Process] = []
    started = time.monotonic()
    subprocess.run(command(f"{uri}/calm", logs), check=True, capture_output=True)
    whole_run = time.monotonic() - started
    corpus = f"{uri}/c"
    for left in range(3, -1, -1):
        process = subprocess.Popen(command(corpus, logs), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        try:
            _, errors = process.communicate(timeout=rng.uniform(0.3, 0.95) * whole_run if left else None)
        except subprocess.TimeoutExpired:
            orphans += psutil.Process(process.pid).children(recursive=True)
            os.kill(process.pid, signal.SIGKILL)
            process.communicate()
            continue
        assert process.returncode == 0, errors.decode()
    assert live(corpus) == live(local)
    gc(Store.open(corpus))
    assert part_bytes(corpus) == tables(local)
    _, alive = psutil.wait_procs(orphans, timeout=60)
    assert not alive, "processes of killed runs are left behind"


@pytest.mark.slow
def test_workers_of_ray_reach_it(place, logs, local):
    uri, proxy = place
    proxy.faults = lambda number, method, path: "slow" if number % 25 == 7 else None
    subprocess.run(command(f"{uri}/c", logs, 2), check=True, capture_output=True)
    assert proxy.met["slow"] > 5
    assert part_bytes(f"{uri}/c") == tables(local)


@pytest.mark.slow
def test_of_two_runs_at_once_one_is_refused_and_one_that_waits_follows(place, logs, local):
    uri, _ = place
    corpus = f"{uri}/corpus"
    first = subprocess.Popen(command(corpus, logs, 0, "--name", "one"), stderr=subprocess.PIPE)
    while lock.holder(Storage(corpus)) == "":
        assert first.poll() is None
        time.sleep(0.05)
    waits = subprocess.Popen(command(corpus, logs, 0, "--name", "two", "--wait", "120"), stderr=subprocess.PIPE)
    refused = subprocess.run(command(corpus, logs, 0, "--name", "three"), check=False, capture_output=True, text=True)
    assert refused.returncode == LockedError.exit_code
    assert f"another run is writing to this corpus (process {first.pid} on " in refused.stderr
    for process in (first, waits):
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors.decode()
    assert set(Store.open(corpus).heads()) == {"one", "two"}
    assert live(corpus, "one") == live(corpus, "two") == live(local)
