"""What happens to one item in a Beam worker: it is tried, measured, and what goes wrong is noted for the driver.

Runners differ in what they tell of a worker's error and in how often they repeat a bundle. So no function raises into
Beam: it leaves notes (`pipelines.beam_notes`), and a repeated bundle finds them.
"""

from __future__ import annotations

import base64
import json
import logging
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, Generic, TypeVar

from pipelines.attempts import reason, typed
from pipelines.beam_notes import STOP, Board, Note
from pipelines.failures import ATTEMPTS, concerns_the_run, stays_wrong
from pipelines.meter import Cost, metering
from pipelines.store import Part
from pipelines.work import Done, peak_memory
from schemas import errors
from schemas.errors import FAULT, StoreError, TagloomError

T = TypeVar("T")
log = logging.getLogger(__name__)

NAMESPACE = "tagloom"
"""Namespace of the counters, as runners show them."""

_MARK = "tagloom-error:"


@dataclass(frozen=True)
class Guarded(Generic[T]):
    """Tries a function on an item, up to `ATTEMPTS` times in place, and raises nothing.

    Attributes:
        function: A function of a module, which workers import. It returns a `Done`, a number of rows, or nothing.
        board: Where to leave notes.
        spare: True where an item that fails too often is set aside; else it ends the run.
        alone: True where the pipeline has this one item, which then is what its worker ended with.
    """

    function: Callable[[T], object]
    board: Board
    spare: bool
    alone: bool = False

    def __call__(self, numbered: tuple[int, T]) -> None:
        """Work on one item, given with its index."""
        number, item = numbered
        key = str(number)
        try:
            note = self.board.get(key) or Note()
            if note.end or self.board.get(STOP) is not None:
                return  # a repeated bundle, or the end is near
            if note.begun:
                if note.doubts and not self.alone:
                    return  # it was at work too often when a worker ended: the driver runs it alone
                note = replace(note, begun=False, doubts=note.doubts + 1)
                note = _lost(note) if self.alone else note
            note = self._tried(key, item, note)
            self.board.put(key, note)
            if note.end == "run":
                self.board.put(STOP, Note())
        except StoreError as error:  # notes cannot be left: what remains is Beam's own way
            raise RuntimeError(f"{_MARK}{_packed(error)};") from error

    def _tried(self, key: str, item: T, note: Note) -> Note:
        while len(note.tries) < ATTEMPTS:
            if not self.board.here:
                self.board.put(key, replace(note, begun=True))
            spent = _metered()
            try:
                with spent:
                    spent.made = self.function(item)
                return replace(note, end="done", done=spent.done)
            except Exception as error:
                log.log(logging.DEBUG if self.board.here else logging.INFO, "an item failed", exc_info=True)
                # What the system says of a disk or a connection is not about this item.
                told = StoreError(str(error)) if isinstance(error, OSError) else error
                note = _failed(note, type(error).__name__, reason(error), told)
                if concerns_the_run(told) or (not self.spare and stays_wrong(told)):
                    return replace(note, end="run")
        return replace(note, end="aside" if self.spare else "run")


def _failed(note: Note, kind: str, why: str, error: BaseException) -> Note:
    return replace(note, tries=(*note.tries, (kind, why)), error=described(error), cause=error)


def _lost(note: Note) -> Note:
    """Count the tries that ended with a worker as this item's own."""
    why = "the worker ended while at work on it"
    for _ in range(min(note.doubts, ATTEMPTS - len(note.tries))):
        note = replace(_failed(note, "lost", why, TagloomError(why, remedy=FAULT)), cause=None)
    return replace(note, doubts=0)


def described(error: BaseException) -> dict[str, str]:
    """Return what is kept of an error: ``type``, ``message``, ``where``, ``remedy``."""
    told = typed(error, "")
    return {"type": type(told).__name__, "message": told.message, "where": told.where, "remedy": told.remedy}


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
    """Counts what a block costs into Beam's counters; `made` is what it gave, and `done` says both."""

    def __init__(self) -> None:
        self.made: object = None
        self.done = Done((), Cost())
        self._meter = metering()

    def __enter__(self) -> _metered:
        self._cpu = _processor.turn(1)
        self._started = time.perf_counter()
        self._cost = self._meter.__enter__()
        return self

    def __exit__(self, *raised: Any) -> None:
        self._meter.__exit__(*raised)
        cost, rows = self._cost, 0
        parts: tuple[Part, ...] = ()
        if isinstance(self.made, Done):  # it counted for itself, within
            cost.add(self.made.cost)
            parts = self.made.parts
            rows = sum(table.rows for part in parts for table in part.tables.values())
        elif isinstance(self.made, int):
            rows = self.made
        cost.seconds = time.perf_counter() - self._started
        cost.cpu = self._cpu + _processor.turn(-1)
        cost.peak = peak_memory()
        self.done = Done(parts, cost)
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
