"""Embedder ``onnx``: a transformer exported to ONNX, run by onnxruntime on the CPU in float32.

The model is a folder as the hub's are: ``model.onnx`` (also under ``onnx/``) and ``tokenizer.json``; the files of
sentence-transformers beside them tell length, pooling and prompts, else texts end at 512 tokens and a text's vector is
the mean of its tokens' (Reimers, Gurevych, EMNLP 2019, section 3).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
from pydantic import BaseModel, ConfigDict, Field

from indexers.embedders import EmbedderError, Purpose, missing_library
from indexers.embedders._passes import Pass, passes
from indexers.embedders._rows import LETTERS, Ints, Rows, asked, folder_of, prefixes, spread, unit
from schemas.errors import ConfigError, TagloomError
from transforms.engines._files import folder_hash

NAME = "onnx"
VERSION = 1

_INSTALL = "pip install 'tagloom[onnx]'"
_PLACES = ("model.onnx", "onnx/model.onnx")
_TOKENS = 512
_CHUNK = 1024  # texts whose tokens are held at once
_MODULES = ("Transformer", "Pooling", "Normalize")
_POOLING = {"mean": "mean", "mean_tokens": "mean", "cls": "cls", "cls_token": "cls", "lasttoken": "lasttoken"}
_TYPES = {"tensor(int64)": np.int64, "tensor(int32)": np.int32}


class Options(BaseModel):
    """Options of the embedder."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    query_prefix: str | None = Field(None, description="Text put before questions; none takes the model's own")
    document_prefix: str | None = Field(None, description="Text put before documents; none takes the model's own")
    batch: int = Field(256, ge=16, le=1_000_000, description="Tokens that go through the model at once")


def identity(model: str | None, options: Options) -> dict[str, Any]:
    """Return what vectors depend on.

    Raises:
        ConfigError: No model is named, or the folder lacks its files.
        MissingDependencyError: onnxruntime is not installed.
    """
    folder = _folder(model)
    try:
        runtime = version("onnxruntime")
    except PackageNotFoundError as error:
        raise missing_library(NAME, ModuleNotFoundError(name=str(error.name)), _INSTALL) from error
    return {
        "model": {"content": folder_hash(folder)},
        "versions": {"onnxruntime": runtime},
        "query_prefix": options.query_prefix,
        "document_prefix": options.document_prefix,
        "batch": options.batch,  # changes the last bits
    }


def located(model: str | None) -> str | None:
    """Return the absolute path of the folder."""
    folder = folder_of(model) if model else None
    return str(folder.absolute()) if folder else model


def open(model: str | None, options: Options) -> Session:
    """Load the model.

    Raises:
        ConfigError: No model is named, or the folder lacks its files or asks for what this embedder cannot do.
        EmbedderError: The files are damaged, or the model is none that embeds texts.
        MissingDependencyError: onnxruntime is not installed.
    """
    folder = _folder(model)
    try:
        import onnxruntime
        from tokenizers import Tokenizer
    except ModuleNotFoundError as error:
        raise missing_library(NAME, error, _INSTALL) from error
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    setup = onnxruntime.SessionOptions()
    setup.log_severity_level = 3
    setup.inter_op_num_threads = 1
    # Workers say with this variable how many cores they have; the library does not look at it.
    threads = os.environ.get("OMP_NUM_THREADS", "")
    setup.intra_op_num_threads = int(threads) if threads.isdecimal() else 0
    try:
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        session = onnxruntime.InferenceSession(str(_graph(folder)), setup, providers=["CPUExecutionProvider"])
        return Session(session, tokenizer, folder, options)
    except TagloomError:
        raise
    except Exception as error:  # the libraries name no common class
        raise EmbedderError(
            f"the model cannot be used: {type(error).__name__}: {error}"[:600],
            where=str(folder),
            remedy="Export or fetch it again.",
        ) from None


def _graph(folder: Path) -> Path | None:
    return next((folder / place for place in _PLACES if (folder / place).is_file()), None)


def _folder(model: str | None) -> Path:
    if not model:
        raise ConfigError(
            f"embedder '{NAME}' needs a model", where="embed.model", remedy="Name a folder that holds model.onnx."
        )
    remedy = "Name a folder with model.onnx (or onnx/model.onnx) and tokenizer.json."
    folder = folder_of(model)
    if folder is None:
        raise ConfigError(f"there is no folder '{model[:200]}'", where="embed.model", remedy=remedy)
    lacking = [] if _graph(folder) else ["model.onnx"]
    lacking += [] if (folder / "tokenizer.json").is_file() else ["tokenizer.json"]
    if lacking:
        raise ConfigError(f"the folder '{model}' has no {' and no '.join(lacking)}", where="embed.model", remedy=remedy)
    return folder


class Session:
    """A loaded model; see indexers.embedders.Embedder.

    Raises:
        ConfigError: The folder asks for a pooling or a module that this embedder lacks.
        EmbedderError: The model takes or gives something else than a transformer does.
    """

    def __init__(self, session: Any, tokenizer: Any, folder: Path, options: Options) -> None:
        self._limit = _limit(folder)
        tokenizer.no_padding()
        tokenizer.enable_truncation(self._limit)
        self._session, self._tokenizer = session, tokenizer
        self._inputs = {one.name: _TYPES.get(one.type) for one in session.get_inputs()}
        strange = sorted(self._inputs.keys() - {"input_ids", "attention_mask", "token_type_ids"})
        outputs = {one.name: len(one.shape) for one in session.get_outputs()}
        self._output = "sentence_embedding" if "sentence_embedding" in outputs else next(iter(outputs))
        if strange or "input_ids" not in self._inputs or outputs[self._output] not in (2, 3):
            raise EmbedderError(
                f"the model takes {', '.join(self._inputs)} and gives {', '.join(outputs)}",
                where=str(folder),
                remedy="Export it so that it takes input_ids, attention_mask (and token_type_ids) and gives the "
                "vectors of tokens (last_hidden_state) or of texts (sentence_embedding).",
            )
        self._pooling = _pooling(folder) if outputs[self._output] == 3 else ""
        told = _json(folder / "config_sentence_transformers.json")
        self.prefixes: dict[Purpose, str] = prefixes(
            options.query_prefix, options.document_prefix, told.get("prompts") or {}, told.get("default_prompt_name")
        )
        self.counts: dict[str, int] = {}
        self._tokens = options.batch
        self._width = self._chunk(["."]).shape[1]

    def embed(self, texts: Sequence[str], purpose: Purpose) -> Rows:
        """Return the vectors of texts; what goes beyond the model's length is cut off."""
        places, kept = asked(texts, self.prefixes[purpose])
        kept = [text[: LETTERS * self._limit] for text in kept]
        order = sorted(range(len(kept)), key=lambda place: len(kept[place]))
        rows = np.empty((len(kept), self._width), np.float32)
        for low in range(0, len(order), _CHUNK):
            some = order[low : low + _CHUNK]
            rows[some] = unit(self._chunk([kept[place] for place in some]))
        return spread(rows, places, len(texts))

    def close(self) -> None:
        """Let go of the model."""
        self._session = None

    def _chunk(self, texts: list[str]) -> npt.NDArray[Any]:
        ids = [encoding.ids or [0] for encoding in self._tokenizer.encode_batch_fast(texts)]
        lengths = np.array([len(some) for some in ids], np.int64)
        done = list(passes(lengths, self._limit, self._tokens))
        found = np.concatenate([self._run(ids, lengths, one)[: one.real] for one in done])
        rows = np.empty_like(found)
        rows[np.concatenate([one.rows[: one.real] for one in done])] = found
        return rows

    def _run(self, ids: list[list[int]], lengths: Ints, one: Pass) -> npt.NDArray[Any]:
        tokens = np.zeros((len(one.rows), one.length), np.int64)
        mask = np.arange(one.length) < lengths[one.rows, None]
        tokens[mask] = np.concatenate([ids[row] for row in one.rows])
        feed = {"input_ids": tokens, "attention_mask": mask, "token_type_ids": np.zeros_like(tokens)}
        wanted = {name: feed[name].astype(kind or np.int64) for name, kind in self._inputs.items()}
        (found,) = self._session.run([self._output], wanted)
        if self._pooling == "cls":
            found = found[:, 0]
        elif self._pooling == "lasttoken":
            found = found[np.arange(len(found)), lengths[one.rows] - 1]
        elif self._pooling == "mean":
            found = (found * mask[:, :, None]).sum(axis=1, dtype=np.float64)
        return np.asarray(found, np.float64)


def _json(path: Path) -> Mapping[str, Any]:
    """Return what a settings file says; nothing where there is none.

    Raises:
        ConfigError: It is damaged.
    """
    if not path.is_file():
        return {}
    try:
        value = orjson.loads(path.read_bytes())
    except ValueError as error:
        raise ConfigError(f"this is no JSON: {error}", where=str(path), remedy="Fetch the model again.") from None
    return value if isinstance(value, dict) else {"modules": value}


def _limit(folder: Path) -> int:
    told = (
        _json(folder / "sentence_bert_config.json").get("max_seq_length"),
        _json(folder / "tokenizer_config.json").get("model_max_length"),
        _json(folder / "config.json").get("max_position_embeddings"),
    )
    # Tokenizers write a number beyond all reason where they know of no limit.
    known = [int(limit) for limit in told if isinstance(limit, int | float) and 0 < limit < 1_000_000]
    return min(known, default=_TOKENS)


def _pooling(folder: Path) -> str:
    """Return how the vectors of tokens become one: mean, cls or lasttoken.

    Raises:
        ConfigError: It is something else, or not all.
    """
    modules = _json(folder / "modules.json").get("modules", [])
    further = [str(module["type"]).rpartition(".")[2] for module in modules if isinstance(module, dict)]
    told = _json(folder / "1_Pooling" / "config.json")
    on = [key.removeprefix("pooling_mode_") for key, value in told.items() if value is True and key.startswith("pool")]
    mode = str(told.get("pooling_mode") or "+".join(on) or "mean")
    wrong = [name for name in further if name not in _MODULES] + ([] if mode in _POOLING else [mode])
    if wrong:
        raise ConfigError(
            f"the model needs {', '.join(wrong)}, which this embedder cannot do",
            where=str(folder),
            remedy="Use the embedder sentence_transformers.",
        )
    return _POOLING[mode]
