"""Runs work items on Beam. Only references travel through Beam; texts stay on storage."""

from __future__ import annotations

import logging
import os
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Protocol, TypeVar

from pipelines import beam_options
from pipelines.beam_items import Guarded, rebuilt, unpacked
from pipelines.beam_jobs import Job, quieten, told_of_deaths, work
from pipelines.beam_notes import Board, Note, Watch
from pipelines.failures import Failure, unblamed
from pipelines.meter import Cost
from pipelines.progress import Progress
from pipelines.storage import Storage
from pipelines.work import Done
from schemas.errors import FAULT, ConfigError, TagloomError


class Placed(Protocol):
    """A work item: picklable, and it knows its corpus."""

    @property
    def uri(self) -> str:
        """URI of the corpus."""
        ...


T = TypeVar("T", bound=Placed)
POLL_SECONDS = 0.25
LONGEST_PAUSE = 3.0
LOOKING_SHARE = 0.1
"""Part of the time that looking at storage may take, up to the longest pause between looks."""
MEASURED = 32
"""Items that are measured in a look, by turns: progress alone rests on it, and each may be a request."""
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
        rows: Rows that its work counts for.
    """

    stage: str
    place: str
    pieces: int = 1
    shard: int | None = None
    units: tuple[str, ...] = ()
    rows: int = 0


@dataclass(frozen=True)
class Ran:
    """A step that has run.

    Attributes:
        asides: Index of an item -> why it was set aside. What it should have made is not there.
        cost: What the work took that is done, as its items counted it.
        done: Index of an item -> what it made, of those that are done.
    """

    asides: Mapping[int, Failure] = field(default_factory=dict)
    cost: Cost = field(default_factory=Cost)
    done: Mapping[int, Done] = field(default_factory=dict)


def pause_after(seconds: float) -> float:
    """Return the seconds until the next look at storage, after one that took so long."""
    return min(LONGEST_PAUSE, max(POLL_SECONDS, seconds / LOOKING_SHARE))


def about_item(item: Any) -> About:
    """Tell about a `pipelines.stage.Item`."""
    units = tuple(unit.name for unit in item.units)
    place = f"stage '{item.stage}', shard {item.shard}"
    return About(item.stage, place, len(units), item.shard, units, item.rows)


def run_map(
    items: Sequence[T],
    function: Callable[[T], object],
    beam: Mapping[str, Any],
    label: str,
    progress: Progress,
    measure: Callable[[T], int] | None = None,
    about: Callable[[T], About] = about_item,
    kept: bool = False,
    known: Collection[int] = (),
) -> Ran:
    """Apply a function to every item with a Beam pipeline; the function leaves its result on storage.

    What it returns is a `Done` with the parts that it wrote, a number of rows, or nothing.

    An item that fails is tried again in place (`pipelines.failures`), whatever the runner. So is one whose worker
    died, as far as the runner tells.

    Args:
        items: Work items, each worth seconds of work.
        function: A function of a module, which workers import.
        beam: Beam options; ``runner`` names the runner (default FnApiRunner, with a thread a core up to four), the
            rest goes to it as it is.
        label: Name of the step.
        progress: Who is told, of failed tries as well, and of every shard that is done.
        measure: Tells from storage how many pieces of an item at work are done, where it has several.
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
class _Step(Generic[T]):
    """One call of `run_map`."""

    items: Sequence[T]
    function: Callable[[T], object]
    beam: Mapping[str, Any]
    label: str
    progress: Progress
    measure: Callable[[T], int] | None
    about: Sequence[About]
    kept: bool
    known: Collection[int]

    def __post_init__(self) -> None:
        self.seen = [0] * len(self.items)
        self.told = [0] * len(self.items)
        self.turn = 0
        self.notes: dict[int, Note] = {}
        self.done: dict[int, Done] = {}
        self.asides: dict[int, Failure] = {}
        self.blamed: int | None = None
        self.cost = Cost()
        self.elsewhere = not beam_options.in_process(self.beam)

    def run(self) -> Ran:
        """Run all items. Those at work when a worker ended run again, each alone, so that none is blamed for another.

        What is done is told by notes: a file that is there may be half of one.
        """
        chosen, doubtful = self._open(range(len(self.items))), []
        while chosen:
            job = self._round(chosen)
            left = self._open(chosen)
            begun = [n for n in left if n in self.notes and self.notes[n].begun]
            if left and not (begun and (job.error is None or job.failed())):
                raise self._unwrapped(job, left) from job.error
            if len(chosen) > 1:
                for n in begun:
                    self.notes[n] = replace(self.notes[n], begun=False, doubts=self.notes[n].doubts + 1)
                doubtful += begun
            doubtful = self._open(doubtful)
            chosen = doubtful[:1] or self._open(range(len(self.items)))
        return Ran(dict(sorted(self.asides.items())), self.cost, dict(sorted(self.done.items())))

    def _open(self, chosen: Iterable[int]) -> list[int]:
        """Return the items that are neither done nor set aside."""
        return [n for n in chosen if n not in self.done and n not in self.asides]

    def _round(self, chosen: Sequence[int]) -> Job:
        """Run some items as one pipeline.

        Raises:
            ConfigError: Beam does not take the options.
            TagloomError: An item ended the run, or shards are not to blame.
        """
        board = Board(self.items[0].uri, f"{self.label}-{uuid.uuid4().hex}")
        board.open()
        for n in chosen:  # a worker elsewhere goes on counting
            if n in self.notes and self.elsewhere:
                board.hand_on(str(n), self.notes[n])
        pipeline = self._pipeline(board, chosen)
        quieten()
        job, watch = Job(), Watch(board, self.elsewhere)
        thread = threading.Thread(target=work, args=(pipeline, job), daemon=True, name=f"beam-{self.label}")
        with told_of_deaths(job):
            try:
                thread.start()
                self._watch(job, watch, board, chosen)
            except BaseException:
                board.stop(self.elsewhere)
                self._cancel(job)
                raise
        if not job.ended:  # the runner waits for a dead worker; others of it must not go on with this board
            board.stop(self.elsewhere)
        watch.close(job.ended)
        for n, note in sorted(self.notes.items()):
            if note.end == "run":
                raise self._error(n, note)
        if self.blamed is not None:
            raise self._error(self.blamed, self.notes[self.blamed])
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
        spare = all(one.shard is not None for one in self.about)
        guarded = Guarded(self.function, board, spare, alone=len(chosen) == 1)
        numbered = [(n, self.items[n]) for n in chosen]
        spread = pipeline | f"{self.label} items" >> apache_beam.Create(numbered) | apache_beam.Reshuffle()
        _ = spread | self.label >> apache_beam.Map(guarded)
        return pipeline

    # -- while it runs ------------------------------------------------------------------------------------------------

    def _watch(self, job: Job, watch: Watch, board: Board, chosen: Sequence[int]) -> None:
        pause = POLL_SECONDS
        while not job.over.wait(pause):
            started = time.perf_counter()
            self._take(watch.news(), board)
            self._measure(chosen)
            pause = pause_after(time.perf_counter() - started)
        self._take(watch.last(chosen), board)

    def _take(self, news: Mapping[int, Note], board: Board) -> None:
        """Tell what is new: failed tries, items that are done. Where shards are not to blame, the run ends."""
        for n, note in sorted(news.items()):
            self._tell(n, note)
        if self.blamed is None:
            shards = {failure.shard: n for n, failure in sorted(self.asides.items())}
            succeeded = bool(self.done)
            if failed := unblamed(shards, self.known, len(self.items), succeeded=succeeded, kept=self.kept):
                self.blamed = shards[failed[0]]
                board.stop(self.elsewhere)

    def _measure(self, chosen: Sequence[int]) -> None:
        """Tell how far items at work are, some at a time: there may be thousands."""
        if self.measure is None:
            return
        left = self._open(chosen)
        left = [n for n in left if n in self.notes and self.notes[n].begun] or left
        for n in [left[(self.turn + step) % len(left)] for step in range(min(MEASURED, len(left)))]:
            self._advance(n, self.measure(self.items[n]), 0)
        self.turn += MEASURED

    def _advance(self, n: int, pieces: int, rows: int) -> None:
        new, self.seen[n] = pieces - self.seen[n], pieces
        if new or rows:
            self.progress.advance(new, rows)

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
        if note.done is not None and n not in self.done:
            self.done[n] = note.done
            self.cost.add(note.done.cost)
            if one.shard is not None:
                self.progress.finished(one.shard, note.done.cost)
            self._advance(n, one.pieces, one.rows)

    def _cancel(self, job: Job) -> None:
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

    def _unwrapped(self, job: Job, left: Sequence[int]) -> TagloomError:
        place, name = f"step '{self.label}'", beam_options.runner_of(self.beam)
        if job.error is None:
            return TagloomError(
                f"{name} ended the job without {len(left)} of its items, such as {self.about[left[0]].place}",
                where=place,
                remedy="Finished parts stay; run the same command again.",
            )
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
