"""Runs work items on Ray's workers, or in this process when there are none."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from pipelines import side_by_side, work
from pipelines.crew import Crew
from pipelines.load import Load
from pipelines.spent import Spent
from pipelines.stage import Item
from schemas.errors import FAULT, StoreError, TagloomError

ATTEMPTS = 3
"""Workers that an item may lose."""
WATCH_SECONDS = 1.0


def run_items(items: Sequence[Item], crew: Crew | None) -> Iterator[tuple[Item, work.Done]]:
    """Run items that compute, and yield each as it ends; bounded numbers are in flight.

    Args:
        items: The work.
        crew: Ray's workers; None runs the items one after the other in this process.

    Raises:
        TagloomError: An item failed; what had ended before stays on storage.
    """
    if crew is not None:
        yield from _on_ray(items, crew, None, lambda: None)
        return
    for item in items:
        yield item, work.run(item)


def run_asking(
    items: Sequence[Item], crew: Crew | None, at_once: int, spent: Spent, told: Callable[[], None]
) -> Iterator[tuple[Item, work.Done]]:
    """Run items that wait for an engine, many at a time, and yield each as it ends.

    Args:
        items: The work.
        crew: Ray's workers; None runs the items in this process.
        at_once: Cases that a worker has at work at once.
        spent: Receives what engines did, about once a second.
        told: Called after that.

    Raises:
        TagloomError: An item failed; what had ended before stays on storage.
        BudgetError: `spent` has a budget that is used up.
    """
    if crew is not None:

        def look() -> None:
            spent.take(crew.meters())
            told()

        yield from _on_ray(items, crew, at_once, look)
        look()
        return
    last = items[0]
    try:
        for one in side_by_side.run(items, at_once, WATCH_SECONDS):
            if isinstance(one, tuple):
                last = one[0]
                yield one
            else:
                spent.take([one])
                told()
    except TagloomError:
        raise
    except Exception as error:
        raise _typed(error, last) from error


def _on_ray(
    items: Sequence[Item], crew: Crew, at_once: int | None, look: Callable[[], None]
) -> Iterator[tuple[Item, work.Done]]:
    import ray

    waiting = list(reversed(items))
    flying: dict[Any, tuple[Item, int]] = {}
    lost: Counter[int] = Counter()
    load = Load(len(crew), at_once)
    looked = time.monotonic()
    while waiting or flying:
        while waiting and (free := load.free(crew.up(0.0 if flying else WATCH_SECONDS))) is not None:
            item = waiting.pop()
            flying[crew.run(free, item)] = item, free
            load.change(free, item, 1)
        ready = ray.wait(list(flying), num_returns=1, timeout=WATCH_SECONDS)[0] if flying else []
        if time.monotonic() - looked >= WATCH_SECONDS:
            look()
            looked = time.monotonic()
        for reference in ready:
            item, worker = flying.pop(reference)
            load.change(worker, item, -1)
            try:
                done = ray.get(reference)
            except ray.exceptions.RayTaskError as error:
                raise _typed(error.cause, item) from error
            except ray.exceptions.RayError as error:
                lost[item.shard] += 1
                if lost[item.shard] == ATTEMPTS:
                    raise TagloomError(
                        f"a worker was lost {ATTEMPTS} times: {error}",
                        where=f"{item.stage}, shard {item.shard}",
                        remedy="Finished parts stay. Check memory and disk, then run the same command again.",
                    ) from error
                crew.replace(worker)
                waiting.append(item)
                continue
            yield item, done


def _typed(cause: Exception, item: Item) -> TagloomError:
    if isinstance(cause, TagloomError):
        return cause
    if isinstance(cause, OSError):
        return StoreError(str(cause), where=f"{item.stage}, shard {item.shard}")
    return TagloomError(f"{type(cause).__name__}: {cause}", where=f"{item.stage}, shard {item.shard}", remedy=FAULT)
