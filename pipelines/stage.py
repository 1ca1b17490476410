"""The contract of a stage, and the work item that travels to a worker.

A stage declares its name, version, engine, output tables and units. A unit is the stage under one configuration
(one graph kind, one preset); it yields one part a shard and one manifest. The key of a part is the hash of the
stage's name and version, the unit's configuration, and the keys of the parts that it reads: same key, same bytes.
"""

from __future__ import annotations

import importlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import pyarrow as pa

from pipelines.store import Store
from schemas.config import RunConfig
from schemas.ids import fingerprint, shard_of
from schemas.tables import empty

STAGES = ("extract", "repair", "graph", "index", "embed", "route", "rank", "evaluate")
"""Stages after ingest, in order; each is the module of that name in this package, with its `STAGE`."""


@dataclass(frozen=True)
class Unit:
    """A stage under one configuration.

    Attributes:
        name: ``stage`` or ``stage/variant``.
        config: The unit's own configuration, plain data; part of every key.
        reads: Units whose parts it reads.
        outputs: Tables of a part.
        whole: True where one part covers all shards.
        reads_whole: Units of which every part reads the one part that covers all shards.
        variants: (cases, configuration) where some cases have another configuration; the first that names a case
            holds for it. A shard without any of them is made, and keyed, by `config` alone.
        runtime: What a worker needs besides and the output does not depend on; in no key and no manifest.
    """

    name: str
    config: Mapping[str, Any]
    reads: tuple[str, ...]
    outputs: tuple[str, ...]
    whole: bool = False
    reads_whole: tuple[str, ...] = ()
    variants: tuple[tuple[tuple[str, ...], Mapping[str, Any]], ...] = ()
    runtime: Mapping[str, Any] = field(default_factory=dict)

    @property
    def stage(self) -> str:
        """Name of the stage."""
        return self.name.partition("/")[0]

    @property
    def described(self) -> dict[str, Any]:
        """The whole configuration, for manifests."""
        variants = [{**config, "cases": list(cases)} for cases, config in self.variants]
        return {**self.config, "chosen": variants} if variants else dict(self.config)

    def by_shard(self, shards: int) -> dict[int, Unit]:
        """Return the unit as it is in each shard that has cases of another configuration."""
        chosen: dict[int, list[dict[str, Any]]] = {}
        taken: set[str] = set()
        for cases, config in self.variants:
            mine: dict[int, list[str]] = {}
            for case in sorted(set(cases) - taken):
                mine.setdefault(shard_of(case, shards), []).append(case)
            taken.update(cases)
            for shard, names in mine.items():
                chosen.setdefault(shard, []).append({**config, "cases": names})
        return {
            shard: replace(self, config={**self.config, "chosen": own}, variants=()) for shard, own in chosen.items()
        }


@dataclass(frozen=True)
class Inputs:
    """The parts that a work item reads; tables are read when asked for.

    Attributes:
        parts: Unit -> (shard, key) of the parts to read.
    """

    store: Store
    parts: Mapping[str, Sequence[tuple[int, str]]]

    def table(self, unit: str, table: str, columns: list[str] | None = None) -> pa.Table:
        """Return one table of a unit, over the shards of this item."""
        read = [self.store.read_part(table, shard, key, columns) for shard, key in self.parts.get(unit, ())]
        if len(read) == 1:
            return read[0]
        if not read:
            return empty(table) if columns is None else empty(table).select(columns)
        return pa.concat_tables(read).unify_dictionaries()

    def shards(self) -> list[Inputs]:
        """Split by shard, in order of shard."""
        numbers = sorted({shard for parts in self.parts.values() for shard, _ in parts})
        return [
            Inputs(self.store, {unit: [p for p in parts if p[0] == n] for unit, parts in self.parts.items()})
            for n in numbers
        ]


@dataclass(frozen=True)
class Output:
    """What a stage made of one item for one unit."""

    tables: Mapping[str, pa.Table]
    stats: Mapping[str, int] = field(default_factory=dict)


Process = Callable[[Inputs, Sequence[Unit]], Sequence[Output] | Awaitable[Sequence[Output]]]


@dataclass(frozen=True)
class Needs:
    """What the workers of a stage need.

    Attributes:
        replicas: Workers; None takes as many as there is room for where GPUs or a cluster are there, else one.
        cpus: Cores of each.
        gpus: GPUs of each; fractions share one.
        python: Python of their environment; None is the run's own.
        at_once: Cases that a worker has at work at once, over several items.
        memory: Bytes of memory that Ray keeps for each; 0 keeps none aside.
    """

    replicas: int | None
    cpus: float
    gpus: float
    python: str | None
    at_once: int
    memory: int = 0


def _nothing(config: RunConfig) -> Needs | None:
    return None


def _no_more(store: Store, unit: Unit, shards: Sequence[int]) -> Mapping[int, Mapping[str, Any]]:
    return {}


@dataclass(frozen=True)
class Stage:
    """One stage.

    Attributes:
        name: Its name.
        version: Raised whenever its output changes for the same input.
        engine: Where its items run.
        units: The units of a configuration, in order.
        process: Makes the outputs of some units from their inputs, in the units' order.
        together: True where all missing units of a shard make one item, because they share work.
        needs: What its workers need, where that is not one core and the run's own environment.
        besides: Finds, once for all missing shards of a unit, what each shard adds to `Unit.runtime`.
    """

    name: str
    version: int
    engine: Literal["ray", "beam"]
    units: Callable[[RunConfig], list[Unit]]
    process: Process
    together: bool = False
    needs: Callable[[RunConfig], Needs | None] = _nothing
    besides: Callable[[Store, Unit, Sequence[int]], Mapping[int, Mapping[str, Any]]] = _no_more


def load_stage(name: str) -> Stage:
    """Return a stage by name; its module, and what that imports, loads only now."""
    stage: Stage = importlib.import_module(f"pipelines.{name}").STAGE
    return stage


def part_key(stage: Stage, unit: Unit, read_keys: Sequence[tuple[str, Sequence[tuple[int, str]]]]) -> str:
    """Return the key of a part.

    Args:
        stage: The stage.
        unit: The unit.
        read_keys: (unit, [(shard, key)]) of the parts read, in the order of `unit.reads` and `unit.reads_whole`.
    """
    reads = [[name, [[shard, key] for shard, key in keys]] for name, keys in read_keys]
    return fingerprint([stage.name, stage.version, unit.name, dict(unit.config), reads])


@dataclass(frozen=True)
class Item:
    """One piece of work: some units of one stage on one shard (or on all)."""

    uri: str
    shards: int
    stage: str
    shard: int
    units: tuple[Unit, ...]
    keys: tuple[str, ...]
    parts: Mapping[str, tuple[tuple[int, str], ...]]
    rows: int = 0
    cases: int = 0
