"""A local Ray that does not start at once, and one that nobody wants any more."""

import contextlib
import sys
import threading
import time

import psutil
import pytest

from pipelines import ray_session
from pipelines.ray_head import READY
from pipelines.ray_session import RaySession
from schemas.config import ComputeConfig
from schemas.errors import TagloomError

SCRIPT = """
import pathlib, sys
tries = pathlib.Path(sys.argv[1])
count = len(tries.read_text()) + 1 if tries.exists() else 1
tries.write_text("x" * count)
if count <= int(sys.argv[2]):
    sys.exit("no room for Ray")
print("something else")
print("{ready}127.0.0.1:6379", flush=True)
sys.stdin.read()
""".replace("{ready}", READY)


def command(tmp_path, failures):
    return [sys.executable, "-c", SCRIPT, str(tmp_path / "tries"), str(failures)]


@pytest.mark.parametrize("failures", [0, 1])
def test_it_is_started_once_more(failures, tmp_path):
    process, address = ray_session._started(command(tmp_path, failures), threading.Event())
    assert address == "127.0.0.1:6379"
    assert process.poll() is None
    ray_session._end(process)
    assert process.poll() == 0  # it ended by itself, as its standard input did
    assert len((tmp_path / "tries").read_text()) == failures + 1


def test_twice_is_enough(tmp_path):
    with pytest.raises(TagloomError, match="Ray cannot be started or reached: no room for Ray"):
        ray_session._started(command(tmp_path, 9), threading.Event())
    assert len((tmp_path / "tries").read_text()) == ray_session.STARTS


def test_who_is_told_to_stop_waits_for_no_start(tmp_path):
    """The process neither tells an address nor reads its standard input."""
    told, stop, raised = tmp_path / "pid", threading.Event(), []
    script = "import os, pathlib, sys, time; pathlib.Path(sys.argv[1]).write_text(f'{os.getpid()}.'); time.sleep(600)"

    def start():
        try:
            ray_session._started([sys.executable, "-c", script, str(told)], stop)
        except TagloomError as error:
            raised.append(error)

    thread = threading.Thread(target=start, daemon=True)
    thread.start()
    while not (told.exists() and told.read_text().endswith(".")):
        time.sleep(0.01)
    process = psutil.Process(int(told.read_text()[:-1]))
    assert thread.is_alive()
    stop.set()
    thread.join(60)
    assert [error.message for error in raised] == ["Ray cannot be started or reached: the run ends"]
    assert not process.is_running()


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt])
def test_a_run_that_is_told_to_end_waits_for_no_ray(kind, monkeypatch):
    begun, end = threading.Event(), threading.Event()

    @contextlib.contextmanager
    def connected(compute, workers, stop):
        begun.set()
        end.wait()
        raise TagloomError("too late")
        yield

    monkeypatch.setattr(ray_session, "connected", connected)
    monkeypatch.setattr(ray_session, "HASTY_SECONDS", 0.01)
    session = RaySession(ComputeConfig(workers=1), private=False)
    with pytest.raises(kind), session:
        session.start()
        begun.wait()
        raise kind(143)
    assert session._thread.is_alive(), "it was not waited for"
    end.set()
    session._thread.join()


def test_a_local_ray_that_still_starts_is_told_to_stop(monkeypatch):
    heard = []

    def started(command, stop):
        heard.append(stop.wait(60))
        raise TagloomError("stopped")

    monkeypatch.setattr(ray_session, "_started", started)
    monkeypatch.delitem(sys.modules, "ray", raising=False)  # the tests may share one
    with RaySession(ComputeConfig(workers=1), private=False) as session:
        session.start()
    assert heard == [True]
