"""Parquet files of conversations: one row a conversation, its messages in a list of structs."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from typing import Any, BinaryIO, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.formats._fields import FieldError
from transforms.text import clean, decode

MAGIC = b"PAR1"
"""First and last bytes of a Parquet file."""

_ROWS = 256
_YEARS = (-62_135_596_800_000_000, 253_402_300_799_999_999)  # 1 to 9999, in microseconds since 1970
_FAULTS = (pa.ArrowException, OSError, ValueError)


def spool(stream: BinaryIO) -> BinaryIO:
    """Copy a stream to a temporary file, because a Parquet file is read from its end."""
    file = cast(BinaryIO, tempfile.TemporaryFile())  # noqa: SIM115 - whoever reads it closes it
    shutil.copyfileobj(stream, file, 1 << 20)
    file.seek(0)
    return file


def head(stream: BinaryIO) -> bytes:
    """Return what readers are shown of a Parquet file: `MAGIC` and the paths of its columns, one a line.

    Returns:
        The head; empty where the file is damaged or cut.
    """
    try:
        paths = _paths(_opened(stream))
    except _FAULTS:
        return b""
    finally:
        stream.seek(0)
    return b"\n".join([MAGIC, *(path.encode("utf-8", "replace") for path in paths), b""])


def rows(
    stream: BinaryIO, plain: frozenset[str], nested: str, fields: frozenset[str], repairs: Counter[str]
) -> Iterator[dict[str, Any] | FieldError]:
    """Yield the rows of a Parquet file as JSON objects would be read; other columns are not touched.

    Args:
        stream: The file, seekable.
        plain: Columns of plain values, where they are there.
        nested: The column that is a list of structs.
        fields: Fields of those structs.
        repairs: Where nul_character, bad_utf8 and cp1252 are counted.

    Yields:
        Rows in order, or a fault: for the file if it does not open, else for what is left of one row group.
    """
    try:
        file = _opened(stream)
        paths = _paths(file)
    except _FAULTS as error:
        yield FieldError("unreadable", f"the Parquet file is damaged: {error}")
        return
    kept = [path for path in paths if path in plain]
    within = [path for path in paths if path.startswith(nested + ".") and path.rpartition(".")[2] in fields]
    if not within:
        yield FieldError("missing_field", f"no column '{nested}' that is a list of {' and '.join(sorted(fields))}")
        return
    seen = faults = 0
    for group in range(file.num_row_groups):
        batches = file.iter_batches(_ROWS, row_groups=[group], columns=kept + within)
        while True:
            try:
                batch = next(batches, None)
                made = [] if batch is None else _objects(batch, nested, repairs)
            except _FAULTS as error:
                faults += 1
                yield FieldError("unreadable", f"row group {group} is damaged: {error}")
                break
            if batch is None:
                break
            seen += len(made)
            yield from made
    if seen != file.metadata.num_rows and not faults:
        yield FieldError("truncated", f"the Parquet file tells of {file.metadata.num_rows} rows and holds {seen}")


def _opened(stream: BinaryIO) -> Any:
    import pyarrow.parquet as pq  # loads more than most runs need

    return pq.ParquetFile(stream, buffer_size=1 << 20, pre_buffer=False)


def _paths(file: Any) -> list[str]:
    return [file.schema.column(number).path for number in range(len(file.schema))]


def _objects(batch: Any, nested: str, repairs: Counter[str]) -> list[dict[str, Any]]:
    columns = {name: _values(batch.column(name), repairs) for name in batch.schema.names if name != nested}
    if nested in batch.schema.names:
        lists = batch.column(nested)
        ends = np.cumsum(np.asarray(pc.list_value_length(lists).fill_null(0), dtype=np.int64)).tolist()
        items = pc.list_flatten(lists)
        names = [field.name for field in items.type]
        parts = [_values(pc.struct_field(items, name), repairs) for name in names]
        flat = [dict(zip(names, values, strict=True)) for values in zip(*parts, strict=True)]
        columns[nested] = [flat[start:end] for start, end in zip([0, *ends], ends, strict=False)]
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def _values(column: Any, repairs: Counter[str]) -> list[Any]:
    if pa.types.is_timestamp(column.type):
        # Python's times hold no nanoseconds, not every year, and only zones that it knows.
        column = column.cast(pa.timestamp("us", "UTC" if column.type.tz else None), safe=False)
        ticks = column.cast(pa.int64())
        held = pc.and_(pc.greater_equal(ticks, _YEARS[0]), pc.less_equal(ticks, _YEARS[1]))
        column = pc.if_else(held, column, pa.scalar(None, column.type))
    try:
        values: list[Any] = column.to_pylist()
    except UnicodeDecodeError:
        values = [None if one is None else decode(one, repairs) for one in column.cast(pa.binary()).to_pylist()]
    return [clean(one, repairs) if isinstance(one, str) else one for one in values]
