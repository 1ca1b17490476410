"""Entries for tests of the journal."""

import hashlib
from dataclasses import replace

from pipelines.journal import Entry


def key(n):
    return hashlib.md5(b"%d" % n).hexdigest()


def entry(n, kind="reply", text=None, *, round=0, **more):
    told = f"text {n}" if text is None else text
    error = None if kind == "reply" else "why"
    return replace(Entry(key(n), kind, told, "stop", 9, 5, 4, error, round, key(-n), "p" * 32), **more)
