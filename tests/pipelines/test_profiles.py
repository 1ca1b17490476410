"""What bounds a run, worked out by hand."""

import pytest

from pipelines.failures import Failure
from pipelines.meter import Cost
from pipelines.profiles import BOUNDS, bounds, profile
from pipelines.spent import Spent
from pipelines.tally import Tally
from tests.pipelines.test_tally import Clock

ABOUT = {"run": "r", "what": "run", "generation": "main", "state": "done", "units": {}}


def stage(**more):
    cost = {"seconds": 0.0, "cpu": 0.0, "reading": 0.0, "writing": 0.0, "waiting": 0.0, **more.pop("cost", {})}
    return {"seconds": 10.0, "start_seconds": 0.0, "alone_seconds": 0.0, "engine": None, "cost": cost, **more}


def only(**seconds):
    return {**dict.fromkeys(BOUNDS, 0.0), **{name.replace("_", " "): value for name, value in seconds.items()}}


def test_the_time_of_a_stage_is_split_as_its_work_was():
    cost = {"seconds": 40.0, "cpu": 20.0, "reading": 10.0, "writing": 2.0, "waiting": 8.0}
    assert bounds(stage(cost=cost)) == only(processor=5.0, reading=2.5, writing=0.5, waiting=2.0)


def test_waiting_is_for_the_engine_where_there_is_one():
    cost = {"seconds": 100.0, "waiting": 100.0}
    assert bounds(stage(cost=cost, engine={"requests": 1}))["engine"] == 10.0


def test_less_work_than_time_is_start_up():
    found = bounds(stage(cost={"seconds": 4.0, "cpu": 4.0}, start_seconds=1.0))
    assert found["processor"] == 4.0
    assert found["start-up"] == 6.0


def test_a_shard_alone_at_the_end_is_named():
    found = bounds(stage(cost={"seconds": 20.0, "cpu": 20.0}, alone_seconds=7.0))
    assert (found["one slow shard"], found["processor"]) == (7.0, 3.0)


def test_a_stage_without_work_is_start_up():
    assert bounds(stage())["start-up"] == 10.0


@pytest.mark.parametrize("cpu", [0.0, 3.0, 500.0])
def test_nothing_is_lost_and_nothing_counted_twice(cpu):
    cost = {"seconds": 12.0, "cpu": cpu, "reading": 1.0, "waiting": max(0.0, 11.0 - cpu)}
    found = bounds(stage(cost=cost, start_seconds=1.0, alone_seconds=2.0))
    assert sum(found.values()) == pytest.approx(10.0)


def test_the_profile_of_a_run():
    clock = Clock()
    tally = clock.tally()
    clock.now += 1  # before any stage
    for _ in range(2):
        tally.begin("ingest: read 1 of 1 files", 2, 0, "MB")
        clock.now += 2
        tally.advance(2, 0)
        tally.worked(Cost(seconds=2, reading=2, bytes_read=50))
        tally.end()
    tally.begin("index/raw", 5, 1, "parts")
    for shard in range(4):
        tally.started(shard)
    clock.now += 2
    for shard in range(3):
        tally.finished(shard, Cost(seconds=2, cpu=2, bytes_read=10, bytes_written=1, peak=7))
        tally.advance(1, 10)
    tally.failed(Failure("index", ("index/raw",), 9, 1, "lost", "gone", False))
    clock.now += 8
    tally.finished(3, Cost(seconds=10, cpu=10, peak=9))
    tally.advance(1, 10)
    tally.end()
    record = {**ABOUT, **tally.plain(), "units": {"index/raw": {"parts": 5, "made": 4}, "x": {"parts": 3, "made": 0}}}
    found = profile(record)
    assert found["seconds"] == 15.0
    assert found["where"] == only(reading=4.0, processor=2.0, one_slow_shard=8.0) | {"start-up": 1.0}
    assert found["bound"] == {"by": "one slow shard", "seconds": 8.0, "share": 0.5333, "stage": "index/raw"}
    assert found["reused"] == ["x"]
    assert found["slowest"][0] == {"stage": "index/raw", "shard": 3, "seconds": 10, "factor": 5.0}
    last = found["stages"][-1]
    assert (last["wall"], last["busy"], last["cpu"], last["made"], last["reused"]) == (10.0, 16, 16, 4, 1)
    assert (last["rows"], last["rows_per_second"], last["peak"], last["bytes_read"]) == (40, 4.0, 9, 30)
    assert last["failures"] == {"lost": 1}


def test_a_run_that_waited_for_workers_is_bound_by_that():
    clock = Clock()
    tally = clock.tally()
    tally.begin("index/raw", 1, 0, "parts")
    clock.now += 30
    tally.started(0)
    clock.now += 1
    tally.finished(0, Cost(seconds=1, cpu=1))
    tally.end()
    assert profile({**ABOUT, **tally.plain()})["bound"] == {
        **{"by": "start-up", "seconds": 30.0, "share": 0.9677},
        "stage": "index/raw",
    }


def test_tokens_are_told_where_an_engine_was_asked():
    tally = Tally()
    tally.begin("extract", 1, 0, "parts")
    spent = Spent()
    counts = {"requests": 3, "prompt_tokens": 70, "completion_tokens": 7}
    spent.take([{"id": "a", "counts": counts, "in_flight": 0, "slots": 1}])
    tally.measure(spent)
    (found,) = profile({**ABOUT, **tally.plain(), "state": "running"})["stages"]
    assert (found["requests"], found["tokens"]) == (3, 77)


def test_a_run_that_made_nothing_has_a_profile():
    clock = Clock()
    found = profile({**ABOUT, **clock.tally().plain()})
    assert (found["bound"]["by"], found["bound"]["share"], found["stages"]) == ("reading", 0.0, [])
