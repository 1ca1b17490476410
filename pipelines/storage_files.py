"""Files of object stores, read like those of a disk: few requests, and none lost to a fault that passes."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, cast

LEAST = 64 << 10
"""Bytes that a request for less asks for: the footer of an Arrow file, or a batch of few rows, is one request."""


class Spans(io.RawIOBase):
    """A file that never changes, read at random places with one request a place."""

    def __init__(self, fetch: Callable[[int, int], bytes], size: int) -> None:
        """Read a file.

        Args:
            fetch: Returns the bytes from a position up to another.
            size: Size of the file.
        """
        self._fetch = fetch
        self._size = size
        self._at = 0
        self._start, self._held = 0, b""

    def readable(self) -> bool:
        """Yes."""
        return True

    def seekable(self) -> bool:
        """Yes."""
        return True

    def size(self) -> int:
        """Return the size of the file in bytes."""
        return self._size

    def tell(self) -> int:
        """Return where the next read begins."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a place."""
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        """Return up to so many bytes; fewer only at the end."""
        end = self._size if size is None or size < 0 else min(self._size, self._at + size)
        if end <= self._at:
            return b""
        if not (self._start <= self._at and end <= self._start + len(self._held)):
            # What is read next of an Arrow file lies behind, but at its end, where the footer is, before.
            start = min(self._at, max(0, self._size - LEAST)) if end == self._size else self._at
            self._start, self._held = start, self._fetch(start, min(self._size, max(end, start + LEAST)))
        data = self._held[self._at - self._start : end - self._start]
        self._at += len(data)
        return data

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer."""
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


class Patient:
    """A stream of an input, read from its beginning; a read that fails for a fault that passes is done again."""

    def __init__(self, stream: Any, ask: Callable[[Callable[[], Any]], Any]) -> None:
        """Read a stream of fsspec, which stays at its place when a read fails.

        Args:
            stream: The stream.
            ask: Does something with the store, patiently.
        """
        self._stream = stream
        self._ask = ask

    def read(self, size: int = -1) -> bytes:
        """Return up to so many bytes; empty at the end."""
        return bytes(self._ask(lambda: self._stream.read(size)))


@contextmanager
def streaming(fs: Any, path: str, ask: Callable[[Callable[[], Any]], Any]) -> Iterator[BinaryIO]:
    """Open a file of an fsspec file system to read it once, from its beginning.

    Args:
        fs: The file system.
        path: The file.
        ask: Does something with the store, patiently.
    """
    with ask(lambda: fs.open(path, "rb")) as stream:
        yield cast(BinaryIO, Patient(stream, ask))
