r"""Words of many texts at once, as exact numbers.

A text's tokens are ``re.findall(r"\w+", text.lower())`` in Python's sense of lower case and of ``\w``, with one
addition: scripts that put no space between words (Han, Hiragana, Katakana, Thai, Lao, Khmer, Myanmar) would make one
token of a whole sentence, so each of their word characters is a token of its own.

The work is done on the UTF-8 bytes in blocks of whole documents. Code points are decoded only where a byte is not
ASCII, and only texts with a character whose lower case depends on its neighbours (Greek sigma) or has another
length in UTF-8 (such as the dotted capital I) go through `str.lower`. A token of up to eight bytes is one unsigned
integer, which hashes far faster than a string; longer tokens are numbered among themselves first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]
Int32s = npt.NDArray[np.int32]
Keys = npt.NDArray[np.uint64]

VERSION = 1
"""Raised whenever the same text gives other tokens."""

UNSPACED = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x1000, 0x109F),  # Myanmar
    (0x1780, 0x17FF),  # Khmer
    (0x3005, 0x3007),  # Han iteration mark, closing mark, zero
    (0x3021, 0x3029),  # Hangzhou numerals
    (0x3031, 0x3035),  # Kana repeat marks
    (0x3038, 0x303C),  # Hangzhou numerals, iteration marks
    (0x3041, 0x30FF),  # Hiragana, Katakana
    (0x31F0, 0x31FF),  # Katakana extensions
    (0x3400, 0x4DBF),  # Han extension A
    (0x4E00, 0x9FFF),  # Han
    (0xA9E0, 0xA9FF),  # Myanmar extended B
    (0xAA60, 0xAA7F),  # Myanmar extended A
    (0xF900, 0xFAFF),  # Han compatibility
    (0xFF66, 0xFF9F),  # Katakana, half width
    (0x1AFF0, 0x1B16F),  # Kana supplements
    (0x20000, 0x3FFFF),  # Han extensions B and later
)
"""Inclusive code point ranges of the scripts whose characters are tokens of their own."""

_OWN = "".join(f"{chr(low)}-{chr(high)}" for low, high in UNSPACED)
_TOKEN = re.compile(rf"(?=\w)[{_OWN}]|[^\W{_OWN}]+")

_BLOCK = 1 << 18
_ASCII = bytes(
    ord(chr(i).lower()) if i < 128 and (chr(i).isalnum() or chr(i) == "_") else 0 if i < 128 else i for i in range(256)
)
"""ASCII: word bytes in lower case, all others zero. Other bytes stay."""

_PAD = b"\0" * 9
_MASKS = np.array([(1 << (8 * i)) - 1 for i in range(9)], dtype=np.uint64)
_LONG = np.uint64(0xFF << 56)
"""Marks a key as the number of a long token; UTF-8 has no byte 0xFF."""

_SEPARATOR, _WORD, _ALONE, _CONTEXT = 1, 2, 3, 4


@dataclass(frozen=True)
class Tokens:
    """Tokens of documents as numbers.

    Attributes:
        ids: (tokens,) int32, each token's place in `terms`, in order of the text.
        offsets: (documents + 1,) int64, where each document's tokens begin in `ids`.
        terms: (distinct tokens,) Arrow strings in order of first appearance.
    """

    ids: Int32s
    offsets: Ints
    terms: pa.Array


def tokenize_one(text: str) -> list[str]:
    """Return the tokens of one text, in order (see the module's definition)."""
    return _TOKEN.findall(text.lower())


def tokenize(texts: pa.ChunkedArray | pa.Array) -> Tokens:
    """Return the tokens of many texts.

    Args:
        texts: Strings or large strings, in any number of chunks, of any total size. A null is an empty text.

    Returns:
        The tokens; each text's are those of `tokenize_one`.
    """
    characters = _Characters()
    keys: list[Keys] = []
    ends: list[Ints] = []
    long_at: list[Ints] = []
    long_tokens: list[pa.Array] = []
    total = 0
    for data, offsets in _blocks(texts):
        padded, bounds = _words(data, offsets, characters)
        edges, stops = bounds
        starts = edges[0::2]
        lengths = edges[1::2] - starts
        # The word of eight bytes at every position, past the one byte of padding in front.
        words = np.ndarray((len(padded) - 8,), dtype="<u8", buffer=padded, offset=1, strides=(1,))
        key = words[starts]
        key &= _MASKS.take(lengths, mode="clip")
        long = np.flatnonzero(lengths > 8)
        if len(long):
            # Offsets start, end, start, end ... make every second element a token.
            spans = pa.Array.from_buffers(
                pa.large_binary(), len(edges) - 1, [None, pa.py_buffer(edges), pa.py_buffer(padded[1:])]
            )
            long_tokens.append(spans.take(pa.array(2 * long)))
            long_at.append(long + total)
        keys.append(key)
        ends.append(stops + total)
        total += len(key)
    offsets = np.concatenate([np.zeros(1, dtype=np.int64), *ends])
    key = np.concatenate(keys) if keys else np.zeros(0, dtype=np.uint64)
    del keys
    long_terms = pa.array([], pa.string())
    if long_tokens:
        encoded = _encode(pa.chunked_array(long_tokens))
        long_terms = encoded.dictionary.cast(pa.string())
        key[np.concatenate(long_at)] = _LONG | encoded.indices.to_numpy().astype(np.uint64)
    encoded = _encode(pa.chunked_array([pa.array(key)]))
    ids: Int32s = encoded.indices.to_numpy()
    return Tokens(ids, offsets, _terms(encoded.dictionary.to_numpy(), long_terms))


def _encode(values: pa.ChunkedArray) -> pa.DictionaryArray:
    encoded = values.dictionary_encode().combine_chunks()
    return encoded.chunk(0) if isinstance(encoded, pa.ChunkedArray) else encoded


def _terms(keys: Keys, long_terms: pa.Array) -> pa.Array:
    """Return the strings of distinct keys."""
    long = np.flatnonzero(keys >= _LONG)
    letters = keys.astype("<u8").view(np.uint8).reshape(-1, 8)
    held = letters != 0
    held[long] = False
    offsets = np.zeros(len(keys) + 1, dtype=np.int32)
    np.cumsum(held.sum(axis=1), out=offsets[1:])
    short = pa.Array.from_buffers(pa.string(), len(keys), [None, pa.py_buffer(offsets), pa.py_buffer(letters[held])])
    if not len(long):
        return short
    place = np.arange(len(keys))
    place[long] = len(keys) + (keys[long] ^ _LONG).astype(np.int64)
    return pa.concat_arrays([short, long_terms]).take(pa.array(place))


def _blocks(texts: pa.ChunkedArray | pa.Array) -> Iterator[tuple[bytes, Ints]]:
    """Yield the bytes of consecutive whole documents, with where each begins and the last one ends."""
    chunks = texts.chunks if isinstance(texts, pa.ChunkedArray) else [texts]
    for chunk in chunks:
        filled = chunk.fill_null("") if chunk.null_count else chunk
        kind: Any = np.int64 if pa.types.is_large_string(filled.type) else np.int32
        _, places, content = filled.buffers()
        count = len(filled)
        if not count:
            continue
        size = np.dtype(kind).itemsize
        ends = np.frombuffer(places, kind, count + 1, filled.offset * size).astype(np.int64)
        data = memoryview(content) if content is not None else memoryview(b"")
        first = 0
        while first < count:
            last = int(np.searchsorted(ends, ends[first] + _BLOCK, side="right")) - 1
            last = min(max(last, first + 1), count)
            yield bytes(data[ends[first] : ends[last]]), ends[first : last + 1] - ends[first]
            first = last


def _words(data: bytes, offsets: Ints, characters: _Characters) -> tuple[Bytes, tuple[Ints, Ints]]:
    """Lower a block and find its tokens.

    Returns:
        The block in lower case with zeros for separators, one byte of padding before it and eight behind; the starts
        and ends of the tokens, alternating; and per document the number of tokens up to its end.
    """
    padded = np.frombuffer(bytearray(b"".join((_PAD[:1], data, _PAD[1:]))).translate(_ASCII), dtype=np.uint8)
    breaks = offsets[1:-1]
    if not data.isascii():
        alone = _mark(padded, characters)
        if alone is None:
            data, offsets = _lowered(data, offsets, characters)
            return _words(data, offsets, characters)
        breaks = np.concatenate([breaks, alone]) if len(alone) else breaks
    word = padded != 0
    edges = np.flatnonzero(word[1:] != word[:-1])
    inside = np.unique(breaks[word[breaks] & word[breaks + 1]])
    if len(inside):
        edges = np.insert(edges, np.searchsorted(edges, inside).repeat(2), inside.repeat(2))
    stops = (np.searchsorted(edges, offsets[1:]) + 1) // 2
    return padded, (edges, stops)


def _mark(padded: Bytes, characters: _Characters) -> Ints | None:
    """Lower the characters that are not ASCII and blank out separators, in place.

    Returns:
        Where tokens of one character begin and end; or None where a text needs `str.lower`.
    """
    at, width, points = _decode(padded)
    kinds = characters.kinds(points)
    if (kinds == _CONTEXT).any():
        return None
    lower = characters.lower[points]
    for size in (2, 3, 4):
        mine = width == size
        gone = at[mine & (kinds == _SEPARATOR)]
        changed = np.flatnonzero(mine & (lower != points))
        where, point = at[changed], lower[changed]
        for i in range(size):
            padded[gone + i] = 0
            lead = 0 if i else (0, 0, 0xC0, 0xE0, 0xF0)[size]
            bits = point >> (6 * (size - 1 - i))
            padded[where + i] = (bits & 0x3F) | 0x80 if i else bits | lead
    alone = np.flatnonzero(kinds == _ALONE)
    begin = at[alone] - 1
    return np.concatenate([begin, begin + width[alone]])


def _decode(padded: Bytes) -> tuple[Ints, Ints, Ints]:
    """Return place, width and code point of every character that is not ASCII."""
    at = np.flatnonzero(padded >= 0xC0)
    lead = padded[at]
    width = 2 + (lead >= 0xE0).astype(np.int64) + (lead >= 0xF0)
    points = lead & np.array([0, 0, 0x1F, 0x0F, 0x07], dtype=np.int64)[width]
    for i in (1, 2, 3):
        more = width > i
        points[more] = (points[more] << 6) | (padded[at[more] + i] & 0x3F)
    return at, width, points


def _lowered(data: bytes, offsets: Ints, characters: _Characters) -> tuple[bytes, Ints]:
    """Put the documents that need it through `str.lower`."""
    at, _, points = _decode(np.frombuffer(data, dtype=np.uint8))
    hard = at[characters.kinds(points) == _CONTEXT]
    documents = np.unique(np.searchsorted(offsets, hard, side="right") - 1)
    parts = [data[start:end] for start, end in pairwise(offsets.tolist())]
    for i in documents.tolist():
        parts[i] = parts[i].decode("utf-8").lower().encode("utf-8")
    lengths = np.array([len(part) for part in parts], dtype=np.int64)
    return b"".join(parts), np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths)])


class _Characters:
    """What Python says about the code points met so far."""

    def __init__(self) -> None:
        self._kind = np.zeros(0x110000, dtype=np.int8)
        self.lower = np.zeros(0x110000, dtype=np.int32)

    def kinds(self, points: Ints) -> npt.NDArray[np.int8]:
        """Return the kind of every code point; afterwards `lower` knows them too."""
        kinds = self._kind[points]
        unknown = points[kinds == 0]
        if not len(unknown):
            return kinds
        for point in np.unique(unknown).tolist():
            self._kind[point], self.lower[point] = _classify(chr(point))
        return self._kind[points]


def _classify(character: str) -> tuple[int, int]:
    """Return the kind of a character and its lower case (itself where its kind is _CONTEXT)."""
    lower = character.lower()
    if character == "Σ" or len(lower) > 1 or len(lower.encode()) != len(character.encode()):
        return _CONTEXT, ord(character)
    if not lower.isalnum():
        return _SEPARATOR, ord(character)
    point = ord(lower)
    alone = any(low <= point <= high for low, high in UNSPACED)
    return (_ALONE if alone else _WORD), point
