"""Notes tables from tags, one row an interaction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from schemas import tables
from transforms.tags import normalise_all

LIMITS: Mapping[str, int] = {"who": 6, "what": 4, "when": 6, "where": 4, "why": 2, "extra": 6}
"""Tags kept of each field of a note."""

_SUMMARY = 160


@dataclass(frozen=True)
class Found:
    """Tags of one field, the best first within each row; `rows` need not be sorted."""

    rows: npt.NDArray[np.int64]
    tags: pa.Array


def join(*parts: Found) -> Found:
    """Put findings one after another; earlier ones go first within a row."""
    arrays = [p.tags.cast(pa.string()) for p in parts]
    return Found(np.concatenate([p.rows for p in parts]), pa.concat_arrays(arrays))


def build(
    interactions: pa.Table, fields: Mapping[str, Found], summaries: pa.Array, errors: pa.Array | None = None
) -> pa.Table:
    """Make the notes table: tags in normal form, no tag twice in a field, at most `LIMITS` of them.

    Args:
        interactions: The interactions, which give the rows.
        fields: Tags of the fields that have any; the others stay empty.
        summaries: One string a row.
        errors: Why a row has no tags, where it has none; a usual text when not given.
    """
    count = interactions.num_rows
    columns: dict[str, object] = {"case_id": interactions["case_id"], "interaction_id": interactions["interaction_id"]}
    tagged = np.zeros(count, dtype=bool)
    for field in tables.NOTE_FIELDS:
        found = fields.get(field)
        columns[field], sizes = _lists(found, count, LIMITS[field])
        tagged |= sizes > 0
    status = pa.array(tagged)
    columns["summary"] = summaries
    columns["status"] = pc.if_else(status, "ok", "empty")
    reason = pa.scalar("the text holds no tag") if errors is None else errors
    columns["error"] = pc.if_else(status, pa.scalar(None, pa.string()), reason)
    columns["prompt_tokens"] = np.zeros(count, dtype=np.int32)
    columns["completion_tokens"] = np.zeros(count, dtype=np.int32)
    return tables.build("notes", columns)


def _lists(found: Found | None, count: int, limit: int) -> tuple[pa.Array, npt.NDArray[np.int64]]:
    rows = np.empty(0, dtype=np.int64) if found is None else found.rows
    tags = pa.array([], type=pa.string()) if found is None else normalise_all(found.tags)
    order = np.argsort(rows, kind="stable")
    order = order[pc.is_valid(tags).to_numpy(zero_copy_only=False)[order]]
    rows, tags = rows[order], tags.take(pa.array(order))
    codes = tags.dictionary_encode().indices.to_numpy(zero_copy_only=False).astype(np.int64)
    _, first = np.unique(rows * (len(codes) + 1) + codes, return_index=True)
    first.sort()
    rows = rows[first]
    rank = np.arange(len(rows)) - np.searchsorted(rows, rows)
    kept = rank < limit
    sizes = np.bincount(rows[kept], minlength=count)
    offsets = np.zeros(count + 1, dtype=np.int32)
    np.cumsum(sizes, out=offsets[1:])
    return pa.ListArray.from_arrays(pa.array(offsets), tags.take(pa.array(first[kept]))), sizes


def summarise(texts: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Cut texts to their first sentences, 160 characters at most; a longer sentence ends at a word and ``…``."""
    import polars as pl  # a plan loads this module and needs no polars

    text = pl.col("text")
    head = text.str.slice(0, 4 * _SUMMARY).str.replace_all(r"\s+", " ").str.strip_chars()
    whole = text.str.len_chars() <= _SUMMARY
    start = text.str.slice(0, _SUMMARY)
    sentences = start.str.extract(r"^(.*[.!?。！？][\"'”’)\]]?)(?: |$)")
    words = pl.coalesce(text.str.slice(0, _SUMMARY).str.extract(r"^(.*\S) "), text.str.slice(0, _SUMMARY - 1))
    frame = pl.DataFrame({"text": pl.Series(pl.from_arrow(texts)).cast(pl.String)}).select(head)
    cut = frame.select(
        pl.when(whole)
        .then(text)
        .when(sentences.str.len_chars() >= _SUMMARY // 4)
        .then(sentences)
        .otherwise(words.str.strip_chars_end(" ,;:-") + "…")
    )
    return cut.to_series().to_arrow().cast(pa.string())
