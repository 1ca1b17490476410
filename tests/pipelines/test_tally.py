"""What a run adds up to: clocks by hand, numbers worked out by hand."""

import threading

from pipelines.failures import Failure
from pipelines.meter import Cost
from pipelines.spent import Spent
from pipelines.tally import SHOWN, Tally, stage_name, stages_of


class Clock:
    """Steady time that a test moves; the time of day is an hour of 1970 later."""

    def __init__(self):
        self.now = 100.0

    def tally(self) -> Tally:
        return Tally(steady=lambda: self.now, clock=lambda: self.now + 3600)


def failure(shard, attempt, aside=False, kind="lost", reason="the worker ended"):
    return Failure("index", ("index/raw",), shard, attempt, kind, reason, aside)


def test_counts_rates_and_the_time_left():
    clock = Clock()
    tally = clock.tally()
    tally.begin("index/raw", 10, 4, "parts")
    clock.now += 2
    tally.advance(1, 30)
    clock.now += 2
    tally.advance(1, 10)
    state = tally.plain()
    assert state["started_at"] == "1970-01-01T01:01:40.000Z"
    assert state["updated_at"] == state["moved_at"] == "1970-01-01T01:01:44.000Z"
    stage = state["stage"]
    assert (stage["total"], stage["reused"], stage["done"], stage["rows"]) == (10, 4, 2, 40)
    assert stage["rows_per_second"] == 10.0  # 40 rows in 4 s
    assert stage["seconds_left"] == 8.0  # 4 more at 2 s each
    assert state["stages"] == []
    tally.end()
    clock.now += 5
    state = tally.plain()
    assert state["stage"] is None
    assert [stage["seconds"] for stage in state["stages"]] == [4.0]
    assert state["seconds"] == 9.0
    assert state["moved_at"] == "1970-01-01T01:01:44.000Z"


def test_costs_are_added_up_and_the_rest_is_waiting():
    tally = Tally()
    tally.begin("a", 2, 0, "parts")
    tally.finished(0, Cost(seconds=4, cpu=1, reading=0.5, writing=0.25, bytes_read=10, bytes_written=1, peak=7))
    tally.finished(1, Cost(seconds=2, cpu=1, reading=0.5, writing=0.25, bytes_read=20, bytes_written=2, peak=5))
    tally.end()
    tally.begin("b", 1, 0, "shards")
    tally.worked(Cost(seconds=1, cpu=2, bytes_read=5, peak=9))
    state = tally.plain()
    first = state["stages"][0]["cost"]
    assert (first["seconds"], first["cpu"], first["reading"], first["writing"]) == (6, 2, 1, 0.5)
    assert first["waiting"] == 2.5
    assert (first["bytes_read"], first["bytes_written"], first["peak"]) == (30, 3, 7)
    assert state["stage"]["cost"]["waiting"] == 0  # more processor time than time: several threads
    assert (state["cost"]["bytes_read"], state["cost"]["peak"]) == (35, 9)


def test_waiting_never_falls():
    tally = Tally()
    tally.begin("a", 2, 0, "parts")
    tally.finished(0, Cost(seconds=3, cpu=1))
    tally.finished(1, Cost(seconds=3, cpu=2, reading=2))  # reading took processor time, too
    assert tally.plain()["cost"]["waiting"] == 2


def test_slow_shards_are_those_beyond_three_times_the_median():
    clock = Clock()
    tally = clock.tally()
    tally.begin("a", 6, 0, "parts")
    for shard in range(6):
        tally.started(shard)
    for shard, seconds in ((0, 1.0), (1, 2.0), (2, 9.0)):
        tally.finished(shard, Cost(seconds=seconds))
    clock.now += 5.9
    assert tally.plain()["stage"]["slow"] == []
    clock.now += 0.3
    tally.finished(3, Cost(seconds=2.0))
    stage = tally.plain()["stage"]
    assert stage["median_seconds"] == 2.0
    assert stage["slow"] == [
        {"shard": 4, "seconds": 6.2, "factor": 3.1},
        {"shard": 5, "seconds": 6.2, "factor": 3.1},
    ]
    assert stage["slowest"][0] == {"shard": 2, "seconds": 9.0, "factor": 4.5}
    assert stage["at_work"][0] == {"shard": 4, "since": "1970-01-01T01:01:40.000Z", "seconds": 6.2}
    assert (stage["shards_at_work"], stage["shards_done"], stage["most_at_once"]) == (2, 4, 6)


def test_two_finished_shards_are_too_few_to_call_a_third_one_slow():
    clock = Clock()
    tally = clock.tally()
    tally.begin("a", 3, 0, "parts")
    tally.started(2)
    tally.finished(0, Cost(seconds=0.1))
    tally.finished(1, Cost(seconds=0.1))
    clock.now += 60
    assert tally.plain()["stage"]["slow"] == []


def test_the_last_of_several_shards_is_alone_from_the_end_of_the_others():
    clock = Clock()
    tally = clock.tally()
    tally.begin("a", 3, 0, "parts")
    clock.now += 1
    for shard in range(3):
        tally.started(shard)
    clock.now += 2
    tally.finished(0, Cost(seconds=2))
    tally.finished(1, Cost(seconds=2))
    clock.now += 7
    tally.finished(2, Cost(seconds=9))
    tally.end()
    (stage,) = tally.plain()["stages"]
    assert (stage["start_seconds"], stage["alone_seconds"]) == (1.0, 7.0)


def test_one_shard_after_the_other_leaves_none_alone():
    clock = Clock()
    tally = clock.tally()
    tally.begin("a", 2, 0, "parts")
    for shard in range(2):
        tally.started(shard)
        clock.now += 3
        tally.finished(shard, Cost(seconds=3))
    tally.end()
    assert tally.plain()["stages"][0]["alone_seconds"] == 0


def test_failures_by_kind_and_what_is_failing():
    tally = Tally()
    tally.begin("index/raw", 3, 0, "parts")
    tally.started(0)
    tally.failed(failure(0, 1))
    tally.failed(failure(1, 1, kind="MemoryError"))
    tally.failed(failure(1, 2, kind="MemoryError"))
    tally.failed(failure(2, 3, aside=True, reason="x" * 2000))
    stage = tally.plain()["stage"]
    assert stage["shards_at_work"] == 0
    assert stage["failures"] == {"MemoryError": 2, "lost": 2}
    assert (stage["retries"], stage["shards_failing"], stage["shards_aside"], tally.aside) == (3, 2, 1, 1)
    assert [(one["shard"], one["attempts"], one["aside"]) for one in stage["failing"]] == [
        (2, 3, True),
        (0, 1, False),
        (1, 2, False),
    ]
    assert len(stage["failing"][0]["reason"]) == 500
    tally.finished(0, Cost())
    tally.finished(1, Cost())
    tally.end()
    state = tally.plain()
    assert [one["shard"] for one in state["stages"][0]["failing"]] == [2]
    assert state["failures"] == {"MemoryError": 2, "lost": 2}


def test_what_is_named_is_bounded_and_what_is_counted_is_not():
    tally = Tally()
    tally.begin("a", 1000, 0, "parts")
    for shard in range(1000):
        tally.started(shard)
    assert (len(tally.plain()["stage"]["at_work"]), tally.plain()["stage"]["shards_at_work"]) == (SHOWN, 1000)


def test_an_engine_tells_the_time_left_by_pieces():
    clock = Clock()
    tally = clock.tally()
    spent = Spent(pieces=40)
    tally.begin("extract", 2, 0, "parts")
    clock.now += 10
    counts = {"requests": 10, "pieces.ok": 9, "pieces.failed": 1, "prompt_tokens": 70, "completion_tokens": 7}
    spent.take([{"id": "a", "counts": counts, "in_flight": 3, "slots": 4}])
    tally.measure(spent)
    stage = tally.plain()["stage"]
    assert stage["seconds_left"] == 30.0  # 30 of 40 pieces at one a second
    engine = stage["engine"]
    assert (engine["requests"], engine["prompt_tokens"], engine["in_flight"], engine["slots"]) == (10, 70, 3, 4)
    assert engine["pieces_by_status"] == {"ok": 9, "failed": 1}


def test_labels_lose_their_figures():
    assert stage_name("ingest: read 3 of 5 files") == "ingest: read"
    assert stage_name("rank/bm25") == "rank/bm25"
    assert stage_name("evaluate") == "evaluate"


def test_reading_it_from_other_threads_never_sees_a_half_told_step():
    tally = Tally()
    wrong = []
    stop = threading.Event()

    def read():
        while not stop.is_set():
            state = tally.plain()
            wrong.extend(s for s in stages_of(state) if s["cost"]["seconds"] != s["shards_done"] * 2)

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(20):
        tally.begin(f"stage{number}", 50, 0, "parts")
        for shard in range(50):
            tally.started(shard)
            tally.finished(shard, Cost(seconds=2))
        tally.end()
    stop.set()
    reader.join()
    assert wrong == []
    assert len(tally.plain()["stages"]) == 20
