"""Personalised PageRank of many questions over the graphs of their own cases."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy

from indexers.csr import Bools, Floats, Graphs, Ints, expand, take_rows
from indexers.scores import Scores

_COLUMNS = 64
_CACHED_CELLS = 100_000
_CELLS = 4_000_000
_CASES = 1024

Singles = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Seeds:
    """Where the walks of each question begin.

    Attributes:
        case: (questions,) number of each question's case in the graphs.
        offsets: (questions + 1,) where the seeds of each question begin.
        nodes: (seeds,) node, numbered through all cases as in `Graphs`; one may occur more than once.
        weights: (seeds,) weight, not negative; any scale.
    """

    case: Ints
    offsets: Ints
    nodes: Ints
    weights: Floats


@dataclass(frozen=True)
class Walk:
    """Row-stochastic transition of a walk, transposed: entry (target, source), the block-diagonal of all cases."""

    inflow: scipy.sparse.csr_array
    graphs: Graphs


def walk(
    graphs: Graphs,
    weights: Mapping[str, float] | None = None,
    *,
    undirected: bool = False,
    hub_above: int | None = None,
) -> Walk:
    """Make the transition matrix; a step goes along an edge with probability weight / sum of the node's weights.

    Args:
        graphs: Graphs of a shard.
        weights: Factor of each edge kind, not negative; 0 leaves a kind out, and kinds not named have 1.
        undirected: Go along edges in both directions; weights of edges between the same nodes add up.
        hub_above: A node of degree d above this passes on ``hub_above / d`` of what it has, and the rest goes back to
            the seeds. (GAAMA, section 3, means to dampen hubs; scaling weights before rows are normalised, as its
            code does, changes nothing.) The degree counts the neighbours that steps lead to.

    Raises:
        ValueError: A factor is negative or not finite.
    """
    forward = graphs.adjacency()
    if weights:
        factor = np.array([*(weights.get(name, 1.0) for name in graphs.edge_kind_names), 1.0])
        if not (np.isfinite(factor).all() and (factor >= 0).all()):
            raise ValueError("the weight of an edge kind is negative or not a finite number")
        forward = graphs.adjacency(factor[graphs.edge_kinds] > 0)
        forward.data = forward.data * factor[graphs.edge_kinds][factor[graphs.edge_kinds] > 0]
    if undirected:
        forward = (forward + forward.T.tocsr()).tocsr()
    degree = np.diff(forward.indptr)
    if hub_above is not None:
        forward.sum_duplicates()
        degree = np.diff(forward.indptr)
    rows = np.repeat(np.arange(forward.shape[0]), degree)
    total = np.bincount(rows, weights=forward.data, minlength=forward.shape[0])
    if hub_above is not None:
        total = total * np.maximum(degree / hub_above, 1)
    forward.data = forward.data / total[rows]
    inflow = forward.T.tocsr()
    inflow.sort_indices()
    return Walk(inflow, graphs)


def personalized_pagerank(
    walk: Walk, seeds: Seeds, alpha: float = 0.85, tolerance: float = 1e-8, *, files_only: bool = False
) -> tuple[Scores, Bools]:
    """Solve ``x = alpha M'x + (1 - alpha) s`` for every question, the mass of nodes without edges going to s.

    M has zero rows for nodes without out-edges, and rows that sum to less than 1 for dampened hubs. Sending the mass
    that they withhold to the seeds only scales the solution, so
    ``y = s + alpha M'y`` is solved and scaled to sum 1. The series ``sum_j (alpha M')^j s`` is summed in float32 in
    stages, each on the float64 residual that the one before left (iterative refinement; Higham, Accuracy and
    Stability of Numerical Algorithms, chapter 12): the speed of the one, the accuracy of the other. Where the last
    terms of a stage keep their shape and only shrink, the rest is extrapolated (Kamvar et al., Extrapolation Methods
    for Accelerating PageRank Computations, 2003). A question is done when its residual r proves the tolerance:
    ``|y error| <= |r| / (1 - alpha)`` in L1.

    Every case is a block of a block-diagonal matrix and every question a column; neither the blocks nor the columns
    that happen to be computed together change a bit of the result.

    Args:
        walk: Transition matrix of a shard.
        seeds: Seeds of the questions.
        alpha: Probability of going on, in [0, 1). With 0 the result is the seeds.
        tolerance: Bound of the L1 error of x, above 0; rounding limits it to about 1e-14.
        files_only: Give only the file nodes, by position, in place of all nodes of the case.

    Returns:
        Scores over the nodes (or the file nodes) of each question's case, summing to 1 over its nodes, and a flag
        per question that is true where there was no seed: its scores are all zero.

    Raises:
        ValueError: A seed's weight is negative or not finite, a seed lies outside the question's case, or `alpha`
            or `tolerance` is out of range.
    """
    graphs = walk.graphs
    if not 0 <= alpha < 1:
        raise ValueError(f"alpha is {alpha}, not in [0, 1)")
    if not 0 < tolerance <= 1:
        raise ValueError(f"tolerance is {tolerance}, not in (0, 1]")
    owner, start = _normalised(graphs, seeds)
    mass = np.bincount(owner, weights=start, minlength=len(seeds.case))

    firsts = graphs.file_offsets if files_only else graphs.node_offsets
    offsets = np.concatenate([[0], np.cumsum(np.diff(firsts)[seeds.case])])
    values = np.zeros(int(offsets[-1]))
    for case, block, column, questions in _blocks(graphs, seeds.case, mass > 0):
        low, high = graphs.node_offsets[case], graphs.node_offsets[case + 1]
        place = np.cumsum(high - low) - (high - low)
        base = place[block] - low[block]
        entries, position = expand(seeds.offsets[questions], np.diff(seeds.offsets)[questions])
        rows, columns = seeds.nodes[entries] + base[position], column[position]
        shape = (int((high - low).sum()), int(column.max()) + 1)
        right = np.zeros(shape)
        np.add.at(right, (rows, columns), start[entries])
        solved, sums = _series(take_rows(walk.inflow, low, high), right, high - low, alpha, tolerance)
        if files_only:
            wanted, of = expand(firsts[case[block]], np.diff(firsts)[case[block]])
            wanted = graphs.file_nodes[wanted]
        else:
            wanted, of = expand(low[block], (high - low)[block])
        solved /= np.repeat(np.where(sums > 0, sums, 1), high - low, axis=0)
        found = solved.ravel()[wanted * shape[1] + (base * shape[1] + column)[of]]
        if np.array_equal(offsets[questions[1:]], offsets[questions[:-1] + 1]):
            values[offsets[questions[0]] : offsets[questions[-1] + 1]] = found
        else:
            values[expand(offsets[questions], np.diff(offsets)[questions])[0]] = found
    return Scores(offsets, values), mass == 0


def _normalised(graphs: Graphs, seeds: Seeds) -> tuple[Ints, Floats]:
    """Return each seed's question, and its weight with those of a question summing to 1."""
    if not np.isfinite(seeds.weights).all() or (seeds.weights < 0).any():
        raise ValueError("a seed's weight is negative or not a finite number")
    owner = np.repeat(np.arange(len(seeds.case)), np.diff(seeds.offsets))
    case = seeds.case[owner]
    if ((seeds.nodes < graphs.node_offsets[case]) | (seeds.nodes >= graphs.node_offsets[case + 1])).any():
        raise ValueError("a seed lies outside the case of its question")
    # Scaled by the largest first, so that neither huge nor tiny weights lose the sum.
    top = np.zeros(len(seeds.case))
    np.maximum.at(top, owner, seeds.weights)
    scaled = seeds.weights / np.where(top > 0, top, 1)[owner]
    total = np.bincount(owner, weights=scaled, minlength=len(seeds.case))
    return owner, scaled / np.where(total > 0, total, 1)[owner]


def _blocks(graphs: Graphs, case: Ints, seeded: Bools) -> Iterator[tuple[Ints, Ints, Ints, Ints]]:
    """Group the questions so that columns are full and the dense matrices stay in the processor's cache.

    Yields:
        Cases of the block; per question its case's number in the block, its column, and the question.
    """
    order = np.flatnonzero(seeded)
    order = order[np.argsort(case[order], kind="stable")]
    if not len(order):
        return
    first = np.flatnonzero(np.diff(case[order], prepend=-1))
    rank = np.arange(len(order)) - np.repeat(first, np.diff(np.append(first, len(order))))
    # A job is a few questions of one case; jobs of like width share a block.
    nodes = np.diff(graphs.node_offsets)
    column = rank % np.clip(_CELLS // np.maximum(nodes[case[order]], 1), 1, _COLUMNS)
    heads = np.flatnonzero(column == 0)
    width = np.diff(np.append(heads, len(order)))
    size = nodes[case[order[heads]]]
    jobs = np.argsort(-width, kind="stable")
    descending = -width[jobs]
    low = 0
    while low < len(jobs):
        widest = -descending[low]
        narrow = int(np.searchsorted(descending, -(widest / 2), side="right"))
        cells = np.cumsum(size[jobs[low : min(narrow, low + _CASES)]]) * widest
        count = max(1, int(np.searchsorted(cells, _CACHED_CELLS, side="right")))
        chosen = jobs[low : low + count]
        at, block = expand(heads[chosen], width[chosen])
        yield case[order[heads[chosen]]], block, column[at], order[at]
        low += count


def _series(
    inflow: scipy.sparse.csr_array, right: Floats, sizes: Ints, alpha: float, tolerance: float
) -> tuple[Floats, Floats]:
    """Solve ``y = s + alpha M'y`` to an L1 error of `tolerance` / 2 of the sum of y, per block and column.

    Args:
        inflow: M', (nodes, nodes).
        right: s, (nodes, columns), not negative.
        sizes: Nodes of each block, in order.
        alpha: In [0, 1).
        tolerance: Above 0.

    Returns:
        y, and its sum per block and column, (blocks, columns).
    """
    starts = np.concatenate([[0], np.cumsum(sizes)])
    member = scipy.sparse.csr_array(
        (np.ones(len(right)), np.arange(len(right)), starts), shape=(len(sizes), len(right))
    )
    if alpha == 0:
        return right, member @ right
    double = inflow * alpha
    single, member_single = double.astype(np.float32), member.astype(np.float32)
    # So many that a stage halves the error at least, with or without extrapolation: its tail is at most
    # alpha**(steps + 1) / (1 - alpha) of the error before.
    steps = max(8, math.ceil(math.log((1 - alpha) / 2) / math.log(alpha)))
    total = np.zeros_like(right)
    residual = right
    # The bound only guards against a tolerance below what rounding allows.
    for _ in range(math.ceil(math.log2(4 / (tolerance * (1 - alpha)))) + 2):
        begin = residual.astype(np.float32)
        y = before = middle = begin
        for step in range(1, steps + 1):
            if step == steps - 3:
                before = y
            elif step == steps - 1:
                middle = y
            y = single @ y
            y += begin
        total += y
        total += _tail(y, middle, before, member_single, sizes)
        residual = double @ total
        residual += right
        residual -= total
        open_ = member @ np.abs(residual) > tolerance * (1 - alpha) / 2 * (member @ total)
        if not open_.any():
            break
        # A finished column of a block stays as it is, whatever the others still need.
        if not open_.all():
            residual *= np.repeat(open_, sizes, axis=0)
    np.maximum(total, 0.0, out=total)
    return total, member @ total


def _tail(y: Singles, middle: Singles, before: Singles, member: scipy.sparse.csr_array, sizes: Ints) -> Singles:
    """Estimate what the series still lacks, where its last two pairs of terms have nearly the same shape."""
    last, earlier = y - middle, middle - before
    norm, norm_earlier = member @ np.abs(last), member @ np.abs(earlier)
    ratio = norm / np.where(norm_earlier > 0, norm_earlier, 1)
    earlier *= np.repeat(ratio, sizes, axis=0)
    earlier -= last
    alike = 2 * (member @ np.abs(earlier)) < (1 - ratio) * norm
    factor = np.where(alike, ratio / np.where(alike, 1 - ratio, 1), 0).astype(np.float32)
    last *= np.repeat(factor, sizes, axis=0)
    return last


__all__ = ["Seeds", "Walk", "personalized_pagerank", "walk"]
