"""Runs items that wait for an engine side by side in one event loop of this process."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from pipelines import work
from pipelines.attempts import Attempts
from pipelines.failures import Failure
from pipelines.load import Load
from pipelines.stage import Item

Counts = Mapping[str, Any]
News = tuple[Item, work.Done | Failure | None] | Counts


def run(items: Sequence[Item], at_once: int, seconds: float, attempts: Attempts) -> Iterator[News]:
    """Run items; yields each as it begins (with None), as it ends or fails, and every few seconds what engines did.

    Args:
        items: The work.
        at_once: Cases at work at once.
        seconds: Time between two counts.
        attempts: Decides what becomes of an item that fails.

    Raises:
        BaseException: Whatever an item raised that ends the run; the others are cancelled.
    """
    from pipelines.desk import room

    news: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def land(item: Item, task: asyncio.Task[work.Done]) -> work.Done | Failure:
        ended: work.Done | Failure
        try:
            ended = task.result()
        except Exception as error:
            ended = attempts.failed(item, error)
        else:
            attempts.succeeded()
        news.put((item, ended))
        return ended

    async def main() -> None:
        here, load = room(), Load(at_once)
        waiting = list(reversed(items))
        flying: dict[asyncio.Task[work.Done], Item] = {}
        try:
            while waiting or flying:
                while waiting and load.free([0]) is not None:
                    item = waiting.pop()
                    news.put((item, None))
                    flying[asyncio.ensure_future(work.run_async(item))] = item
                    load.give(0, item)
                ready, _ = await asyncio.wait(flying, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
                counts = here.snapshot()
                try:
                    for task in ready:
                        item = flying.pop(task)
                        load.done(0, item)
                        ended = land(item, task)
                        if isinstance(ended, Failure) and not ended.aside:
                            waiting.append(item)
                finally:
                    news.put(counts)  # after what ended: where that was all, no budget ends the run any more
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
