"""Notes for `replay`: rows of a notes table, LoCoMo's observations, the lexical extractor's, or none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from schemas import tables
from transforms.extractors._notes import Found, build, join, summarise
from transforms.extractors._replay_observations import Observations
from transforms.extractors._replay_rows import places_of
from transforms.extractors.lexical import tag_fields

_NO_ENTRY = "the replayed file has no entry for this interaction"


def of_table(notes: pa.Table, interactions: pa.Table) -> pa.Table:
    """Return the rows of a notes table by case_id and interaction_id; the last one where there are several."""
    places = places_of(notes, interactions)
    blank = build(interactions, {}, _texts("", interactions), _texts(_NO_ENTRY, interactions))
    found = notes.take(places)
    columns = {}
    for name in blank.column_names:
        if name in ("case_id", "interaction_id"):
            columns[name] = blank[name]
            continue
        plain = [c.cast(c.type.value_type) if pa.types.is_dictionary(c.type) else c for c in (found[name], blank[name])]
        columns[name] = pc.if_else(pc.is_valid(places), *plain)
    return tables.build("notes", columns)


def of_observations(observations: Observations, interactions: pa.Table) -> pa.Table:
    """Make notes of the facts about each interaction's messages: texts, speakers, and what `lexical` reads in them."""
    told = observations.by_interaction(interactions)
    rows = told["place"].to_numpy().astype(np.int64)
    source = pa.array(_joined(rows, told["text"].to_list(), interactions.num_rows), type=pa.large_string())
    fields = tag_fields(source, interactions)
    heard = np.zeros(interactions.num_rows, dtype=bool)
    heard[rows] = True
    # Who took part is known of every message; without a fact that alone makes no note.
    fields = {f: _only(found, heard) for f, found in fields.items()}
    names = Found(rows, told["speaker"].to_arrow().cast(pa.string()))
    fields["who"] = join(names, fields["who"])
    return build(interactions, fields, summarise(source), _texts(_NO_ENTRY, interactions))


def none(interactions: pa.Table) -> pa.Table:
    """Return notes without a tag."""
    return build(interactions, {}, _texts("", interactions), _texts("replay was told to make no notes", interactions))


def _texts(text: str, interactions: pa.Table) -> pa.Array:
    return pa.array([text] * interactions.num_rows, type=pa.string())


def _joined(rows: np.ndarray[Any, np.dtype[np.int64]], texts: list[str], count: int) -> list[str]:
    parts: list[dict[str, None]] = [{} for _ in range(count)]
    for row, text in zip(rows.tolist(), texts, strict=True):
        parts[row][text] = None
    return [" ".join(one) for one in parts]


def _only(found: Found, wanted: np.ndarray[Any, np.dtype[np.bool_]]) -> Found:
    kept = wanted[found.rows]
    return Found(found.rows[kept], found.tags.filter(pa.array(kept)))
