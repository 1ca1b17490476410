"""Ids, shards, fingerprints."""

import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.ids import content_hash, escape_id, fingerprint, nearest, shard_name, shard_of


def test_shard_of_is_xxh64_modulo_shards():
    assert shard_of("conv-26", 64) == xxhash.xxh64(b"conv-26").intdigest() % 64
    assert shard_name(12, 64) == "00012-of-00064"


def test_fingerprint_ignores_key_order_only():
    assert fingerprint({"a": 1, "b": [1, 2]}) == fingerprint({"b": [1, 2], "a": 1})
    assert fingerprint({"a": [1, 2]}) != fingerprint({"a": [2, 1]})
    assert len(fingerprint(None)) == 32


def test_content_hash_keeps_borders():
    assert content_hash(["ab", "c"]) != content_hash(["a", "bc"])
    assert content_hash(["a", ""]) != content_hash(["a"])


@settings(deadline=None, max_examples=200)
@given(st.text(max_size=100), st.text(max_size=100))
def test_escaped_ids_are_safe_path_segments_and_distinct(one, two):
    safe = escape_id(one)
    assert safe
    assert safe not in (".", "..")
    assert all(c.isascii() and (c.isalnum() or c in "-_.") for c in safe)
    assert len(safe) <= 100
    if one != two:
        assert escape_id(one).lower() != escape_id(two).lower()


def test_escape_examples():
    assert escape_id("conv-26") == "conv-26"
    assert escape_id("../../etc/passwd").startswith("______etc_passwd.")
    assert escape_id("A") != escape_id("a")
    assert escape_id("") != ""


def test_nearest():
    assert nearest("adaptivgraph", ["bm25", "adaptivegraph"]) == "adaptivegraph"
    assert nearest("zzz", ["bm25"]) is None
