"""Ingest and graph through Beam's Job API, with workers in this process and in processes of other environments."""

import sys
import time

import grpc
import pytest
from apache_beam.portability.api import beam_job_api_pb2, beam_job_api_pb2_grpc

from jobs.cluster_package import build_wheel
from pipelines import beam_engine
from pipelines.progress import Silent
from schemas.errors import TagloomError
from tests.integration.beam_servers import ROOT, job_server, worker_pool
from tests.pipelines import test_beam_engine as failing
from tests.pipelines.corpora import live, run

STAGES = ["extract", "graph"]
BOOT = str(ROOT / "infra" / "beam" / "boot.sh")
PACKAGES = ("schemas", "transforms", "indexers", "pipelines", "jobs")


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory):
    with job_server(tmp_path_factory.mktemp("server")) as address:
        yield address


@pytest.fixture(scope="module")
def plain(logs, tmp_path_factory):
    """What the default runner makes of the logs."""
    corpus = tmp_path_factory.mktemp("plain") / "c"
    run(corpus, logs, stages=STAGES)
    return live(corpus)


@pytest.fixture
def foreign(tmp_path):
    folder = tmp_path / "project"
    for package in PACKAGES:
        (folder / package).mkdir(parents=True)
        (folder / package / "__init__.py").write_text("raise RuntimeError('the wrong package was imported')\n")
    return folder


def portable(endpoint, kind, config=None, **more):
    beam = {"runner": "PortableRunner", "job_endpoint": endpoint, "environment_type": kind}
    return {**beam, **({"environment_config": config} if config else {}), **more}


def test_loopback_gives_the_same_bytes(endpoint, logs, plain, tmp_path):
    run(tmp_path / "c", logs, stages=STAGES, beam=portable(endpoint, "LOOPBACK"))
    assert live(tmp_path / "c") == plain
    assert not list((tmp_path / "c").glob("runs/aside/*"))


@pytest.mark.parametrize("runner", ["PortableRunner", "FlinkRunner", "SparkRunner"])
def test_failures_and_costs_come_through_the_job_api(runner, endpoint, tmp_path):
    """The runners for Flink and Spark hand a job to any server of that API."""
    told = failing.Told()
    items = [failing.Item(str(tmp_path), shard) for shard in (4, 5)]
    ran = failing.run_map(items, failing.odd_fail, portable(endpoint, "LOOPBACK", runner=runner), told)
    assert [failing.count(tmp_path, shard) for shard in (4, 5)] == [2, 3]
    assert {n: failure.reason for n, failure in ran.asides.items()} == {1: "ZeroDivisionError: one by nought"}
    assert len(told.failures) == 4 and told.pieces == 1
    assert ran.cost.bytes_written == 4 and ran.cost.peak > 1 << 20


def end(item):
    raise GeneratorExit("odd")


def test_a_job_that_fails_as_a_whole_is_told_without_a_traceback(endpoint, tmp_path, caplog):
    with pytest.raises(TagloomError) as caught:
        failing.run_map([failing.Item(str(tmp_path), 3)], end, portable(endpoint, "LOOPBACK"))
    assert str(caught.value).startswith("step 'step': PortableRunner gave the job up: RuntimeError: GeneratorExit: odd")
    assert "Traceback" not in caplog.text + str(caught.value)


def linger(item):
    failing.calls(item)
    time.sleep(1)


def test_a_run_that_is_stopped_takes_its_job_back(endpoint, tmp_path):
    def stopped(item):
        if (tmp_path / "calls").exists():
            raise KeyboardInterrupt
        return 0

    items = [failing.Item(str(tmp_path), shard) for shard in range(30)]
    known = states(endpoint)
    with pytest.raises(KeyboardInterrupt):
        beam_engine.run_map(items, linger, portable(endpoint, "LOOPBACK"), "step", Silent(), stopped, failing.about)
    (state,) = (state for job, state in states(endpoint).items() if job not in known)
    assert state == beam_job_api_pb2.JobState.CANCELLED
    assert len(list((tmp_path / "calls").iterdir())) < 30
    (note,) = tmp_path.rglob("*.json")
    assert note.name.endswith("-stop.json"), "workers elsewhere that go on all the same begin nothing more"


def states(endpoint):
    with grpc.insecure_channel(endpoint) as channel:
        jobs = beam_job_api_pb2_grpc.JobServiceStub(channel).GetJobs(beam_job_api_pb2.GetJobsRequest())
        return {job.job_id: job.state for job in jobs.job_info}


@pytest.mark.slow
def test_processes_started_in_a_foreign_folder(foreign, logs, plain, tmp_path):
    with job_server(tmp_path, cwd=foreign, processes=True) as address:
        config = {"command": BOOT, "env": {"TAGLOOM_PYTHON": sys.executable}}
        run(tmp_path / "c", logs, stages=STAGES, beam=portable(address, "PROCESS", config))
    assert live(tmp_path / "c") == plain


@pytest.mark.slow
def test_a_worker_pool_runs_the_code_that_came_with_the_job(endpoint, foreign, logs, plain, tmp_path):
    """Its own environment holds packages that cannot even be imported."""
    boot = tmp_path / "boot"
    boot.write_text(f'#!/bin/sh\nexec {sys.executable} -P {ROOT / "pipelines" / "beam_boot.py"} "$@"\n')
    boot.chmod(0o755)
    wheel = build_wheel(tmp_path)
    with worker_pool(tmp_path, boot, PYTHONPATH=str(foreign)) as address:
        beam = portable(endpoint, "EXTERNAL", address, extra_packages=[str(wheel)])
        run(tmp_path / "c", logs, stages=STAGES, beam=beam)
    assert live(tmp_path / "c") == plain
