"""How rankings fall as stores grow: the sessions with evidence among 0 to 36 others (TAGGRAPH's sweep)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Annotated

from pydantic import Field

from pipelines.experiments import Asked, PartsOf, Variant
from pipelines.store import Generation
from schemas.options import Section
from transforms.experiments import Row, differences, means

NAME = "distractors"
DOC = "Rankings by the number of sessions without evidence in the store, each question with a store of its own"
VERSION = 1
PRESETS = ()
TWO = False


class Options(Section):
    """How many sessions."""

    counts: tuple[Annotated[int, Field(ge=0, le=1_000_000)], ...] = Field(
        (0, 3, 8, 18, 36), min_length=1, description="Sessions without evidence that each question's store has"
    )


def variants(asked: Asked, generation: Generation) -> list[Variant]:
    """Return one a number of sessions."""
    return [
        Variant(f"distractors={count}", {"kind": "sampled", "count": count, "seed": asked.evaluate.seed}, float(count))
        for count in sorted(set(asked.options.counts))
    ]


def results(parts: PartsOf, asked: Asked) -> Iterator[Row]:
    """Yield the curve of each preset, its paired difference to the baseline, and the size of the stores."""
    for count in sorted(set(asked.options.counts)):
        name = f"distractors={count}"
        own = partial(parts, name)
        yield from means(own, asked.presets, asked.evaluate, variant=name, x=float(count))
        yield from differences(own, asked.pairs, asked.evaluate, variant=name, x=float(count))
