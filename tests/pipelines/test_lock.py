"""The lease on object storage: whose it is, when it counts as abandoned, and what a loop does that has lost it."""

import os
import subprocess
import sys
import time

import pytest

from pipelines import lock
from pipelines.gc import gc
from pipelines.lock import writing
from pipelines.storage import Storage
from pipelines.store import Store
from schemas.errors import LockedError
from tests.pipelines.corpora import run, session, write_lines

ANOTHERS = {"host": "elsewhere", "pid": 1, "token": "another", "machine": "m"}


@pytest.fixture
def storage(request):
    return Storage(f"memory://{request.node.name}")


@pytest.fixture
def child():
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as process:
        yield process
        process.kill()


def lease(pid, **more):
    return {"host": "here", "pid": pid, "machine": lock._machine(), "token": "t", "renewed_at": time.time(), **more}


def free(storage, held):
    """Tell whether a lease can be taken."""
    storage.write_json("lock.json", held)
    try:
        with writing(storage):
            return True
    except LockedError:
        return False


def test_the_lease_of_a_process_that_lives_is_kept_and_of_one_that_ended_is_free(storage, child):
    began = lock._stat(child.pid)[1]
    assert not free(storage, lease(child.pid))
    assert not free(storage, lease(child.pid, began=began))
    assert free(storage, lease(child.pid, began=began - 1))  # that one had the same number
    assert free(storage, lease(os.getpid()))  # likewise: it is none of this process's own
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert free(storage, lease(child.pid, began=began))  # nobody has taken notice of its end yet
    child.wait()
    assert free(storage, lease(child.pid, began=began))
    for absurd in (0, -1, 10**30, "1", None):
        assert not free(storage, lease(absurd))


def test_the_process_of_another_user_lives_also_where_proc_hides_it(storage, child, monkeypatch):
    def refused(pid, signal):
        assert (pid, signal) == (child.pid, 0)
        raise PermissionError

    monkeypatch.setattr(lock, "_stat", lambda pid: None)
    assert not free(storage, lease(child.pid, began=5))
    monkeypatch.setattr(os, "kill", refused)
    assert not free(storage, lease(child.pid, began=5))


def test_a_lease_says_when_its_process_began(storage):
    with writing(storage):
        held = storage.read_json("lock.json")
    assert (held["pid"], held["began"]) == (os.getpid(), lock._stat(os.getpid())[1])
    assert held["began"] > 0


def test_a_long_loop_asks_the_store_only_for_a_lease_that_may_be_lost(storage, monkeypatch):
    now = lock._clock()
    monkeypatch.setattr(lock, "_clock", lambda: now)
    with writing(storage) as held:
        mine = storage.read("lock.json")
        now += lock.LEASE_SECONDS / 2 - 1
        held.keep()
        assert storage.read("lock.json") == mine
        now += 2
        held.keep()
        renewed = storage.read_json("lock.json")
        assert renewed["renewed_at"] > storage.parsed("lock.json", mine)["renewed_at"]
        storage.write_json("lock.json", ANOTHERS)
        held.keep()  # it was renewed just now, so nobody can have taken it
        assert not held.renew()  # as the thread does that renews it
        with pytest.raises(LockedError, match="was lost"):
            held.keep()
    assert storage.read_json("lock.json") == ANOTHERS


def test_a_run_that_lost_its_lease_writes_no_manifest(storage, tmp_path, monkeypatch):
    """Another may have removed the parts that it would name; on object storage manifests are believed."""
    log = write_lines(tmp_path / "a.jsonl", session("x", 1, "My cat is called Miso."))
    find, now = Store.find_manifest, lock._clock()

    def stalled(self, unit, fingerprint):
        nonlocal now
        now += lock.LEASE_SECONDS
        storage.write_json("lock.json", ANOTHERS)
        return find(self, unit, fingerprint)

    monkeypatch.setattr(lock, "_clock", lambda: now)
    monkeypatch.setattr(Store, "find_manifest", stalled)
    with pytest.raises(LockedError, match="was lost"):
        run(storage.uri, log, stages=())
    assert list(storage.walk("tables")) and not list(storage.walk("manifests"))
    monkeypatch.undo()
    storage.remove("lock.json")
    run(storage.uri, log, stages=())
    assert len(list(storage.walk("manifests"))) == 2


def test_gc_removes_no_more_once_its_lease_is_lost(storage, monkeypatch):
    store = Store.create(storage.uri, 4)
    unnamed = [f"tables/notes/00000-of-00004/{n}.parquet" for n in range(5)]
    for path in unnamed:
        storage.write(path, b"x")
    remove, now = Storage.remove, lock._clock()

    def stalled(self, name):
        """The second removal takes long enough for another run to take the corpus."""
        nonlocal now
        remove(self, name)
        if name == unnamed[1]:
            now += lock.LEASE_SECONDS
            storage.write_json("lock.json", ANOTHERS)

    monkeypatch.setattr(lock, "_clock", lambda: now)
    monkeypatch.setattr(Storage, "remove", stalled)
    with pytest.raises(LockedError, match="was lost"):
        gc(store)
    assert [path for path, _ in storage.walk("tables")] == unnamed[2:]
    assert storage.read_json("lock.json") == ANOTHERS
