"""Cosine of question and interaction."""

from __future__ import annotations

from indexers.batch import Batch, RankStats
from indexers.presets import Preset
from indexers.scores import Scores
from indexers.vectors import cosine
from schemas.options import Section

NAME = "dense"
VERSION = 1


class Options(Section):
    """None: the vectors are those of the run's section `embed`."""


def units(options: Options) -> tuple[str, ...]:
    """Return the units read."""
    return ("embed/interactions", "embed/questions")


def scores(preset: Preset, batch: Batch, stats: RankStats) -> Scores:
    """Score interactions by their cosine; one that is not above 0 is not retrieved."""
    documents = batch.shard.vectors("embed/interactions")
    return cosine(batch.vectors(), batch.case, documents.offsets, documents.matrix)
