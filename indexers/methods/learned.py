"""The router: rankings blended for each question by weights that were learned on other cases.

Every question has its own weights: those of its features, some of which count only for questions of a kind, plus what
depends on the question's gates (what it asks for, how large the store is, how far the first ones lie apart, how far the
arms agree). They are learned by cross-validation over cases (stage `route`), and a case is always ranked by the weights
of the fold that it was left out of. Without two cases that have gold, the arms' own weights are all there is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from indexers.batch import Batch, RankStats
from indexers.csr import Bools
from indexers.explain import Explanation, Part
from indexers.explain.blends import arm as explain_arm
from indexers.explain.blends import of_question, scores_of
from indexers.methods._options import Arm
from indexers.presets import Preset
from indexers.scores import Floats, Ints, Scores, best_of, extreme, over_max, ranked, spread_over
from schemas.options import Section
from transforms import cues
from transforms.listwise import Singles, Weights, per_question

NAME = "learned"
VERSION = 1
LEARNS = True
"""Marks methods whose presets have a unit of the stage `route`."""

_ASKED = ("name", "about_me", "reminder")
GATES = (*_ASKED, "letters", "store", "runner_up", "tenth", "agreement", "best")
"""Three of the question's cues; ln(1 + its letters / 5); ln(1 + interactions of its case); how far the second and the
tenth of the first arm fall below its best, in shares of it; how many of the ten best of the first two arms are the
same, in tenths; the best score of the last arm."""

_TEN = 10


class LearnedArm(Arm):
    """A ranking, and what is taken of it."""

    features: tuple[Literal["best", "rank", "own"], ...] = Field(
        ("best",), min_length=1, description="best: score / best score; rank: 1 / sqrt(rank); own: the score as it is"
    )
    context: bool = Field(False, description="Counts in dialogues between people alone")


class Training(Section):
    """How weights are learned."""

    folds: int = Field(10, ge=2, le=100, description="Folds of cases; at most as many as there are cases with gold")
    candidates: int = Field(40, ge=1, description="Documents of each question that the arms together put first")
    sampled: int = Field(20, ge=1, description="Further documents of each question, that stand for all others")
    l2: float = Field(30.0, gt=0, description="Strength that draws weights to the arms' own, times `prior`")
    l2_gates: float = Field(500.0, gt=0, description="Strength that draws what depends on the question to 0")
    prior: float = Field(5.0, ge=0, description="Factor of the arms' own weights; the more cases, the less both count")


class Options(Section):
    """The arms and the training."""

    arms: dict[str, LearnedArm] = Field(
        min_length=1, description="Rankings by a name of your own; 'weight' counts where nothing could be learned"
    )
    order: tuple[str, ...] = Field((), description="Arms that gates look at, the first two and the last; none: by name")
    cues: bool = Field(True, description="Whether what messages give away (lengths, dates, ...) counts as well")
    training: Training = Training()  # type: ignore[call-arg]


def units(options: Options) -> tuple[str, ...]:
    """Return the units read, besides those of the arms and of what was learned."""
    return ("index/cues",)


def scores(preset: Preset, batch: Batch, stats: RankStats) -> Scores:
    """Score interactions by weights of each question; the lowest of a question has a score just above 0."""
    offsets, total = _sums(preset, batch)
    least = np.repeat(extreme(np.minimum, Scores(offsets, total)), np.diff(offsets))
    return Scores(offsets, total - least + 1e-9)


def _sums(preset: Preset, batch: Batch) -> tuple[Ints, Floats]:
    offsets, _ = spread_over(batch.case, batch.shard.offsets)
    weights = question_weights(preset, batch)
    total = np.zeros(int(offsets[-1]))
    question = np.repeat(np.arange(len(batch.case)), np.diff(offsets))
    for number, (_, values) in enumerate(features(preset, batch)):
        total += weights[question, number] * values
    return offsets, total


def feature_names(preset: Preset) -> list[str]:
    """Return the names of the features, in order."""
    own: Options = preset.options
    names = [f"{name}:{kind}" for name in sorted(own.arms) for kind in own.arms[name].features]
    if own.cues:
        names += [*cues.MESSAGE_CUES, *(f"{asked}*{held}" for asked, held in cues.CROSSES)]
    return names


def features(preset: Preset, batch: Batch) -> Iterator[tuple[str, Floats]]:
    """Yield each feature: its name, and its value for every document of each question's case."""
    own: Options = preset.options
    offsets, place = spread_over(batch.case, batch.shard.offsets)
    question = np.repeat(np.arange(len(batch.case)), np.diff(offsets))
    people = batch.shard.once(("people",), lambda: between_people(batch))
    for name in sorted(own.arms):
        found = batch.scores(preset.arms[name])
        if own.arms[name].context:
            found = Scores(found.offsets, np.where(people[batch.case[question]], found.values, 0.0))
        for kind in own.arms[name].features:
            yield f"{name}:{kind}", _feature(kind, found)
    if own.cues:
        held, asked = message_cues(batch), question_cues(batch)
        for number, name in enumerate(cues.MESSAGE_CUES):
            yield name, held[place, number].astype(np.float64)
        for ask, hold in cues.CROSSES:
            left, right = cues.QUESTION_CUES.index(ask), cues.MESSAGE_CUES.index(hold)
            yield f"{ask}*{hold}", (asked[question, left] * held[place, right]).astype(np.float64)


def _feature(kind: str, found: Scores) -> Floats:
    if kind == "best":
        return over_max(found)
    if kind == "own":
        return found.values
    question, document, rank = ranked(found)
    out = np.zeros(len(found.values))
    out[found.offsets[question] + document] = 1 / np.sqrt(rank)
    return out


def between_people(batch: Batch) -> Bools:
    """Tell for each case of the shard whether people talk there, and no assistant."""
    speakers = batch.shard.interactions["speakers"].combine_chunks()
    row = np.repeat(np.arange(len(speakers)), np.asarray(pc.fill_null(pc.list_value_length(speakers), 0)))
    machine = np.asarray(pc.is_in(speakers.flatten(), value_set=pa.array(["assistant", "user", "system", "tool"])))
    held = np.zeros(len(speakers), np.bool_)
    held[row[machine]] = True
    case = np.repeat(np.arange(len(batch.shard.cases)), np.diff(batch.shard.offsets))
    people: Bools = np.bincount(case[held], minlength=len(batch.shard.cases)) == 0
    return people


def message_cues(batch: Batch) -> Singles:
    """Return (interactions of the shard, cues)."""

    def make() -> Singles:
        table = batch.shard.table_of("index/cues", "cues")
        mine = pc.is_in(table["case_id"].cast(pa.string()), value_set=pa.array(batch.shard.cases, pa.string()))
        values = table.filter(mine)["values"].combine_chunks().flatten().to_numpy()
        found: Singles = values.reshape(-1, len(cues.MESSAGE_CUES))
        return found

    return batch.shard.once(("cues",), make)


def question_cues(batch: Batch) -> Singles:
    """Return (questions, cues)."""
    return batch.once(("question cues",), lambda: cues.question_cues(batch.questions["question"]))


def gates(preset: Preset, batch: Batch) -> Singles:
    """Return (questions, `GATES`)."""
    own: Options = preset.options
    names = own.order or tuple(sorted(own.arms))
    first, second, last = (
        batch.scores(preset.arms[name]) for name in (names[0], names[min(1, len(names) - 1)], names[-1])
    )
    top = best_of(first, _TEN)
    question = np.repeat(np.arange(len(batch.case)), np.diff(first.offsets))
    best = extreme(np.maximum, first)
    safe = np.where(best > 0, best, 1)
    asked, document, rank = ranked(first)
    at = first.values[first.offsets[asked] + document]
    runner, tenth = np.zeros(len(batch.case)), np.zeros(len(batch.case))
    runner[asked[rank == 2]], tenth[asked[rank == _TEN]] = at[rank == 2], at[rank == _TEN]
    shared = np.bincount(question[top & best_of(second, _TEN)], minlength=len(batch.case)) / _TEN
    letters = np.asarray(pc.utf8_length(batch.questions["question"]), np.float64)
    store = np.diff(batch.shard.offsets)[batch.case]
    own_gates = [
        np.log1p(letters / 5),
        np.log1p(store),
        1 - runner / safe,
        1 - tenth / safe,
        shared,
        extreme(np.maximum, last),
    ]
    asked_for = question_cues(batch)[:, [cues.QUESTION_CUES.index(name) for name in _ASKED]]
    return np.concatenate([asked_for, np.stack(own_gates, axis=1)], axis=1).astype(np.float32)


def question_weights(preset: Preset, batch: Batch) -> Floats:
    """Return (questions, features) the weights of each question: those of the fold that its case was left out of."""
    names = feature_names(preset)
    table = batch.shard.table_of(f"route/{preset.mark}", "router")
    rows = table.to_pylist()
    if not rows:
        return np.tile(default_weights(preset), (len(batch.case), 1))
    fold_of = {case: number for number, row in enumerate(rows) for case in row["cases"]}
    rest = next(number for number, row in enumerate(rows) if row["fold"] == -1)
    fold = np.array([fold_of.get(case, rest) for case in batch.shard.cases], np.int64)[batch.case]
    seen = gates(preset, batch)
    out = np.zeros((len(batch.case), len(names)))
    for number in np.unique(fold).tolist():
        row = rows[number]
        learned = Weights(
            np.array(row["weights"], np.float64).reshape(len(names), -1),
            np.array(row["middle"]),
            np.array(row["spread"]),
        )
        out[fold == number] = per_question(learned, seen[fold == number])
    return out


def default_weights(preset: Preset) -> Floats:
    """Return (features,) the arms' own weights, on their first feature; 0 for all else."""
    own: Options = preset.options
    given = {f"{name}:{arm.features[0]}": arm.weight for name, arm in own.arms.items()}
    return np.array([given.get(name, 0.0) for name in feature_names(preset)])


def explain(preset: Preset, batch: Batch, question: int, document: int) -> Explanation:
    """Tell what each feature adds; the lowest document of the question gives the zero."""
    score = float(of_question(scores_of(preset, batch), question)[document])
    weights = question_weights(preset, batch)[question]
    offsets, total = _sums(preset, batch)
    own = Scores(offsets, total)
    parts = []
    for weight, (name, values) in zip(weights.tolist(), features(preset, batch), strict=True):
        value = float(of_question(Scores(offsets, values), question)[document])
        if not weight * value:
            continue
        arm, sign, _ = name.partition(":")
        if sign:
            inner = preset.arms[arm]
            parts.append(
                explain_arm(
                    name, weight * value, inner, batch, question, document, ("weight", weight), ("value", value)
                )
            )
        else:
            parts.append(Part("cue", name, weight * value, facts=(("weight", weight), ("value", value))))
    least = float(of_question(own, question).min())
    parts.append(Part("rest", "less the lowest of the question", 1e-9 - least))
    return Explanation(
        "sum of weight * feature, weights learned on other cases",
        score,
        tuple(sorted(parts, key=lambda part: -part.value)),
    )
