"""A command that is told to end does so in order: what was answered is kept, and the message says how to go on."""

import signal
import subprocess
import sys

import pytest

from tests.engines.stub_server import running
from tests.pipelines.corpora import run


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_run_that_is_told_to_end_keeps_what_was_answered(logs, tmp_path, number, code):
    with running("--delay", "0.05") as server:
        settings = {"extract.extractor": "openai", "extract.model": "stub", "extract.options.base_url": server.base_url}
        given = [item for key, value in settings.items() for item in ("--set", f"{key}={value}")]
        command = [sys.executable, "-m", "jobs.cli", "run", "-C", str(tmp_path / "c"), str(logs), "-q", *given]
        with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as process:
            while server.stats()["requests"] < 20:
                assert process.poll() is None
            process.send_signal(number)
            _, err = process.communicate(timeout=60)
        assert (process.returncode, err) == (
            code, "tagloom: stopped; finished parts stay, the same command goes on from there\n",
        )  # fmt: skip
        run(tmp_path / "c", logs, **settings, **{"rank.presets": ["bm25-raw"]})
        assert server.stats()["requests"] <= 120 + 6, "only what was in flight is asked again"


def test_a_connection_that_breaks_inside_is_no_closed_output():
    code = (
        "import jobs.commands as commands; from jobs.cli import main\n"
        "def doctor(**_): raise BrokenPipeError(32, 'Broken pipe')\n"
        "commands.doctor = doctor; main(['doctor'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("tagloom: a connection broke: [Errno 32] Broken pipe\n")


def test_output_that_nobody_reads_is_no_failure():
    command = [sys.executable, "-m", "jobs.cli", "doctor", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert (process.wait(60), process.stderr.read()) == (0, b"")
