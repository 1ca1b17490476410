"""What a run costs, stage by stage, as straight lines in the number of interactions, and what follows from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

QUANTITIES = ("cpu", "seconds", "bytes_read", "bytes_written")
"""Sums of `pipelines.meter.Cost` that grow with the input."""

Costs = Mapping[str, Mapping[str, float]]
"""Stage -> quantity -> amount."""


@dataclass(frozen=True)
class Line:
    """amount = fixed + slope x millions of interactions."""

    fixed: float
    slope: float

    def at(self, millions: float) -> float:
        """Return the amount for a size."""
        return self.fixed + self.slope * millions


SERIAL = "aggregate"
"""The step that is one part over all shards: means, intervals and tests over every question's metrics."""


def stage_of(step: str) -> str:
    """Return the stage of a step of a run's record; the step in one part is a stage of its own."""
    return SERIAL if step == "evaluate" else step.partition("/")[0].partition(":")[0]


def costs_of(record: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Add up the costs in a run's record by stage (the steps and units of one stage together)."""
    found: dict[str, dict[str, float]] = {}
    for step in record["stages"]:
        own = found.setdefault(stage_of(step["stage"]), dict.fromkeys(QUANTITIES, 0.0))
        for name in QUANTITIES:
            own[name] += step["cost"][name]
    return found


def fit(sizes: Sequence[float], runs: Sequence[Costs]) -> dict[str, dict[str, Line]]:
    """Fit one line a stage and quantity, by least squares on relative errors.

    Args:
        sizes: Millions of interactions of each run.
        runs: What each cost.
    """
    lines: dict[str, dict[str, Line]] = {}
    for stage in runs[-1]:
        lines[stage] = {}
        for name in QUANTITIES:
            amount = np.array([run[stage][name] for run in runs])
            scale = 1 / np.maximum(amount, 1e-9)
            design = np.stack([np.ones(len(sizes)), np.asarray(sizes)], 1) * scale[:, None]
            fixed, slope = np.linalg.lstsq(design, amount * scale, rcond=None)[0] if amount.any() else (0.0, 0.0)
            lines[stage][name] = Line(float(fixed), float(slope))
    return lines


def predict(lines: Mapping[str, Mapping[str, Line]], millions: float) -> dict[str, dict[str, float]]:
    """Return what a run of another size will cost by the lines."""
    return {stage: {name: line.at(millions) for name, line in own.items()} for stage, own in lines.items()}


def total(costs: Costs, quantity: str) -> float:
    """Add up one quantity over all stages."""
    return sum(own[quantity] for own in costs.values())


@dataclass(frozen=True)
class Sizing:
    """What a corpus of some size needs.

    Attributes:
        millions: Interactions, in millions.
        core_hours: Processor time of all stages but an engine's.
        written_gb: Bytes written, which is what the corpus takes before `gc`.
        shards: Shards of some 64 MB of input each.
        objects: Files of tables.
        cores: Cores of the cluster.
        hours: Wall time with nine tenths of the cores at work on whatever has a part a shard, and one on the rest.
    """

    millions: float
    core_hours: float
    written_gb: float
    shards: int
    objects: int
    cores: int
    hours: float


def sizing(
    lines: Mapping[str, Mapping[str, Line]], millions: float, input_gb: float, cores: int, tables: int
) -> Sizing:
    """Work out what a corpus needs.

    Args:
        lines: `fit`.
        millions: Its interactions, in millions.
        input_gb: Its logs.
        cores: Cores of the cluster.
        tables: Table files that a shard has, over all units.
    """
    costs = predict(lines, millions)
    core_hours = total(costs, "cpu") / 3600
    alone = costs.get(SERIAL, {}).get("cpu", 0.0) / 3600
    shards = 1 << max(3, int(np.ceil(np.log2(max(1.0, input_gb * 1e3 / 64)))))
    written = total(costs, "bytes_written") / 1e9
    return Sizing(
        millions, core_hours, written, shards, shards * tables, cores, (core_hours - alone) / (0.9 * cores) + alone
    )
