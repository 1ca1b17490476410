"""How rankings depend on the size of a store: cases by size, and the same questions over parts of their case."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Annotated

import numpy as np
import pyarrow as pa
from pydantic import Field

from pipelines.experiments import Asked, PartsOf, Variant
from pipelines.store import Generation
from schemas.options import Section
from transforms.experiments import STORE, Draws, Row, differences, draws, means, of_cases

NAME = "store-size"
DOC = "Rankings by the size of the store: cases by size, and questions over parts of their own case"
VERSION = 1
PRESETS = ()
TWO = False


class Options(Section):
    """How stores are cut."""

    shares: tuple[Annotated[float, Field(ge=0, lt=1)], ...] = Field(
        (0.1, 0.25, 0.5), description="Shares of a case's sessions without evidence that stay in a question's store"
    )
    bins: int = Field(4, ge=1, le=100, description="Groups of cases by size, alike in number of cases")


def variants(asked: Asked, generation: Generation) -> list[Variant]:
    """Return the cases as they are, and one variant a share."""
    return [Variant("whole"), *_samples(asked)]


def _samples(asked: Asked) -> list[Variant]:
    # All sessions, too: so that the shares are compared on the same questions, those with evidence in the store.
    return [
        Variant(f"share={share:g}", {"kind": "sampled", "share": share, "seed": asked.evaluate.seed})
        for share in sorted({*asked.options.shares, 1.0})
    ]


def results(parts: PartsOf, asked: Asked) -> Iterator[Row]:
    """Yield means by group of cases, and by share of the sessions; x is the mean number of interactions."""
    found = draws(parts("whole"), STORE, "interactions", [""])
    for name, x, cases in _groups(found, asked.options.bins):
        kept = partial(_kept, parts, cases)
        yield from means(kept, asked.presets, asked.evaluate, variant=name, x=x)
        yield from differences(kept, asked.pairs, asked.evaluate, variant=name, x=x)
    for one in _samples(asked):
        own = partial(parts, one.name)
        sizes = draws(own(), STORE, "interactions", [""])
        x = float(sizes.sums.sum() / sizes.counts.sum()) if sizes.keys else 0.0
        yield from means(own, asked.presets, asked.evaluate, variant=one.name, x=x)
        yield from differences(own, asked.pairs, asked.evaluate, variant=one.name, x=x)


def _groups(found: Draws, bins: int) -> Iterator[tuple[str, float, list[str]]]:
    """Yield groups of cases by size: name, mean interactions, cases. Cases of one size stay together."""
    if not found.keys:
        return
    sizes = found.sums[0] / found.counts
    edges = np.unique(np.quantile(sizes, np.linspace(0, 1, bins + 1)[1:-1], method="lower"))
    group = np.searchsorted(edges, sizes, side="left")
    for number in np.unique(group).tolist():
        mine = sizes[group == number]
        cases = [case for case, own in zip(found.keys, group.tolist(), strict=True) if own == number]
        yield f"interactions={mine.min():.0f}-{mine.max():.0f}", float(mine.mean()), cases


def _kept(parts: PartsOf, cases: list[str]) -> Iterable[pa.Table]:
    return of_cases(parts("whole"), cases)
