"""Embedder ``sentence_transformers``: any model that the library of that name loads (Reimers, Gurevych, EMNLP 2019)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from indexers.embedders import EmbedderError, Purpose, missing_library
from indexers.embedders._passes import passes
from indexers.embedders._rows import LETTERS, Rows, asked, folder_of, prefixes, spread, unit
from schemas.errors import ConfigError
from transforms.engines._files import folder_hash

NAME = "sentence_transformers"
VERSION = 1

_INSTALL = "pip install 'tagloom[sentence-transformers]'"
_LIBRARIES = ("sentence-transformers", "transformers", "torch")
_LEAST = 6  # processing_kwargs, by which padding is set
_CHUNK = 1024  # texts whose tokens are held at once
_UNKNOWN = 8192  # tokens of a text, of a model that names no limit
_UNUSED = ("onnx/*", "openvino/*", "coreml/*", "*.onnx", "*.h5", "*.msgpack", "*.ot", "*.gguf")


class Options(BaseModel):
    """Options of the embedder."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    query_prefix: str | None = Field(None, description="Text put before questions; none takes the model's own")
    document_prefix: str | None = Field(None, description="Text put before documents; none takes the model's own")
    batch: int = Field(256, ge=16, le=1_000_000, description="Tokens that go through the model at once; GPUs like more")
    device: str = Field(
        "cpu", pattern=r"^(cpu|mps|(cuda|xpu)(:\d+)?)$", description="Where it computes: cpu, cuda, cuda:1, mps, xpu"
    )
    revision: str | None = Field(None, description="Revision of a model of the hub; none takes the main one")
    download: bool = Field(False, description="Fetch the model from the hub where this machine lacks it")


def identity(model: str | None, options: Options) -> dict[str, Any]:
    """Return what vectors depend on; of a local folder its content, of a model of the hub its commit.

    Raises:
        ConfigError: No model is named, or it cannot be found.
        MissingDependencyError: The library is not installed.
    """
    folder, named = _folder(model, options)
    try:
        versions = {library: version(library) for library in _LIBRARIES}
    except PackageNotFoundError as error:
        raise missing_library(NAME, ModuleNotFoundError(name=str(error.name)), _INSTALL) from error
    return {
        "model": {"name": model, "commit": folder.name} if named else {"content": folder_hash(folder)},
        "versions": versions,
        "query_prefix": options.query_prefix,
        "document_prefix": options.document_prefix,
        # Both change the last bits.
        "batch": options.batch,
        "device": options.device,
    }


def located(model: str | None) -> str | None:
    """Return the absolute path of a folder; the name of a model stays as it is."""
    folder = folder_of(model) if model else None
    return str(folder.absolute()) if folder else model


def open(model: str | None, options: Options) -> Encoder:
    """Load the model.

    Raises:
        ConfigError: No model is named, or it cannot be found.
        EmbedderError: It cannot be loaded.
        MissingDependencyError: The library is not installed.
    """
    folder, _ = _folder(model, options)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    try:
        from sentence_transformers import SentenceTransformer

        logging: Any = import_module("transformers.utils.logging")
    except ModuleNotFoundError as error:
        raise missing_library(NAME, error, _INSTALL) from error
    loud = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        loaded = SentenceTransformer(str(folder), device=options.device, local_files_only=True).float().eval()
        return Encoder(loaded, options)
    except Exception as error:  # as many kinds as there are kinds of damage
        raise EmbedderError(
            f"the model cannot be used: {type(error).__name__}: {error}"[:600],
            where=str(folder),
            remedy=f"Name a folder of sentence-transformers, of which this needs version {_LEAST} or later, and a "
            "device that this machine has.",
        ) from None
    finally:
        if loud:
            logging.enable_progress_bar()


def _folder(model: str | None, options: Options) -> tuple[Path, bool]:
    """Return the model's folder, and whether the hub has it under the name."""
    if not model:
        raise ConfigError(
            f"embedder '{NAME}' needs a model",
            where="embed.model",
            remedy="Name a folder, or a model of the hub such as sentence-transformers/all-MiniLM-L6-v2.",
        )
    if folder := folder_of(model):
        return folder, False
    lacking = ConfigError(
        f"there is no folder '{model[:200]}', and no model of that name on this machine",
        where="embed.model",
        remedy="Name a folder, or add --set embed.options.download=true to fetch it from the hub.",
    )
    try:
        from huggingface_hub import snapshot_download
    except ModuleNotFoundError as error:
        raise missing_library(NAME, error, _INSTALL) from error
    try:
        found = snapshot_download(
            model if "/" in model else f"sentence-transformers/{model}",
            revision=options.revision,
            local_files_only=not options.download,
            ignore_patterns=list(_UNUSED),
        )
    except Exception as error:  # names that are none, no network, no such model, no right to it
        if not options.download:
            raise lacking from None
        raise ConfigError(
            f"the model '{model[:200]}' cannot be fetched: {type(error).__name__}: {error}"[:600],
            where="embed.model",
            remedy="Check the name and the network, or name a folder.",
        ) from None
    return Path(found), True


class Encoder:
    """A loaded model; see indexers.embedders.Embedder."""

    def __init__(self, model: Any, options: Options) -> None:
        own = prefixes(options.query_prefix, options.document_prefix, model.prompts, model.default_prompt_name)
        # Models with a part for each purpose take equal texts in two ways.
        parted = any(type(module).__name__ == "Router" for module in model)
        self.prefixes: dict[Purpose, str] = {p: f"{p}: {text}" if parted else text for p, text in own.items()}
        self.counts: dict[str, int] = {}
        self._model, self._prompts, self._tokens = model, own, options.batch
        self._limit = int(min(model.max_seq_length or _UNKNOWN, _UNKNOWN))
        self._width = self._chunk(["."], "query").shape[1]

    def embed(self, texts: Sequence[str], purpose: Purpose) -> Rows:
        """Return the vectors of texts; what goes beyond the model's length is cut off, as the library does."""
        # The library puts the prefix in front: some models take it as a message of its own, or leave it out of means.
        places, kept = asked(texts, "")
        kept = [text[: LETTERS * self._limit] for text in kept]
        order = sorted(range(len(kept)), key=lambda place: len(kept[place]))
        rows = np.empty((len(kept), self._width), np.float32)
        for low in range(0, len(order), _CHUNK):
            some = order[low : low + _CHUNK]
            rows[some] = unit(self._chunk([kept[place] for place in some], purpose))
        return spread(rows, places, len(texts))

    def close(self) -> None:
        """Let go of the model."""
        self._model = None

    def _chunk(self, texts: list[str], purpose: Purpose) -> Rows:
        fixed: dict[str, Any] = {"prompt": self._prompts[purpose], "task": purpose}
        mask = self._model.preprocess(texts, **fixed).get("attention_mask")
        encode = partial(self._model.encode, show_progress_bar=False, **fixed)
        if mask is None:  # no transformer, no padding
            alone: Rows = encode(texts, batch_size=1)
            return alone
        lengths = np.minimum(mask.sum(dim=1).numpy().astype(np.int64), self._limit)
        done = list(passes(lengths, self._limit, self._tokens))
        found = []
        for one in done:
            padded = {"text": {"padding": "max_length", "max_length": one.length}}
            some = [texts[row] for row in one.rows]
            found.append(encode(some, batch_size=len(some), processing_kwargs=padded)[: one.real])
        rows: Rows = np.empty((len(texts), found[0].shape[1]), np.float32)
        rows[np.concatenate([one.rows[: one.real] for one in done])] = np.concatenate(found)
        return rows
