"""The journal: every reply of a language model, kept so that it is never paid for twice.

Layout below a corpus::

    journal/extract/EXTRACTOR/identity.json                            what EXTRACTOR stands for, for people
    journal/extract/EXTRACTOR/00012/LEVEL-ROWS-DIGEST.parquet          replies of one shard, see `journal_files`
    journal/extract/EXTRACTOR/00012/LEVEL-ROWS-DIGEST.parquet.damaged  what a disk or a person broke, put aside

Several processes may write to one shard: each adds files of its own, and files are merged without losing a row. What
one adds the other finds when it opens the shard next.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pipelines import journal_files as files
from pipelines.journal_entries import Entry, Index, rows_of, storable, stronger
from pipelines.storage import Storage
from schemas.errors import StoreError

ROOT = "journal/extract"
_FEW = 4096
"""Entries of this process that may be Python objects, at least."""

_writers = ThreadPoolExecutor(4, "tagloom-journal")
"""Threads of their own: an engine that keeps the event loop's threads busy does not hold up what must be durable."""

__all__ = ["Entry", "Held", "Journal", "extractors", "folder", "known", "write_identity"]
_log = logging.getLogger(__name__)


class Journal:
    """Replies of one extractor (a model and how it decodes) in one shard."""

    def __init__(self, storage: Storage, extractor: str, shard: int, *, flush_seconds: float = 2.0) -> None:
        """Open a journal; nothing is read or written yet.

        Args:
            storage: The corpus.
            extractor: Name of the extractor, safe as a path segment.
            shard: Number of the shard.
            flush_seconds: How long an entry may wait until it is written.
        """
        self._storage = storage
        self._folder = f"{folder(extractor)}/{shard:05d}"
        self._seconds = flush_seconds
        self._index: Index | None = None
        self._recent: dict[str, Entry] = {}
        self._waiting: list[tuple[int, Entry]] = []
        self._clock = 0
        self._small = 0
        self._fault: StoreError | None = None
        self._writing = asyncio.Lock()
        self._timer: asyncio.Task[None] | None = None
        self._upkeep: asyncio.Task[None] | None = None

    def find(self, key: str, round: int) -> Entry | None:
        """Return the reply to a request, or the verdict on it of this round or a later one, or None.

        The first call reads the shard's files; `load` does that without holding up the event loop.

        Raises:
            StoreError: The shard's files cannot be read.
        """
        if self._index is None:
            self._index, self._small = self._read()
        entry = stronger(self._index.find(key), self._recent.get(key))
        return None if entry is None or (entry.kind == "failed" and entry.round < round) else entry

    async def load(self) -> None:
        """Read the shard's files, where that was not done yet.

        Raises:
            StoreError: They cannot be read.
        """
        if self._index is None:
            self._index, self._small = await asyncio.to_thread(self._read)

    def add(self, entry: Entry) -> None:
        """Keep an entry. It is on storage after `flush_seconds` and the time that a write takes.

        Lone surrogates in its strings, which no file can hold, become U+FFFD. Outside an event loop entries wait for
        `flush`.

        Raises:
            StoreError: The last write failed. This entry and those before it wait, and are written once that works.
            ValueError: The key is not 32 ASCII characters, or the kind is not known.
        """
        entry = storable(entry)
        self._clock = max(self._clock + 1, time.time_ns() // 1000)
        self._waiting.append((self._clock, entry))
        if entry.kind != "corrupt":
            kept = stronger(self._recent.get(entry.key), entry)
            assert kept is not None
            self._recent[entry.key] = kept
        self._wake()
        if self._fault is not None:
            raise StoreError(self._fault.message, where=self._fault.where, remedy=self._fault.remedy)

    async def flush(self) -> None:
        """Write now what waits.

        Raises:
            StoreError: It cannot be written, and goes on waiting.
        """
        async with self._writing:
            if not self._waiting:
                return
            rows, self._waiting = self._waiting, []
            try:
                await asyncio.get_running_loop().run_in_executor(_writers, self._write, rows)
            except BaseException:
                self._waiting[:0] = rows
                raise
            self._small += 1
        if (self._upkeep is None or self._upkeep.done()) and (self._small >= files.FAN or self._has_many()):
            self._upkeep = asyncio.get_running_loop().create_task(self._tidy())

    async def finish(self) -> None:
        """Write what waits, and leave the shard as one file. Doing it again changes nothing.

        Raises:
            StoreError: The disk is full, or the store refuses; nothing is lost.
        """
        await self.flush()
        if self._timer is not None and not self._waiting:
            self._timer.cancel()
        if self._upkeep is not None and not self._upkeep.done():
            await self._upkeep
        await asyncio.to_thread(files.tidy_whole, self._storage, self._folder)
        self._small = 0

    def _read(self) -> tuple[Index, int]:
        table, count = files.load(self._storage, self._folder)
        return Index.of(table), count

    def _write(self, rows: list[tuple[int, Entry]]) -> None:
        try:
            files.write_file(self._storage, self._folder, 0, rows_of(rows))
        except Exception as error:
            if isinstance(error, StoreError):
                self._fault = error
            else:  # object stores raise errors of their own kinds
                self._fault = StoreError(f"cannot be written: {error!r}", where=self._storage.path(self._folder))
            raise self._fault from error
        self._fault = None

    def _wake(self) -> None:
        """See to it that what waits is written in time."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return
        if self._timer is None or self._timer.done() or self._timer.get_loop() is not loop:
            self._timer = loop.create_task(self._write_later())

    async def _write_later(self) -> None:
        try:
            while self._waiting:
                await asyncio.sleep(self._seconds)
                try:
                    await self.flush()
                except StoreError:
                    continue  # `add` tells
        except asyncio.CancelledError:  # the event loop ends, and nothing would write them after
            if self._waiting:
                rows, self._waiting = self._waiting, []
                try:
                    self._write(rows)
                except StoreError as error:
                    self._waiting[:0] = rows
                    _log.error("%d replies could not be kept: %s", len(rows), error)
            raise

    def _has_many(self) -> bool:
        return self._index is not None and len(self._recent) > max(_FEW, len(self._index.keys) // 8)

    async def _tidy(self) -> None:
        """Merge small files, and move entries from Python objects to Arrow."""
        if self._index is not None and self._has_many():
            moved = dict(self._recent)
            self._index = await asyncio.to_thread(self._index.joined, list(moved.values()))
            self._recent = {key: entry for key, entry in self._recent.items() if moved.get(key) is not entry}
        if self._small >= files.FAN:
            try:
                self._small = await asyncio.to_thread(files.tidy, self._storage, self._folder)
            except StoreError as error:
                _log.warning("small files of the journal could not be merged: %s", error)
                self._small = 0


def folder(extractor: str) -> str:
    """Return the folder of an extractor's journal."""
    return f"{ROOT}/{extractor}"


def write_identity(storage: Storage, extractor: str, identity: Mapping[str, Any]) -> None:
    """Write once, for people, what an extractor's name stands for."""
    name = f"{folder(extractor)}/identity.json"
    if not storage.exists(name):
        storage.write_json(name, dict(identity))


def known(storage: Storage, extractor: str, shard: int) -> pa.Table:
    """Return what a shard's journal can serve, one row a request.

    Returns:
        Columns content, prompt, kind (``reply``, ``failed`` or ``long``), round, prompt_tokens, completion_tokens.

    Raises:
        StoreError: The files cannot be read.
    """
    shown = ["content", "prompt", "kind", "round", "prompt_tokens", "completion_tokens"]
    table, _ = files.load(storage, f"{folder(extractor)}/{shard:05d}", ["key", "added_at", *shown])
    table = table.set_column(table.column_names.index("kind"), "kind", table["kind"].cast(pa.string()))
    table = table.set_column(table.column_names.index("prompt"), "prompt", table["prompt"].cast(pa.string()))
    return table.filter(pc.not_equal(table["kind"], "corrupt")).select(shown)


@dataclass(frozen=True)
class Held:
    """What lies in the journal of one extractor.

    Attributes:
        extractor: Its name.
        entries: Rows of its files; a request that two files hold counts twice.
        files: Number of files, damaged ones and others included.
        bytes: Their size.
    """

    extractor: str
    entries: int
    files: int
    bytes: int


def extractors(storage: Storage) -> list[Held]:
    """Return what the journal holds by extractor, from one listing."""
    found: dict[str, Held] = {}
    for path, size in storage.walk(ROOT):
        name = path.removeprefix(f"{ROOT}/").partition("/")[0]
        parsed = files.parse_name(path)
        held = found.get(name, Held(name, 0, 0, 0))
        found[name] = Held(name, held.entries + (parsed[1] if parsed else 0), held.files + 1, held.bytes + size)
    return [found[name] for name in sorted(found)]
