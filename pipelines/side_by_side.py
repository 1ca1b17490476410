"""Runs items that wait for an engine side by side in one event loop of this process."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from pipelines import work
from pipelines.load import Load
from pipelines.stage import Item


def run(items: Sequence[Item], at_once: int, seconds: float) -> Iterator[tuple[Item, work.Done] | Mapping[str, Any]]:
    """Run items; yields each as it ends, and what the engines did so far every few seconds.

    Args:
        items: The work.
        at_once: Cases at work at once.
        seconds: Time between two counts.

    Raises:
        BaseException: Whatever an item raised; the others are cancelled.
    """
    from pipelines.desk import room

    news: queue.SimpleQueue[Any] = queue.SimpleQueue()

    async def main() -> None:
        here, load = room(), Load(1, at_once)
        waiting = list(reversed(items))
        flying: dict[asyncio.Task[work.Done], Item] = {}
        try:
            while waiting or flying:
                while waiting and load.free([0]) is not None:
                    item = waiting.pop()
                    flying[asyncio.ensure_future(work.run_async(item))] = item
                    load.change(0, item, 1)
                ready, _ = await asyncio.wait(flying, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
                news.put(here.snapshot())
                for task in ready:
                    item = flying.pop(task)
                    load.change(0, item, -1)
                    news.put((item, task.result()))
        finally:
            for task in flying:
                task.cancel()
            await asyncio.gather(*flying, return_exceptions=True)
            await here.close()

    loop = asyncio.new_event_loop()
    running = loop.create_task(main())

    def live() -> None:
        try:
            loop.run_until_complete(running)
            news.put(None)
        except BaseException as error:
            news.put(error)
        finally:
            work.end_loop(loop)

    thread = threading.Thread(target=live, name="tagloom-extract", daemon=True)
    thread.start()
    try:
        while (one := news.get()) is not None:
            if isinstance(one, BaseException):
                raise one
            yield one
    finally:
        with suppress(RuntimeError):  # the loop is closed where all went well
            loop.call_soon_threadsafe(running.cancel)
        thread.join()
