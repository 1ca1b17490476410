"""What the work on one item costs: time by phase, and bytes read and written."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields
from typing import TypeVar

A = TypeVar("A")
T = TypeVar("T")


@dataclass
class Cost:
    """Sums over some work.

    Attributes:
        seconds: Wall time.
        cpu: Processor time of the process, in seconds; 0 where several items share it (engines are waited for).
        reading: Seconds of `seconds` spent waiting for storage to read.
        writing: Likewise, to write.
        bytes_read: Bytes that came from storage.
        bytes_written: Bytes that went there.
        retries: Requests to storage that were made again, after faults that pass.
        peak: The most memory that a process at this work has held so far, in bytes; a maximum, never a sum.
    """

    seconds: float = 0.0
    cpu: float = 0.0
    reading: float = 0.0
    writing: float = 0.0
    bytes_read: int = 0
    bytes_written: int = 0
    retries: int = 0
    peak: int = 0

    def add(self, other: Cost) -> None:
        """Add what other work cost."""
        for one in fields(self):
            mine, its = getattr(self, one.name), getattr(other, one.name)
            setattr(self, one.name, max(mine, its) if one.name == "peak" else mine + its)


_current: ContextVar[Cost | None] = ContextVar("tagloom_cost", default=None)


@contextmanager
def metering() -> Iterator[Cost]:
    """Count what storage does within a block, in this thread or task alone; time and processor are the caller's."""
    cost = Cost()
    token = _current.set(cost)
    try:
        yield cost
    finally:
        _current.reset(token)


@contextmanager
def reading() -> Iterator[Cost]:
    """Count a block as reading; the block adds its bytes."""
    yield from _phase("reading")


@contextmanager
def writing() -> Iterator[Cost]:
    """Count a block as writing; the block adds its bytes."""
    yield from _phase("writing")


@contextmanager
def beside() -> Iterator[Callable[[Callable[[A], T]], Callable[[A], T]]]:
    """Count what threads do side by side within a block; it gives what makes a function metered there.

    They wait together: what they waited in all counts as no more than the block took.
    """
    costs: list[Cost] = []

    def metered(act: Callable[[A], T]) -> Callable[[A], T]:
        def run(argument: A) -> T:
            with metering() as cost:
                costs.append(cost)
                return act(argument)

        return run

    started = time.perf_counter()
    try:
        yield metered
    finally:
        total, seconds = Cost(), time.perf_counter() - started
        for cost in costs:
            total.add(cost)
        waited = total.reading + total.writing
        if waited > seconds:
            total.reading, total.writing = (part * seconds / waited for part in (total.reading, total.writing))
        if (current := _current.get()) is not None:
            current.add(total)


def retried() -> None:
    """Count a request that is made again."""
    cost = _current.get()
    if cost is not None:
        cost.retries += 1


def _phase(name: str) -> Iterator[Cost]:
    cost = _current.get() or Cost()
    started = time.perf_counter()
    try:
        yield cost
    finally:
        setattr(cost, name, getattr(cost, name) + time.perf_counter() - started)
