"""Parquet, CSV and JSONL: one file, or Parquet partitioned by case."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from schemas.ids import escape_id

_FORMULA = r"^[=+\-@\t\r]"
_LINES = 10_000


def write_parquet(parts: Iterator[pa.Table], target: Path) -> int:
    """Write one Parquet file and return its rows."""
    rows = 0
    writer = None
    try:
        for part in parts:
            writer = writer or pq.ParquetWriter(target, part.schema, compression="zstd")
            writer.write_table(part)
            rows += part.num_rows
    finally:
        if writer is not None:
            writer.close()
    return rows


def write_parquet_by_case(parts: Iterator[pa.Table], target: Path) -> int:
    """Write ``case=ID/part-00000.parquet`` under a folder and return the rows.

    The folder name is the case id made safe for file systems (`schemas.ids.escape_id`); the column case_id keeps the id
    itself.
    """
    rows = 0
    for number, part in enumerate(parts):
        for case, own in by_case(part):
            folder = target / f"case={escape_id(case)}"
            folder.mkdir(exist_ok=True)
            pq.write_table(own, folder / f"part-{number:05d}.parquet", compression="zstd")
        rows += part.num_rows
    return rows


def by_case(part: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    """Yield the rows of each case, in order of first appearance; rows keep their order."""
    if not part.num_rows:
        return
    cases = part.column("case_id").combine_chunks().dictionary_encode()
    codes = np.asarray(cases.indices)
    order = np.argsort(codes, kind="stable")
    bounds = np.searchsorted(codes[order], np.arange(len(cases.dictionary) + 1))
    ordered = part if bool((np.diff(order) == 1).all()) else part.take(pa.array(order))
    for n, case in enumerate(cases.dictionary.to_pylist()):
        yield case, ordered.slice(int(bounds[n]), int(bounds[n + 1] - bounds[n]))


def write_csv(parts: Iterator[pa.Table], target: Path) -> int:
    """Write one CSV file (RFC 4180, UTF-8, header) and return its rows.

    Lists are JSON; times ISO 8601; null is an empty field and an empty string ``""``. A text that a spreadsheet would
    run as a formula, because it begins with ``= + - @``, tab or carriage return, gets an apostrophe in front.
    """
    rows = 0
    writer = None
    try:
        for part in parts:
            shown = _flat(part)
            writer = writer or pa.csv.CSVWriter(target, shown.schema)
            writer.write_table(shown)
            rows += part.num_rows
    finally:
        if writer is not None:
            writer.close()
    return rows


def write_jsonl(parts: Iterator[pa.Table], target: Path) -> int:
    """Write one JSON object a row (UTF-8, times ISO 8601) and return the rows."""
    rows = 0
    with target.open("wb") as out:
        for part in parts:
            for batch in part.to_batches(max_chunksize=_LINES):
                options = orjson.OPT_APPEND_NEWLINE | orjson.OPT_UTC_Z
                out.write(b"".join(orjson.dumps(row, option=options) for row in batch.to_pylist()))
            rows += part.num_rows
    return rows


def _flat(part: pa.Table) -> pa.Table:
    for n, field in enumerate(part.schema):
        column = part.column(n)
        if pa.types.is_list(field.type):
            texts = [None if row is None else orjson.dumps(row).decode() for row in column.to_pylist()]
            part = part.set_column(n, field.name, pa.array(texts, pa.string()))
        elif pa.types.is_timestamp(field.type):
            part = part.set_column(n, field.name, pc.strftime(column, format="%Y-%m-%dT%H:%M:%SZ"))
        elif pa.types.is_string(field.type) or pa.types.is_large_string(field.type):
            part = part.set_column(n, field.name, _harmless(column))
    return part


def _harmless(column: Any) -> Any:
    risky = pc.match_substring_regex(column, _FORMULA)
    if not pc.any(risky).as_py():
        return column
    marked = pc.binary_join_element_wise(pa.scalar("'", column.type), column, pa.scalar("", column.type))
    return pc.if_else(risky, marked, column)
