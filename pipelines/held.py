"""Units made in memory, by the very functions that the stages run: for one case, or for a part of a corpus."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from pipelines.planner import all_units
from pipelines.stage import Inputs, Output
from pipelines.work import wait_for
from schemas.config import RunConfig
from schemas.errors import UsageError
from schemas.tables import empty

Finish = Callable[[Awaitable[Sequence[Output]]], Sequence[Output]]


@dataclass(frozen=True)
class Held(Inputs):
    """Tables in memory, in place of parts on storage.

    Attributes:
        tables: (unit, table) -> the table.
    """

    tables: dict[tuple[str, str], pa.Table] = field(default_factory=dict)

    def table(self, unit: str, table: str, columns: list[str] | None = None) -> pa.Table:
        """Return one table of a unit; empty where the unit has been made without it."""
        found = self.tables[unit, table] if (unit, table) in self.tables else self._absent(unit, table)
        return found if columns is None else found.select(columns)

    def _absent(self, unit: str, table: str) -> pa.Table:
        if any(name == unit for name, _ in self.tables):
            raise KeyError((unit, table))
        return empty(table)


def make(config: RunConfig, held: Held, wanted: Iterable[str], shard: int, finish: Finish | None = None) -> None:
    """Make units, and what they read, out of what is held.

    Args:
        config: The run; its presets say which units there are.
        held: Holds the tables of ``ingest`` (and of any other unit that is not to be made); gains those made.
        wanted: Units.
        shard: The shard that the cases are of, for units that differ by shard.
        finish: Waits for a stage that asks an engine.

    Raises:
        UsageError: The configuration has no such unit.
    """
    units = {unit.name: (stage, unit) for stage, unit in all_units(config)}
    have = {name for name, _ in held.tables}

    def one(name: str) -> None:
        if name in have:
            return
        if name not in units:
            raise UsageError(f"the configuration has no '{name}'", remedy="Add what makes it (graph.kinds, presets).")
        stage, unit = units[name]
        for read in (*unit.reads, *unit.reads_whole):
            one(read)
        made = stage.process(held, (unit.by_shard(held.store.shards).get(shard, unit),))
        outputs = (finish or wait_for)(made) if inspect.isawaitable(made) else made
        held.tables.update({(name, table): rows for table, rows in outputs[0].tables.items()})
        have.add(name)

    for name in wanted:
        one(name)
