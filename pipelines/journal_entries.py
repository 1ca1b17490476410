"""Entries of the journal, as Python objects and as Arrow rows, and finding one among many."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from operator import attrgetter
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipelines import journal_files as files

_KINDS = frozenset({"reply", "corrupt", "failed", "long"})
_SURROGATE = re.compile("[\ud800-\udfff]")
_MOST = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the journal.

    Attributes:
        key: Hash of the rendered request: 32 hexadecimal digits.
        kind: ``reply``: it can be used. ``corrupt``: a reply that could not be used, kept for study and never served.
            ``failed``: the verdict that the request was given up, with its reason. ``long``: the one that it does not
            fit into the context.
        text: The reply; empty for verdicts.
        finish: Why the reply ended, as the engine says.
        prompt_tokens: Tokens of the prompt.
        completion_tokens: Tokens of the reply.
        cached_tokens: Tokens of the prompt that a prefix cache served.
        error: Why it is corrupt or failed.
        round: Verdicts are served to runs of this round and earlier ones.
        content: Hash of the piece asked about.
        prompt: Hash of the prompt template and of the other settings that the request depends on.
    """

    key: str
    kind: str
    text: str
    finish: str
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    error: str | None
    round: int
    content: str
    prompt: str


_FIELDS = tuple(field.name for field in fields(Entry))
_values = attrgetter(*_FIELDS)


def storable(entry: Entry) -> Entry:
    """Return an entry as a file can hold it: lone surrogates are U+FFFD, counts of tokens are within int32.

    Raises:
        ValueError: The key is not 32 ASCII characters, or the kind is not known.
    """
    if len(entry.key) != 32 or not entry.key.isascii() or entry.kind not in _KINDS:
        raise ValueError(f"no entry of a journal: key {entry.key!r}, kind {entry.kind!r}")
    changed: dict[str, Any] = {}
    for name in ("text", "finish", "error", "content", "prompt"):
        text = getattr(entry, name)
        if text is not None and not text.isascii() and _SURROGATE.search(text):
            changed[name] = _SURROGATE.sub("\ufffd", text)
    for name in ("prompt_tokens", "completion_tokens", "cached_tokens"):
        if not 0 <= getattr(entry, name) <= _MOST:
            changed[name] = min(max(getattr(entry, name), 0), _MOST)
    return replace(entry, **changed) if changed else entry


def stronger(old: Entry | None, new: Entry | None) -> Entry | None:
    """Return which of two entries for one key is served: the first that is not ``failed``, else the highest round."""
    if old is None or new is None:
        return old or new
    return new if old.kind == "failed" and (new.kind != "failed" or new.round > old.round) else old


def rows_of(entries: Sequence[tuple[int, Entry]]) -> pa.Table:
    """Return the rows of entries, one at least, each with the time (microseconds since 1970) at which it was added."""
    times, plain = zip(*entries, strict=True)
    columns = [*zip(*map(_values, plain), strict=True), times]
    arrays = [
        pa.array(values, pa.string()).dictionary_encode()
        if pa.types.is_dictionary(field.type)
        else pa.array(values, field.type)
        for values, field in zip(columns, files.SCHEMA, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=files.SCHEMA)


@dataclass(frozen=True)
class Index:
    """What may be served of many entries, one row a key, in order of key.

    Attributes:
        keys: The keys, in the memory of the table.
        table: The rows; every column is one chunk.
    """

    keys: npt.NDArray[np.bytes_]
    table: pa.Table
    _columns: tuple[pa.Array, ...]

    @classmethod
    def of(cls, table: pa.Table) -> Index:
        """Index rows as `journal_files.best` returns them."""
        corrupt = pc.equal(table["kind"].cast(pa.string()), "corrupt")
        if pc.any(corrupt).as_py():
            table = table.filter(pc.invert(corrupt)).combine_chunks()
        columns = tuple(table[name].chunk(0) for name in _FIELDS) if table.num_rows else ()
        return cls(files.key_array(table["key"]), table, columns)

    def find(self, key: str) -> Entry | None:
        """Return the entry of a key."""
        at = int(self.keys.searchsorted(key.encode("utf-8", "replace")))
        if at == len(self.keys) or self._columns[0][at].as_py() != key:
            return None
        return Entry(*(column[at].as_py() for column in self._columns))

    def joined(self, entries: Sequence[Entry]) -> Index:
        """Return an index that holds these entries too, which are younger than what is there."""
        after = (pc.max(self.table["added_at"].cast(pa.int64())).as_py() or 0) + 1
        rows = rows_of([(after + n, entry) for n, entry in enumerate(entries)])
        return Index.of(files.best(pa.concat_tables([self.table, rows])))
