"""Nodes named by merged forms, and the tables of a graph from its nodes and edges."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer

from schemas.errors import SchemaError
from schemas.tables import build as build_table
from transforms.graphs._built import Bools, Built, Ints, Shard, codes
from transforms.merging import RULES, Level, Merged, merge

_Floats = npt.NDArray[np.float64]

Embed = Callable[[pa.Array], npt.NDArray[np.floating]]
"""Gives the unit vectors of distinct strings, (strings, d); each depends on its string alone."""


class Merging(BaseModel):
    """Options of graph kinds that merge near-duplicates."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    merge: Level = Field("spelling", description="How far near-duplicate names are merged; none: not at all")
    merge_cosine: float | None = Field(
        None,
        gt=0,
        le=1,
        description="Least cosine of vectors by which near-duplicates are merged; none: by spelling alone",
    )

    @model_serializer(mode="wrap")
    def _set(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # A kind that merges by no vectors has the keys that it had before it could.
        return {name: value for name, value in handler(self).items() if (name, value) != ("merge_cosine", None)}


@dataclass(frozen=True)
class Named:
    """Nodes of one kind, each named by a form that mentions have; E mentions of F forms give N nodes.

    Attributes:
        form: (E,) form of each mention.
        case: (F,) case of each form.
        forms: (F,) the forms, none twice in a case.
        node: (F,) node that each names.
        rule: (F,) index into `RULES` of why; -1 where the form is the node's key.
        similarity: (F,) of the form and the key.
        keys: (N,) forms that are keys, in order of case and of first mention by any form.
    """

    form: Ints
    case: Ints
    forms: pa.Array
    node: Ints
    rule: Ints
    similarity: _Floats
    keys: Ints

    @property
    def nodes(self) -> Ints:
        """(E,) node of each mention."""
        return self.node[self.form]

    @property
    def titles(self) -> pa.Array:
        """(N,) keys."""
        return self.forms.take(pa.array(self.keys))


def named(
    case: Ints, mentioned: pa.Array, options: Merging, embed: Embed | None = None, people: Bools | None = None
) -> Named:
    """Make nodes of what is mentioned, near-duplicates of a case merged.

    Args:
        case: (E,) case of each mention.
        mentioned: (E,) what it is called; nothing empty.
        options: How far to merge.
        embed: Gives vectors, where options want them; it sees spaces for ``_`` and ``/``.
        people: (E,) mentions of people. A form that any mention of its case says to be a person's counts as one.

    Raises:
        SchemaError: Options want vectors, and nothing gives them.
    """
    form, first, count = distinct(case, codes(mentioned))
    forms = mentioned.take(pa.array(first))
    persons = np.zeros(len(first), np.bool_)
    if people is not None:
        persons[form[people]] = True
    if options.merge_cosine is None or not len(forms):
        merged = merge(case[first], forms, count, options.merge, named=persons)
        return numbered(form, case[first], forms, first, merged)
    if embed is None:
        raise SchemaError("merging by vectors needs vectors", where="merge_cosine")
    coded = pc.replace_substring_regex(forms, "[_/]+", " ").dictionary_encode()
    vectors = embed(coded.dictionary)[coded.indices.to_numpy()]
    cosine = options.merge_cosine
    merged = merge(case[first], forms, count, options.merge, named=persons, vectors=vectors, cosine=cosine)
    return numbered(form, case[first], forms, first, merged)


def distinct(case: Ints, code: Ints) -> tuple[Ints, Ints, Ints]:
    """Number the distinct pairs of case and code by first appearance.

    Returns:
        Number of each pair, where each distinct one appears first, and how often it appears.
    """
    key = case * (int(code.max(initial=0)) + 1) + code
    _, first, inverse, count = np.unique(key, return_index=True, return_inverse=True, return_counts=True)
    order = np.argsort(first)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return rank[inverse.reshape(-1)], first[order], count[order]


def numbered(form: Ints, case: Ints, forms: pa.Array, first: Ints, merged: Merged) -> Named:
    """Number the nodes of merged forms, whose first mentions are given, by case and first mention."""
    earliest = np.full(len(forms), len(form), np.int64)
    np.minimum.at(earliest, merged.into, first)
    keys = np.flatnonzero(merged.into == np.arange(len(forms)))
    keys = keys[np.lexsort((earliest[keys], case[keys]))]
    node = np.empty(len(forms), np.int64)
    node[keys] = np.arange(len(keys))
    return Named(form, case, forms, node[merged.into], merged.rule, merged.similarity, keys)


class Assembly:
    """Nodes and edges of all cases of a shard, gathered kind by kind and then numbered.

    Nodes of a case are numbered kind after kind in the order in which kinds are added, file nodes first.

    Args:
        graph: Graph kind.
        rows: The interactions; each is a file node, whose number here is its row.
    """

    def __init__(self, graph: str, rows: Shard) -> None:
        self._graph, self._rows = graph, rows
        self._nodes: list[tuple[str, Ints, pa.Array, pa.Array]] = []
        self._edges: list[tuple[pa.Array, Ints, Ints, _Floats, Ints]] = []
        self._merges: list[tuple[str, Ints, pa.Array, pa.Array, Ints, _Floats]] = []
        self._count = 0
        self.nodes("file", rows.case, rows.ids)

    def nodes(self, kind: str, case: Ints, keys: pa.Array, texts: pa.Array | None = None) -> int:
        """Add nodes of a kind, in order within a case.

        Returns:
            Number of the first; the others follow.
        """
        texts = pa.nulls(len(keys), pa.string()) if texts is None else texts
        self._nodes.append((kind, case, keys, texts))
        self._count += len(keys)
        return self._count - len(keys)

    def named(self, kind: str, found: Named, texts: pa.Array | None = None) -> Ints:
        """Add named nodes, and record which forms were merged into them.

        Returns:
            (E,) number of the node of each mention.
        """
        gone = np.flatnonzero(found.rule >= 0)
        into = found.keys[found.node[gone]]
        pairs = (found.forms.take(pa.array(side)) for side in (gone, into))
        self._merges.append((kind, found.case[gone], *pairs, found.rule[gone], found.similarity[gone]))
        return self.nodes(kind, found.case[found.keys], found.titles, texts) + found.nodes

    def edges(self, kind: str | pa.Array, source: Ints, target: Ints, row: Ints, *, counted: bool = False) -> None:
        """Add edges between nodes of one case; repeats of an edge are one, and none leads to its own node.

        Args:
            kind: Edge kind, or one an edge.
            source: Node that each leaves.
            target: Node that it enters.
            row: Interaction that gave rise to it, -1: none. Of repeats the first stays.
            counted: Weigh an edge by its repeats; otherwise 1.
        """
        kinds = pa.repeat(pa.scalar(kind), len(source)) if isinstance(kind, str) else kind
        code = codes(kinds)
        key = (source * self._count + target) * (int(code.max(initial=0)) + 1) + code
        loops = source == target
        order = np.lexsort((np.where(row < 0, len(self._rows.ids), row), key))
        order = order[~loops[order]]
        head = np.flatnonzero(np.diff(key[order], prepend=-1))
        repeats = np.diff(np.append(head, len(order)))
        at = order[head]
        weight = repeats if counted else np.ones(len(at))
        self._edges.append((kinds.take(pa.array(at)), source[at], target[at], weight.astype(np.float64), row[at]))

    def built(self) -> Built:
        """Make the tables of everything added."""
        case = np.concatenate([part[1] for part in self._nodes])
        kind = np.repeat(np.arange(len(self._nodes)), [len(part[1]) for part in self._nodes])
        order = np.lexsort((kind, case))
        sizes = np.bincount(case, minlength=len(self._rows.names))
        number = np.empty(len(order), np.int64)
        number[order] = np.arange(len(order)) - (np.cumsum(sizes) - sizes)[case[order]]
        nodes = self._node_table(case, kind, order, number)
        return Built(nodes, self._edge_table(case, number), self._merge_table())

    def _node_table(self, case: Ints, kind: Ints, order: Ints, number: Ints) -> pa.Table:
        keys = pa.concat_arrays([part[2] for part in self._nodes]).take(pa.array(order))
        kinds = pa.array([part[0] for part in self._nodes], pa.string())
        return build_table(
            "nodes",
            {
                "case_id": _coded(case[order], self._rows.names),
                "graph": _coded(np.zeros_like(order), pa.array([self._graph])),
                "node_id": number[order].astype(np.int32),
                "kind": _coded(kind[order], kinds),
                "key": keys,
                "text": pa.concat_arrays([part[3] for part in self._nodes]).take(pa.array(order)),
                "interaction_id": pc.if_else(pa.array(kind[order] == 0), keys, pa.scalar(None, pa.string())),
            },
        )

    def _edge_table(self, case: Ints, number: Ints) -> pa.Table:
        kinds = pa.concat_arrays([pa.array([], pa.string()), *(part[0] for part in self._edges)]).dictionary_encode()
        none = np.zeros(0, np.int64)
        source, target, row = (np.concatenate([none, *(part[i] for part in self._edges)]) for i in (1, 2, 4))
        weight = np.concatenate([np.zeros(0), *(part[3] for part in self._edges)])
        rank = pc.rank(kinds.dictionary).to_numpy() if len(kinds) else none
        kind = rank[kinds.indices.to_numpy()] if len(kinds) else none
        order = np.lexsort((kind, number[target], number[source], case[source]))
        return build_table(
            "edges",
            {
                "case_id": _coded(case[source][order], self._rows.names),
                "graph": _coded(np.zeros_like(order), pa.array([self._graph])),
                "source": number[source][order].astype(np.int32),
                "target": number[target][order].astype(np.int32),
                "kind": kinds.take(pa.array(order)),
                "weight": weight[order].astype(np.float32),
                "interaction_id": self._rows.ids.take(pa.array(row[order], mask=row[order] < 0)),
            },
        )

    def _merge_table(self) -> pa.Table:
        none, text = np.zeros(0, np.int64), pa.array([], pa.string())
        kinds = pa.array([part[0] for part in self._merges], pa.string())
        kind = np.repeat(np.arange(len(kinds)), [len(part[1]) for part in self._merges])
        case, rule = (np.concatenate([none, *(part[i] for part in self._merges)]) for i in (1, 4))
        keys, into = (pa.concat_arrays([text, *(part[i] for part in self._merges)]) for i in (2, 3))
        similarity = np.concatenate([np.zeros(0), *(part[5] for part in self._merges)])
        places = pa.table({"case": case, "kind": kinds.take(pa.array(kind)), "key": keys})
        order = pc.sort_indices(places, sort_keys=[(name, "ascending") for name in places.column_names])
        return build_table(
            "merges",
            {
                "case_id": _coded(case, self._rows.names).take(order),
                "graph": _coded(np.zeros_like(case), pa.array([self._graph])),
                "kind": places["kind"].take(order),
                "key": keys.take(order),
                "into": into.take(order),
                "rule": _coded(rule, pa.array(RULES)).take(order),
                "similarity": similarity[order.to_numpy()].astype(np.float32),
            },
        )


def _coded(numbers: Ints, names: pa.Array) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(numbers.astype(np.int32)), names)
