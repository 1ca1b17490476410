"""What Ray's workers log, in the files that Ray keeps of them."""

import json
import logging
import time
from pathlib import Path

import pytest

from pipelines import logs
from pipelines.crew import Worker


@pytest.mark.slow
def test_records_of_a_worker_are_json_and_tell_of_its_run_and_shard(ray_session, monkeypatch):
    import ray
    from ray._private.worker import _global_node

    class Talking(Worker):  # here, so that it travels whole: workers have no tests
        async def talk(self) -> None:
            with logs.about(stage="rank", shard=5):
                logging.getLogger("pipelines.rank").info("two\nlines")

    monkeypatch.setenv(logs.VARIABLE, "json")
    with logs.about(run="r1", generation="main"):
        carried = logs.carried()
    worker = ray.remote(num_cpus=1)(Talking).remote()
    ray.get(worker.ready.remote((), carried))
    ray.get(worker.talk.remote())
    folder, found = Path(_global_node.get_logs_dir_path()), []
    for _ in range(50):
        lines = [line for path in folder.glob("worker-*.err") for line in path.read_text().splitlines()]
        found = [json.loads(line) for line in lines if line.startswith('{"time"')]
        if found:
            break
        time.sleep(0.1)
    ray.kill(worker)
    del found[0]["time"]
    assert found == [
        {
            **{"level": "info", "run": "r1", "generation": "main", "stage": "rank", "shard": 5},
            **{"logger": "pipelines.rank", "message": "two\nlines"},
        }
    ]
