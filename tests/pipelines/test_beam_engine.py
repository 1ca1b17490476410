"""Items that fail on Beam: tried again in place, told, set aside or the end of the run; typed, without tracebacks."""

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from pipelines import beam_engine, beam_items, meter
from pipelines.beam_engine import About
from pipelines.beam_items import Board, Guarded, Note
from pipelines.failures import Failure
from pipelines.progress import Silent
from pipelines.storage import Storage
from schemas.errors import ConfigError, InputError, StoreError, TagloomError

PROCESSES = {"runner": "DirectRunner", "direct_running_mode": "multi_processing", "direct_num_workers": 2}
ROOT = str(Path(__file__).resolve().parents[2])


@dataclass(frozen=True)
class Item:
    """What the functions below work on: they leave a file a call, so that tries can be counted from anywhere."""

    uri: str
    shard: int


class Told(Silent):
    def __init__(self):
        self.failures, self.pieces = [], 0

    def failed(self, failure):
        self.failures.append(failure)

    def advance(self, pieces, rows):
        self.pieces += pieces


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
    if item.shard == 2:
        calls(item)
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.2)
    Storage(item.uri).write(f"done/{item.shard}", b"1")


def done(item):
    there = Storage(item.uri).exists(f"done/{item.shard}")
    return int(there), 10 * there


def about(item):
    return About("graph", f"shard {item.shard}", 1, item.shard, ("graph/x",))


def not_aside(item):
    return About("ingest", f"file {item.shard}")


def run_map(items, function, beam, progress=None, tell=about, **more):
    return beam_engine.run_map(items, function, beam, "step", progress or Silent(), done, tell, **more)


def count(tmp_path, shard):
    return len(list((tmp_path / "calls").glob(f"{shard}-*")))


WHERE = pytest.mark.parametrize("where", ["here", pytest.param("processes", marks=pytest.mark.slow)])


@WHERE
def test_typed_errors_arrive_whole(where, elsewhere, tmp_path):
    beam = {} if where == "here" else elsewhere
    with pytest.raises(InputError) as caught:
        run_map([Item(str(tmp_path), 1)], refuse, beam, tell=not_aside)
    assert str(caught.value) == "a/file.jsonl: is odd\n  Mend it."
    assert count(tmp_path, 1) == 3
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
    assert told.pieces == 2
    assert ran.cost.bytes_written == 8 and ran.cost.peak > 1 << 20
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
    ran = run_map([Item(str(tmp_path), shard) for shard in range(5)], die, elsewhere, told)
    assert ran.asides.keys() == {2}
    assert ran.asides[2].kind == "lost" and ran.asides[2].attempt == 3
    assert count(tmp_path, 2) == 3
    assert told.pieces == 4
    assert [failure.shard for failure in told.failures if failure.aside] == [2]


def test_a_bundle_that_a_runner_repeats_is_not_tried_again(tmp_path):
    board = Board(str(tmp_path), "graph-1")
    guarded = Guarded(fail, board, True)
    guarded((0, Item(str(tmp_path), 7)))
    guarded((0, Item(str(tmp_path), 7)))
    assert count(tmp_path, 7) == 3
    note = board.get("0")
    assert note.end == "aside" and [kind for kind, _ in note.tries] == ["ZeroDivisionError"] * 3

    board.put("1", Note(begun=True, tries=(("ValueError", "ValueError: x"),)))  # its worker died in the second try
    guarded((1, Item(str(tmp_path), 8)))
    assert [kind for kind, _ in board.get("1").tries] == ["ValueError", "lost", "ZeroDivisionError"]
    assert count(tmp_path, 8) == 1

    board.put(beam_items.STOP, Note())
    guarded((2, Item(str(tmp_path), 9)))
    assert count(tmp_path, 9) == 0


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
