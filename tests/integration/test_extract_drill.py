"""Slow drills of extraction (`make drill`): whatever is killed or fails, the notes are those of a quiet run."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from pipelines.store import Store
from tests.engines.stub_server import running
from tests.integration.cluster import cluster
from tests.pipelines.corpora import live
from transforms import synth

TAGLOOM = str(Path(sys.executable).with_name("tagloom"))
SIZE, CASES = 600, 30
IN_FLIGHT = 16

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def talks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("talks")
    synth.write(str(folder), size=SIZE, cases=CASES, seed=5)
    return folder


@pytest.fixture(scope="module")
def calm(talks, tmp_path_factory):
    """The tables of a quiet run, and how many requests it takes."""
    corpus = tmp_path_factory.mktemp("calm") / "corpus"
    with running() as server:
        subprocess.run(command(corpus, talks, server), check=True, capture_output=True)
        return live(corpus), server.stats()["requests"]


def command(corpus, talks, server, *more):
    settings = [
        "extract.extractor=openai",
        "extract.model=stub",
        f"extract.options.base_url={server.base_url}",
        f"extract.options.concurrency={IN_FLIGHT}",
        "evaluate.resamples=200",
        *more,
    ]
    sets = [part for one in settings for part in ("--set", one)]
    return [TAGLOOM, "run", "-C", str(corpus), str(talks), "--preset", "bm25", "--quiet", *sets]


def spent(corpus):
    return Store.open(str(corpus)).generation("main").manifest("extract").run


def told(what, server, needed):
    stats = server.stats()
    print(f"\n{what}: {needed} requests needed, {stats['requests']} asked, {stats['wasted']} answered before already")
    return stats["wasted"]


@pytest.mark.parametrize("workers", [0, 2])
def test_the_driver_is_killed_again_and_again(talks, calm, tmp_path, workers):
    expected, needed = calm
    rng = random.Random(int(os.environ.get("DRILL_SEED", "7")) + workers)
    with running("--delay", "0.1") as server:
        kills = 0
        while True:
            process = subprocess.Popen(
                command(tmp_path / "c", talks, server, f"compute.workers={workers}"),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
            )
            before = server.stats()["requests"]
            try:
                if kills == 5:
                    _, errors = process.communicate(timeout=300)
                    break
                while server.stats()["requests"] <= before and process.poll() is None:
                    time.sleep(0.05)
                _, errors = process.communicate(timeout=rng.uniform(0.2, 2.5))
                break
            except subprocess.TimeoutExpired:
                os.kill(process.pid, signal.SIGKILL)
                process.communicate()
                kills += 1
        assert process.returncode == 0, errors.decode()
        again = told(f"driver killed {kills} times, {workers} workers", server, needed)
    assert live(tmp_path / "c") == expected
    # Replies are durable within some two seconds: 16 at a time, a tenth of a second each.
    assert again <= kills * (IN_FLIGHT * 40)
    assert kills


def kill_an_actor(killed, server):
    """Kill a process of an extraction actor once it has asked for something."""
    while server.stats()["requests"] < 40:
        time.sleep(0.05)
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if " ".join(process.cmdline()).startswith("ray::Worker"):
                process.kill()
                killed.append(process.pid)
                return


def test_an_actor_is_killed(talks, calm, tmp_path):
    expected, needed = calm
    killed = []
    with running("--delay", "0.1") as server:
        hunter = threading.Thread(target=kill_an_actor, args=(killed, server))
        hunter.start()
        more = ("compute.workers=2", "extract.workers=2")
        done = subprocess.run(command(tmp_path / "c", talks, server, *more), check=False, capture_output=True)
        hunter.join()
        assert done.returncode == 0, done.stderr.decode()
        again = told("an actor killed", server, needed)
    assert killed
    assert live(tmp_path / "c") == expected
    assert again < needed / 2


def at_work(node):
    """Tell whether a replica has started on a node."""
    with contextlib.suppress(psutil.Error):
        return any(" ".join(process.cmdline()).startswith("ray::Worker") for process in node.processes())
    return False


def test_one_of_two_ray_nodes_is_killed(talks, calm, tmp_path):
    expected, needed = calm
    # One replica fits on each node, and there is no room for another when one node is gone.
    with cluster(head_cpus=0) as two, running("--delay", "0.1") as server:
        doomed = two.add_node(cpus=1)
        two.add_node(cpus=1)
        more = ("compute.workers=1", "extract.workers=2", f"compute.address={two.address}")
        environment = {**os.environ, **two.environment}
        process = subprocess.Popen(
            command(tmp_path / "c", talks, server, *more), stderr=subprocess.PIPE, env=environment
        )
        while not at_work(doomed) and process.poll() is None:
            time.sleep(0.05)
        begun = server.stats()["requests"]
        while server.stats()["requests"] < begun + 80 and process.poll() is None:
            time.sleep(0.05)
        at = server.stats()["requests"]
        doomed.kill()
        _, errors = process.communicate(timeout=280)
        assert process.returncode == 0, errors.decode()
        assert at < needed, "it was over before the node was killed"
        again = told(f"a node killed after {at} requests", server, needed)
    assert live(tmp_path / "c") == expected
    assert again < needed / 2


@pytest.mark.parametrize("kind", ["429", "500", "half", "garbage", "nothing"])
def test_a_server_that_fails(talks, calm, tmp_path, kind):
    expected, needed = calm
    with running("--fault", f"{kind}:0.25", "--retry-after", "0") as server:
        done = subprocess.run(command(tmp_path / "c", talks, server), check=False, capture_output=True)
        assert done.returncode == 0, done.stderr.decode()
        told(f"a server that gives {kind}", server, needed)
    assert live(tmp_path / "c") == expected
    run = spent(tmp_path / "c")
    print(json.dumps({"retried": run["retried"], "corrupt": run["corrupt"], "failed": run["failed"]}))
    assert run["failed"] == {} and (run["corrupt"] if kind == "garbage" else sum(run["retried"].values())) > 0
