"""What rankings that are made of other rankings tell of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from indexers.explain import Explanation, Part
from indexers.scores import Floats, Scores

if TYPE_CHECKING:
    from indexers.batch import Batch
    from indexers.presets import Preset


def scores_of(preset: Preset, batch: Batch) -> Scores:
    """Return the scores of a preset; they are kept, for one question is often explained more than once."""
    return batch.once(("explained", preset.mark), lambda: batch.scores(preset))


def of_question(scores: Scores, question: int) -> Floats:
    """Return the scores of one question's documents."""
    return scores.values[scores.offsets[question] : scores.offsets[question + 1]]


def rank_of(values: Floats, document: int) -> int | None:
    """Return the rank of a document, from 1 and with ties in order of position; None if it is not retrieved."""
    own = values[document]
    if own == 0:
        return None
    before = (values > own) | ((values == own) & (np.arange(len(values)) < document))
    return int(np.count_nonzero(before & (values != 0))) + 1


def arm(
    label: str,
    value: float,
    preset: Preset,
    batch: Batch,
    question: int,
    document: int,
    *facts: tuple[str, float | int],
) -> Part:
    """Return what another ranking adds, explained by its own method.

    Args:
        label: What the ranking is called.
        value: What it adds.
        preset: The ranking.
        batch: The questions.
        question: One of them.
        document: The document.
        facts: Figures to tell before the document's rank and score in that ranking.
    """
    own = of_question(scores_of(preset, batch), question)
    told: list[tuple[str, float | int | str]] = [*facts, ("score", float(own[document]))]
    rank = rank_of(own, document)
    told.append(("rank", "none" if rank is None else rank))
    return Part("arm", label, value, facts=tuple(told), inner=preset.code.explain(preset, batch, question, document))


def summed(method: str, score: float, parts: list[Part]) -> Explanation:
    """Return the explanation of a score that is the sum of its parts, but never below 0."""
    total = sum(part.value for part in parts)
    remarks = ("the sum is below 0, which counts as not retrieved",) if total < 0 and not score else ()
    return Explanation(method, score, tuple(sorted(parts, key=lambda part: -part.value)), remarks)
