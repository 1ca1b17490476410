"""Files of a corpus on any fsspec file system: whole or absent, never half-written."""

from __future__ import annotations

import errno
import json
import os
import re
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO

import fsspec

from pipelines import meter
from schemas.errors import MissingDependencyError, StoreError

TEMPORARY = ".tmp-"
"""Mark in the name of a file that is still being written; `gc` removes those that a kill left behind."""


_TEMPORARY_NAME = re.compile(re.escape(TEMPORARY) + r"[0-9a-f]{32}$")


def is_temporary(name: str) -> bool:
    """Tell whether a file is one that a killed run was writing aside."""
    return _TEMPORARY_NAME.search(name) is not None


@dataclass(frozen=True)
class Storage:
    """One folder of an fsspec file system; all paths are relative to it, with ``/``.

    Attributes:
        uri: What the user named.
    """

    uri: str

    @cached_property
    def _root(self) -> tuple[Any, str]:
        try:
            fs, path = fsspec.core.url_to_fs(self.uri)
        except ImportError as error:
            raise MissingDependencyError(
                f"this kind of storage needs another library: {error}", where=self.uri
            ) from error
        except ValueError as error:
            raise StoreError(str(error), where=self.uri, remedy="Use a folder, or a URI such as s3://b/c.") from error
        return fs, path.rstrip("/")

    @property
    def fs(self) -> Any:
        """The fsspec file system."""
        return self._root[0]

    def __getstate__(self) -> dict[str, str]:
        return {"uri": self.uri}

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
        """Tell whether a file is there."""
        if self.local is not None:
            return (self.local / name).is_file()
        self.fs.invalidate_cache()  # workers write, and listings of before do not know
        return bool(self.fs.isfile(self.path(name)))

    def read(self, name: str) -> bytes:
        """Return the bytes of a file.

        Raises:
            StoreError: It is not there or cannot be read.
        """
        try:
            with meter.reading() as cost:
                data = bytes(self.fs.cat_file(self.path(name)))
                cost.bytes_read += len(data)
            return data
        except FileNotFoundError as error:
            raise StoreError("the file is missing", where=self.path(name)) from error
        except OSError as error:
            raise StoreError(f"cannot be read: {error}", where=self.path(name)) from error

    def open(self, name: str) -> BinaryIO:
        """Open a file for reading at random places.

        Raises:
            StoreError: It is not there or cannot be read.
        """
        try:
            handle: BinaryIO = self.fs.open(self.path(name), "rb")
        except FileNotFoundError as error:
            raise StoreError("the file is missing", where=self.path(name)) from error
        except OSError as error:
            raise StoreError(f"cannot be read: {error}", where=self.path(name)) from error
        return handle

    def write(self, name: str, data: bytes | memoryview, *, durable: bool = False) -> None:
        """Write a file so that it is there whole or not at all, replacing an older one.

        On a disk the bytes are written aside and renamed; object stores get one put, which is atomic there.

        Args:
            name: Relative path.
            data: The whole content.
            durable: Also force it to the disk, so that a power failure cannot undo it.

        Raises:
            StoreError: The disk is full, or the store refuses.
        """
        try:
            with meter.writing() as cost:
                cost.bytes_written += len(data)
                self._put(name, data, durable)
        except OSError as error:
            raise StoreError(
                f"cannot be written: {error}",
                where=self.path(name),
                remedy="Free space or mend the permissions, then run the same command again: finished parts stay.",
            ) from error

    def _put(self, name: str, data: bytes | memoryview, durable: bool) -> None:
        if self.local is None:
            self.fs.pipe_file(self.path(name), bytes(data))
            return
        target = self.local / name
        made = [] if target.parent.is_dir() else [f for f in target.parents if not f.exists()]
        target.parent.mkdir(parents=True, exist_ok=True)
        aside = target.with_name(f"{target.name}{TEMPORARY}{uuid.uuid4().hex}")
        try:
            with aside.open("wb") as handle:
                handle.write(data)
                if durable:
                    handle.flush()
                    os.fsync(handle.fileno())
            aside.replace(target)
            if durable:
                for changed in (target.parent, *(one.parent for one in made)):
                    _sync_folder(changed)
        finally:
            aside.unlink(missing_ok=True)

    def read_json(self, name: str) -> Any:
        """Return the content of a JSON file.

        Raises:
            StoreError: It is missing or damaged.
        """
        try:
            return json.loads(self.read(name))
        except ValueError as error:
            raise StoreError(
                f"is damaged: {error}",
                where=self.path(name),
                remedy="Remove it and run again with the inputs named; parts that are whole are found and kept.",
            ) from error

    def write_json(self, name: str, value: Any) -> None:
        """Write a JSON file, readable, with sorted keys, and force it to the disk."""
        text = json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False)
        self.write(name, text.encode("utf-8", "backslashreplace") + b"\n", durable=True)

    def remove(self, name: str) -> None:
        """Remove a file if it is there."""
        try:
            self.fs.rm_file(self.path(name))
        except FileNotFoundError:
            return

    def move(self, name: str, to: str) -> None:
        """Give a file another name; on object stores that is a copy first.

        Raises:
            StoreError: It is not there, or the store refuses.
        """
        try:
            if self.local is not None:
                (self.local / name).replace(self.local / to)
            else:  # fsspec's own move takes brackets in names for patterns
                self.fs.pipe_file(self.path(to), self.fs.cat_file(self.path(name)))
                self.fs.rm_file(self.path(name))
        except OSError as error:
            raise StoreError(f"cannot be moved: {error}", where=self.path(name)) from error

    def walk(self, folder: str = "") -> Iterator[tuple[str, int]]:
        """Yield (relative path, bytes) of every file below a folder, in order of path."""
        base = self.path(folder).rstrip("/") if folder else self._root[1]
        prefix = len(self._root[1]) + 1
        self.fs.invalidate_cache()
        found = self.fs.find(base, detail=True) if self.fs.isdir(base) else {}
        for path in sorted(found):
            yield path[prefix:], int(found[path]["size"] or 0)

    def append(self, name: str, before: bytes, added: bytes) -> None:
        """Add bytes at the end of a file, durably.

        Args:
            name: Relative path.
            before: What the file holds now (object stores cannot append, they get the whole anew).
            added: What to add; on a disk a kill may leave it cut, never what was there.

        Raises:
            StoreError: It cannot be written.
        """
        if self.local is None:
            self.write(name, before + added)
            return
        target = self.local / name
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("ab") as handle:
                handle.write(added)
                handle.flush()
                os.fsync(handle.fileno())
        except OSError as error:
            raise StoreError(f"cannot be written: {error}", where=self.path(name)) from error


def _sync_folder(folder: Path) -> None:
    """Force the names in a folder to the disk, where the system can."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EACCES, errno.EBADF):
            raise
    finally:
        os.close(handle)
