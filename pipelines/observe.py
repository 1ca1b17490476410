"""What watches a run: its record, metrics and traces on request, and the ids in its log records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

from pipelines import logs, prometheus, record, traces
from pipelines.execute import code_version
from pipelines.failures import Failure
from pipelines.meter import Cost
from pipelines.progress import Progress, Silent
from pipelines.record import Outcome
from pipelines.spent import Spent
from pipelines.storage import Storage
from pipelines.tally import Tally
from schemas.config import ComputeConfig, RunConfig
from schemas.errors import TagloomError


class Watch:
    """Hands the progress of a run to all who watch it."""

    def __init__(self, watchers: Sequence[Progress], outcome: Outcome) -> None:
        """Remember who watches, and what the run's record says about its end."""
        self._watchers = tuple(watchers)
        self._outcome = outcome

    def begin(self, stage: str, total: int, reused: int, unit: str) -> None:
        """Tell all."""
        logs.mark(stage=stage)
        for one in self._watchers:
            one.begin(stage, total, reused, unit)

    def advance(self, pieces: int, rows: int) -> None:
        """Tell all."""
        for one in self._watchers:
            one.advance(pieces, rows)

    def measure(self, spent: Spent) -> None:
        """Tell all."""
        for one in self._watchers:
            one.measure(spent)

    def started(self, shard: int) -> None:
        """Tell all."""
        for one in self._watchers:
            one.started(shard)

    def finished(self, shard: int, cost: Cost) -> None:
        """Tell all."""
        for one in self._watchers:
            one.finished(shard, cost)

    def failed(self, failure: Failure) -> None:
        """Tell all."""
        with logs.about(shard=failure.shard):
            for one in self._watchers:
                one.failed(failure)

    def worked(self, cost: Cost) -> None:
        """Tell all."""
        for one in self._watchers:
            one.worked(cost)

    def end(self) -> None:
        """Tell all."""
        for one in self._watchers:
            one.end()
        logs.mark(stage=None)

    def conclude(
        self, parts: Mapping[str, int], made: Mapping[str, int], complaint: TagloomError | None = None
    ) -> None:
        """Keep what the run made.

        Args:
            parts: Unit -> its parts in all.
            made: Unit -> those that this run made.
            complaint: What the command will end with although all is written.
        """
        self._outcome.units = {unit: {"parts": count, "made": made.get(unit, 0)} for unit, count in parts.items()}
        self._outcome.complaint = complaint


def check(compute: ComputeConfig) -> None:
    """Find settings that are wrong before anything is done.

    Raises:
        ConfigError: An address is not valid.
        MissingDependencyError: Traces are wanted, and their library is not installed.
    """
    if compute.metrics is not None:
        prometheus.place(compute.metrics)
    if compute.traces is not None:
        traces.check(compute.traces)


@contextmanager
def observing(storage: Storage, config: RunConfig, progress: Progress | None, what: str = "run") -> Iterator[Watch]:
    """Watch a run for the length of a block; the caller holds the lock.

    Args:
        storage: The corpus, which exists.
        config: Tells the generation, and what is to be served where.
        progress: Who else is told.
        what: The command at work.

    Raises:
        ConfigError: The address of the metrics is not valid, or something else listens there.
        MissingDependencyError: Traces are wanted, and their library is not installed.
    """
    who = record.described(record.new_run_id(), config.name, what, code_version())
    tally = Tally()
    with ExitStack() as stack:
        stack.enter_context(logs.about(whole_process=True, run=who["run"], generation=config.name))
        stack.enter_context(prometheus.serving(config.compute.metrics, tally, who))
        traced = stack.enter_context(traces.tracing(config.compute.traces, who))
        outcome = stack.enter_context(record.recording(storage, who, tally))
        yield Watch([tally, *traced, progress or Silent()], outcome)
