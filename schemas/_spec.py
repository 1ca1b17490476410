"""The parts that the definitions of tables are written with: types, columns that recur, and the spec of a table."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

NAME = pa.dictionary(pa.int32(), pa.string())
ID = pa.string()
TEXT = pa.large_string()
TIME = pa.timestamp("us", tz="UTC")
STRINGS = pa.list_(pa.field("element", pa.string(), nullable=False))
INTS = pa.list_(pa.field("element", pa.int32(), nullable=False))
CODES = pa.list_(pa.field("element", pa.int8(), nullable=False))
FLOATS = pa.list_(pa.field("element", pa.float32(), nullable=False))

NOTE_FIELDS = ("who", "what", "when", "where", "why", "extra")
"""The tag fields of a note, in the order that builders and documents use."""

NOTE_STATUSES = ("ok", "repaired", "empty", "failed")
"""What can have become of a note; `failed` and `empty` notes keep their interaction reachable."""


@dataclass(frozen=True)
class TableSpec:
    """One table: its name, the version of its layout, what it holds, and its Arrow schema."""

    name: str
    version: int
    doc: str
    schema: pa.Schema


def col(name: str, kind: pa.DataType, doc: str, *, null: bool = False) -> pa.Field:
    """Return one column; `doc` says what it holds, with its unit or range."""
    return pa.field(name, kind, nullable=null, metadata={"doc": doc})


def spec(name: str, version: int, doc: str, *fields: pa.Field) -> TableSpec:
    """Return one table; a change of its layout raises `version`."""
    meta = {"tagloom.table": name, "tagloom.version": str(version)}
    return TableSpec(name, version, doc, pa.schema(list(fields), metadata=meta))


CASE = col("case_id", NAME, "Case (memory store) that the row belongs to")
GRAPH = col("graph", NAME, "Graph kind, the name of its builder")
RETRIEVER = col("retriever", NAME, "Preset that ranked")
INTERACTION = col("interaction_id", ID, "Interaction, unique within the case")
