"""llama.cpp's own OpenAI-compatible server, asked for embeddings, with small real weights in a process of its own."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

_CODE = """
import sys, xllamacpp
params = xllamacpp.CommonParams()
params.model.path = sys.argv[1]
params.model_alias = {"smollm2"}
params.embedding, params.pooling_type = True, xllamacpp.llama_pooling_type.LLAMA_POOLING_TYPE_MEAN
params.n_ctx, params.n_batch, params.n_ubatch, params.n_parallel = 256, 128, 128, 2
params.verbosity, params.warmup = -1, False
params.cpuparams.n_threads = 1
params.hostnames = ["127.0.0.1"]
server = xllamacpp.Server(params)
print("listening", server.listening_address, flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def running(model: Path) -> Iterator[str]:
    """Serve the embeddings of a GGUF file, texts of up to 128 tokens; give the address, and end the server."""
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
