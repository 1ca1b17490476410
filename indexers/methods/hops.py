"""Selective Forgetting's retrieval: entities nearest to a question, and what lies two hops around them.

After Selective Forgetting (arXiv 2608.28978): the best entities by cosine above a floor are roots, relations lead two
hops on, and at most 15 nodes are kept, nearest hops first. A file has the sum of the scores of the kept nodes that it
mentions, a node's score being its root's cosine times ``decay`` for every hop (ours; the source ranks no turns).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from pydantic import Field

from indexers.batch import Batch, RankStats
from indexers.csr import Graphs, Ints, expand
from indexers.explain import Explanation, Part
from indexers.explain.blends import of_question, scores_of
from indexers.explain.diffusion import Described
from indexers.methods._nodes import node_cosines, node_units
from indexers.presets import Preset
from indexers.scores import Floats, Scores, best_of
from schemas.options import Section

NAME = "hops"
VERSION = 1


class Options(Section):
    """Numbers of the search."""

    graph: str = Field("entity", description="Graph kind")
    roots: int = Field(5, ge=1, description="Entities by cosine that the search begins at")
    floor: float = Field(0.75, ge=0, le=1, description="Cosine that a root must have")
    hops: int = Field(2, ge=0, le=4, description="Steps along relations, in either direction")
    nodes: int = Field(15, ge=1, description="Entities that are kept, roots included")
    decay: float = Field(0.5, ge=0, le=1, description="Factor of the score for every step")


def units(options: Options) -> tuple[str, ...]:
    """Return the units read."""
    return node_units(options.graph)


def scores(preset: Preset, batch: Batch, stats: RankStats) -> Scores:
    """Score files by the kept entities that they mention."""
    own: Options = preset.options
    graphs = batch.shard.graphs(own.graph)
    is_file = graphs.nodes_of(("file",))
    question, node, values = _roots(own, batch)
    owner, kept, score = reached(graphs, question, node, values, own)
    stats.no_seeds += len(batch.case) - len(np.unique(question))
    size = np.diff(batch.shard.offsets)[batch.case]
    offsets = np.concatenate([[0], np.cumsum(size)]).astype(np.int64)
    entry, of = expand(graphs.indptr[kept], np.diff(graphs.indptr)[kept])
    target = graphs.indices[entry]
    to_file = is_file[target]
    position = np.full(len(is_file), -1, np.int64)
    position[graphs.file_nodes] = np.arange(len(graphs.file_nodes)) - np.repeat(
        graphs.file_offsets[:-1], np.diff(graphs.file_offsets)
    )
    total = np.zeros(int(offsets[-1]))
    np.add.at(total, offsets[owner[of]][to_file] + position[target[to_file]], score[of][to_file])
    return Scores(offsets, total)


def _roots(own: Options, batch: Batch) -> tuple[Ints, Ints, Floats]:
    """Return the roots: question, node and cosine of each."""
    graphs = batch.shard.graphs(own.graph)
    near = node_cosines(batch, own.graph)
    question = np.repeat(np.arange(len(batch.case)), np.diff(near.offsets))
    node = np.arange(len(near.values)) - near.offsets[question] + graphs.node_offsets[batch.case[question]]
    is_file = graphs.nodes_of(("file",))
    values = np.where(is_file[node] | (near.values < own.floor), 0.0, near.values)
    seed = np.flatnonzero(best_of(Scores(near.offsets, values), own.roots))
    return question[seed], node[seed], values[seed]


def explain(preset: Preset, batch: Batch, question: int, document: int) -> Explanation:
    """Tell which entities brought the file, and how they were reached from the roots."""
    own: Options = preset.options
    graphs, case = batch.shard.graphs(own.graph), int(batch.case[question])
    owner, root, cosine = _roots(own, batch)
    mine = owner == question
    method = f"entities within {own.hops} steps of {own.roots} roots, {own.nodes} at most; * {own.decay:g} a step"
    if not mine.any():
        best = float(of_question(node_cosines(batch, own.graph), question).max(initial=0.0))
        told = f"no entity has a cosine of {own.floor:g}, which roots must have; the best node has {best:.3f}"
        return Explanation(method, 0.0, (), (told,), own.graph)
    # The entities at each number of steps, by searches that go so far.
    score: dict[int, float] = {}
    steps: list[dict[int, float]] = []
    for hops in range(own.hops + 1):
        some = own.model_copy(update={"hops": hops})
        _, nodes, values = reached(graphs, owner[mine], root[mine], cosine[mine], some)
        fresh = dict(zip(nodes.tolist(), values.tolist(), strict=True))
        steps.append({node: value for node, value in fresh.items() if node not in score})
        score |= fresh
    base = int(graphs.node_offsets[case])
    file = int(graphs.file_nodes[graphs.file_offsets[case] + document])
    told_of = Described(graphs, base, np.ones(len(graphs.indices), np.bool_))
    parts = []
    for hops, found in enumerate(steps):
        for node, value in found.items():
            edges = int(np.count_nonzero(graphs.indices[graphs.indptr[node] : graphs.indptr[node + 1]] == file))
            if edges:
                way = [*_way(graphs, steps, node, hops, own.decay), file]
                label = f"an entity {hops} steps from a root" if hops else "a root"
                facts = (("cosine of the root", score[way[0]]), *((("edges", edges),) if edges > 1 else ()))
                parts.append(Part("path", label, value * edges, (), told_of.path([n - base for n in way]), facts))
    parts.sort(key=lambda part: -part.value)
    remarks = () if parts else (f"none of the {len(score)} entities that are kept is in it",)
    total = float(of_question(scores_of(preset, batch), question)[document])
    return Explanation(method, total, tuple(parts), remarks, own.graph)


def _way(graphs: Graphs, steps: Sequence[Mapping[int, float]], node: int, hops: int, decay: float) -> list[int]:
    """Return the way from a root to an entity, by the entity that gave each its score."""
    if not hops:
        return [node]
    onward = set(graphs.indices[graphs.indptr[node] : graphs.indptr[node + 1]].tolist())
    for before, value in sorted(steps[hops - 1].items()):
        joined = before in onward or node in graphs.indices[graphs.indptr[before] : graphs.indptr[before + 1]]
        if joined and value * decay == steps[hops][node]:
            return [*_way(graphs, steps, before, hops - 1, decay), node]
    raise AssertionError("an entity without a way")


def reached(graphs: Graphs, owner: Ints, nodes: Ints, values: Floats, own: Options) -> tuple[Ints, Ints, Floats]:
    """Return the entities that are kept: question, node and score of each.

    A node is reached at the least number of hops, with the best score of what leads to it.
    """
    inner = ~graphs.nodes_of(("file",))
    forward = graphs.adjacency().astype(bool)
    both = (forward + forward.T).tocsr()
    width = len(graphs.node_kinds)
    order = np.lexsort((nodes, -values, owner))
    found_owner, found_node, found_score = owner[order], nodes[order], values[order]
    edge_owner, edge_node, edge_score = found_owner, found_node, found_score
    for _ in range(own.hops):
        entry, of = expand(both.indptr[edge_node].astype(np.int64), np.diff(both.indptr)[edge_node].astype(np.int64))
        target = both.indices[entry].astype(np.int64)
        new = inner[target] & ~np.isin(edge_owner[of] * width + target, found_owner * width + found_node)
        pair, score = (edge_owner[of] * width + target)[new], (edge_score[of] * own.decay)[new]
        order = np.lexsort((-score, pair))
        pair, score = pair[order], score[order]
        first = np.flatnonzero(np.diff(pair, prepend=-1))
        pair, score = pair[first], score[first]
        order = np.lexsort((pair % width, -score, pair // width))
        edge_owner, edge_node, edge_score = pair[order] // width, pair[order] % width, score[order]
        found_owner = np.concatenate([found_owner, edge_owner])
        found_node = np.concatenate([found_node, edge_node])
        found_score = np.concatenate([found_score, edge_score])
    order = np.argsort(found_owner, kind="stable")
    found_owner = found_owner[order]
    place = np.arange(len(order)) - np.searchsorted(found_owner, found_owner)
    kept = order[place < own.nodes]
    return found_owner[place < own.nodes], found_node[kept], found_score[kept]
