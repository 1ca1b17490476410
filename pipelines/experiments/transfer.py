"""Whether an advantage carries over: delta(D) = metric of a preset - metric of the baseline, on two corpora."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from pipelines.experiments import Asked, PartsOf, Variant
from pipelines.store import Generation
from schemas.options import Section
from transforms.experiments import Row, deltas

NAME = "transfer"
DOC = "Whether a preset's advantage over the baseline carries over to another corpus"
VERSION = 1
PRESETS = ()
TWO = True


class Options(Section):
    """It has none."""


def variants(asked: Asked, generation: Generation) -> list[Variant]:
    """Return none: both corpora are evaluated already."""
    return []


def results(parts: PartsOf, asked: Asked) -> Iterator[Row]:
    """Yield both deltas of each preset, and their change."""
    yield from deltas([(name, partial(parts, name)) for name in asked.sides], asked.pairs, asked.evaluate)
