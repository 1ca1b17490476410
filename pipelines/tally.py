"""Adds up what a run tells while it works: stages, shards, failures, costs. What shows it takes it from here."""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from statistics import median
from typing import Any

from pipelines.failures import Failure
from pipelines.meter import Cost
from pipelines.spent import Spent

SLOW = 3.0
"""A shard is slow from this multiple of the median of those that are done."""
ENOUGH = 3
"""Shards that must be done before one is called slow."""
SHOWN = 50
"""Shards at work, slow ones and failing ones that are named at most; all are counted."""
SLOWEST = 5
"""Finished shards that are named as the slowest of a stage."""
REASON_CHARACTERS = 500

_FIGURES = re.compile(r"\s+\d.*$")


def moment(seconds: float) -> str:
    """Write a time of `time.time` as UTC, to the millisecond."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def stage_name(label: str) -> str:
    """Return the name in a label such as ``ingest: read 3 of 5 files``, which is the same in every run."""
    return _FIGURES.sub("", label)


@dataclass
class StageTally:
    """One stage of a run, or one step of it; times are those of `time.monotonic`.

    Attributes:
        label: What the run called it.
        total: Pieces that it has, those that were there included.
        done: Pieces done in this run.
        cost: What its shards cost, or all of it together.
        waiting: Seconds of that in which a shard neither computed nor waited for storage.
        took: Shard -> seconds of work, of those that are done.
        at_work: Shard -> when its work began.
        failing: Shard -> what went wrong with it last.
        alone: Seconds that the last shard worked on when all others had ended, where several had worked at once.
    """

    label: str
    unit: str
    total: int
    reused: int
    begun: float
    begun_at: float
    ended: float | None = None
    done: int = 0
    rows: int = 0
    cost: Cost = field(default_factory=Cost)
    waiting: float = 0.0
    took: dict[int, float] = field(default_factory=dict)
    at_work: dict[int, float] = field(default_factory=dict)
    failing: dict[int, Failure] = field(default_factory=dict)
    failures: Counter[str] = field(default_factory=Counter)
    retries: int = 0
    first: float | None = None
    most_at_once: int = 0
    last_finish: float | None = None
    alone: float = 0.0
    spent: Spent | None = None
    answered: int = 0

    @property
    def name(self) -> str:
        """The name without figures."""
        return stage_name(self.label)

    def add(self, cost: Cost) -> None:
        """Add a cost. Waiting is taken shard by shard: reading computes too, so a sum of differences could fall."""
        self.cost.add(cost)
        self.waiting += max(0.0, cost.seconds - cost.cpu - cost.reading - cost.writing)

    def seconds(self, now: float) -> float:
        """Seconds since it began, or that it took."""
        return (self.ended if self.ended is not None else now) - self.begun

    def left(self, now: float) -> float | None:
        """Seconds that it will still take if it goes on like this; None where nothing is done yet."""
        if self.ended is not None:
            return 0.0
        wanted, done = self.total - self.reused, self.done
        if self.spent is not None and self.spent.pieces:
            wanted, done = self.spent.pieces, self.spent.done
        return self.seconds(now) / done * max(0, wanted - done) if done else None

    def plain(self, now: float, now_at: float) -> dict[str, Any]:
        """Return it as plain data.

        Args:
            now: Time of the steady clock.
            now_at: The same moment by the calendar's clock.
        """
        seconds = self.seconds(now)
        middle = median(self.took.values()) if self.took else None
        flying = sorted((since, shard) for shard, since in self.at_work.items())
        limit = SLOW * middle if middle is not None and len(self.took) >= ENOUGH else None
        slow = [(shard, now - since) for since, shard in flying if limit is not None and now - since > limit]
        slowest = sorted(self.took.items(), key=lambda one: (-one[1], one[0]))[:SLOWEST]
        trouble = sorted(self.failing.values(), key=lambda one: (not one.aside, one.shard))
        return {
            "stage": self.name,
            "label": self.label,
            "unit": self.unit,
            "total": self.total,
            "reused": self.reused,
            "done": self.done,
            "rows": self.rows,
            "started_at": moment(self.begun_at),
            "seconds": round(seconds, 3),
            "rows_per_second": round(self.rows / max(seconds, 1e-3), 1),
            "pieces_per_second": round(self.done / max(seconds, 1e-3), 2),
            "seconds_left": _rounded(self.left(now)),
            "cost": _cost(self.cost, self.waiting),
            "start_seconds": round((self.first if self.first is not None else self.begun) - self.begun, 3),
            "most_at_once": self.most_at_once,
            "alone_seconds": round(self.alone, 3),
            "shards_done": len(self.took),
            "median_seconds": _rounded(middle),
            "slowest": [_slow(shard, took, middle) for shard, took in slowest],
            "shards_at_work": len(flying),
            "at_work": [
                {"shard": shard, "since": moment(now_at - (now - since)), "seconds": round(now - since, 3)}
                for since, shard in flying[:SHOWN]
            ],
            "slow": [_slow(shard, took, middle) for shard, took in slow[:SHOWN]],
            "failures": dict(sorted(self.failures.items())),
            "retries": self.retries,
            "failing": [_failing(one) for one in trouble[:SHOWN]],
            "shards_failing": sum(not one.aside for one in trouble),
            "shards_aside": sum(one.aside for one in trouble),
            "engine": None if self.spent is None else _engine(self.spent),
        }


class Tally:
    """Receives the progress of a run and gives its state as plain data at any time, from any thread."""

    def __init__(self, steady: Callable[[], float] = time.monotonic, clock: Callable[[], float] = time.time) -> None:
        """Count nothing yet.

        Args:
            steady: Clock that durations are taken from.
            clock: Clock that tells the time of day.
        """
        self._steady, self._clock = steady, clock
        self._lock = threading.Lock()
        self._stages: list[StageTally] = []
        self._closed: list[dict[str, Any]] = []
        self._begun, self._begun_at = steady(), clock()
        self._moved_at = self._begun_at

    # -- what the run tells ------------------------------------------------------------------------------------

    def begin(self, stage: str, total: int, reused: int, unit: str) -> None:
        """Take up a stage."""
        with self._lock:
            self._stages.append(StageTally(stage, unit, total, reused, self._steady(), self._clock()))
            self._moved_at = self._clock()

    def advance(self, pieces: int, rows: int) -> None:
        """Count what is done."""
        with self._lock:
            stage = self._now()
            stage.done += pieces
            stage.rows += rows
            self._moved_at = self._clock()

    def measure(self, spent: Spent) -> None:
        """Remember what counts an engine's work."""
        with self._lock:
            stage = self._now()
            if stage.spent is not spent or stage.answered != spent.done:
                self._moved_at = self._clock()
            stage.spent, stage.answered = spent, spent.done

    def started(self, shard: int) -> None:
        """Take a shard as at work."""
        with self._lock:
            stage, now = self._now(), self._steady()
            stage.first = now if stage.first is None else stage.first
            stage.at_work[shard], stage.alone = now, 0.0
            stage.most_at_once = max(stage.most_at_once, len(stage.at_work))

    def finished(self, shard: int, cost: Cost) -> None:
        """Take a shard as done; what went wrong with it before is only counted from now on."""
        with self._lock:
            stage = self._now()
            self._landed(stage, shard)
            stage.failing.pop(shard, None)
            stage.took[shard] = cost.seconds
            stage.add(cost)

    def failed(self, failure: Failure) -> None:
        """Count a failed attempt."""
        with self._lock:
            stage = self._now()
            self._landed(stage, failure.shard)
            stage.failing[failure.shard] = failure
            stage.failures[failure.kind] += 1
            stage.retries += not failure.aside

    def worked(self, cost: Cost) -> None:
        """Add what a whole step cost."""
        with self._lock:
            self._now().add(cost)

    def end(self) -> None:
        """Close the stage."""
        with self._lock:
            stage = self._now()
            stage.ended = self._steady()
            stage.at_work.clear()
            self._moved_at = self._clock()

    def _now(self) -> StageTally:
        if not self._stages:
            self._stages.append(StageTally("", "parts", 0, 0, self._steady(), self._clock()))
        return self._stages[-1]

    def _landed(self, stage: StageTally, shard: int) -> None:
        stage.at_work.pop(shard, None)
        now = self._steady()
        if not stage.at_work and stage.most_at_once > 1 and stage.last_finish is not None:
            stage.alone = now - stage.last_finish
        stage.last_finish = now
        self._moved_at = self._clock()

    # -- what it has come to -----------------------------------------------------------------------------------

    @property
    def aside(self) -> int:
        """Shards set aside, over all stages."""
        with self._lock:
            return sum(one.aside for stage in self._stages for one in stage.failing.values())

    def plain(self) -> dict[str, Any]:
        """Return all of it as plain data; see docs/operations.md for the keys."""
        with self._lock:
            now, now_at = self._steady(), self._clock()
            for stage in self._stages[len(self._closed) :]:
                if stage.ended is not None:
                    self._closed.append(stage.plain(now, now_at))
            working = self._stages[-1].plain(now, now_at) if len(self._stages) > len(self._closed) else None
            total, failures = Cost(), Counter[str]()
            for stage in self._stages:
                total.add(stage.cost)
                failures.update(stage.failures)
            return {
                "started_at": moment(self._begun_at),
                "updated_at": moment(now_at),
                "moved_at": moment(self._moved_at),
                "seconds": round(now - self._begun, 3),
                "stage": working,
                "stages": list(self._closed),
                "cost": _cost(total, sum(stage.waiting for stage in self._stages)),
                "failures": dict(sorted(failures.items())),
            }


def stages_of(state: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return all stages of a run's state, the one at work last."""
    return [*state["stages"], *([state["stage"]] if state["stage"] else [])]


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)


def _cost(cost: Cost, waiting: float) -> dict[str, Any]:
    return {name: round(value, 3) for name, value in {**asdict(cost), "waiting": waiting}.items()}


def _slow(shard: int, seconds: float, middle: float | None) -> dict[str, Any]:
    factor = seconds / middle if middle else None
    return {"shard": shard, "seconds": round(seconds, 3), "factor": None if factor is None else round(factor, 1)}


def _failing(failure: Failure) -> dict[str, Any]:
    return {
        "shard": failure.shard,
        "units": list(failure.units[:SHOWN]),
        "attempts": failure.attempt,
        "kind": failure.kind,
        "reason": failure.reason[:REASON_CHARACTERS],
        "aside": failure.aside,
    }


def _engine(spent: Spent) -> dict[str, Any]:
    return {
        **spent.facts(),
        "pieces": spent.pieces,
        "pieces_done": spent.done,
        "pieces_by_status": {name: int(count) for name, count in spent.group("pieces").items()},
        "in_flight": spent.in_flight,
        "slots": spent.slots,
    }
