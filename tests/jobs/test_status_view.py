"""What a person sees of a run at work, of its end, and of where its time went."""

import json
import shutil
import threading

import pytest

from jobs import status_view
from pipelines import lock, record
from pipelines.failures import Failure, ShardsAsideError
from pipelines.meter import Cost
from pipelines.record import recording
from pipelines.storage import Storage
from pipelines.tally import Tally
from schemas.errors import StoreError
from tests.jobs.calls import call
from tests.pipelines.corpora import configure, session, write_lines
from tests.pipelines.test_tally import Clock

WHO = {
    **record.described("20240101T000000Z-00000000", "main", "run", "1"),
    **{"submission": "raysubmit_x"},
}
HERE = f"process {WHO['pid']} on {WHO['host']}"
LATER = "29990101T000000Z-00000000"


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A corpus after one run of the command."""
    from pipelines import driver

    folder = tmp_path_factory.mktemp("status")
    cats = [session(f"case{n}", 1, f"My cat number {n} is called Miso.", "A lovely name.") for n in range(6)]
    driver.run(configure(folder / "c", write_lines(folder / "a.jsonl", *cats), **{"rank.presets": ["bm25"]}))
    return folder / "c"


@pytest.fixture
def corpus(finished, tmp_path):
    return shutil.copytree(finished, tmp_path / "c")


def at_work() -> Tally:
    """A run in its second stage: one shard slow, one failing, one set aside."""
    clock = Clock()
    tally = clock.tally()
    tally.begin("extract", 4, 4, "parts")
    tally.end()
    tally.begin("index/raw", 64, 3, "parts")
    for shard in range(6):
        tally.started(shard)
    clock.now += 10
    for shard in range(3):
        tally.finished(shard, Cost(seconds=10))
        tally.advance(1, 500)
    tally.failed(Failure("index", ("index/raw",), 3, 1, "lost", "the worker \x1b[31mended", False))
    tally.failed(Failure("index", ("index/raw",), 4, 3, "MemoryError", "MemoryError: too large", True))
    clock.now += 22
    return tally


def put(corpus, tally, run=LATER, **more):
    from pipelines.tally import moment

    state = {"state": "running", "exit_code": None, "error": "", "beat": 1, "every": 2.0, "units": {}}
    now = {**tally.plain(), "updated_at": moment(__import__("time").time())}
    storage = Storage(str(corpus))
    storage.write_json(record.path_of(run), {**WHO, "run": run, **state, **now, **more})
    return storage


def test_a_run_at_work_is_shown_with_its_troubles(corpus, capsys):
    with lock.writing(put(corpus, at_work())):
        code, out, _ = call(capsys, "status", "-C", str(corpus))
    assert code == 0
    lines = out.splitlines()
    at = lines.index(f"run {LATER} (run, generation 'main'): at work for 32 s; {HERE}, job raysubmit_x")
    assert lines[at + 1 : at + 5] == [
        "  index/raw: 6 of 64 parts (3 kept), 47 rows/s, 10 min 19 s left, 1 shard at work",
        "  slow: shard 5, for 32 s, 3.2 times the median",
        "  set aside: shard 4 failed 3 times: MemoryError: too large",
        "  failing: shard 3 failed once: lost: the worker \\x1b[31mended",
    ]


def test_json_has_all_of_it(corpus, capsys):
    with lock.writing(put(corpus, at_work())):
        code, out, _ = call(capsys, "status", "-C", str(corpus), "--json")
    found = json.loads(out)
    assert (code, found["run"]["state"], found["run"]["stage"]["shards_aside"]) == (0, "running", 1)
    assert found["runs"][0] == LATER and len(found["runs"]) == 2
    assert found["shards"] == 8 and found["generations"][0]["name"] == "main"


def test_a_run_that_vanished_is_said_to_be_lost(corpus, capsys):
    put(corpus, at_work())
    _, out, _ = call(capsys, "status", "-C", str(corpus))
    assert "no run is at work" in out
    assert f"run {LATER} (run, generation 'main'): lost: it ended without a word, last sign at " in out


def test_the_last_run_is_shown_with_its_end(corpus, capsys):
    _, out, _ = call(capsys, "status", "-C", str(corpus))
    assert "(run, generation 'main'): done at " in out
    put(corpus, at_work(), state="failed", exit_code=1, error="s3://b: no such bucket\n  Make it.")
    _, out, _ = call(capsys, "status", "-C", str(corpus))
    assert ": failed with exit code 1 at " in out
    assert "\n  s3://b: no such bucket\n    Make it.\n" in out


def test_a_corpus_without_records_has_a_status(corpus, capsys):
    shutil.rmtree(corpus / "runs")
    code, out, _ = call(capsys, "status", "-C", str(corpus))
    assert code == 0 and "generation 'main'" in out
    for command in (["status", "--follow"], ["profile"]):
        code, _, err = call(capsys, *command, "-C", str(corpus))
        assert code == 2 and "no run has left a record here yet" in err


@pytest.mark.parametrize(
    ("error", "code", "word"),
    [
        (None, 0, "done at"),
        (StoreError("no disk"), 1, "failed with"),
        (ShardsAsideError("one shard"), 3, "done without"),
    ],
)
def test_following_a_run_to_its_end_gives_its_code(error, code, word, corpus, capsys, monkeypatch):
    monkeypatch.setattr(status_view, "REFRESH_SECONDS", (0.02, 0.02))
    monkeypatch.setattr(record, "EVERY_SECONDS", (0.02, 0.02))
    monkeypatch.setattr("jobs.console.LINE_SECONDS", (0.0, 0.0))
    storage, begun, told = Storage(str(corpus)), threading.Event(), threading.Event()
    emit = status_view.console.emit

    def emitted(text):
        emit(text)
        if "index/raw: 1 of 2 parts" in text:
            told.set()

    monkeypatch.setattr(status_view.console, "emit", emitted)

    def work():
        tally = Tally()
        tally.begin("index/raw", 2, 0, "parts")
        tally.advance(1, 5)
        try:
            with lock.writing(storage), recording(storage, {**WHO, "run": LATER}, tally):
                while LATER not in record.runs(storage):
                    pass
                begun.set()
                assert told.wait(20)
                tally.end()
                if error:
                    raise error
        except (StoreError, ShardsAsideError):
            pass

    thread = threading.Thread(target=work)
    thread.start()
    assert begun.wait(20)
    found, out, _ = call(capsys, "status", "-C", str(corpus), "--follow")
    thread.join()
    assert found == code
    assert "index/raw: 1 of 2 parts" in out
    assert word in out.splitlines()[-1 if error is None else -2]


def test_following_a_run_that_vanished(corpus, capsys):
    put(corpus, at_work())
    code, out, _ = call(capsys, "status", "-C", str(corpus), "--follow", "--json")
    assert code == 1
    assert json.loads(out.splitlines()[-1])["state"] == "lost"


def test_the_profile_of_the_newest_run(corpus, capsys):
    code, out, _ = call(capsys, "profile", "-C", str(corpus))
    assert code == 0
    lines = out.splitlines()
    assert lines[0].endswith(f"done, {lines[0].rpartition(', ')[2]}")
    head = next(line.split() for line in lines if line.startswith("seconds"))
    assert head == ["seconds", "wall", "busy", "cpu", "reading", "writing", "waiting", "made", "kept", "of"]
    rows = {line.split()[0]: line.split() for line in lines if line.startswith(("index/raw", "rank/bm25"))}
    assert rows["index/raw"][1] == "6" and rows["index/raw"][3:5] != ["-", "-"]  # the second table came last
    assert lines[-1].startswith("bounded by ")


def test_the_profile_of_a_named_run(corpus, capsys):
    put(corpus, at_work(), state="failed", exit_code=1)
    code, out, _ = call(capsys, "profile", "-C", str(corpus), LATER)
    assert code == 0
    assert "failed attempts in index/raw: MemoryError 1, lost 1; 1 shard set aside" in out
    code, out, _ = call(capsys, "profile", "-C", str(corpus), LATER, "--json")
    found = json.loads(out)
    assert (found["run"], found["stages"][-1]["stage"]) == (LATER, "index/raw")
    code, _, err = call(capsys, "profile", "-C", str(corpus), "20240101T000000Z-99999999")
    assert code == 2 and "no run '20240101T000000Z-99999999' is recorded here" in err


def test_json_logs_are_json_to_the_last_line(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("TAGLOOM_LOGS", "json")
    path = write_lines(tmp_path / "a.jsonl", session("a", 1, "Hello.", "Hi."), {"neither": "session nor question"})
    corpus = str(tmp_path / "c")
    code, _, err = call(capsys, "run", "-C", corpus, str(path), "--preset", "bm25", "--workers", "0")
    assert code == 3  # half of the records were rejected
    lines = [json.loads(line) for line in err.splitlines()]
    (run,) = record.runs(Storage(corpus))
    assert {line["run"] for line in lines} == {run}
    assert {"ingest: merge", "rank/bm25"} <= {line.get("stage") for line in lines}
    assert (lines[0]["level"], lines[-1]["level"]) == ("info", "error")
    assert "records were rejected" in lines[-1]["message"]
    found = record.read(Storage(corpus), run)
    assert (found["state"], found["exit_code"]) == ("done", 3)
    assert "records were rejected" in found["error"]


def test_an_unknown_format_of_logs_is_refused(corpus, capsys, monkeypatch):
    monkeypatch.setenv("TAGLOOM_LOGS", "xml")
    code, _, err = call(capsys, "status", "-C", str(corpus))
    assert code == 2 and "'xml' is no format of logs" in err


@pytest.fixture(autouse=True)
def text_afterwards():
    """Logging is set up once a process; leave it as it was."""
    import logging

    formatters = [(handler, handler.formatter) for handler in logging.getLogger().handlers]
    yield
    status_view.console._json_logs = False
    for handler, formatter in formatters:
        handler.setFormatter(formatter)
