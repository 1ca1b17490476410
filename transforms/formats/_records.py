"""Files that hold a JSON array of objects, or one object a line, or one object alone."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import BinaryIO, cast

from transforms.formats._head import first_keys
from transforms.jsonstream import Piece, array_elements, lines

_HEAD = 64 << 10
_LINES = 20


def head_keys(head: bytes) -> list[frozenset[str]]:
    """Return the keys of the objects that tell a file's format.

    Args:
        head: The first bytes of the file.

    Returns:
        The keys of the array's first object; of JSON lines, those of each of the first lines, since one of them may be
        broken.
    """
    found = [first_keys(head)]
    if _by_line(head):
        found += [first_keys(line) for line in head.splitlines()[:_LINES] if line.startswith(b"{")]
    return found


def records(stream: BinaryIO, keys: tuple[str, ...]) -> Iterator[Piece]:
    """Split a file into its objects.

    Args:
        stream: Binary stream of UTF-8 with `peek`, at its beginning.
        keys: As for `transforms.jsonstream.array_elements`, where the file is an array.

    Yields:
        Pieces; offsets are line numbers from 1 in JSON lines, else bytes.
    """
    if _by_line(cast(io.BufferedReader, stream).peek(_HEAD)[:_HEAD]):
        return lines(stream)
    return array_elements(stream, keys=keys)


def _by_line(head: bytes) -> bool:
    """Tell JSON lines from an array and from one object that is spread over lines."""
    if head.lstrip()[:1] == b"[":
        return False
    whole = head.splitlines()
    return len(whole) < 2 or any(line.startswith(b"{") and line.rstrip().endswith(b"}") for line in whole)
