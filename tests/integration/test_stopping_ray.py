"""SIGTERM while Ray is at work ends a run in order: what workers are about to finish is finished and kept."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.integration.poison import Poison

TAGLOOM = str(Path(sys.executable).with_name("tagloom"))

pytestmark = pytest.mark.slow


def parts(corpus):
    return sorted((corpus / "tables" / "notes").rglob("*.parquet"))


def test_a_run_on_ray_that_is_told_to_end(logs, tmp_path):
    folder, corpus = tmp_path / "plugin", tmp_path / "c"
    folder.mkdir()
    poison = Poison(folder)
    poison.fail(seconds=1.0)
    command = [TAGLOOM, "run", "-C", str(corpus), str(logs), "-q", "--workers", "2", "--preset", "bm25"]
    command += ["--set", "extract.extractor=poisoned"]
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, env=environment
    ) as process:
        while not (folder / "tries").exists() and process.poll() is None:
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (
        143, "tagloom: stopped; finished parts stay, the same command goes on from there\n",
    )  # fmt: skip
    begun = {tuple(cases) for _, cases in poison.tries()}
    assert len(parts(corpus)) == len(begun) > 0, "what was at work was finished"
