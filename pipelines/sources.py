"""Finds the input files of a run and identifies them by content."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import fsspec
import xxhash

from schemas.errors import InputError, MissingDependencyError


@dataclass(frozen=True)
class Source:
    """One input file.

    Attributes:
        name: Path relative to the input that named it; what tables and messages show.
        uri: Where to open it.
        bytes: Its size.
        digest: Hash of its content (on object storage: the store's own tag).
    """

    name: str
    uri: str
    bytes: int
    digest: str


def find_sources(inputs: Iterable[str]) -> list[Source]:
    """Expand files, folders and globs into sources, in order, each file once.

    Hidden files (a name that starts with ``.`` or ``_``) inside folders are passed over.

    Raises:
        InputError: An input does not exist or cannot be read, or a folder or glob holds no file.
    """
    found: dict[str, Source] = {}
    names: dict[str, int] = {}
    for text in inputs:
        fs, path = _filesystem(text)
        for name, file in _expand(fs, path, text):
            uri = fs.unstrip_protocol(file)
            if uri in found:
                continue
            names[name] = names.get(name, 0) + 1
            unique = name if names[name] == 1 else f"{name}~{names[name]}"
            try:
                found[uri] = Source(unique, uri, int(fs.size(file) or 0), _digest(fs, file))
            except OSError as error:
                raise InputError(f"cannot be read: {error}", where=file) from error
    return list(found.values())


def _filesystem(text: str) -> tuple[Any, str]:
    try:
        fs, path = fsspec.core.url_to_fs(text)
    except ImportError as error:
        raise MissingDependencyError(f"this kind of storage needs another library: {error}", where=text) from error
    except ValueError as error:
        raise InputError(str(error), where=text) from error
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
    kept = [(n, f) for n, f in pairs if not any(step.startswith((".", "_")) for step in n.split("/"))]
    if not kept:
        raise InputError("no file there", where=text, remedy=remedy)
    return kept


def _digest(fs: Any, path: str) -> str:
    protocol = fs.protocol if isinstance(fs.protocol, tuple) else (fs.protocol,)
    if not {"file", "memory"} & set(protocol):
        return str(fs.ukey(path))
    digest = xxhash.xxh3_128()
    with fs.open(path, "rb") as handle:
        while block := handle.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
