"""Files of the journal: Parquet named by level, rows and digest of their bytes, merged without ever losing a row.

A file is ``LEVEL-ROWS-DIGEST.parquet``. Level 0 is one flush; `tidy` merges many files of one level into one of the
next; level 9 is a whole shard. As names tell what the bytes must be, damage of any kind shows, a merge done twice
gives the same file, and one that a kill left half done is only done again.
"""

from __future__ import annotations

import io
import logging
import re
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import xxhash

from pipelines import meter
from pipelines.storage import Storage
from schemas.errors import StoreError

_NAME = re.compile(r"([0-9])-([0-9]+)-([0-9a-f]{32})\.parquet")
_MARK, _VERSION = b"tagloom.journal", b"1"
_WHOLE = 9
FAN = 64
"""Files of one level in a shard that are merged into one of the next level."""
_READERS = 8
_LISTINGS = 10

_WORD = pa.dictionary(pa.int32(), pa.string())
SCHEMA = pa.schema(
    [
        pa.field("key", pa.string(), False),
        pa.field("kind", _WORD, False),
        pa.field("text", pa.large_string(), False),
        pa.field("finish", _WORD, False),
        pa.field("prompt_tokens", pa.int32(), False),
        pa.field("completion_tokens", pa.int32(), False),
        pa.field("cached_tokens", pa.int32(), False),
        pa.field("error", pa.string(), True),
        pa.field("round", pa.int64(), False),
        pa.field("content", pa.string(), False),
        pa.field("prompt", _WORD, False),
        pa.field("added_at", pa.timestamp("us", "UTC"), False),
    ],
    metadata={_MARK: _VERSION},
)
"""Columns of a journal file: the fields of an `Entry`, and when it was added."""
_CODED = ["kind", "finish", "error", "prompt", "prompt_tokens", "completion_tokens", "cached_tokens", "round"]

_log = logging.getLogger(__name__)


class _MissingError(Exception):
    """A listed file is gone: another process has merged it."""


def best(table: pa.Table) -> pa.Table:
    """Return what is kept of some rows, in order of key; the same rows in any order give the same table.

    For every key that is the first that is not ``failed``, else the verdict of the highest round, and besides the last
    corrupt reply.
    """
    kind = table["kind"].cast(pa.string())
    corrupt, failed = (pc.equal(kind, word) for word in ("corrupt", "failed"))
    at = table["added_at"].cast(pa.int64())
    order = {
        "key": table["key"],
        "corrupt": corrupt.cast(pa.int8()),
        "failed": failed.cast(pa.int8()),
        "round": pc.if_else(failed, pc.negate(table["round"]), 0),
        "at": pc.if_else(corrupt, pc.negate(at), at),
        **({"text": table["text"]} if "text" in table.column_names else {}),
    }
    rows = pc.sort_indices(pa.table(order), sort_keys=[(name, "ascending") for name in order])
    keys, aside = key_array(table["key"].take(rows)), np.asarray(order["corrupt"].take(rows))
    first = np.ones(len(keys), bool)
    first[1:] = (keys[1:] != keys[:-1]) | (aside[1:] != aside[:-1])
    kept = table.take(rows.filter(pa.array(first)))
    return pa.table([_in_order(column) for column in kept.columns], kept.schema)


def _in_order(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column as one chunk, a dictionary in order of first use."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(pa.string()).combine_chunks().dictionary_encode()
    return pa.chunked_array([column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column])


def key_array(column: pa.ChunkedArray) -> npt.NDArray[np.bytes_]:
    """Return a column of keys, 32 ASCII characters each, as an array that shares its memory where it can."""
    keys = column.combine_chunks()
    if isinstance(keys, pa.ChunkedArray):
        keys = pa.concat_arrays(keys.chunks) if keys.num_chunks else pa.array([], pa.string())
    if not len(keys):
        return np.zeros(0, "S32")
    start = np.frombuffer(keys.buffers()[1], np.int32, 1, keys.offset * 4)[0]
    return np.frombuffer(keys.buffers()[2], "S32", len(keys), start)


def write_file(storage: Storage, folder: str, level: int, table: pa.Table) -> str:
    """Write rows durably as one file and return its path.

    Raises:
        StoreError: It cannot be written.
    """
    sink = io.BytesIO()
    pq.write_table(
        table,
        sink,
        compression="zstd",
        compression_level=3,
        use_dictionary=_CODED,
        column_encoding={"added_at": "BYTE_STREAM_SPLIT"},
        row_group_size=131_072,
        write_page_checksum=True,
        store_schema=True,
    )
    data = sink.getbuffer()
    path = f"{folder}/{level}-{table.num_rows}-{xxhash.xxh3_128_hexdigest(data)}.parquet"
    storage.write(path, data, durable=True)
    return path


def parse_name(path: str) -> tuple[int, int, str] | None:
    """Return level, rows and digest of a file of the journal, or None when it is no such file."""
    found = _NAME.fullmatch(path.rpartition("/")[2])
    return (int(found[1]), int(found[2]), found[3]) if found else None


def list_files(storage: Storage, folder: str) -> list[str]:
    """Return the paths of a shard's files, in order."""
    return [path for path, _ in storage.walk(folder) if parse_name(path)]


def load(storage: Storage, folder: str, columns: list[str] | None = None) -> tuple[pa.Table, int]:
    """Return what is kept of a shard, and the number of its files.

    A listing may lack files on stores that are slow to tell: then what those hold is asked for once more.

    Args:
        storage: The corpus.
        folder: The shard's folder.
        columns: Columns to read, ``key``, ``kind``, ``round`` and ``added_at`` among them; None reads all, and
            puts damaged files aside.

    Raises:
        StoreError: A file cannot be read, or was written by another version of Tagloom.
    """
    found: dict[str, pa.Table | None] = {}
    names: list[str] = []
    for _ in range(_LISTINGS):
        names = list_files(storage, folder)
        if not _read_all(storage, [name for name in names if name not in found], found, columns):
            break
    whole = {name: table for name, table in sorted(found.items()) if table is not None}
    if not whole:
        empty = SCHEMA.empty_table()
        return (empty if columns is None else empty.select(columns)), len(names)
    if len(whole) == 1 and _level(next(iter(whole))):
        (table,) = whole.values()
        return table.unify_dictionaries().combine_chunks(), len(names)
    return best(pa.concat_tables(whole.values())), len(names)


def merge(storage: Storage, names: Sequence[str], level: int) -> None:
    """Write one file in place of several; they go only when it is on the disk.

    Raises:
        StoreError: A file cannot be read, or the new one not be written.
    """
    found: dict[str, pa.Table | None] = {}
    _read_all(storage, names, found, None)
    read = {name: table for name, table in sorted(found.items()) if table is not None}
    if not read:
        return
    rows = best(pa.concat_tables(read.values()))
    made = write_file(storage, names[0].rpartition("/")[0], level, rows)
    for name in read:
        if name != made:
            _try(storage.remove, name)


def tidy(storage: Storage, folder: str) -> int:
    """Merge the files of every level of which there are many, and return the files left at level 0."""
    for level in range(_WHOLE - 1):
        names = [name for name in list_files(storage, folder) if _level(name) == level]
        if len(names) >= FAN:
            merge(storage, names, level + 1)
    return sum(_level(name) == 0 for name in list_files(storage, folder))


def tidy_whole(storage: Storage, folder: str) -> None:
    """Merge all files of a shard into one.

    Raises:
        StoreError: A file cannot be read, or the new one not be written.
    """
    names = list_files(storage, folder)
    if len(names) > 1 or (names and _level(names[0]) != _WHOLE):
        merge(storage, names, _WHOLE)


def _level(path: str) -> int:
    parsed = parse_name(path)
    assert parsed is not None
    return parsed[0]


def _read_all(
    storage: Storage, names: Iterable[str], found: dict[str, pa.Table | None], columns: list[str] | None
) -> bool:
    """Read files side by side into `found`, None for damaged ones; return whether some were gone."""

    def read(name: str) -> tuple[str, pa.Table | None] | None:
        try:
            return name, _read(storage, name, columns)
        except _MissingError:
            return None

    with meter.beside() as metered, ThreadPoolExecutor(_READERS) as pool:
        made = list(pool.map(metered(read), names))
    found.update(pair for pair in made if pair is not None)
    return None in made


def _read(storage: Storage, name: str, columns: list[str] | None) -> pa.Table | None:
    """Return the rows of a file, or None when it is damaged."""
    where = storage.path(name)
    try:
        data = storage.read(name)
    except StoreError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            raise _MissingError from error
        raise
    parsed = parse_name(name)
    if parsed is None or xxhash.xxh3_128_hexdigest(data) != parsed[2]:
        _log.warning("%s: is damaged; the replies in it are asked for again", where)
        if columns is None:
            _try(storage.move, name, f"{name}.damaged")
        return None
    with pq.ParquetFile(pa.BufferReader(data)) as file:
        if (file.schema_arrow.metadata or {}).get(_MARK) != _VERSION:
            raise StoreError("was written by another version of Tagloom", where=where, remedy="Use that version.")
        return file.read(columns=columns, use_threads=False)


def _try(act: Callable[..., None], *names: str) -> None:
    """Remove or rename a file where that is possible; what stays does no harm."""
    try:
        act(*names)
    except (OSError, StoreError) as error:
        _log.warning("%s: %s", names[0], error)
