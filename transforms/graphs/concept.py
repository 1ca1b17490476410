"""GAAMA's graph (arXiv 2603.27910): interactions, facts, reflections and the concepts that join them.

Nodes of a case, numbered in this order:

- ``file``: one an interaction, by position; the key is the interaction id. GAAMA calls it episode.
- ``fact``: one a row of `facts`; the key is its id, the text the claim.
- ``reflection``: one a row of `reflections`, likewise.
- ``concept``: one a label, those of files before those of facts; near-duplicates are merged (`transforms.merging`).

Edges, directed, all of weight 1:

- ``next``: file to the next file by position, within the case or only within a session.
- ``derived_from``: fact to the files that it was taken from.
- ``has_concept``: file to concept.
- ``about_concept``: fact to concept.
- ``derived_from_fact``: reflection to the facts that it rests on.

Without `concepts`, the `what` tags of the notes stand in: see `stand_ins`.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from transforms.graphs._assembly import Assembly, Embed, Merging, named
from transforms.graphs._built import Bools, Built, Ints, Shard, codes, listed, plain, shard, visible
from transforms.graphs._notes import label

NAME = "concept"
VERSION = 1
INPUTS = ("interactions", "notes", "facts", "reflections", "concepts")
SEARCHED = ("concept",)

STAND_INS = 3
"""Concepts that the tags of a note give at most, as many as GAAMA asks of a model."""

HUB_SHARE, HUB_FILES = 0.1, 10
"""A single word is no concept where it is in more files of a case than this share of them, and than this number."""


class Options(Merging):
    """Options of the graph kind `concept`."""

    next_across_sessions: bool = Field(
        True, description="Whether the last interaction of a session leads to the first of the next one"
    )


def build(tables: Mapping[str, pa.Table], options: Options, embed: Embed | None = None) -> Built:
    """Build the graphs of all cases of a shard.

    Facts, reflections and concepts of cases and interactions that the shard does not have are left out.

    Raises:
        SchemaError: The rows of a case do not stand together.
    """
    rows = shard(tables["interactions"], tables["notes"])
    graph = Assembly(NAME, rows)
    every = np.arange(len(rows.ids))
    follows = rows.case[1:] == rows.case[:-1]
    if not options.next_across_sessions:
        session = codes(plain(tables["interactions"]["session_id"]))
        follows &= session[1:] == session[:-1]
    later = every[1:][follows]
    graph.edges("next", later - 1, later, later)

    facts, fact_case, fact_key = _rows(tables["facts"], "fact_id", rows)
    fact_at = graph.nodes("fact", fact_case, fact_key, plain(facts["text"]))
    source, source_row = _links(facts, fact_case, rows)
    graph.edges("derived_from", fact_at + source, source_row, source_row)
    origin = np.full(len(fact_key), -1, np.int64)
    origin[source[::-1]] = source_row[::-1]

    insights, insight_case, insight_key = _rows(tables["reflections"], "reflection_id", rows)
    insight_at = graph.nodes("reflection", insight_case, insight_key, plain(insights["text"]))
    rests, insight = listed(insights["fact_ids"])
    fact = Shard(rows.names, fact_case, fact_key).rows_of(insight_case[insight], rests)
    known = fact >= 0
    graph.edges("derived_from_fact", insight_at + insight[known], fact_at + fact[known], origin[fact[known]])

    said, said_row = _file_concepts(tables, rows)
    claimed, claim = listed(facts["concepts"])
    shown = visible(claimed)
    claimed, claim = claimed.filter(pa.array(shown)), claim[shown]
    found = named(
        np.concatenate([rows.case[said_row], fact_case[claim]]), pa.concat_arrays([said, claimed]), options, embed
    )
    concept = graph.named("concept", found, pc.replace_substring_regex(found.titles, "[_/]+", " "))
    graph.edges("has_concept", said_row, concept[: len(said)], said_row)
    graph.edges("about_concept", fact_at + claim, concept[len(said) :], origin[claim])
    return graph.built()


def _rows(table: pa.Table, key: str, rows: Shard) -> tuple[pa.Table, Ints, pa.Array]:
    """Return the rows of known cases with their case and id, in order of case; of rows with the same id the first."""
    case = rows.cases_of(table["case_id"])
    code = codes(plain(table[key]))
    _, first = np.unique(case * (int(code.max(initial=0)) + 1) + code, return_index=True)
    kept = np.sort(first[case[first] >= 0])
    kept = kept[np.argsort(case[kept], kind="stable")]
    chosen = table.take(pa.array(kept))
    return chosen, case[kept], plain(chosen[key])


def _links(table: pa.Table, case: Ints, rows: Shard) -> tuple[Ints, Ints]:
    """Return the rows of a table and the interactions that they name, unknown ones left out."""
    ids, owner = listed(table["interaction_ids"])
    row = rows.rows_of(case[owner], ids)
    return owner[row >= 0], row[row >= 0]


def _file_concepts(tables: Mapping[str, pa.Table], rows: Shard) -> tuple[pa.Array, Ints]:
    table = tables["concepts"]
    if not table.num_rows:
        return stand_ins(tables["notes"], rows)
    labels, owner = listed(table["concepts"])
    row = rows.rows_of(rows.cases_of(table["case_id"])[owner], plain(table["interaction_id"]).take(pa.array(owner)))
    kept = (row >= 0) & visible(labels)
    return labels.filter(pa.array(kept)), row[kept]


def stand_ins(notes: pa.Table, rows: Shard) -> tuple[pa.Array, Ints]:
    """Draw concepts from the `what` tags of notes.

    A tag's label is its last level with the levels above it behind, until it has two words: ``class/yoga`` gives
    ``yoga_class``. Labels of several words come first, then single words, each in the note's order, `STAND_INS` at
    most. No label is made of nothing but names in `who` of the case, and a single word that many files of the case
    have (`HUB_SHARE`, `HUB_FILES`) is too generic.

    Returns:
        Labels, and the interaction of each.
    """
    tags, row = listed(notes["what"])
    coded = tags.dictionary_encode()
    labels = pa.array([label(tag) for tag in coded.dictionary.to_pylist()], pa.string()).take(coded.indices)
    code = codes(labels)
    width = int(code.max(initial=0)) + 1
    single = pc.invert(pc.match_substring(labels, "_")).to_numpy(zero_copy_only=False)

    once = np.unique(row * width + code, return_index=True)[1]
    key, held_by = np.unique(rows.case[row[once]] * width + code[once], return_counts=True)
    files = np.bincount(rows.case, minlength=len(rows.names))
    many = held_by > np.maximum(HUB_SHARE * files[key // width], HUB_FILES)
    hub = many[np.searchsorted(key, rows.case[row] * width + code)]
    kept = visible(labels) & ~(single & hub) & ~_of_names(notes, rows, labels, rows.case[row])
    first = np.zeros(len(row), np.bool_)
    first[once] = True
    kept &= first

    chosen = np.flatnonzero(kept)
    chosen = chosen[np.lexsort((single[chosen], row[chosen]))]
    place = np.arange(len(chosen)) - np.searchsorted(row[chosen], row[chosen])
    chosen = chosen[place < STAND_INS]
    return labels.take(pa.array(chosen)), row[chosen]


def _of_names(notes: pa.Table, rows: Shard, labels: pa.Array, case: Ints) -> Bools:
    """Tell which labels have no word that is not one of a name in `who` of their case."""
    who, who_row = listed(notes["who"])
    parts, part_of = listed(pa.chunked_array([pc.split_pattern_regex(who, "[_/]")]))
    words, owner = listed(pa.chunked_array([pc.split_pattern(labels, "_")]))
    code = codes(pa.concat_arrays([parts, words]))
    width = int(code.max(initial=0)) + 1
    names = np.unique(rows.case[who_row[part_of]] * width + code[: len(parts)])
    other = ~np.isin(case[owner] * width + code[len(parts) :], names)
    bare: Bools = np.bincount(owner[other], minlength=len(labels)) == 0
    return bare
