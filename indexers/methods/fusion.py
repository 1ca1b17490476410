"""Several rankings put together: weighted sums of their scores, or of reciprocal ranks."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from indexers.batch import Batch, RankStats
from indexers.explain import Explanation
from indexers.explain.blends import arm, of_question, scores_of, summed
from indexers.methods._options import Arm
from indexers.presets import Preset
from indexers.scores import Floats, Scores, extreme, over_max, ranked
from schemas.options import Section

NAME = "fusion"
VERSION = 1


_SCALES = {"max": "score / best score", "minmax": "score from 0 to 1", "none": "score"}


class Rule(Section):
    """How scores are put together."""

    rule: Literal["sum", "rrf"] = Field("sum", description="sum: of scores; rrf: of weight / (k + rank)")
    normalise: Literal["max", "minmax", "none"] = Field(
        "max", description="max: divided by the question's best; minmax: stretched from 0 to 1 (sum only)"
    )
    k: float = Field(60.0, gt=0, description="Constant of reciprocal rank fusion (Cormack, Clarke, Buettcher 2009)")
    depth: int | None = Field(None, ge=1, description="Only this many of each arm count; none takes all")


class FusedArm(Arm):
    """A ranking, its weight, and how its scores are brought to scale."""

    normalise: Literal["max", "minmax", "none"] | None = Field(None, description="Instead of what the rule says")


class Options(Section):
    """The arms and the rule."""

    arms: dict[str, FusedArm] = Field(min_length=1, description="Presets by a name of your own, each with its weight")
    fusion: Rule = Rule()  # type: ignore[call-arg]


def units(options: Options) -> tuple[str, ...]:
    """Return the units read: those of the arms."""
    return ()


def scores(preset: Preset, batch: Batch, stats: RankStats) -> Scores:
    """Score interactions by the sum over the arms."""
    own: Options = preset.options
    total: Floats | None = None
    for name in sorted(preset.arms):
        found = batch.scores(preset.arms[name])
        part = own.arms[name].weight * contribution(found, rule_of(own, name))
        total = part if total is None else total + part
        offsets = found.offsets
    assert total is not None
    # What no arm retrieved has a sum of exactly 0; a negative sum is a document that an arm speaks against.
    return Scores(offsets, np.maximum(total, 0.0))


def rule_of(own: Options, name: str) -> Rule:
    """Return the rule of one arm."""
    given = own.arms[name].normalise
    return own.fusion if given is None else own.fusion.model_copy(update={"normalise": given})


def contribution(found: Scores, rule: Rule) -> Floats:
    """Return what each document gets from an arm of weight 1; 0 where the arm did not retrieve it."""
    values = found.values
    if rule.rule == "rrf" or rule.depth is not None:
        question, document, rank = ranked(found)
        kept = rank <= (len(values) if rule.depth is None else rule.depth)
        place = (found.offsets[question] + document)[kept]
        cut = np.zeros(len(values))
        cut[place] = 1 / (rule.k + rank[kept]) if rule.rule == "rrf" else values[place]
        if rule.rule == "rrf":
            return cut
        values = cut
    if rule.normalise == "none":
        return values
    if rule.normalise == "max":
        return over_max(Scores(found.offsets, values))
    size = np.diff(found.offsets)
    best = extreme(np.maximum, Scores(found.offsets, values))
    least = extreme(np.minimum, Scores(found.offsets, np.where(values != 0, values, np.inf)))
    span = np.where(best > least, best - least, 1)
    stretched = (values - np.repeat(np.where(np.isfinite(least), least, 0), size)) / np.repeat(span, size)
    return np.where(values != 0, np.where(np.repeat(best > least, size), stretched, 1.0), 0.0)


def explain(preset: Preset, batch: Batch, question: int, document: int) -> Explanation:
    """Tell what each arm adds."""
    own: Options = preset.options
    parts = []
    for name in sorted(preset.arms):
        inner = preset.arms[name]
        found = scores_of(inner, batch)
        alone = Scores(
            np.array([0, found.offsets[question + 1] - found.offsets[question]]), of_question(found, question)
        )
        weight, rule = own.arms[name].weight, rule_of(own, name)
        value = weight * float(contribution(alone, rule)[document])
        parts.append(arm(name, value, inner, batch, question, document, ("weight", weight)))
    rule = own.fusion
    hows = {rule_of(own, name).normalise for name in preset.arms}
    how = " or ".join(name for kind, name in _SCALES.items() if kind in hows)
    method = f"sum of weight / ({rule.k:g} + rank)" if rule.rule == "rrf" else f"sum of weight * {how}"
    deep = "" if rule.depth is None else f", of each arm's first {rule.depth}"
    score = float(of_question(scores_of(preset, batch), question)[document])
    return summed(method + deep, score, parts)
