"""Runs to tables: metrics of each question, means with intervals, and comparisons between presets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from schemas.config import EvaluateConfig
from schemas.tables import build, schema
from transforms.metrics import LEVELS, metric_names, question_metrics
from transforms.significance import (
    bootstrap_means,
    effect_sizes,
    grid_sum,
    holm,
    interval,
    sign_flip_p_values,
)

COMPARED = ("mrr", "recall@5", "recall@10", "ndcg@10")
"""Metrics on which presets are compared."""

_BLOCK = 8_000_000
"""Resampled values held at once."""

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def evaluate(
    runs: Mapping[str, pa.Table],
    questions: pa.Table,
    interactions: pa.Table,
    config: EvaluateConfig,
    depth: int,
) -> dict[str, pa.Table]:
    """Judge runs whole.

    Args:
        runs: Preset name to its rows of table `runs`, in the order in which presets are to be reported.
        questions: Table `questions`.
        interactions: Table `interactions`, at least case_id, interaction_id, session_id and message_ids.
        config: Cut-offs, resamples and seed.
        depth: The ranking depth (`rank.depth`).

    Returns:
        The tables `question_metrics`, `metrics` and `comparisons`.

    Raises:
        SchemaError: A run names an interaction that is not in `interactions`.
    """
    judged = question_metrics(runs, questions, interactions, ks=config.ks, depth=depth)
    return {"question_metrics": judged, **summarise([judged], tuple(runs), config)}


def summarise(parts: Iterable[pa.Table], presets: Sequence[str], config: EvaluateConfig) -> dict[str, pa.Table]:
    """Take means and comparisons over the question metrics of a whole corpus.

    Only sums per case are kept of each part, so memory is bounded by one part and the number of cases. The result does
    not depend on how the questions are split into parts, nor on the order of the parts.

    Args:
        parts: Tables `question_metrics`, such as one a shard; all rows of a case lie in one of them.
        presets: Presets in the order in which they are to be reported.
        config: Cut-offs, resamples and seed; cut-offs as the parts were made with.

    Returns:
        The tables `metrics` (in order of preset, level, scope and metric) and `comparisons` (every preset with every
        baseline, in order of level, metric, baseline and preset, scope all).
    """
    names = metric_names(config.ks)
    sums = _sums(parts, presets, names, config)
    metrics: dict[tuple[int, int, str], tuple[list[Any], ...]] = {}
    comparisons: list[tuple[Any, ...]] = []
    families = _families(presets, config.baselines)
    for number, level in enumerate(LEVELS):
        for scope, groups in sums.scopes():
            values, counts = sums.by_draw(number, groups)
            if not len(counts):
                continue
            means = grid_sum(values) / counts.sum()
            lows: Floats = np.full(means.shape, np.nan)
            highs: Floats = np.full(means.shape, np.nan)
            for block, samples in _blocks(values, counts, config):
                lows[block], highs[block] = interval(samples)
                if scope == "all":
                    for metric in range(block.start, block.stop):
                        if names[metric] in COMPARED:
                            own = samples[metric - block.start] if len(counts) > 1 else None
                            for pairs in families:
                                cases = sums.cases(number, groups)
                                rows = _compare(pairs, values[metric], counts, own, config, cases)
                                named = ((presets[a], presets[b], level, names[metric]) for a, b in pairs)
                                comparisons.extend((*n, *r) for n, r in zip(named, rows, strict=True))
            for preset in range(len(presets)):
                columns = (means[:, preset], lows[:, preset], highs[:, preset])
                sizes = [[int(counts.sum())] * len(names), [sums.cases(number, groups)] * len(names)]
                metrics[preset, number, scope] = (*(_nullable(c) for c in columns), *sizes)
    return {"metrics": _metrics_table(metrics, presets, names), "comparisons": _rows("comparisons", comparisons)}


def _families(presets: Sequence[str], baselines: Sequence[str]) -> list[list[tuple[int, int]]]:
    """Return for each baseline that was run (else for the first preset) its pairs with all other presets."""
    chosen = [presets.index(name) for name in dict.fromkeys(baselines) if name in presets] or [0][: len(presets)]
    return [[(a, b) for a in range(len(presets)) if a != b] for b in chosen]


def compare_pairs(
    parts: Iterable[pa.Table],
    pairs: Sequence[tuple[str, str]],
    level: str,
    names: Sequence[str],
    config: EvaluateConfig,
) -> Iterator[tuple[Any, ...]]:
    """Compare chosen pairs of presets on the same questions, scope all.

    Args:
        parts: As for `summarise`.
        pairs: Pairs of presets; those of one metric are one family of tests.
        level: The level judged.
        names: Metrics to compare on.
        config: Resamples and seed.

    Yields:
        In order of metric and pair: the pair's two names, the metric, both means, their difference and what follows it
        in table `comparisons`. Nothing where there are no questions.
    """
    presets = list(dict.fromkeys(name for pair in pairs for name in pair))
    numbered = [(presets.index(a), presets.index(b)) for a, b in pairs]
    sums = _sums(parts, presets, names, config)
    values, counts = sums.by_draw(LEVELS.index(level), np.ones(len(sums.case), dtype=bool))
    if not len(counts):
        return
    cases = sums.cases(LEVELS.index(level), np.ones(len(sums.case), dtype=bool))
    for block, samples in _blocks(values, counts, config):
        for metric in range(block.start, block.stop):
            means = grid_sum(values[metric]) / counts.sum()
            own = samples[metric - block.start] if len(counts) > 1 else None
            rows = _compare(numbered, values[metric], counts, own, config, cases)
            for pair, (a, b), row in zip(pairs, numbered, rows, strict=True):
                yield *pair, names[metric], float(means[a]), float(means[b]), *row


@dataclass(frozen=True)
class _Sums:
    """Sums over the questions of each (draw, type, answerable) group; what is drawn is a case or a question.

    Attributes:
        draw: (groups,) number of the draw, ascending; numbered in order of case and question.
        case: (groups,) number of its case.
        question_type: (groups,) type names.
        answerable: (groups,) whether the questions have an answer.
        values: (levels, groups, metrics, presets) sums.
        counts: (levels, groups) questions.
    """

    draw: Ints
    case: Ints
    question_type: list[str]
    answerable: npt.NDArray[np.bool_]
    values: Floats
    counts: Floats

    @classmethod
    def of(cls, parts: Iterable[pa.Table], presets: Sequence[str], names: Sequence[str], *, by_question: bool) -> _Sums:
        shape = (len(names), len(presets))
        found: dict[tuple[tuple[str, str], str, bool], tuple[Floats, Floats]] = {}
        for part in parts:
            for key, values, counts in _group(part, presets, names, by_question=by_question):
                before = found.get(key, (0.0, 0.0))
                found[key] = before[0] + values, before[1] + counts
        keys = sorted(found)
        numbers = {draw: n for n, draw in enumerate(sorted({key[0] for key in keys}))}
        cases = {case: n for n, case in enumerate(sorted({draw[0] for draw in numbers}))}
        values = np.zeros((len(LEVELS), len(keys), *shape))
        counts = np.zeros((len(LEVELS), len(keys)))
        for n, key in enumerate(keys):
            values[:, n], counts[:, n] = found.pop(key)
        return cls(
            np.array([numbers[key[0]] for key in keys], dtype=np.int64),
            np.array([cases[key[0][0]] for key in keys], dtype=np.int64),
            [key[1] for key in keys],
            np.array([key[2] for key in keys], dtype=bool),
            values,
            counts,
        )

    def scopes(self) -> Iterator[tuple[str, npt.NDArray[np.bool_]]]:
        """Yield each scope and its groups."""
        yield "all", np.ones(len(self.case), dtype=bool)
        yield "answerable", self.answerable
        yield "unanswerable", ~self.answerable
        for name in sorted(set(self.question_type) - {""}):
            yield f"type:{name}", np.array([kind == name for kind in self.question_type], dtype=bool)

    def cases(self, level: int, groups: npt.NDArray[np.bool_]) -> int:
        """Return how many cases have questions there."""
        return len(np.unique(self.case[groups & (self.counts[level] > 0)]))

    def by_draw(self, level: int, groups: npt.NDArray[np.bool_]) -> tuple[Floats, Floats]:
        """Return (metrics, presets, draws) sums and (draws,) counts over the draws that have questions there."""
        kept = np.flatnonzero(groups & (self.counts[level] > 0))
        _, first = np.unique(self.draw[kept], return_index=True)
        if not len(first):
            return np.zeros((*self.values.shape[2:], 0)), np.zeros(0)
        values = np.add.reduceat(self.values[level][kept], first, axis=0)
        return np.ascontiguousarray(values.transpose(1, 2, 0)), np.add.reduceat(self.counts[level][kept], first)


def _sums(parts: Iterable[pa.Table], presets: Sequence[str], names: Sequence[str], config: EvaluateConfig) -> _Sums:
    """Sum by what is drawn; with ``auto`` that is the case, or the question where the corpus is a single case."""
    if config.draw != "auto":
        return _Sums.of(parts, presets, names, by_question=config.draw == "question")
    held: list[pa.Table] = []
    seen: set[str] = set()

    def watched() -> Iterator[pa.Table]:
        for part in parts:
            seen.update(part.column("case_id").unique().to_pylist())
            # All rows of a case lie in one part: with a second case, no part is needed again.
            held[:] = [*held, part] if len(seen) < 2 else []
            yield part

    found = _Sums.of(watched(), presets, names, by_question=False)
    return found if len(seen) > 1 else _Sums.of(held, presets, names, by_question=True)


def _group(
    part: pa.Table, presets: Sequence[str], names: Sequence[str], *, by_question: bool
) -> Iterator[tuple[tuple[tuple[str, str], str, bool], Floats, Floats]]:
    """Yield each (draw, type, answerable) of a part with its (levels, metrics, presets) sums and (levels,) counts."""
    preset, level, metric = (
        _codes(part, name, known) for name, known in (("retriever", presets), ("level", LEVELS), ("metric", names))
    )
    case, kind, question = (
        part.column(name).cast(pa.string()).combine_chunks().dictionary_encode() for name in _GROUP_BY
    )
    asked = max(len(question.dictionary), 1) if by_question else 1
    number = np.asarray(question.indices, dtype=np.int64) if by_question else 0
    kinds = max(len(kind.dictionary), 1)
    answerable = np.asarray(part.column("answerable")).astype(np.int64)
    draw = np.asarray(case.indices, dtype=np.int64) * asked + number
    key = (draw * kinds + np.asarray(kind.indices)) * 2 + answerable
    groups, group = np.unique(key, return_inverse=True)
    known = (preset >= 0) & (level >= 0) & (metric >= 0)
    shape = (len(groups), len(LEVELS), len(names), len(presets))
    cell = ((group * len(LEVELS) + level) * len(names) + metric) * len(presets) + preset
    size = int(np.prod(shape))
    values = np.bincount(cell[known], np.asarray(part.column("value"))[known], size).reshape(shape)
    # Every question of a level has one row for each preset and metric, so one of them counts the questions.
    one = known & (preset == 0) & (metric == 0)
    counts = np.bincount(group[one] * len(LEVELS) + level[one], minlength=len(groups) * len(LEVELS))
    counts = counts.reshape(len(groups), len(LEVELS)).astype(np.float64)
    case_names, kind_names = case.dictionary.to_pylist(), kind.dictionary.to_pylist()
    question_names = question.dictionary.to_pylist() if by_question else [""]
    for n, code in enumerate(groups.tolist()):
        one = code // 2 // kinds
        own = (case_names[one // asked], question_names[one % asked])
        yield (own, kind_names[code // 2 % kinds], bool(code % 2)), values[n], counts[n]


_GROUP_BY = ("case_id", "question_type", "question_id")


def _codes(part: pa.Table, name: str, known: Sequence[str]) -> Ints:
    found = pc.index_in(part.column(name).cast(pa.string()).combine_chunks(), value_set=pa.array(known, pa.string()))
    return np.asarray(found.fill_null(-1), dtype=np.int64)


def _blocks(values: Floats, counts: Floats, config: EvaluateConfig) -> Iterator[tuple[slice, Floats]]:
    """Yield blocks of metrics with their (metrics, presets, resamples) means; NaN where one case is all there is."""
    metrics, presets, cases = values.shape
    step = max(1, _BLOCK // (config.resamples * max(presets, 1)))
    for start in range(0, metrics, step):
        block = slice(start, min(start + step, metrics))
        if cases < 2:
            yield block, np.full((block.stop - start, presets, 1), np.nan)
            continue
        flat = values[block].reshape(-1, cases)
        samples = bootstrap_means(flat, counts, config.resamples, config.seed)
        yield block, samples.reshape(block.stop - start, presets, config.resamples)


def _compare(
    pairs: Sequence[tuple[int, int]],
    sums: Floats,
    counts: Floats,
    samples: Floats | None,
    config: EvaluateConfig,
    cases: int,
) -> Iterator[tuple[Any, ...]]:
    """Yield one row a pair of presets, one family of tests, for one level and metric, from (presets, draws) sums."""
    if not pairs:
        return
    sizes = (int(counts.sum()), cases)
    means = grid_sum(sums) / counts.sum()
    if samples is None:
        for a, b in pairs:
            yield float(means[a] - means[b]), None, None, None, None, None, *sizes
        return
    lows, highs = np.array([interval(samples[a] - samples[b]) for a, b in pairs]).T
    differences = np.stack([sums[a] - sums[b] for a, b in pairs])
    p_values = sign_flip_p_values(differences, config.resamples, config.seed)
    corrected = holm(p_values)
    effects = effect_sizes(differences / counts)
    for n, (a, b) in enumerate(pairs):
        numbers = (means[a] - means[b], lows[n], highs[n], effects[n], p_values[n], corrected[n])
        yield *_nullable(np.array(numbers)), *sizes


def _nullable(values: Floats) -> list[float | None]:
    return [None if np.isnan(value) else float(value) for value in values]


def _metrics_table(
    cells: dict[tuple[int, int, str], tuple[list[Any], ...]], presets: Sequence[str], names: Sequence[str]
) -> pa.Table:
    rows = []
    for (preset, level, scope), columns in sorted(cells.items(), key=lambda cell: cell[0][:2]):
        for metric, *numbers in zip(names, *columns, strict=True):
            rows.append((presets[preset], LEVELS[level], scope, metric, *numbers))
    return _rows("metrics", rows)


def _rows(table: str, rows: list[tuple[Any, ...]]) -> pa.Table:
    fields = schema(table).names
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(fields)
    return build(table, {name: list(column) for name, column in zip(fields, columns, strict=True)})
