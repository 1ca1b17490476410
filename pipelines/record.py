"""Records of runs: what a run is doing, or did, as a file in the corpus that anybody can read from anywhere.

A record is replaced as a whole every few seconds, by a thread of its own: a store that is slow or away never holds up
the run. It enters no key, manifest or fingerprint.
"""

from __future__ import annotations

import json
import logging
import os
import re
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from pipelines.failures import ShardsAsideError
from pipelines.lock import holder
from pipelines.storage import Storage
from pipelines.tally import Tally
from schemas.errors import FAULT, StoreError, TagloomError, UsageError

FOLDER = "runs"
FORMAT = 1
KEPT = 20
"""Records that are kept, the newest."""
EVERY_SECONDS = (2.0, 5.0)
"""How often a record is written: on a disk, on object storage."""
SILENT_SECONDS = 60.0
"""Without a sign for so long, a run that should be at work counts as lost."""
LAST_WORD_SECONDS = 30.0
"""How long the end of a run waits for its record to be written."""

_NAME = re.compile(r"\d{8}T\d{6}Z-[0-9a-f]{8}")
_log = logging.getLogger(__name__)


def new_run_id() -> str:
    """Return a name for a run; names sort by time."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(4)}"


@dataclass
class Outcome:
    """What a run came to, beyond what it told while it worked.

    Attributes:
        state: running, done, failed, stopped (by a person or a signal), or incomplete (shards set aside).
        units: Unit -> number of its parts, and how many of them this run made.
        complaint: What the command ends with although all is written.
    """

    state: str = "running"
    exit_code: int | None = None
    error: str = ""
    units: dict[str, dict[str, int]] = field(default_factory=dict)
    complaint: TagloomError | None = None

    def take(self, error: BaseException | None, aside: int) -> None:
        """Take how the run ended: with which error, and how many shards set aside."""
        error = error or self.complaint
        if isinstance(error, ShardsAsideError):
            self._end("incomplete", error.exit_code, str(error))
        elif error is not None and error is self.complaint:
            self._end("done", self.complaint.exit_code, str(error))
        elif isinstance(error, TagloomError):
            self._end("failed", error.exit_code, str(error))
        elif isinstance(error, KeyboardInterrupt):
            self._end("stopped", 130, "stopped by Ctrl-C")
        elif isinstance(error, SystemExit | GeneratorExit):
            code = getattr(error, "code", 1)
            self._end("stopped", code if isinstance(code, int) else 1, "stopped")
        elif error is not None:
            self._end("failed", 1, f"{type(error).__name__}: {error}\n  {FAULT}")
        elif aside:
            self._end("incomplete", ShardsAsideError.exit_code, "")
        else:
            self._end("done", 0, "")

    def _end(self, state: str, exit_code: int, error: str) -> None:
        # The state comes last: a record written meanwhile must not tell of an end without its code.
        self.error, self.exit_code, self.state = error, exit_code, state


def described(run: str, generation: str, what: str, code: str) -> dict[str, Any]:
    """Return who a run is: what a record begins with."""
    return {
        "format": FORMAT,
        "run": run,
        "what": what,
        "generation": generation,
        "version": code,
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "submission": os.environ.get("TAGLOOM_SUBMISSION_ID") or None,
    }


class _Writer:
    def __init__(self, storage: Storage, who: Mapping[str, Any], tally: Tally, outcome: Outcome) -> None:
        self._storage, self._who, self._tally, self._outcome = storage, who, tally, outcome
        self._every = EVERY_SECONDS[storage.local is None]
        self._beat = 0
        self._stop = threading.Event()
        self._warned = False
        self.thread = threading.Thread(target=self._live, daemon=True, name="tagloom-record")

    def stop(self) -> None:
        """Let the thread write how it ended, and wait for that, though not for ever."""
        self._stop.set()
        self.thread.join(LAST_WORD_SECONDS)

    def _live(self) -> None:
        try:
            _forget_old(self._storage)
        except Exception as error:
            self._failed(error)
        while True:
            self._write()
            if self._stop.wait(self._every):
                break
        self._write()

    def _write(self) -> None:
        self._beat += 1
        told = self._outcome
        state = {
            **self._who,
            "state": told.state,
            "exit_code": told.exit_code,
            "error": told.error,
            "beat": self._beat,
            "every": self._every,
            **self._tally.plain(),
            "units": told.units,
        }
        try:
            text = json.dumps(state, indent=1, ensure_ascii=False, allow_nan=False)
            self._storage.write(path_of(self._who["run"]), text.encode("utf-8", "backslashreplace") + b"\n")
        except Exception as error:
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        if not self._warned:
            _log.warning("the record of this run cannot be written for now; the run goes on: %s", error)
        self._warned = True


@contextmanager
def recording(storage: Storage, who: Mapping[str, Any], tally: Tally) -> Iterator[Outcome]:
    """Write a run's record while a block works, and how it ended.

    Args:
        storage: The corpus.
        who: `described`.
        tally: Counts the run.
    """
    outcome = Outcome()
    writer = _Writer(storage, who, tally, outcome)
    writer.thread.start()
    failed: BaseException | None = None
    try:
        yield outcome
    except BaseException as error:
        failed = error
        raise
    finally:
        outcome.take(failed, tally.aside)
        writer.stop()


# -- reading ----------------------------------------------------------------------------------------------------------


def path_of(run: str) -> str:
    """Return where the record of a run lies."""
    return f"{FOLDER}/{run}.json"


def runs(storage: Storage) -> list[str]:
    """Return the names of the runs that have a record, the newest first."""
    named = ((path, path.rpartition("/")[2].removesuffix(".json")) for path, _ in storage.walk(FOLDER))
    return sorted((name for path, name in named if _NAME.fullmatch(name) and path == path_of(name)), reverse=True)


def _forget_old(storage: Storage) -> None:
    for name in runs(storage)[KEPT - 1 :]:
        storage.remove(path_of(name))


def read(storage: Storage, run: str) -> dict[str, Any]:
    """Return the record of a run as it stands.

    Raises:
        UsageError: No run has that name.
        StoreError: The record is damaged, or of a later version.
    """
    if not _NAME.fullmatch(run) or not storage.exists(path_of(run)):
        known = runs(storage)
        raise UsageError(
            f"no run '{run}' is recorded here",
            where=storage.uri,
            remedy=f"The newest: {', '.join(known[:3])}." if known else "No run has left a record here yet.",
        )
    found = storage.read_json(path_of(run))
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise StoreError("is no record of a run that this version knows", where=storage.path(path_of(run)))
    return found


def newest(storage: Storage) -> dict[str, Any] | None:
    """Return the record of the newest run with its state as a reader sees it (`judged`); None where there is none."""
    for _ in range(2):
        # In this order: whoever held the corpus before the record was read may have written its end into it.
        by = holder(storage)
        found = next((one for one in (_readable(storage, run) for run in runs(storage)) if one), None)
        if found is None or found["state"] != "running" or by == _holding(found):
            break
        time.sleep(0.2)
    return None if found is None else judged(found, by == _holding(found), time.time())


def _holding(record: Mapping[str, Any]) -> str:
    """Return what `pipelines.lock.holder` says while this run holds the corpus."""
    return f"process {record['pid']} on {record['host']}"


class Following:
    """Looks at one run again and again, until it ends.

    Whether it still lives is told by its record changing while this process watches, so no clocks are compared.
    """

    def __init__(self, storage: Storage, run: str, steady: Callable[[], float] = time.monotonic) -> None:
        """Remember which run."""
        self._storage, self._run, self._steady = storage, run, steady
        self._beat: Any = None
        self._unheld = 0
        self._changed = steady()

    def look(self) -> dict[str, Any]:
        """Return its record; its state is ``lost`` where it has not changed for long, or does not hold the corpus.

        The latter must be seen twice in a row: the run may just have ended, or the store not have answered.

        Raises:
            UsageError: The record is gone.
            StoreError: It cannot be read.
        """
        by = holder(self._storage)
        found = read(self._storage, self._run)
        held = by == _holding(found)
        self._unheld = 0 if held else self._unheld + 1
        if found["beat"] != self._beat:
            self._beat, self._changed = found["beat"], self._steady()
        if found["state"] != "running":
            return found
        silent = self._steady() - self._changed
        lost = self._unheld > 1 or silent > max(SILENT_SECONDS, 6 * float(found["every"]))
        return {**found, "state": "lost" if lost else "running", "silent_seconds": round(silent, 1), "held": held}


def _readable(storage: Storage, run: str) -> dict[str, Any] | None:
    try:
        return read(storage, run)
    except (StoreError, UsageError):  # removed meanwhile, or damaged
        return None


def judged(record: Mapping[str, Any], held: bool, now: float) -> dict[str, Any]:
    """Return a record with what a reader must say about it.

    The state of a run that says it is at work becomes ``lost`` where its process does not hold the corpus, or where its
    last sign is old. The latter compares two machines' clocks, so ``silent_seconds`` (negative where the run's clock is
    ahead) goes with it.

    Args:
        record: The record.
        held: True where its process holds the corpus.
        now: This machine's time.
    """
    if record["state"] != "running":
        return dict(record)
    silent = now - datetime.fromisoformat(record["updated_at"]).timestamp()
    lost = not held or silent > max(SILENT_SECONDS, 6 * float(record["every"]))
    return {**record, "state": "lost" if lost else "running", "silent_seconds": round(silent, 1), "held": held}
