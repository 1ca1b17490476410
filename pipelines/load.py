"""Which worker has room for how much."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from pipelines.stage import Item

ITEMS_IN_FLIGHT = 2
"""Items that a worker has at a time: the next one is there when one ends."""
MOST_ITEMS = 64
"""Items at most, where a worker has many at a time: each has a shard in memory."""


class Load:
    """Items and cases that each worker has."""

    def __init__(self, at_once: int | None) -> None:
        """Start without any.

        Args:
            at_once: Cases that a worker shall have at work, over several items; None has few items each.
        """
        self._at_once = at_once
        self._items: Counter[int] = Counter()
        self._cases: Counter[int] = Counter()
        self._alone: set[int] = set()

    def free(
        self, up: Sequence[int], *, alone: bool = False, but: Collection[int] = (), most: int = MOST_ITEMS
    ) -> int | None:
        """Return that of some workers which has room for an item, the least busy first.

        Args:
            up: The workers.
            alone: Take none that has anything to do.
            but: Workers to leave out, unless there are no others.
            most: Take none that has so many items.
        """
        others = [n for n in [n for n in up if n not in but] or up if self._items[n] < most]
        chosen = min(others, key=lambda n: (n in self._alone, self._cases[n], self._items[n]), default=None)
        if chosen is None or chosen in self._alone or (alone and self._items[chosen]):
            return None
        if self._items[chosen] < ITEMS_IN_FLIGHT:
            return chosen
        busy = self._at_once is None or self._cases[chosen] >= self._at_once
        return None if busy or self._items[chosen] >= MOST_ITEMS else chosen

    def busy(self) -> set[int]:
        """Return the workers that have anything to do."""
        return {worker for worker, items in self._items.items() if items}

    def give(self, worker: int, item: Item, *, alone: bool = False) -> None:
        """Take note that a worker got an item; alone, it gets no other until that is done."""
        self._change(worker, item, 1)
        if alone:
            self._alone.add(worker)

    def done(self, worker: int, item: Item) -> None:
        """Take note that a worker is done with an item."""
        self._change(worker, item, -1)
        self._alone.discard(worker)

    def _change(self, worker: int, item: Item, by: int) -> None:
        self._items[worker] += by
        self._cases[worker] += by * (item.cases if self._at_once is not None else 1)
