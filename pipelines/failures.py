"""What goes wrong with single shards, and what concerns the whole run.

A shard that fails `ATTEMPTS` times is set aside: the rest of the run goes on without it, its manifests do not name
it, and the next run tries it again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from pipelines.spent import BudgetError
from schemas.errors import (
    InputError,
    MissingDependencyError,
    StoreError,
    TagloomError,
    TooManyRejectsError,
    UsageError,
)
from transforms.engines import EngineError

ATTEMPTS = 3
"""Failures after which a shard is set aside."""

HOPELESS = 3
"""Shards of a stage set aside after which it ends, where not one has succeeded: then the shards are not to blame."""

_OF_THE_RUN = (UsageError, MissingDependencyError, StoreError, BudgetError, EngineError, TooManyRejectsError)


@dataclass(frozen=True)
class Failure:
    """One failed attempt on a shard.

    Attributes:
        stage: Name of the stage.
        units: Units that were to be made.
        shard: The shard.
        attempt: Which attempt it was, from 1.
        kind: ``lost`` (the worker ended), or the type of the error.
        reason: What happened, one line.
        aside: True where the shard is not tried again in this run.
    """

    stage: str
    units: tuple[str, ...]
    shard: int
    attempt: int
    kind: str
    reason: str
    aside: bool


class ShardsAsideError(TagloomError):
    """The run finished without some shards, which failed too often."""

    exit_code = 3


def concerns_the_run(error: BaseException) -> bool:
    """Tell whether every shard would fail alike, so that trying again is of no use."""
    return isinstance(error, _OF_THE_RUN)


def stays_wrong(error: BaseException) -> bool:
    """Tell whether an input is at fault as it stands: its format is not known, say. What the system says may pass."""
    return isinstance(error, InputError) and not isinstance(error.__cause__, OSError)


def unblamed(aside: Iterable[int], known: Collection[int], items: int, *, succeeded: bool, kept: bool) -> list[int]:
    """Return the shards whose errors tell that shards are not to blame, so that the stage must end; mostly none.

    Args:
        aside: Shards of the stage that were set aside, in order.
        known: Shards that were set aside before; that they fail again says nothing about the others.
        items: Shards that the stage has to do.
        succeeded: True where one is done.
        kept: True where others were done before, so that the stage has worked.
    """
    failed = list(aside)
    new = [shard for shard in failed if shard not in known]
    hopeless = len(new) >= HOPELESS or (len(failed) == items and not kept)
    return new if hopeless and not succeeded else []
