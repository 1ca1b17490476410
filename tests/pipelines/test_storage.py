"""Files are whole or absent; one writer at a time; on disk and in memory alike."""

import json
import os
import subprocess
import sys
import time

import pyarrow as pa
import pytest

from pipelines import lock
from pipelines.lock import writing
from pipelines.parquet import encode_table
from pipelines.storage import Storage
from pipelines.storage_faults import explained, passes
from pipelines.store import Store
from schemas.errors import LockedError, StoreError
from schemas.tables import build


@pytest.fixture(params=["disk", "memory"])
def storage(request, tmp_path):
    if request.param == "disk":
        return Storage(str(tmp_path / "c"))
    return Storage(f"memory://{tmp_path.name}-{request.node.name}")


def test_write_read_walk_remove(storage):
    storage.write("a/b/one.bin", b"1")
    storage.write("a/two.bin", b"22")
    storage.write("a/two.bin", b"333")
    assert storage.read("a/two.bin") == b"333"
    assert list(storage.walk()) == [("a/b/one.bin", 1), ("a/two.bin", 3)]
    assert list(storage.walk("a/b")) == [("a/b/one.bin", 1)]
    assert storage.exists("a/two.bin")
    assert not storage.exists("a")
    storage.remove("a/two.bin")
    storage.remove("a/two.bin")
    assert not storage.exists("a/two.bin")
    with pytest.raises(StoreError, match="missing"):
        storage.read("a/two.bin")


def test_move(storage):
    storage.write("a/[1]*.bin", b"1")
    storage.write("b.bin", b"2")
    storage.move("a/[1]*.bin", "b.bin")
    assert list(storage.walk()) == [("b.bin", 1)]
    assert storage.read("b.bin") == b"1"
    with pytest.raises(StoreError, match=r"none\.bin: cannot be moved"):
        storage.move("none.bin", "c.bin")


def test_durable_writes_force_the_file_and_every_new_folder_to_the_disk(tmp_path, monkeypatch):
    forced = []
    monkeypatch.setattr(os, "fsync", lambda handle: forced.append(os.path.realpath(f"/proc/self/fd/{handle}")))
    storage = Storage(str(tmp_path))
    storage.write("a/b/c.bin", b"1", durable=True)
    root = os.path.realpath(tmp_path)
    assert forced[0].startswith(f"{root}/a/b/c.bin.tmp-")
    assert sorted(forced[1:]) == [root, f"{root}/a", f"{root}/a/b"]
    forced.clear()
    storage.write("a/b/d.bin", b"1", durable=True)
    storage.write("a/b/e.bin", b"1")
    assert forced[1:] == [f"{root}/a/b"]
    forced.clear()
    storage.append("n/m/f.log", b"", b"1")
    assert forced[0] == f"{root}/n/m/f.log"
    assert sorted(forced[1:]) == [root, f"{root}/n", f"{root}/n/m"]
    forced.clear()
    storage.append("n/m/f.log", b"1", b"2")  # who made the file may have been killed before its folder was forced
    assert forced == [f"{root}/n/m/f.log", f"{root}/n/m", f"{root}/n"]


def test_damaged_json_names_the_file(storage):
    storage.write("x.json", b"{")
    with pytest.raises(StoreError, match=r"x\.json: is damaged"):
        storage.read_json("x.json")


def test_a_failed_write_leaves_nothing(tmp_path, monkeypatch):
    storage = Storage(str(tmp_path))
    storage.write("t", b"old")
    from pathlib import Path

    def full(self, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(StoreError, match=r"the disk is full.*No space left") as told:
        storage.write("t", b"new")
    assert told.value.remedy.startswith("Free space")
    monkeypatch.undo()
    assert storage.read("t") == b"old"
    assert [name for name, _ in storage.walk()] == ["t"]


def test_a_place_that_may_not_be_written_to_is_told(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreError, match="cannot be written"):
        Storage(str(tmp_path / "file")).write("a", b"1")
    error = PermissionError(13, "Permission denied")
    assert explained(error, "cannot be written", "x", remote=False).remedy.startswith("Mend the permissions")
    assert "credentials" in explained(error, "cannot be written", "x", remote=True).message


def test_a_change_is_made_of_what_is_there(storage):
    assert not storage.change("f", lambda now: None)
    assert storage.change("f", lambda now: b"1" if now is None else None)
    assert not storage.replace_if("f", b"2", None)
    assert not storage.replace_if("f", b"2", b"0")
    assert storage.replace_if("f", b"2", b"1")
    assert storage.read("f") == b"2"
    assert storage.append("f", b"2", b"3")
    assert storage.find("f") == b"23"
    assert storage.find("g") is None


def answered(kind, **fields):
    """An error as the libraries of object stores raise them; most of them are not installed."""
    error = type(kind, (Exception,), {})("told")
    for name, value in fields.items():
        setattr(error, name, value)
    return error


def test_faults_that_pass_are_known_from_those_that_stay():
    passing = [
        answered("HttpError", code=503),
        answered("HttpError", code="429"),
        answered("HttpResponseError", status_code=500),
        answered("HttpResponseError", status_code=409, error_code="OperationAborted"),
        answered("ServiceRequestError"),
        answered("ServerDisconnectedError"),
        answered("ClientError", response={"Error": {"Code": "SlowDown"}}),
        TimeoutError("x"),
        ConnectionResetError(104, "x"),
        OSError(121, "x"),
    ]
    staying = [
        answered("HttpError", code=403),
        answered("HttpResponseError", status_code=404),
        answered("NoCredentialsError"),
        answered("ClientError", response={"Error": {"Code": "AccessDenied"}}),
        FileNotFoundError(2, "x"),
        PermissionError(13, "x"),
        OSError(22, "x"),
        ValueError("x"),
        KeyError("x"),
    ]
    assert [passes(error) for error in passing] == [True] * len(passing)
    assert [passes(error) for error in staying] == [False] * len(staying)
    try:
        try:
            raise ConnectionResetError(104, "x")
        except OSError as cause:
            raise RuntimeError("wrapped") from cause
    except RuntimeError as error:
        assert passes(error)


def test_error_texts_give_no_secret_away():
    error = OSError(5, "GET https://a.blob/x?sv=1&sig=abc%3D&X-Amz-Signature=def failed")
    told = str(explained(error, "cannot be read", "x", remote=True))
    assert "abc" not in told
    assert "def" not in told


def test_second_writer_is_refused_and_told_who(storage):
    with writing(storage), pytest.raises(LockedError, match="process"), writing(storage):
        pass
    with writing(storage):
        pass
    assert lock.holder(storage) == ""


def test_second_writer_waits(tmp_path):
    storage = Storage(str(tmp_path))
    code = (
        "import sys, time; from pipelines.lock import writing; from pipelines.storage import Storage\n"
        f"with writing(Storage({str(tmp_path)!r})):\n print('held', flush=True); time.sleep(0.5)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "held\n"
        assert lock.holder(storage) == f"process {other.pid} on {json.loads(storage.read('lock.json'))['host']}"
        with writing(storage, wait=20):
            assert other.poll() is not None or other.wait(1) == 0


def test_lock_of_a_killed_writer_is_free(tmp_path):
    storage = Storage(str(tmp_path))
    code = (
        "import time; from pipelines.lock import writing; from pipelines.storage import Storage\n"
        f"with writing(Storage({str(tmp_path)!r})):\n print('held', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as other:
        other.stdout.readline()
        other.kill()
        other.wait()
    with writing(storage):
        pass


def test_abandoned_lease_is_taken(monkeypatch):
    storage = Storage("memory://lease")
    storage.write_json("lock.json", {"host": "gone", "pid": 1, "token": "t", "renewed_at": time.time() - 1000})
    with writing(storage):
        assert storage.read_json("lock.json")["token"] != "t"
        assert lock.holder(storage).startswith(f"process {os.getpid()} on ")
    assert lock.holder(storage) == ""
    with writing(storage):
        pass


def vocabulary(*terms):
    return build("vocabulary", {"term_id": list(range(len(terms))), "term": list(terms)})


def test_part_is_adopted_whole_and_never_half(storage):
    store = Store.create(storage.uri, 4)
    made = store.write_part(2, "k", {"vocabulary": vocabulary("a", "b")}, {"n": 3})
    assert store.adopt_part(("vocabulary",), 2, "k") == made
    assert made.stats == {"n": 3}
    assert made.tables["vocabulary"].rows == 2
    path = store.part_path("vocabulary", 2, "k")
    whole = storage.read(path)
    for damaged in (whole[:-1], b"", bytes([whole[40] ^ 0xFF if n == 40 else b for n, b in enumerate(whole)])):
        storage.write(path, damaged)
        assert store.adopt_part(("vocabulary",), 2, "k") is None
    assert store.adopt_part(("vocabulary", "postings"), 2, "k") is None


def test_reading_a_damaged_part_names_it(storage):
    store = Store.create(storage.uri, 4)
    store.write_part(0, "k", {"vocabulary": vocabulary("a")})
    storage.write(store.part_path("vocabulary", 0, "k"), b"PAR1 nonsense")
    with pytest.raises(StoreError, match=r"k\.parquet: is damaged"):
        store.read_part("vocabulary", 0, "k")


def test_equal_tables_give_equal_bytes_however_chunked():
    whole = vocabulary("a", "b", "c")
    pieces = pa.concat_tables([whole.slice(0, 1), whole.slice(1)])
    assert encode_table("vocabulary", whole) == encode_table("vocabulary", pieces)


def test_a_folder_with_other_things_is_not_taken(tmp_path):
    (tmp_path / "thesis.txt").write_text("precious")
    with pytest.raises(StoreError, match="not empty"):
        Store.create(str(tmp_path), 4)
    with pytest.raises(StoreError, match="no corpus here"):
        Store.open(str(tmp_path))


def test_an_existing_corpus_keeps_its_shards(storage):
    Store.create(storage.uri, 4)
    assert Store.create(storage.uri, 64).shards == 4


def test_a_corpus_of_another_format_is_refused(storage):
    storage.write_json("corpus.json", {"format": 99, "shards": 4})
    with pytest.raises(StoreError, match="format 99"):
        Store.open(storage.uri)
