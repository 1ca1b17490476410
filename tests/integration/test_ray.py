"""The same bytes on Ray as in this process, wherever the run is started from."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipelines import ray_engine
from pipelines.ray_session import worker_count
from pipelines.stage import Item, Unit
from schemas.config import ComputeConfig
from schemas.errors import StoreError, TagloomError
from tests.pipelines.corpora import live, run


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
    for actors in (False, True):
        with pytest.raises(StoreError, match=r"missing\.parquet: the file is missing"):
            list(ray_engine.run_items([item], ray_session, actors=actors))


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
