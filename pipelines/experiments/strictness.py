"""Whether the order of presets depends on what counts as relevant: all expected texts or any, session or message."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from pipelines.experiments import Asked, PartsOf, Variant
from pipelines.store import Generation
from schemas.options import Section
from transforms.experiments import Row, differences, means, shown, taus

NAME = "strictness"
DOC = "Whether the order of presets depends on what counts as relevant"
VERSION = 1
PRESETS = ()
TWO = False


class Options(Section):
    """It has none."""


def variants(asked: Asked, generation: Generation) -> list[Variant]:
    """Rank the cases as they are."""
    return [Variant("whole")]


def results(parts: PartsOf, asked: Asked) -> Iterator[Row]:
    """Yield means and differences on every level, and Kendall's tau of each pair of levels."""
    whole = partial(parts, "whole")
    yield from means(whole, asked.presets, asked.evaluate, variant="whole")
    yield from differences(whole, asked.pairs, asked.evaluate, variant="whole")
    for metric in shown(asked.evaluate):
        yield from taus(whole, asked.presets, asked.evaluate, metric)
