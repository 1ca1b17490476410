"""Fragments on storage: what reading one source gave, one Arrow file a table and group, one record batch a shard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from pipelines.digests import RowDigest
from pipelines.storage import Storage
from schemas.errors import StoreError
from schemas.tables import build
from transforms.fragments import FRAGMENT_SCHEMAS, FragmentTables

_FILE_SCHEMAS = {
    name: pa.schema([(f.name, f.type.value_type if pa.types.is_dictionary(f.type) else f.type) for f in schema])
    for name, schema in FRAGMENT_SCHEMAS.items()
}
_UNDIGESTED = ("offset", "user_text", "assistant_text")
"""Columns left out of a shard's digest: an edit must not touch the cases after it in the file, and the texts of an
interaction are in its content hash."""
KEYED = {"ingest": ("sessions", "interactions"), "questions": ("questions", "rejects")}
"""Unit of ingest -> the tables of a fragment that its keys depend on."""


def source_manifest(storage: Storage, key: str) -> dict[str, Any]:
    """Return what is known of a source that was read.

    Raises:
        StoreError: It was not read to its end.
    """
    path = f"fragments/{key}/manifest.json"
    if path not in storage.known:
        storage.known[path] = storage.read_json(path)
    found: dict[str, Any] = storage.known[path]
    return found


def was_read(storage: Storage, key: str) -> bool:
    """Tell whether a source was read to its end."""
    path = f"fragments/{key}/manifest.json"
    if path in storage.known:
        return True
    found = storage.find_json(path)
    if found is not None:
        storage.known[path] = found
    return found is not None


def fragment_name(group: int, table: str) -> str:
    """Return the name of a file of fragments."""
    return f"{group:05d}.{table}.arrow"


def write_group(
    storage: Storage, key: str, number: int, group: Mapping[int, FragmentTables], digests: dict[int, dict[str, Any]]
) -> None:
    """Write one group of a source's fragments, and add its rows to the digests of their shards."""
    for table in FRAGMENT_SCHEMAS:
        storage.write(f"fragments/{key}/{fragment_name(number, table)}", _encode(table, group, digests))


def _encode(table: str, group: Mapping[int, FragmentTables], digests: dict[int, dict[str, Any]]) -> memoryview:
    """Lay out one table of a group, one record batch a shard, and digest what each shard gets."""
    schema = _FILE_SCHEMAS[table]
    unit = next(unit for unit, names in KEYED.items() if table in names)
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.ipc.new_file(sink, schema, options=options) as writer:
        for shard in sorted(group):
            rows = getattr(group[shard], table).cast(schema).combine_chunks()
            batches = rows.to_batches()
            batch = batches[0] if batches else pa.RecordBatch.from_pylist([], schema=schema)
            writer.write_batch(batch)
            if rows.num_rows:
                columns = [name for name in schema.names if name not in _UNDIGESTED]
                digests.setdefault(shard, {}).setdefault(unit, RowDigest()).update(table, batch.select(columns))
    return memoryview(sink.getvalue())


def read_fragments(storage: Storage, batches: Sequence[tuple[str, int, int]]) -> list[FragmentTables]:
    """Read the fragments of one shard: (source key, group, number of the batch in the group)."""
    return [
        FragmentTables(**{table: _batch(storage, table, key, group, at) for table in FRAGMENT_SCHEMAS})
        for key, group, at in batches
    ]


def _batch(storage: Storage, table: str, key: str, group: int, at: int) -> pa.Table:
    name = f"fragments/{key}/{fragment_name(group, table)}"
    source = pa.memory_map(storage.path(name)) if storage.local is not None else storage.open(name)
    try:
        with source, pa.ipc.open_file(source) as reader:
            rows = pa.Table.from_batches([reader.get_batch(at)])
    except (pa.ArrowException, OSError, IndexError) as error:
        raise StoreError(
            f"is damaged: {error}",
            where=storage.path(name),
            remedy=f"Remove the folder fragments/{key} and run again with the inputs named: they are read anew.",
        ) from error
    return build("rejects", dict(zip(rows.column_names, rows.columns, strict=True))) if table == "rejects" else rows


def shard_batches(storage: Storage, keys: Sequence[str]) -> dict[int, list[tuple[str, int, int]]]:
    """Return, for every shard, where its batches lie in the fragments of some sources."""
    found: dict[int, list[tuple[str, int, int]]] = {}
    for key in keys:
        for number, shards in enumerate(source_manifest(storage, key)["groups"]):
            for at, shard in enumerate(shards):
                found.setdefault(shard, []).append((key, number, at))
    return found
