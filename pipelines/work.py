"""Runs one work item: reads its parts, calls the stage, writes what it made. The same on every engine."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Sequence
from dataclasses import dataclass

from pipelines.stage import Inputs, Item, Output, load_stage
from pipelines.storage import Storage
from pipelines.store import Part, Store


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
    return asyncio.run(run_async(item))
