"""One ranking for questions that carry a cue, and another for all others."""

from __future__ import annotations

import numpy as np
from pydantic import Field, model_validator

from indexers.batch import Batch, RankStats
from indexers.explain import Explanation
from indexers.explain.blends import arm, of_question, scores_of
from indexers.methods._options import Arm
from indexers.presets import Preset
from indexers.scores import Scores
from schemas.options import Section
from transforms.tokens import tokenize_one

NAME = "gate"
VERSION = 1


class Options(Section):
    """The cues and the two rankings."""

    arms: dict[str, Arm] = Field(description="cued: the ranking of questions with a cue; other: that of all others")
    cues: tuple[str, ...] = Field(
        min_length=1, description="Words, or several in a row; a question with any of them is cued"
    )

    @model_validator(mode="after")
    def _whole(self) -> Options:
        if set(self.arms) != {"cued", "other"}:
            raise ValueError("the arms are 'cued' and 'other'")
        if empty := [cue for cue in self.cues if not tokenize_one(cue)]:
            raise ValueError(f"the cue '{empty[0]}' has no word")
        return self


def units(options: Options) -> tuple[str, ...]:
    """Return the units read: those of the arms."""
    return ()


def scores(preset: Preset, batch: Batch, stats: RankStats) -> Scores:
    """Take each question's scores from the arm that it is for."""
    chosen = cued(preset.options, batch)
    with_cue, without = batch.scores(preset.arms["cued"]), batch.scores(preset.arms["other"])
    return Scores(
        with_cue.offsets, np.where(np.repeat(chosen, np.diff(with_cue.offsets)), with_cue.values, without.values)
    )


def cued(options: Options, batch: Batch) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Tell which questions carry a cue."""
    cues = [_spaced(cue) for cue in options.cues]
    texts = [_spaced(text) for text in batch.questions["question"].to_pylist()]
    return np.array([any(cue in text for cue in cues) for text in texts], np.bool_)


def _spaced(text: str) -> str:
    return f" {' '.join(tokenize_one(text))} "


def explain(preset: Preset, batch: Batch, question: int, document: int) -> Explanation:
    """Tell which ranking the question is for, and what that one says."""
    text = _spaced(batch.questions["question"][question].as_py())
    found = sorted({cue.strip() for cue in map(_spaced, preset.options.cues) if cue in text})
    name = "cued" if found else "other"
    score = float(of_question(scores_of(preset, batch), question)[document])
    part = arm(name, score, preset.arms[name], batch, question, document)
    method = f"the ranking for questions with a cue: {', '.join(found)}" if found else "the ranking without a cue"
    return Explanation(method, score, (part,))
