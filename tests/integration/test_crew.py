"""How work is spread over Ray's workers, and what is blamed for one that is lost."""

import os
import signal
import time

import pytest

from pipelines import crew, ray_engine
from pipelines.meter import Cost
from pipelines.progress import Silent
from pipelines.ray_nodes import Room
from pipelines.spent import BudgetError, Spent
from pipelines.stage import Item, Unit
from pipelines.work import Done
from schemas.config import ComputeConfig


class Told(Silent):
    def __init__(self):
        self.lost = []

    def failed(self, failure):
        self.lost.append((failure.shard, failure.attempt, failure.kind))


def items(count):
    unit = Unit("index/raw", {}, (), (), whole=False)
    return [Item("memory://none", 8, "index", n, (unit,), ("k",), {}, 1, 1) for n in range(count)]


def worker_class():
    """A worker that tells its process; local, so that Ray carries the class to its processes."""

    class Known(crew.Worker):
        def __init__(self, place):
            self.place = place

        async def pid(self):
            return os.getpid()

        async def run(self, item):
            return Done((), Cost(peak=os.getpid()))

    return Known


def started(kind, count):
    """Real workers of a kind, which take no core; each is told its place."""
    import ray

    places = iter(range(99))
    remote = ray.remote(num_cpus=0)(kind)

    def make(selector):
        return remote.remote(next(places))

    return crew.Crew(make, crew.ordinary(ComputeConfig()), lambda: Room({}, count), count)


def all_up(workers):
    while len(workers.up(1.0)) < len(workers):
        pass


def pids(workers):
    import ray

    return ray.get([handle.pid.remote() for handle in workers._handles])


def test_work_is_kept_for_workers_that_start(ray_session, tmp_path):
    """The first has room for all items, which take long, and yet each worker gets its share."""

    class Slow(worker_class()):
        async def ready(self, *given):
            await self.seen(self.place)

        async def run(self, item):
            (tmp_path / str(os.getpid())).touch()
            await self.seen(3)
            return Done((), Cost(peak=os.getpid()))

        async def seen(self, count):
            import asyncio

            end = time.monotonic() + 20
            while len(list(tmp_path.iterdir())) < count and time.monotonic() < end:
                await asyncio.sleep(0.02)

    workers = started(Slow, 3)
    done = [one.cost.peak for _, one in ray_engine.run_asking(items(6), workers, 1000, Spent(), lambda: None)]
    workers.end()
    assert sorted(done.count(pid) for pid in set(done)) == [2, 2, 2]


def test_workers_that_died_while_idle_are_no_fault_of_an_item(ray_session, monkeypatch):
    import ray

    monkeypatch.setattr(crew, "HEARD_SECONDS", 0.0)
    workers, told = started(worker_class(), 2), Told()
    all_up(workers)
    assert workers.expected() == 2
    assert workers.up() == [] and len(workers.coming()) == 2, "they are asked whether they are there"
    ray.wait(workers.coming(), num_returns=2)
    assert workers.up(busy=range(2)) == [0, 1], "all that have answered, at once"
    before = pids(workers)
    for pid in before:
        os.kill(pid, signal.SIGKILL)
    ended = list(ray_engine.run_items(items(1), workers, progress=told))
    assert told.lost == [] and [item.shard for item, _ in ended] == [0]
    assert ended[0][1].cost.peak not in before
    workers.end()


def test_an_item_that_waits_behind_another_is_not_blamed_for_the_loss_of_the_worker(ray_session, tmp_path):
    class Ending(worker_class()):
        async def run(self, item):
            if item.shard == 0 and len(list(tmp_path.iterdir())) < 2:
                (tmp_path / str(os.getpid())).touch()
                os._exit(3)
            return await super().run(item)

    workers, told = started(Ending, 1), Told()
    ended = list(ray_engine.run_items(items(3), workers, progress=told))
    workers.end()
    assert sorted(item.shard for item, _ in ended) == [0, 1, 2]
    assert told.lost == [(0, 1, "lost"), (0, 2, "lost")]


def test_a_budget_that_the_last_item_used_up_fails_nothing(ray_session):
    class Counting(worker_class()):
        async def meter(self):
            return {"id": "a", "in_flight": 0, "slots": 1, "counts": {"prompt_tokens": 5}}

    workers, spent, told = started(Counting, 1), Spent(budget=5), []
    all_up(workers)
    ended = list(ray_engine.run_asking(items(1), workers, 8, spent, lambda: told.append(spent.tokens)))
    assert len(ended) == 1 and told == [5]
    with pytest.raises(BudgetError):
        spent.take(workers.meters())
    workers.end()
