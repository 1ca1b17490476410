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


def append(target: Path, added: bytes) -> None:
    """Add bytes at the end of a file, durably, making its folder.

    Raises:
        OSError: The disk is full, or may not be written to.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("ab") as handle:
        handle.write(added)
        handle.flush()
        os.fsync(handle.fileno())


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
