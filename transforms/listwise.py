"""Learns how much each feature of a ranking counts, as a function of the question, from questions with gold.

The score of document d for question q is ``sum over features f of w_f(q) x_f(q, d)`` with
``w_f(q) = W_f0 + sum over gates g of W_fg z_g(q)``. W minimises the listwise loss
``- sum over gold d of y_d ln p_d``, where p is the softmax of a question's scores and y shares 1 among its gold
documents (ListNet: Cao et al., ICML 2007), plus, divided by the number of questions, ``l2 / 2`` times the squares of
what W_f0 differs from a prior and ``l2_gates / 2`` times those of W_fg, features and gates being scaled to standard
deviation 1. Documents that were only sampled for training stand for all that were left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Singles = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_STEPS = 80
_DIGITS = 5
_CLIP = 4.0
"""Standard deviations beyond which a gate is taken as this far: an odd question must not turn a ranking over."""


@dataclass(frozen=True)
class Lists:
    """Questions with their candidates; Q questions, R candidates in all, F features, G gates.

    Attributes:
        case: (Q,) case of each question.
        gates: (Q, G) what the weights depend on.
        offsets: (Q + 1,) where the candidates of each question begin.
        features: (R, F).
        relevant: (R,) whether a candidate is gold; every question has one that is.
        correction: (R,) ln of how many documents each candidate stands for.
    """

    case: Ints
    gates: Singles
    offsets: Ints
    features: Singles
    relevant: Bools
    correction: Floats


@dataclass(frozen=True)
class Weights:
    """What was learned.

    Attributes:
        weights: (F, 1 + G) for features as they are and gates scaled by the next two.
        middle: (G,) of each gate.
        spread: (G,) of each gate, above 0.
    """

    weights: Floats
    middle: Floats
    spread: Floats


def folds(cases: Sequence[str], count: int) -> list[list[str]]:
    """Deal cases out, in an order that is that of no name or number; at most as many folds as cases, none empty."""
    from schemas.ids import fingerprint

    order = sorted(set(cases), key=lambda case: (fingerprint(["fold", case]), case))
    return [found for number in range(min(count, len(order))) if (found := sorted(order[number::count]))]


def select(lists: Lists, questions: Ints) -> Lists:
    """Return some of the questions."""
    size = np.diff(lists.offsets)[questions]
    offsets = np.concatenate([[0], np.cumsum(size)]).astype(np.int64)
    rows = np.arange(offsets[-1]) + np.repeat(lists.offsets[questions] - offsets[:-1], size)
    return Lists(
        lists.case[questions],
        lists.gates[questions],
        offsets,
        lists.features[rows],
        lists.relevant[rows],
        lists.correction[rows],
    )


def train(lists: Lists, l2: float, l2_gates: float, prior: Floats | None = None) -> Weights:
    """Learn weights.

    Args:
        lists: At least one question.
        l2: Strength that draws the weights to `prior`; the more questions, the less it counts.
        l2_gates: Strength that draws what depends on gates to 0, likewise.
        prior: (F,) weights to begin with; none is 0.

    Returns:
        Weights rounded to `_DIGITS` significant digits, so that they do not depend on the last bits of sums.
    """
    from scipy.optimize import minimize
    from threadpoolctl import threadpool_limits

    middle, spread = lists.gates.mean(axis=0, dtype=np.float64), lists.gates.std(axis=0, dtype=np.float64)
    spread = np.where(spread > 1e-6, spread, 1.0)
    scale = lists.features.std(axis=0, dtype=np.float64)
    used = scale > 1e-6
    features = (lists.features[:, used] / scale[used]).astype(np.float32)
    gates = gate_rows(lists.gates, middle, spread)
    size = np.diff(lists.offsets)
    strength = np.full((features.shape[1], gates.shape[1]), l2_gates / len(size))
    strength[:, 0] = l2 / len(size)
    middle_weights = np.zeros(strength.shape)
    if prior is not None:
        middle_weights[:, 0] = prior[used] * scale[used]
    gold = np.add.reduceat(lists.relevant.astype(np.float64), lists.offsets[:-1])
    target = lists.relevant / np.repeat(gold, size)
    wide = np.repeat(gates, size, axis=0)

    def loss(flat: Floats) -> tuple[float, Floats]:
        weights = flat.reshape(strength.shape)
        scores = ((features @ weights.astype(np.float32)) * wide).sum(axis=1).astype(np.float64) + lists.correction
        top = np.repeat(np.maximum.reduceat(scores, lists.offsets[:-1]), size)
        power = np.exp(scores - top)
        total = np.repeat(np.add.reduceat(power, lists.offsets[:-1]), size)
        value = -(target * (scores - top - np.log(total))).sum() / len(size)
        slope = ((power / total - target) / len(size)).astype(np.float32)
        off = weights - middle_weights
        gradient = features.T @ (wide * slope[:, None]) + strength * off
        return value + 0.5 * float((strength * off**2).sum()), gradient.ravel().astype(np.float64)

    # Products add up in another order on more threads, and a search that has not ended shows it.
    with threadpool_limits(1, "blas"):
        found = minimize(loss, middle_weights.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": _STEPS})
    weights = np.zeros((len(scale), gates.shape[1]))
    weights[used] = found.x.reshape(strength.shape) / scale[used, None]
    return Weights(rounded(weights), rounded(middle), rounded(spread))


def gate_rows(gates: Singles, middle: Floats, spread: Floats) -> Singles:
    """Return (questions, 1 + G): a one, and the gates scaled and clipped."""
    scaled = np.clip((gates - middle) / spread, -_CLIP, _CLIP)
    return np.concatenate([np.ones((len(gates), 1)), scaled], axis=1).astype(np.float32)


def per_question(weights: Weights, gates: Singles) -> Floats:
    """Return (questions, F) weight of each feature for each question."""
    rows: Floats = gate_rows(gates, weights.middle, weights.spread).astype(np.float64) @ weights.weights.T
    return rows


def rounded(values: Floats) -> Floats:
    """Round to `_DIGITS` significant digits."""
    size = np.where(values == 0, 1.0, np.abs(values))
    unit = 10.0 ** (np.floor(np.log10(size)) - (_DIGITS - 1))
    out: Floats = np.rint(values / unit) * unit
    return out
