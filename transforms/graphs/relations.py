"""The Skinki ladder's graph: who and what interactions share, and who introduced and recommended whom and what.

Nodes of a case, numbered in this order:

- ``file``: one an interaction, by position; the key is the interaction id.
- ``person``, ``place``, ``thing``: by first mention; near-duplicates are merged (`transforms.merging`), names of people
  by case and punctuation only. The key is the name, or the tag where notes give it.

Edges, directed, of weight 1 where nothing else is said:

- ``mentions_person``, ``mentions_place``, ``mentions_thing``: file to what it mentions. Two people are joined by the
  files that mention both, not to each other.
- ``tells``: file to the people, places and things of the introductions and recommendations that it tells of.
- ``introduced``: person to the person introduced; ``recommended``: person to the thing or person recommended; weight =
  interactions that tell of it, the first of which it names, and with it the time.
- ``introduced_at``: person introduced to the place where.
- ``bridge_venue``: file to the next file in time that mentions the same place, within `bridge_days`; weight = places.
  A place that more than `hub_files` files mention makes none.
- ``bridge_time``: file to the next file in time that tells of an introduction or recommendation, as it does itself,
  within `bridge_days`.

People, places and things are those of `entities` that have such types (`TYPES`); an ``entity`` without one is what the
notes of its case call it, else a thing; facts, events and the like are none. Introductions and recommendations are
those of `relations`. Where both tables are empty, the tags of the notes in `who`, `where` and `extra` stand in for the
first, and what users say in English (`transforms.graphs._tellings`) for the second. So a ground truth, an extraction
and plain notes give the same kind of graph.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from transforms.graphs import _tellings
from transforms.graphs._assembly import Assembly, Embed, Merging, distinct, named
from transforms.graphs._built import Bools, Built, Ints, Shard, codes, listed, plain, shard, visible
from transforms.graphs._notes import PEOPLE, mentions, titles
from transforms.merging import merge
from transforms.tags import normalise

NAME = "relations"
VERSION = 1
INPUTS = ("interactions", "notes", "entities", "relations")
SEARCHED = ("person", "place", "thing")

KINDS = SEARCHED
FIELDS = {"who": "person", "where": "place", "extra": "thing"}

TYPES: Mapping[str, str] = {
    **dict.fromkeys(PEOPLE, "person"),
    **dict.fromkeys(("place", "venue", "location", "city", "country", "restaurant"), "place"),
    **dict.fromkeys(("thing", "object", "item", "product", "book", "film", "movie", "song", "game", "work"), "thing"),
}
"""Type of an entity -> node kind."""


class Options(Merging):
    """Options of the graph kind `relations`."""

    source: Literal["auto", "text"] = Field(
        "auto", description="auto: entities and relations where there are any; text: notes and texts all the same"
    )
    bridge_days: float = Field(30, gt=0, description="Days that bridged files are apart at most")
    hub_files: int = Field(128, ge=2, description="A place in more files of a case than this bridges none")


PERSON, PLACE, THING = range(3)
_NOTED, _GUESSED = 3, 6
"""Added to a kind for which only notes, or only the part in a relation, speak; of a name's kinds the least holds."""

_VENUE = r"(?i)^\s*(?:venue|place|where|location|at)\s*:\s*(?P<name>.*\S)\s*$"
_DAY = 86_400_000_000


@dataclass(frozen=True)
class _Names:
    """What interactions name.

    Attributes:
        row: (names,) interaction; -1 where a name is no mention and only tells its kind.
        case: (names,) case.
        title: (names,) the name.
        kind: (names,) index into `KINDS`, plus `_NOTED` or `_GUESSED`.
    """

    row: Ints
    case: Ints
    title: pa.Array
    kind: Ints


@dataclass(frozen=True)
class _Told:
    """Introductions and recommendations.

    Attributes:
        row: (told,) interaction that tells of it.
        introduced: (told,) whether it is an introduction.
        source, target, place: (told,) names; `place` is empty where there is none.
    """

    row: Ints
    introduced: Bools
    source: pa.Array
    target: pa.Array
    place: pa.Array


def build(tables: Mapping[str, pa.Table], options: Options, embed: Embed | None = None) -> Built:
    """Build the graphs of all cases of a shard.

    Entities and relations of interactions that the shard does not have are left out.

    Raises:
        SchemaError: The rows of a case do not stand together.
    """
    given = options.source == "auto" and bool(tables["entities"].num_rows or tables["relations"].num_rows)
    return assemble(NAME, tables, options, embed, given=given)


def assemble(
    graph_kind: str, tables: Mapping[str, pa.Table], options: Options, embed: Embed | None, *, given: bool
) -> Built:
    """Build the graphs of a kind from `entities` and `relations` (`given`), or from notes and texts."""
    rows = shard(tables["interactions"], tables["notes"])
    graph = Assembly(graph_kind, rows)
    if given:
        names = _listed(tables["entities"], tables["notes"], rows)
        told, sure = _related(tables["relations"], rows), _GUESSED
    else:
        names, told, sure = _noted(tables["notes"], FIELDS, rows), _said(tables["interactions"]), 0
    placed = np.flatnonzero(visible(told.place))
    parts = [
        names,
        _ends(rows, told.row, told.source, np.full(len(told.row), PERSON + sure)),
        _ends(rows, told.row, told.target, np.where(told.introduced, PERSON + sure, THING + _GUESSED)),
        _ends(rows, told.row[placed], told.place.take(pa.array(placed)), np.full(len(placed), PLACE + sure)),
    ]
    every = _Names(
        np.concatenate([part.row for part in parts]),
        np.concatenate([part.case for part in parts]),
        pa.concat_arrays([part.title for part in parts]),
        np.concatenate([part.kind for part in parts]),
    )
    kind = _kinds(every)
    node = np.full(len(kind), -1, np.int64)
    for number, name in enumerate(KINDS):
        mine = np.flatnonzero((kind == number) & (every.row >= 0))
        mine = mine[np.argsort(every.row[mine], kind="stable")]
        people = np.full(len(mine), number == PERSON)
        found = named(every.case[mine], every.title.take(pa.array(mine)), options, embed, people)
        node[mine] = graph.named(name, found, found.titles if sure else titles(found.titles))
        graph.edges(f"mentions_{name}", every.row[mine], node[mine], every.row[mine])

    first = np.cumsum([0, *(len(part.row) for part in parts)])
    source, target, place = (slice(first[part], first[part + 1]) for part in (1, 2, 3))
    met = told.introduced & (kind[source] == PERSON) & (kind[target] == PERSON)
    praised = ~told.introduced & (kind[source] == PERSON)
    for name, which in (("introduced", met), ("recommended", praised)):
        graph.edges(name, node[source][which], node[target][which], told.row[which], counted=True)
    there = met[placed] & (kind[place] == PLACE)
    graph.edges("introduced_at", node[target][placed][there], node[place][there], told.row[placed][there], counted=True)
    row = np.concatenate([told.row[met | praised]] * 2 + [told.row[placed][there]])
    ends = np.concatenate([node[source][met | praised], node[target][met | praised], node[place][there]])
    graph.edges("tells", row, ends, row)

    visits = (kind == PLACE) & (every.row >= 0)
    within = options.bridge_days * _DAY
    at = tables["interactions"]["started_at"].combine_chunks()
    one, two = _bridges(node[visits], every.row[visits], at, within, options.hub_files)
    graph.edges("bridge_venue", one, two, two, counted=True)
    row = told.row[met | praised]
    one, two = _bridges(rows.case[row], row, at, within, len(rows.ids))
    graph.edges("bridge_time", one, two, two)
    return graph.built()


def _ends(rows: Shard, row: Ints, title: pa.Array, kind: Ints) -> _Names:
    return _Names(row, rows.case[row], title, kind)


def _bridges(group: Ints, row: Ints, at: pa.Array, within: float, most: int) -> tuple[Ints, Ints]:
    """Return, for each file of a group of at most `most`, the next one in time where that is near enough."""
    time = pc.fill_null(at.cast(pa.int64()), -1).to_numpy(zero_copy_only=False)
    timed = pc.is_valid(at).to_numpy(zero_copy_only=False)
    pairs = np.unique(np.stack([group, row], axis=1), axis=0)
    group, row = pairs[timed[pairs[:, 1]]].T
    _, inverse, count = np.unique(group, return_inverse=True, return_counts=True)
    few = count[inverse.reshape(-1)] <= most
    group, row = group[few], row[few]
    order = np.lexsort((row, time[row], group))
    group, row = group[order], row[order]
    near = (group[1:] == group[:-1]) & (time[row[1:]] - time[row[:-1]] <= within)
    return row[:-1][near], row[1:][near]


def _kinds(names: _Names) -> Ints:
    """Settle one kind for each name of a case, however it is written: of equally sure ones, person, place, thing."""
    form, first, count = distinct(names.case, codes(names.title))
    one = merge(names.case[first], names.title.take(pa.array(first)), count, "punctuation").into[form]
    least = np.full(len(first), _GUESSED + THING, np.int64)
    np.minimum.at(least, one, names.kind)
    kinds: Ints = least[one] % len(KINDS)
    return kinds


def _noted(notes: pa.Table, fields: Mapping[str, str], rows: Shard) -> _Names:
    """Return what notes name."""
    found = mentions(notes, fields)
    kind = pc.index_in(found.kind, value_set=pa.array(KINDS)).to_numpy(zero_copy_only=False).astype(np.int64)
    return _Names(found.row, rows.case[found.row], found.title, kind)


def _listed(entities: pa.Table, notes: pa.Table, rows: Shard) -> _Names:
    """Return the people, places and things of `entities`, and what the notes call them."""
    row = rows.rows_of(rows.cases_of(entities["case_id"]), plain(entities["interaction_id"]))
    title, kinds = plain(entities["title"]), plain(entities["kind"]).dictionary_encode()
    of = {**{name: KINDS.index(kind) for name, kind in TYPES.items()}, "entity": THING + _GUESSED}
    kind = np.array([*(of.get(name, -1) for name in kinds.dictionary.to_pylist()), -1])[
        kinds.indices.to_numpy(zero_copy_only=False)
    ]
    kept = np.flatnonzero((row >= 0) & (kind >= 0) & visible(title))
    hints = _noted(notes, {"who": "person", "where": "place"}, rows)
    return _Names(
        np.concatenate([row[kept], np.full(len(hints.row), -1)]),
        np.concatenate([rows.case[row[kept]], hints.case]),
        pa.concat_arrays([title.take(pa.array(kept)), hints.title]),
        np.concatenate([kind[kept], hints.kind + _NOTED]),
    )


def _related(relations: pa.Table, rows: Shard) -> _Told:
    """Return the introductions and recommendations among relations, whichever way round their kind puts them."""
    row = rows.rows_of(rows.cases_of(relations["case_id"]), plain(relations["interaction_id"]))
    sides = plain(relations["source"]), plain(relations["target"])
    coded = plain(relations["kind"]).dictionary_encode()
    read = np.array([*map(_meaning, coded.dictionary.to_pylist()), 0])[coded.indices.to_numpy(zero_copy_only=False)]
    kept = np.flatnonzero((row >= 0) & (read != 0) & visible(sides[0]) & visible(sides[1]))
    row, read, at = row[kept], read[kept], pa.array(kept)
    one, two = (side.take(at) for side in sides)
    back = pa.array(read < 0)
    values, owner = listed(relations["attributes"].take(at))
    venue = pc.struct_field(pc.extract_regex(values, _VENUE), "name")
    venued = np.flatnonzero(pc.is_valid(venue).to_numpy(zero_copy_only=False))
    place = np.full(len(row), -1, np.int64)
    place[owner[venued[::-1]]] = venued[::-1]
    places = pc.fill_null(venue.take(pa.array(place, mask=place < 0)), "")
    return _Told(row, np.abs(read) == 1, pc.if_else(back, two, one), pc.if_else(back, one, two), places)


def _meaning(kind: str) -> int:
    """Tell what a kind of relation says: 1 an introduction, 2 a recommendation, less than 0 the other way round."""
    kind = normalise(kind.replace("/", " ")) or ""
    if kind.startswith(("met_through", "met_via", "met_thanks_to", "knows_through")):
        return -1
    meaning = 1 if "introduc" in kind else 2 if "recommend" in kind or "suggest" in kind else 0
    return -meaning if kind.endswith("_by") else meaning


def _said(interactions: pa.Table) -> _Told:
    """Return what users say of introductions and recommendations; names in the form of tags."""
    found = _tellings.find(interactions["user_text"].combine_chunks(), interactions["speakers"].to_pylist())
    return _Told(
        np.array([one.row for one in found], np.int64),
        np.array([one.kind == _tellings.INTRODUCED for one in found], np.bool_),
        _tags([one.source for one in found]),
        _tags([one.target for one in found]),
        _tags([one.place or "" for one in found]),
    )


def _tags(names: list[str]) -> pa.Array:
    """Write names as the extractor does: in the normal form of tags, without an article."""
    tags = pa.array([normalise(name.replace("/", " ")) or name for name in names], pa.string())
    return pc.replace_substring_regex(tags, "^(?:the|an?)_", "")
