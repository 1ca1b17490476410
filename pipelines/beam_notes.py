"""Notes on the items of a Beam pipeline: workers leave them, the driver reads them, and a repeated bundle does too.

They go through storage, the same on every runner, and through memory where workers share the driver's process. An
item's note stays until the pipeline is over, so that what is done is not done twice, and so that the driver learns
what was made without reading it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from pipelines.meter import Cost
from pipelines.storage import Storage
from pipelines.store import Part, TablePart
from pipelines.work import Done

FOLDER = "runs/aside"
"""Folder of a corpus where notes lie while a pipeline runs."""

STOP = "stop"
"""Name of the note that tells workers to leave what they have not begun."""

READERS = 16
"""Notes that are read, or taken away, side by side: most of that is waiting."""


@dataclass(frozen=True)
class Note:
    """What is known of an item.

    Attributes:
        tries: (kind, reason) of every failed try, in order; see `pipelines.failures.Failure`.
        begun: True while a try is under way.
        doubts: Tries that ended with a worker while other items were at work as well, which may have ended it. They
            count as failed once the item ends a worker all alone.
        end: ``aside``, ``run`` (it ends the run), ``done``, or nothing yet.
        done: What was made, where it is done.
        error: The last error: ``type``, ``message``, ``where``, ``remedy``.
        cause: The last error itself, where the worker is the driver's own process.
    """

    tries: tuple[tuple[str, str], ...] = ()
    begun: bool = False
    doubts: int = 0
    end: str = ""
    done: Done | None = None
    error: dict[str, str] = field(default_factory=dict)
    cause: BaseException | None = field(default=None, compare=False)


_here: dict[str, dict[str, Note]] = {}
"""Notes of workers in the driver's process, by board."""


@dataclass(frozen=True)
class Board:
    """Where workers leave notes: in memory if they share the driver's process, else on storage.

    Attributes:
        uri: The corpus.
        name: Distinct for every pipeline.
    """

    uri: str
    name: str

    @property
    def here(self) -> bool:
        """True in the driver's own process."""
        return self.name in _here

    def open(self) -> None:
        """Make this the driver's process."""
        _here[self.name] = {}

    def put(self, key: str, note: Note) -> None:
        """Leave a note.

        Raises:
            StoreError: It cannot be written.
        """
        if self.here:
            _here[self.name][key] = note
        else:
            self._write(key, note)

    def hand_on(self, key: str, note: Note) -> None:
        """Leave a note for workers elsewhere. Called by the driver."""
        self._write(key, note)

    def stop(self, elsewhere: bool) -> None:
        """Tell workers to begin nothing more. Called by the driver; workers may outlive it, so the note stays."""
        _here[self.name][STOP] = Note()
        if elsewhere:
            self._write(STOP, Note())

    def get(self, key: str) -> Note | None:
        """Return a note, or None where there is none."""
        return _here[self.name].get(key) if self.here else self.written(Storage(self.uri), key)

    def held(self) -> dict[str, Note]:
        """Return the notes in memory, by key. Called by the driver."""
        return {key: note for key, note in _here[self.name].copy().items() if key != STOP}

    def listed(self, storage: Storage) -> dict[str, int]:
        """Return the notes that a listing of storage shows: key -> bytes. A store may be slow to list new ones."""
        start = self._path("")
        return {
            path.removeprefix(start).removesuffix(".json"): size
            for path, size in storage.walk(FOLDER)
            if path.startswith(start) and path.endswith(".json")
        }

    def written(self, storage: Storage, key: str) -> Note | None:
        """Return a note on storage, or None where there is none."""
        raw = storage.find_json(self._path(key))
        if raw is None:
            return None
        tries = tuple((kind, reason) for kind, reason in raw["tries"])
        return Note(**{**raw, "tries": tries, "done": None if raw["done"] is None else _done(raw["done"])})

    def sweep(self, known: Iterable[str], but: Collection[str] = ()) -> None:
        """Take notes away from storage. Called by the driver.

        Args:
            known: Keys of notes that were seen, lest a listing lacks them.
            but: Keys of notes that stay.
        """
        storage = Storage(self.uri)
        keys = sorted({*self.listed(storage), *known} - set(but))
        with ThreadPoolExecutor(READERS) as pool:
            list(pool.map(lambda key: storage.remove(self._path(key)), keys))

    def close(self) -> None:
        """Forget the notes in memory. Called by the driver, when no worker is left."""
        _here.pop(self.name, None)

    def _path(self, key: str) -> str:
        return f"{FOLDER}/{self.name}-{key}" + (".json" if key else "")

    def _write(self, key: str, note: Note) -> None:
        Storage(self.uri).write_json(self._path(key), asdict(replace(note, cause=None)))


def _done(raw: dict[str, Any]) -> Done:
    parts = tuple(
        Part(**{**part, "tables": {name: TablePart(**table) for name, table in part["tables"].items()}})
        for part in raw["parts"]
    )
    return Done(parts, Cost(**raw["cost"]))


class Watch:
    """The driver's eye on a board. A note is read when it is new or has changed, and not again once its item ended."""

    def __init__(self, board: Board, elsewhere: bool) -> None:
        """Know nothing yet.

        Args:
            board: The board.
            elsewhere: Look on storage as well.
        """
        self._board, self._elsewhere = board, elsewhere
        self._sizes: dict[int, int] = {}
        self._ended: set[int] = set()

    def news(self) -> dict[int, Note]:
        """Return index of an item -> its note, of those that may have changed: one listing, and what it shows new."""
        found = {int(key): note for key, note in self._board.held().items() if int(key) not in self._ended}
        if self._elsewhere:
            listed = self._board.listed(Storage(self._board.uri))
            sizes = {int(key): size for key, size in listed.items() if key.isdigit()}
            found |= self._read([n for n, size in sizes.items() if self._sizes.get(n) != size])
            self._sizes |= sizes
        self._ended.update(n for n, note in found.items() if note.end)
        return found

    def last(self, chosen: Collection[int]) -> dict[int, Note]:
        """Return the news when no worker is left; notes that a listing does not show are asked for by name."""
        found = self.news()
        if self._elsewhere:
            found |= self._read(chosen)
            self._ended.update(n for n, note in found.items() if note.end)
        return found

    def close(self, over: bool) -> None:
        """Take the notes away.

        Args:
            over: True where no worker is left; else the note that stops them stays, and what they still write.
        """
        if self._elsewhere:
            self._board.sweep([str(n) for n in {*self._sizes, *self._ended}], () if over else (STOP,))
        if over:
            self._board.close()

    def _read(self, chosen: Collection[int]) -> dict[int, Note]:
        wanted = sorted(set(chosen) - self._ended)
        if not wanted:
            return {}
        storage = Storage(self._board.uri)
        with ThreadPoolExecutor(min(READERS, len(wanted))) as pool:
            notes = list(pool.map(lambda n: self._board.written(storage, str(n)), wanted))
        return {n: note for n, note in zip(wanted, notes, strict=True) if note is not None}
