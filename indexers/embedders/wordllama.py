"""Embedder ``wordllama``: static vectors of 256 dimensions that the library of that name ships; offline.

A text's vector is the sum of its tokens' vectors (token embeddings of Llama-type models, reduced; Miller, WordLlama,
2024), scaled to unit length. The library's own class is not used: it may download, sets up logging, and pads texts
to the longest beside them.

The table holds float16 numbers below 16, which are multiples of 2**-24, so sums of up to 2**25 tokens are exact in
float64: neither the order of tokens nor the texts beside one can change a bit.
"""

from __future__ import annotations

import importlib.util
import os
import re
from array import array
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import scipy
import xxhash
from pydantic import BaseModel, ConfigDict

from indexers.embedders import EmbedderError, Purpose, missing_library
from indexers.embedders._rows import Floats, Ints, Rows, asked, spread, unit
from schemas.errors import ConfigError, MissingDependencyError

NAME = "wordllama"
VERSION = 1

MODEL = "l2_supercat_256"
"""The weights that the library's wheel holds."""

_WEIGHTS, _TOKENIZER = "weights/l2_supercat_256.safetensors", "tokenizers/l2_supercat_tokenizer_config.json"
_INSTALL = "pip install wordllama"
_BLOCK = 500_000  # characters worked on at once
_RUN = 4_000  # characters without a space that the tokenizer gets at once: its memory is some 180 times theirs
_REMEMBERED, _LONG = 200_000, 48  # words whose tokens are kept, and the bytes that such a word has at most


class Options(BaseModel):
    """The embedder ``wordllama`` has no options."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def identity(model: str | None, options: Options) -> dict[str, Any]:
    """Return what vectors depend on.

    Raises:
        ConfigError: Another model than `MODEL` is named.
        MissingDependencyError: The library is not installed.
    """
    return {"model": MODEL, "files": [_digest(str(path), path.stat().st_mtime_ns) for path in _files(model)]}


def located(model: str | None) -> str | None:
    """Return the model's name, which is the same everywhere."""
    return model


def open(model: str | None, options: Options) -> Static:
    """Load the table and the tokenizer.

    Raises:
        ConfigError: Another model than `MODEL` is named.
        EmbedderError: The files are damaged.
        MissingDependencyError: The library is not installed.
    """
    weights, words = _files(model)
    # Forked workers would be warned of the library's threads; one text is too small a piece for them anyhow.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    try:
        from safetensors.numpy import load_file
        from tokenizers import Tokenizer
    except ModuleNotFoundError as error:
        raise missing_library(NAME, error, _INSTALL) from error
    try:
        tokenizer = Tokenizer.from_file(str(words))
        (table,) = load_file(weights).values()
    except Exception as error:  # the libraries name no common class
        raise EmbedderError(
            f"the files of the model cannot be read: {error}",
            where=str(weights.parent.parent),
            remedy=f"Run: pip install --force-reinstall {NAME}",
        ) from None
    return Static(tokenizer, table)


def _files(model: str | None) -> tuple[Path, Path]:
    if model not in (None, MODEL):
        raise ConfigError(
            f"embedder '{NAME}' has no model '{model}'", where="embed.model", remedy=f"Leave it out, or say {MODEL}."
        )
    found = importlib.util.find_spec(NAME)
    for folder in (found.submodule_search_locations or []) if found else []:
        paths = Path(folder, _WEIGHTS), Path(folder, _TOKENIZER)
        if all(path.is_file() for path in paths):
            return paths
    raise MissingDependencyError(
        f"embedder '{NAME}' needs the library '{NAME}' with the weights {MODEL}",
        where="embed.embedder",
        remedy=f"Run: {_INSTALL}",
    )


@lru_cache(maxsize=8)
def _digest(path: str, changed: int) -> str:
    return xxhash.xxh3_128_hexdigest(Path(path).read_bytes())


class Static:
    """Static vectors; see indexers.embedders.Embedder.

    Args:
        tokenizer: Tokenizer whose tokens never cross from another character to a space (as Llama 2's).
        table: (tokens, dimensions) float16.
    """

    def __init__(self, tokenizer: Any, table: npt.NDArray[np.float16]) -> None:
        self.prefixes: dict[Purpose, str] = {"document": "", "query": ""}
        self.counts: dict[str, int] = {}
        tokenizer.encode_special_tokens = True  # a text that holds "</s>" means these four characters
        self._tokenizer, self._table = tokenizer, table
        self._tokens_of: dict[bytes, array[int]] = {}

    def embed(self, texts: Sequence[str], purpose: Purpose) -> Rows:
        """Return the vectors of texts; blanks around a text do not count."""
        places, kept = asked(texts, "")
        kept = [_spaced(text) for text in kept]
        rows = np.zeros((len(kept), self._table.shape[1]), np.float32)
        for low, high in _blocks([len(text) for text in kept]):
            rows[low:high] = unit(self._sums(kept[low:high]))
        return spread(rows, places, len(texts))

    def close(self) -> None:
        """Free the memory of words."""
        self._tokens_of.clear()

    def _sums(self, texts: list[str]) -> Floats:
        """Return the sum of the tokens' vectors of each text."""
        words, word, starts = _words(texts)
        tokens = self._tokens(words)
        ends = np.cumsum([len(ids) for ids in tokens])
        ids = np.fromiter(chain.from_iterable(tokens), np.int32, int(ends[-1]))
        used = np.zeros(len(self._table), np.bool_)
        used[ids] = True
        column = np.cumsum(used, dtype=np.int32)[ids] - 1
        spelled = _ones(column, np.append(0, ends), int(used.sum()))
        vectors: Floats = spelled @ self._table[used].astype(np.float64)
        sums: Floats = _ones(word, starts, len(words)) @ vectors
        return sums

    def _tokens(self, words: list[bytes]) -> list[array[int]]:
        known = self._tokens_of
        if len(known) > _REMEMBERED:
            known.clear()
        new = [word for word in words if word not in known]
        fresh: dict[bytes, array[int]] = {}
        for low, high in _blocks([len(word) for word in new]):
            some = [word.decode() for word in new[low:high]]
            found = self._tokenizer.encode_batch_fast(some, add_special_tokens=False)
            fresh.update(zip(new[low:high], (array("i", encoding.ids) for encoding in found), strict=True))
        tokens = [known[word] if word in known else fresh[word] for word in words]
        known.update((word, ids) for word, ids in fresh.items() if len(word) <= _LONG)
        return tokens


def _blocks(sizes: list[int]) -> Iterator[tuple[int, int]]:
    """Yield the bounds of blocks of neighbours that are together, unless one alone is larger, at most `_BLOCK`."""
    ends = np.cumsum(sizes)
    low = 0
    while low < len(sizes):
        before = ends[low - 1] if low else 0
        high = max(low + 1, int(np.searchsorted(ends, before + _BLOCK, side="right")))
        yield low, high
        low = high


def _spaced(text: str) -> str:
    """Return a text without blanks around it, with a space after each `_RUN` characters that have none."""
    text = text.replace("\u2581", " ").strip() or " "  # U+2581 is how the tokenizer writes a space
    if len(text) > _RUN and max(map(len, text.split(" "))) > _RUN:
        return re.sub(f"[^ ]{{{_RUN}}}", r"\g<0> ", text).rstrip()
    return text


def _words(texts: list[str]) -> tuple[list[bytes], Ints, Ints]:
    """Cut texts at the first space of every run of spaces; the space itself is left out.

    The tokenizer puts a space in front of what it is given, so that the tokens of the pieces are those of the text.

    Returns:
        The distinct pieces, the piece at every place, and (texts + 1,) where the pieces of each text begin.
    """
    joined = pa.array(texts, pa.large_string())
    offsets = np.frombuffer(joined.buffers()[1], np.int64, len(texts) + 1)
    data = joined.buffers()[2]
    space = np.frombuffer(data, np.uint8, offsets[-1]) == ord(" ")
    after = np.empty_like(space)
    after[1:] = space[:-1]
    after[offsets[:-1]] = True
    cuts = np.flatnonzero(space & ~after)
    # Start and end of every piece in turn: between two of them lie a space or nothing.
    edges = np.empty(2 * (len(cuts) + len(texts)), np.int64)
    edges[0::2] = np.sort(np.concatenate([offsets[:-1], cuts + 1]))
    edges[1::2] = np.sort(np.concatenate([offsets[1:], cuts]))
    spans = pa.Array.from_buffers(pa.large_binary(), len(edges) - 1, [None, pa.py_buffer(edges), data])
    coded = spans.dictionary_encode()
    piece = coded.indices.to_numpy()[0::2].astype(np.int64)
    starts = np.append(np.searchsorted(edges[0::2], offsets[:-1]), len(piece))
    return coded.dictionary.to_pylist(), piece, starts


def _ones(columns: npt.NDArray[Any], starts: Ints, width: int) -> scipy.sparse.csr_array:
    return scipy.sparse.csr_array((np.ones(len(columns)), columns, starts), shape=(len(starts) - 1, width))
