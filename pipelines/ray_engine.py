"""Runs work items on Ray, or in this process when there are no workers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pipelines import work
from pipelines.stage import Item
from schemas.errors import FAULT, StoreError, TagloomError

ITEMS_IN_FLIGHT = 2
ITEMS_PER_ACTOR = 8
ATTEMPTS = 3


def run_items(items: Sequence[Item], workers: int, actors: bool) -> Iterator[tuple[Item, work.Done]]:
    """Run items and yield each as it ends; bounded numbers are in flight.

    Args:
        items: The work.
        workers: Ray workers; 0 runs the items one after the other in this process.
        actors: Use long-lived workers that take several items at a time (extraction).

    Raises:
        TagloomError: An item failed; what had ended before stays on storage.
    """
    if workers == 0:
        for item in items:
            yield item, work.run(item)
        return
    import ray

    if actors:
        pool = _Actors(min(workers, len(items)))
        submit, limit = pool.submit, pool.limit
    else:
        remote = ray.remote(num_cpus=1, max_retries=ATTEMPTS)(work.run)
        submit, limit = remote.remote, workers * ITEMS_IN_FLIGHT
    waiting = list(reversed(items))
    flying: dict[Any, Item] = {}
    while waiting or flying:
        while waiting and len(flying) < limit:
            item = waiting.pop()
            flying[submit(item)] = item
        ready, _ = ray.wait(list(flying), num_returns=1)
        for reference in ready:
            item = flying.pop(reference)
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
    return TagloomError(
        f"{type(cause).__name__}: {cause}",
        where=f"{item.stage}, shard {item.shard}",
        remedy=FAULT,
    )


class _Actors:
    """Long-lived workers; each takes several items at a time on one event loop."""

    def __init__(self, count: int) -> None:
        import ray

        class Worker:
            async def run(self, item: Item) -> work.Done:
                return await work.run_async(item)

        remote = ray.remote(num_cpus=1, max_restarts=ATTEMPTS, max_task_retries=ATTEMPTS)(Worker)
        self._workers = [remote.options(max_concurrency=ITEMS_PER_ACTOR).remote() for _ in range(max(1, count))]
        self._next = 0
        self.limit = len(self._workers) * ITEMS_IN_FLIGHT

    def submit(self, item: Item) -> Any:
        """Send an item to the next worker in turn."""
        self._next = (self._next + 1) % len(self._workers)
        return self._workers[self._next].run.remote(item)
