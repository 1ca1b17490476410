"""Runs work items on Ray's workers, or in this process when there are none."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from pipelines import side_by_side, work
from pipelines.attempts import Attempts, as_told
from pipelines.crew import Crew
from pipelines.failures import Failure
from pipelines.load import MOST_ITEMS, Load
from pipelines.progress import Progress, Silent
from pipelines.spent import Spent
from pipelines.stage import Item
from schemas.errors import TagloomError

WATCH_SECONDS = 1.0
GRACE_SECONDS = 3.0
"""Seconds that items at work have to end when the run is told to end: a part that is written stays."""

Ended = tuple[Item, work.Done | Failure]
"""An item with what was done, or with the failure for which it is set aside."""


def run_items(
    items: Sequence[Item], crew: Crew | None, *, attempts: Attempts | None = None, progress: Progress | None = None
) -> Iterator[Ended]:
    """Run items that compute, and yield each as it ends; bounded numbers are in flight.

    Args:
        items: The work.
        crew: Ray's workers; None runs the items one after the other in this process.
        attempts: Decides what becomes of an item that fails.
        progress: Is told what begins, ends and fails.

    Raises:
        TagloomError: What concerns the whole run; what had ended before stays on storage.
    """
    attempts, progress = attempts or Attempts(items), progress or Silent()
    if crew is not None:
        yield from _Flight(items, crew, attempts, progress, None, lambda: None).run()
        return
    for item in items:
        ended: Failure | work.Done | None = None
        while ended is None or (isinstance(ended, Failure) and not ended.aside):
            progress.started(item.shard)
            try:
                ended = work.run(item)
            except Exception as error:
                ended = attempts.failed(item, error)
            else:
                attempts.succeeded()
            _tell(progress, item, ended)
        yield item, ended


def run_asking(
    items: Sequence[Item],
    crew: Crew | None,
    at_once: int,
    spent: Spent,
    told: Callable[[], None],
    *,
    attempts: Attempts | None = None,
    progress: Progress | None = None,
) -> Iterator[Ended]:
    """Run items that wait for an engine, many at a time, and yield each as it ends.

    Args:
        items: The work.
        crew: Ray's workers; None runs the items in this process.
        at_once: Cases that a worker has at work at once.
        spent: Receives what engines did, about once a second.
        told: Called after that.
        attempts: Decides what becomes of an item that fails.
        progress: Is told what begins, ends and fails.

    Raises:
        TagloomError: What concerns the whole run; what had ended before stays on storage.
        BudgetError: `spent` has a budget that is used up.
    """
    attempts, progress = attempts or Attempts(items), progress or Silent()
    if crew is not None:

        def look(*, more: bool = True) -> None:
            spent.take(crew.meters(), more=more)
            told()

        yield from _Flight(items, crew, attempts, progress, at_once, look).run()
        look(more=False)
        return
    last, left = items[0], len(items)
    try:
        for one in side_by_side.run(items, at_once, WATCH_SECONDS, attempts):
            if isinstance(one, tuple):
                last, ended = one
                if ended is None:
                    progress.started(last.shard)
                    continue
                _tell(progress, last, ended)
                if isinstance(ended, work.Done) or ended.aside:
                    left -= 1
                    yield last, ended
            else:
                spent.take([one], more=left > 0)
                told()
    except TagloomError:
        raise
    except Exception as error:
        raise as_told(error, last) from error


def _tell(progress: Progress, item: Item, ended: work.Done | Failure) -> None:
    if isinstance(ended, Failure):
        progress.failed(ended)
    else:
        progress.finished(item.shard, ended.cost)


@dataclass
class _Flight:
    """Items on their way through Ray's workers."""

    items: Sequence[Item]
    crew: Crew
    attempts: Attempts
    progress: Progress
    at_once: int | None
    look: Callable[[], None]
    waiting: list[Item] = field(init=False)
    flying: dict[Any, tuple[Item, int, int]] = field(init=False, default_factory=dict)
    tried: dict[int, set[int]] = field(init=False, default_factory=dict)
    behind: set[Any] = field(init=False, default_factory=set)
    load: Load = field(init=False)

    def __post_init__(self) -> None:
        self.waiting = list(reversed(self.items))
        self.load = Load(self.at_once)

    def run(self) -> Iterator[Ended]:
        """Yield every item as it ends."""
        import ray

        looked = time.monotonic()
        with self.crew.wanted(len(self.items)):
            try:
                while self.waiting or self.flying:
                    self._send()
                    ready = self._ready()
                    more = bool(self.waiting) or len(ready) < len(self.flying)
                    if more and time.monotonic() - looked >= WATCH_SECONDS:
                        self.look()
                        looked = time.monotonic()
                    for reference in ready:
                        item, ended = self._land(reference)
                        if ended is None:
                            self.waiting.insert(0, item)  # the last: what it waited behind may end workers again
                            continue
                        _tell(self.progress, item, ended)
                        if isinstance(ended, work.Done) or ended.aside:
                            yield item, ended
                        else:
                            self.waiting.append(item)
            except SystemExit as end:
                if self.flying:
                    ray.wait(list(self.flying), num_returns=len(self.flying), timeout=GRACE_SECONDS)
                # Ray puts another code in the place of the one that the signal's handler gave.
                raise SystemExit(128 + signal.SIGTERM) from end

    def _send(self) -> None:
        """Give workers what they have room for; an item that failed goes to another worker where there is one.

        None gets more than its share, so that there is work for those that are about to start.
        """
        if not self.waiting:
            return
        up = self.crew.up(busy=self.load.busy())
        share = math.ceil((len(self.waiting) + len(self.flying)) / self.crew.expected())
        for place in reversed(range(len(self.waiting))):
            item = self.waiting[place]
            alone = self.attempts.alone(item)
            but = self.tried.get(item.shard, ())
            free = self.load.free(up, alone=alone, but=but, most=min(share, MOST_ITEMS))
            if free is not None:
                del self.waiting[place]
                self.flying[self.crew.run(free, item)] = item, free, self.crew.life(free)
                self.load.give(free, item, alone=alone)
                self.progress.started(item.shard)
            elif item.shard not in self.tried:
                return  # nobody has room for any other item either

    def _ready(self) -> list[Any]:
        """Return the items that ended, once one has, or a worker has come for those that wait, or a second is over."""
        import ray

        awaited = [*self.flying, *(self.crew.coming() if self.waiting else ())]
        ray.wait(awaited, num_returns=1, timeout=WATCH_SECONDS)
        flying = list(self.flying)
        found: list[Any] = ray.wait(flying, num_returns=len(flying), timeout=0)[0] if flying else []
        return found

    def _land(self, reference: Any) -> tuple[Item, work.Done | Failure | None]:
        """Return an item with what became of it; None where its worker was lost before it began with it."""
        import ray

        item, worker, life = self.flying[reference]
        try:
            done: work.Done = ray.get(reference)
        except ray.exceptions.RayTaskError as error:
            self.tried.setdefault(item.shard, set()).add(worker)
            return item, self.attempts.failed(item, error.cause)
        except ray.exceptions.RayError as error:
            self.crew.replace(worker, life)
            self.tried.setdefault(item.shard, set())
            return item, self.attempts.failed(item, error, lost=True) if self._began(reference) else None
        finally:
            del self.flying[reference]
            self.behind.discard(reference)
            self.load.done(worker, item)
        self.attempts.succeeded()
        return item, done

    def _began(self, reference: Any) -> bool:
        """Tell whether a worker that was lost had begun with an item; one that computes takes one after the other."""
        if self.at_once is not None:
            return True
        _, *worker = self.flying[reference]
        first, *others = [one for one, (_, *own) in self.flying.items() if own == worker]  # in the order given
        if first != reference or reference in self.behind:
            return False
        self.behind.update(others)
        return True
