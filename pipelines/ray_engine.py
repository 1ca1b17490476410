"""Runs work items on Ray's workers, or in this process when there are none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pipelines import work
from pipelines.stage import Item
from schemas.errors import FAULT, StoreError, TagloomError

ITEMS_IN_FLIGHT = 2
"""Items that a worker has at a time: the next one is there when one ends."""
ATTEMPTS = 3


class Worker:
    """A long-lived worker: a Ray actor, one a core."""

    async def warm(self) -> None:
        """Load what the stages need, while there is nothing to do yet."""
        from pipelines import extract, index, rank  # noqa: F401

    async def run(self, item: Item) -> work.Done:
        """Run one item."""
        return await work.run_async(item)


def make_workers(count: int) -> list[Any]:
    """Start workers; Ray must be connected. A worker that dies is started again, three times."""
    import ray

    remote = ray.remote(num_cpus=1, max_restarts=ATTEMPTS, max_task_retries=ATTEMPTS)(Worker)
    workers = [remote.remote() for _ in range(count)]
    for worker in workers:
        worker.warm.remote()
    return workers


def end_workers(workers: Sequence[Any]) -> None:
    """End workers."""
    import ray

    for worker in workers:
        ray.kill(worker)


def run_items(items: Sequence[Item], workers: Sequence[Any]) -> Iterator[tuple[Item, work.Done]]:
    """Run items and yield each as it ends; bounded numbers are in flight.

    Args:
        items: The work.
        workers: Ray workers of `make_workers`; none runs the items one after the other in this process.

    Raises:
        TagloomError: An item failed; what had ended before stays on storage.
    """
    if not workers:
        for item in items:
            yield item, work.run(item)
        return
    import ray

    waiting = list(reversed(items))
    flying: dict[Any, tuple[Item, int]] = {}
    busy = [0] * len(workers)
    while waiting or flying:
        while waiting and min(busy) < ITEMS_IN_FLIGHT:
            free = busy.index(min(busy))
            item = waiting.pop()
            flying[workers[free].run.remote(item)] = item, free
            busy[free] += 1
        ready, _ = ray.wait(list(flying), num_returns=1)
        for reference in ready:
            item, worker = flying.pop(reference)
            busy[worker] -= 1
            try:
                done = ray.get(reference)
            except ray.exceptions.RayTaskError as error:
                raise _typed(error, item) from error
            except ray.exceptions.RayError as error:
                raise TagloomError(
                    f"a worker was lost {ATTEMPTS} times: {error}",
                    where=f"{item.stage}, shard {item.shard}",
                    remedy="Finished parts stay. Check memory and disk, then run the same command again.",
                ) from error
            yield item, done


def _typed(error: Any, item: Item) -> TagloomError:
    cause = error.cause
    if isinstance(cause, TagloomError):
        return cause
    if isinstance(cause, OSError):
        return StoreError(str(cause), where=f"{item.stage}, shard {item.shard}")
    return TagloomError(f"{type(cause).__name__}: {cause}", where=f"{item.stage}, shard {item.shard}", remedy=FAULT)
