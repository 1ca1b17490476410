"""A digest of rows that does not depend on how they are cut into batches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import xxhash

from schemas.ids import fingerprint


class RowDigest:
    """Digests tables that arrive batch by batch: every column is a stream of its own."""

    def __init__(self) -> None:
        """Start with nothing."""
        self._streams: dict[str, Any] = {}

    def update(self, table: str, batch: pa.RecordBatch) -> None:
        """Add the next rows of a table."""
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            self._add(f"{table}.{name}", column)

    def hexdigest(self) -> str:
        """Return the fingerprint of all rows so far."""
        return fingerprint({name: stream.hexdigest() for name, stream in self._streams.items()})

    def _add(self, name: str, column: pa.Array) -> None:
        self._put(f"{name}?", np.asarray(column.is_valid()))
        if pa.types.is_list(column.type):
            self._put(f"{name}#", np.diff(column.offsets.to_numpy()))
            self._add(f"{name}[]", column.flatten())
        elif pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            filled = column.fill_null("").cast(pa.large_string())
            offsets = np.frombuffer(filled.buffers()[1], np.int64)[filled.offset : filled.offset + len(filled) + 1]
            self._put(f"{name}#", np.diff(offsets))
            data = filled.buffers()[2]
            if data is not None and len(filled):
                self._put(name, np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]])
        elif pa.types.is_boolean(column.type):
            self._put(name, np.asarray(column.fill_null(False)))
        else:
            plain = column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
            self._put(name, plain.fill_null(0).to_numpy(zero_copy_only=False))

    def _put(self, name: str, values: Any) -> None:
        self._streams.setdefault(name, xxhash.xxh3_128()).update(np.ascontiguousarray(values).view(np.uint8).data)
