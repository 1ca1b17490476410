"""Keeps count of what fails while the items of a stage are at work, and decides what becomes of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from pipelines.failures import ATTEMPTS, Failure, concerns_the_run, unblamed
from pipelines.stage import Item
from schemas.errors import FAULT, StoreError, TagloomError

LONGEST_REASON = 300
"""Letters of a reason that are kept: what libraries raise may hold pages."""


class Attempts:
    """Attempts on the items of one stage."""

    def __init__(self, items: Sequence[Item], *, kept: bool = False, known: Collection[int] = ()) -> None:
        """Start without any.

        Args:
            items: The items; no two are of one shard.
            kept: True where other parts of their units are there already, so that the stage has worked before.
            known: Shards that were set aside before; that they fail again says nothing about the others.
        """
        self._items = len(items)
        self._kept = kept
        self._known = frozenset(known)
        self._failed: Counter[int] = Counter()
        self._aside: dict[int, TagloomError] = {}
        self._succeeded = False

    def succeeded(self) -> None:
        """Take note that an item is done."""
        self._succeeded = True

    def alone(self, item: Item) -> bool:
        """Tell whether an item must have a worker to itself: it may be what ends workers, and the last try tells."""
        return self._failed[item.shard] >= ATTEMPTS - 1

    def failed(self, item: Item, error: BaseException, *, lost: bool = False) -> Failure:
        """Return what became of a failed attempt.

        Args:
            item: What failed.
            error: What was raised.
            lost: True where its worker ended.

        Raises:
            TagloomError: The error concerns the run, or every shard fails.
        """
        told = as_told(error, item)
        if not lost and concerns_the_run(told):
            raise told from error
        self._failed[item.shard] += 1
        count = self._failed[item.shard]
        kind = "lost" if lost else type(error).__name__
        why = one_line(f"the worker was lost: {error}") if lost else reason(error)
        units = tuple(unit.name for unit in item.units)
        failure = Failure(item.stage, units, item.shard, count, kind, why, count >= ATTEMPTS)
        if failure.aside:
            self._aside[item.shard] = _lost(item, error) if lost else told
            self._check(item, error)
        return failure

    def _check(self, item: Item, error: BaseException) -> None:
        """End the run where shards are not to blame, or where there is but one for all of them."""
        blamed = unblamed(self._aside, self._known, self._items, succeeded=self._succeeded, kept=self._kept)
        if item.units[0].whole or blamed:
            raise self._aside[blamed[0] if blamed else item.shard] from error


def as_told(error: BaseException, item: Item) -> TagloomError:
    """Return what a user is told about something that an item raised."""
    return typed(error, f"{item.stage}, shard {item.shard}")


def typed(error: BaseException, where: str) -> TagloomError:
    """Return an error as one of ours, which says that it fell on `where` unless it says itself."""
    if isinstance(error, TagloomError):
        return error
    if isinstance(error, OSError):
        return StoreError(str(error), where=where)
    return TagloomError(reason(error), where=where, remedy=FAULT)


def one_line(text: str) -> str:
    """Return a text in one line that is not too long."""
    flat = " ".join(text.split())
    return flat if len(flat) <= LONGEST_REASON else flat[: LONGEST_REASON - 4] + " ..."


def reason(error: BaseException) -> str:
    """Return an error in one line."""
    if isinstance(error, TagloomError):
        return one_line(f"{error.where}: {error.message}" if error.where else error.message)
    return one_line(f"{type(error).__name__}: {error}")


def _lost(item: Item, error: BaseException) -> TagloomError:
    return TagloomError(
        one_line(f"a worker was lost {ATTEMPTS} times: {error}"),
        where=f"{item.stage}, shard {item.shard}",
        remedy="Finished parts stay. Check memory and disk, then run the same command again.",
    )
