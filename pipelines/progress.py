"""What a run tells about itself while it works."""

from __future__ import annotations

from typing import Protocol

from pipelines.failures import Failure
from pipelines.meter import Cost
from pipelines.spent import Spent


class Progress(Protocol):
    """Receives the progress of a run; calls come from one thread."""

    def begin(self, stage: str, total: int, reused: int, unit: str) -> None:
        """A stage begins: `total` pieces to do, `reused` that are there already; `unit` names what is counted."""
        ...

    def advance(self, pieces: int, rows: int) -> None:
        """Some pieces are done."""
        ...

    def measure(self, spent: Spent) -> None:
        """An engine is at work; comes about once a second."""
        ...

    def started(self, shard: int) -> None:
        """Work on a shard begins, in the stage that began last; Beam's runners tell nothing of this."""
        ...

    def finished(self, shard: int, cost: Cost) -> None:
        """Work on a shard is done; comes beside `advance`."""
        ...

    def failed(self, failure: Failure) -> None:
        """An attempt on a shard failed."""
        ...

    def worked(self, cost: Cost) -> None:
        """A whole step cost this, which has no shards (files that are read); comes once, before `end`."""
        ...

    def end(self) -> None:
        """The stage is done."""
        ...


class Silent:
    """Shows nothing."""

    def begin(self, stage: str, total: int, reused: int, unit: str) -> None:
        """Ignore."""

    def advance(self, pieces: int, rows: int) -> None:
        """Ignore."""

    def measure(self, spent: Spent) -> None:
        """Ignore."""

    def started(self, shard: int) -> None:
        """Ignore."""

    def finished(self, shard: int, cost: Cost) -> None:
        """Ignore."""

    def failed(self, failure: Failure) -> None:
        """Ignore."""

    def worked(self, cost: Cost) -> None:
        """Ignore."""

    def end(self) -> None:
        """Ignore."""
