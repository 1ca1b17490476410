"""Which paths carried a PageRank score: an exact partition of the walks behind it.

`indexers.ppr` solves ``y = s + alpha P'y`` and scales y to sum 1. So the score of a node is the weight of all walks
that begin in a seed and end in the node, over the sum of y. A walk may go round in circles. Its *path* is what is left
when every detour that leads back to a node already passed is cut out, in the order in which the detours are made (the
loop erasure of the walk). A walk has one path, a path holds no node twice, and the weight of all walks with the path
``v0 .. vk`` is exact (Lawler and Limic, Random Walk: A Modern Introduction, 2010, chapter 9)::

    s(v0) * G0(v0, v0) * alpha P(v0, v1) * G1(v1, v1) * alpha P(v1, v2) * .. * Gk(vk, vk)

Gi(u, v) is the weight of all walks from u to v that avoid v0 .. vi-1: an entry of the inverse of ``I - alpha P``
without those nodes. The weight of all walks whose path *begins* with v0 .. vk is the same product up to the step into
vk, times ``Gk(vk, target)``. So paths, and beginnings of paths that are not followed further, split a score without a
gap; following the heaviest beginning first finds the paths in order of weight.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass

import numpy as np
import scipy

from indexers.csr import Floats, Ints

FLOOR = 1e-5
"""Share of a score below which a beginning is not followed."""
_WORK = 1_000_000_000
"""Multiplications after which no more beginnings are followed, about two seconds; what is told stays exact."""
_LEAST = 4
"""Beginnings that are followed whatever that costs."""
_EXACT = 1e-14
"""Relative error of a weight of walks."""
_ROUNDING, _DIGITS = 1e-13, 9
"""Share of a score that may be rounding alone, and digits of a logarithm that are not."""


@dataclass(frozen=True)
class Branch:
    """Walks whose paths are the same, or begin with the same nodes.

    Attributes:
        nodes: The path, or its beginning; a seed first.
        along: What all walks whose paths begin with the first node, the first two nodes, .. add to the score.
    """

    nodes: tuple[int, ...]
    along: tuple[float, ...]

    @property
    def value(self) -> float:
        """What the walks add to the score."""
        return self.along[-1]


@dataclass(frozen=True)
class Decomposition:
    """A score as the sum of what walks add to it: of `paths`, of `beginnings`, and `rest`.

    Attributes:
        score: The exact score.
        paths: Branches that end in the target, heaviest first.
        beginnings: Branches that were not followed further, heaviest first.
        rest: What beginnings of too small a share add together.
        sources: Nodes from which a walk leads to the target, the target among them.
    """

    score: float
    paths: tuple[Branch, ...]
    beginnings: tuple[Branch, ...]
    rest: float
    sources: int


def decompose(
    step: scipy.sparse.csr_array, seeds: Floats, target: int, paths: int, floor: float = FLOOR
) -> Decomposition:
    """Split the PageRank of a node by the paths of its walks.

    Args:
        step: (nodes, nodes) ``alpha P``; rows sum to less than 1, entries of the same place add up.
        seeds: (nodes,) weights of the seeds, summing to 1, or to 0.
        target: The node.
        paths: Paths wanted. Fewer come where there are fewer, and where the score is spread too thinly, or the graph is
            so large that finding more would take more than about two seconds.
        floor: Beginnings of less than this share of the score are not followed. The others are 1 / `floor` at most at
            any time, which bounds the memory.

    Raises:
        ValueError: A row of `step` sums to 1 or more.
    """
    walks = _Walks(step, target)
    total = float(seeds @ walks.toward)
    sources = int(np.count_nonzero(walks.toward))
    if total <= 0:
        return Decomposition(0.0, (), (), 0.0, sources)
    scale = float(seeds @ walks.onward)
    score = total / scale
    border = _Border(max(floor, _ROUNDING) * score)
    seeded = np.flatnonzero(seeds)
    border.add((), (), seeded, seeds[seeded] / scale, seeds[seeded] * walks.toward[seeded] / scale)
    found: list[Branch] = []
    followed = 0
    while border.heap and len(found) < paths and (followed < _LEAST or walks.work < _WORK):
        _, _, nodes, along, weight = heapq.heappop(border.heap)
        if nodes[-1] == target:
            found.append(Branch(nodes, along))
            continue
        followed += 1
        border.add(nodes, along, *walks.follow(nodes, weight))
    left = tuple(Branch(nodes, along) for _, _, nodes, along, _ in sorted(border.heap))
    known = math.fsum(branch.value for branch in (*found, *left))
    rest = score - known
    return Decomposition(score, tuple(found), left, rest if rest > 10 * _ROUNDING * score else 0.0, sources)


class _Border:
    """Beginnings to follow, heaviest first; the longest of those that differ by rounding alone, then by nodes.

    Attributes:
        heap: Of each beginning what orders it: the logarithm of its value with a minus, its length with a minus, its
            nodes; then its values along the nodes, and its weight up to the step into the last of them.
    """

    def __init__(self, floor: float) -> None:
        self.heap: list[tuple[float, int, tuple[int, ...], tuple[float, ...], float]] = []
        self._floor = floor

    def add(
        self, nodes: tuple[int, ...], along: tuple[float, ...], children: Ints, weights: Floats, values: Floats
    ) -> None:
        """Add the beginnings that are one node longer than a given one, but for those of no account."""
        kept = values >= self._floor
        order = np.round(-np.log(values[kept]), _DIGITS)
        for first, child, value, weight in zip(
            order.tolist(), children[kept].tolist(), values[kept].tolist(), weights[kept].tolist(), strict=True
        ):
            heapq.heappush(self.heap, (first, -len(nodes), (*nodes, child), (*along, value), weight))


class _Walks:
    """Weights of walks to one target, those that avoid some nodes among them.

    Only nodes in a circle with each other can be avoided to any effect, so all but `toward` and `onward` looks at
    strongly connected parts of the graph alone.

    Attributes:
        toward: (nodes,) weight of all walks from each node to the target.
        onward: (nodes,) weight of all walks from each node to anywhere.
        work: Multiplications spent.
    """

    def __init__(self, step: scipy.sparse.csr_array, target: int) -> None:
        self._step = step.copy()
        self._step.sum_duplicates()
        nodes = step.shape[0]
        right = np.ones((nodes, 2))
        right[:, 0] = np.arange(nodes) == target
        self.work = 0
        self.toward, self.onward = self._solve(self._step, right).T
        count, self._part = scipy.sparse.csgraph.connected_components(self._step, connection="strong")
        self._members = np.argsort(self._part, kind="stable")
        self._starts = np.searchsorted(self._part[self._members], np.arange(count + 1))
        self._place = np.empty(nodes, np.int64)
        self._place[self._members] = np.arange(nodes) - self._starts[self._part[self._members]]
        self._blocks: dict[int, scipy.sparse.csr_array] = {}
        self._columns: dict[int, Floats] = {}

    def follow(self, nodes: tuple[int, ...], weight: float) -> tuple[Ints, Floats, Floats]:
        """Go on from the last node of a beginning.

        Args:
            nodes: The beginning.
            weight: Its weight up to the step into its last node.

        Returns:
            Nodes that it can go on to; for each, the weight up to the step into it, and the weight of all walks whose
            paths begin so.
        """
        last = nodes[-1]
        row = slice(self._step.indptr[last], self._step.indptr[last + 1])
        children, steps = self._step.indices[row].astype(np.int64), self._step.data[row]
        part = self._part[last]
        passed = np.array([node for node in nodes if self._part[node] == part])
        columns = [self._column(node) for node in passed.tolist()]
        within = np.array([column[self._place[passed]] for column in columns]).T
        # The weight of circles at the last node that avoid the nodes before it, by elimination.
        around = within[-1, -1] - within[-1, :-1] @ np.linalg.solve(within[:-1, :-1], within[:-1, -1])
        fresh = ~np.isin(children, passed)
        children, steps = children[fresh], steps[fresh]
        toward = self.toward[children]
        near = self._part[children] == part
        place = self._place[children[near]]
        for factor, column in zip(np.linalg.solve(within, self.toward[passed]), columns, strict=True):
            toward[near] -= factor * column[place]
        self.work += len(passed) * len(children)
        onward = weight * around * steps
        return children, onward, onward * toward

    def _column(self, node: int) -> Floats:
        """Return the weight of all walks to a node from each node of its part."""
        if node not in self._columns:
            part = self._part[node]
            members = self._members[self._starts[part] : self._starts[part + 1]]
            if part not in self._blocks:
                self._blocks[part] = self._step[members][:, members]
            right = (members == node).astype(np.float64)
            self._columns[node] = self._solve(self._blocks[part], right)
        return self._columns[node]

    def _solve(self, step: scipy.sparse.csr_array, right: Floats) -> Floats:
        """Solve ``h = right + step h`` to rounding, by the series; its terms fall at least as the row sums' powers."""
        falling = float(step.sum(axis=1).max(initial=0.0))
        if falling >= 1:
            raise ValueError(f"a row of the steps sums to {falling}, not below 1")
        if falling == 0:
            return right
        solved = right
        for _ in range(math.ceil(math.log(_EXACT * (1 - falling)) / math.log(falling))):
            self.work += (step.nnz + 2 * len(right)) * (right.size // len(right))
            before, solved = solved, step @ solved
            solved += right
            if np.array_equal(before, solved):
                break
        return solved
