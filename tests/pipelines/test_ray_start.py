"""A local Ray that does not start at once."""

import sys

import pytest

from pipelines import ray_session
from pipelines.ray_head import READY
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
    process, address = ray_session._started(command(tmp_path, failures))
    assert address == "127.0.0.1:6379"
    assert process.poll() is None
    ray_session._end(process)
    assert process.poll() == 0  # it ended by itself, as its standard input did
    assert len((tmp_path / "tries").read_text()) == failures + 1


def test_twice_is_enough(tmp_path):
    with pytest.raises(TagloomError, match="Ray cannot be started or reached: no room for Ray"):
        ray_session._started(command(tmp_path, 9))
    assert len((tmp_path / "tries").read_text()) == ray_session.STARTS
