"""Graph of typed entities and relations (Selective Forgetting, arXiv 2608.28978).

Nodes of a case, numbered in this order:

- ``file``: one an interaction, by position; the key is the interaction id.
- ``entity``: one a title, in order of `entities` and then of `relations`; near-duplicates are merged
  (`transforms.merging`), titles of people (`PEOPLE`) by case and punctuation only. The key is the title,
  the text ``TITLE (TYPE); KEY: VALUE; ...``: the type that most mentions give (``entity`` itself is left out), and
  `ATTRIBUTES` distinct attributes at most, the first ones.

Edges, directed:

- ``mentions``: entity to the files that mention it, or state a relation of it; weight 1.
- ``relation:NAME``: between entities, as stated; weight = interactions that state it, the first of which it names.

Without `entities` and `relations`, the tags of the notes stand in, with mentions alone: `who` (but for roles such as
``user``) as person, `what` as topic, `where` as place, `extra` (but for quantities) as thing. The key is the tag.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.graphs._assembly import Assembly, Embed, Merging, Named, distinct, named
from transforms.graphs._built import Built, codes, listed, plain, shard, visible
from transforms.graphs._notes import Mentions, mentions, titles
from transforms.tags import normalise

NAME = "entity"
VERSION = 1
INPUTS = ("interactions", "notes", "entities", "relations")
SEARCHED = ("entity",)

ATTRIBUTES = 8
"""Attributes in the text of an entity, at most."""

FIELDS = {"who": "person", "what": "topic", "where": "place", "extra": "thing"}
"""Fields of notes that stand in for entities, and the type of each."""


class Options(Merging):
    """Options of the graph kind `entity`."""


def build(tables: Mapping[str, pa.Table], options: Options, embed: Embed | None = None) -> Built:
    """Build the graphs of all cases of a shard.

    Entities and relations of interactions that the shard does not have are left out.

    Raises:
        SchemaError: The rows of a case do not stand together.
    """
    rows = shard(tables["interactions"], tables["notes"])
    graph = Assembly(NAME, rows)
    entities, relations = tables["entities"], tables["relations"]
    if not entities.num_rows and not relations.num_rows:
        told = mentions(tables["notes"], FIELDS)
        found = named(rows.case[told.row], told.title, options, embed, told.people)
        entity = graph.named("entity", found, _typed(titles(found.titles), found, told))
        graph.edges("mentions", entity, told.row, told.row)
        return graph.built()

    row = rows.rows_of(rows.cases_of(entities["case_id"]), plain(entities["interaction_id"]))
    own = pa.array(np.flatnonzero((row >= 0) & visible(plain(entities["title"]))))
    ends = rows.rows_of(rows.cases_of(relations["case_id"]), plain(relations["interaction_id"]))
    sides = [plain(relations[side]) for side in ("source", "target")]
    stated = pa.array(np.flatnonzero((ends >= 0) & visible(sides[0]) & visible(sides[1])))
    row, ends = row[own], ends[stated]
    told = Mentions(
        np.concatenate([row, ends, ends]),
        pa.concat_arrays([plain(entities["title"]).take(own), *(side.take(stated) for side in sides)]),
        pa.concat_arrays([plain(entities["kind"]).take(own), pa.nulls(2 * len(ends), pa.string())]),
    )
    found = named(rows.case[told.row], told.title, options, embed, told.people)
    texts = _described(_typed(found.titles, found, told), found, entities["attributes"].take(own))
    entity = graph.named("entity", found, texts)
    graph.edges("mentions", entity, told.row, told.row)
    source, target = entity[len(row) :].reshape(2, -1)
    graph.edges(_relation_kinds(relations["kind"].take(stated)), source, target, ends, counted=True)
    return graph.built()


def _relation_kinds(column: pa.ChunkedArray) -> pa.Array:
    coded = plain(column).dictionary_encode()
    kinds = [f"relation:{normalise(name.replace('/', ' ')) or 'related'}" for name in coded.dictionary.to_pylist()]
    return pa.array(kinds, pa.string()).take(coded.indices)


def _typed(titles: pa.Array, found: Named, told: Mentions) -> pa.Array:
    """Add to each title the type that most of its mentions give, of several the first."""
    kinds = told.kind.dictionary_encode()
    given = np.flatnonzero(pc.is_valid(told.kind).to_numpy(zero_copy_only=False))
    code = kinds.indices.take(pa.array(given)).to_numpy(zero_copy_only=False).astype(np.int64)
    _, first, count = distinct(found.nodes[given], code)
    node = found.nodes[given][first]
    best = np.lexsort((first, -count, node))
    best = best[np.diff(node[best], prepend=-1) > 0]
    kind = np.full(len(titles), -1, np.int64)
    kind[node[best]] = code[first[best]]
    names = kinds.dictionary.take(pa.array(kind, mask=kind < 0))
    shown = pc.fill_null(pc.not_equal(names, "entity"), False)
    return pc.if_else(shown, pc.binary_join_element_wise(titles, " (", pc.fill_null(names, ""), ")", ""), titles)


def _described(texts: pa.Array, found: Named, attributes: pa.ChunkedArray) -> pa.Array:
    """Add to each text the first distinct attributes of its mentions."""
    values, owner = listed(attributes)
    node = found.nodes[owner]
    once = distinct(node, codes(values))[1]
    once = once[visible(values)[once]]
    once = once[np.argsort(node[once], kind="stable")]
    once = once[np.arange(len(once)) - np.searchsorted(node[once], node[once]) < ATTRIBUTES]
    offsets = np.searchsorted(node[once], np.arange(len(texts) + 1)).astype(np.int32)
    lists = pa.ListArray.from_arrays(pa.array(offsets), values.take(pa.array(once)))
    some = pc.greater(pc.list_value_length(lists), 0)
    return pc.if_else(some, pc.binary_join_element_wise(texts, pc.binary_join(lists, "; "), "; "), texts)
