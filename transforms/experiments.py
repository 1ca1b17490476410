"""What experiments make of the metrics of questions: rows of table `results`, with intervals by case."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from schemas.config import EvaluateConfig
from schemas.tables import build, empty, schema
from transforms.evaluate import COMPARED, compare_pairs, summarise
from transforms.metrics import LEVELS, metric_names
from transforms.significance import bootstrap_means, interval

STORE, CASE = "store", "case"
"""Levels of `question_metrics` in parts of experiments: the size of the store that was asked; figures of a case."""

Floats = npt.NDArray[np.float64]
Parts = Callable[[], Iterable[pa.Table]]
"""Gives tables `question_metrics`, one a shard, each time anew; all rows of a case lie in one of them."""


class Row(NamedTuple):
    """One row of table `results`, without the experiment's name."""

    variant: str
    retriever: str
    metric: str
    value: float
    low: float | None = None
    high: float | None = None
    p_value: float | None = None
    x: float | None = None
    baseline: str | None = None
    level: str = ""
    scope: str = "all"
    questions: int = 0
    cases: int = 0


def results(experiment: str, rows: Iterable[Row]) -> pa.Table:
    """Return table `results`."""
    found = [{**row._asdict(), "experiment": experiment} for row in rows]
    if not found:
        return empty("results")
    return build("results", {name: [row[name] for row in found] for name in schema("results").names})


def shown(config: EvaluateConfig) -> list[str]:
    """Return the metrics that experiments report: those that presets are compared on, as far as there are such."""
    return [name for name in COMPARED if name in metric_names(config.ks)]


def means(
    parts: Parts, presets: Sequence[str], config: EvaluateConfig, *, variant: str, x: float | None = None
) -> list[Row]:
    """Return the mean of every preset, level and scope, and the mean size of the stores."""
    kept = shown(config)
    rows = [
        Row(
            variant,
            one["retriever"],
            one["metric"],
            one["mean"],
            one["low"],
            one["high"],
            x=x,
            level=one["level"],
            scope=one["scope"],
            questions=one["questions"],
            cases=one["cases"],
        )
        for one in summarise(parts(), presets, config)["metrics"].to_pylist()
        if one["metric"] in kept
    ]
    for metric in ("sessions", "interactions"):
        stores = draws(parts(), STORE, metric, [""])
        if stores.keys:
            value = float(stores.sums.sum() / stores.counts.sum())
            asked = int(stores.counts.sum())
            rows.append(Row(variant, "", metric, value, x=x, questions=asked, cases=stores.cases))
    return rows


def differences(
    parts: Parts,
    pairs: Sequence[tuple[str, str]],
    config: EvaluateConfig,
    *,
    variant: str,
    x: float | None = None,
    as_named: Callable[[str, str], tuple[str, str]] = lambda a, b: (a, b),
) -> Iterator[Row]:
    """Yield the paired difference of each pair of retrievers, on every level that has questions.

    Args:
        parts: Metrics of the questions.
        pairs: Retriever and what it is compared with.
        config: Cut-offs, resamples and seed.
        variant: The variant.
        x: Its place on an axis.
        as_named: Gives a pair's columns `retriever` and `baseline`.
    """
    if not pairs:
        return
    for level in LEVELS:
        for a, b, metric, _, _, value, low, high, _, p_value, _, questions, cases in compare_pairs(
            parts(), pairs, level, shown(config), config
        ):
            retriever, baseline = as_named(a, b)
            yield Row(
                variant,
                retriever,
                metric,
                value,
                low,
                high,
                p_value,
                x,
                baseline,
                level,
                questions=questions,
                cases=cases,
            )


def labelled(parts: Iterable[pa.Table], suffix: str) -> Iterator[pa.Table]:
    """Give retrievers a suffix, so that those of several sides can be compared."""
    at = schema("question_metrics").names.index("retriever")
    for part in parts:
        name = pc.binary_join_element_wise(part["retriever"].cast(pa.string()), suffix, "")
        yield part.set_column(at, schema("question_metrics").field(at), name.combine_chunks().dictionary_encode())


def of_cases(parts: Iterable[pa.Table], cases: Sequence[str]) -> Iterator[pa.Table]:
    """Keep the rows of some cases."""
    wanted = pa.array(cases, pa.string())
    for part in parts:
        yield part.filter(pc.is_in(part["case_id"].cast(pa.string()), value_set=wanted))


class Draws(NamedTuple):
    """Sums of a metric over what the bootstrap draws: cases, or the questions of the only case.

    Attributes:
        keys: (draws,) what each is, sorted.
        sums: (series, draws) sums.
        counts: (draws,) questions of each, which each of the series has.
        cases: Cases that they are of.
    """

    keys: list[str]
    sums: Floats
    counts: Floats
    cases: int


def draws(parts: Iterable[pa.Table], level: str, metric: str, series: Sequence[str], draw: str = "case") -> Draws:
    """Add up a metric by what is drawn.

    Args:
        parts: Tables `question_metrics`.
        level: Level.
        metric: Metric.
        series: Retrievers.
        draw: As ``evaluate.draw``.
    """
    kept = [_of(part, level, metric, series) for part in parts]
    whole = pl.concat(kept) if kept else _of(empty("question_metrics"), level, metric, series)
    cases = whole["case"].n_unique()
    if draw == "question" or (draw == "auto" and cases == 1):
        whole = whole.with_columns(pl.concat_str("case", "question", separator="\0").alias("case"))
    keys = sorted(whole["case"].unique().to_list())
    place = {name: number for number, name in enumerate(keys)}
    order = {name: number for number, name in enumerate(series)}
    sums, counts = np.zeros((len(series), len(keys))), np.zeros(len(keys))
    grouped = whole.group_by("case", "retriever").agg(pl.col("value").sort().sum(), pl.len().alias("n"))
    for key, retriever, value, n in grouped.iter_rows():
        sums[order[retriever], place[key]] = value
        counts[place[key]] = n
    return Draws(keys, sums, counts, cases)


def _of(part: pa.Table, level: str, metric: str, series: Sequence[str]) -> pl.DataFrame:
    wanted = pc.and_(
        pc.equal(part["level"].cast(pa.string()), level), pc.equal(part["metric"].cast(pa.string()), metric)
    )
    wanted = pc.and_(wanted, pc.is_in(part["retriever"].cast(pa.string()), value_set=pa.array(series, pa.string())))
    rows = part.filter(wanted)
    columns = {"case": "case_id", "question": "question_id", "retriever": "retriever"}
    names = {to: pl.Series(rows[name].cast(pa.string()), dtype=pl.String) for to, name in columns.items()}
    return pl.DataFrame({**names, "value": pl.Series(rows["value"], dtype=pl.Float64)})


def resampled(sums: Floats, counts: Floats, config: EvaluateConfig, seed: int = 0) -> Floats | None:
    """Return (series, resamples) means of drawn cases; None with fewer than two cases.

    Args:
        sums: (series, cases) sums, not negative.
        counts: (cases,) what each is a sum over.
        config: Resamples and seed.
        seed: Added to the seed, where draws must not depend on each other.
    """
    if len(counts) < 2:
        return None
    # A power of two, so that nothing is rounded.
    scale = 2.0 ** np.ceil(np.log2(max(float(np.max(sums / counts, initial=0.0)), 1.0)))
    made: Floats = bootstrap_means(sums / scale, counts, config.resamples, config.seed + seed) * scale
    return made


def ratio(variant: str, retriever: str, metric: str, sums: Floats, counts: Floats, config: EvaluateConfig) -> Row:
    """Return sums over counts, with an interval where there are two draws with a count."""
    kept = counts > 0
    own, size = sums[kept], counts[kept]
    value = float(own.sum() / size.sum()) if len(size) else 0.0
    samples = resampled(own[None], size, config)
    low, high = (None, None) if samples is None else map(float, interval(samples[0]))
    return Row(variant, retriever, metric, value, low, high)


def taus(parts: Parts, presets: Sequence[str], config: EvaluateConfig, metric: str) -> Iterator[Row]:
    """Yield for each pair of levels how alike they order the presets: Kendall's tau-b of their means.

    Both levels see the same draws, so only what has questions on both counts.
    """
    if len(presets) < 2:
        return
    found = {level: draws(parts(), level, metric, presets, config.draw) for level in LEVELS}
    for a, b in combinations([level for level in LEVELS if found[level].keys], 2):
        common = sorted(set(found[a].keys) & set(found[b].keys))
        if not common:
            continue
        whole, samples = [], []
        for level in (a, b):
            at = np.searchsorted(found[level].keys, common)
            sums, counts = found[level].sums[:, at], found[level].counts[at]
            whole.append(sums.sum(axis=1, keepdims=True) / counts.sum())
            samples.append(resampled(sums, counts, config))
        low = high = None
        if samples[0] is not None and samples[1] is not None:
            low, high = map(float, interval(kendall(samples[0], samples[1])))
        asked = int(found[a].counts[np.searchsorted(found[a].keys, common)].sum())
        value = float(kendall(*whole)[0])
        yield Row(f"{a} ~ {b}", "", f"tau({metric})", value, low, high, questions=asked, cases=found[a].cases)


def kendall(a: Floats, b: Floats) -> Floats:
    """Return Kendall's tau-b of each column of two (values, columns) arrays; 0 where one of them is constant.

    Values that differ by less than 1e-12 are ties.
    """
    pairs = list(combinations(range(len(a)), 2))
    left, right = np.array(pairs).T
    signs = []
    for values in (a, b):
        gap = values[left] - values[right]
        signs.append(np.where(np.abs(gap) < 1e-12, 0.0, np.sign(gap)))
    agreed = (signs[0] * signs[1]).sum(axis=0)
    scale = np.sqrt((signs[0] ** 2).sum(axis=0) * (signs[1] ** 2).sum(axis=0))
    found: Floats = np.divide(agreed, scale, out=np.zeros_like(agreed), where=scale > 0)
    return found


def deltas(
    sides: Sequence[tuple[str, Parts]], pairs: Sequence[tuple[str, str]], config: EvaluateConfig
) -> Iterator[Row]:
    """Yield the difference of each pair on either side, and how it changes from the first to the second.

    Differences are paired within a side; the sides are drawn independently of each other, as they share no questions.
    """
    first, second = (name for name, _ in sides)
    for level in LEVELS:
        for metric in shown(config):
            for graph, base in pairs:
                found = [draws(parts(), level, metric, [graph, base], config.draw) for _, parts in sides]
                if not all(one.keys for one in found):
                    continue
                values = [float((one.sums[0] - one.sums[1]).sum() / one.counts.sum()) for one in found]
                samples = [_delta(one, config, number) for number, one in enumerate(found)]
                asked, cases = [int(one.counts.sum()) for one in found], [one.cases for one in found]
                change = None if samples[0] is None or samples[1] is None else samples[1] - samples[0]
                for name, value, drawn, questions, of in (
                    (first, values[0], samples[0], asked[0], cases[0]),
                    (second, values[1], samples[1], asked[1], cases[1]),
                    (f"{second} - {first}", values[1] - values[0], change, sum(asked), sum(cases)),
                ):
                    low, high = (None, None) if drawn is None else map(float, interval(drawn))
                    row = Row(name, graph, metric, value, low, high)
                    yield row._replace(baseline=base, level=level, questions=questions, cases=of)


def _delta(one: Draws, config: EvaluateConfig, number: int) -> Floats | None:
    samples = resampled(one.sums, one.counts, config, seed=number)
    return None if samples is None else samples[0] - samples[1]
