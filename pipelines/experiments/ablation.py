"""What each part of a preset is worth: presets without it, against the preset that has all (TAGGRAPH's ablation)."""

from __future__ import annotations

from collections.abc import Iterator

from pipelines.experiments import Asked, PartsOf, Variant
from pipelines.store import Generation
from schemas.options import Section
from transforms.experiments import Row, differences, means

NAME = "ablation"
DOC = "What each part of a preset is worth: presets without it against the first one"
VERSION = 1
PRESETS = ("ablations",)
TWO = False


class Options(Section):
    """It has none."""


def variants(asked: Asked, generation: Generation) -> list[Variant]:
    """Rank the cases as they are."""
    return [Variant("whole")]


def results(parts: PartsOf, asked: Asked) -> Iterator[Row]:
    """Yield means, and the paired difference of each preset to the baseline."""
    yield from means(lambda: parts("whole"), asked.presets, asked.evaluate, variant="whole")
    yield from differences(lambda: parts("whole"), asked.pairs, asked.evaluate, variant="whole")
