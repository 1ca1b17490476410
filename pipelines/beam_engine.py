"""Runs work items on Beam. Only references travel through Beam; texts stay on storage."""

from __future__ import annotations

import logging
import os
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from pipelines import beam_options
from pipelines.beam_items import Board, Guarded, Note, cost_of, rebuilt, unpacked
from pipelines.failures import HOPELESS, Failure
from pipelines.meter import Cost
from pipelines.progress import Progress
from pipelines.storage import Storage
from schemas.errors import FAULT, ConfigError, TagloomError


class Placed(Protocol):
    """A work item: picklable, and it knows its corpus."""

    @property
    def uri(self) -> str:
        """URI of the corpus."""
        ...


T = TypeVar("T", bound=Placed)
POLL_SECONDS = 0.25
LOOKING_SHARE = 0.1
"""Part of the time that looking at storage may take."""
CANCEL_SECONDS = 10.0
"""Seconds that a runner has to take a job back."""


@dataclass(frozen=True)
class About:
    """What an item is, for those who are told of it.

    Attributes:
        stage: Name of the stage.
        place: What an error names where it does not say itself what it fell on.
        pieces: Pieces that its work counts for.
        shard: Its shard; none: it cannot be set aside, and the run ends where it fails too often.
        units: Units that it makes.
    """

    stage: str
    place: str
    pieces: int = 1
    shard: int | None = None
    units: tuple[str, ...] = ()


@dataclass(frozen=True)
class Ran:
    """A step that has run.

    Attributes:
        asides: Index of an item -> why it was set aside. What it should have made is not there.
        cost: What the work took, by the counters of the runner.
    """

    asides: Mapping[int, Failure] = field(default_factory=dict)
    cost: Cost = field(default_factory=Cost)


def about_item(item: Any) -> About:
    """Tell about a `pipelines.stage.Item`."""
    units = tuple(unit.name for unit in item.units)
    return About(item.stage, f"stage '{item.stage}', shard {item.shard}", len(units), item.shard, units)


def run_map(
    items: Sequence[T],
    function: Callable[[T], object],
    beam: Mapping[str, Any],
    label: str,
    progress: Progress,
    measure: Callable[[T], tuple[int, int]],
    about: Callable[[T], About] = about_item,
    kept: bool = False,
    known: Collection[int] = (),
) -> Ran:
    """Apply a function to every item with a Beam pipeline; the function leaves its result on storage.

    An item that fails is tried again in place (`pipelines.failures`), whatever the runner. So is one whose worker
    died, as far as the runner tells.

    Args:
        items: Work items, each worth seconds of work.
        function: A function of a module, which workers import.
        beam: Beam options; ``runner`` names the runner (default FnApiRunner, with a thread a core up to four), the
            rest goes to it as it is.
        label: Name of the step.
        progress: Who is told, of failed tries as well.
        measure: Tells from storage how many pieces and rows of an item are done. Runners tell nothing about single
            elements, storage does, on any of them.
        about: Tells what an item is.
        kept: True where other items were done before, so that the step has worked.
        known: Shards that were set aside before; that they fail again says nothing about the others.

    Raises:
        ConfigError: Beam does not know the runner or an option.
        TagloomError: The pipeline failed, an item that cannot be set aside did, or shards are not to blame
            (`pipelines.attempts`).
    """
    if not items:
        return Ran()
    os.environ.setdefault("PYTHONSAFEPATH", "1")
    storage = Storage(items[0].uri)
    beam_options.check(beam, storage.uri if storage.private else None)
    return _Step(items, function, beam, label, progress, measure, [about(item) for item in items], kept, known).run()


@dataclass
class _Job:
    """A pipeline at work in a thread of its own.

    Attributes:
        result: What the runner gave for it.
        error: What it ended with.
        died: True where a worker process on this machine died, which its runner would wait for without end.
    """

    result: Any = None
    error: BaseException | None = None
    died: bool = False

    def failed(self) -> bool:
        """Tell whether the runner itself says that the job failed, as it does when workers die."""
        try:
            return self.died or (self.result is not None and self.result.state == "FAILED")
        except Exception:  # the server is gone
            return False


@dataclass
class _Step(Generic[T]):
    """One call of `run_map`."""

    items: Sequence[T]
    function: Callable[[T], object]
    beam: Mapping[str, Any]
    label: str
    progress: Progress
    measure: Callable[[T], tuple[int, int]]
    about: Sequence[About]
    kept: bool
    known: Collection[int]

    def __post_init__(self) -> None:
        self.seen = [(0, 0)] * len(self.items)
        self.told = [0] * len(self.items)
        self.notes: dict[int, Note] = {}
        self.asides: dict[int, Failure] = {}
        self.blamed: int | None = None
        self.cost = Cost()
        self.elsewhere = not beam_options.in_process(self.beam)

    def run(self) -> Ran:
        """Run all items; those at work when workers died again, each alone, so that none is blamed for another."""
        job = self._round(range(len(self.items)))
        while job.error is not None:
            suspects = [n for n, note in self.notes.items() if note.begun and not note.end]
            if not suspects or not job.failed():
                raise self._unwrapped(job) from job.error
            for n in suspects:
                while n in self.notes and not self.notes[n].end:
                    alone = self._round([n])
                    if alone.error is not None and not (alone.failed() and self.notes[n].begun):
                        raise self._unwrapped(alone) from alone.error
            left = [n for n, one in enumerate(self.about) if self.seen[n][0] < one.pieces and n not in self.asides]
            if not left:
                break
            job = self._round(left)
        if self.blamed is not None:
            raise self._error(self.blamed, self.notes[self.blamed])
        return Ran(dict(sorted(self.asides.items())), self.cost)

    def _round(self, chosen: Sequence[int]) -> _Job:
        """Run some items as one pipeline.

        Raises:
            ConfigError: Beam does not take the options.
            TagloomError: An item ended the run.
        """
        board = Board(self.items[0].uri, f"{self.label}-{uuid.uuid4().hex}")
        board.open()
        for n in chosen:  # a worker elsewhere goes on counting
            if n in self.notes and self.elsewhere:
                board.hand_on(str(n), self.notes[n])
        pipeline = self._pipeline(board, chosen)
        _quieten()
        job = _Job()
        thread = threading.Thread(target=_work, args=(pipeline, job), daemon=True, name=f"beam-{self.label}")
        with _told_of_deaths(job):
            try:
                thread.start()
                self._watch(thread, job, board)
            except BaseException:
                board.stop(self.elsewhere)
                self._cancel(job)
                raise
        if thread.is_alive():  # the runner waits for a dead worker; others of it must not go on with this board
            board.stop(self.elsewhere)
        else:
            board.close(self.elsewhere)
        for n, note in sorted(self.notes.items()):
            if note.end == "run":
                raise self._error(n, note)
        if job.error is None:
            self.cost.add(cost_of(job.result))
        return job

    def _pipeline(self, board: Board, chosen: Sequence[int]) -> Any:
        import apache_beam
        from apache_beam.options.pipeline_options import PipelineOptions

        name = beam_options.runner_of(self.beam)
        flags = beam_options.flags(self.beam, os.cpu_count() or 1)
        try:
            options = PipelineOptions(flags)
            pipeline = apache_beam.Pipeline(runner=beam_options.runner(name, options), options=options)
        except (ValueError, SystemExit, ImportError, RuntimeError) as error:
            raise ConfigError(
                f"Beam does not take this runner or option: {error}",
                where=f"beam: runner={name}, options {', '.join(sorted(set(self.beam) - {'runner'})) or 'none'}",
                remedy="See docs/runners.md.",
            ) from error
        guarded = Guarded(self.function, board, all(one.shard is not None for one in self.about))
        numbered = [(n, self.items[n]) for n in chosen]
        spread = pipeline | f"{self.label} items" >> apache_beam.Create(numbered) | apache_beam.Reshuffle()
        _ = spread | self.label >> apache_beam.Map(guarded)
        return pipeline

    # -- while it runs ------------------------------------------------------------------------------------------------

    def _watch(self, thread: threading.Thread, job: _Job, board: Board) -> None:
        pause, alive = POLL_SECONDS, True
        while alive:
            thread.join(pause)
            alive = thread.is_alive() and not job.died
            started = time.perf_counter()
            self._look(board)
            pause = max(POLL_SECONDS, (time.perf_counter() - started) / LOOKING_SHARE)

    def _look(self, board: Board) -> None:
        """Tell what is new: failed tries, pieces that are done."""
        for n, note in sorted(board.notes(self.elsewhere).items()):
            self._tell(n, note)
        pieces = rows = 0
        for n, item in enumerate(self.items):
            if self.seen[n][0] < self.about[n].pieces:
                old, self.seen[n] = self.seen[n], self.measure(item)
                pieces += self.seen[n][0] - old[0]
                rows += self.seen[n][1] - old[1]
        if pieces or rows:
            self.progress.advance(pieces, rows)
        if self.blamed is None and not any(done for done, _ in self.seen):
            new = [n for n, failure in self.asides.items() if failure.shard not in self.known]
            if new and (len(new) >= HOPELESS or (len(self.asides) == len(self.items) and not self.kept)):
                self.blamed = min(new)  # not the shards: the run ends
                board.stop(self.elsewhere)

    def _tell(self, n: int, note: Note) -> None:
        self.notes[n] = note
        one = self.about[n]
        for number in range(self.told[n], len(note.tries)):
            kind, reason = note.tries[number]
            last = note.end == "aside" and number + 1 == len(note.tries)
            if one.shard is None:
                continue
            failure = Failure(one.stage, one.units, one.shard, number + 1, kind, reason, last)
            self.progress.failed(failure)
            if last:
                self.asides[n] = failure
        self.told[n] = len(note.tries)

    def _cancel(self, job: _Job) -> None:
        """Take a submitted job back, within reason; a runner in this process ends with it."""
        if job.result is None or beam_options.runner_of(self.beam) in beam_options.LOCAL_RUNNERS:
            return

        def cancel() -> None:
            try:
                job.result.cancel()
            except Exception:  # the run ends anyway
                logging.getLogger(__name__).debug("the job could not be cancelled", exc_info=True)

        thread = threading.Thread(target=cancel, daemon=True, name="beam-cancel")
        thread.start()
        thread.join(CANCEL_SECONDS)

    # -- errors -------------------------------------------------------------------------------------------------------

    def _error(self, n: int, note: Note) -> BaseException:
        if isinstance(note.cause, TagloomError):
            return note.cause
        error = rebuilt(note.error, self.about[n].place)
        error.__cause__ = note.cause
        return error

    def _unwrapped(self, job: _Job) -> TagloomError:
        place = f"step '{self.label}'"
        seen: BaseException | None = job.error
        while seen is not None:
            if isinstance(seen, TagloomError):
                return seen
            if told := unpacked(str(seen)):
                return rebuilt(told, place)
            seen = seen.__cause__ or seen.__context__
        text = str(job.error).strip()
        if "Traceback" in text:  # of a worker process: its last line says what was raised
            text = text.splitlines()[-1]
        text = f"{type(job.error).__name__}: {' '.join(text.split())}"
        name = beam_options.runner_of(self.beam)
        if name in beam_options.LOCAL_RUNNERS:
            return TagloomError(text, where=place, remedy=FAULT)
        if job.result is None:
            return TagloomError(
                f"{name} did not take the job: {text}",
                where=place,
                remedy="Mend its settings or its server (docs/runners.md) and run the same command again.",
            )
        busy = [self.about[n].place for n, note in sorted(self.notes.items()) if note.begun and not note.end]
        return TagloomError(
            f"{name} gave the job up: {text}" + (f"; at work then: {', '.join(busy[:5])}" if busy else ""),
            where=place,
            remedy="The runner's own log says why. Finished parts stay; run the same command again.",
        )


def _work(pipeline: Any, job: _Job) -> None:
    try:
        job.result = pipeline.run()
        job.result.wait_until_finish()
    except BaseException as error:
        job.error = error


_CONNECTIONS = ("beam_control_read", "read_grpc_client_inputs")
"""Threads of Beam that end with an error when the other side is gone, which is told elsewhere."""


@contextmanager
def _told_of_deaths(job: _Job) -> Iterator[None]:
    """Learn of worker processes of this machine that die: Beam tells it in a thread that nobody listens to."""
    before = threading.excepthook

    def hook(raised: threading.ExceptHookArgs) -> None:
        if "Worker subprocess exited" in str(raised.exc_value):
            job.error = job.error or raised.exc_value
            job.died = True
        elif raised.thread is None or not raised.thread.name.startswith(_CONNECTIONS):
            before(raised)

    threading.excepthook = hook
    try:
        yield
    finally:
        threading.excepthook = before


def _quieten() -> None:
    """Keep Beam from printing what its workers raise, which arrives here as an error; unless somebody asked for it."""
    for name in ("apache_beam", "apache_beam.runners"):
        logger = logging.getLogger(name)
        if logger.level == logging.NOTSET:
            logger.setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_not_of_a_job)  # a second time does nothing


def _not_of_a_job(record: logging.LogRecord) -> bool:
    """Tell whether a record is not what a job server says, which Beam hands to the root logger, tracebacks and all."""
    return record.module != "portable_runner" or logging.getLogger().isEnabledFor(logging.INFO)
