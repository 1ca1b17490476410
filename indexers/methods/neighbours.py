"""A ranking in which interactions share in the scores of those before and after them in their session."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from indexers.batch import Batch, RankStats
from indexers.explain import Explanation
from indexers.explain.blends import arm, of_question, scores_of, summed
from indexers.methods._options import Arm
from indexers.presets import Preset
from indexers.scores import Scores, spread_over
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
    _, place = spread_over(batch.case, batch.shard.offsets)
    session = batch.shard.session[place]
    question = np.repeat(np.arange(len(batch.case)), np.diff(found.offsets))
    total = found.values.copy()
    joined = (session[1:] == session[:-1]) & (question[1:] == question[:-1])
    total[1:] += own.before * np.where(joined, found.values[:-1], 0)
    total[:-1] += own.after * np.where(joined, found.values[1:], 0)
    return Scores(found.offsets, total)


def explain(preset: Preset, batch: Batch, question: int, document: int) -> Explanation:
    """Tell what is the interaction's own, and what its neighbours add."""
    own: Options = preset.options
    ((name, inner),) = preset.arms.items()
    scored = of_question(scores_of(inner, batch), question)
    shard, first = batch.shard, int(batch.shard.offsets[batch.case[question]])
    parts = []
    for place, weight, what in (
        (0, 1.0, "itself"),
        (-1, own.before, "the one before"),
        (1, own.after, "the one after"),
    ):
        at = document + place
        if 0 <= at < len(scored) and shard.session[first + at] == shard.session[first + document]:
            parts.append(
                arm(f"{name}: {what}", weight * float(scored[at]), inner, batch, question, at, ("weight", weight))
            )
    score = float(of_question(scores_of(preset, batch), question)[document])
    return summed("sum of weight * score, over the interaction itself and its neighbours", score, parts)
