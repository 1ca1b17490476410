"""GAAMA's retrieval: the nodes nearest to a question, PageRank on the graph around them, and the cosine.

After GAAMA (arXiv 2603.27910, section 3): the best nodes of all kinds by cosine, two hops around them, PageRank on that
subgraph from these nodes in proportion to their cosines, and ``ppr * PPR / max + cosine * COS / max``. Files are
interactions; a file has the best score of itself and of the facts and reflections drawn from it (ours).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from pydantic import Field

from indexers import ppr
from indexers.batch import Batch, RankStats
from indexers.explain import Explanation, Part
from indexers.explain.blends import of_question
from indexers.explain.diffusion import Described, explain_walk
from indexers.methods._nodes import behind, files_behind, node_cosines, node_units, spread_nodes
from indexers.methods._options import Diffusion, Edges
from indexers.presets import Preset
from indexers.scores import Scores, best_of, over_max
from indexers.subgraphs import Subgraphs, around
from schemas.options import Section

NAME = "expansion"
VERSION = 1


class Seeds(Section):
    """Where walks begin."""

    top: int = Field(40, ge=1, description="Nodes by cosine, in proportion to it")
    hops: int = Field(2, ge=0, le=4, description="Steps around them that the walk may go")


class Weights(Section):
    """How the two scores are added, each divided by its best."""

    ppr: float = Field(0.1, ge=0, description="Weight of PageRank")
    cosine: float = Field(1.0, ge=0, description="Weight of the cosine")


class Link(Section):
    """Edges that lead from a node to what it was drawn from."""

    node: str = Field(description="Node kind")
    edge: str = Field(description="Edge kind")


class Options(Section):
    """Numbers of the search."""

    graph: str = Field("concept", description="Graph kind")
    seeds: Seeds = Seeds()  # type: ignore[call-arg]
    edges: Edges = Edges(undirected=True)  # type: ignore[call-arg]
    diffusion: Diffusion = Diffusion(alpha=0.6)  # type: ignore[call-arg]
    fusion: Weights = Weights()  # type: ignore[call-arg]
    links: tuple[Link, ...] = Field((), description="Edges from derived nodes, files' nearest last")


def units(options: Options) -> tuple[str, ...]:
    """Return the units read."""
    return node_units(options.graph)


def scores(preset: Preset, batch: Batch, stats: RankStats) -> Scores:
    """Score files by PageRank and cosine of the nodes around."""
    own: Options = preset.options
    graphs = batch.shard.graphs(own.graph)
    part, nodes, unseeded = node_scores(own, batch)
    stats.no_seeds += unseeded
    owner = np.repeat(np.arange(len(batch.case)), np.diff(part.graphs.node_offsets))
    spread = spread_nodes(batch.case, graphs, owner, part.nodes, nodes.values)
    return files_behind(batch, graphs, spread, tuple((link.node, link.edge) for link in own.links))


def node_scores(own: Options, batch: Batch) -> tuple[Subgraphs, Scores, int]:
    """Return each question's subgraph, the scores of its nodes, and how many questions have no seed."""
    near = _near(own, batch)
    total = own.fusion.cosine * over_max(near.cosines)
    if own.fusion.ppr:
        total = total + own.fusion.ppr * over_max(_pagerank(own, near))
    unseeded = int((np.diff(near.seeds.offsets) == 0).sum())
    return near.part, Scores(near.part.graphs.node_offsets, total), unseeded


@dataclass(frozen=True)
class _Near:
    """What lies around the nodes nearest to each question.

    Attributes:
        part: The subgraphs.
        cosines: Cosines of their nodes.
        seeds: The nearest nodes, in proportion to their cosine.
    """

    part: Subgraphs
    cosines: Scores
    seeds: ppr.Seeds


def _near(own: Options, batch: Batch) -> _Near:
    graphs, questions = batch.shard.graphs(own.graph), np.arange(len(batch.case))
    near = node_cosines(batch, own.graph)
    seed = np.flatnonzero(best_of(near, own.seeds.top))
    owner = np.searchsorted(near.offsets, seed, side="right") - 1
    node = seed - near.offsets[owner] + graphs.node_offsets[batch.case[owner]]
    part = around(graphs, owner, node, len(questions), own.seeds.hops, ~graphs.edges_of(_left_out(own)))
    mine = np.repeat(questions, np.diff(part.graphs.node_offsets))
    cosines = near.values[near.offsets[mine] + part.nodes - graphs.node_offsets[batch.case[mine]]]
    place = np.searchsorted(mine * len(graphs.node_kinds) + part.nodes, owner * len(graphs.node_kinds) + node)
    starts = np.searchsorted(owner, np.append(questions, len(questions)))
    begin = ppr.Seeds(questions, starts, place, near.values[seed])
    return _Near(part, Scores(part.graphs.node_offsets, cosines), begin)


def _left_out(own: Options) -> tuple[str, ...]:
    return tuple(kind for kind, weight in own.edges.weights.items() if weight == 0)


def _walk(own: Options, near: _Near) -> ppr.Walk:
    edges = own.edges
    return ppr.walk(near.part.graphs, edges.weights, undirected=edges.undirected, hub_above=edges.hub_above)


def _pagerank(own: Options, near: _Near) -> Scores:
    walk = _walk(own, near)
    return ppr.personalized_pagerank(walk, near.seeds, own.diffusion.alpha, own.diffusion.tolerance)[0]


def explain(preset: Preset, batch: Batch, question: int, document: int) -> Explanation:
    """Tell what cosine and PageRank add, to the file or to the node that was drawn from it."""
    own: Options = preset.options
    graphs, case = batch.shard.graphs(own.graph), int(batch.case[question])
    near = batch.once(("explained", "near", preset.mark), lambda: _near(own, batch))
    part, scores, _ = batch.once(("explained", "nodes", preset.mark), lambda: node_scores(own, batch))
    base, low = int(graphs.node_offsets[case]), int(part.graphs.node_offsets[question])
    members = part.nodes[low : int(part.graphs.node_offsets[question + 1])] - base
    values = np.zeros(int(graphs.node_offsets[case + 1]) - base)
    values[members] = of_question(scores, question)
    links = tuple((link.node, link.edge) for link in own.links)
    file = int(graphs.file_nodes[graphs.file_offsets[case] + document]) - base
    score, way = behind(graphs, base, values, file, links)
    method = f"cosine and PageRank around the {own.seeds.top} nearest nodes, each over its best"
    if not score:
        told = f"neither it nor what was drawn from it is within {own.seeds.hops} steps of the nearest nodes"
        return Explanation(method, 0.0, (), (told,), own.graph)
    place = int(np.searchsorted(members, way[0]))
    steps = Described(graphs, base, graphs.edges_of([edge for _, edge in links])).path(way)
    parts = []
    if own.fusion.cosine:
        cosines = of_question(near.cosines, question)
        value = own.fusion.cosine * float(over_max(Scores(np.array([0, len(cosines)]), cosines))[place])
        facts = (("cosine", float(cosines[place])), ("best cosine", float(cosines.max())))
        parts.append(Part("vector", "cosine", value, (), steps, facts))
    if own.fusion.ppr:
        pagerank = batch.once(("explained", "pagerank", preset.mark), lambda: _pagerank(own, near))
        ranks = of_question(pagerank, question)
        inner = explain_walk(
            _walk(own, near),
            own.graph,
            near.seeds,
            {},
            question,
            low + place,
            float(ranks[place]),
            own.diffusion.alpha,
            without=_left_out(own),
            undirected=own.edges.undirected,
            numbers=members,
        )
        value = own.fusion.ppr * float(over_max(Scores(np.array([0, len(ranks)]), ranks))[place])
        parts.append(Part("walk", "PageRank", value, (), steps, (("best", float(ranks.max())),), inner))
    parts.sort(key=lambda part: -part.value)
    return Explanation(method, score, tuple(parts), (), own.graph)
