"""One writer at a time on a corpus.

On a disk the lock is the operating system's, so it ends with the process that holds it, however that dies. On object
storage it is a small lease file that the holder renews; a lease not renewed for `LEASE_SECONDS` counts as abandoned.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import filelock

from pipelines.storage import Storage
from schemas.errors import LockedError, StoreError

LEASE_SECONDS = 90.0
_NAME = "lock.json"


class Held:
    """A lock that is held, or was."""

    def __init__(self, storage: Storage, lost: threading.Event) -> None:
        """Remember whose it is, and the event that tells of its loss."""
        self._storage = storage
        self._lost = lost

    def check(self) -> None:
        """Make sure that the lock is held still; call it before what must not happen twice.

        Raises:
            LockedError: Another process took it, as this one had stopped for too long.
        """
        if self._lost.is_set():
            raise LockedError(
                "the lease on the corpus was lost, and another run may be writing to it",
                where=self._storage.uri,
                remedy="Finished parts stay. Run the same command again.",
            )


@contextmanager
def writing(storage: Storage, wait: float = 0.0) -> Iterator[Held]:
    """Hold the corpus for writing.

    Args:
        storage: The corpus.
        wait: Seconds to wait while another run holds it; 0 refuses at once.

    Raises:
        LockedError: Another run holds it.
    """
    with _local(storage, wait) if storage.local is not None else _lease(storage, wait) as held:
        yield held


def _who() -> str:
    return json.dumps({"host": socket.gethostname(), "pid": os.getpid()})


def _refuse(storage: Storage, holder: str) -> LockedError:
    try:
        fields = json.loads(holder)
        named = f"process {fields['pid']} on {fields['host']}"
    except (ValueError, KeyError, TypeError):
        named = "another process"
    return LockedError(
        f"another run is writing to this corpus ({named})",
        where=storage.uri,
        remedy="Wait for it to end, or give --wait SECONDS. Reading (query, export, status) needs no lock.",
    )


@contextmanager
def _local(storage: Storage, wait: float) -> Iterator[Held]:
    assert storage.local is not None
    storage.local.mkdir(parents=True, exist_ok=True)
    holder = storage.local / _NAME
    # A moment's patience: whoever asks for the state of the corpus holds the lock for an instant.
    lock = filelock.FileLock(storage.local / ".lock", timeout=max(wait, 1.0))
    try:
        lock.acquire()
    except filelock.Timeout:
        text = holder.read_text() if holder.exists() else ""
        raise _refuse(storage, text) from None
    except OSError as error:
        raise StoreError(f"cannot be locked: {error}", where=storage.uri) from error
    try:
        holder.write_text(_who())
        yield Held(storage, threading.Event())
    finally:
        holder.unlink(missing_ok=True)
        lock.release()


@contextmanager
def _lease(storage: Storage, wait: float) -> Iterator[Held]:
    token = uuid.uuid4().hex
    deadline = time.monotonic() + wait
    while not _take(storage, token):
        if time.monotonic() >= deadline:
            raise _refuse(storage, json.dumps(_holder(storage)))
        time.sleep(min(2.0, max(0.1, deadline - time.monotonic())))
    stop, lost = threading.Event(), threading.Event()

    def renew() -> None:
        renewed = time.monotonic()
        while not stop.wait(LEASE_SECONDS / 6):
            try:
                if _holder(storage).get("token") != token:
                    break
                _put(storage, token)
                renewed = time.monotonic()
            except Exception:  # the store may be away for a while; a lease that has lapsed meanwhile is lost
                if time.monotonic() - renewed > LEASE_SECONDS:
                    break
        else:
            return
        lost.set()

    thread = threading.Thread(target=renew, daemon=True, name="tagloom-lease")
    thread.start()
    try:
        yield Held(storage, lost)
    finally:
        stop.set()
        thread.join()
        if _holder(storage).get("token") == token:
            storage.remove(_NAME)


def _holder(storage: Storage) -> dict[str, object]:
    try:
        found = storage.read_json(_NAME)
    except StoreError:
        return {}
    return found if isinstance(found, dict) else {}


def _fresh(held: dict[str, object]) -> bool:
    renewed = held.get("renewed_at")
    return isinstance(renewed, int | float) and time.time() - renewed < LEASE_SECONDS


def _put(storage: Storage, token: str) -> None:
    storage.write_json(_NAME, {**json.loads(_who()), "token": token, "renewed_at": time.time()})


def _take(storage: Storage, token: str) -> bool:
    """Take the lease if it is free: write, let a rival's write settle, and see whose stayed."""
    if _fresh(_holder(storage)):
        return False
    _put(storage, token)
    time.sleep(0.0 if storage.private else 1.0)
    return _holder(storage).get("token") == token


def holder(storage: Storage) -> str:
    """Say which process writes to the corpus now; empty when none does."""
    found = _holder(storage)
    if not found:
        return ""
    if storage.local is not None:
        probe = filelock.FileLock(storage.local / ".lock", timeout=0)
        try:
            with probe:
                return ""
        except (filelock.Timeout, OSError):
            pass
    elif not _fresh(found):
        return ""
    return f"process {found.get('pid')} on {found.get('host')}"
