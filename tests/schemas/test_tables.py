"""Every table: documented, validated, and equal after a round trip through Parquet."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.parquet import decode_table, encode_table
from schemas.errors import SchemaError
from schemas.tables import TABLES, build, empty, schema, validate

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


def test_every_field_is_documented_and_versioned():
    for name, spec in TABLES.items():
        assert spec.doc and spec.version >= 1
        assert spec.schema.metadata == {b"tagloom.table": name.encode(), b"tagloom.version": str(spec.version).encode()}
        for field in spec.schema:
            assert field.metadata[b"doc"], f"{name}.{field.name}"


def test_design_tables_exist():
    wanted = "interactions questions rejects notes facts reflections triples nodes edges matrices postings vectors runs"
    assert set(wanted.split()) | {"metrics"} <= set(TABLES)


def values(kind: pa.DataType, nullable: bool):
    if pa.types.is_dictionary(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind):
        inner = TEXTS
    elif pa.types.is_list(kind):
        inner = st.lists(values(kind.value_type, False), max_size=3)
    elif pa.types.is_boolean(kind):
        inner = st.booleans()
    elif pa.types.is_float32(kind):
        inner = st.floats(width=32, allow_nan=False)
    elif pa.types.is_floating(kind):
        inner = st.floats(allow_nan=False)
    elif pa.types.is_timestamp(kind):
        inner = st.integers(-(2**50), 2**50)
    else:
        inner = st.integers(-100, 100)
    return st.none() | inner if nullable else inner


@pytest.mark.parametrize("name", TABLES)
def test_round_trip(name, tmp_path):
    fields = list(schema(name))

    @settings(deadline=None, max_examples=15)
    @given(st.lists(st.tuples(*(values(f.type, f.nullable) for f in fields)), max_size=4))
    def check(rows):
        table = build(name, {f.name: [row[n] for row in rows] for n, f in enumerate(fields)})
        data = encode_table(name, table, {"count": 3})
        back = decode_table(name, data, "here")
        validate(name, back)
        assert back.equals(table)
        assert encode_table(name, back, {"count": 3}) == data

    check()


def test_empty_lists_all_null_columns_emoji_and_10_mb_texts_keep_their_types():
    big = "sea 🌊 " * 1_500_000
    assert len(big.encode()) > 10_000_000
    columns = {
        "case_id": ["a", "a"],
        "session_id": ["s", "s"],
        "interaction_id": ["s/0", "s/1"],
        "content_hash": ["x", "y"],
        "position": np.arange(2),
        "started_at": [None, None],
        "started_at_text": [None, None],
        "user_text": [big, "👩‍👩‍👧"],
        "assistant_text": ["", ""],
        "speakers": [[], []],
        "message_ids": [[], []],
        "source": ["f", "f"],
        "source_offset": [0, 1],
    }
    table = build("interactions", columns)
    back = decode_table("interactions", encode_table("interactions", table), "here")
    assert back.equals(table)
    assert back.schema.equals(empty("interactions").schema)
    assert back["user_text"][0].as_py() == big


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"source_offset": ["x", "y"]}, "rejects.source_offset"),
        ({"detail": [None, "d"]}, "null values"),
        ({"detail": ["one"]}, "differ in length"),
        ({"other": [1, 2]}, "unknown columns \\['other'\\]"),
    ],
)
def test_build_refuses_what_does_not_fit(change, says):
    columns = {
        "source": ["a", "a"],
        "source_offset": [1, 2],
        "reason": ["r", "r"],
        "detail": ["", ""],
        "sample": ["", ""],
    }
    build("rejects", columns)
    with pytest.raises(SchemaError, match=says):
        build("rejects", {**columns, **change})


def test_validate_refuses_other_types_columns_and_nulls_in_lists():
    good = build("vocabulary", {"term_id": [1], "term": ["a"]})
    with pytest.raises(SchemaError, match="type is"):
        validate("vocabulary", good.set_column(0, "term_id", pa.array([1], pa.int64())))
    with pytest.raises(SchemaError, match="columns are"):
        validate("vocabulary", good.select(["term", "term_id"]))
    with pytest.raises(SchemaError, match="no table is called"):
        validate("vocab", good)
