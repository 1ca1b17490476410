"""Runs one work item: reads its parts, calls the stage, writes what it made. The same on every engine."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from pipelines.stage import Inputs, Item, Output, load_stage
from pipelines.storage import Storage
from pipelines.store import Part, Store

T = TypeVar("T")


@dataclass(frozen=True)
class Done:
    """A finished item: the part of each unit, in order, and the seconds that it took."""

    parts: tuple[Part, ...]
    seconds: float


async def run_async(item: Item) -> Done:
    """Run an item inside an event loop."""
    started = time.perf_counter()
    store = Store(Storage(item.uri), item.shards)
    stage = load_stage(item.stage)
    made = stage.process(Inputs(store, item.parts), item.units)
    outputs: Sequence[Output] = await made if inspect.isawaitable(made) else made
    parts = tuple(
        store.write_part(item.shard, key, output.tables, output.stats)
        for key, output in zip(item.keys, outputs, strict=True)
    )
    return Done(parts, time.perf_counter() - started)


def run(item: Item) -> Done:
    """Run an item."""
    return finish(run_async(item))


def finish(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, also where an event loop is running already (notebooks, agents)."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, coroutine).result()
