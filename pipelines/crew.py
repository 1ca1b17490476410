"""Ray workers that are replaced when they are lost, and become more when the cluster grows."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from pipelines import logs, ray_nodes, work
from pipelines.attempts import one_line
from pipelines.ray_nodes import MOST_WORKERS, Room
from pipelines.stage import Item, Needs
from schemas.config import ComputeConfig
from schemas.errors import TagloomError

PATIENT_SECONDS = 60.0
"""Seconds after which a log line tells that nobody works."""
METER_SECONDS = 0.5
LOOK_SECONDS = 3.0
"""How often the nodes of a cluster are looked at."""
EXPECTED_SECONDS = 30.0
"""How long work is kept for a worker that was told to start."""
HEARD_SECONDS = 1.0
"""After this long without work a worker is asked before it gets any: its node may be gone, no fault of the work."""
PRELOADED = ("pipelines.extract", "pipelines.index", "pipelines.rank")
STARTS = 3
"""Workers in a row that may end in one place while they start, before the run ends."""

_log = logging.getLogger(__name__)


class Worker:
    """A long-lived worker: a Ray actor."""

    async def ready(self, modules: Sequence[str] = (), about: Mapping[str, Any] | None = None) -> None:
        """Load what the stages need, while there is nothing to do yet; `about` is what `logs.carried` gave.

        A module whose libraries this environment lacks is passed over: it may have no use for it.
        """
        import importlib

        if about is not None:
            logs.take(about)
        for name in modules:
            with suppress(ImportError):
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

    def __init__(
        self,
        make: Callable[[Mapping[str, str]], Any],
        needs: Needs,
        room: Callable[[], Room],
        count: int | None,
        modules: Sequence[str] = (),
        *,
        joined: bool = False,
    ) -> None:
        """Start workers; Ray must be connected.

        Args:
            make: Starts one on the nodes that a label selector admits.
            needs: What each needs.
            room: Tells where they may be.
            count: How many; None takes as many as the cluster has room for, also when that grows.
            modules: What they load when they start.
            joined: True on a cluster that others run, which may grow and shrink.
        """
        self._make = make
        self._needs = needs
        self._find_room = room
        self._count = count
        self._modules = tuple(modules)
        self._joined = joined
        self._room = room()
        self._handles: list[Any] = []
        self._lives: list[int] = []
        self._up: list[bool] = []
        self._heard: list[float] = []
        self._selectors: list[Mapping[str, str]] = []
        self._asked: dict[Any, int] = {}
        self._failed: list[int] = []
        self._add()
        self._idle_since = self._looked = time.monotonic()

    def __len__(self) -> int:
        """Number of workers, those that start included."""
        return len(self._handles)

    def _add(self) -> None:
        places = min(MOST_WORKERS, max(1, self._room.places))
        for _ in range(len(self._handles), places if self._count is None else self._count):
            self._handles.append(None)
            self._lives.append(0)
            self._up.append(False)
            self._heard.append(0.0)
            self._failed.append(0)
            self._selectors.append({})
            self._start(len(self._handles) - 1)

    def _start(self, number: int) -> None:
        self._up[number] = False
        self._lives[number] += 1
        self._selectors[number] = self._room.selector
        self._handles[number] = self._make(self._room.selector)
        self._ask(number, self._modules, logs.carried())

    def _ask(self, number: int, *given: Any) -> None:
        self._heard[number] = time.monotonic()
        self._asked[self._handles[number].ready.remote(*given)] = number

    def _look(self) -> None:
        """Use nodes that came, and let no worker wait for a node that is gone."""
        if not self._joined or time.monotonic() - self._looked < LOOK_SECONDS:
            return
        self._room = self._find_room()
        self._looked = time.monotonic()
        for reference, number in list(self._asked.items()):
            if not self._up[number] and self._selectors[number] != self._room.selector:
                del self._asked[reference]
                self._kill(number)
                self._start(number)
        self._add()

    def up(self, patience: float = 0.0, busy: Collection[int] = ()) -> list[int]:
        """Return the numbers of the workers that can be given work.

        One that had nothing to do for a while is asked first, and is left out until it answers.

        Args:
            patience: Seconds to wait for the first of them.
            busy: Workers that have something to do, whose loss shows by that.

        Raises:
            TagloomError: No worker can be started.
        """
        import ray

        self._look()
        self._ask_idle(busy)
        if patience and self._asked and not self._free():
            ray.wait(list(self._asked), num_returns=1, timeout=patience)
        if self._asked:
            for reference in ray.wait(list(self._asked), num_returns=len(self._asked), timeout=0)[0]:
                self._take(reference)
        found = self._free()
        if found:
            self._idle_since = time.monotonic()
        elif time.monotonic() - self._idle_since > PATIENT_SECONDS:
            lacks = f", or the Python {self._needs.python}" if self._needs.python else ""
            _log.warning("no worker could start for a minute: the nodes may lack free cores, GPUs or memory%s", lacks)
            self._idle_since = time.monotonic()
        return found

    def coming(self) -> list[Any]:
        """Return Ray's references that get ready when `up` may have more to return."""
        return list(self._asked)

    def expected(self) -> int:
        """Return how many workers there are or will be within seconds; at least 1."""
        now = time.monotonic()
        late = sum(now - self._heard[number] > EXPECTED_SECONDS for number in self._asked.values())
        return max(1, len(self) - late)

    def _free(self) -> list[int]:
        asked = set(self._asked.values())
        return [n for n, up in enumerate(self._up) if up and n not in asked]

    def _ask_idle(self, busy: Collection[int]) -> None:
        now = time.monotonic()
        for number in self._free():
            if number in busy:
                self._heard[number] = now
            elif now - self._heard[number] > HEARD_SECONDS:
                self._ask(number)

    def _take(self, reference: Any) -> None:
        import ray

        number = self._asked.pop(reference)
        try:
            ray.get(reference)
        except ray.exceptions.RayError as error:
            # A node may go away while a worker starts there, or has nothing to do; another may do.
            self._failed[number] += not self._up[number]
            if self._failed[number] >= STARTS:
                cause = error.cause if isinstance(error, ray.exceptions.RayTaskError) else error
                raise TagloomError(
                    one_line(f"no worker can be started: {type(cause).__name__}: {cause}"),
                    where="compute",
                    remedy="Check that the nodes have what this needs (docs/workers.md). Finished parts stay.",
                ) from error
            self._kill(number)
            self._start(number)
        else:
            self._failed[number] = 0
            self._up[number] = True
            self._heard[number] = time.monotonic()

    def life(self, number: int) -> int:
        """Return which worker in this place it is, from 1."""
        return self._lives[number]

    def run(self, number: int, item: Item) -> Any:
        """Give an item to a worker; returns Ray's reference to the result."""
        return self._handles[number].run.remote(item)

    def replace(self, number: int, life: int) -> None:
        """Start another worker in the place of a lost one, unless that was done since."""
        if self._lives[number] == life:
            self._kill(number)
            self._start(number)

    def _kill(self, number: int) -> None:
        import ray

        with suppress(Exception):
            ray.kill(self._handles[number])

    @contextmanager
    def wanted(self, items: int) -> Iterator[None]:
        """Tell the cluster's autoscaler while a block runs that there is work for more workers than there is room."""
        self._look()
        wanted = min(items, MOST_WORKERS if self._count is None else self._count)
        if not self._joined or wanted <= self._room.places:
            yield
            return
        with ray_nodes.asked_for(self._needs, wanted, self._room.selector):
            yield

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
        for number in range(len(self._handles)):
            self._kill(number)


def workers(count: int | None, compute: ComputeConfig | None = None, *, joined: bool = False) -> Crew:
    """Start ordinary workers: one core each, and the memory that the run keeps for it.

    Args:
        count: How many; None takes what the cluster has room for.
        compute: Where they may be.
        joined: True on a cluster that others run.
    """
    return _crew(ordinary(compute or ComputeConfig()), count, compute, {}, PRELOADED, joined=joined)  # type: ignore[call-arg]


def ordinary(compute: ComputeConfig) -> Needs:
    """Return what a worker needs that holds no engine."""
    return Needs(None, 1, 0, None, 0, memory_of(compute))


def memory_of(compute: ComputeConfig) -> int:
    """Return the memory that Ray keeps for a worker, in bytes."""
    return round((compute.memory_gb or 0) * 1e9)


def replicas(needs: Needs, count: int | None, compute: ComputeConfig | None = None, *, joined: bool = False) -> Crew:
    """Start workers that hold an engine each; arguments as `workers`, after what each needs."""
    threads = str(max(1, int(needs.cpus)))
    environment: dict[str, Any] = {"env_vars": {"OMP_NUM_THREADS": threads, "POLARS_MAX_THREADS": "1"}}
    if needs.python is not None:
        environment["py_executable"] = needs.python
    return _crew(needs, count, compute, {"runtime_env": environment}, ("pipelines.extract",), joined=joined)


def _crew(
    needs: Needs,
    count: int | None,
    compute: ComputeConfig | None,
    options: Mapping[str, Any],
    modules: Sequence[str],
    *,
    joined: bool,
) -> Crew:
    import ray

    own = compute or ComputeConfig()  # type: ignore[call-arg]
    memory = {"memory": needs.memory} if needs.memory else {}
    remote = ray.remote(num_cpus=needs.cpus, num_gpus=needs.gpus, **memory, **options)(Worker)

    def make(selector: Mapping[str, str]) -> Any:
        return remote.options(label_selector=dict(selector)).remote() if selector else remote.remote()

    return Crew(make, needs, lambda: ray_nodes.room(needs, own), count, modules, joined=joined)
