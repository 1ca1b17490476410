"""Files on a disk: written aside and renamed, so that they are whole or absent."""

from __future__ import annotations

import errno
import os
import re
import uuid
from pathlib import Path

TEMPORARY = ".tmp-"
"""Mark in the name of a file that is still being written; `gc` removes those that a kill left behind."""

_TEMPORARY_NAME = re.compile(re.escape(TEMPORARY) + r"[0-9a-f]{32}$")


def is_temporary(name: str) -> bool:
    """Tell whether a file is one that a killed run was writing aside."""
    return _TEMPORARY_NAME.search(name) is not None


def put(target: Path, data: bytes | memoryview, *, durable: bool) -> None:
    """Write a file, whole or not at all, making its folder.

    Raises:
        OSError: The disk is full, or may not be written to; nothing half-written stays.
    """
    changed = _folders(target)
    aside = target.with_name(f"{target.name}{TEMPORARY}{uuid.uuid4().hex}")
    try:
        with aside.open("wb") as handle:
            handle.write(data)
            if durable:
                handle.flush()
                os.fsync(handle.fileno())
        aside.replace(target)
        if durable:
            for folder in changed:
                _sync_folder(folder)
    finally:
        aside.unlink(missing_ok=True)


def append(target: Path, added: bytes) -> None:
    """Add bytes at the end of a file, durably, making its folder.

    Raises:
        OSError: The disk is full, or may not be written to.
    """
    changed = _folders(target)
    with target.open("ab") as handle:
        handle.write(added)
        handle.flush()
        os.fsync(handle.fileno())
    # Also where file and folder were there: who made them may have died before it came to this.
    for folder in dict.fromkeys((*changed, target.parent.parent)):
        _sync_folder(folder)


def _folders(target: Path) -> list[Path]:
    """Make the folder of a file; return the folders that get new names with the file."""
    made = [] if target.parent.is_dir() else [f for f in target.parents if not f.exists()]
    target.parent.mkdir(parents=True, exist_ok=True)
    return [target.parent, *(one.parent for one in made)]


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
