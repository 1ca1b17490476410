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
