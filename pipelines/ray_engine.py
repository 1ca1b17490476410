"""Runs work items on Ray, or in this process when there are no workers."""

from __future__ import annotations

import logging
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pipelines import work
from pipelines.stage import Item
from schemas.config import ComputeConfig
from schemas.errors import FAULT, StoreError, TagloomError

PACKAGES = ("schemas", "transforms", "indexers", "pipelines", "jobs")
SINGLE_THREADED = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "POLARS_MAX_THREADS": "1",
    "ARROW_NUM_THREADS": "1",
    "PYTHONSAFEPATH": "1",
}
"""Environment of workers: one busy process a core, so no library may start threads of its own."""
ITEMS_IN_FLIGHT = 2
ITEMS_PER_ACTOR = 8
ATTEMPTS = 3


def worker_count(compute: ComputeConfig, private: bool) -> int:
    """Return how many workers to use; 0 means this process, the only choice for storage that no other can see."""
    if private:
        return 0
    return (os.cpu_count() or 1) if compute.workers == "auto" else compute.workers


@contextmanager
def _code() -> Iterator[str]:
    """Lay out a copy of Tagloom's packages alone, which Ray carries to its workers.

    Workers then take the code from the job. Otherwise they would look in the user's current directory, where a
    folder called ``schemas`` or ``jobs`` may be something else.
    """
    root = Path(__file__).resolve().parent.parent
    with tempfile.TemporaryDirectory(prefix="tagloom-code-") as folder:
        for package in PACKAGES:
            shutil.copytree(root / package, Path(folder) / package, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(root / "tagloom.py", folder)
        yield folder


@contextmanager
def session(compute: ComputeConfig, private: bool) -> Iterator[int]:
    """Start or join Ray for the length of a run; yields the number of workers, 0 without Ray.

    Raises:
        TagloomError: The cluster cannot be reached.
    """
    workers = worker_count(compute, private)
    if workers == 0:
        yield 0
        return
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    import ray

    logging.getLogger("ray").setLevel(logging.ERROR)  # importing it has set its own level
    if ray.is_initialized():
        yield workers
        return
    if compute.address:
        _check_reachable(compute.address)
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "error", "configure_logging": False}
    if compute.address:
        options["address"] = compute.address
    else:
        options |= {
            "num_cpus": workers,
            "include_dashboard": False,
            "object_store_memory": 200 * 2**20,
        }
    with _code() as folder:
        try:
            ray.init(**options, runtime_env={"working_dir": folder, "env_vars": SINGLE_THREADED})
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise _unreachable(compute.address, error) from error
        try:
            yield workers
        finally:
            ray.shutdown()


def _unreachable(address: str | None, error: Exception) -> TagloomError:
    return TagloomError(
        f"Ray cannot be started or reached: {error}",
        where=address or "local Ray",
        remedy="Check compute.address, or run without Ray: --workers 0",
    )


def _check_reachable(address: str) -> None:
    """Try the address first: Ray ends the whole process where nothing answers."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not (host and port.isdigit()):
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=5).close()
    except OSError as error:
        raise _unreachable(address, error) from error


def run_items(items: Sequence[Item], workers: int, actors: bool) -> Iterator[tuple[Item, work.Done]]:
    """Run items and yield each as it ends; bounded numbers are in flight.

    Args:
        items: The work.
        workers: Ray workers; 0 runs the items one after the other in this process.
        actors: Use long-lived workers that take several items at a time (extraction).

    Raises:
        TagloomError: An item failed; what had ended before stays on storage.
    """
    if workers == 0:
        for item in items:
            yield item, work.run(item)
        return
    import ray

    if actors:
        pool = _Actors(min(workers, len(items)))
        submit, limit = pool.submit, pool.limit
    else:
        remote = ray.remote(num_cpus=1, max_retries=ATTEMPTS)(work.run)
        submit, limit = remote.remote, workers * ITEMS_IN_FLIGHT
    waiting = list(reversed(items))
    flying: dict[Any, Item] = {}
    while waiting or flying:
        while waiting and len(flying) < limit:
            item = waiting.pop()
            flying[submit(item)] = item
        ready, _ = ray.wait(list(flying), num_returns=1)
        for reference in ready:
            item = flying.pop(reference)
            try:
                done = ray.get(reference)
            except ray.exceptions.RayTaskError as error:
                raise _typed(error, item) from error
            except ray.exceptions.RayError as error:
                raise TagloomError(
                    f"a worker was lost {ATTEMPTS} times: {error}",
                    where=f"{item.stage}, shard {item.shard}",
                    remedy="Finished parts stay. Check memory and disk, then run the same command again.",
                ) from error
            yield item, done


def _typed(error: Any, item: Item) -> TagloomError:
    cause = error.cause
    if isinstance(cause, TagloomError):
        return cause
    if isinstance(cause, OSError):
        return StoreError(str(cause), where=f"{item.stage}, shard {item.shard}")
    return TagloomError(
        f"{type(cause).__name__}: {cause}",
        where=f"{item.stage}, shard {item.shard}",
        remedy=FAULT,
    )


class _Actors:
    """Long-lived workers; each takes several items at a time on one event loop."""

    def __init__(self, count: int) -> None:
        import ray

        class Worker:
            async def run(self, item: Item) -> work.Done:
                return await work.run_async(item)

        remote = ray.remote(num_cpus=1, max_restarts=ATTEMPTS, max_task_retries=ATTEMPTS)(Worker)
        self._workers = [remote.options(max_concurrency=ITEMS_PER_ACTOR).remote() for _ in range(max(1, count))]
        self._next = 0
        self.limit = len(self._workers) * ITEMS_IN_FLIGHT

    def submit(self, item: Item) -> Any:
        """Send an item to the next worker in turn."""
        self._next = (self._next + 1) % len(self._workers)
        return self._workers[self._next].run.remote(item)
