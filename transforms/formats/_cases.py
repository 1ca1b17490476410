"""Names of cases where an export names none: they are taken from where its file lies."""

from __future__ import annotations

import posixpath
import re

_ENDINGS = re.compile(r"(?:\.(?:json|jsonl|txt))?(?:\.(?:gz|zst))?(~\d+)?\Z", re.IGNORECASE)


def case_name(source: str, own: str) -> str:
    """Name the case that a file stands for.

    A file under the name that the exporting service gives to all of its files says nothing: there the folder names
    the case, if the source has one. Other files are named with their folder, so that files of one name in two folders
    are two cases.

    Args:
        source: The source's name: its path relative to the input that named it.
        own: Regular expression of the names, without endings, that the service gives.

    Returns:
        The path without endings such as ``.json`` or ``.txt.gz``; never empty.
    """
    folder, stem, number = parted(source)
    if folder and re.fullmatch(own, stem):
        return folder + number
    return posixpath.join(folder, stem + number)


def parted(source: str) -> tuple[str, str, str]:
    """Part a source's name into its folder, the file's name without endings, and what tells sources of one name apart.

    The last is empty, or ``~2`` for the second source of the name, and so on.
    """
    folder, name = posixpath.split(source)
    found = _ENDINGS.search(name)
    assert found is not None  # it may be empty, but it is there
    return folder, name[: found.start()] or name, found.group(1) or ""
