"""Answers of readers -> the table `results`: means with intervals, and paired differences to a baseline."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from schemas.config import EvaluateConfig
from schemas.tables import build, schema
from transforms.significance import bootstrap_means, grid_sum, interval, sign_flip_p_values

EXPERIMENT = "reader"
MEANS = ("f1",)
SHARES = ("contains", "judged", "abstained")
COUNTS = ("failed", "judge_failed", "prompt_tokens", "completion_tokens")
_Z = 1.959963984540054

Floats = npt.NDArray[np.float64]


def wilson(successes: int, total: int) -> tuple[float, float]:
    """Return the 95 % score interval of a proportion (Wilson 1927); the questions are taken as independent.

    Raises:
        ValueError: There are no trials, or more successes than trials.
    """
    if not 0 <= successes <= total or total < 1:
        raise ValueError(f"{successes} of {total}")
    share, scale = successes / total, 1 + _Z * _Z / total
    middle = (share + _Z * _Z / (2 * total)) / scale
    half = _Z * sqrt(share * (1 - share) / total + _Z * _Z / (4 * total * total)) / scale
    return (0.0 if successes == 0 else middle - half), (1.0 if successes == total else middle + half)


@dataclass(frozen=True)
class _Marks:
    """All marks of one corpus; rows are questions, columns presets; NaN where there is none.

    Attributes:
        case: (questions,) number of the case.
        kind: (questions,) type.
        answerable: (questions,) whether there is an answer.
        values: Metric -> (questions, presets).
    """

    case: npt.NDArray[np.int64]
    kind: npt.NDArray[np.str_]
    answerable: npt.NDArray[np.bool_]
    values: dict[str, Floats]


def results(
    parts: Iterable[tuple[pa.Table, pa.Table]], presets: Sequence[str], variant: str, config: EvaluateConfig
) -> pa.Table:
    """Make the table `results` of a reader study.

    A share has a Wilson interval, the mean F1 a bootstrap interval by case. Differences are taken on the questions that
    both presets have a mark for, with a bootstrap interval and a sign-flip p-value by case; with one case there is no
    interval of that kind. A verdict that a judge failed to give counts as no in `judged`, and in `judge_failed`.

    Args:
        parts: (questions, answers) of each shard; answers of all presets.
        presets: Presets in the order in which they are to be reported; the first is the baseline.
        variant: What the reader saw, such as ``top=5``.
        config: Resamples and seed.
    """
    marks = _marks(parts, presets)
    rows: list[tuple[Any, ...]] = []
    for scope, within in _scopes(marks):
        for metric in (*MEANS, *SHARES):
            own = marks.values[metric][within]
            case = marks.case[within]
            for number, preset in enumerate(presets):
                rows += _value(own[:, number], case, (variant, preset, scope, metric), config)
            for number, preset in enumerate(presets[1:], 1):
                if metric != "abstained":
                    pair = own[:, [number, 0]]
                    rows += _difference(pair, case, (variant, preset, presets[0], scope, metric), config)
        for metric in COUNTS:
            for number, preset in enumerate(presets):
                own = marks.values[metric][within, number]
                there = ~np.isnan(own)
                if there.any():
                    sizes = (int(there.sum()), len(np.unique(marks.case[within][there])))
                    total = float(np.nansum(own))
                    rows.append(
                        (EXPERIMENT, variant, None, preset, None, "", scope, metric, total, *[None] * 3, *sizes)
                    )
    names = schema("results").names
    return build("results", {name: [row[place] for row in rows] for place, name in enumerate(names)})


def _marks(parts: Iterable[tuple[pa.Table, pa.Table]], presets: Sequence[str]) -> _Marks:
    metrics = (*MEANS, *SHARES, *COUNTS)
    cases, kinds, answerable = [], [], []
    values: dict[str, list[Floats]] = {metric: [] for metric in metrics}
    for questions, answers in parts:
        place = {key: row for row, key in enumerate(_keys(questions))}
        column = {preset: number for number, preset in enumerate(presets)}
        row = np.array([place[key] for key in _keys(answers)], np.int64)
        preset = np.array([column[name] for name in answers["retriever"].to_pylist()], np.int64)
        found = _columns(answers)
        for metric in metrics:
            grid = np.full((questions.num_rows, len(presets)), np.nan)
            grid[row, preset] = found[metric]
            values[metric].append(grid)
        cases += questions["case_id"].to_pylist()
        kinds += questions["question_type"].to_pylist()
        answerable += questions["answerable"].to_pylist()
    numbered = {case: number for number, case in enumerate(sorted(set(cases)))}
    return _Marks(
        np.array([numbered[case] for case in cases], np.int64),
        np.array(kinds, dtype=np.str_),
        np.array(answerable, bool),
        {name: np.concatenate(own) if own else np.zeros((0, len(presets))) for name, own in values.items()},
    )


def _keys(table: pa.Table) -> Iterator[tuple[str, str]]:
    return zip(table["case_id"].to_pylist(), table["question_id"].to_pylist(), strict=True)


def _columns(answers: pa.Table) -> dict[str, Floats]:
    def floats(name: str) -> Floats:
        return np.array([np.nan if v is None else float(v) for v in answers[name].to_pylist()], np.float64)

    marked = ~np.isnan(floats("f1"))
    judged, failed = floats("judged"), np.array([v is not None for v in answers["judge_error"].to_pylist()], bool)
    asked = failed | ~np.isnan(judged)
    return {
        "f1": floats("f1"),
        "contains": floats("contains"),
        "judged": np.where(failed, 0.0, judged),
        "abstained": np.where(marked, floats("abstained"), np.nan),
        "failed": np.array([status == "failed" for status in answers["status"].to_pylist()], np.float64),
        "judge_failed": np.where(asked, failed.astype(np.float64), np.nan),
        "prompt_tokens": floats("prompt_tokens"),
        "completion_tokens": floats("completion_tokens"),
    }


def _scopes(marks: _Marks) -> Iterator[tuple[str, npt.NDArray[np.bool_]]]:
    yield "all", np.ones(len(marks.case), bool)
    if not marks.answerable.all():
        yield "answerable", marks.answerable
        yield "unanswerable", ~marks.answerable
    for name in sorted(set(marks.kind.tolist()) - {""}):
        yield f"type:{name}", marks.kind == name


def _value(
    marks: Floats, case: npt.NDArray[np.int64], named: tuple[str, str, str, str], config: EvaluateConfig
) -> Iterator[tuple[Any, ...]]:
    variant, preset, scope, metric = named
    there = ~np.isnan(marks)
    if not there.any():
        return
    own, cases = marks[there], case[there]
    low: float | None
    high: float | None
    if metric in SHARES:
        low, high = wilson(round(own.sum()), len(own))
    else:
        low, high, _ = _by_case(own[None], cases, config)
    head = (EXPERIMENT, variant, None, preset, None, "", scope, metric)
    yield (*head, float(grid_sum(own) / len(own)), low, high, None, len(own), len(np.unique(cases)))


def _difference(
    marks: Floats, case: npt.NDArray[np.int64], named: tuple[str, str, str, str, str], config: EvaluateConfig
) -> Iterator[tuple[Any, ...]]:
    variant, preset, baseline, scope, metric = named
    there = ~np.isnan(marks).any(axis=1)
    if not there.any():
        return
    own, cases = marks[there].T, case[there]
    low, high, p_value = _by_case(own, cases, config)
    difference = float((grid_sum(own[0]) - grid_sum(own[1])) / own.shape[1])
    head = (EXPERIMENT, variant, None, preset, baseline, "", scope, metric)
    yield (*head, difference, low, high, p_value, own.shape[1], len(np.unique(cases)))


def _by_case(
    marks: Floats, case: npt.NDArray[np.int64], config: EvaluateConfig
) -> tuple[float | None, float | None, float | None]:
    """Return the interval of a mean (one series) or of a difference (two, with its p-value) over cases."""
    _, group = np.unique(case, return_inverse=True)
    counts: Floats = np.bincount(group).astype(np.float64)
    if len(counts) < 2:
        return None, None, None
    sums = np.stack([np.bincount(group, one, len(counts)).astype(np.float64) for one in marks])
    samples = bootstrap_means(sums, counts, config.resamples, config.seed)
    spread = samples[0] - samples[1] if len(marks) > 1 else samples[0]
    low, high = interval(spread)
    p_value = None
    if len(marks) > 1:
        p_value = float(sign_flip_p_values((sums[0] - sums[1])[None], config.resamples, config.seed)[0])
    return float(low), float(high), p_value
