"""Resampling by case: bootstrap intervals, sign-flip p-values, Holm correction, effect size.

Questions of one case share their history, so the case is what is drawn, never the question. Every function takes sums
per case. The sums are put on a binary grid that is coarse enough for all later additions to be exact; results then do
not depend on the order of summation, and so neither on the matrix library nor on its threads.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

_CHUNK = 4_000_000
"""Weights or signs held at once."""

_KEPT = 8_000_000
"""Draws kept for the next call, one or two bytes each."""


def bootstrap_means(sums: Floats, counts: Floats, resamples: int, seed: int) -> Floats:
    """Draw cases with replacement and take the mean over their questions.

    The same cases are drawn for every series, and for every call with the same number of cases, so differences between
    series are paired (cluster bootstrap; Efron and Tibshirani 1993, chapter 8).

    Args:
        sums: (series, cases) sum of a metric over the questions of each case, in [0, count].
        counts: (cases,) questions of each case, each at least 1.
        resamples: Number of resamples.
        seed: Seed of the draws.

    Returns:
        (series, resamples) means: the drawn sums over the drawn counts.
    """
    cases = len(counts)
    values = _on_grid(sums, cases * float(np.max(counts, initial=1.0)))
    made = np.empty((len(sums), resamples))
    start = 0
    for drawn in _kept_draws(cases, resamples, seed) if cases * resamples <= _KEPT else _draws(cases, resamples, seed):
        weights = drawn.astype(np.float64)
        stop = start + len(weights)
        made[:, start:stop] = values @ weights.T
        made[:, start:stop] /= weights @ counts
        start = stop
    return made


def _draws(cases: int, resamples: int, seed: int) -> Iterator[npt.NDArray[Any]]:
    """Yield how often each resample draws each case, some resamples at a time."""
    generator = np.random.Generator(np.random.PCG64(seed))
    for start, stop in _chunks(resamples, cases):
        rows = stop - start
        drawn = generator.integers(0, cases, size=(rows, cases)) + np.arange(rows)[:, None] * cases
        counted = np.bincount(drawn.ravel(), minlength=rows * cases).reshape(rows, cases)
        yield counted.astype(np.min_scalar_type(cases))


@lru_cache(maxsize=12)
def _kept_draws(cases: int, resamples: int, seed: int) -> tuple[npt.NDArray[Any], ...]:
    """Keep the draws: every level asks for those of the same few numbers of cases."""
    return tuple(_draws(cases, resamples, seed))


def interval(samples: Floats, level: float = 0.95) -> tuple[Floats, Floats]:
    """Return the percentile interval of resampled values along the last axis."""
    tail = 50.0 * (1.0 - level)
    low, high = np.percentile(samples, [tail, 100.0 - tail], axis=-1)
    return low, high


def sign_flip_p_values(differences: Floats, resamples: int, seed: int) -> Floats:
    """Test that differences are as likely below as above zero, by flipping the signs of whole cases.

    All 2^cases sign patterns are counted when they are no more than `resamples` (exact test); otherwise `resamples`
    random ones, with p = (b + 1) / (resamples + 1) (Phipson and Smyth 2010).

    Args:
        differences: (series, cases) summed difference of each case.
        resamples: Number of random patterns, or the limit of the exact test.
        seed: Seed of the patterns.

    Returns:
        (series,) two-sided p-values: the share of patterns whose sum is as far from zero as the one seen.
    """
    cases = differences.shape[1]
    values = _on_grid(differences, float(cases * np.max(np.abs(differences), initial=1.0)))
    seen = np.abs(values.sum(axis=1))
    exact = cases < 63 and 2**cases <= resamples
    total = 2**cases if exact else resamples
    generator = np.random.Generator(np.random.PCG64(seed))
    reached = np.zeros(len(values), dtype=np.int64)
    for start, stop in _chunks(total, cases):
        if exact:
            bits = (np.arange(start, stop)[:, None] >> np.arange(cases)) & 1
        else:
            bits = generator.integers(0, 2, size=(stop - start, cases), dtype=np.int8)
        flipped = values @ (2.0 * bits - 1.0).T
        reached += (np.abs(flipped) >= seen[:, None]).sum(axis=1)
    return reached / total if exact else (reached + 1) / (total + 1)


def holm(p_values: Floats) -> Floats:
    """Correct the p-values of one family for their number (Holm 1979); order is kept, values stay within 1."""
    order = np.argsort(p_values, kind="stable")
    factors = len(p_values) - np.arange(len(p_values))
    corrected = np.empty(len(p_values))
    corrected[order] = np.minimum(np.maximum.accumulate(p_values[order] * factors), 1.0)
    return corrected


def effect_sizes(case_means: Floats) -> Floats:
    """Return mean over standard deviation of the cases' mean differences (Cohen's d_z).

    Args:
        case_means: (series, cases) mean difference of each case.

    Returns:
        (series,) effect sizes; NaN with fewer than two cases or when all cases differ by the same amount.
    """
    series, cases = case_means.shape
    effects = np.full(series, np.nan)
    if cases > 1:
        spread = case_means.std(axis=1, ddof=1)
        varied = np.ptp(case_means, axis=1) > 1e-12
        effects[varied] = case_means[varied].mean(axis=1) / spread[varied]
    return effects


def grid_sum(values: Floats) -> Floats:
    """Sum along the last axis; the order of the values does not matter, not even in the last bit."""
    bound = float(values.shape[-1] * np.max(np.abs(values), initial=1.0))
    total: Floats = _on_grid(values, bound).sum(axis=-1)
    return total


def _on_grid(values: Floats, bound: float) -> Floats:
    """Round values so that any sum of them of magnitude up to `bound` is exact in float64."""
    step = 2.0 ** (np.ceil(np.log2(max(bound, 1.0))) - 51)
    rounded: Floats = np.round(values / step) * step
    return rounded


def _chunks(total: int, width: int) -> Iterator[tuple[int, int]]:
    step = max(1, _CHUNK // max(width, 1))
    for start in range(0, total, step):
        yield start, min(start + step, total)
