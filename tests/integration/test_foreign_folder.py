"""A run in a folder with its own `schemas/`, `jobs/` and so on works on every engine, with relative paths."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pipelines.corpora import live, run

TAGLOOM = str(Path(sys.executable).with_name("tagloom"))

pytestmark = pytest.mark.slow


@pytest.fixture
def foreign(tmp_path):
    folder = tmp_path / "project"
    for package in ("schemas", "transforms", "indexers", "pipelines", "jobs"):
        (folder / package).mkdir(parents=True)
        (folder / package / "__init__.py").write_text("raise RuntimeError('the wrong package was imported')\n")
    (folder / "tagloom.py").write_text("raise RuntimeError('the wrong module was imported')\n")
    return folder


@pytest.mark.parametrize(
    "options",
    [
        ["--workers", "2"],
        [
            "--workers",
            "0",
            "--beam.runner=DirectRunner",
            "--beam.direct_running_mode",
            "multi_processing",
            "--beam.direct_num_workers=2",
        ],
    ],
    ids=["ray", "beam-processes"],
)
def test_run_in_a_foreign_folder(foreign, logs, tmp_path, options):
    presets = [part for name in ("bm25", "bm25-raw", "taggraph-basic", "adaptivegraph") for part in ("--preset", name)]
    command = [TAGLOOM, "run", "-C", "../c", os.path.relpath(logs, foreign), *presets, *options]
    done = subprocess.run(
        [*command, "--set", "evaluate.resamples=200"], cwd=foreign, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "preset (interaction)" in done.stdout
    run(tmp_path / "plain", logs)
    assert live(tmp_path / "c") == live(tmp_path / "plain")
