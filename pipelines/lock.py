"""One writer at a time on a corpus.

On a disk the lock is the operating system's, so it ends with the process that holds it, however that dies. On object
storage it is a small lease file that the holder renews; a lease not renewed for `LEASE_SECONDS` counts as abandoned,
and so does one whose process on this very machine is gone. It is taken, renewed and given up by replacing the file
under the condition that it is still as it was (`Storage.replace_if`): of two that want it one gets it, and whoever
lost it knows.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import filelock

from pipelines.storage import Storage, json_bytes
from pipelines.storage_faults import explained
from schemas.errors import LockedError, StoreError

LEASE_SECONDS = 90.0
_NAME = "lock.json"
_FREE = json_bytes({})

log = logging.getLogger(__name__)
_ours: set[str] = set()
"""Tokens of the leases that this process holds."""
_held: dict[str, _Lease] = {}
"""Corpus -> the lease that this process holds on it."""


class Held:
    """A lock that is held, or was. This one is the operating system's, and held until it is given up."""

    def check(self) -> None:
        """Make sure that the lock is held still; call it before what must not happen twice.

        Raises:
            LockedError: Another process took it, as this one had stopped for too long.
            StoreError: The store stays away.
        """

    def keep(self) -> None:
        """As `check`, for each step of a long loop: storage is asked only where the lock may have been lost.

        Raises:
            LockedError, StoreError: As `check`.
        """


class _Lease(Held):
    """A lease on object storage."""

    def __init__(self, storage: Storage, token: str, renewed: float) -> None:
        """Remember whose it is, and when by `_clock` it was asked for."""
        self._storage = storage
        self._token = token
        self._lost = False
        self._renewed = renewed
        self._alone = threading.Lock()

    def renew(self) -> bool:
        """Write the lease anew, if it is still this one; tell whether it was."""
        with self._alone:
            asked = _clock()
            self._lost = self._lost or not self._replaced(_lease_of(self._token))
            if not self._lost:
                self._renewed = asked
            return not self._lost

    def give_up(self) -> None:
        """Leave the lease to others, if it is still this one."""
        with self._alone:
            if not self._lost:
                self._lost = True
                self._replaced(_FREE)

    def _replaced(self, data: bytes) -> bool:
        # What is there need not be what this process last knew it had written: an answer may have been lost.
        return self._storage.change(_NAME, lambda now: data if _parsed(now).get("token") == self._token else None)

    def check(self) -> None:
        """As `Held.check`: the lease is renewed, which succeeds only where nobody took it."""
        if not self.renew():
            raise LockedError(
                "the lease on the corpus was lost, and another run may be writing to it",
                where=self._storage.uri,
                remedy="Finished parts stay. Run the same command again.",
            )

    def keep(self) -> None:
        """As `Held.keep`: nobody takes a lease that was renewed within half its time."""
        if self._lost or _clock() - self._renewed > LEASE_SECONDS / 2:
            self.check()


@contextmanager
def writing(storage: Storage, wait: float = 0.0) -> Iterator[Held]:
    """Hold the corpus for writing.

    Args:
        storage: The corpus.
        wait: Seconds to wait while another run holds it; 0 refuses at once.

    Raises:
        LockedError: Another run holds it.
        StoreError: The storage refuses or stays away.
    """
    with _local(storage, wait) if storage.local is not None else _lease(storage, wait) as held:
        yield held


def keep(storage: Storage) -> None:
    """Make sure that a lease which this process took on a corpus is held still, as `Held.keep`; none is none lost.

    Raises:
        LockedError, StoreError: As `Held.check`.
    """
    lease = _held.get(storage.absolute)
    if lease is not None:
        lease.keep()


def _clock() -> float:
    """Return seconds that go on while the machine sleeps, as those of the others do."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


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
    holder = storage.local / _NAME
    # A moment's patience: whoever asks for the state of the corpus holds the lock for an instant.
    lock = filelock.FileLock(storage.local / ".lock", timeout=max(wait, 1.0))
    try:
        storage.local.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except filelock.Timeout:
        text = holder.read_text() if holder.exists() else ""
        raise _refuse(storage, text) from None
    except OSError as error:
        raise explained(error, "cannot be locked", storage.uri, remote=False) from error
    try:
        storage.write(_NAME, _who().encode())
        yield Held()
    finally:
        holder.unlink(missing_ok=True)
        lock.release()


@contextmanager
def _lease(storage: Storage, wait: float) -> Iterator[Held]:
    token = uuid.uuid4().hex
    deadline = time.monotonic() + wait
    _ours.add(token)
    try:
        while (lease := _take(storage, token)) is None:
            if time.monotonic() >= deadline:
                raise _refuse(storage, json.dumps(_holder(storage)))
            time.sleep(min(2.0, max(0.1, deadline - time.monotonic())))
        stop = threading.Event()

        def renew() -> None:
            while not stop.wait(LEASE_SECONDS / 6):
                try:
                    if not lease.renew():
                        log.warning("%s: the lease was lost", storage.uri)
                        return
                except Exception as error:  # a store that is away for a while; whether somebody took it shows later
                    log.warning("%s: the lease could not be renewed: %s", storage.uri, error)

        thread = threading.Thread(target=renew, daemon=True, name="tagloom-lease")
        thread.start()
        _held[storage.absolute] = lease
        try:
            yield lease
        finally:
            if _held.get(storage.absolute) is lease:
                del _held[storage.absolute]
            stop.set()
            _give_up(storage, lease)
    finally:
        _ours.discard(token)


def _give_up(storage: Storage, lease: _Lease) -> None:
    """Give a lease up; where the store is away it lapses by itself, which must not hide how the run ended."""
    try:
        lease.give_up()
    except StoreError as error:
        log.warning("%s: the lease could not be given up, and lapses: %s", storage.uri, error)


def _parsed(data: bytes | None) -> dict[str, Any]:
    try:
        found = json.loads(data or b"{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _holder(storage: Storage) -> dict[str, Any]:
    return _parsed(storage.find(_NAME))


def _machine() -> str:
    """Return what tells this machine's processes from all others; empty where the system does not say."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def _stat(pid: int) -> tuple[str, int] | None:
    """Return the state of a process and when it began, in ticks since the start; None where that is hidden."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return fields[0], int(fields[19])
    except (OSError, ValueError, IndexError):
        return None


def _gone(pid: int, held: Mapping[str, Any]) -> bool:
    """Tell whether a lease's process, of this machine, has ended, also where nobody has taken notice of that yet."""
    if pid == os.getpid():  # another one's, that had the same number
        return held.get("token") not in _ours
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):  # another user's, and /proc may not show those
        pass
    if (found := _stat(pid)) is None:
        return False
    state, began = found
    return state in ("Z", "X") or held.get("began", began) != began


def _abandoned(storage: Storage, held: dict[str, Any]) -> bool:
    """Tell whether nobody holds a lease any more."""
    pid, machine = held.get("pid"), _machine()
    if machine and held.get("machine") == machine and isinstance(pid, int) and pid > 0 and _gone(pid, held):
        return True
    age, renewed = storage.age(_NAME), held.get("renewed_at")
    if age is None:  # a store that does not tell its time: then the hosts' clocks must agree
        age = time.time() - renewed if isinstance(renewed, int | float) else LEASE_SECONDS
    return age >= LEASE_SECONDS


def _lease_of(token: str) -> bytes:
    own = _stat(os.getpid())
    began = {} if own is None else {"began": own[1]}
    who = {**json.loads(_who()), **began, "machine": _machine()}
    return json_bytes({**who, "token": token, "renewed_at": time.time()})


def _take(storage: Storage, token: str) -> _Lease | None:
    """Take the lease if it is free."""

    def mine(now: bytes | None) -> bytes | None:
        held = _parsed(now)
        return None if held and not _abandoned(storage, held) else _lease_of(token)

    asked = _clock()
    return _Lease(storage, token, asked) if storage.change(_NAME, mine) else None


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
    elif _abandoned(storage, found):
        return ""
    return f"process {found.get('pid')} on {found.get('host')}"
