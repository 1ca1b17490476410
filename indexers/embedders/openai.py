"""Embedder ``openai``: any endpoint that speaks OpenAI's embeddings, over HTTP.

Retries follow Brooker, "Exponential Backoff And Jitter" (AWS Architecture Blog, 2015): full jitter. Unlike those of a
local model, a text's vector may differ in its last digits with the texts beside it, as the server pleases.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, field_validator

from indexers.embedders import EmbedderError, Purpose, missing_library
from indexers.embedders._http import WORD, Client
from indexers.embedders._rows import Rows, asked, spread, unit
from schemas.errors import ConfigError
from transforms.engines._endpoint import PUBLIC, Address, base_of, key_of

NAME = "openai"
VERSION = 1

_OURS = {"model", "input", "dimensions", "encoding_format"}
_CHUNK = 4096  # texts whose vectors are awaited together


class Options(BaseModel):
    """Options of the embedder ``openai``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    base_url: Address | None = Field(
        None, description=f"Address before /embeddings; none takes OPENAI_BASE_URL, else {PUBLIC}"
    )
    key_env: str = Field(
        "OPENAI_API_KEY", pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", description="Environment variable that holds the key"
    )
    dimensions: int | None = Field(
        None, ge=1, le=65_536, description="Dimensions to ask for, of models that can give fewer; none sends nothing"
    )
    query_prefix: str = Field("", description="Text put before questions")
    document_prefix: str = Field("", description="Text put before documents")
    batch: int = Field(32, ge=1, le=2048, description="Texts of one request at most")
    concurrency: int = Field(8, ge=1, le=1024, description="Requests in flight at most")
    timeout: float = Field(120, gt=0, le=86_400, description="Seconds that one attempt may take")
    patience: float = Field(
        600, gt=0, le=604_800, description="Seconds without any usable answer to anybody until the run stops"
    )
    extra_body: dict[str, Any] = Field(default_factory=dict, description="Further fields of each request")

    @field_validator("extra_body")
    @classmethod
    def _fields(cls, value: dict[str, Any]) -> dict[str, Any]:
        if taken := sorted(_OURS & value.keys()):
            raise ValueError(f"{', '.join(taken)} cannot be set here")
        return value


def identity(model: str | None, options: Options) -> dict[str, Any]:
    """Return what vectors depend on.

    Raises:
        ConfigError: No model is named.
    """
    return {
        "model": _named(model),
        "dimensions": options.dimensions,
        "query_prefix": options.query_prefix,
        "document_prefix": options.document_prefix,
        "extra_body": options.extra_body,
    }


def located(model: str | None) -> str | None:
    """Return the model's name, which is the same everywhere."""
    return model


def open(model: str | None, options: Options) -> Remote:
    """Make ready; nothing is sent yet.

    Raises:
        ConfigError: No model is named, or the address in the environment is not valid.
        EmbedderError: The key cannot be sent.
        MissingDependencyError: aiohttp is not installed.
    """
    try:
        import aiohttp  # noqa: F401
    except ModuleNotFoundError as error:
        raise missing_library(NAME, error, "pip install aiohttp") from error
    name, base = _named(model), base_of(options.base_url)
    key = key_of(options.key_env, EmbedderError)
    fields = {"model": name} | ({} if options.dimensions is None else {"dimensions": options.dimensions})
    return Remote(base, key, fields | options.extra_body, options)


def _named(model: str | None) -> str:
    if not model:
        raise ConfigError(
            f"embedder '{NAME}' needs the name of a model",
            where="embed.model",
            remedy="Example: --set embed.model=text-embedding-3-small, or the name that the endpoint's /models gives.",
        )
    return model


class Remote:
    """An endpoint; see indexers.embedders.Embedder. It works in a thread of its own, so that any caller may wait."""

    def __init__(self, base: str, key: str, fields: Mapping[str, Any], options: Options) -> None:
        import asyncio

        self.prefixes: dict[Purpose, str] = {"document": options.document_prefix, "query": options.query_prefix}
        self._client = Client(base, key, fields, options)
        self.counts: Mapping[str, int] = self._client.counts
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="embeddings", daemon=True)
        self._thread.start()

    def embed(self, texts: Sequence[str], purpose: Purpose) -> Rows:
        """Return the vectors of texts. One that is too long is sent anew with half of its end cut off."""
        import asyncio

        places, kept = asked(texts, self.prefixes[purpose])
        # Only an answer tells how many dimensions there are.
        sent = kept if kept or self._client.width else [WORD]
        parts = []
        for low in range(0, len(sent), _CHUNK):
            work = asyncio.run_coroutine_threadsafe(self._client.vectors(sent[low : low + _CHUNK]), self._loop)
            try:
                parts.append(unit(work.result()))
            finally:
                work.cancel()
        rows = np.concatenate(parts) if kept else np.zeros((0, self._client.width), np.float32)
        return spread(rows, places, len(texts))

    def close(self) -> None:
        """End the connections and the thread."""
        import asyncio

        if self._thread.is_alive():
            asyncio.run_coroutine_threadsafe(self._client.close(), self._loop).result(10)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(10)
            self._loop.close()
