"""A memory on S3: whatever becomes of answers, each interaction that `remember` took is there once."""

import json
from datetime import datetime

import pytest
import s3fs

from pipelines.storage import Storage
from tagloom import Memory

AT = datetime(2024, 5, 1)


def told(uri):
    lines = Storage(uri).read("memory/me.jsonl").splitlines()
    return [json.loads(line)["messages"][0]["content"] for line in lines]


@pytest.mark.parametrize("text", ["I sold my bike.", "I adopted a cat."])
@pytest.mark.parametrize("before", [[], ["I live in Bern."]])
def test_another_adds_before_a_put(place, text, before):
    """Also the very same: the other's line must not be taken for one's own."""
    uri, _ = place
    mine, other = Memory(f"{uri}/c", "me"), Memory(f"{uri}/c", "me")
    for line in before:
        mine.remember(line)
    remote = mine._store.storage.remote
    swap = remote.swap

    def late(*args):
        remote.swap = swap
        other.remember(text, at=AT, session="s")
        return swap(*args)

    remote.swap = late
    mine.remember("I adopted a cat.", at=AT, session="s")
    assert told(f"{uri}/c") == [*before, text, "I adopted a cat."]
    assert len(mine) == len(before) + 2


@pytest.mark.parametrize("before", [[], ["I live in Bern."]])
def test_another_adds_to_a_put_whose_answer_was_lost(place, before):
    """The put is made again, by whichever library, and refused; what was told is there all the same, and once."""
    uri, proxy = place
    mine = Memory(f"{uri}/c", "me")
    for line in before:
        mine.remember(line)
    log = f"{uri.removeprefix('s3://')}/c/memory/me.jsonl"
    direct = s3fs.S3FileSystem(endpoint_url=proxy.target, use_listings_cache=False)
    puts = []

    def faults(number, method, path):
        if method != "PUT" or "memory/me.jsonl" not in path:
            return None
        puts.append(path)
        if len(puts) == 2:
            data = direct.cat_file(log)
            line = json.loads(data.splitlines()[-1]) | {"entry": "another's"}
            direct.pipe_file(log, data + json.dumps(line).encode() + b"\n")
        return "lost" if len(puts) == 1 else None

    proxy.faults = faults
    mine.remember("I adopted a cat.", at=AT, session="s")
    assert len(puts) == 2
    assert told(f"{uri}/c") == [*before, "I adopted a cat.", "I adopted a cat."]


def test_a_log_that_is_empty_takes_what_is_told(place):
    uri, _ = place
    with Memory(f"{uri}/c", "me", wait=0.0) as memory:
        Storage(f"{uri}/c").write("memory/me.jsonl", b"")
        memory.remember("I adopted a cat.")
    assert told(f"{uri}/c") == ["I adopted a cat."]
