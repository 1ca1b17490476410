"""What the images do, done in a plain environment: the wheel that they make, installed alone, and their commands."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import venv
from pathlib import Path

import pytest
import yaml

from jobs.cluster_package import build_wheel
from tests.infra.texts import INFRA, ROOT, dockerfile, documents, in_context, walk
from tests.pipelines.corpora import live, run

LIBRARIES = Path(sys.prefix) / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"


def environment(**more: str) -> dict[str, str]:
    """A container's: nothing of this shell but what a process needs; the image's own variables."""
    (own,) = [step.value for step in dockerfile("cpu") if step.name == "ENV"]
    return {
        "HOME": os.environ.get("HOME", "/"),
        "LANG": "C.UTF-8",
        **dict(one.split("=") for one in own.split()),
        **more,
    }


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """The wheel, made by the image's own instruction from what the builder is sent."""
    source, target = tmp_path_factory.mktemp("context"), tmp_path_factory.mktemp("wheel")
    for top in ("schemas", "transforms", "indexers", "pipelines", "jobs", "tagloom.py", "pyproject.toml", "docs"):
        for path in [ROOT / top] if (ROOT / top).is_file() else (ROOT / top).rglob("*"):
            name = str(path.relative_to(ROOT))
            if path.is_file() and in_context(name):
                (source / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, source / name)
    (line,) = [step.value for step in dockerfile("cpu") if step.name == "RUN" and "build_wheel" in step.value]
    line = line.replace("/opt/tagloom", str(target)).replace("python ", f"{sys.executable} ", 1)
    bare = {"HOME": os.environ.get("HOME", "/"), "PATH": os.environ["PATH"]}
    subprocess.run(["sh", "-c", line], cwd=source, env=bare, check=True)
    (made,) = target.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def image(wheel, tmp_path_factory) -> Path:
    """An environment with the wheel, and with the libraries that this one has."""
    folder = tmp_path_factory.mktemp("image")
    venv.create(folder, with_pip=False)
    site = folder / "lib" / LIBRARIES.parent.name / "site-packages"
    (site / "libraries.pth").write_text(f"{LIBRARIES}\n")
    python = str(folder / "bin" / "python")
    install = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-index", "--no-deps"]
    subprocess.run([*install, "--disable-pip-version-check", str(wheel)], check=True)
    return folder / "bin"


@pytest.fixture
def home(tmp_path) -> Path:
    """A folder to start in, whose packages have the names of ours."""
    for package in ("schemas", "transforms", "indexers", "pipelines", "jobs"):
        (tmp_path / "home" / package).mkdir(parents=True)
        (tmp_path / "home" / package / "__init__.py").write_text("raise RuntimeError('the wrong package')\n")
    return tmp_path / "home"


def call(image: Path, home: Path, *command: str, **more: str) -> str:
    bare = environment(PATH=f"{image}:/usr/bin:/bin", **more)
    done = subprocess.run(command, cwd=home, env=bare, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_wheel_is_the_one_that_submit_sends(wheel, tmp_path):
    assert wheel.read_bytes() == build_wheel(tmp_path).read_bytes()


def test_the_entry_point(image, home):
    (entry,) = [json.loads(step.value) for step in dockerfile("cpu") if step.name == "ENTRYPOINT"]
    command = [str(image / entry[0]), *entry[1:]]
    where = "import jobs, pipelines; print(jobs.__file__, pipelines.__file__)"
    installed = call(image, home, str(image / "python"), "-c", where).split()
    assert all(Path(path).is_relative_to(image.parent) for path in installed)
    assert call(image, home, *command, "--version").startswith("tagloom 0.1.0")
    assert "s3fs" in call(image, home, *command, "doctor")


def test_a_run(image, home, logs, tmp_path):
    (entry,) = [json.loads(step.value) for step in dockerfile("cpu") if step.name == "ENTRYPOINT"]
    command = [str(image / entry[0]), *entry[1:], "run", "-C", str(tmp_path / "c"), str(logs), "--preset", "bm25"]
    call(image, home, *command, "--workers", "0", "--set", "evaluate.resamples=200")
    run(tmp_path / "plain", logs, **{"rank.presets": ["bm25"]})
    assert live(tmp_path / "c") == live(tmp_path / "plain")


@pytest.mark.slow
def test_the_dataflow_template_runs_tagloom(image, home, logs, tmp_path):
    settings = "{evaluate: {resamples: 200}, rank: {presets: [bm25]}, compute: {workers: 0}}"
    program = str(INFRA / "dataflow" / "main.py")
    options = ["--corpus", str(tmp_path / "c"), "--inputs", str(logs), "--settings", settings]
    call(image, home, "python", program, *options, "--runner=FnApiRunner")
    run(tmp_path / "plain", logs, **{"rank.presets": ["bm25"]})
    assert live(tmp_path / "c") == live(tmp_path / "plain")


@pytest.mark.slow
def test_the_dataflow_template_tells_of_a_run_that_fails(image, home, tmp_path):
    options = ["--corpus", str(tmp_path / "c"), "--inputs", str(tmp_path / "nowhere"), "--runner=FnApiRunner"]
    bare = environment(PATH=f"{image}:/usr/bin:/bin")
    command = ["python", str(INFRA / "dataflow" / "main.py"), *options]
    done = subprocess.run(command, cwd=home, env=bare, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "tagloom run ended with code 1" in done.stderr and "nowhere" in done.stderr


@pytest.mark.slow
def test_flinks_sidecar_works_for_beam(image, home, logs, tmp_path):
    """The worker pool beside Flink's task managers, asked by Beam's own job server instead of Flink's."""
    documented = [one for document in documents(INFRA / "flink" / "deployment.yaml") for one in walk(document)]
    (sidecar,) = [one["command"] for one in documented if isinstance(one, dict) and one.get("name") == "beam-worker"]
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
    pool = [str(INFRA / "beam" / Path(sidecar[0]).name), str(port)]
    bare = environment(PATH=f"{image}:/usr/bin:/bin")
    log = tmp_path / "pool.log"
    with log.open("wb") as sink, subprocess.Popen(pool, cwd=home, env=bare, stdout=sink, stderr=sink) as process:
        try:
            _until_open(port, process)
            call(
                *(image, home, str(image / "tagloom"), "ingest", "-C", str(tmp_path / "c"), str(logs)),
                *("--beam.runner=PortableRunner", "--beam.job_endpoint=embed", "--beam.environment_type=EXTERNAL"),
                f"--beam.environment_config=localhost:{port}",
            )
        finally:
            process.terminate()
    assert "Starting worker with command" in log.read_text()
    run(tmp_path / "plain", logs, stages=())
    assert live(tmp_path / "c") == live(tmp_path / "plain")


def _until_open(port: int, process: subprocess.Popen) -> None:
    for _ in range(600):
        assert process.poll() is None
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise AssertionError("the worker pool does not listen")


@pytest.mark.slow
def test_the_ray_job_works_on_a_cluster(image, logs, tmp_path):
    """What KubeRay hands to Ray's job API: entry point and variables of job.yaml, with the code of the image alone."""
    from ray.job_submission import JobSubmissionClient

    from tests.integration.cluster import cluster

    (job,) = [one["spec"] for one in documents(INFRA / "kuberay" / "job.yaml") if one["kind"] == "RayJob"]
    (settings,) = [one["data"] for one in documents(INFRA / "kuberay" / "job.yaml") if one["kind"] == "ConfigMap"]
    config = yaml.safe_load(settings["run.yaml"])
    config |= {"corpus": str(tmp_path / "c"), "inputs": [str(logs)], "evaluate": {"resamples": 200}}
    config["compute"] = {"workers": 1, "metrics": "127.0.0.1:0"}
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(config))
    entry = job["entrypoint"].replace("/etc/tagloom/run.yaml", str(tmp_path / "run.yaml"))
    # KubeRay's containers find the image's Python as `python`.
    with cluster(1, environment={"PATH": f"{image}:{os.environ['PATH']}"}) as there:
        headers = {"Authorization": f"Bearer {there.environment['RAY_AUTH_TOKEN']}"}
        client = JobSubmissionClient(there.dashboard, headers=headers)
        client.submit_job(
            entrypoint=entry,
            submission_id=job["jobId"],
            runtime_env=yaml.safe_load(job["runtimeEnvYAML"]),
            metadata=job["metadata"],
        )
        for _ in range(1200):
            if (status := client.get_job_status(job["jobId"])).is_terminal():
                break
            time.sleep(0.1)
        assert status == "SUCCEEDED", client.get_job_logs(job["jobId"])
    run(tmp_path / "plain", logs, **{"rank.presets": ["bm25", "adaptivegraph"]})
    assert live(tmp_path / "c") == live(tmp_path / "plain")
