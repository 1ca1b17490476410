"""Runs one work item: reads its parts, calls the stage, writes what it made. The same on every engine."""

from __future__ import annotations

import asyncio
import inspect
import resource
import sys
import threading
import time
from collections.abc import Awaitable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from pipelines import logs
from pipelines.meter import Cost, metering
from pipelines.stage import Inputs, Item, Output, load_stage
from pipelines.storage import Storage
from pipelines.store import Part, Store

T = TypeVar("T")


@dataclass(frozen=True)
class Done:
    """A finished item.

    Attributes:
        parts: The part of each unit, in order.
        cost: What it took.
    """

    parts: tuple[Part, ...]
    cost: Cost


def peak_memory() -> int:
    """Return the most memory that this process has held, in bytes."""
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(most if sys.platform == "darwin" else most << 10)


class _Presence:
    """Tells items that wait whether others were at work beside them in this process."""

    def __init__(self) -> None:
        self._now = self._entered = 0

    def enter(self) -> int:
        """Begin an item; returns what `leave` wants to know."""
        self._now += 1
        self._entered += 1
        return self._entered if self._now == 1 else -1

    def leave(self, ticket: int) -> bool:
        """End an item; tells whether it was alone all the time."""
        self._now -= 1
        return ticket == self._entered


_presence = _Presence()


async def run_async(item: Item) -> Done:
    """Run an item inside an event loop."""
    ticket = _presence.enter()
    alone = False
    try:
        done, waits = await _run(item)
    finally:
        alone = _presence.leave(ticket)
    if waits and not alone:
        done.cost.cpu = 0.0
    return done


async def _run(item: Item) -> tuple[Done, bool]:
    """Run an item; tells also whether it let others work meanwhile."""
    started, cpu = time.perf_counter(), time.process_time()
    store = Store(Storage(item.uri), item.shards)
    stage = load_stage(item.stage)
    with logs.about(stage=item.stage, shard=item.shard), metering() as cost:
        made = stage.process(Inputs(store, item.parts), item.units)
        waits = inspect.isawaitable(made)
        outputs: Sequence[Output] = await made if inspect.isawaitable(made) else made
        parts = tuple(
            store.write_part(item.shard, key, output.tables, output.stats)
            for key, output in zip(item.keys, outputs, strict=True)
        )
    cost.seconds = time.perf_counter() - started
    cost.cpu = time.process_time() - cpu
    cost.peak = peak_memory()
    return Done(parts, cost), waits


def run(item: Item) -> Done:
    """Run an item."""
    return finish(run_async(item))


class Loop:
    """An event loop in a thread of its own: what a coroutine opened there, such as an engine, is there for the next."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="tagloom-loop", daemon=True)
        self._thread.start()

    def run(self, awaitable: Awaitable[T]) -> T:
        """Wait for something to be done in the loop."""

        async def wait() -> T:
            return await awaitable

        return asyncio.run_coroutine_threadsafe(wait(), self._loop).result()

    def close(self) -> None:
        """Close the engines that were opened in the loop, and end it."""
        if self._loop.is_closed():
            return
        self.run(_close_room())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        end_loop(self._loop)


def end_loop(loop: asyncio.AbstractEventLoop) -> None:
    """Close a loop that has stopped, and end what still waits in it."""
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    if left:
        loop.run_until_complete(asyncio.wait(left))
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()


async def _close_room() -> None:
    from pipelines.desk import room

    await room().close()


def wait_for(awaitable: Awaitable[T]) -> T:
    """Run something to its end, as `finish` does."""

    async def wait() -> T:
        return await awaitable

    return finish(wait())


def finish(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, also where an event loop is running already (notebooks, agents)."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, coroutine).result()
