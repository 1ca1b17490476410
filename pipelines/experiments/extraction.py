"""What another extractor is worth to each preset: two generations of one corpus on the same questions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain

import pyarrow as pa

from pipelines.experiments import Asked, PartsOf, Variant
from pipelines.store import Generation
from schemas.options import Section
from transforms.experiments import Row, differences, labelled, means

NAME = "extraction"
DOC = "What another extractor is worth to each preset: two generations on the same questions"
VERSION = 1
PRESETS = ()
TWO = True


class Options(Section):
    """It has none."""


def variants(asked: Asked, generation: Generation) -> list[Variant]:
    """Return none: both generations are evaluated already."""
    return []


def results(parts: PartsOf, asked: Asked) -> Iterator[Row]:
    """Yield means of both generations, and what the other one changes for each preset."""
    a, b = asked.sides
    for name in asked.sides:
        own = partial(parts, name)
        yield from means(own, asked.presets, asked.evaluate, variant=name)
        yield from differences(own, asked.pairs, asked.evaluate, variant=name)

    def both() -> Iterable[pa.Table]:
        return chain(labelled(parts(b), "@b"), labelled(parts(a), "@a"))

    pairs = [(f"{name}@b", f"{name}@a") for name in asked.presets]
    yield from differences(both, pairs, asked.evaluate, variant=b, as_named=lambda one, _: (one.removesuffix("@b"), a))
