"""Files of a corpus on any fsspec file system: whole or absent, never half-written."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, cast

from pipelines import meter, storage_disk
from pipelines.storage_disk import TEMPORARY, is_temporary
from pipelines.storage_faults import MISSING, Patience, explained, patiently
from pipelines.storage_files import Spans
from pipelines.storage_remote import Remote, filesystem, remote
from schemas.errors import MissingDependencyError, StoreError

T = TypeVar("T")
log = logging.getLogger(__name__)

__all__ = ["TEMPORARY", "Storage", "is_temporary", "json_bytes"]


@dataclass(frozen=True)
class Storage:
    """One folder of an fsspec file system; all paths are relative to it, with ``/``.

    Whatever is asked of an object store is asked again while its faults are such that pass (`patience`).

    Attributes:
        uri: What the user named.
        patience: How long an object store that is away is waited for.
    """

    uri: str
    patience: Patience = field(default=Patience(), compare=False)

    @cached_property
    def _root(self) -> tuple[Any, str]:
        try:
            fs, path = filesystem(self.uri)
        except ImportError as error:
            raise MissingDependencyError(
                f"this kind of storage needs another library: {error}",
                where=self.uri,
                remedy="pip install 'tagloom[s3]' (or [gs], [abfs])",
            ) from error
        except ValueError as error:
            raise StoreError(str(error), where=self.uri, remedy="Use a folder, or a URI such as s3://b/c.") from error
        return fs, path.rstrip("/")

    @property
    def fs(self) -> Any:
        """The fsspec file system."""
        return self._root[0]

    @cached_property
    def remote(self) -> Remote:
        """What the object store (or ``memory://``) offers."""
        return remote(self.fs)

    def __getstate__(self) -> dict[str, Any]:
        return {"uri": self.uri, "patience": self.patience}

    def _named(self, name: str) -> str:
        """Return what messages call a file."""
        return self.path(name) if self.local is not None else f"{self.uri.rstrip('/')}/{name}".rstrip("/")

    def _ask(self, act: Callable[[], T], name: str, what: str) -> T:
        """Ask something of storage.

        Raises:
            StoreError: It refuses, or stays away.
        """
        here = self.local is not None
        try:
            return act() if here else patiently(act, self._named(name), self.patience)
        except StoreError:
            raise
        except Exception as error:  # the libraries of object stores raise errors of their own kinds
            if here and not isinstance(error, OSError):
                raise
            raise explained(error, what, self._named(name), remote=not here) from error

    def path(self, name: str) -> str:
        """Return the path of a file as the file system wants it."""
        return f"{self._root[1]}/{name}"

    @property
    def local(self) -> Path | None:
        """The folder, where it is on this machine's disk."""
        protocol = self.fs.protocol
        names = (protocol,) if isinstance(protocol, str) else protocol
        return Path(self._root[1]) if "file" in names else None

    @property
    def absolute(self) -> str:
        """The URI that means the same folder to processes with another current directory."""
        return self.uri if self.local is None else self._root[1]

    @property
    def private(self) -> bool:
        """True where other processes cannot see the files (``memory://``)."""
        return "memory" in (self.fs.protocol if isinstance(self.fs.protocol, tuple) else (self.fs.protocol,))

    def exists(self, name: str) -> bool:
        """Tell whether a file is there.

        Raises:
            StoreError: The store refuses, or stays away.
        """
        if self.local is not None:
            return (self.local / name).is_file()
        return self._ask(lambda: self.remote.size(self.path(name)), name, "cannot be looked at") is not None

    def read(self, name: str) -> bytes:
        """Return the bytes of a file.

        Raises:
            StoreError: It is not there or cannot be read.
        """
        with meter.reading() as cost:
            data = self._ask(lambda: self._get(name), name, "cannot be read")
            cost.bytes_read += len(data)
        return data

    def _get(self, name: str) -> bytes:
        return self.remote.get(self.path(name)) if self.local is None else (self.local / name).read_bytes()

    def find(self, name: str) -> bytes | None:
        """Return the bytes of a file, or None where there is none; on object stores that is one request.

        Raises:
            StoreError: It cannot be read.
        """
        try:
            return self.read(name)
        except StoreError as error:
            if error.message == MISSING:
                return None
            raise

    def _bucket_is_there(self) -> bool:
        return self.local is not None or self.remote.placed(self._root[1])

    def open(self, name: str) -> BinaryIO:
        """Open a file for reading at random places.

        Raises:
            StoreError: It is not there or cannot be read.
        """
        if self.local is not None:
            return self._ask(lambda: cast(BinaryIO, (self.local / name).open("rb")), name, "cannot be read")  # type: ignore[operator]
        path = self.path(name)
        size = self._ask(lambda: self.remote.size(path), name, "cannot be read")
        if size is None:
            raise StoreError(MISSING, where=self._named(name))

        def span(start: int, end: int) -> bytes:
            with meter.reading() as cost:
                data = self._ask(lambda: self.remote.span(path, start, end), name, "cannot be read")
                cost.bytes_read += len(data)
            return data

        return cast(BinaryIO, Spans(span, size))

    def write(self, name: str, data: bytes | memoryview, *, durable: bool = False) -> None:
        """Write a file so that it is there whole or not at all, replacing an older one.

        On a disk the bytes are written aside and renamed; object stores get one put, which is atomic there.

        Args:
            name: Relative path.
            data: The whole content.
            durable: Also force it to the disk, so that a power failure cannot undo it.

        Raises:
            StoreError: The disk is full, or the store refuses or stays away.
        """
        with meter.writing() as cost:
            cost.bytes_written += len(data)
            self._ask(lambda: self._put(name, data, durable), name, "cannot be written")

    def change(self, name: str, make: Callable[[bytes | None], bytes | None]) -> bool:
        """Replace a file by what is made of it, if it is still the same then; of several writers at once one succeeds.

        Object stores that know puts under a condition do it in one step (`pipelines.storage_remote`). On a disk, whose
        corpus is held by a lock of the operating system, it is a look and then a rename; it is durable there.

        Args:
            name: Relative path.
            make: Gets what the file holds (None where there is none), and returns the whole new content; None leaves
                it as it is.

        Returns:
            False where nothing was written: `make` wanted that, or another process was faster (with other bytes).

        Raises:
            StoreError: The store refuses or stays away.
        """
        if self.local is not None:
            data = make(self.find(name))
            if data is not None:
                self.write(name, data, durable=True)
            return data is not None
        path = self.path(name)
        now = self._ask(lambda: self.remote.seen(path), name, "cannot be read")
        data = make(now.data if now else None)
        if data is None:
            return False
        put, version = data, now.version if now else None
        if self._ask(lambda: self.remote.swap(path, put, version), name, "cannot be written"):
            return True
        # The answer to an attempt that succeeded may have been lost, and the next one then found it done.
        return self.find(name) == data

    def replace_if(self, name: str, data: bytes, before: bytes | None) -> bool:
        """Write a file if it still holds what it held (None: if there is none), as `change` does."""
        return self.change(name, lambda now: data if now == before else None)

    @cached_property
    def known(self) -> dict[str, Any]:
        """What was read of files that never change, by path, so that they are read once; for their readers' use."""
        return {}

    def age(self, name: str) -> float | None:
        """Return the seconds since a file was written by the store's own clock, or None where that is not known."""
        if self.local is not None:
            return None
        return self._ask(lambda: self.remote.age(self.path(name)), name, "cannot be looked at")

    def sweep_uploads(self, age: float, *, dry_run: bool = False) -> int:
        """End uploads in several pieces that a killed process left unfinished below the folder; S3 bills for them.

        Args:
            age: Seconds since they began, at least, by the store's clock.
            dry_run: Only count.

        Returns:
            Their number. Where the credentials may not do this it is 0, and a warning says so.
        """
        if self.local is not None:
            return 0
        try:
            return self._ask(lambda: self.remote.sweep_uploads(self._root[1], age, dry_run), "", "cannot be swept")
        except StoreError as error:
            log.warning("unfinished uploads stay: %s", error)
            return 0

    def require_bucket(self) -> None:
        """Check that the bucket which the corpus lies in, or would lie in, is there.

        Raises:
            StoreError: It is not.
        """
        if not self._ask(self._bucket_is_there, "", "cannot be looked at"):
            raise StoreError("the bucket does not exist", where=self.uri, remedy="Make it, or mend the URI.")

    def _put(self, name: str, data: bytes | memoryview, durable: bool) -> None:
        if self.local is None:
            self.remote.put(self.path(name), bytes(data))
        else:
            storage_disk.put(self.local / name, data, durable=durable)

    def read_json(self, name: str) -> Any:
        """Return the content of a JSON file.

        Raises:
            StoreError: It is missing or damaged.
        """
        return self.parsed(name, self.read(name))

    def find_json(self, name: str) -> Any:
        """Return the content of a JSON file, or None where there is none.

        Raises:
            StoreError: It is damaged or cannot be read.
        """
        data = self.find(name)
        return None if data is None else self.parsed(name, data)

    def parsed(self, name: str, data: bytes) -> Any:
        """Return the content of what was read of a JSON file.

        Raises:
            StoreError: It is damaged.
        """
        try:
            return json.loads(data)
        except ValueError as error:
            raise StoreError(
                f"is damaged: {error}",
                where=self.path(name),
                remedy="Remove it and run again with the inputs named; parts that are whole are found and kept.",
            ) from error

    def write_json(self, name: str, value: Any) -> None:
        """Write a JSON file, readable, with sorted keys, and force it to the disk."""
        self.write(name, json_bytes(value), durable=True)

    def remove(self, name: str) -> None:
        """Remove a file if it is there.

        Raises:
            StoreError: The store refuses or stays away.
        """

        def gone() -> None:
            try:
                self.fs.rm_file(self.path(name))
            except FileNotFoundError:
                return

        self._ask(gone, name, "cannot be removed")

    def move(self, name: str, to: str) -> None:
        """Give a file another name; on object stores that is a copy first.

        Raises:
            StoreError: It is not there, or the store refuses.
        """
        if self.local is not None:
            here = self.local
            self._ask(lambda: (here / name).replace(here / to), name, "cannot be moved")
            return
        # fsspec's own move takes brackets in names for patterns
        data = self._ask(lambda: self.remote.get(self.path(name)), name, "cannot be moved")
        self.write(to, data)
        self.remove(name)

    def walk(self, folder: str = "") -> Iterator[tuple[str, int]]:
        """Yield (relative path, bytes) of every file below a folder, in order of path.

        A store may be slow to list what was just written: nothing that must be right may rest on it.

        Raises:
            StoreError: The store refuses or stays away.
        """
        base = self.path(folder).rstrip("/") if folder else self._root[1]
        prefix = len(self._root[1]) + 1
        found = self._ask(lambda: self.remote.listed(base), folder, "cannot be listed")
        for path in sorted(found):
            yield path[prefix:], found[path]

    def append(self, name: str, before: bytes, added: bytes) -> bool:
        """Add bytes at the end of a file, durably.

        Args:
            name: Relative path.
            before: What the file holds now (object stores cannot append, they get the whole anew).
            added: What to add, unlike what any other process adds, or it may be taken for that; on a disk a kill may
                leave it cut, never what was there.

        Returns:
            False where an object store holds something else meanwhile; nothing is added then.

        Raises:
            StoreError: It cannot be written.
        """
        if self.local is None:
            whole = before + added
            if self.change(name, lambda now: whole if (now or b"") == before else None):
                return True
            # The answer to a put that succeeded may have been lost, and others may have added to it since.
            return (self.find(name) or b"").startswith(whole)
        target = self.local / name
        self._ask(lambda: storage_disk.append(target, added), name, "cannot be written")
        return True


def json_bytes(value: Any) -> bytes:
    """Return plain data as JSON for people: readable, with sorted keys."""
    text = json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8", "backslashreplace") + b"\n"
