"""Why PageRank gave a node its score: its paths, with the edges that they go along."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from indexers.csr import Bools, Floats, Graphs, Ints
from indexers.explain import Edge, Explanation, Part, Step
from indexers.explain.paths import Origins
from indexers.explain.walks import Branch, Decomposition, decompose
from indexers.ppr import Seeds, Walk

PATHS = 10
"""Paths that are looked for."""

_TOLD = 0.01
"""Share of the score that a beginning has at least to be told of by itself."""


def explain_walk(
    walk: Walk,
    graph: str,
    seeds: Seeds,
    origins: Origins,
    question: int,
    target: int,
    score: float,
    alpha: float,
    *,
    paths: int = PATHS,
    without: Sequence[str] = (),
    undirected: bool = False,
    numbers: Ints | None = None,
    leads: Mapping[int, tuple[int, str]] | None = None,
) -> Explanation:
    """Take a node's PageRank apart by the paths of its walks.

    Args:
        walk: The walk that scored.
        graph: Kind of its graphs.
        seeds: The seeds that it began in.
        origins: Words of the question behind a seed, where there are any.
        question: One question.
        target: The node, numbered through all cases.
        score: The score that the run has; the remainder tells how far it is from the exact one.
        alpha: Probability of going on.
        paths: Paths wanted; of beginnings that were not followed to their end as many are told, if they have a share
            of 1 % at least.
        without: Edge kinds that the walk does not use.
        undirected: The walk goes along edges in both directions.
        numbers: Number to tell of each node of the question's case; by default its number within the case.
        leads: Nodes that made others seeds without being on the walk: of a seed, numbered through all cases, the node
            (likewise) and the kind of the edge from it.
    """
    graphs = walk.graphs
    case = int(seeds.case[question])
    low, high = int(graphs.node_offsets[case]), int(graphs.node_offsets[case + 1])
    own = slice(int(seeds.offsets[question]), int(seeds.offsets[question + 1]))
    start = np.zeros(high - low)
    np.add.at(start, seeds.nodes[own] - low, seeds.weights[own] / max(seeds.weights[own].max(initial=0.0), 1e-300))
    start /= max(start.sum(), 1e-300)
    step = walk.inflow[low:high, low:high].T.tocsr() * alpha
    found = decompose(step, start, target - low, paths)
    told = Described(graphs, low, ~graphs.edges_of(without), undirected, numbers)

    def part(kind: str, label: str, branch: Branch) -> Part:
        steps = told.path(branch.nodes, branch.along)
        first = branch.nodes[0]
        if leads and first + low in leads:
            before, edge = leads[first + low]
            steps = (told.step(before - low), replace(steps[0], edges=(Edge(edge),)), *steps[1:])
        facts = (("share of the seeds", float(start[first])),)
        return Part(kind, label, branch.value, origins.get(first + low, ()), steps, facts)

    open_ = [branch for branch in found.beginnings[:paths] if branch.value >= _TOLD * found.score]
    parts = [part("path", "walks along", branch) for branch in found.paths]
    parts += [part("beginning", "other walks that begin with", branch) for branch in open_]
    if rest := math.fsum([found.rest, *(branch.value for branch in found.beginnings[len(open_) :])]):
        parts.append(Part("rest", "all other walks", rest))
    method = f"PageRank: walks from the seeds, going on with probability {alpha:g}"
    return Explanation(method, score, tuple(parts), _remarks(found, start, alpha > 0), graph)


@dataclass(frozen=True)
class Described:
    """Says what the nodes of one case are, and the edges between them.

    Attributes:
        graphs: The graphs.
        base: Where the case's nodes begin.
        used: (E,) edges that steps go along.
        undirected: Steps go along them in both directions.
        numbers: (nodes of the case,) number to tell of each; by default its number within the case.
    """

    graphs: Graphs
    base: int
    used: Bools
    undirected: bool = True
    numbers: Ints | None = None

    def step(self, node: int, *edges: Edge, value: float | None = None) -> Step:
        """Return a node, numbered within the case, as a step of a path."""
        kind = self.graphs.node_kind_names[self.graphs.node_kinds[node + self.base]]
        return Step(node if self.numbers is None else int(self.numbers[node]), kind, edges, value)

    def path(self, nodes: Sequence[int], along: Sequence[float | None] | None = None) -> tuple[Step, ...]:
        """Return nodes, each numbered within the case, as a path."""
        values = along or [None] * len(nodes)
        first = self.step(nodes[0], value=values[0])
        return first, *(
            self.step(node, *self._between(before, node), value=value)
            for (before, node), value in zip(pairwise(nodes), values[1:], strict=True)
        )

    def _between(self, source: int, target: int) -> list[Edge]:
        found = [Edge(kind) for kind in self._kinds(source, target)]
        return found + [Edge(kind, against=True) for kind in self._kinds(target, source) if self.undirected]

    def _kinds(self, source: int, target: int) -> list[str]:
        graphs = self.graphs
        row = slice(graphs.indptr[source + self.base], graphs.indptr[source + self.base + 1])
        there = (graphs.indices[row] == target + self.base) & self.used[row]
        return sorted({graphs.edge_kind_names[kind] for kind in graphs.edge_kinds[row][there]})


def _remarks(found: Decomposition, start: Floats, goes_on: bool) -> tuple[str, ...]:
    """Say why a score is 0."""
    if found.score > 0:
        return ()
    seeded = int(np.count_nonzero(start))
    if not seeded:
        return ("nothing in the case is a seed for this question",)
    if not goes_on:
        return (f"it is none of the {seeded:,} seeds, and the walk does not go on from them",)
    return (
        f"no path leads there from the {seeded:,} seeds: it can be reached from {found.sources - 1:,} other nodes, and "
        "none of them is a seed",
    )
