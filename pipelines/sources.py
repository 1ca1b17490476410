"""Finds the input files of a run and identifies them by content."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import fsspec
import xxhash

from schemas.errors import InputError, MissingDependencyError
from transforms import formats

UNKNOWN = ""
"""Format of a source that goes by the configuration."""
_TAGGED = frozenset(("s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl"))
"""Object stores, whose own tag of a file changes with its content."""


@dataclass(frozen=True)
class Source:
    """One input file.

    Attributes:
        name: Path relative to the input that named it, and at least as much of the path as a format goes by
            (`transforms.formats.place`); what tables and messages show.
        uri: Where to open it.
        bytes: Its size; only so much is read, should it grow.
        digest: Hash of its content (on object stores: the store's own tag).
        format: Its format, where that is known whatever the configuration says.
    """

    name: str
    uri: str
    bytes: int
    digest: str
    format: str = UNKNOWN

    @property
    def hashed(self) -> bool:
        """True where `digest` is the xxh3-128 of the content."""
        return self.uri.partition("://")[0] not in _TAGGED


def find_sources(inputs: Iterable[str], *, format: str = UNKNOWN, without: str = "") -> list[Source]:
    """Expand files, folders and globs into sources, each file once, in order of URI.

    Hidden files (a name that starts with ``.``) inside folders are passed over.

    Args:
        inputs: Paths or URIs.
        format: Format of them all, where it is known.
        without: Folder whose files are no inputs (the corpus, which may lie among the logs).

    Raises:
        InputError: An input does not exist or cannot be read, or a folder or glob holds no file.
    """
    found: dict[str, tuple[str, Any, str]] = {}
    for text in inputs:
        fs, path = _filesystem(text)
        for name, file in _expand(fs, path, text):
            if not (without and file.startswith(without.rstrip("/") + "/")):
                found.setdefault(fs.unstrip_protocol(file), (max(name, formats.place(file), key=len), fs, file))
    sources: list[Source] = []
    for uri, (name, fs, file) in sorted(found.items()):
        try:
            name.encode("utf-8")
            size = int(fs.size(file) or 0)
            sources.append(Source(name, uri, size, _digest(fs, file, size), format))
        except UnicodeEncodeError as error:
            raise InputError("the file's name is not valid UTF-8", where=repr(file), remedy="Rename it.") from error
        except OSError as error:
            raise InputError(f"cannot be read: {error}", where=file) from error
    return sources


def distinguished(sources: Iterable[Source], taken: Iterable[str] = ()) -> list[Source]:
    """Give sources of one name distinct ones: the second is called ``NAME~2``.

    Args:
        sources: Sources, in order.
        taken: Names in use already.
    """
    used = set(taken)
    made = []
    for source in sources:
        name, number = source.name, 1
        while name in used:
            number += 1
            name = f"{source.name}~{number}"
        used.add(name)
        made.append(replace(source, name=name))
    return made


def _filesystem(text: str) -> tuple[Any, str]:
    try:
        fs, path = fsspec.core.url_to_fs(text)
    except ImportError as error:
        raise MissingDependencyError(f"this kind of storage needs another library: {error}", where=text) from error
    except ValueError as error:
        raise InputError(str(error), where=text) from error
    fs.invalidate_cache()  # what an earlier look at the store remembered may be out of date
    return fs, path


def _expand(fs: Any, path: str, text: str) -> list[tuple[str, str]]:
    remedy = "Check the path; folders and globs ('logs/*.jsonl') work too."
    if fs.isfile(path):
        return [(posixpath.basename(path), path)]
    if fs.isdir(path):
        base = path.rstrip("/")
        files = sorted(fs.find(base))
        root = base
    elif any(mark in path for mark in "*?["):
        files = sorted(f for f in fs.glob(path) if fs.isfile(f))
        head = path[: min(path.index(m) for m in "*?[" if m in path)]
        root = posixpath.dirname(head)
    else:
        raise InputError("no such file or folder", where=text, remedy=remedy)
    pairs = [(posixpath.relpath(f, root) if root else f, f) for f in files]
    kept = [(n, f) for n, f in pairs if not any(step.startswith(".") for step in n.split("/"))]
    if not kept:
        raise InputError("no file there", where=text, remedy=remedy)
    return kept


def _digest(fs: Any, path: str, size: int) -> str:
    protocol = fs.protocol if isinstance(fs.protocol, tuple) else (fs.protocol,)
    if _TAGGED & set(protocol):
        return str(fs.ukey(path))
    with fs.open(path, "rb") as handle:
        counted = Hashing(handle, size)
        while counted.read(1 << 20):
            pass
    return counted.hexdigest()


class Hashing:
    """The beginning of a stream, hashed as it is read."""

    def __init__(self, stream: Any, size: int) -> None:
        """Read at most `size` bytes of a stream."""
        self._stream = stream
        self._left = size
        self._digest = xxhash.xxh3_128()

    def read(self, size: int = -1) -> bytes:
        """Return up to so many bytes; empty at the end."""
        block: bytes = self._stream.read(self._left if size < 0 else min(size, self._left)) if self._left else b""
        self._left -= len(block)
        self._digest.update(block)
        return block

    def hexdigest(self) -> str:
        """Return the xxh3-128 of what was read."""
        return self._digest.hexdigest()
