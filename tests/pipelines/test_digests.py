"""Digests of rows: the same however the rows are cut, another for every change."""

from itertools import pairwise

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.digests import RowDigest

ROWS = st.lists(
    st.tuples(
        st.none() | st.text(max_size=3),
        st.lists(st.text(max_size=2), max_size=3),
        st.lists(st.booleans(), max_size=2),
        st.none() | st.integers(-5, 5),
    ),
    max_size=8,
)
SCHEMA = pa.schema(
    [("s", pa.string()), ("l", pa.list_(pa.string())), ("b", pa.list_(pa.bool_())), ("t", pa.timestamp("us", "UTC"))]
)


def digest(rows, cuts):
    found = RowDigest()
    columns = [pa.array([row[n] for row in rows], field.type) for n, field in enumerate(SCHEMA)]
    batch = pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
    borders = [0, *sorted(min(c, len(rows)) for c in cuts), len(rows)]
    for low, high in pairwise(borders):
        found.update("x", batch.slice(low, high - low))
    return found.hexdigest()


@settings(deadline=None, max_examples=200)
@given(ROWS, st.lists(st.integers(0, 8), max_size=4), ROWS)
def test_rows_decide_and_cuts_do_not(rows, cuts, other):
    assert digest(rows, cuts) == digest(rows, [])
    if rows != other:
        assert digest(rows, []) != digest(other, [])
