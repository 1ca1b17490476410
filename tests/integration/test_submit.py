"""Runs that are submitted to a real cluster of two nodes: the same bytes and exit codes as here, whatever breaks."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from tests.engines.stub_server import running
from tests.integration.cluster import cluster
from tests.pipelines.corpora import PRESETS, live, run, session, write_lines

TAGLOOM = str(Path(sys.executable).with_name("tagloom"))
SETTINGS = ["--set", "evaluate.resamples=200", *(part for name in PRESETS for part in ("--preset", name))]
STUB = {"extract.extractor": "openai", "extract.model": "stub", "extract.options.concurrency": 2}
IN_FLIGHT = 16
"""Requests that may be under way when a run ends, over all workers."""
PATIENCE = 240.0


@pytest.fixture(scope="module")
def two():
    """A cluster of two nodes."""
    with cluster(head_cpus=1) as made:
        made.add_node(cpus=1)
        yield made


def tagloom(there, *arguments, cwd=None, **environment):
    """Run a command of a person at another desk, who has the cluster's address and token."""
    own = {**os.environ, **there.environment, "RAY_API_SERVER_ADDRESS": there.dashboard, **environment}
    done = subprocess.run(
        [TAGLOOM, *map(str, arguments)], cwd=cwd, env=own, capture_output=True, text=True, timeout=600, check=False
    )
    assert "Traceback" not in done.stdout + done.stderr
    return done


def submit(there, *arguments, **options):
    done = tagloom(there, "submit", *arguments, "--quiet", **options)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def jobs(there):
    return {job["id"]: job for job in json.loads(tagloom(there, "jobs", "--json").stdout)}


def until(holds):
    end = time.monotonic() + PATIENCE
    while not (found := holds()):
        assert time.monotonic() < end
        time.sleep(0.1)
    return found


def stubbed(server, workers=2, **more):
    settings = {**STUB, "extract.options.base_url": server.base_url, "evaluate.resamples": 200, **more}
    return [part for key, value in settings.items() for part in ("--set", f"{key}={value}")] + [
        *SETTINGS,
        "--workers",
        str(workers),
    ]


@pytest.fixture(scope="module")
def calm(logs, tmp_path_factory):
    """The tables of a quiet run here that asks the stub."""
    corpus = tmp_path_factory.mktemp("calm") / "c"
    with running() as server:
        run(corpus, logs, **STUB, **{"extract.options.base_url": server.base_url})
    return live(corpus)


@pytest.fixture
def foreign(tmp_path):
    """A folder with packages of Tagloom's names, which may neither be imported nor sent."""
    folder = tmp_path / "project"
    for package in ("schemas", "transforms", "indexers", "pipelines", "jobs"):
        (folder / package).mkdir(parents=True)
        (folder / package / "__init__.py").write_text("raise RuntimeError('the wrong package was imported')\n")
    (folder / "tagloom.py").write_text("raise RuntimeError('the wrong module was imported')\n")
    return folder


def test_a_submitted_run_gives_the_bytes_of_a_local_one(two, foreign, logs, tmp_path):
    """With its workers on both nodes, from a folder with its own `schemas/`, followed to its end."""
    given = ["submit", "-C", "../c", os.path.relpath(logs, foreign), *SETTINGS, "--workers", "2", "--follow"]
    done = tagloom(two, *given, cwd=foreign)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "preset (interaction)" in done.stdout and "6 cases, 120 interactions" in done.stdout
    assert " succeeded after " in done.stderr
    run(tmp_path / "plain", logs)
    assert live(tmp_path / "c") == live(tmp_path / "plain")
    wrong = tagloom(two, "jobs", RAY_AUTH_TOKEN="0" * 64)
    assert (wrong.returncode, wrong.stdout) == (1, "")
    assert "the token is not that of the cluster" in wrong.stderr and "0" * 64 not in wrong.stderr


@pytest.mark.slow
def test_a_run_that_was_stopped_goes_on_where_it_was(two, logs, tmp_path, calm):
    corpus = tmp_path / "c"
    with running("--delay", "1.5") as server:
        name = submit(two, "-C", corpus, logs, *stubbed(server))
        assert tagloom(two, "wait", name, "--timeout", "0").returncode == 124
        until(lambda: server.stats()["requests"] > 30)
        stopped = tagloom(two, "stop", name, "--wait")
        assert stopped.returncode == 0 and "was stopped after" in stopped.stderr
        answered = server.stats()["requests"]
    assert answered < 120
    assert tagloom(two, "wait", name).returncode == 143
    assert tagloom(two, "stop", name).stderr.endswith("had ended already (stopped)\n")
    (record,) = (corpus / "runs").glob("*.json")
    told = json.loads(record.read_text())
    assert (told["state"], told["submission"]) == ("stopped", name)
    assert jobs(two)[name]["exit_code"] == 143
    with running() as server:
        again = submit(two, "-C", corpus, logs, *stubbed(server))
        assert tagloom(two, "wait").returncode == 0, "no name means the latest run"
        assert jobs(two)[again]["state"] == "SUCCEEDED"
        assert server.stats()["requests"] <= 120 - answered + IN_FLIGHT, "what was answered is not asked again"
    assert live(corpus) == calm


@pytest.mark.slow
def test_a_run_whose_driver_was_killed_is_told_of_and_goes_on(two, logs, tmp_path, calm):
    corpus = tmp_path / "c"
    with running("--delay", "0.7") as server:
        given = ["-C", corpus, logs, *stubbed(server)]
        name = submit(two, *given)
        until(lambda: server.stats()["requests"] > 10)
        (driver,) = [
            process
            for process in psutil.process_iter(["cmdline", "environ"])
            if "jobs.cli" in (process.info["cmdline"] or ())
            and (process.info["environ"] or {}).get("TAGLOOM_SUBMISSION_ID") == name
        ]
        driver.send_signal(signal.SIGKILL)
        ended = tagloom(two, "wait", name)
        assert ended.returncode == 137 and "failed with exit code 137" in ended.stderr
        assert jobs(two)[name]["state"] == "FAILED"
        assert tagloom(two, "submit", *given, "--follow").returncode == 0
    assert live(corpus) == calm


@pytest.mark.slow
def test_the_exit_code_is_that_of_the_run(two, tmp_path):
    """Code 3: a rejected record where none may be; 2 and a signal: of a command that ends so."""
    log = write_lines(tmp_path / "a.jsonl", session("a", 1, "I have a cat.", "Nice."), {"case_id": 5})
    given = ["-C", tmp_path / "c", log, "--preset", "bm25", "--workers", "0", "--set", "evaluate.resamples=200"]
    many = tagloom(two, "submit", *given, "--set", "ingest.max_reject_share=0", "--follow")
    assert many.returncode == 3, many.stderr
    for body, code in (("exit 2", 2), ("kill -9 $$", 137)):
        script = tmp_path / f"python-{code}"
        script.write_text(f"#!/bin/sh\n{body}\n")
        script.chmod(0o755)
        assert tagloom(two, "wait", submit(two, *given, "--python", script)).returncode == code
    missing = tagloom(two, "submit", *given, "--python", tmp_path / "none", "--follow")
    assert missing.returncode == 127 and "not found" in missing.stdout


@pytest.mark.slow
def test_a_prompt_and_a_key_travel_and_the_key_is_shown_nowhere(two, logs, tmp_path):
    key = "sk-" + "7" * 40
    own = tmp_path / "own prompt.md"
    text = (Path(__file__).parents[2] / "transforms" / "prompts" / "notes.md").read_text()
    own.write_text(text.replace("Precision over recall.", "Precision over recall, always."))
    with running("--key", key) as server:
        given = ["-C", tmp_path / "c", logs, *stubbed(server, **{"extract.options.key_env": "STUB_KEY"})]
        given += ["--set", f"extract.prompt={own}", "--env", "STUB_KEY"]
        shown = tagloom(two, "submit", *given, "--dry-run", STUB_KEY=key)
        done = tagloom(two, "submit", *given, "--follow", STUB_KEY=key)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "STUB_KEY=(hidden)" in shown.stdout and key not in shown.stdout + done.stdout + done.stderr
        assert server.stats()["good"] == 120 and server.stats()["unauthorised"] == 0
    for path in (tmp_path / "c").rglob("*"):
        assert not path.is_file() or key.encode() not in path.read_bytes()
    assert list((tmp_path / "c" / "prompts").glob("own_prompt*.md"))


@contextmanager
def breaking(target):
    """A way to a server whose connections break when asked: yields its port, and what breaks them."""
    host, port = target.removeprefix("http://").split(":")
    listener = socket.create_server(("127.0.0.1", 0))
    pairs = []

    def carry(source, sink):
        with suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
        for one in (source, sink):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def accept():
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                server = socket.create_connection((host, int(port)))
                pairs.append((client, server))
                for pair in ((client, server), (server, client)):
                    threading.Thread(target=carry, args=pair, daemon=True).start()

    def cut():
        for pair in pairs[:]:
            for one in pair:
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
            pairs.remove(pair)

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", cut
    finally:
        listener.close()
        cut()


@pytest.mark.slow
def test_following_bears_connections_that_break(two, tmp_path, logs):
    """Every line once and in order, however often the way to the cluster breaks."""
    script = tmp_path / "python"
    script.write_text("#!/bin/sh\nfor n in $(seq 1 400); do echo line $n é; sleep 0.08; done\n")
    script.chmod(0o755)
    name = submit(two, "-C", tmp_path / "c", logs, "--python", script)
    own = {**os.environ, **two.environment}
    with breaking(two.dashboard) as (address, cut):
        command = [TAGLOOM, "logs", name, "-f", "--address", address]
        with subprocess.Popen(command, env=own, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            with subprocess.Popen(command, env=own, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as gone:
                assert gone.stdout.readline() and gone.stdout.close() is None
                assert gone.wait(PATIENCE) == 0, "nobody reads any more"
                assert gone.stderr.read() == b""
            for _ in range(8):
                time.sleep(1.5)
                cut()
            out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    lines = [line for line in out.splitlines() if line.startswith("line ")]
    assert lines == [f"line {n} é" for n in range(1, 401)]
    assert out == tagloom(two, "logs", name).stdout


@pytest.mark.slow
def test_a_lost_node_or_head_ends_the_run_and_a_new_cluster_goes_on(logs, tmp_path, calm):
    """The node that the run's own process is on goes away, and then the head, which knew of it."""
    corpus = tmp_path / "c"
    with cluster(head_cpus=0) as first, running("--delay", "1") as server:
        node = first.add_node(cpus=2)
        given = ["-C", corpus, logs, *stubbed(server, workers=1), "--driver-cpus", "1"]
        name = submit(first, *given)
        until(lambda: server.stats()["requests"] > 10)
        node.kill()
        ended = tagloom(first, "wait", name)
        assert ended.returncode == 1 and "died" in ended.stderr, ended.stderr
        assert "died" in jobs(first)[name]["reason"]
        first.kill_head()
        gone = tagloom(first, "jobs")
        assert gone.returncode == 1 and "does not answer" in gone.stderr
    with cluster(head_cpus=2) as second, running() as server:
        unknown = tagloom(second, "wait", "tagloom-main-20260101-000000-0000")
        assert unknown.returncode == 1 and "A cluster whose head was replaced" in unknown.stderr
        done = tagloom(second, "submit", "-C", corpus, logs, *stubbed(server), "--wait", "60", "--follow")
        assert done.returncode == 0, done.stdout + done.stderr
    assert live(corpus) == calm
