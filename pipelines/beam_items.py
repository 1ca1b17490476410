"""What happens to one item in a Beam worker: it is tried, measured, and what goes wrong is noted for the driver.

Runners differ in what they tell of a worker's error and in how often they repeat a bundle. So no function raises into
Beam: notes go through storage, the same on every runner, and a repeated bundle finds them.
"""

from __future__ import annotations

import base64
import json
import logging
import re
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Generic, TypeVar

from pipelines.attempts import one_line
from pipelines.failures import ATTEMPTS, concerns_the_run
from pipelines.meter import Cost, metering
from pipelines.storage import Storage
from pipelines.work import Done, peak_memory
from schemas import errors
from schemas.errors import FAULT, StoreError, TagloomError

T = TypeVar("T")
log = logging.getLogger(__name__)

FOLDER = "runs/aside"
"""Folder of a corpus where notes lie while a pipeline runs."""

STOP = "stop"
"""Name of the note that tells workers to leave what they have not begun."""

NAMESPACE = "tagloom"
"""Namespace of the counters, as runners show them."""

_MARK = "tagloom-error:"


@dataclass(frozen=True)
class Note:
    """What is known of an item that failed.

    Attributes:
        tries: (kind, reason) of every failed try, in order; see `pipelines.failures.Failure`.
        begun: True while a try is under way.
        end: ``aside``, ``run`` (it ends the run), ``done``, or nothing yet.
        error: The last error: ``type``, ``message``, ``where``, ``remedy``.
        cause: The last error itself, where the worker is the driver's own process.
    """

    tries: tuple[tuple[str, str], ...] = ()
    begun: bool = False
    end: str = ""
    error: dict[str, str] = field(default_factory=dict)
    cause: BaseException | None = field(default=None, compare=False)


_here: dict[str, dict[str, Note]] = {}
"""Notes of workers in the driver's process, by board."""


@dataclass(frozen=True)
class Board:
    """Where workers leave notes: in memory if they share the driver's process, else on storage.

    Attributes:
        uri: The corpus.
        name: Distinct for every pipeline.
    """

    uri: str
    name: str

    @property
    def here(self) -> bool:
        """True in the driver's own process."""
        return self.name in _here

    def open(self) -> None:
        """Make this the driver's process."""
        _here[self.name] = {}

    def put(self, key: str, note: Note) -> None:
        """Leave a note.

        Raises:
            StoreError: It cannot be written.
        """
        if self.here:
            _here[self.name][key] = note
        else:
            self._write(key, note)

    def hand_on(self, key: str, note: Note) -> None:
        """Leave a note for workers elsewhere. Called by the driver."""
        self._write(key, note)

    def stop(self, elsewhere: bool) -> None:
        """Tell workers to begin nothing more. Called by the driver; workers may outlive it, so the note stays."""
        _here[self.name][STOP] = Note()
        if elsewhere:
            self._write(STOP, Note())

    def get(self, key: str) -> Note | None:
        """Return a note, or None where there is none."""
        if self.here:
            return _here[self.name].get(key)
        storage = Storage(self.uri)
        return _read(storage, self._path(key)) if storage.exists(self._path(key)) else None

    def drop(self, key: str) -> None:
        """Take a note away."""
        if self.here:
            _here[self.name].pop(key, None)
        else:
            Storage(self.uri).remove(self._path(key))

    def notes(self, elsewhere: bool) -> dict[int, Note]:
        """Return index of an item -> its note. Called by the driver.

        Args:
            elsewhere: Look on storage as well.
        """
        found = {int(key): note for key, note in _here[self.name].copy().items() if key != STOP}
        if elsewhere:
            storage, start = Storage(self.uri), self._path("")
            for path, _ in storage.walk(FOLDER):
                key = path.removeprefix(start).removesuffix(".json")
                if path.startswith(start) and key.isdigit() and (note := _read(storage, path)) is not None:
                    found[int(key)] = note
        return found

    def close(self, elsewhere: bool) -> None:
        """Take all notes away. Called by the driver, when no worker is left."""
        if elsewhere:
            storage, start = Storage(self.uri), self._path("")
            for path in [path for path, _ in storage.walk(FOLDER) if path.startswith(start)]:
                storage.remove(path)
        _here.pop(self.name, None)

    def _path(self, key: str) -> str:
        return f"{FOLDER}/{self.name}-{key}" + (".json" if key else "")

    def _write(self, key: str, note: Note) -> None:
        Storage(self.uri).write_json(self._path(key), asdict(replace(note, cause=None)))


def _read(storage: Storage, path: str) -> Note | None:
    try:
        raw = storage.read_json(path)
    except StoreError:  # taken away by its worker in between
        return None
    return Note(**{**raw, "tries": tuple((kind, reason) for kind, reason in raw["tries"])})


@dataclass(frozen=True)
class Guarded(Generic[T]):
    """Tries a function on an item, up to `ATTEMPTS` times in place, and raises nothing.

    Attributes:
        function: A function of a module, which workers import. It returns a `Done`, a number of rows, or nothing.
        board: Where to leave notes.
        spare: True where an item that fails too often is set aside; else it ends the run.
    """

    function: Callable[[T], object]
    board: Board
    spare: bool

    def __call__(self, numbered: tuple[int, T]) -> None:
        """Work on one item, given with its index."""
        number, item = numbered
        key = str(number)
        try:
            note = self.board.get(key) or Note()
            if note.end or self.board.get(STOP) is not None:
                return  # a repeated bundle, or the end is near
            if note.begun:
                note = _failed(note, "lost", "the worker ended while at work on it", None)
            note = self._tried(key, item, note)
            if note.end == "done" and not note.tries:
                self.board.drop(key)
            else:
                self.board.put(key, note)
            if note.end == "run":
                self.board.put(STOP, Note())
        except StoreError as error:  # notes cannot be left: what remains is Beam's own way
            raise RuntimeError(f"{_MARK}{_packed(error)};") from error

    def _tried(self, key: str, item: T, note: Note) -> Note:
        while len(note.tries) < ATTEMPTS:
            if not self.board.here:
                self.board.put(key, replace(note, begun=True))
            try:
                with _metered() as spent:
                    spent.made = self.function(item)
                return replace(note, begun=False, end="done")
            except Exception as error:
                log.log(logging.DEBUG if self.board.here else logging.INFO, "an item failed", exc_info=True)
                # What the system says of a disk or a connection is not about this item.
                told = StoreError(str(error)) if isinstance(error, OSError) else error
                note = _failed(note, type(error).__name__, _line(error), told)
                if concerns_the_run(told):
                    return replace(note, end="run")
        return replace(note, begun=False, end="aside" if self.spare else "run")


def _failed(note: Note, kind: str, reason: str, error: BaseException | None) -> Note:
    told = described(error) if error else {"type": "TagloomError", "message": reason, "where": "", "remedy": FAULT}
    return Note((*note.tries, (kind, reason)), error=told, cause=error)


def described(error: BaseException) -> dict[str, str]:
    """Return what is kept of an error: ``type``, ``message``, ``where``, ``remedy``."""
    known = error if isinstance(error, TagloomError) else None
    return {
        "type": type(error).__name__,
        "message": known.message if known else _line(error),
        "where": known.where if known else "",
        "remedy": known.remedy if known else FAULT,
    }


def rebuilt(told: dict[str, str], place: str) -> TagloomError:
    """Return the error that was described.

    Args:
        told: See `described`.
        place: What it fell on, should it not say itself.
    """
    kind = getattr(errors, told["type"], None)
    made = kind if isinstance(kind, type) and issubclass(kind, TagloomError) else TagloomError
    return made(told["message"], where=told["where"] or place, remedy=told["remedy"])


def unpacked(text: str) -> dict[str, str] | None:
    """Find an error that a worker could only raise in what a runner says."""
    found = re.search(f"{_MARK}([A-Za-z0-9+/=]+);", text)
    told: dict[str, str] | None = json.loads(base64.b64decode(found[1])) if found else None
    return told


def _packed(error: BaseException) -> str:
    return base64.b64encode(json.dumps(described(error)).encode()).decode()


def _line(error: BaseException) -> str:
    """Return an error in one line."""
    if isinstance(error, TagloomError):
        return one_line(f"{error.where}: {error.message}" if error.where else error.message)
    return one_line(f"{type(error).__name__}: {error}")


# -- cost -------------------------------------------------------------------------------------------------------------


class _Processor:
    """Processor time of this process while items are at work in it, each second of it given to one of them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._busy = 0
        self._last = 0.0

    def turn(self, step: int) -> float:
        """Note that an item begins (1) or ends (-1); return the seconds since the last time, if any was at work."""
        with self._lock:
            now = time.process_time()
            since = now - self._last if self._busy else 0.0
            self._busy += step
            self._last = now
            return since


_processor = _Processor()


class _metered:  # noqa: N801  (a context manager)
    """Counts what a block costs into Beam's counters; `made` is what it gave."""

    def __init__(self) -> None:
        self.made: object = None
        self._meter = metering()

    def __enter__(self) -> _metered:
        self._cpu = _processor.turn(1)
        self._started = time.perf_counter()
        self._cost = self._meter.__enter__()
        return self

    def __exit__(self, *raised: Any) -> None:
        self._meter.__exit__(*raised)
        cost, rows = self._cost, 0
        if isinstance(self.made, Done):  # it counted for itself, within
            cost.add(self.made.cost)
            rows = sum(table.rows for part in self.made.parts for table in part.tables.values())
        elif isinstance(self.made, int):
            rows = self.made
        cost.seconds = time.perf_counter() - self._started
        cost.cpu = self._cpu + _processor.turn(-1)
        cost.peak = peak_memory()
        _count(cost, rows)


_SECONDS = tuple(one.name for one in fields(Cost) if one.type == "float")
_COUNTS = tuple(one.name for one in fields(Cost) if one.type == "int" and one.name != "peak")


def _count(cost: Cost, rows: int) -> None:
    from apache_beam.metrics import Metrics

    for name in _SECONDS:
        Metrics.counter(NAMESPACE, f"{name}_ms").inc(round(getattr(cost, name) * 1000))
    for name in _COUNTS:
        Metrics.counter(NAMESPACE, name).inc(getattr(cost, name))
    Metrics.counter(NAMESPACE, "rows").inc(rows)
    Metrics.distribution(NAMESPACE, "item_ms").update(round(cost.seconds * 1000))
    Metrics.distribution(NAMESPACE, "peak").update(cost.peak)


def cost_of(result: Any) -> Cost:
    """Return what the counters of a finished pipeline add up to; zeros where its runner does not tell them."""
    from apache_beam.metrics.metric import MetricsFilter

    cost = Cost()
    try:
        found = result.metrics().query(MetricsFilter().with_namespace(NAMESPACE))
    except Exception:  # a runner without metrics is no reason to fail after the work is done
        log.debug("the runner tells no counters", exc_info=True)
        return cost
    counted = {one.key.metric.name: one.result or 0 for one in found["counters"]}
    for name in _SECONDS:
        setattr(cost, name, counted.get(f"{name}_ms", 0) / 1000)
    for name in _COUNTS:
        setattr(cost, name, counted.get(name, 0))
    peaks = [one.result.max for one in found["distributions"] if one.key.metric.name == "peak" and one.result]
    cost.peak = max(peaks, default=0)
    return cost
