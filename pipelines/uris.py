"""URIs of files: where their file systems alone would leave out the host, it is that of what the user named."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

_AUTHORITY = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*://[^/]*)")


def naming(fs: Any, named: str) -> Callable[[str], str]:
    """Return what makes URIs of the paths of a file system, as they lead back to it.

    fsspec leaves the host out, as in ``sftp://host/x`` and ``abfs://container@account.dfs.core.windows.net/x``.

    Args:
        fs: The file system, of fsspec.
        named: Path or URI that it was found by.
    """
    plain: Callable[[str], str] = fs.unstrip_protocol
    found = _AUTHORITY.match(named)
    if found is None or fs._get_kwargs_from_urls(named) == fs._get_kwargs_from_urls(plain(fs._strip_protocol(named))):
        return plain
    authority = found[1]
    root = fs._strip_protocol(authority).strip("/")

    def whole(path: str) -> str:
        return f"{authority}/{path.lstrip('/').removeprefix(root).lstrip('/')}"

    return whole


def inside(fs: Any, path: str, folder: tuple[Any, str]) -> bool:
    """Tell whether a file lies below a folder, which is of the same file system or another one."""
    other, below = folder
    same = type(fs) is type(other) and fs.storage_options == other.storage_options
    return same and path.startswith(below.rstrip("/") + "/")
