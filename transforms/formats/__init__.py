"""Input formats. Each module here that does not begin with ``_`` is one; third parties add theirs by entry point."""

from __future__ import annotations

import gzip
import importlib
import io
import posixpath
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import tzinfo
from functools import cache
from importlib.metadata import entry_points
from typing import Any, BinaryIO, Literal, cast

import zstandard

from schemas.errors import InputError
from schemas.ids import nearest
from schemas.registry import ours
from transforms.formats import _parquet
from transforms.records import ReadContext, Reader, Record, Reject, Unit
from transforms.text import text_stream

GROUP = "tagloom.formats"
"""Entry-point group; an entry names a module that follows `transforms.records.Reader`."""

HEAD = 64 << 10
"""Bytes that a reader's `sniff` is shown."""

_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"


def _own() -> dict[str, Reader]:
    found: dict[str, Reader] = {}
    for module in ours(__name__):
        reader = cast(Reader, importlib.import_module(f"{__name__}.{module}"))
        found[reader.NAME] = reader
    return found


READERS: dict[str, Reader] = _own()
"""The formats of this package by name."""


@cache
def readers() -> dict[str, Reader]:
    """Return all formats by name: this package's and those of other installed packages.

    Raises:
        InputError: An entry point does not load, or takes a name that is in use.
    """
    found = dict(READERS)
    for entry in sorted(entry_points(group=GROUP), key=lambda e: (e.name, e.value)):
        try:
            reader = cast(Reader, entry.load())
            name = reader.NAME
        except Exception as error:
            raise InputError(
                f"format '{entry.name}' does not load: {error}",
                where=entry.value,
                remedy="Repair or uninstall the package that brings it.",
            ) from error
        if name in found:
            raise InputError(
                f"two formats are called '{name}'",
                where=entry.value,
                remedy="Uninstall the package that brings the second one.",
            )
        found[name] = reader
    return found


def detect(head: bytes, name: str) -> Reader:
    """Find the format of a file by its first bytes.

    Args:
        head: The first 64 KiB, decompressed, as UTF-8. White space alone counts as the ``tagloom`` format, and an empty
            array that no reader claims as ``longmemeval``, so that an empty file is a source without records.
        name: The file's name, for readers that go by it and for the error.

    Raises:
        InputError: No format fits, or more than one does.
    """
    if not head.strip():
        return READERS["tagloom"]
    fitting = _fitting(head, name)
    if len(fitting) == 1:
        return fitting[0]
    if not fitting and b"".join(head.split()) == b"[]":
        return READERS["longmemeval"]
    known = ", ".join(readers())
    if fitting:
        message = f"fits more than one format: {', '.join(reader.NAME for reader in fitting)}"
    else:
        message = f"is of no known format (known: {known})"
    raise InputError(message, where=name, remedy="Name its format: --format NAME. docs/formats.md describes them.")


def _fitting(head: bytes, name: str) -> list[Reader]:
    return [reader for reader in readers().values() if reader.sniff(head, name)]


def fits(stream: BinaryIO, name: str) -> bool:
    """Tell from the first bytes of a file, as stored, whether `detect` would find a format for it, or too many.

    Parquet files fit, since only their ends tell of what they are, and so do empty files and compressed ones that are
    damaged from the beginning.
    """
    guarded = _Guarded(decompress(stream, name))
    buffered = io.BufferedReader(guarded, 1 << 20)
    if buffered.peek(4).startswith(_parquet.MAGIC):
        return True
    head = cast(io.BufferedReader, text_stream(cast(BinaryIO, buffered))[0]).peek(HEAD)[:HEAD]
    return b"".join(head.split()) in (b"", b"[]") or bool(_fitting(head, name))


def beside(path: str) -> tuple[str, ...]:
    """Return where the files would lie that tell the names of what a file mentions.

    Args:
        path: Path or URI of the file.

    Returns:
        Paths in the folder above that of the file: of what `BESIDE` of a reader names, if its `PLACE` matches.
    """
    above = posixpath.dirname(posixpath.dirname(path))
    fitting = (one for one in readers().values() if re.search(rf"(?:^|/)(?:{getattr(one, 'PLACE', '(?!)')})$", path))
    return tuple(posixpath.join(above, name) for one in fitting for name in getattr(one, "BESIDE", ()))


def names(stream: BinaryIO, path: str) -> dict[str, str]:
    """Read the names by id that a file of those of `beside` tells; what is broken in it tells none."""
    decoded = text_stream(cast(BinaryIO, io.BufferedReader(_Guarded(decompress(stream, path)), 1 << 20)))[0]
    file = posixpath.basename(path.partition("::")[0])
    telling = [one for one in readers().values() if file in getattr(one, "BESIDE", ())]
    return telling[0].names(decoded) if telling else {}  # type: ignore[attr-defined]


def place(path: str) -> str:
    """Return the end of a file's path that a format goes by, because the file's name says nothing by itself.

    Args:
        path: The path, steps separated by ``/``.

    Returns:
        The longest end that the `PLACE` of a reader matches, from the beginning of a step on; empty if none does.
    """
    patterns = (getattr(reader, "PLACE", "") for reader in readers().values())
    found = (re.search(rf"(?:^|(?<=/))(?:{pattern})$", path) for pattern in patterns if pattern)
    return max((one.group() for one in found if one), key=len, default="")


def versions(format: str) -> dict[str, int]:
    """Return the versions of the readers that a setting may lead to: of one, or of all with ``auto``."""
    chosen = readers().values() if format == "auto" else [named(format)]
    return {reader.NAME: reader.VERSION for reader in chosen}


def named(format: str) -> Reader:
    """Return a format by its name.

    Raises:
        InputError: There is none of that name.
    """
    known = readers()
    if format in known:
        return known[format]
    guess = nearest(format, list(known))
    remedy = f"Did you mean '{guess}'?" if guess else f"Known formats: auto, {', '.join(known)}."
    raise InputError(f"no format is called '{format}'", where="ingest.format", remedy=remedy)


def decompress(stream: BinaryIO, name: str) -> BinaryIO:
    """Undo gzip or Zstandard compression, known by the first bytes whatever the file is called.

    Args:
        stream: Bytes as stored, at their beginning.
        name: File name, for errors.

    Returns:
        A buffered stream. Reading from it raises EOFError where compressed data is cut, and gzip, zlib or Zstandard
        errors where it is damaged; `read_source` turns those into a reject.
    """
    buffered = cast(BinaryIO, io.BufferedReader(cast(Any, _Raw(stream)), 1 << 20))
    head = cast(io.BufferedReader, buffered).peek(4)[:4]
    if head.startswith(_GZIP):
        return cast(BinaryIO, gzip.GzipFile(fileobj=buffered, filename=name, mode="rb"))
    if head == _ZSTD:
        return cast(BinaryIO, io.BufferedReader(_Zstd(buffered), 1 << 20))
    return buffered


class _Raw(io.RawIOBase):
    """Any object with `read`, as a raw stream."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._stream.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


class _Zstd(io.RawIOBase):
    """Zstandard frames; unlike the library's own reader it notices a cut."""

    # A step this small bounds what one call can expand to (a block of 128 KiB may take four bytes).
    _STEP = 2048

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._frame = zstandard.ZstdDecompressor().decompressobj()
        self._inside = False
        self._input, self._ready = b"", memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready:
            if self._frame.eof:
                self._input = self._frame.unused_data + self._input
                self._frame, self._inside = zstandard.ZstdDecompressor().decompressobj(), False
            step = self._input[: self._STEP] or self._stream.read(self._STEP)
            self._input = self._input[self._STEP :]
            if not step:
                if self._inside:
                    raise EOFError("compressed data ends before its end mark")
                return 0
            self._inside = True
            self._ready = memoryview(self._frame.decompress(step))
        size = min(len(buffer), len(self._ready))
        buffer[:size] = self._ready[:size]
        self._ready = self._ready[size:]
        return size


class _Guarded(io.RawIOBase):
    """Ends where compressed data turns out to be cut or damaged, and remembers why. Storage errors pass."""

    def __init__(self, stream: BinaryIO) -> None:
        # read1 gives what there is before it meets the fault; read would lose it.
        self._read = cast(io.BufferedReader, stream).read1
        self.fault: tuple[str, str] | None = None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if self.fault is not None:
            return 0
        try:
            data = self._read(len(buffer))
        except EOFError as error:
            self.fault, data = ("truncated", str(error)), b""
        except (gzip.BadGzipFile, zlib.error, zstandard.ZstdError) as error:
            self.fault, data = ("unreadable", f"compressed data is damaged: {error}"), b""
        buffer[: len(data)] = data
        return len(data)


@dataclass(frozen=True)
class Reading:
    """A source being read.

    Attributes:
        reader: The format.
        unit: Retrieval unit: the one asked for, or the format's own.
        encoding: Text encoding that the source is in.
        context: What the reader was told; its `repairs` are complete once `records` is used up.
        records: The records, streamed.
    """

    reader: Reader
    unit: Unit
    encoding: str
    context: ReadContext
    records: Iterator[Record]


def read_source(
    stream: BinaryIO,
    source: str,
    format: str,
    unit: Literal["auto", "exchange", "message"],
    timezone: tzinfo,
    encoding: str = "auto",
    names: dict[str, str] | None = None,
) -> Reading:
    """Open a source: decompress, decode, find the format, and stream its records.

    A Parquet file is no text: it goes undecoded, and through a temporary file, to a reader that has `PARQUET`.

    Args:
        stream: Bytes as stored.
        source: Its name, as rows will carry it.
        format: Name of a format, or ``auto``.
        unit: Retrieval unit, or ``auto`` for the format's own.
        timezone: Zone of times that name none.
        encoding: Text encoding, or ``auto`` (see `transforms.text.text_stream`).
        names: What files beside it tell (see `beside`).

    Raises:
        InputError: The format or the encoding is not known.
    """
    guarded = _Guarded(decompress(stream, source))
    buffered = io.BufferedReader(guarded, 1 << 20)
    decoded: BinaryIO
    if parquet := buffered.peek(4).startswith(_parquet.MAGIC):
        decoded, encoding = _parquet.spool(cast(BinaryIO, buffered)), "utf-8"
        head = _parquet.head(decoded)
    else:
        decoded, encoding = text_stream(cast(BinaryIO, buffered), encoding)
        head = cast(io.BufferedReader, decoded).peek(HEAD)[:HEAD]
    if not head.strip() and (guarded.fault or parquet):
        # Nothing came out at all: whichever reader, the one record is the reject.
        reader = READERS["tagloom"] if format == "auto" else named(format)
    else:
        reader = detect(head, source) if format == "auto" else named(format)
    context = ReadContext(source, timezone, names=names or {})
    if encoding != "utf-8":
        context.repairs["transcoded_source"] += 1
    unreadable = ""
    if parquet and not head:
        unreadable = "a Parquet file that is damaged or cut"
    elif parquet and not getattr(reader, "PARQUET", False):
        unreadable = f"a Parquet file, which cannot be read as {reader.NAME}"
    records = _records(reader, decoded, context, guarded, unreadable)
    return Reading(reader, reader.UNIT if unit == "auto" else unit, encoding, context, records)


def _records(
    reader: Reader, stream: BinaryIO, context: ReadContext, guarded: _Guarded, unreadable: str
) -> Iterator[Record]:
    with stream:
        if unreadable:
            yield Reject("unreadable", unreadable)
        else:
            yield from reader.read(stream, context)
    if guarded.fault is not None:
        yield Reject(guarded.fault[0], guarded.fault[1])
