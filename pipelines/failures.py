"""What goes wrong with single shards, and what concerns the whole run.

A shard that fails `ATTEMPTS` times is set aside: the rest of the run goes on without it, its manifests do not name
it, and the next run tries it again.
"""

from __future__ import annotations

from dataclasses import dataclass

from pipelines.spent import BudgetError
from schemas.errors import (
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
