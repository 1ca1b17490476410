"""GAAMA's retrieval: the nodes nearest to a question, PageRank on the graph around them, and the cosine.

After GAAMA (arXiv 2603.27910, section 3): the best nodes of all kinds by cosine, two hops around them, PageRank on that
subgraph from these nodes in proportion to their cosines, and ``ppr * PPR / max + cosine * COS / max``. Files are
interactions; a file has the best score of itself and of the facts and reflections drawn from it (ours).
"""

from __future__ import annotations

import numpy as np
from pydantic import Field

from indexers import ppr
from indexers.batch import Batch, RankStats
from indexers.methods._nodes import files_behind, node_cosines, node_units, spread_nodes
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
    graphs = batch.shard.graphs(own.graph)
    near = node_cosines(batch, own.graph)
    seed = np.flatnonzero(best_of(near, own.seeds.top))
    owner = np.searchsorted(near.offsets, seed, side="right") - 1
    node = seed - near.offsets[owner] + graphs.node_offsets[batch.case[owner]]
    left_out = tuple(kind for kind, weight in own.edges.weights.items() if weight == 0)
    part = around(graphs, owner, node, len(batch.case), own.seeds.hops, ~graphs.edges_of(left_out))
    inner = part.graphs
    mine = np.repeat(np.arange(len(batch.case)), np.diff(inner.node_offsets))
    cosines = near.values[near.offsets[mine] + part.nodes - graphs.node_offsets[batch.case[mine]]]
    total = own.fusion.cosine * over_max(Scores(inner.node_offsets, cosines))
    unseeded = int((np.bincount(owner, minlength=len(batch.case)) == 0).sum())
    if own.fusion.ppr:
        walk = ppr.walk(inner, own.edges.weights, undirected=own.edges.undirected, hub_above=own.edges.hub_above)
        place = np.searchsorted(mine * len(graphs.node_kinds) + part.nodes, owner * len(graphs.node_kinds) + node)
        questions = np.arange(len(batch.case))
        begin = ppr.Seeds(
            questions, np.searchsorted(owner, np.append(questions, len(questions))), place, near.values[seed]
        )
        found, _ = ppr.personalized_pagerank(walk, begin, own.diffusion.alpha, own.diffusion.tolerance)
        total = total + own.fusion.ppr * over_max(found)
    return part, Scores(inner.node_offsets, total), unseeded
