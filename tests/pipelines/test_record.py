"""The record of a run: what it says while the run works, how it ended, and what readers make of it."""

import json
import os
import shutil
import socket
import threading
from datetime import UTC, datetime

import pytest

from pipelines import driver, lock, record
from pipelines.gc import gc
from pipelines.record import Following, judged, newest, path_of, recording, runs
from pipelines.storage import Storage
from pipelines.store import Store
from pipelines.tally import Tally
from schemas.errors import StoreError, UsageError
from tests.pipelines.corpora import configure, live, question, session, tables, write_lines
from tests.pipelines.observing import Peeking, poison

WHO = record.described("20240101T000000Z-00000000", "main", "run", "1")


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    folder = tmp_path_factory.mktemp("in")
    cats = [session(f"case{n}", 1, f"My cat number {n} is called Miso.", "A lovely name.") for n in range(12)]
    write_lines(folder / "a.jsonl", *cats, question("case3", "What is the cat called?", "s1"))
    return folder


@pytest.fixture(scope="module")
def finished(small, tmp_path_factory):
    """A corpus after one run, and the records that could be read at each step of it."""
    corpus, seen = tmp_path_factory.mktemp("corpora") / "c", []

    def peek():
        if (found := newest(Storage(str(corpus)))) is not None:
            seen.append(found)

    driver.run(configure(corpus, small, **{"rank.presets": ["bm25"]}), progress=Peeking(peek))
    return corpus, seen


@pytest.fixture
def corpus(finished, tmp_path):
    return shutil.copytree(finished[0], tmp_path / "c")


def test_a_finished_run_has_a_record(finished):
    storage = Storage(str(finished[0]))
    (run,) = runs(storage)
    found = record.read(storage, run)
    assert (found["state"], found["exit_code"], found["error"]) == ("done", 0, "")
    assert (found["what"], found["generation"], found["submission"]) == ("run", "main", None)
    assert (found["host"], found["pid"]) == (socket.gethostname(), os.getpid())
    assert run[:15] == found["started_at"][:19].replace("-", "").replace(":", "")
    assert found["stage"] is None
    names = [stage["stage"] for stage in found["stages"]]
    assert names == [
        *("ingest: read", "ingest: merge", "extract", "graph/taggraph", "index/raw", "index/note", "index/taggraph"),
        *("rank/bm25", "evaluate/questions", "evaluate"),
    ]
    ranked = next(stage for stage in found["stages"] if stage["stage"] == "rank/bm25")
    parts = found["units"]["rank/bm25"]["parts"]
    assert (ranked["total"], ranked["done"], ranked["shards_done"]) == (parts, parts, parts)
    assert found["units"]["rank/bm25"]["made"] == parts > 1
    assert ranked["cost"]["bytes_written"] == sum(
        table.bytes
        for part in Store.open(str(finished[0])).generation("main").manifest("rank/bm25").parts
        for table in part.tables.values()
    )
    merged = next(stage for stage in found["stages"] if stage["stage"] == "ingest: merge")
    assert merged["cost"]["bytes_written"] == sum(
        table.bytes
        for unit in ("ingest", "questions")
        for part in Store.open(str(finished[0])).generation("main").manifest(unit).parts
        for table in part.tables.values()
    )


def test_it_can_be_read_while_the_run_works(finished):
    _, seen = finished
    assert seen
    assert {one["state"] for one in seen} == {"running"}
    assert all(one["exit_code"] is None and one["held"] for one in seen)
    assert {one["run"] for one in seen} == set(runs(Storage(str(finished[0]))))


def test_records_enter_no_key_no_table_and_no_other_listing(corpus, small):
    store = Store.open(str(corpus))
    before, held = tables(corpus), live(corpus)
    driver.run(configure(corpus, small, **{"rank.presets": ["bm25"]}))
    assert (tables(corpus), live(corpus)) == (before, held)
    assert len(runs(store.storage)) == 2
    assert record.read(store.storage, runs(store.storage)[0])["units"]["extract"]["made"] == 0
    assert not any("runs/" in path for path in gc(store).files)
    assert len(runs(store.storage)) == 2
    assert not any(run in path.read_text() for run in runs(store.storage) for path in corpus.glob("manifests/*/*.json"))


def test_gc_removes_a_record_that_a_kill_left_half_written(corpus):
    half = corpus / f"runs/20240101T000000Z-00000000.json.tmp-{'0' * 32}"
    half.write_text("{")
    assert runs(Storage(str(corpus)))[-1] != "20240101T000000Z-00000000"
    assert gc(Store.open(str(corpus))).files == (f"runs/{half.name}",)


def test_a_run_that_fails_says_with_what(corpus, small, monkeypatch):
    first = min(part.shard for part in Store.open(str(corpus)).generation("main").manifest("rank/bm25").parts)
    poison(monkeypatch, "rank", first, StoreError("cannot be read: no such bucket", where="s3://b", remedy="Make it."))
    with pytest.raises(StoreError):
        driver.run(configure(corpus, small, **{"rank.presets": ["bm25-raw"]}))
    found = newest(Storage(str(corpus)))
    assert (found["state"], found["exit_code"]) == ("failed", 1)
    assert found["error"] == "s3://b: cannot be read: no such bucket\n  Make it."
    assert "Traceback" not in json.dumps(found)
    assert found["stage"]["stage"] == "rank/bm25-raw"


def test_a_run_that_sets_a_shard_aside_is_incomplete(corpus, small, monkeypatch):
    first = min(part.shard for part in Store.open(str(corpus)).generation("main").manifest("rank/bm25").parts)
    poison(monkeypatch, "rank", first)
    result = driver.run(configure(corpus, small, **{"rank.presets": ["bm25-raw"]}))
    found = newest(Storage(str(corpus)))
    assert (found["state"], found["exit_code"]) == ("incomplete", 3)
    assert "set aside" in found["error"]
    stage = next(one for one in found["stages"] if one["stage"] == "rank/bm25-raw")
    (failing,) = stage["failing"]
    assert (failing["shard"], failing["attempts"], failing["kind"], failing["aside"]) == (first, 3, "ValueError", True)
    assert "this shard is poison" in failing["reason"]
    assert (stage["failures"], stage["retries"]) == ({"ValueError": 3}, 2)
    whole = len(result.manifests["ingest"].parts)
    assert found["units"]["rank/bm25-raw"] == {"parts": whole - 1, "made": whole - 1}


@pytest.mark.parametrize(
    ("error", "state", "code"),
    [(KeyboardInterrupt(), "stopped", 130), (SystemExit(143), "stopped", 143), (ZeroDivisionError("x"), "failed", 1)],
)
def test_every_end_is_told(error, state, code, tmp_path):
    storage = Storage(str(tmp_path))
    with pytest.raises(type(error)), recording(storage, WHO, Tally()):
        raise error
    found = record.read(storage, WHO["run"])
    assert (found["state"], found["exit_code"]) == (state, code)
    assert found["error"]


def test_twenty_records_are_kept(tmp_path):
    storage = Storage(str(tmp_path))
    names = [f"20240101T0000{n:02d}Z-0000000{n % 10}" for n in range(25)]
    for name in names[:24]:
        storage.write(path_of(name), b"{}")
    (tmp_path / "runs" / "notes.txt").write_text("not ours")
    (tmp_path / "runs" / "aside").mkdir()
    (tmp_path / "runs" / "aside" / f"{names[0]}.json").write_text("not ours either")
    with recording(storage, {**WHO, "run": names[24]}, Tally()):
        pass
    assert runs(storage) == names[:4:-1]
    assert (tmp_path / "runs" / "notes.txt").exists()


class Slow(Storage):
    """A store whose writes hang until they are let go."""

    gate = threading.Event()

    def write(self, name, data, **more):
        self.gate.wait(30)
        super().write(name, data, **more)


def test_a_slow_store_holds_up_nobody_and_gets_the_end(tmp_path):
    storage = Slow(str(tmp_path))
    with recording(storage, WHO, tally := Tally()):
        tally.begin("a", 1, 0, "parts")
        tally.advance(1, 5)
        tally.end()
        assert runs(storage) == []  # all was done while the first write still hung
        Slow.gate.set()
    found = record.read(storage, WHO["run"])
    assert (found["state"], found["stages"][0]["rows"]) == ("done", 5)


def test_a_store_that_refuses_costs_one_warning(tmp_path, caplog):
    (tmp_path / "runs").write_text("a file where the folder should be")
    with recording(Storage(str(tmp_path)), WHO, Tally()):
        pass
    assert sum("record of this run" in one.message for one in caplog.records) == 1


# -- readers ----------------------------------------------------------------------------------------------------------

RUNNING = {**WHO, "state": "running", "every": 5.0, "updated_at": "2024-01-01T00:00:00.000Z", "beat": 1}
MIDNIGHT = 1704067200.0


@pytest.mark.parametrize(
    ("held", "age", "state"),
    [(True, 59, "running"), (True, 61, "lost"), (False, 1, "lost"), (True, -500, "running")],
)
def test_a_run_without_a_sign_is_lost(held, age, state):
    found = judged(RUNNING, held, MIDNIGHT + age)
    assert (found["state"], found["silent_seconds"], found["held"]) == (state, age, held)


def test_what_has_ended_is_never_lost():
    assert judged({**RUNNING, "state": "done"}, False, MIDNIGHT + 9999)["state"] == "done"


def test_a_killed_run_is_lost_at_once_on_a_disk(tmp_path):
    storage = Storage(str(tmp_path))
    storage.write_json(path_of(WHO["run"]), {**RUNNING, "format": 1, "updated_at": "2999-01-01T00:00:00.000Z"})
    found = newest(storage)
    assert (found["state"], found["held"]) == ("lost", False)
    assert found["silent_seconds"] < 0  # its clock is ahead, and that is said


def test_a_killed_run_is_lost_also_while_another_process_holds_the_corpus(tmp_path):
    storage = Storage(str(tmp_path))
    now = datetime.now(UTC).isoformat()
    storage.write_json(path_of(WHO["run"]), {**RUNNING, "format": 1, "updated_at": now, "pid": 1 << 30})
    with lock.writing(storage):
        assert newest(storage)["state"] == "lost"
    storage.write_json(path_of(WHO["run"]), {**RUNNING, "format": 1, "updated_at": now})
    with lock.writing(storage):
        assert newest(storage)["state"] == "running"


def test_following_trusts_the_beat_and_no_clock(tmp_path):
    storage, now = Storage(str(tmp_path)), [0.0]

    def put(beat, state="running"):
        storage.write_json(path_of(WHO["run"]), {**RUNNING, "format": 1, "beat": beat, "state": state})

    put(1)
    following = Following(storage, WHO["run"], steady=lambda: now[0])
    with lock.writing(storage):
        assert following.look()["state"] == "running"
        now[0] = 59.0
        assert following.look()["state"] == "running"
        now[0] = 61.0
        assert following.look()["state"] == "lost"
        put(2)
        assert following.look()["state"] == "running"
    assert following.look()["state"] == "running"  # it may just have ended
    assert following.look()["state"] == "lost"
    put(3, "done")
    assert following.look()["state"] == "done"


@pytest.mark.parametrize("name", ["20240101T000000Z-00000009", "../corpus", "", "20240101T000000Z-0000000"])
def test_a_run_without_a_record_is_refused_with_those_there_are(name, tmp_path):
    storage = Storage(str(tmp_path))
    storage.write_json(path_of(WHO["run"]), {**RUNNING, "format": 1})
    with pytest.raises(UsageError, match=WHO["run"]):
        record.read(storage, name)


def test_a_damaged_record_hides_no_other(tmp_path):
    storage = Storage(str(tmp_path))
    storage.write_json(path_of(WHO["run"]), {**RUNNING, "format": 1, "state": "done"})
    storage.write(path_of("20250101T000000Z-00000000"), b"[]")
    storage.write(path_of("20250102T000000Z-00000000"), b"{")
    assert newest(storage)["run"] == WHO["run"]
    with pytest.raises(StoreError):
        record.read(storage, "20250101T000000Z-00000000")


def test_records_on_storage_that_is_no_disk():
    storage = Storage("memory://records-elsewhere")
    assert newest(storage) is None
    with lock.writing(storage), recording(storage, WHO, Tally()) as outcome:
        while not runs(storage):
            pass
        found = newest(storage)
        assert (found["state"], found["every"], found["held"]) == ("running", 5.0, True)
        outcome.units = {"extract": {"parts": 1, "made": 1}}
    found = newest(storage)
    assert (found["state"], found["units"]) == ("done", {"extract": {"parts": 1, "made": 1}})
