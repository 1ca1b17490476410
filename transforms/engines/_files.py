"""Identity of model files: by content, without reading all of large ones."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

import xxhash

SMALL = 16 << 20
"""Bytes up to which a file is hashed whole; of a larger one its size and its first and last MiB."""
END = 1 << 20


def folder_hash(folder: Path) -> str:
    """Return the hash of a folder's files (names within it and contents), hidden ones aside; links are followed.

    Files are read once a process, unless their sizes or times change.

    Raises:
        OSError: A file cannot be read.
    """
    found = []
    for parent, folders, files in os.walk(folder, followlinks=True):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in files:
            path = Path(parent, name)
            if not name.startswith(".") and path.is_file():
                state = path.stat()
                found.append((path.relative_to(folder).as_posix(), state.st_size, state.st_mtime_ns))
    return _folder_hash(str(folder), tuple(sorted(found)))


@lru_cache(maxsize=16)
def _folder_hash(folder: str, files: tuple[tuple[str, int, int], ...]) -> str:
    digest = xxhash.xxh3_128()
    for name, size, _ in files:
        digest.update(f"{name}\0{size}\0".encode("utf-8", "surrogateescape"))
        with Path(folder, name).open("rb") as file:
            if size <= SMALL:
                digest.update(file.read())
            else:
                digest.update(file.read(END))
                file.seek(-END, os.SEEK_END)
                digest.update(file.read(END))
    return digest.hexdigest()
