"""Ray workers that are replaced when they are lost."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from pipelines import work
from pipelines.stage import Item, Needs

PATIENT_SECONDS = 60.0
"""Seconds after which a log line tells that nobody works."""
METER_SECONDS = 0.5

_log = logging.getLogger(__name__)


class Worker:
    """A long-lived worker: a Ray actor."""

    async def ready(self, modules: Sequence[str] = ()) -> None:
        """Load what the stages need, while there is nothing to do yet."""
        import importlib

        for name in modules:
            importlib.import_module(name)

    async def run(self, item: Item) -> work.Done:
        """Run one item."""
        return await work.run_async(item)

    async def meter(self) -> Mapping[str, Any]:
        """Return what the engines of this worker did so far."""
        from pipelines.desk import room

        return room().snapshot()

    async def close(self) -> None:
        """End the engines of this worker."""
        from pipelines.desk import room

        await room().close()


class Crew:
    """Workers of one kind. One that is lost is replaced, and gets work again once it has started."""

    def __init__(self, make: Callable[[], Any], count: int, modules: Sequence[str] = ()) -> None:
        """Start workers; Ray must be connected."""
        self._make = make
        self._modules = tuple(modules)
        self._handles = [make() for _ in range(count)]
        self._asked: dict[Any, int] = {self._ask(n): n for n in range(count)}
        self._up = [False] * count
        self._idle_since = time.monotonic()

    def __len__(self) -> int:
        """Number of workers, those that start included."""
        return len(self._handles)

    def _ask(self, number: int) -> Any:
        return self._handles[number].ready.remote(self._modules)

    def up(self, patience: float = 0.0) -> list[int]:
        """Return the numbers of the workers that work; waits for the first of them up to some seconds.

        Raises:
            ray.exceptions.RayError: A worker cannot be started at all.
        """
        import ray

        if self._asked:
            timeout = 0.0 if any(self._up) else patience
            for reference in ray.wait(list(self._asked), num_returns=1, timeout=timeout)[0]:
                number = self._asked.pop(reference)
                ray.get(reference)
                self._up[number] = True
        found = [n for n, up in enumerate(self._up) if up]
        if found:
            self._idle_since = time.monotonic()
        elif time.monotonic() - self._idle_since > PATIENT_SECONDS:
            _log.warning("no worker could start for a minute: the cluster may lack free cores, GPUs or memory")
            self._idle_since = time.monotonic()
        return found

    def run(self, number: int, item: Item) -> Any:
        """Give an item to a worker; returns Ray's reference to the result."""
        return self._handles[number].run.remote(item)

    def replace(self, number: int) -> None:
        """Start another worker in the place of a lost one."""
        import ray

        if self._up[number]:
            self._up[number] = False
            with suppress(Exception):
                ray.kill(self._handles[number])
            self._handles[number] = self._make()
            self._asked[self._ask(number)] = number

    def meters(self) -> list[Mapping[str, Any]]:
        """Return the counts of those workers that answer in time."""
        import ray

        asked = [handle.meter.remote() for handle, up in zip(self._handles, self._up, strict=True) if up]
        ready, _ = ray.wait(asked, num_returns=len(asked), timeout=METER_SECONDS) if asked else ([], [])
        found = []
        for reference in ready:
            with suppress(ray.exceptions.RayError):
                found.append(ray.get(reference))
        return found

    def end(self, patience: float = 0.0) -> None:
        """End the workers; with patience their engines are closed before."""
        import ray

        closing = [h.close.remote() for h, up in zip(self._handles, self._up, strict=True) if up]
        if patience and closing:
            ray.wait(closing, num_returns=len(closing), timeout=patience)
        for handle in self._handles:
            with suppress(Exception):
                ray.kill(handle)


def workers(count: int) -> Crew:
    """Start ordinary workers: one core each."""
    import ray

    remote = ray.remote(num_cpus=1)(Worker)
    return Crew(remote.remote, count, ("pipelines.extract", "pipelines.index", "pipelines.rank"))


def replicas(needs: Needs, count: int) -> Crew:
    """Start workers that hold an engine each."""
    import ray

    threads = str(max(1, int(needs.cpus)))
    environment: dict[str, Any] = {"env_vars": {"OMP_NUM_THREADS": threads, "POLARS_MAX_THREADS": "1"}}
    if needs.python is not None:
        environment["py_executable"] = needs.python
    remote = ray.remote(num_cpus=needs.cpus, num_gpus=needs.gpus, runtime_env=environment)(Worker)
    return Crew(remote.remote, count, ("pipelines.extract",))
