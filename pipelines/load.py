"""Which worker has room for how much."""

from __future__ import annotations

from collections.abc import Sequence

from pipelines.stage import Item

ITEMS_IN_FLIGHT = 2
"""Items that a worker has at a time: the next one is there when one ends."""
MOST_ITEMS = 64
"""Items at most, where a worker has many at a time: each has a shard in memory."""


class Load:
    """Items and cases that each worker has."""

    def __init__(self, workers: int, at_once: int | None) -> None:
        """Start without any.

        Args:
            workers: How many workers there are.
            at_once: Cases that a worker shall have at work, over several items; None has few items each.
        """
        self._at_once = at_once
        self._items = [0] * workers
        self._cases = [0] * workers

    def free(self, up: Sequence[int]) -> int | None:
        """Return that of some workers which has room for an item, the least busy first."""
        chosen = min(up, key=lambda n: (self._cases[n], self._items[n]), default=None)
        if chosen is None or self._items[chosen] < ITEMS_IN_FLIGHT:
            return chosen
        busy = self._at_once is None or self._cases[chosen] >= self._at_once
        return None if busy or self._items[chosen] >= MOST_ITEMS else chosen

    def change(self, worker: int, item: Item, by: int) -> None:
        """Take note that a worker got an item (by 1) or is done with it (by -1)."""
        self._items[worker] += by
        self._cases[worker] += by * (item.cases if self._at_once is not None else 1)
