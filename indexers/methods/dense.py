"""Cosine of question and interaction."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from indexers.batch import Batch, RankStats
from indexers.explain import Explanation, Part
from indexers.explain.blends import of_question, scores_of
from indexers.presets import Preset
from indexers.scores import Scores, spread_over
from indexers.vectors import Vectors, cosine, nearest
from schemas.options import Section

NAME = "dense"
VERSION = 1

_UNITS = {"all": "embed/interactions", "user": "embed/user"}


class Options(Section):
    """Whose vectors; they are made as the run's section `embed` says."""

    side: Literal["all", "user"] = Field("all", description="user: what the user said alone")
    top: int | None = Field(
        None,
        ge=1,
        description="Only this many are retrieved; in a case of millions an index finds them (docs/vectors.md)",
    )


def units(options: Options) -> tuple[str, ...]:
    """Return the units read."""
    return (_UNITS[options.side], "embed/questions")


def scores(preset: Preset, batch: Batch, stats: RankStats) -> Scores:
    """Score interactions by their cosine; one that is not above 0 is not retrieved."""
    documents = batch.shard.vectors(_UNITS[preset.options.side])
    if preset.options.top is None:
        return cosine(batch.vectors(), batch.case, documents.vectors)
    return nearest_ones(batch, documents.vectors, preset.options.top)


def nearest_ones(batch: Batch, documents: Vectors, top: int) -> Scores:
    """Score the nearest documents of each question by their cosine, and no others."""
    offsets, _ = spread_over(batch.case, documents.offsets)
    values = np.zeros(int(offsets[-1]))
    for case in np.unique(batch.case).tolist():
        mine = np.flatnonzero(batch.case == case)
        held = documents.values[documents.offsets[case] : documents.offsets[case + 1]]
        rows, cosines = nearest(batch.vectors()[mine], held, min(top, len(held)))
        for question, found, near in zip(mine.tolist(), rows, cosines, strict=True):
            kept = (found >= 0) & (near > 0)
            values[offsets[question] + found[kept]] = near[kept]
    return Scores(offsets, values)


def explain(preset: Preset, batch: Batch, question: int, document: int) -> Explanation:
    """Tell the cosine."""
    score = float(of_question(scores_of(preset, batch), question)[document])
    if score:
        return Explanation("vectors of question and interaction", score, (Part("vector", "cosine", score),))
    held = batch.shard.vectors(_UNITS[preset.options.side]).vectors
    pair = held.values[held.offsets[batch.case[question]] + document], batch.vectors()[question]
    empty = [what for what, one in zip(("interaction", "question"), pair, strict=True) if not one.any()]
    cosine_is = f"the cosine is {float(pair[0] @ pair[1]):.3f}, and only one above 0 counts"
    verb = "have" if len(empty) > 1 else "has"
    remark = f"the {' and the '.join(empty)} {verb} no word that the embedder knows" if empty else cosine_is
    return Explanation("vectors of question and interaction", 0.0, (), (remark,))
