"""Files that `replay` reads: whole JSON documents, and own tables as Parquet or JSON lines."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq

from schemas import tables
from schemas.errors import InputError, TagloomError
from transforms.jsonstream import lines, load

_BLOCK = 50_000
_SHOWN = 80


def unreadable(uri: str, error: Exception) -> InputError:
    """Return the error of a file that storage does not give."""
    return InputError(
        f"cannot be read: {error}", where=uri, remedy="Check the path in extract.options and the access to it."
    )


def digest(uri: str) -> str:
    """Return the BLAKE2b-128 of a file (32 hex digits).

    Raises:
        InputError: It cannot be read.
    """
    found = hashlib.blake2b(digest_size=16)
    try:
        with fsspec.open(uri, "rb") as stream:
            while block := stream.read(1 << 20):
                found.update(block)
    except (OSError, ValueError, ImportError) as error:
        raise unreadable(uri, error) from error
    return found.hexdigest()


def read_json(uri: str) -> Any:
    """Read one JSON document; what breaks strict parsers only is mended (`transforms.jsonstream.load`).

    Raises:
        InputError: It cannot be read, or is not JSON.
    """
    try:
        with fsspec.open(uri, "rb") as stream:
            data = stream.read()
    except (OSError, ValueError, ImportError) as error:
        raise unreadable(uri, error) from error
    try:
        return load(data, Counter())
    except ValueError as error:
        raise InputError(f"is not JSON: {error}", where=uri, remedy="Check the path in extract.options.") from error


def read_table(name: str, uri: str) -> pa.Table:
    """Read rows of a table, from Parquet or from JSON lines; columns that the table has not are left out.

    Args:
        name: The table.
        uri: Path or URI; the content tells which of the two it is.

    Raises:
        InputError: It cannot be read, lacks a column, or holds a value that does not fit.
    """
    try:
        with fsspec.open(uri, "rb") as stream:
            start = stream.read(4)
        with fsspec.open(uri, "rb") as stream:
            return _parquet(name, stream) if start == b"PAR1" else _lines(name, stream, uri)
    except TagloomError as error:
        table, _, column = error.where.partition(".")
        raise InputError(
            f"column '{column}': {error.message}" if column and table == name else error.message,
            where=uri if table in (name, "") else error.where,
            remedy=f"Give rows of the table '{name}', as 'tagloom export {name}' writes them.",
        ) from error
    except (OSError, ValueError, ImportError, pa.ArrowException) as error:
        raise unreadable(uri, error) from error


def _parquet(name: str, stream: BinaryIO) -> pa.Table:
    wanted = tables.schema(name).names
    held = pq.ParquetFile(stream)
    missing = [column for column in wanted if column not in held.schema_arrow.names]
    if missing:
        raise InputError(f"is no {name} table: it lacks {', '.join(missing)}")
    found = held.read(columns=wanted)
    return tables.build(name, {column: found[column] for column in wanted})


def _lines(name: str, stream: BinaryIO, uri: str) -> pa.Table:
    blocks = [_block(name, numbers, rows, uri) for numbers, rows in _blocks(name, stream, uri)]
    return pa.concat_tables(blocks).unify_dictionaries() if blocks else tables.empty(name)


def _blocks(name: str, stream: BinaryIO, uri: str) -> Iterator[tuple[list[int], list[Mapping[str, Any]]]]:
    numbers: list[int] = []
    rows: list[Mapping[str, Any]] = []
    for piece in lines(_without_mark(stream)):
        rows.append(_row(name, piece.data if not piece.fault else b"", f"{uri}, line {piece.offset}"))
        numbers.append(piece.offset)
        if len(rows) == _BLOCK:
            yield numbers, rows
            numbers, rows = [], []
    if rows:
        yield numbers, rows


def _without_mark(stream: BinaryIO) -> BinaryIO:
    head = stream.read(3)
    if head == b"\xef\xbb\xbf":
        return stream
    stream.seek(0)
    return stream


def _row(name: str, data: bytes, where: str) -> Mapping[str, Any]:
    try:
        value = load(data, Counter())
    except ValueError as error:
        raise InputError(f"is neither Parquet nor JSON lines: {error}", where=where) from error
    if not isinstance(value, dict):
        raise InputError(f"holds no object but {str(value)[:_SHOWN]}", where=where)
    wanted = tables.schema(name)
    missing = [field.name for field in wanted if field.name not in value and not field.nullable]
    if missing:
        raise InputError(f"is no row of '{name}': it lacks {', '.join(missing)}", where=where)
    return {field.name: value.get(field.name) for field in wanted}


def _block(name: str, numbers: list[int], rows: list[Mapping[str, Any]], uri: str) -> pa.Table:
    wanted = tables.schema(name).names

    def build(some: list[Mapping[str, Any]]) -> pa.Table:
        return tables.build(name, {column: [row[column] for row in some] for column in wanted})

    try:
        return build(rows)
    except TagloomError:
        for number, row in zip(numbers, rows, strict=True):
            try:
                build([row])
            except TagloomError as error:
                column = error.where.partition(".")[2]
                value = "null" if row.get(column) is None else str(row[column])[:_SHOWN]
                raise InputError(
                    f"'{column}' is {value}, not {_wanted(name, column)}", where=f"{uri}, line {number}"
                ) from error
        raise


def _wanted(name: str, column: str) -> str:
    kind = tables.schema(name).field(column).type
    if pa.types.is_list(kind):
        return "a list of texts"
    return "a whole number" if pa.types.is_integer(kind) else "a text"
