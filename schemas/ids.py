"""Ids, shards and fingerprints.

A fingerprint is the BLAKE2b-128 digest (32 hex digits) of canonical JSON: sorted keys, no spaces, UTF-8.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

import xxhash


def canonical_json(value: Any) -> bytes:
    """Serialise plain data so that equal values give equal bytes."""
    import orjson

    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


def fingerprint(value: Any) -> str:
    """Return the fingerprint of plain data (dicts, lists, strings, numbers, booleans, None)."""
    return hashlib.blake2b(canonical_json(value), digest_size=16).hexdigest()


def shard_of(case_id: str, shards: int) -> int:
    """Return the shard of a case: ``xxh64(case_id) mod shards`` (seed 0, UTF-8)."""
    return xxhash.xxh64_intdigest(case_id.encode("utf-8")) % shards


def shard_name(shard: int, shards: int) -> str:
    """Return the folder name of a shard, such as ``00012-of-00064``."""
    return f"{shard:05d}-of-{shards:05d}"


def content_hash(parts: Iterable[str]) -> str:
    """Return the xxh3-128 digest (32 hex digits) of strings, each ended by a byte that UTF-8 never holds."""
    digest = xxhash.xxh3_128()
    for part in parts:
        digest.update(part.encode("utf-8", "surrogatepass"))
        digest.update(b"\xff")
    return digest.hexdigest()


_SAFE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")


def escape_id(text: str, limit: int = 80) -> str:
    """Make an id safe as one path segment; distinct ids stay distinct, also where case is folded.

    Ids of lower-case ASCII letters, digits, ``-`` and ``_`` up to ``limit`` characters stay as they are. Every
    other id keeps a readable stem (other characters become ``_``) and gains ``.`` and its xxh64 digest.
    """
    stem = "".join(c if c in _SAFE else "_" for c in text[:limit])
    if stem == text and text and text == text.lower():
        return stem
    return f"{stem}.{xxhash.xxh64_hexdigest(text.encode('utf-8', 'surrogatepass'))}"


def nearest(word: str, choices: Sequence[str]) -> str | None:
    """Return the choice that ``word`` was most likely meant to be, or None when none is close."""
    import difflib

    found = difflib.get_close_matches(word, choices, n=1, cutoff=0.6)
    return found[0] if found else None
