"""What it costs to search all cases as one store (Skinki's pooled setting)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain

import pyarrow as pa
import xxhash
from pydantic import Field

from pipelines.experiments import Asked, PartsOf, Variant
from pipelines.query import cases as all_cases
from pipelines.store import Generation
from schemas.errors import UsageError
from schemas.ids import nearest
from schemas.options import Section
from transforms.experiments import Row, differences, labelled, means

NAME = "pooled"
DOC = "All cases as one store, against each case by itself"
VERSION = 1
PRESETS = ()
TWO = False


class Options(Section):
    """Which cases."""

    cases: tuple[str, ...] = Field((), description="Cases to pool; none = all")
    sample: int | None = Field(None, ge=1, description="Cases to draw out of these")


def variants(asked: Asked, generation: Generation) -> list[Variant]:
    """Return the cases by themselves, and pooled."""
    chosen = _chosen(asked, generation)
    return [
        Variant("per-case", {"kind": "same", "cases": chosen}),
        Variant("pooled", {"kind": "pooled", "cases": chosen}),
    ]


def _chosen(asked: Asked, generation: Generation) -> list[str] | None:
    wanted, sample = asked.options.cases, asked.options.sample
    if not wanted and sample is None:
        return None
    known = all_cases(generation)
    for case in wanted:
        if case not in known:
            guess = nearest(case, known)
            raise UsageError(
                f"no case is called '{case}'",
                where="cases",
                remedy=f"Did you mean '{guess}'?" if guess else "See them: tagloom export interactions -f csv",
            )
    found = sorted(set(wanted) or known)
    if sample is None:
        return found
    drawn = sorted(found, key=lambda case: xxhash.xxh64_intdigest(case.encode(), asked.evaluate.seed))
    return sorted(drawn[:sample])


def results(parts: PartsOf, asked: Asked) -> Iterator[Row]:
    """Yield means of both, differences to the baseline in each, and what pooling changes for each preset."""
    for name in ("per-case", "pooled"):
        own = partial(parts, name)
        yield from means(own, asked.presets, asked.evaluate, variant=name)
        yield from differences(own, asked.pairs, asked.evaluate, variant=name)

    def both() -> Iterable[pa.Table]:
        return chain(labelled(parts("pooled"), "@pooled"), labelled(parts("per-case"), "@per-case"))

    pairs = [(f"{name}@pooled", f"{name}@per-case") for name in asked.presets]
    yield from differences(
        both, pairs, asked.evaluate, variant="pooled", as_named=lambda a, _: (a.rpartition("@")[0], "per-case")
    )
