"""TAGGRAPH's base graph (arXiv 2609.38353) with chronological edges.

Nodes of a case, numbered in this order:

- ``file``: one an interaction, by position; the key is the interaction id.
- ``topic``: by first appearance. A note's topic is its first `what` tag cut to two levels; without one, its first
  tag of any field in the order of `NOTE_FIELDS`, cut likewise; a note without tags has a topic of its own,
  ``note:INTERACTION_ID``, so that every file stays reachable.
- ``tag``: every observed tag, in byte order of its path.
- ``ontology``: every strict prefix of a tag that is not itself an observed tag, in byte order.

Edges, directed, at most one from a node to another, none to itself:

- ``tag_topic``: a note's tags to its topic; weight = notes of the topic that carry the tag.
- ``topic_file``: topic to the files of its notes; weight 1.
- ``topic_topic``: similar topics, both directions; weight = shared attributes (see `similar_topics`).
- ``ontology``: parent to child over tag and ontology nodes; weight 1.
- ``chronological``: file to the next file by position; weight 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import scipy
from pydantic import BaseModel, ConfigDict, Field

from schemas.errors import SchemaError
from schemas.tables import NOTE_FIELDS, empty
from schemas.tables import build as build_table
from transforms.graphs._built import Built

NAME = "taggraph"
VERSION = 2
INPUTS = ("notes",)
SEARCHED = ("tag",)

NODE_KINDS = ("file", "topic", "tag", "ontology")
EDGE_KINDS = ("chronological", "ontology", "tag_topic", "topic_file", "topic_topic")

MAX_LEVELS = 8
"""Prefixes of more levels are no ontology nodes. Tags have 1-4; the bound is for tags from elsewhere."""

_CHUNK = 4_000_000

Ints = npt.NDArray[np.int64]


class Options(BaseModel):
    """Options of the graph kind `taggraph`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    shared_attributes: int = Field(3, ge=1, description="Attributes that similar topics share at least")
    hub_topics: int = Field(
        128, ge=2, description="An attribute in more topics of a case than this makes no pair of topics similar alone"
    )
    max_neighbours: int = Field(32, ge=1, description="Similar topics that each topic keeps, strongest first")


@dataclass(frozen=True)
class Similar:
    """Pairs of similar topics, both directions, in order of source and target.

    Attributes:
        source: (pairs,) topic.
        target: (pairs,) topic.
        shared: (pairs,) attributes that both have.
        candidates: Unordered pairs that were compared, the work done.
    """

    source: Ints
    target: Ints
    shared: Ints
    candidates: int


def build(tables: Mapping[str, pa.Table], options: Options) -> Built:
    """Build the graphs of all cases of a `notes` table; nothing is merged.

    Raises:
        SchemaError: The rows of a case do not stand together.
    """
    notes = tables["notes"].combine_chunks()
    case_names, row_case = _cases(notes)
    cases, rows = len(case_names), len(row_case)
    ids = _plain(notes["interaction_id"])
    paths, parent, top, entry_row, entry_field, entry_tag = _tags(notes)
    width = len(paths) + 1

    topic_of_row, topic_case, topic_key = _topics(row_case, ids, paths, top, entry_row, entry_field, entry_tag)
    tag_key, entry_node = np.unique(row_case[entry_row] * width + entry_tag, return_inverse=True)
    ontology_key = _prefixes(tag_key, parent, width)

    node_case = (row_case, topic_case, tag_key // width, ontology_key // width)
    case_starts, local, sizes = _number(node_case, cases)

    edges: list[tuple[int, Ints, Ints, Ints, npt.NDArray[np.float64], Ints]] = []

    def add(kind: str, case: Ints, source: Ints, target: Ints, weight: Ints, row: Ints | None = None) -> None:
        row = np.full(len(source), -1, np.int64) if row is None else row
        edges.append((EDGE_KINDS.index(kind), case, source, target, weight.astype(np.float64), row))

    every = np.arange(rows, dtype=np.int64)
    later = every[1:][row_case[1:] == row_case[:-1]]
    ones = np.ones(rows, np.int64)
    add("chronological", row_case[later], local[0][later - 1], local[0][later], ones[later], later)
    add("topic_file", row_case, local[1][topic_of_row], local[0], ones, every)

    note_tag = np.unique(entry_row * (len(tag_key) + 1) + entry_node)
    pair, count = np.unique(
        topic_of_row[note_tag // (len(tag_key) + 1)] * (len(tag_key) + 1) + note_tag % (len(tag_key) + 1),
        return_counts=True,
    )
    topic, tag = pair // (len(tag_key) + 1), pair % (len(tag_key) + 1)
    add("tag_topic", topic_case[topic], local[2][tag], local[1][topic], count)

    both = np.concatenate([tag_key, ontology_key])
    order = np.argsort(both, kind="stable")
    number = np.concatenate([local[2], local[3]])[order]
    both = both[order]
    up = parent[both % width]
    child = np.flatnonzero(up >= 0)
    above = np.searchsorted(both, both[child] // width * width + up[child])
    add("ontology", both[child] // width, number[above], number[child], np.ones(len(child), np.int64))

    five = np.flatnonzero(entry_field < NOTE_FIELDS.index("extra"))  # similarity is over the 5W fields
    attribute = np.unique(entry_node[five] * len(NOTE_FIELDS) + entry_field[five], return_inverse=True)[1].reshape(-1)
    similar = similar_topics(topic_of_row[entry_row[five]], attribute, len(topic_case), options)
    add("topic_topic", topic_case[similar.source], local[1][similar.source], local[1][similar.target], similar.shared)

    nodes = _node_table(
        case_names, node_case, local, case_starts, sizes, ids, topic_key, paths, tag_key, ontology_key, width
    )
    return Built(nodes, _edge_table(case_names, edges, case_starts, ids), empty("merges"))


def similar_topics(topic: Ints, attribute: Ints, topics: int, options: Options) -> Similar:
    """Find the topics that share at least ``shared_attributes`` = t attributes, one of them no hub.

    An attribute that more than ``hub_topics`` topics have is a hub: it counts as shared, but two topics that share
    nothing but hubs are not similar. Attributes are ordered by rarity; of sets that share t attributes, each has the
    rarest shared one among its ``size - t + 1`` rarest (prefix filtering; Chaudhuri et al. 2006, Bayardo et al.
    2007). So the product of the prefixes, without hubs, gives every pair to compare, at most ``hub_topics`` for each
    entry of `topic`: linear in the case. Pairs are then compared exactly, the smaller set looked up in the larger.
    Of its similar topics each keeps the ``max_neighbours`` that share most (equal ones: the earlier topic); a pair
    stays when either keeps it.

    Args:
        topic: (entries,) topic that has an attribute, in any order, with or without repeats.
        attribute: (entries,) that attribute. Attributes of different cases differ.
        topics: Number of topics.
        options: Thresholds.
    """
    least = options.shared_attributes
    span = int(attribute.max(initial=0)) + 1
    key = np.unique(topic * span + attribute)
    topic, attribute = key // span, key % span
    size = np.bincount(topic, minlength=topics)
    held_by = np.bincount(attribute, minlength=span)

    order = np.lexsort((attribute, held_by[attribute], topic))
    start = np.concatenate([[0], np.cumsum(size)])
    place = np.arange(len(order)) - start[topic[order]]
    prefix = order[(place <= size[topic[order]] - least) & (held_by[attribute[order]] <= options.hub_topics)]
    ones = np.ones(len(prefix), np.int32)
    left = scipy.sparse.csr_array((ones, (topic[prefix], attribute[prefix])), shape=(topics, span))
    right = left.T.tocsr()
    work = np.zeros(topics + 1, np.int64)
    np.cumsum(left @ np.diff(right.indptr).astype(np.int64), out=work[1:])

    found: list[tuple[Ints, Ints, Ints]] = []
    candidates, low = 0, 0
    while low < topics:
        high = max(low + 1, int(np.searchsorted(work, work[low] + _CHUNK, side="right")) - 1)
        if work[high] > work[low]:
            product = (left[low:high] @ right).tocoo()
            one, two = product.row.astype(np.int64) + low, product.col.astype(np.int64)
            upper = two > one
            one, two = one[upper], two[upper]
            candidates += len(one)
            shared = _shared(one, two, key, span, size, start)
            kept = shared >= least
            found.append((one[kept], two[kept], shared[kept]))
        low = high
    one, two, shared = (np.concatenate([f[i] for f in found] or [np.zeros(0, np.int64)]) for i in range(3))
    return _strongest(one, two, shared, topics, options.max_neighbours, candidates)


def _shared(one: Ints, two: Ints, key: Ints, span: int, size: Ints, start: Ints) -> Ints:
    """Count the attributes that the topics of each pair share; `key` holds topic * span + attribute, ascending."""
    counts = np.zeros(len(one), np.int64)
    swap = size[one] > size[two]
    small, large = np.where(swap, two, one), np.where(swap, one, two)
    total = np.concatenate([[0], np.cumsum(size[small])])
    low = 0
    while low < len(one):
        high = max(low + 1, int(np.searchsorted(total, total[low] + _CHUNK, side="right")) - 1)
        length = size[small[low:high]]
        pair = np.repeat(np.arange(high - low), length)
        place = np.arange(len(pair)) - np.repeat(total[low:high] - total[low], length)
        wanted = key[start[small[low:high]][pair] + place] % span + large[low:high][pair] * span
        at = np.searchsorted(key, wanted)
        hit = key[np.minimum(at, len(key) - 1)] == wanted
        counts[low:high] = np.bincount(pair[hit], minlength=high - low)
        low = high
    return counts


def _strongest(one: Ints, two: Ints, shared: Ints, topics: int, most: int, candidates: int) -> Similar:
    source, target = np.concatenate([one, two]), np.concatenate([two, one])
    shared = np.concatenate([shared, shared])
    order = np.lexsort((target, -shared, source))
    begin = np.concatenate([[0], np.cumsum(np.bincount(source, minlength=topics))])
    kept = order[np.arange(len(order)) - begin[source[order]] < most]
    pair = np.minimum(source, target) * topics + np.maximum(source, target)
    stays = np.flatnonzero(np.isin(pair, pair[kept]))
    stays = stays[np.lexsort((target[stays], source[stays]))]
    return Similar(source[stays], target[stays], shared[stays], candidates)


def _plain(column: pa.ChunkedArray) -> pa.Array:
    joined = column.combine_chunks()
    return joined.cast(pa.string()) if joined.type != pa.string() else joined


def _cases(notes: pa.Table) -> tuple[pa.Array, Ints]:
    """Return the case ids in order of appearance and the number of each row's case."""
    coded = _plain(notes["case_id"]).dictionary_encode()
    row_case = coded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    if (np.diff(row_case) < 0).any():
        raise SchemaError("rows of one case do not stand together", where="notes.case_id")
    return coded.dictionary, row_case


def _tags(notes: pa.Table) -> tuple[pa.Array, Ints, Ints, Ints, Ints, Ints]:
    """Return all paths (tags and prefixes) in byte order, and the tags of the notes as numbers of these.

    Returns:
        The paths; per path the number of its parent (-1: none) and of its first two levels; per occurrence of a tag
        its row, field and path, in order of field, row and place.
    """
    values, rows, fields = [], [], []
    for number, name in enumerate(NOTE_FIELDS):
        column = notes[name].combine_chunks()
        values.append(column.flatten())
        lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
        rows.append(np.repeat(np.arange(len(lengths), dtype=np.int64), lengths))
        fields.append(np.full(len(rows[-1]), number, np.int64))
    coded = pa.concat_arrays(values).dictionary_encode()
    observed, code = coded.dictionary, coded.indices.to_numpy(zero_copy_only=False).astype(np.int64)

    parts = pc.split_pattern(observed, "/")
    levels = pc.list_value_length(parts).to_numpy(zero_copy_only=False).astype(np.int64)
    chain = [observed]
    for level in range(1, min(MAX_LEVELS, int(levels.max(initial=1)) - 1) + 1):
        has = pa.array(levels > level)
        cut = pc.binary_join(pc.list_slice(parts, 0, level), "/")
        chain.append(pc.if_else(has, cut, pa.scalar("", pa.string())))
    universe = pa.concat_arrays(chain).dictionary_encode()
    order = pc.sort_indices(universe.dictionary).to_numpy()
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    paths = universe.dictionary.take(pa.array(order))
    steps = rank[universe.indices.to_numpy(zero_copy_only=False)].reshape(len(chain), len(observed))

    parent = np.full(len(paths), -1, np.int64)
    top = np.arange(len(paths), dtype=np.int64)
    for level in range(1, len(chain)):
        deeper = levels > level
        if level > 1:
            parent[steps[level][deeper]] = steps[level - 1][deeper]
        last = deeper & ((levels == level + 1) | (level == len(chain) - 1))
        parent[steps[0][last]] = steps[level][last]
        if level == 2:
            top[steps[0][deeper]] = steps[2][deeper]
    empty = len(paths) > 0 and paths[0].as_py() == ""
    if empty:
        parent[parent == 0] = -1
    tag = steps[0][code] if len(code) else code
    row, field = np.concatenate(rows), np.concatenate(fields)
    kept = tag > 0 if empty else np.ones(len(tag), np.bool_)
    return paths, parent, top, row[kept], field[kept], tag[kept]


def _topics(
    row_case: Ints, ids: pa.Array, paths: pa.Array, top: Ints, row: Ints, field: Ints, tag: Ints
) -> tuple[Ints, Ints, pa.Array]:
    """Return the topic of each row, the case of each topic and the key of each topic."""
    rows = len(row_case)
    first = np.full(rows, len(row), np.int64)
    what = NOTE_FIELDS.index("what")
    for chosen in (np.flatnonzero(field == what), np.arange(len(row))):
        # Reversed, so that of several tags of a row the earliest is written last.
        free = chosen[first[row[chosen]] == len(row)][::-1]
        first[row[free]] = free
    bare = first == len(row)
    name = np.where(bare, len(paths) + np.arange(rows), 0)
    name[~bare] = top[tag[first[~bare]]]
    _, at, inverse = np.unique(row_case * (len(paths) + rows + 1) + name, return_index=True, return_inverse=True)
    order = np.argsort(at)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    own = pc.binary_join_element_wise("note:", ids, "")
    keys = pa.concat_arrays([paths, own]).take(pa.array(name[at[order]]))
    return rank[inverse.reshape(-1)], row_case[at[order]], keys


def _prefixes(tag_key: Ints, parent: Ints, width: int) -> Ints:
    """Return case * width + path of every prefix of a case's tags that is not one of its tags, ascending."""
    found = [np.zeros(0, np.int64)]
    level = tag_key
    while len(level):
        up = parent[level % width]
        level = np.unique((level // width * width + up)[up >= 0])
        found.append(level)
    return np.setdiff1d(np.concatenate(found), tag_key)


def _number(node_case: tuple[Ints, ...], cases: int) -> tuple[Ints, list[Ints], Ints]:
    """Number the nodes of each case, kind after kind; within a kind they stand in order already."""
    counts = np.stack([np.bincount(case, minlength=cases) for case in node_case], axis=1)
    before = np.cumsum(counts, axis=1) - counts
    starts = np.cumsum(counts, axis=0) - counts
    local = [np.arange(len(case)) - starts[case, kind] + before[case, kind] for kind, case in enumerate(node_case)]
    sizes = counts.sum(axis=1)
    return np.cumsum(sizes) - sizes, local, sizes


def _names(codes: npt.NDArray[np.integer], names: pa.Array) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)), names)


def _node_table(
    case_names: pa.Array,
    node_case: tuple[Ints, ...],
    local: list[Ints],
    case_starts: Ints,
    sizes: Ints,
    ids: pa.Array,
    topic_key: pa.Array,
    paths: pa.Array,
    tag_key: Ints,
    ontology_key: Ints,
    width: int,
) -> pa.Table:
    total = int(sizes.sum())
    case = np.concatenate(node_case)
    place = case_starts[case] + np.concatenate(local)
    kind = np.repeat(np.arange(len(NODE_KINDS)), [len(c) for c in node_case])
    keys = pa.concat_arrays(
        [ids, topic_key, paths.take(pa.array(tag_key % width)), paths.take(pa.array(ontology_key % width))]
    )
    order = np.empty(total, np.int64)
    order[place] = np.arange(total)
    key = keys.take(pa.array(order))
    return build_table(
        "nodes",
        {
            "case_id": _names(case[order], case_names),
            "graph": _names(np.zeros(total, np.int32), pa.array([NAME])),
            "node_id": np.concatenate(local)[order].astype(np.int32),
            "kind": _names(kind[order], pa.array(NODE_KINDS)),
            "key": key,
            "text": pa.nulls(total, pa.string()),
            "interaction_id": pc.if_else(pa.array(kind[order] == 0), key, pa.scalar(None, pa.string())),
        },
    )


def _edge_table(
    case_names: pa.Array,
    edges: list[tuple[int, Ints, Ints, Ints, npt.NDArray[np.float64], Ints]],
    case_starts: Ints,
    ids: pa.Array,
) -> pa.Table:
    kind = np.repeat([edge[0] for edge in edges], [len(edge[1]) for edge in edges])
    case, source, target, weight, row = (np.concatenate([edge[i] for edge in edges]) for i in range(1, 6))
    span = int(target.max(initial=0)) + 1
    starts = case_starts if len(case_starts) else np.zeros(1, np.int64)
    order = np.argsort((starts[case] + source) * span + target)
    return build_table(
        "edges",
        {
            "case_id": _names(case[order], case_names),
            "graph": _names(np.zeros(len(order), np.int32), pa.array([NAME])),
            "source": source[order].astype(np.int32),
            "target": target[order].astype(np.int32),
            "kind": _names(kind[order], pa.array(EDGE_KINDS)),
            "weight": weight[order].astype(np.float32),
            "interaction_id": ids.take(pa.array(row[order], mask=row[order] < 0)),
        },
    )
