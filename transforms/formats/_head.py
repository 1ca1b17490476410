"""What the beginning of a JSON file tells: the keys of its first object."""

from __future__ import annotations

import re
from functools import lru_cache

# A string that the end of the head cuts counts as one too: otherwise its inside would be taken for structure.
_TOKEN = re.compile(rb'"([^"\\]*(?:\\.[^"\\]*)*)(?:"(\s*:)?|\\?\Z)|[{}\[\]]', re.DOTALL)


@lru_cache(maxsize=64)  # every format looks at the same head
def first_keys(head: bytes) -> frozenset[str]:
    """Return the keys of the first object of a JSON array, of JSON lines, or of a single object.

    Keys of nested objects and words inside texts do not count. Keys that lie beyond the head are not seen.

    Args:
        head: The first bytes of the file, UTF-8.

    Returns:
        The keys; none where the file does not begin with an object or an array of them.
    """
    body = head.lstrip()
    if body.startswith(b"["):
        body = body[1:].lstrip()
    if not body.startswith(b"{"):
        return frozenset()
    keys: set[str] = set()
    depth = 0
    for found in _TOKEN.finditer(body):
        mark = body[found.start()]
        if mark in b"{[":
            depth += 1
        elif mark in b"}]":
            depth -= 1
            if not depth:
                break
        elif depth == 1 and found.group(2) is not None:
            keys.add(found.group(1).decode("utf-8", "replace"))
    return frozenset(keys)
