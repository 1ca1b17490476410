"""A ranking in which interactions share in the scores of those before and after them in their session."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from indexers.batch import Batch, RankStats
from indexers.methods._options import Arm
from indexers.presets import Preset
from indexers.scores import Scores
from schemas.options import Section

NAME = "neighbours"
VERSION = 1


class Options(Section):
    """The ranking and the shares."""

    arms: dict[str, Arm] = Field(min_length=1, max_length=1, description="The ranking, under a name of your own")
    before: float = Field(0.2, ge=0, le=1, description="Share of the score of the interaction before")
    after: float = Field(0.2, ge=0, le=1, description="Share of the score of the interaction after")


def units(options: Options) -> tuple[str, ...]:
    """Return the units read: those of the arm."""
    return ()


def scores(preset: Preset, batch: Batch, stats: RankStats) -> Scores:
    """Add the neighbours' shares."""
    own: Options = preset.options
    (arm,) = preset.arms.values()
    found = batch.scores(arm)
    shard, case = batch.shard, batch.case
    size = np.diff(shard.offsets)[case]
    place = np.arange(len(found.values)) + np.repeat(shard.offsets[case] - found.offsets[:-1], size)
    session = shard.session[place]
    question = np.repeat(np.arange(len(case)), size)
    total = found.values.copy()
    joined = (session[1:] == session[:-1]) & (question[1:] == question[:-1])
    total[1:] += own.before * np.where(joined, found.values[:-1], 0)
    total[:-1] += own.after * np.where(joined, found.values[1:], 0)
    return Scores(found.offsets, total)
