"""Scores of many questions over the documents of their own cases, as one flat array, and their ranking."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Scores:
    """Ragged scores.

    Attributes:
        offsets: (questions + 1,) where the scores of each question begin in `values`.
        values: (sum of documents over questions,) score of each document of the question's case, by position.
            Zero means "not retrieved".
    """

    offsets: Ints
    values: Floats


def ranked(scores: Scores) -> tuple[Ints, Ints, Ints]:
    """Order every question's retrieved documents: higher score first, equal scores by position.

    Returns:
        Three arrays with one entry a retrieved (question, document) pair, in order of question and rank: question
        index, document index (within its case), rank from 1. Documents of score 0 are left out.

    Raises:
        ValueError: A score is NaN.
    """
    if np.isnan(scores.values).any():
        raise ValueError("scores hold NaN")
    kept = np.flatnonzero(scores.values)
    starts = np.searchsorted(kept, scores.offsets)
    falling = -scores.values[kept]
    order = np.empty(len(kept), dtype=np.int64)
    # Sorting question by question is faster than one sort by question and score: the pieces fit the cache.
    for first, last in pairwise(starts.tolist()):
        order[first:last] = falling[first:last].argsort(kind="stable") + first
    sizes = np.diff(starts)
    question = np.repeat(np.arange(len(sizes)), sizes)
    rank = np.arange(1, len(kept) + 1) - np.repeat(starts[:-1], sizes)
    return question, kept[order] - np.repeat(scores.offsets[:-1], sizes), rank


def best_of(scores: Scores, count: int) -> npt.NDArray[np.bool_]:
    """Tell which entries are among each question's `count` best retrieved documents (ties by position)."""
    question, document, rank = ranked(scores)
    kept = rank <= count
    chosen = np.zeros(len(scores.values), np.bool_)
    chosen[(scores.offsets[question] + document)[kept]] = True
    return chosen


def extreme(of: np.ufunc, scores: Scores) -> Floats:
    """Return the largest (``np.maximum``) or smallest score of each question; 0 where its case has no document."""
    out = np.zeros(len(scores.offsets) - 1)
    filled = np.flatnonzero(np.diff(scores.offsets))
    if len(filled):
        out[filled] = of.reduceat(scores.values, scores.offsets[filled])
    return out


def over_max(scores: Scores) -> Floats:
    """Return every score divided by its question's best; zeros where that is 0."""
    best = extreme(np.maximum, scores)
    scaled: Floats = scores.values / np.repeat(np.where(best > 0, best, 1), np.diff(scores.offsets))
    return scaled


def spread_over(case: Ints, offsets: Ints) -> tuple[Ints, Ints]:
    """Lay out the entries of each question's case.

    Args:
        case: (questions,) number of each one's case.
        offsets: (cases + 1,) where the entries of each case begin.

    Returns:
        (questions + 1,) offsets of the questions' copies, and for every copy the entry that it is of.
    """
    size = np.diff(offsets)[case]
    starts = np.concatenate([[0], np.cumsum(size)]).astype(np.int64)
    return starts, np.arange(starts[-1]) + np.repeat(offsets[case] - starts[:-1], size)
