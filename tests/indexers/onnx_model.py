"""A transformer's folder small enough for a test: an ONNX graph that looks tokens up, written field by field.

The format is that of onnx.proto; a number is a varint, everything else goes with its length before it.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import orjson
from tokenizers import Tokenizer, models, pre_tokenizers

WORDS = ("[PAD]", "[UNK]", "red", "green", "blue", "q:", "d:")
TABLE = np.array([[9, 9], [0, 0], [1, 0], [0, 1], [-1, 0], [0, 8], [8, 0]], np.float32)
"""Vectors of the words."""


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def _field(number: int, value: int | str | bytes) -> bytes:
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    data = value.encode() if isinstance(value, str) else value
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _value(name: str, kind: int, *shape: str | int) -> bytes:
    dims = b"".join(_field(1, _field(1, size) if isinstance(size, int) else _field(2, size)) for size in shape)
    return _field(1, name) + _field(2, _field(1, _field(1, kind) + _field(2, dims)))


def graph(*inputs: str, output: str = "last_hidden_state", kind: int = 7) -> bytes:
    """Return a model that gives the vector of each of `input_ids`; the other inputs lead nowhere.

    Args:
        inputs: Names of the inputs, (batch, tokens) each.
        output: Name of the output.
        kind: Type of the inputs by onnx.proto: 7 is int64, 6 int32.
    """
    float32 = 1
    node = _field(1, "table") + _field(1, inputs[0]) + _field(2, output) + _field(4, "Gather")
    table = b"".join(_field(1, size) for size in TABLE.shape) + _field(2, float32) + _field(8, "table")
    body = _field(1, node) + _field(2, "lookup") + _field(5, table + _field(9, TABLE.tobytes()))
    body += b"".join(_field(11, _value(name, kind, "batch", "tokens")) for name in inputs)
    body += _field(12, _value(output, float32, "batch", "tokens", TABLE.shape[1]))
    return _field(1, 8) + _field(7, body) + _field(8, _field(1, "") + _field(2, 13))


def write(folder: Path, model: bytes, place: str = "model.onnx", **settings: object) -> str:
    """Write a folder with the model, a tokenizer of `WORDS`, and settings files by the name of their stem."""
    (folder / place).parent.mkdir(parents=True, exist_ok=True)
    (folder / place).write_bytes(model)
    tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.enable_padding(length=128)
    tokenizer.enable_truncation(128)
    tokenizer.save(str(folder / "tokenizer.json"))
    for name, value in settings.items():
        path = folder / f"{name}.json" if name != "pooling" else folder / "1_Pooling" / "config.json"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(orjson.dumps(value))
    return str(folder)
