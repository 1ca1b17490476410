"""Selective forgetting of graph nodes (arXiv 2608.28978), replayed over the history of each case.

Every `every` interactions of a case a round takes place, at the time of the last one so far. It weighs each node::

    importance = age * 2^(-days / half_life_days) + access * ln(1 + accesses) / ln(2 + most accesses of the case)
               + degree * min(ln(1 + degree) / ln 11, 1) + turns * 2^(-turns / half_life_turns)

with the weights .35, .25, .20 and .20. Days and turns (interactions) are those since the last interaction that an edge
of the node names, the degree counts its edges in both directions. Nodes below the threshold go at once, with their
edges; that lowers the degree of their neighbours for the next round. A node that a later interaction tells of comes
back with the edges from there on. Interactions after the last round are in none.

Never forgotten are ``file`` nodes, nodes that are pinned, and nodes without an edge that names an interaction: nothing
tells how old these are.

A node is weighed anew only where it was told of or lost an edge; between, its importance can only fall, and the round
in which it falls below the threshold is found by bisection. The work so grows with nodes and edges, not with rounds.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from schemas.config import ForgetConfig
from schemas.ids import shard_of
from schemas.tables import build
from transforms.graphs._built import Shard, plain

VERSION = 1

COLUMNS = ["case_id", "interaction_id", "started_at"]
"""Columns of `interactions` that are read."""

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

_DAY = 86_400_000_000
_NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Kept:
    """What is left of the graphs of a shard.

    Attributes:
        nodes, edges: The tables of that name without what was forgotten; nodes are numbered anew, in the same order.
        forgotten: Table `forgotten`.
        pinned: Nodes that the configuration pins.
    """

    nodes: pa.Table
    edges: pa.Table
    forgotten: pa.Table
    pinned: int


def importance(days: Floats, access: Floats, degree: Ints, turns: Ints, own: ForgetConfig) -> Floats:
    """Weigh nodes.

    Args:
        days: Days since each was last told of.
        access: Share of its accesses, ln(1 + accesses) / ln(2 + most).
        degree: Its edges.
        turns: Interactions since it was last told of.
        own: Weights and half-lives.

    Returns:
        Importance in [0, 1], rounded to 12 digits so that it is the same on every machine.
    """
    linked = np.minimum(np.log1p(degree) / np.log(11), 1)
    found: Floats = (
        own.weights.age * np.exp2(-days / own.half_life_days)
        + own.weights.access * access
        + own.weights.degree * linked
        + own.weights.turns * np.exp2(-turns / own.half_life_turns)
    )
    return np.clip(np.round(found, 12), 0, 1)


def forget(
    nodes: pa.Table, edges: pa.Table, interactions: pa.Table, own: ForgetConfig, hits: pa.Table | None = None
) -> Kept:
    """Forget what is not important.

    Args:
        nodes: Table `nodes` of one graph kind, of a shard.
        edges: Table `edges`.
        interactions: Table `interactions` of the shard, at least `COLUMNS`.
        own: What to forget.
        hits: Columns case_id, interaction_id, count: how often an interaction was retrieved, each named once. A node is
            accessed as often as the interactions that its edges name. None: nothing was ever accessed.
    """
    graph = _graph(nodes, edges, interactions)
    pinned = _pinned(nodes, own) & ~graph.file
    replay = _Replay(graph, own, ~graph.file & graph.dated & ~pinned, _access(graph, hits))
    replay.run()
    count = int(pinned.sum())
    if not replay.drops:
        return Kept(nodes, edges, _forgotten(nodes, replay), count)
    stays, left = replay.there, ~replay.gone
    total = np.append(0, np.cumsum(stays))
    number = total[:-1] - total[graph.start[graph.case]]
    kept = nodes.filter(pa.array(stays))
    kept = kept.set_column(2, kept.schema.field("node_id"), pa.array(number[stays].astype(np.int32)))
    linked = edges.filter(pa.array(left))
    for name, ends in (("source", graph.source), ("target", graph.target)):
        at = linked.schema.get_field_index(name)
        linked = linked.set_column(at, linked.schema.field(name), pa.array(number[ends[left]].astype(np.int32)))
    return Kept(kept, linked, _forgotten(nodes, replay), count)


def accessing(case_id: pa.ChunkedArray, question_id: pa.ChunkedArray) -> Bools:
    """Tell which questions count as accesses: half of them, by the hash of case and question.

    What was kept for these is judged on the others alone.
    """
    pairs = pc.binary_join_element_wise(case_id.cast(pa.string()), question_id, "\0").combine_chunks()
    coded = pairs.dictionary_encode()
    half = np.array([shard_of(pair, 2) == 0 for pair in coded.dictionary.to_pylist()], np.bool_)
    found: Bools = half[coded.indices.to_numpy()] if len(half) else half
    return found


def retrieved(runs: pa.Table, depth: int) -> pa.Table:
    """Count how often interactions were retrieved for the questions that count as accesses.

    Args:
        runs: Table `runs` of one preset.
        depth: Ranks that count.

    Returns:
        Columns case_id, interaction_id, count.
    """
    rows = runs.filter(pc.less_equal(runs["rank"], depth))
    rows = rows.filter(pa.array(accessing(rows["case_id"], rows["question_id"]), pa.bool_()))
    names = ["case_id", "interaction_id"]
    rows = pa.table({name: plain(rows[name]) for name in names})
    return rows.group_by(names, use_threads=False).aggregate([([], "count_all")]).rename_columns([*names, "count"])


@dataclass(frozen=True)
class _Graph:
    """The graphs of a shard as arrays: N nodes and E edges of C cases over R interactions.

    Attributes:
        rows: The interactions.
        first: (C + 1,) first interaction of each case.
        clock: (R,) time in microseconds, never falling within a case.
        case, start: (N,) case of each node; (C,) first node of each case.
        file, dated: (N,) whether a node is a file; whether an edge of it names an interaction.
        source, target: (E,) nodes.
        date: (E,) position of the interaction that an edge names, else of the one by which both ends are there.
        told: (E,) whether it names one.
    """

    rows: Shard
    first: Ints
    clock: Ints
    case: Ints
    start: Ints
    file: Bools
    dated: Bools
    source: Ints
    target: Ints
    date: Ints
    told: Bools


def _graph(nodes: pa.Table, edges: pa.Table, interactions: pa.Table) -> _Graph:
    coded = plain(interactions["case_id"]).dictionary_encode()
    rows = Shard(
        coded.dictionary,
        coded.indices.to_numpy(zero_copy_only=False).astype(np.int64),
        plain(interactions["interaction_id"]),
    )
    cases = np.arange(len(rows.names))
    first = np.searchsorted(rows.case, np.append(cases, len(cases)))
    case = rows.cases_of(nodes["case_id"])
    start = np.searchsorted(case, cases)
    file = pc.equal(plain(nodes["kind"]), "file").to_numpy(zero_copy_only=False)
    position = np.full(len(case), -1, np.int64)
    position[file] = rows.rows_of(case[file], plain(nodes["interaction_id"]).filter(pa.array(file)))

    owner = rows.cases_of(edges["case_id"])
    source, target = (start[owner] + edges[name].to_numpy() for name in ("source", "target"))
    named = pc.fill_null(plain(edges["interaction_id"]), "")
    row = np.where(edges["interaction_id"].is_valid().to_numpy(), rows.rows_of(owner, named), -1)
    row = np.where(row < 0, np.maximum(position[source], position[target]), row)
    told = row >= 0
    date = np.where(told, row - first[owner], 0)

    birth = np.full(len(case), _NEVER)
    for ends in (source, target):
        np.minimum.at(birth, ends[told], date[told])
    dated = birth < _NEVER
    birth[~dated] = 0
    date[~told] = np.maximum(birth[source], birth[target])[~told]
    return _Graph(rows, first, _clock(rows, first, interactions), case, start, file, dated, source, target, date, told)


def _clock(rows: Shard, first: Ints, interactions: pa.Table) -> Ints:
    """Return the time of each interaction in microseconds; where none is told it is that of the one before it.

    Before the first time that a case tells it is that one, so that no days pass.
    """
    time = interactions["started_at"].combine_chunks().cast(pa.int64())
    known = pc.is_valid(time).to_numpy(zero_copy_only=False)
    values, inverse = np.unique(pc.drop_null(time).to_numpy(), return_inverse=True)
    rank = np.zeros(len(known), np.int64)
    rank[known] = 1 + inverse.reshape(-1)
    base = rows.case * (len(values) + 1)
    rank = np.maximum.accumulate(rank + base) - base
    timed = np.append(np.flatnonzero(known), len(known))
    begin = timed[np.searchsorted(timed, first[:-1])]
    early = np.append(rank, 0)[np.where(begin < first[1:], begin, -1)]
    times: Ints = np.append(0, values)[np.where(rank == 0, early[rows.case], rank)]
    return times


def _pinned(nodes: pa.Table, own: ForgetConfig) -> Bools:
    kinds = pa.array(own.pinned_kinds, pa.string())
    found: Bools = pc.is_in(plain(nodes["kind"]), value_set=kinds).to_numpy(zero_copy_only=False)
    for pattern in own.pinned:
        glob = re.escape(pattern).replace(r"\*", "(?s:.*)").replace(r"\?", "(?s:.)")
        found = found | pc.match_substring_regex(nodes["key"], f"(?i)^{glob}$").to_numpy()
    return found


def _access(graph: _Graph, hits: pa.Table | None) -> Floats:
    """Return ln(1 + accesses) / ln(2 + most of the case) of each node."""
    count = np.zeros(len(graph.case))
    if hits is None or not hits.num_rows:
        return count
    found = np.zeros(len(graph.rows.ids))
    row = graph.rows.rows_of(graph.rows.cases_of(hits["case_id"]), plain(hits["interaction_id"]))
    found[row[row >= 0]] = hits["count"].to_numpy()[row >= 0]
    ends = np.concatenate([graph.source[graph.told], graph.target[graph.told]])
    named = np.tile(graph.date[graph.told], 2) + graph.first[graph.case[ends]]
    pairs = np.unique(ends * len(found) + named)
    np.add.at(count, pairs // len(found), found[pairs % len(found)])
    count[graph.file] = 0
    most = np.zeros(len(graph.rows.names))
    np.maximum.at(most, graph.case, count)
    return np.log1p(count) / np.log(2 + most[graph.case])


@dataclass
class _Replay:
    """The rounds of all cases of a shard, each round of all cases at once.

    Attributes:
        graph, own: What is replayed, and how.
        may: (N,) nodes that may be forgotten.
        access: (N,) share of accesses.
        there: (N,) whether a node is in the graph.
        gone: (E,) whether an edge was forgotten.
        drops: Per round (nodes, round, importance) of those that were forgotten.
    """

    graph: _Graph
    own: ForgetConfig
    may: Bools
    access: Floats
    there: Bools = field(init=False)
    gone: Bools = field(init=False)
    drops: list[tuple[Ints, int, Floats]] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        """Lay out edges by the round that first sees them, and the edges of each node likewise."""
        graph, count = self.graph, len(self.graph.case)
        self.there = ~self.may
        self.gone = np.zeros(len(graph.date), np.bool_)
        self._last, self._degree = np.full(count, -1, np.int64), np.zeros(count, np.int64)
        self._due, self._life = np.full(count, _NEVER), np.zeros(count, np.int64)
        self._due_in: dict[int, list[Ints]] = {}
        self._rounds = np.diff(graph.first) // self.own.every
        self._final = int(self._rounds.max(initial=0)) + 1
        arrival = graph.date // self.own.every + 1
        arrival[arrival > self._rounds[graph.case[graph.source]]] = self._final
        self._new = np.argsort(arrival, kind="stable")
        self._new_at = np.searchsorted(arrival[self._new], np.arange(self._final + 2))
        ends = np.concatenate([graph.source, graph.target])
        key = ends * (self._final + 1) + np.tile(arrival, 2)
        order = np.argsort(key, kind="stable")
        self._key, self._edge = key[order], order % max(len(graph.date), 1)

    def run(self) -> None:
        """Replay all rounds, and what comes after them."""
        lowered = np.zeros(0, np.int64)
        for number in range(1, self._final):
            arrived = self._arrive(number)
            self._weigh(np.unique(np.concatenate([arrived, lowered])), number)
            lowered = self._drop(number)
        self._arrive(self._final)

    def _arrive(self, number: int) -> Ints:
        """Take in the edges up to a round, and return their ends."""
        graph = self.graph
        new = self._new[self._new_at[number] : self._new_at[number + 1]]
        told = new[graph.told[new]]
        for side in (graph.source, graph.target):
            np.maximum.at(self._last, side[told], graph.date[told])
            self.there[side[told]] = True
        both = self.there[graph.source[new]] & self.there[graph.target[new]]
        self.gone[new[~both]] = True
        new = new[both]
        ends = np.concatenate([graph.source[new], graph.target[new]])
        np.add.at(self._degree, ends, 1)
        return ends

    def _weigh(self, nodes: Ints, number: int) -> None:
        """Find the round, from this one on, in which each node falls below the threshold if nothing happens to it."""
        nodes = nodes[self.may[nodes] & self.there[nodes]]
        after = self._rounds[self.graph.case[nodes]] + 1
        low, high = np.full(len(nodes), number, np.int64), after.copy()
        while (open_ := low < high).any():
            middle = (low + high) // 2
            below = open_ & (self._importance(nodes, np.minimum(middle, after - 1)) < self.own.threshold)
            high = np.where(below, middle, high)
            low = np.where(open_ & ~below, middle + 1, low)
        self._due[nodes] = np.where(low < after, low, _NEVER)
        soon = low < after
        order = np.argsort(low[soon], kind="stable")
        due, at = np.unique(low[soon][order], return_index=True)
        for one, those in zip(due.tolist(), np.split(nodes[soon][order], at[1:]), strict=False):
            self._due_in.setdefault(one, []).append(those)

    def _importance(self, nodes: Ints, number: Ints | int) -> Floats:
        graph = self.graph
        first = graph.first[graph.case[nodes]]
        now, last = number * self.own.every - 1, self._last[nodes]
        days = (graph.clock[first + now] - graph.clock[first + last]) / _DAY
        return importance(days, self.access[nodes], self._degree[nodes], now - last, self.own)

    def _drop(self, number: int) -> Ints:
        """Forget what is due, and return the neighbours."""
        waiting = np.concatenate([*self._due_in.pop(number, []), np.zeros(0, np.int64)])
        nodes = np.unique(waiting[self._due[waiting] == number])
        if not len(nodes):
            return nodes
        self.drops.append((nodes, number, self._importance(nodes, number)))
        width = self._final + 1
        low = np.searchsorted(self._key, nodes * width + self._life[nodes], side="right")
        size = np.searchsorted(self._key, nodes * width + number, side="right") - low
        within = np.arange(size.sum()) - np.repeat(np.cumsum(size) - size, size)
        lost = np.unique(self._edge[np.repeat(low, size) + within])
        lost = lost[~self.gone[lost]]
        self.gone[lost] = True
        ends = np.concatenate([self.graph.source[lost], self.graph.target[lost]])
        np.subtract.at(self._degree, ends, 1)
        self.there[nodes] = False
        self._due[nodes], self._life[nodes] = _NEVER, number
        return ends


def _forgotten(nodes: pa.Table, replay: _Replay) -> pa.Table:
    node = np.concatenate([*(drop[0] for drop in replay.drops), np.zeros(0, np.int64)])
    number = np.repeat([drop[1] for drop in replay.drops], [len(drop[0]) for drop in replay.drops])
    weight = np.concatenate([*(drop[2] for drop in replay.drops), np.zeros(0)])
    order = np.lexsort((number, node))
    node = node[order]
    again = np.append(node[1:] == node[:-1], False)[: len(node)]
    gone = nodes.select(["case_id", "graph", "kind", "key"]).take(pa.array(node))
    return build(
        "forgotten",
        {
            **{name: gone[name] for name in gone.column_names},
            "round": number[order].astype(np.int32),
            "importance": weight[order],
            "returned": again | replay.there[node],
        },
    )
