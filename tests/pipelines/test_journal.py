"""Replies are durable, served once each, and survive kills, rivals, damage and full disks."""

import asyncio
import json
import logging
import os
import random
import signal
import subprocess
import sys
import time
import uuid
from dataclasses import replace
from pathlib import Path

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines import journal as journals
from pipelines import journal_files as files
from pipelines.journal import Entry, Held, Journal, known
from pipelines.journal_entries import rows_of, stronger
from pipelines.meter import metering
from pipelines.storage import Storage
from schemas.errors import StoreError
from tests.pipelines.replies import entry, key

SHARD = "journal/extract/x/00003"


@pytest.fixture(params=["disk", "memory"])
def storage(request, tmp_path):
    if request.param == "disk":
        return Storage(str(tmp_path / "c"))
    return Storage(f"memory://{tmp_path.name}-{request.node.name}")


def opened(storage, **more):
    return Journal(storage, "x", 3, **more)


def keep(storage, *entries):
    """Write entries as one flush."""

    async def write():
        journal = opened(storage)
        for one in entries:
            journal.add(one)
        await journal.flush()

    asyncio.run(write())


def finish(storage):
    asyncio.run(opened(storage).finish())


def names(storage):
    return [path.removeprefix(f"{SHARD}/") for path, _ in storage.walk(SHARD)]


def rows(storage):
    return files.load(storage, SHARD)[0].to_pylist()


async def until(told):
    for _ in range(2000):
        if told():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it did not happen within ten seconds")


# -- what is found -----------------------------------------------------------------------------------------------


HOSTILE = ["", "\0", "a\0b", "<|im_end|>\r\n", "../../etc", "😀 é ￿", '{"a": "\\ud800"}', "x" * 1_000_000]


def test_entries_are_found_as_they_were_at_once_and_after_opening_anew(storage):
    entries = [entry(n, text=text, finish=text[:9], error=text[:9] or None) for n, text in enumerate(HOSTILE)]

    async def write():
        journal = opened(storage)
        assert journal.find(key(0), 0) is None
        for one in entries:
            journal.add(one)
            assert journal.find(one.key, 0) == one
        await journal.flush()
        assert [journal.find(one.key, 0) for one in entries] == entries

    asyncio.run(write())
    assert [opened(storage).find(one.key, 0) for one in entries] == entries
    finish(storage)
    assert [opened(storage).find(one.key, 0) for one in entries] == entries
    assert opened(storage).find(key(99), 0) is None
    assert opened(storage).find("short", 0) is None
    assert Journal(storage, "y", 3).find(key(0), 0) is None
    assert Journal(storage, "x", 4).find(key(0), 0) is None


def test_what_no_file_can_hold_is_replaced_before_it_is_served(storage):
    journal = opened(storage)
    journal.add(entry(1, text="a\ud800b", error="\udfff", prompt_tokens=-3, completion_tokens=10**30))
    wanted = entry(1, text="a\ufffdb", error="\ufffd", prompt_tokens=0, completion_tokens=2**31 - 1)
    assert journal.find(key(1), 0) == wanted
    asyncio.run(journal.flush())
    assert opened(storage).find(key(1), 0) == wanted


@pytest.mark.parametrize("wrong", [{"key": "k"}, {"key": "é" * 32}, {"kind": "ok"}])
def test_no_entry(wrong):
    with pytest.raises(ValueError, match="no entry of a journal"):
        opened(Storage("memory://none")).add(replace(entry(1), **wrong))


def test_a_corrupt_reply_is_kept_and_never_served(storage):
    journal = opened(storage)
    journal.add(entry(1, "corrupt", "first"))
    assert journal.find(key(1), 0) is None
    journal.add(entry(1, "corrupt", "last"))
    asyncio.run(journal.finish())
    assert opened(storage).find(key(1), 0) is None
    assert [(row["kind"], row["text"]) for row in rows(storage)] == [("corrupt", "last")]
    assert known(storage, "x", 3).num_rows == 0
    keep(storage, entry(1, text="good"), entry(1, "corrupt", "later"))
    finish(storage)
    assert opened(storage).find(key(1), 0) == entry(1, text="good")
    assert [(row["kind"], row["text"]) for row in rows(storage)] == [("reply", "good"), ("corrupt", "later")]


@pytest.mark.parametrize("anew", [False, True])
def test_verdicts_are_served_to_their_round_and_earlier_ones(storage, anew):
    journal = opened(storage)

    def served(round):
        if anew:
            asyncio.run(journal.flush())
        found = (opened(storage) if anew else journal).find(key(1), round)
        return found and (found.kind, found.round)

    journal.add(entry(1, "failed", "", round=1))
    assert [served(n) for n in range(3)] == [("failed", 1), ("failed", 1), None]
    journal.add(entry(1, "failed", "", round=0))
    assert [served(n) for n in range(3)] == [("failed", 1), ("failed", 1), None]
    journal.add(entry(1, "failed", "", round=2))
    assert [served(n) for n in range(4)] == [("failed", 2)] * 3 + [None]
    journal.add(entry(1, text="at last", round=1))
    assert [served(n) for n in range(4)] == [("reply", 1)] * 4
    journal.add(entry(1, "failed", "", round=9))
    assert [served(n) for n in range(4)] == [("reply", 1)] * 4


def test_that_a_request_is_too_long_is_served_to_every_round(storage):
    keep(storage, entry(1, "failed", "", round=3), entry(1, "long", ""), entry(2, "long", ""), entry(2))
    finish(storage)
    assert [opened(storage).find(key(n), 5).kind for n in (1, 2)] == ["long", "long"]


def test_the_first_of_several_replies_counts_however_files_are_cut():
    first, second = entry(1, text="first"), entry(1, text="second")
    lines = [(30, second), (10, first), (20, entry(2)), (40, entry(1, "corrupt", "c")), (35, entry(1, "failed"))]
    made = set()
    for order in ([0, 1, 2, 3, 4], [4, 3, 2, 1, 0], [2, 0, 3, 1, 4]):
        for cut in (1, 2, 4):
            storage = Storage(f"memory://{uuid.uuid4().hex}")
            for part in (order[:cut], order[cut:]):
                files.write_file(storage, SHARD, 0, rows_of([lines[n] for n in part]))
            assert opened(storage).find(key(1), 0) == first
            finish(storage)
            assert opened(storage).find(key(1), 0) == first
            made.add((tuple(names(storage)), storage.read(f"{SHARD}/{names(storage)[0]}")))
    assert len(made) == 1, "equal content gives equal bytes"
    assert key(1) < key(2)
    assert [(row["text"], row["kind"]) for row in rows(storage)] == [
        ("first", "reply"),
        ("c", "corrupt"),
        ("text 2", "reply"),
    ]


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.sampled_from(["flush", "finish", "reopen", "rival"]),
            st.tuples(
                st.integers(0, 3),
                st.sampled_from(["reply", "corrupt", "failed", "long"]),
                st.integers(0, 2),
                st.text(max_size=3),
            ),
        ),
        max_size=40,
    )
)
def test_any_history_equals_a_dict(history):
    storage = Storage(f"memory://{uuid.uuid4().hex}")
    model: dict[str, Entry] = {}
    corrupt: dict[str, Entry] = {}

    async def play():
        journal = opened(storage, flush_seconds=1000)
        for step in history:
            if step in ("reopen", "rival"):
                await journal.flush()
                journal = opened(storage, flush_seconds=1000)
                if step == "rival":
                    await opened(storage).finish()
            elif isinstance(step, str):
                await getattr(journal, step)()
            else:
                n, kind, round, text = step
                made = entry(n, kind, text, round=round)
                journal.add(made)
                if kind == "corrupt":
                    corrupt[made.key] = made
                else:
                    model[made.key] = stronger(model.get(made.key), made)
            for n in range(4):
                for round in range(3):
                    wanted = model.get(key(n))
                    if wanted is not None and wanted.kind == "failed" and wanted.round < round:
                        wanted = None
                    assert journal.find(key(n), round) == wanted
        await journal.finish()

    before = journals._FEW, files.FAN
    journals._FEW, files.FAN = 2, 3
    try:
        asyncio.run(play())
    finally:
        journals._FEW, files.FAN = before
    finish(storage)  # a journal that was left may have merged files meanwhile
    assert len(names(storage)) == (1 if model or corrupt else 0)
    kept = {(row["key"], row["kind"] == "corrupt"): row["text"] for row in rows(storage)}
    wanted = {(k, False): one.text for k, one in model.items()} | {(k, True): one.text for k, one in corrupt.items()}
    assert kept == wanted
    assert len(rows(storage)) == len(wanted)


# -- when it is written ------------------------------------------------------------------------------------------


def test_entries_are_written_in_the_background(storage):
    async def play():
        journal = opened(storage, flush_seconds=0.01)
        for n in range(3):
            journal.add(entry(n))
            await until(lambda: opened(storage).find(key(n), 0) == entry(n))  # noqa: B023

    asyncio.run(play())
    assert len(names(storage)) == 3


def test_entries_share_a_file(storage):
    async def play():
        journal = opened(storage, flush_seconds=3600)
        for n in range(100):
            journal.add(entry(n))
            await asyncio.sleep(0)
        assert names(storage) == []
        await journal.flush()
        await journal.flush()

    asyncio.run(play())
    assert [name[:6] for name in names(storage)] == ["0-100-"]
    assert known(storage, "x", 3).num_rows == 100


@pytest.mark.parametrize("seconds", [0.0, 3600.0])
def test_what_waits_when_the_event_loop_ends_is_written(storage, seconds):
    async def play():
        journal = opened(storage, flush_seconds=seconds)
        journal.add(entry(1))
        await asyncio.sleep(0)
        journal.add(entry(2))

    asyncio.run(play())
    assert {row["text"] for row in rows(storage)} == {"text 1", "text 2"}


def test_a_journal_outlives_an_event_loop(storage):
    journal = opened(storage, flush_seconds=0.01)

    async def play(n):
        journal.add(entry(n))
        await until(lambda: opened(storage).find(key(n), 0))

    for n in range(2):
        asyncio.run(play(n))
    asyncio.run(journal.finish())
    assert len(names(storage)) == 1


def test_finishing_again_changes_nothing(storage):
    keep(storage, entry(1))
    keep(storage, entry(2))
    finish(storage)
    (name,) = names(storage)
    data = storage.read(f"{SHARD}/{name}")
    finish(storage)
    assert names(storage) == [name]
    assert storage.read(f"{SHARD}/{name}") == data
    assert name.startswith("9-2-")
    finish(Storage(storage.uri + "-empty"))


def test_a_long_run_leaves_few_files(storage, monkeypatch):
    monkeypatch.setattr(files, "FAN", 6)

    async def play():
        journal = opened(storage)
        for n in range(5 * files.FAN):
            journal.add(entry(n))
            await journal.flush()
        await until(journal._upkeep.done)
        assert len(names(storage)) < 2 * files.FAN
        assert opened(storage).find(key(0), 0) == entry(0)
        await journal.finish()

    asyncio.run(play())
    assert len(names(storage)) == 1
    assert [opened(storage).find(key(n), 0) for n in range(5 * files.FAN)] == [entry(n) for n in range(5 * files.FAN)]


# -- kills and rivals --------------------------------------------------------------------------------------------

WRITER = """
import asyncio, sys, time
sys.path.insert(0, sys.argv[1])
from pipelines.journal import Journal
from pipelines.storage import Storage
from tests.pipelines.replies import entry, key

async def main(start):
    journal = Journal(Storage(sys.argv[2]), "x", 3, flush_seconds=0.02)
    journal.find(key(0), 0)
    print("ready", flush=True)
    while True:
        for n in range(start, start + 10):
            journal.add(entry(n))
        start += 10
        print(start, time.monotonic(), flush=True)
        await asyncio.sleep(0.005)

asyncio.run(main(int(sys.argv[3])))
"""
ROOT = str(Path(__file__).resolve().parents[2])
SLACK = 2.0
"""Seconds that a write may take on a busy machine."""


def test_kills_lose_a_moment_and_nothing_else(tmp_path):
    storage = Storage(str(tmp_path))
    rng = random.Random(5)
    start, durable = 0, set()
    for _ in range(2):
        command = [sys.executable, "-c", WRITER, ROOT, str(tmp_path), str(start)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout.readline() == "ready\n"
            deadline = time.monotonic() + SLACK + rng.uniform(0.3, 0.9)
            lines = [writer.stdout.readline()]
            while time.monotonic() < deadline:
                lines.append(writer.stdout.readline())
            killed = time.monotonic()
            os.kill(writer.pid, signal.SIGKILL)
            lines += writer.stdout.read().splitlines()[:-1]
        added = [(int(line.split()[0]), float(line.split()[1])) for line in lines]
        old = max(n for n, at in added if at < killed - SLACK)
        assert old > start, "the machine is too busy to tell"
        found = {row["key"]: row["text"] for row in rows(storage)}
        durable.update(range(start, old))
        assert all(found.get(key(n)) == f"text {n}" for n in durable)
        start = added[-1][0]
    assert known(storage, "x", 3).num_rows == len(found)
    assert not [name for name in names(storage) if name.endswith(".damaged")]
    finish(storage)
    assert {row["key"]: row["text"] for row in rows(storage)} == found
    assert sum(files.parse_name(name) is not None for name in names(storage)) == 1


@pytest.mark.parametrize("at", ["before", "after"])
def test_a_merge_that_is_killed_is_done_again(tmp_path, at):
    storage = Storage(str(tmp_path))
    for n in range(4):
        keep(storage, entry(n), entry(n + 1))
    where = {"before": "pathlib.Path.replace", "after": "Storage.remove"}[at]
    code = (
        "import asyncio, os, sys, pathlib\n"
        "from pipelines.journal import Journal\nfrom pipelines.storage import Storage\n"
        f"{where} = lambda *names: os.kill(os.getpid(), 9)\n"
        "asyncio.run(Journal(Storage(sys.argv[1]), 'x', 3).finish())"
    )
    killed = subprocess.run([sys.executable, "-c", code, str(tmp_path)], cwd=ROOT, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert sum(files.parse_name(name) is not None for name in names(storage)) == {"before": 4, "after": 5}[at]
    assert sorted(row["text"] for row in rows(storage)) == [f"text {n}" for n in range(5)]
    assert known(storage, "x", 3).num_rows == 5
    finish(storage)
    assert sorted(row["text"] for row in rows(storage)) == [f"text {n}" for n in range(5)]
    assert [name[:4] for name in names(storage) if files.parse_name(name)] == ["9-5-"]


def test_what_is_read_side_by_side_counts_for_who_asked(storage):
    for n in range(20):
        files.write_file(storage, SHARD, 0, rows_of([(n, entry(n))]))
    whole = sum(size for _, size in storage.walk(SHARD))
    with metering() as cost:
        started = time.perf_counter()
        files.load(storage, SHARD)
        seconds = time.perf_counter() - started
    assert cost.bytes_read == whole
    assert 0 < cost.reading <= seconds


def test_what_others_write_during_a_merge_stays(storage, monkeypatch):
    keep(storage, entry(1))
    keep(storage, entry(2))
    write = files.write_file

    def late(*args):
        monkeypatch.setattr(files, "write_file", write)
        keep(storage, entry(3))
        finish(storage)
        keep(storage, entry(4))
        return write(*args)

    monkeypatch.setattr(files, "write_file", late)
    finish(storage)
    assert sorted(row["text"] for row in rows(storage)) == [f"text {n}" for n in (1, 2, 3, 4)]
    finish(storage)
    assert len(names(storage)) == 1
    assert sorted(row["text"] for row in rows(storage)) == [f"text {n}" for n in (1, 2, 3, 4)]


@pytest.mark.parametrize("columns", [None, ["key", "kind", "round", "added_at"]])
def test_files_that_others_merge_while_they_are_read_are_found_merged(storage, monkeypatch, columns):
    for n in range(3):
        keep(storage, entry(n))
    listed = files.list_files

    def stale(*args):
        found = listed(*args)
        monkeypatch.setattr(files, "list_files", listed)
        finish(storage)
        return found

    monkeypatch.setattr(files, "list_files", stale)
    table, _ = files.load(storage, SHARD, columns)
    assert sorted(table["key"].to_pylist()) == sorted(key(n) for n in range(3))


def test_writers_side_by_side(tmp_path):
    code = (
        "import asyncio, sys\nsys.path.insert(0, sys.argv[1])\n"
        "from pipelines.journal import Journal\nfrom pipelines.storage import Storage\n"
        "from tests.pipelines.replies import entry\n"
        "async def main(start):\n"
        "    journal = Journal(Storage(sys.argv[2]), 'x', 3, flush_seconds=0.01)\n"
        "    for n in range(start, start + 300):\n"
        "        journal.add(entry(n, text=f'{n} by {start}'))\n"
        "        await asyncio.sleep(0)\n"
        "        if n % 75 == 0:\n"
        "            await journal.finish()\n"
        "    await journal.finish()\n"
        "asyncio.run(main(int(sys.argv[3])))"
    )
    storage = Storage(str(tmp_path))
    starts = (0, 150)
    writers = [subprocess.Popen([sys.executable, "-c", code, ROOT, str(tmp_path), str(start)]) for start in starts]
    assert [writer.wait() for writer in writers] == [0, 0]
    before = {row["key"]: row["text"] for row in rows(storage)}
    finish(storage)
    after = rows(storage)
    assert {row["key"]: row["text"] for row in after} == before
    assert [row["key"] for row in after] == sorted(key(n) for n in range(450))
    for n in range(450):
        assert before[key(n)] in {f"{n} by {start}" for start in starts if start <= n < start + 300}
    assert len(names(storage)) == 1


# -- damage and full disks ---------------------------------------------------------------------------------------


def flipped(data, place):
    return data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :]


DAMAGES = {
    "cut": lambda data: data[:-5],
    "empty": lambda data: b"",
    "not Parquet": lambda data: b"PAR1 nonsense PAR1",
    "a bit of the head": lambda data: flipped(data, 0),
    "a bit of the pages": lambda data: flipped(data, len(data) // 10),
    "a bit of the footer": lambda data: flipped(data, len(data) - 100),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_costs_only_itself(storage, caplog, damage):
    keep(storage, entry(1))
    (bad,) = names(storage)
    whole = storage.read(f"{SHARD}/{bad}")
    keep(storage, entry(2))
    storage.write(f"{SHARD}/{bad}", DAMAGES[damage](whole))
    with caplog.at_level(logging.WARNING):
        assert opened(storage).find(key(1), 0) is None
    assert f"{bad}: is damaged" in caplog.text
    caplog.clear()
    assert opened(storage).find(key(2), 0) == entry(2)
    keep(storage, entry(3))
    finish(storage)
    assert not caplog.records, "it is told once"
    assert sorted(row["text"] for row in rows(storage)) == ["text 2", "text 3"]
    assert storage.read(f"{SHARD}/{bad}.damaged") == DAMAGES[damage](whole), "the evidence stays"


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_plan_skips_damaged_files_and_touches_nothing(storage, caplog, damage):
    keep(storage, entry(1))
    (bad,) = names(storage)
    storage.write(f"{SHARD}/{bad}", DAMAGES[damage](storage.read(f"{SHARD}/{bad}")))
    keep(storage, entry(2))
    before = names(storage)
    assert known(storage, "x", 3)["content"].to_pylist() == [entry(2).content]
    assert f"{bad}: is damaged" in caplog.text
    assert names(storage) == before


def test_a_merge_puts_damage_aside(storage):
    keep(storage, entry(1))
    (bad,) = names(storage)
    storage.write(f"{SHARD}/{bad}", b"no")
    keep(storage, entry(2))
    finish(storage)
    assert [name[:4] for name in names(storage)] == ["0-1-", "9-1-"]
    assert names(storage)[0] == f"{bad}.damaged"


def test_a_file_of_another_version_is_refused_and_left(storage, monkeypatch):
    monkeypatch.setattr(files, "SCHEMA", files.SCHEMA.with_metadata({"tagloom.journal": "2"}))
    keep(storage, entry(1))
    monkeypatch.undo()
    before = names(storage)
    with pytest.raises(StoreError, match="another version"):
        opened(storage).find(key(1), 0)
    assert names(storage) == before


def full(*_):
    raise OSError(28, "No space left on device")


def test_a_full_disk_stops_the_run_and_nothing_is_lost(tmp_path, monkeypatch):
    storage = Storage(str(tmp_path))

    async def play():
        journal = opened(storage, flush_seconds=0.01)
        monkeypatch.setattr(os, "fsync", full)
        journal.add(entry(1))
        n = 1
        with pytest.raises(StoreError, match="No space left on device"):
            while True:
                n += 1
                journal.add(entry(n))
                await asyncio.sleep(0.001)
        with pytest.raises(StoreError, match=r"No space left on device\n  Free space"):
            await journal.flush()
        assert names(storage) == []
        assert journal.find(key(n), 0) == entry(n), "the entry whose adding told is kept as well"
        monkeypatch.undo()
        await journal.flush()
        journal.add(entry(n + 1))
        await journal.finish()
        return n + 1

    count = asyncio.run(play())
    assert {row["key"] for row in rows(storage)} == {key(n) for n in range(1, count + 1)}


def test_space_that_comes_back_is_used_without_asking(tmp_path, monkeypatch):
    storage = Storage(str(tmp_path))

    async def play():
        journal = opened(storage, flush_seconds=0.01)
        monkeypatch.setattr(os, "fsync", full)
        journal.add(entry(1))
        await until(lambda: journal._fault)
        monkeypatch.undo()
        await until(lambda: journal._fault is None)
        journal.add(entry(2))

    asyncio.run(play())
    assert {row["key"] for row in rows(storage)} == {key(1), key(2)}


def test_replies_that_cannot_be_kept_when_the_loop_ends_are_told_of(tmp_path, monkeypatch, caplog):
    storage = Storage(str(tmp_path))
    journal = opened(storage, flush_seconds=3600)

    async def play():
        journal.add(entry(1))
        monkeypatch.setattr(os, "fsync", full)
        await asyncio.sleep(0)

    asyncio.run(play())
    assert "1 replies could not be kept" in caplog.text
    monkeypatch.undo()
    asyncio.run(journal.flush())
    assert [row["key"] for row in rows(storage)] == [key(1)]


def test_errors_of_stores_that_are_no_system_errors_are_told_the_same_way(monkeypatch):
    storage = Storage(f"memory://{uuid.uuid4().hex}")
    journal = opened(storage)

    def refuse(*_, **__):
        raise RuntimeError("token expired")

    monkeypatch.setattr(type(storage.fs), "pipe_file", refuse)
    journal.add(entry(1))
    with pytest.raises(StoreError, match="token expired"):
        asyncio.run(journal.flush())
    with pytest.raises(StoreError, match="token expired"):
        journal.add(entry(2))
    monkeypatch.undo()
    asyncio.run(journal.finish())
    assert {row["key"] for row in rows(storage)} == {key(1), key(2)}


def test_a_really_full_disk(tmp_path):
    small = tmp_path / "small"
    small.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", small], capture_output=True, check=False
    ).returncode:
        pytest.skip("no file system of a set size can be mounted here")
    try:
        (small / "ballast").write_bytes(bytes(180_000))
        storage = Storage(str(small))
        rng = random.Random(1)
        entries = [entry(n, text=rng.randbytes(500).hex()) for n in range(200)]

        async def play():
            journal = opened(storage)
            for one in entries:
                journal.add(one)
            with pytest.raises(StoreError, match="No space left on device"):
                await journal.flush()
            assert not [name for name in names(storage) if name.endswith("parquet")]
            (small / "ballast").unlink()
            await journal.finish()

        asyncio.run(play())
        assert [opened(storage).find(one.key, 0) for one in entries] == entries
    finally:
        subprocess.run(["umount", small], check=True)


# -- what is told ------------------------------------------------------------------------------------------------


def test_known_tells_what_can_be_served(storage):
    names = ["content", "prompt", "kind", "round", "prompt_tokens", "completion_tokens"]
    assert known(storage, "x", 3).column_names == names
    keep(storage, entry(1), entry(2, "failed", round=4), entry(3, "corrupt"), entry(4, "failed"))
    keep(storage, entry(1, text="again"), entry(4))
    table = known(storage, "x", 3)
    assert table.column_names == names
    assert sorted(zip(*(table[name].to_pylist() for name in names), strict=True)) == sorted(
        [
            (key(-1), "p" * 32, "reply", 0, 9, 5),
            (key(-2), "p" * 32, "failed", 4, 9, 5),
            (key(-4), "p" * 32, "reply", 0, 9, 5),
        ]
    )


def test_extractors_are_listed_with_what_they_hold(storage):
    assert journals.extractors(storage) == []
    keep(storage, entry(1), entry(2))
    keep(storage, entry(3))
    asyncio.run(Journal(storage, "empty", 0).finish())
    journals.write_identity(storage, "named", {"model": "m"})
    journals.write_identity(storage, "named", {"model": "other"})
    assert storage.read_json("journal/extract/named/identity.json") == {"model": "m"}
    size = sum(size for _, size in storage.walk(SHARD))
    named = len(storage.read("journal/extract/named/identity.json"))
    assert journals.extractors(storage) == [Held("named", 0, 1, named), Held("x", 3, 2, size)]


def test_people_can_read_the_files_with_duckdb(tmp_path):
    storage = Storage(str(tmp_path))
    keep(storage, entry(1, text=json.dumps({"who": ["a"]})), entry(2, "failed"))
    finish(storage)
    found = duckdb.sql(
        f"select kind, count(*), sum(completion_tokens), year(max(added_at)) >= 2024 "
        f"from read_parquet('{tmp_path}/journal/extract/x/*/*.parquet') group by kind order by kind"
    ).fetchall()
    assert found == [("failed", 1, 5, True), ("reply", 1, 5, True)]
