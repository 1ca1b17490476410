"""Passes of fixed shape through a transformer, so that a text's vector does not depend on the texts beside it.

Matrix products of other shapes round otherwise. So every text is padded to one of few lengths, and every pass of one
length has the same number of rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from indexers.embedders._rows import Ints

SHORTEST = 16
"""Tokens of the shortest pass."""


@dataclass(frozen=True)
class Pass:
    """One pass.

    Attributes:
        rows: (texts,) which texts go through together; the last one again and again where there are too few.
        length: Tokens that each is padded to.
        real: How many of the texts count.
    """

    rows: Ints
    length: int
    real: int


def passes(lengths: Ints, limit: int, tokens: int) -> Iterator[Pass]:
    """Group texts.

    Args:
        lengths: (texts,) tokens of each, at most `limit`.
        limit: Tokens that the model takes.
        tokens: Tokens of one pass, unless one text alone has more; this and the length give the number of rows.
    """
    steps = np.array(_steps(limit), np.int64)
    step = np.searchsorted(steps, lengths)
    for number in np.unique(step).tolist():
        length = int(steps[number])
        members = np.flatnonzero(step == number)
        width = max(1, tokens // length)
        for low in range(0, len(members), width):
            some = members[low : low + width]
            yield Pass(np.append(some, np.repeat(some[-1:], width - len(some))), length, len(some))


def _steps(limit: int) -> list[int]:
    """Return the lengths: 16, 24, 32, 48, 64, 96, ... up to the limit."""
    steps = [SHORTEST]
    while steps[-1] < limit:
        last = steps[-1]
        steps.append(last * 3 // 2 if last & (last - 1) == 0 else last * 4 // 3)
    return [*steps[:-1], limit] if steps[-1] > limit else steps
