"""The engine `vllm`, as far as it goes without vLLM; ``make test-vllm`` runs the real one."""

import asyncio
import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from schemas.errors import ConfigError, MissingDependencyError
from transforms.engines import _guard, load, options_of, vllm
from transforms.engines._vllm_core import FAULT

ROOT = Path(__file__).resolve().parents[2]


def options(**given):
    return options_of(load("vllm"), given)


@pytest.fixture
def folder(tmp_path) -> Path:
    """A folder with a small file and one that is not read whole (17 MiB, all zeros)."""
    made = tmp_path / "model"
    made.mkdir()
    (made / "config.json").write_text("{}")
    with (made / "model.safetensors").open("wb") as file:
        file.truncate(17 << 20)
    return made


def write_at(path: Path, place: int) -> None:
    with path.open("r+b") as file:
        file.seek(place)
        file.write(b"x")


def test_identity_is_the_content_of_a_folder_wherever_it_lies(folder, tmp_path):
    first = vllm.identity(str(folder), options())
    moved = folder.rename(tmp_path / "elsewhere")
    (moved / ".cache").mkdir()
    (moved / ".cache" / "x").write_text("no part of the model")
    assert vllm.identity(str(moved), options()) == first
    assert str(moved) not in str(first)
    (moved / "config.json").write_text("[]")
    assert vllm.identity(str(moved), options()) != first


@pytest.mark.parametrize(("place", "seen"), [(0, True), (8 << 20, False), ((17 << 20) - 1, True)])
def test_of_a_large_file_the_ends_count(folder, place, seen):
    first = vllm.identity(str(folder), options())
    write_at(folder / "model.safetensors", place)
    os.utime(folder / "model.safetensors", ns=(1, 1))  # a change of time alone is no other model
    assert (vllm.identity(str(folder), options()) != first) is seen


def test_identity_holds_what_changes_replies_and_nothing_else():
    def changed(**given):
        return vllm.identity("org/name", options(**given)) != vllm.identity("org/name", options())

    same = [{"tensor_parallel": 2}, {"gpus": 0.5}, {"gpu_memory": 0.5}, {"max_sequences": 8}, {"cpu_kv_gb": 1}]
    other = [{"dtype": "float16"}, {"quantization": "fp8"}, {"revision": "v2"}, {"context_tokens": 4096}, {"seed": 1}]
    assert not any(changed(**given) for given in same)
    assert all(changed(**given) for given in [*other, {"guided": False}])
    assert vllm.identity("org/name", options())["model"] == {"name": "org/name", "revision": None}


@pytest.mark.parametrize(
    ("model", "told"),
    [
        (None, "needs a model"),
        ("/no/such/folder", "there is no folder"),
        ("./none", "there is no folder"),
        ("a/b/c", "there is no folder"),
        (__file__, "is a file"),
    ],
)
def test_a_model_that_cannot_be_is_told_before_anything_loads(model, told):
    with pytest.raises(ConfigError, match=told) as caught:
        vllm.identity(model, options())
    assert caught.value.where == "extract.model" and caught.value.remedy


@pytest.mark.parametrize(
    ("given", "gpus"),
    [({}, 1.0), ({"tensor_parallel": 4}, 4.0), ({"gpus": 0.25}, 0.25), ({"gpus": 0}, 0.0)],
)
def test_resources_on_a_gpu_build(monkeypatch, given, gpus):
    monkeypatch.setattr(vllm, "_cpu_build_here", lambda: False)
    needed = vllm.resources(options(**given))
    assert (needed.cpus, needed.gpus) == (1.0, gpus)
    assert needed.slots == (256 if gpus else 16)


def test_the_cpu_build_needs_no_gpu_unless_told(monkeypatch):
    monkeypatch.setattr(vllm, "_cpu_build_here", lambda: True)
    assert vllm.resources(options(tensor_parallel=2)).gpus == 0.0
    assert vllm.resources(options(gpus=1)).gpus == 1.0


@pytest.mark.parametrize("given", [{"gpus": 1.5}, {"gpus": 2}, {"gpus": 0.5, "tensor_parallel": 2}, {"dtype": "int3"}])
def test_options_that_do_not_fit_are_refused(given):
    with pytest.raises(ConfigError):
        options(**given)


def test_a_share_of_a_gpu_takes_that_share_of_its_memory():
    arguments, on_cpu = vllm._arguments("org/name", options(gpus=0.5, gpu_memory=0.8, cpu_kv_gb=0.5))
    assert arguments["gpu_memory_utilization"] == pytest.approx(0.4)
    assert arguments["max_num_seqs"] == 256 and on_cpu["max_num_seqs"] == 16
    assert on_cpu["kv_cache_memory_bytes"] == 1 << 29
    assert arguments["distributed_executor_backend"] is None
    assert vllm._arguments("org/name", options(tensor_parallel=2))[0]["distributed_executor_backend"] == "mp"


@pytest.mark.skipif(importlib.util.find_spec("vllm") is not None, reason="vLLM is installed here")
def test_without_vllm_the_error_tells_how_to_get_it(monkeypatch):
    monkeypatch.setattr(os, "environ", os.environ.copy())
    with pytest.raises(MissingDependencyError, match="pip install"):
        asyncio.run(vllm.start("org/name", options()))


def test_the_reason_of_a_failure_is_the_first_exception_that_was_logged():
    log = (
        "EngineCore failed to start.\nTraceback (most recent call last):\n  raise torch.OutOfMemoryError(x)\n"
        "torch.OutOfMemoryError: CUDA out of memory.\n\nThe above exception was the direct cause\n"
        "RuntimeError: Engine core initialization failed.\n"
    )
    assert FAULT.search(log).group(1) == "CUDA out of memory."
    assert FAULT.search("vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue.") is None


CALLER = """
import subprocess, sys
guard, folder = sys.argv[1:]
engine = subprocess.Popen(["bash", "-c", "exec -a VLLM::Engine sleep 600"])
other = subprocess.Popen(["sleep", "600"])
watch = subprocess.Popen([sys.executable, guard, "VLLM::", folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
watch.stdout.readline()
print(engine.pid, other.pid, watch.pid, flush=True)
sys.stdin.read()
"""


def test_engine_processes_end_with_a_caller_that_was_killed(tmp_path):
    folder = tmp_path / "logs"
    folder.mkdir()
    command = [sys.executable, "-c", CALLER, _guard.__file__, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as caller:
        engine, other, guard = (psutil.Process(int(pid)) for pid in caller.stdout.readline().split())
        try:
            assert engine.is_running()
            caller.send_signal(signal.SIGKILL)
            caller.wait()
            assert psutil.wait_procs([engine, guard], timeout=30)[1] == []
            assert other.is_running(), "only processes of that name are ended"
            assert not folder.exists()
        finally:
            for process in (engine, other, guard):
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()


def pins(name):
    lines = (ROOT / "infra" / name).read_text().splitlines()
    return dict(line.split("==") for line in lines if "==" in line)


def test_both_environments_pin_the_same_of_what_they_share():
    ours, theirs = pins("constraints.txt"), pins("vllm-requirements.txt")
    shared = ("ray", "pyarrow", "pydantic", "orjson", "xxhash", "zstandard", "fsspec", "json-repair", "filelock")
    assert {name: theirs[name] for name in shared} == {name: ours[name] for name in shared}
    assert not {"apache-beam", "polars", "scipy", "dateparser"} & theirs.keys(), "workers of extract do without"
