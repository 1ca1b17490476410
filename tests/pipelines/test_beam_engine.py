"""Items that fail on Beam: tried again in place, told, set aside or the end of the run; typed, without tracebacks."""

import os
import signal
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest

from pipelines import beam_engine, beam_items, beam_jobs, meter
from pipelines.beam_engine import About
from pipelines.beam_items import Guarded
from pipelines.beam_notes import STOP, Board, Note, Watch
from pipelines.failures import Failure
from pipelines.meter import Cost
from pipelines.progress import Silent
from pipelines.storage import Storage
from pipelines.store import Store
from pipelines.work import Done
from schemas.errors import ConfigError, InputError, StoreError, TagloomError
from schemas.tables import empty

PROCESSES = {"runner": "DirectRunner", "direct_running_mode": "multi_processing", "direct_num_workers": 2}
ROOT = str(Path(__file__).resolve().parents[2])


@dataclass(frozen=True)
class Item:
    """What the functions below work on: they leave a file a call, so that tries can be counted from anywhere."""

    uri: str
    shard: int


class Told(Silent):
    def __init__(self):
        self.failures, self.pieces, self.rows, self.finishes = [], 0, 0, {}

    def finished(self, shard, cost):
        assert shard not in self.finishes
        self.finishes[shard] = cost

    def failed(self, failure):
        self.failures.append(failure)

    def advance(self, pieces, rows):
        self.pieces += pieces
        self.rows += rows


@pytest.fixture
def elsewhere(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", ROOT)  # worker processes find this module
    return PROCESSES


def calls(item):
    """Return how often the item was worked at before, and count this time."""
    folder = Path(item.uri) / "calls"
    folder.mkdir(exist_ok=True)
    before = len(list(folder.glob(f"{item.shard}-*")))
    (folder / f"{item.shard}-{before}").touch()
    return before


def refuse(item):
    calls(item)
    raise InputError("is odd", where="a/file.jsonl", remedy="Mend it.")


def fail(item):
    calls(item)
    raise ZeroDivisionError("one by\nnought")


def no_space(item):
    calls(item)
    raise StoreError("cannot be written: no space", where="/disk", remedy="Free some.")


def second_time_lucky(item):
    if calls(item) == 0:
        raise ValueError("not yet")
    Storage(item.uri).write(f"done/{item.shard}", b"1234")
    return 10


def odd_fail(item):
    return fail(item) if item.shard % 2 else second_time_lucky(item)


def die(item):
    calls(item)
    if item.shard == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.2)
    Storage(item.uri).write(f"done/{item.shard}", b"1")


def about(item):
    return About("graph", f"shard {item.shard}", 1, item.shard, ("graph/x",), 10)


def not_aside(item):
    return About("ingest", f"file {item.shard}")


def run_map(items, function, beam, progress=None, tell=about, **more):
    return beam_engine.run_map(items, function, beam, "step", progress or Silent(), about=tell, **more)


def count(tmp_path, shard):
    return len(list((tmp_path / "calls").glob(f"{shard}-*")))


WHERE = pytest.mark.parametrize("where", ["here", pytest.param("processes", marks=pytest.mark.slow)])


@WHERE
def test_typed_errors_arrive_whole(where, elsewhere, tmp_path):
    beam = {} if where == "here" else elsewhere
    with pytest.raises(InputError) as caught:
        run_map([Item(str(tmp_path), 1)], refuse, beam, tell=not_aside)
    assert str(caught.value) == "a/file.jsonl: is odd\n  Mend it."
    assert count(tmp_path, 1) == 1, "it would be as odd the next time"
    assert not list(tmp_path.rglob("*.json")), "notes are taken away"


def test_faults_of_ours_say_so_and_name_the_item(tmp_path):
    with pytest.raises(TagloomError) as caught:
        run_map([Item(str(tmp_path), 4)], fail, {}, tell=not_aside)
    assert str(caught.value).startswith("file 4: ZeroDivisionError: one by nought\n  This is a fault in Tagloom")
    assert isinstance(caught.value.__cause__, ZeroDivisionError), "-v shows where it lies"


@WHERE
def test_items_are_tried_three_times_and_set_aside(where, elsewhere, tmp_path):
    told = Told()
    items = [Item(str(tmp_path), shard) for shard in (4, 5, 6)]
    ran = run_map(items, odd_fail, {} if where == "here" else elsewhere, told)
    assert [count(tmp_path, shard) for shard in (4, 5, 6)] == [2, 3, 2]

    def failure(shard, attempt, kind, reason, aside=False):
        return Failure("graph", ("graph/x",), shard, attempt, kind, reason, aside)

    nought = ("ZeroDivisionError", "ZeroDivisionError: one by nought")
    assert ran.asides == {1: failure(5, 3, *nought, True)}
    assert sorted(told.failures, key=lambda f: (f.shard, f.attempt)) == [
        failure(4, 1, "ValueError", "ValueError: not yet"),
        failure(5, 1, *nought),
        failure(5, 2, *nought),
        failure(5, 3, *nought, True),
        failure(6, 1, "ValueError", "ValueError: not yet"),
    ]
    assert (told.pieces, told.rows) == (2, 20)
    assert {shard: cost.bytes_written for shard, cost in told.finishes.items()} == {4: 4, 6: 4}
    assert ran.cost.bytes_written == 8 and ran.cost.peak > 1 << 20
    assert {n: one.cost.bytes_written for n, one in ran.done.items()} == {0: 4, 2: 4}
    assert not list(tmp_path.rglob("*.json"))


@WHERE
def test_what_concerns_the_run_ends_it_at_once(where, elsewhere, tmp_path):
    items = [Item(str(tmp_path), shard) for shard in range(40)]
    with pytest.raises(StoreError, match="no space"):
        run_map(items, no_space, {} if where == "here" else elsewhere)
    assert len(list((tmp_path / "calls").iterdir())) <= 4, "each worker had one in hand at most; none was tried again"


def test_a_step_in_which_all_fail_ends_the_run(tmp_path):
    items = [Item(str(tmp_path), shard) for shard in range(3)]
    told = Told()
    with pytest.raises(TagloomError, match="shard 0: ZeroDivisionError"):
        run_map(items, fail, {"direct_num_workers": 1}, told)
    assert {failure.shard for failure in told.failures if failure.aside} == {0, 1, 2}
    with pytest.raises(TagloomError, match="shard 1: ZeroDivisionError"):
        run_map([*items, Item(str(tmp_path), 3)], fail, {"direct_num_workers": 1}, kept=True, known={0})
    assert run_map(items[:2], fail, {}, kept=True).asides.keys() == {0, 1}, "too few to tell"
    assert run_map(items, fail, {}, known={0, 1, 2}).asides.keys() == {0, 1, 2}, "they failed before as well"


@pytest.mark.slow
def test_a_shard_that_kills_its_worker_is_set_aside_alone(elsewhere, tmp_path):
    told = Told()
    for shard in range(5):  # what a killed run left is not taken for done
        Storage(str(tmp_path)).write(f"done/{shard}", b"")
    ran = run_map([Item(str(tmp_path), shard) for shard in range(5)], die, elsewhere, told)
    assert ran.asides.keys() == {2}
    assert ran.asides[2].kind == "lost" and ran.asides[2].attempt == 3
    assert count(tmp_path, 2) == 3
    assert told.pieces == 4
    assert [(failure.shard, failure.attempt) for failure in told.failures] == [(2, 1), (2, 2), (2, 3)]
    assert ran.done.keys() == told.finishes.keys() == {0, 1, 3, 4}
    assert all((tmp_path / "done" / str(shard)).read_bytes() == b"1" for shard in (0, 1, 3, 4))


def test_a_bundle_that_a_runner_repeats_is_not_tried_again(tmp_path):
    board = Board(str(tmp_path), "graph-1")
    guarded = Guarded(fail, board, True)
    guarded((0, Item(str(tmp_path), 7)))
    guarded((0, Item(str(tmp_path), 7)))
    assert count(tmp_path, 7) == 3
    note = board.get("0")
    assert note.end == "aside" and [kind for kind, _ in note.tries] == ["ZeroDivisionError"] * 3

    board.put(STOP, Note())
    guarded((2, Item(str(tmp_path), 9)))
    assert count(tmp_path, 9) == 0


def test_what_is_done_is_not_done_again(tmp_path):
    board = Board(str(tmp_path), "graph-1")
    guarded = Guarded(make_part, board, True)
    guarded((0, Item(str(tmp_path), 7)))
    guarded((0, Item(str(tmp_path), 7)))
    assert count(tmp_path, 7) == 1
    note = board.get("0")
    assert note.end == "done"
    (part,) = note.done.parts
    assert part == Store(Storage(str(tmp_path)), 8).adopt_part(["questions"], 7, "ab"), "as reading it would tell"
    assert note.done.cost.bytes_written == part.tables["questions"].bytes > 0


def make_part(item):
    calls(item)
    store = Store(Storage(item.uri), 8)
    return Done((store.write_part(item.shard, "ab", {"questions": empty("questions")}, {"odd": 3}),), Cost())


def test_an_item_at_work_when_a_worker_ended_is_blamed_only_alone(tmp_path):
    board = Board(str(tmp_path), "graph-1")
    begun = Note(begun=True, tries=(("ValueError", "ValueError: x"),))
    board.put("1", begun)
    Guarded(second_time_lucky, board, True)((1, Item(str(tmp_path), 8)))
    note = board.get("1")
    assert (note.end, note.doubts, len(note.tries)) == ("done", 1, 2), "others were at work as well"

    board.put("2", Note(begun=True, doubts=1))
    Guarded(fail, board, True)((2, Item(str(tmp_path), 9)))
    assert board.get("2") == Note(begun=True, doubts=1), "the driver runs it alone"
    assert count(tmp_path, 9) == 0
    Guarded(fail, board, True, alone=True)((2, Item(str(tmp_path), 9)))
    assert [kind for kind, _ in board.get("2").tries] == ["lost", "lost", "ZeroDivisionError"]
    assert count(tmp_path, 9) == 1

    board.put("3", Note(begun=True, doubts=2))
    Guarded(fail, board, True, alone=True)((3, Item(str(tmp_path), 10)))
    note = board.get("3")
    assert note.end == "aside" and [kind for kind, _ in note.tries] == ["lost"] * 3
    assert count(tmp_path, 10) == 0


def test_inputs_that_stay_as_they_are_are_tried_once_and_what_the_system_says_again(tmp_path):
    for number, (function, spare, tries, end) in enumerate(
        [(refuse, False, 1, "run"), (refuse, True, 3, "aside"), (unreadable, False, 3, "run")]
    ):
        board = Board(str(tmp_path), f"step-{number}")
        Guarded(function, board, spare)((0, Item(str(tmp_path), number)))
        assert (count(tmp_path, number), board.get("0").end) == (tries, end)


def unreadable(item):
    calls(item)
    try:
        raise OSError("input/output error")
    except OSError as error:
        raise InputError("cannot be read", where="a/file.jsonl") from error


# -- what the driver sees ---------------------------------------------------------------------------------------------


@pytest.fixture
def asked(monkeypatch):
    """Names of the files that notes were asked of."""
    found, find = [], Storage.find_json

    def counted(storage, name):
        found.append(name)
        return find(storage, name)

    monkeypatch.setattr(Storage, "find_json", counted)
    return found


def test_a_note_is_read_when_it_changed_and_not_after_the_end(tmp_path, asked):
    board = Board(str(tmp_path), "graph-1")
    mine = Board(str(tmp_path), "graph-2")
    mine.put("0", Note())
    for key in ("0", "1", "2"):
        board.put(key, Note(begun=True))
    board.open()  # from here on this is the driver
    watch = Watch(board, elsewhere=True)
    assert watch.news() == {n: Note(begun=True) for n in range(3)}
    assert watch.news() == {} and len(asked) == 3
    board.hand_on("1", Note(end="done", done=Done((), Cost(bytes_read=5))))
    assert watch.news() == {1: Note(end="done", done=Done((), Cost(bytes_read=5)))}
    assert watch.last([0, 1, 2, 3]) == {0: Note(begun=True), 2: Note(begun=True)}
    assert [name[-6:] for name in sorted(asked[4:])] == ["0.json", "2.json", "3.json"]
    board.stop(elsewhere=True)
    watch.close(over=False)
    assert sorted(path.name for path in tmp_path.rglob("*.json")) == ["graph-1-stop.json", "graph-2-0.json"]
    watch.close(over=True)
    assert [path.name for path in tmp_path.rglob("*.json")] == ["graph-2-0.json"]


def test_notes_that_a_listing_lacks_are_found_in_the_end_and_taken_away(tmp_path, monkeypatch):
    board = Board(str(tmp_path), "graph-1")
    board.put("0", Note(end="done", done=Done((), Cost())))
    board.open()
    monkeypatch.setattr(Storage, "walk", lambda *_: iter(()))
    watch = Watch(board, elsewhere=True)
    assert watch.news() == {}
    assert watch.last([0, 1]).keys() == {0}
    watch.close(over=True)
    assert not list(tmp_path.rglob("*.json"))


def test_items_are_measured_by_turns(tmp_path, monkeypatch):
    seen = []

    def measured(item):
        seen.append(item.shard)
        return 1

    items = [Item(str(tmp_path), shard) for shard in range(50)]
    told = Told()
    looks = iter([False, False, True])
    over = SimpleNamespace(wait=lambda pause: next(looks), set=lambda: None)
    monkeypatch.setattr(beam_engine, "Job", lambda: beam_jobs.Job(over=over))
    monkeypatch.setattr(beam_engine, "work", lambda pipeline, job: setattr(job, "ended", True))
    with pytest.raises(TagloomError, match="FnApiRunner ended the job without 50 of its items, such as file 0"):
        beam_engine.run_map(items, fail, {}, "step", told, measured, lambda item: About("x", f"file {item.shard}", 9))
    assert seen == [*range(50), *range(14)]
    assert told.pieces == 50


def test_looks_are_seldom_where_they_take_long_but_never_far_apart():
    assert [beam_engine.pause_after(seconds) for seconds in (0.001, 0.1, 60)] == [0.25, 1.0, 3.0]


def test_the_end_of_a_pipeline_and_the_death_of_a_worker_end_the_wait(tmp_path, monkeypatch):
    monkeypatch.setattr(beam_engine, "POLL_SECONDS", 3600)
    assert run_map([Item(str(tmp_path), 1)], spend, {}).done.keys() == {0}
    job = beam_jobs.Job()

    def tell():
        raise RuntimeError("Worker subprocess exited with return code -9")

    with beam_jobs.told_of_deaths(job):
        thread = threading.Thread(target=tell)
        thread.start()
        thread.join()
    assert job.over.is_set() and job.died and not job.ended and job.failed()


def test_an_error_that_cannot_be_noted_goes_through_the_runner(tmp_path, monkeypatch):
    monkeypatch.setattr(Storage, "write", lambda *a, **k: (_ for _ in ()).throw(StoreError("full", where="/disk")))
    with pytest.raises(RuntimeError) as caught:
        Guarded(fail, Board(str(tmp_path), "graph-1"), True)((0, Item(str(tmp_path), 7)))
    told = beam_items.unpacked(f"Pipeline failed: {caught.value} [while running 'graph']")
    assert told == {"type": "StoreError", "message": "full", "where": "/disk", "remedy": ""}
    assert isinstance(beam_items.rebuilt(told, "step"), StoreError)


def test_nothing_to_do_starts_nothing():
    assert run_map([], fail, {"runner": "NoSuchRunner"}) == beam_engine.Ran()


def spend(item):
    with meter.reading() as cost:
        time.sleep(0.05)
        cost.bytes_read += 7
    until = time.process_time() + 0.05
    while time.process_time() < until:
        pass


def test_what_items_cost_is_in_the_counters_that_runners_show(tmp_path):
    import apache_beam
    from apache_beam.metrics.metric import MetricsFilter

    pipeline = apache_beam.Pipeline(runner="FnApiRunner")
    guarded = Guarded(make_part, Board(str(tmp_path), "graph-1"), True)
    _ = pipeline | apache_beam.Create([(0, Item(str(tmp_path), 3))]) | apache_beam.Map(guarded)
    found = pipeline.run().metrics().query(MetricsFilter().with_namespace(beam_items.NAMESPACE))
    counted = {one.key.metric.name: one.result for one in found["counters"]}
    (written,) = tmp_path.rglob("*.parquet")
    assert (counted["bytes_written"], counted["rows"]) == (written.stat().st_size, 0)
    assert "item_ms" in {one.key.metric.name for one in found["distributions"]}


def test_cost_is_counted(tmp_path):
    cost = run_map([Item(str(tmp_path), shard) for shard in (1, 2)], spend, {"direct_num_workers": 1}).cost
    assert cost.bytes_read == 14
    assert 0.1 <= cost.reading <= cost.seconds
    assert cost.cpu >= 0.1 and cost.seconds >= 0.2


def test_processor_time_of_items_side_by_side_is_counted_once(monkeypatch):
    clock = iter([10.0, 11.0, 13.0, 16.0, 20.0, 21.0])
    monkeypatch.setattr(beam_items.time, "process_time", lambda: next(clock))
    processor = beam_items._Processor()
    steps = [processor.turn(step) for step in (1, 1, -1, -1, 1, -1)]
    assert steps == [0.0, 1.0, 2.0, 3.0, 0.0, 1.0], "16 to 20 nobody was at work"


def test_a_corpus_in_memory_is_for_this_process():
    with pytest.raises(StoreError, match="workers of DirectRunner would not see"):
        run_map([Item("memory://beam-private", 1)], fail, PROCESSES)


def test_options_are_refused_before_anything_runs(tmp_path):
    with pytest.raises(ConfigError, match="no option 'direct_num_wrokers'"):
        run_map([Item(str(tmp_path), 1)], fail, {"direct_num_wrokers": 2})
    assert not (tmp_path / "calls").exists()
