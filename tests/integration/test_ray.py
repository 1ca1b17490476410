"""The same bytes on Ray as in this process, wherever the run is started from."""

import contextlib
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from pipelines import crew, driver, ray_engine
from pipelines.failures import ShardsAsideError
from pipelines.ray_nodes import Room
from pipelines.ray_session import worker_count
from pipelines.stage import Item, Unit
from pipelines.store import Store
from schemas.config import ComputeConfig
from schemas.errors import StoreError, TagloomError
from schemas.ids import shard_of
from tests.integration.poison import installed
from tests.pipelines.corpora import live, run


def kill_a_worker(killed):
    """Kill the first worker process that has taken up work, and note its command line."""
    me = psutil.Process()
    for _ in range(3000):
        for child in me.children(recursive=True):
            with contextlib.suppress(psutil.Error):
                name = " ".join(child.cmdline())
                if name.startswith("ray::Worker.run"):
                    child.kill()
                    killed.append(name)
                    return
        time.sleep(0.01)


def test_two_workers_give_the_bytes_of_one_process(ray_session, logs, tmp_path):
    run(tmp_path / "ray", logs, **{"compute.workers": 2})
    run(tmp_path / "plain", logs)
    assert live(tmp_path / "ray") == live(tmp_path / "plain")


def test_workers_use_one_thread_each_and_the_code_of_the_job(ray_session):
    import ray

    @ray.remote(num_cpus=1)
    def look():
        import pipelines

        return os.environ["OMP_NUM_THREADS"], pipelines.__file__, sys.path

    threads, where, path = ray.get(look.remote())
    assert threads == "1"
    assert Path(where).parent.parent != Path.cwd()
    assert str(Path.cwd()) not in path


def test_errors_of_workers_arrive_typed(ray_session, tmp_path):
    unit = Unit("index/raw", {}, ("ingest",), ("vocabulary", "postings"))
    item = Item(str(tmp_path), 8, "index", 0, (unit,), ("k",), {"ingest": ((0, "missing"),)})
    for workers in (None, crew.workers(1)):
        with pytest.raises(StoreError, match=r"missing\.parquet: the file is missing"):
            list(ray_engine.run_items([item], workers))
        if workers is not None:
            workers.end()


def test_a_worker_that_dies_costs_its_items_a_second_try(ray_session, logs, tmp_path):
    run(tmp_path / "plain", logs)
    killed: list[str] = []
    killer = threading.Thread(target=kill_a_worker, args=(killed,), daemon=True)
    killer.start()
    run(tmp_path / "killed", logs, **{"compute.workers": 2})
    killer.join()
    assert killed
    assert live(tmp_path / "killed") == live(tmp_path / "plain")


@pytest.fixture
def poison(tmp_path, monkeypatch):
    """A faulty extractor, here and on the workers."""
    folder = tmp_path / "plugin"
    real = crew._crew

    def with_plugin(needs, count, compute, options, modules, *, joined):
        more = {**options, "runtime_env": {"env_vars": {"PYTHONPATH": str(folder)}}}
        return real(needs, count, compute, more, modules, joined=joined)

    monkeypatch.setattr(crew, "_crew", with_plugin)
    with installed(folder, monkeypatch) as made:
        yield made


def test_shards_that_end_workers_or_always_fail_are_set_aside_and_healed(ray_session, poison, logs, tmp_path):
    own = {"extract.extractor": "poisoned", "rank.presets": ["bm25"]}
    run(tmp_path / "calm", logs, **own)
    table = Store.open(str(tmp_path / "calm")).generation().table("interactions")
    by_shard = {shard_of(case, 8): case for case in sorted(table["case_id"].unique().to_pylist(), reverse=True)}
    (ending, killer), (raising, bad), *_ = sorted(by_shard.items())
    poison.tries()
    poison.fail(ends=[killer], raises=[bad])
    result = run(tmp_path / "c", logs, **own, **{"compute.workers": 2})
    tries = poison.tries()
    assert sum(killer in cases for _, cases in tries) == 3
    assert 1 <= sum(bad in cases for _, cases in tries) <= 3, "a worker may end while this waits in it"
    assert set(result.aside) == {"extract"} and set(result.aside["extract"]) == {ending, raising}
    assert "the worker was lost" in result.aside["extract"][ending]
    assert result.aside["extract"][raising].startswith(("RuntimeError: poison", "the worker was lost"))
    with pytest.raises(ShardsAsideError, match=f"2 shards were set aside: extract, shard {ending} "):
        driver.check_finished(result)
    poison.heal()
    healed = run(tmp_path / "c", logs, **own)
    assert sorted(cases for _, cases in poison.tries()) == sorted(cases for _, cases in set_of(tries, killer, bad))
    assert healed.aside == {} and live(tmp_path / "c") == live(tmp_path / "calm")


def set_of(tries, *cases):
    """One call for each of some cases' shards."""
    return [(0, list(found)) for found in {tuple(one) for _, one in tries if set(one) & set(cases)}]


def test_workers_that_end_while_they_start_end_the_run(ray_session):
    import ray

    class Dying:
        async def ready(self, *given):
            os._exit(3)

    made = []

    def make(selector):
        made.append(ray.remote(num_cpus=1)(Dying).remote())
        return made[-1]

    own = ComputeConfig()
    workers = crew.Crew(make, crew.ordinary(own), lambda: Room({}, 1), 1)
    with pytest.raises(TagloomError, match="no worker can be started: ActorDiedError"):
        while True:
            assert workers.up(1.0) == []
    assert len(made) == 3
    workers.end()


def test_a_cluster_that_cannot_be_reached():
    code = (
        "from pipelines.ray_session import RaySession; from schemas.config import ComputeConfig\n"
        "RaySession(ComputeConfig(workers=1, address='127.0.0.1:1'), private=False).workers()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert "TagloomError: 127.0.0.1:1: Ray cannot be started or reached" in done.stderr


def test_private_storage_never_goes_to_workers():
    assert worker_count(ComputeConfig(workers=4), private=True) == 0
    assert worker_count(ComputeConfig(workers="auto"), private=False) == os.cpu_count()
    assert issubclass(StoreError, TagloomError)


@pytest.mark.slow
def test_a_process_can_start_ray_twice(logs, tmp_path):
    code = (
        "from pipelines import driver; from schemas.config import RunConfig\n"
        f"for name in 'ab': driver.run(RunConfig.model_validate({{'corpus': {str(tmp_path)!r} + '/' + name, "
        f"'inputs': [{str(logs)!r}], 'compute': {{'workers': 1}}}}), stages=('extract',))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    assert live(tmp_path / "a") == live(tmp_path / "b")


@pytest.mark.slow
def test_a_process_that_used_ray_before_can_start_one():
    """Ray looks up who may connect once a process; what somebody else set before must not stay, nor what we set."""
    code = (
        "import os; os.environ['RAY_AUTH_MODE'] = 'disabled'\n"
        "from ray._raylet import get_authentication_mode as mode; before = mode()\n"
        "from pipelines.ray_session import connected; from schemas.config import ComputeConfig; import ray\n"
        "with connected(ComputeConfig(workers=1), 1): print(ray.cluster_resources()['CPU'], mode() != before)\n"
        "print(mode() == before, os.environ['RAY_AUTH_MODE'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.split() == ["1.0", "True", "True", "disabled"], done.stderr
