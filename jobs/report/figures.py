"""What the tables `metrics` and `comparisons` of one generation say: estimates, differences, sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pipelines.store import Generation

BASELINES = ("bm25", "bm25-raw")
"""What presets are held against: the first of these that was run, else the first preset."""

MAIN = ("mrr", "recall@10")
"""The metrics that sentences speak of, as far as they were computed."""

SHOWN = ("mrr", "recall@5", "recall@10", "ndcg@10")
"""The metrics of the tables of presets."""

LEVELS = ("interaction", "session", "message", "contains", "contains_any")
"""Levels in the order in which they matter to a reader."""

_LABELS = {"mrr": "MRR", "map": "MAP", "ndcg@10": "nDCG@10"}

Row = Mapping[str, Any]


def label(metric: str) -> str:
    """Return how a metric is called in headings."""
    return _LABELS.get(metric, metric)


@dataclass(frozen=True)
class Estimate:
    """A mean with its 95 % interval, which is None with fewer than two cases."""

    value: float
    low: float | None
    high: float | None
    questions: int
    cases: int

    def __str__(self) -> str:
        return f"{self.value:.3f}" + ("" if self.low is None else f" [{self.low:.3f}, {self.high:.3f}]")


@dataclass(frozen=True)
class Difference:
    """A preset's mean minus another's, on the same questions."""

    preset: str
    baseline: str
    metric: str
    value: float
    low: float | None
    high: float | None
    effect: float | None
    p_value: float | None
    p_holm: float | None
    cases: int

    @property
    def verdict(self) -> str:
        """What the interval says."""
        return verdict(self.low, self.high)


def verdict(low: float | None, high: float | None) -> str:
    """Return above or below where an interval excludes 0, open where it does not, nothing without an interval."""
    if low is None or high is None:
        return ""
    return "above" if low > 0 else "below" if high < 0 else "open"


@dataclass(frozen=True)
class Judged:
    """The metrics of a generation.

    Attributes:
        presets: In the order in which they were run.
        levels: Levels with gold, the one that matters most first.
        metrics: Names of the metrics.
        scopes: Scopes, in order.
        cells: (level, scope, metric, preset) -> row of `metrics`.
        pairs: (level, metric, retriever, baseline) -> row of `comparisons`.
    """

    presets: tuple[str, ...]
    levels: tuple[str, ...]
    metrics: tuple[str, ...]
    scopes: tuple[str, ...]
    cells: Mapping[tuple[str, str, str, str], Row]
    pairs: Mapping[tuple[str, str, str, str], Row]

    @property
    def level(self) -> str:
        """The level that the report speaks of first."""
        return self.levels[0]

    @property
    def baseline(self) -> str:
        """What presets are held against."""
        return next((name for name in BASELINES if name in self.presets), self.presets[0])

    @property
    def main(self) -> list[str]:
        """The metrics that sentences speak of."""
        return [name for name in MAIN if name in self.metrics] or list(self.metrics[:1])

    def estimate(self, level: str, metric: str, preset: str, scope: str = "all") -> Estimate | None:
        """Return a mean, or None where there are no such questions."""
        row = self.cells.get((level, scope, metric, preset))
        if row is None:
            return None
        return Estimate(row["mean"], row["low"], row["high"], row["questions"], row["cases"])

    def ranked(self, level: str, metric: str) -> list[tuple[str, Estimate]]:
        """Return presets with their means, best first; equal ones stay in order."""
        found = [(name, self.estimate(level, metric, name)) for name in self.presets]
        known = [(name, estimate) for name, estimate in found if estimate is not None]
        return sorted(known, key=lambda item: -item[1].value)

    def difference(self, level: str, metric: str, preset: str, baseline: str) -> Difference | None:
        """Return the mean of a preset minus that of another, or None where they were not compared."""
        row = self.pairs.get((level, metric, preset, baseline))
        if row is not None:
            ends = row["low"], row["high"]
            return _difference(row, preset, baseline, row["difference"], ends, row["effect"])
        row = self.pairs.get((level, metric, baseline, preset))
        if row is None:
            return None
        ends = _minus(row["high"]), _minus(row["low"])
        return _difference(row, preset, baseline, 0 - row["difference"], ends, _minus(row["effect"]))

    def family(self, level: str, metric: str, baseline: str) -> int:
        """Return how many presets were compared with a baseline, which is what Holm's correction is for."""
        return sum((key[0], key[1], key[3]) == (level, metric, baseline) for key in self.pairs)


def _minus(value: float | None) -> float | None:
    return None if value is None else 0 - value


def _difference(
    row: Row,
    preset: str,
    baseline: str,
    value: float,
    ends: tuple[float | None, float | None],
    effect: float | None,
) -> Difference:
    return Difference(
        preset, baseline, row["metric"], value, *ends, effect, row["p_value"], row["p_holm"], row["cases"]
    )


def judged(generation: Generation) -> Judged | None:
    """Read the metrics of a generation; None where it has none."""
    if "metrics" not in generation.tables():
        return None
    table = generation.table("metrics")
    # There may be many question types; of these only the main metrics are shown.
    plain = {name: table.column(name).cast(pa.string()) for name in ("scope", "metric")}
    wanted = pc.or_(pc.equal(plain["scope"], "all"), pc.is_in(plain["metric"], value_set=pa.array(MAIN)))
    rows = table.filter(wanted).to_pylist()
    if not rows:
        return None

    def names(column: str) -> tuple[str, ...]:
        return tuple(dict.fromkeys(row[column] for row in rows))

    levels = names("level")
    known = [name for name in LEVELS if name in levels]
    return Judged(
        names("retriever"),
        (*known, *(name for name in levels if name not in known)),
        names("metric"),
        names("scope"),
        {(r["level"], r["scope"], r["metric"], r["retriever"]): r for r in rows},
        {
            (r["level"], r["metric"], r["retriever"], r["baseline"]): r
            for r in generation.table("comparisons").to_pylist()
        },
    )


def sentences(found: Judged) -> list[str]:
    """Say which preset is best on what, and whether its difference to the baseline excludes 0."""
    return [_sentence(found, found.level, metric) for metric in found.main]


def _sentence(found: Judged, level: str, metric: str) -> str:
    ranked = found.ranked(level, metric)
    top = ranked[0][1]
    best = [name for name, estimate in ranked if estimate.value == top.value]
    told = (
        f"{_listed(best)} {'has' if len(best) == 1 else 'have'} the highest {label(metric)}, {top}, over "
        f"{_count(top.questions, 'question')} of {_count(top.cases, 'case')} ({level} level)"
    )
    others = [name for name, _ in ranked if name not in best]
    if not others:
        return f"{told}."
    held = found.baseline if found.baseline in others else others[0]
    difference = found.difference(level, metric, best[0], held)
    if difference is None:
        return f"{told}."
    named = held if held == found.baseline else f"{held}, the next best"
    return f"{told}: {_against(difference, named, found.family(level, metric, held))}"


def _against(difference: Difference, named: str, family: int) -> str:
    told = f"{abs(difference.value):.3f} above {named}"
    if difference.low is None or difference.high is None:
        return f"{told}. There are too few questions or cases for intervals."
    ends = ", ".join(f"{end:.3f}".replace("-", "−") for end in (difference.low, difference.high))
    told += f", 95 % interval [{ends}]"
    if difference.verdict == "open":
        return f"{told}, which includes 0: the two cannot be told apart."
    told += ", which excludes 0"
    if difference.p_holm is None:
        return f"{told}."
    pairs = f"after Holm's correction for {_count(max(family, 1), 'preset')} p is {difference.p_holm:.4f}"
    if difference.p_holm <= 0.05:
        return f"{told}; {pairs}."
    least = 2 * 0.5**difference.cases
    if least * family > 0.05:
        why = f", which {_count(difference.cases, 'case')} cannot bring below {min(least * family, 1.0):.4f}"
        return f"{told}; {pairs}{why}."
    return f"{told}; {pairs}: it may be chance."


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def _listed(names: Sequence[str]) -> str:
    if len(names) > 3:
        return f"{names[0]}, {names[1]} and {len(names) - 2} others"
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def variants(presets: Sequence[str]) -> dict[str, list[str]]:
    """Return the presets that others are variants of -> these: a variant's name goes on after a hyphen."""
    found: dict[str, list[str]] = {}
    for name in presets:
        # The shortest one: variants of variants are set beside the whole thing.
        own = [base for base in presets if name.startswith(f"{base}-")]
        if own:
            found.setdefault(min(own, key=len), []).append(name)
    return found
