"""A disk that is full: the run says so, leaves nothing half-written, and goes on once there is room."""

import json
import shutil
import subprocess
import sys

import pytest

from tests.pipelines.corpora import live

SCRIPT = """
import json, subprocess, sys
from pathlib import Path
folder, logs, target, sizes = sys.argv[1:]
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", folder], check=True)
told = []
for size in sizes.split(","):
    subprocess.run(["mount", "-o", f"remount,size={size}", folder], check=True)
    command = [sys.executable, "-P", "-m", "jobs.cli", "run", "-C", f"{folder}/c", logs, "-q", "--workers", "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    left = [str(file) for file in Path(folder).rglob("*.tmp-*")]
    told.append([done.returncode, done.stderr, left])
subprocess.run(["cp", "-r", f"{folder}/c", target], check=True)
print(json.dumps(told))
"""


@pytest.mark.slow
def test_a_full_disk_is_named_and_the_run_goes_on_when_there_is_room(logs, tmp_path):
    folder = tmp_path / "small"
    folder.mkdir()
    if (
        shutil.which("unshare") is None
        or subprocess.run(
            ["unshare", "-rm", "mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)],
            capture_output=True,
            check=False,
        ).returncode
    ):
        pytest.skip("this machine lets nobody mount a small disk")
    given = [str(folder), str(logs), str(tmp_path / "copy"), "128k,400k,64m"]
    program = ["unshare", "-rm", sys.executable, "-c", SCRIPT, *given]
    done = subprocess.run(program, capture_output=True, text=True, check=True, timeout=300)
    first, second, last = json.loads(done.stdout)
    for code, said, left in (first, second):
        assert code == 1
        assert "the disk is full" in said
        assert "Traceback" not in said
        assert left == []
    assert last[0] == 0, last[1]
    command = [sys.executable, "-P", "-m", "jobs.cli", "run", "-C", str(tmp_path / "roomy"), str(logs), "-q"]
    subprocess.run([*command, "--workers", "0"], capture_output=True, check=True, timeout=120)
    assert live(tmp_path / "copy") == live(tmp_path / "roomy")
