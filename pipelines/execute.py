"""Runs the units of a run that are not there yet, stage by stage, and writes their manifests."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from pipelines import asides, beam_engine, lock, ray_engine, work
from pipelines.attempts import Attempts
from pipelines.crew import Crew
from pipelines.failures import Failure
from pipelines.planner import (
    Keys,
    UnitPlan,
    all_units,
    part_keys,
    plan_unit,
    unit_fingerprint,
    whole_parts,
    whole_reads,
)
from pipelines.progress import Progress
from pipelines.ray_session import RaySession
from pipelines.spent import Spent
from pipelines.stage import Item, Needs, Stage, Unit, load_stage
from pipelines.store import Generation, Manifest, Part, Store
from schemas.config import RunConfig
from schemas.errors import StoreError

SMALL_ROWS = 20_000
"""Interactions up to which ``compute.workers: auto`` works in this process: Ray takes longer to start than they do."""

PATIENCE = 20.0
"""Seconds that engines have to end."""


def code_version() -> str:
    """Return the version of the installed package."""
    try:
        return version("tagloom")
    except PackageNotFoundError:
        return "unknown"


@dataclass
class Execution:
    """One run at work.

    Attributes:
        before: What the generation's name points at, to tell what changed.
        manifests: Unit -> manifest, of every unit done so far.
        upstream: Unit -> shard -> key, likewise.
        seconds: Stage -> seconds spent in it.
        made: Unit -> parts made.
        asked: Unit -> what an engine did for it in this very run.
        aside: Unit -> shard -> why it was set aside in this very run.
        peak: The most memory that a process at work on an item has held, in bytes.
    """

    store: Store
    config: RunConfig
    before: Generation | None
    progress: Progress
    manifests: dict[str, Manifest] = field(default_factory=dict)
    upstream: dict[str, Keys] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    made: dict[str, int] = field(default_factory=dict)
    asked: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    aside: dict[str, dict[int, str]] = field(default_factory=dict)
    peak: int = 0
    ray: RaySession = field(init=False)
    _replicas: tuple[Needs, Crew] | None = field(init=False, default=None)
    _counted: dict[str, Mapping[str, float]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        """Prepare Ray, which starts on first need."""
        needs = load_stage("extract").needs(self.config)
        self.ray = RaySession(self.config.compute, self.store.storage.private, needs)

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Add the time of a block to a stage."""
        started = time.perf_counter()
        yield
        self.seconds[stage] = self.seconds.get(stage, 0.0) + time.perf_counter() - started

    def keep(self, manifest: Manifest, seconds: float, made: int) -> None:
        """Take a finished unit; its manifest is written unless this very one is there."""
        stamped = "made_at" in manifest.run  # it comes from storage
        known = manifest if stamped else self.store.find_manifest(manifest.unit, manifest.fingerprint)
        # Another version of a library may write a part that was lost in other bytes than the manifest has.
        if known is None or known.parts != manifest.parts:
            stamp = {"seconds": round(seconds, 3), "made_at": datetime.now(UTC).isoformat(), "code": code_version()}
            known = replace(manifest, run={**manifest.run, **stamp})
            lock.keep(self.store.storage)  # whoever has the corpus now may have removed parts that no manifest named
            self.store.write_manifest(known)
        self.manifests[manifest.unit] = known
        self.upstream[manifest.unit] = part_keys(known.parts)
        self.made[manifest.unit] = made

    def run(self, stages: Sequence[str]) -> None:
        """Run stages in order."""
        for name in stages:
            self.make(all_units(self.config, [name]))

    def make(self, wanted: Sequence[tuple[Stage, Unit]]) -> None:
        """Make units of one stage. Those of a stage that share work run together, others one after the other."""
        plans = []
        try:
            for stage, unit in wanted:
                aside = {name: manifest.aside for name, manifest in self.manifests.items()}
                wholes = [name for name, manifest in self.manifests.items() if manifest.whole]
                plans.append(plan_unit(self.store, stage, unit, self.upstream, self.before, aside, wholes))
                if not stage.together:
                    with self.timed(stage.name):
                        self._finish(plans)
                    plans = []
            if plans:
                with self.timed(plans[0].stage.name):
                    self._finish(plans)
        finally:
            self._end_replicas()

    def _engines(self, needs: Needs) -> Crew | None:
        """Return workers with an engine; they stay for the other units of the stage, as to load a model takes long."""
        if self._replicas is not None and self._replicas[0] == needs:
            return self._replicas[1]
        self._end_replicas()
        crew = self.ray.replicas(needs)
        self._replicas = None if crew is None else (needs, crew)
        return crew

    def _end_replicas(self) -> None:
        held, self._replicas, self._counted = self._replicas, None, {}
        if held is not None:
            held[1].end(PATIENCE)

    def _finish(self, plans: Sequence[UnitPlan]) -> None:
        items = make_items(self.store, plans, self.upstream, self.manifests)
        started = time.perf_counter()
        done: dict[tuple[str, int], Part] = {}
        busy = 0.0
        # Only what is asked of each interaction can be counted before it is asked.
        rows = sum(item.rows for item in items) if plans[0].unit.reads == ("ingest",) else 0
        earlier = sum(one["prompt_tokens"] + one["completion_tokens"] for one in self.asked.values())
        spent = Spent(rows, self.config.extract.budget_tokens, earlier, self._counted)
        if items:
            total = sum(len(plan.keys) for plan in plans)
            left = sum(len(plan.missing) for plan in plans)
            label = plans[0].unit.name if len(plans) == 1 else plans[0].stage.name
            self.progress.begin(label, total, total - left, "parts")
            for item, ended in self._run_items(plans, items, spent):
                if isinstance(ended, Failure):
                    self.set_aside(ended)
                    continue
                busy += ended.cost.seconds
                self.peak = max(self.peak, ended.cost.peak)
                done |= {(u.name, item.shard): p for u, p in zip(item.units, ended.parts, strict=True)}
            self.progress.end()
            self._counted = spent.counted if self._replicas is not None else {}
        for plan in plans:
            inputs = {name: self.manifests[name].fingerprint for name in (*plan.unit.reads, *plan.unit.reads_whole)}
            facts = self._facts(plan, spent)
            if items and facts:
                self.asked[plan.unit.name] = facts
            aside = self.aside.get(plan.unit.name, {})
            made = plan.known or _manifest(self.store, plan, done, aside, inputs, busy, facts)
            self.keep(made, time.perf_counter() - started, len(plan.missing) - len(aside))

    def check_whole(self) -> None:
        """Raise where shards were set aside, for what is of no use without all of them; what is made stays.

        Raises:
            ShardsAsideError: Some were.
        """
        if (error := asides.complaint(self.store, self.aside, self.manifests)) is not None:
            raise error

    def set_aside(self, failure: Failure) -> None:
        """Take note of a shard that this run goes on without."""
        for unit in failure.units:
            self.aside.setdefault(unit, {})[failure.shard] = failure.reason

    def _run_items(self, plans: Sequence[UnitPlan], items: Sequence[Item], spent: Spent) -> Iterator[ray_engine.Ended]:
        """Run items and yield what became of them; Beam tells it when all are done."""
        stage = plans[0].stage
        if stage.engine == "beam":
            ran = beam_engine.run_map(
                items,
                work.run,
                self.config.beam,
                items[0].stage,
                self.progress,
                kept=any(plan.present for plan in plans),
                known=self._known(plans),
            )
            yield from ((items[n], done) for n, done in ran.done.items())
            yield from ((items[n], failure) for n, failure in ran.asides.items())
            return
        # What is made of all shards is made of replies that are there; no engine is asked.
        needs = None if all(plan.unit.whole for plan in plans) else stage.needs(self.config)
        small = sum(item.rows for item in items) <= SMALL_ROWS and self.config.compute.workers == "auto"
        told: dict[str, Any] = {"attempts": self._attempts(plans, items), "progress": self.progress}
        if needs is None:
            self._end_replicas()  # they may hold the room of ordinary workers
            crew = None if small and not self.ray.started else self.ray.workers()
            ended = ray_engine.run_items(items, crew, **told)
        else:
            spent.take([])  # the unit before may have ended with the budget used up
            alone = small and not needs.gpus and needs.python is None and needs.replicas in (None, 1)
            crew = None if alone else self._engines(needs)
            ended = ray_engine.run_asking(
                items, crew, needs.at_once, spent, lambda: self.progress.measure(spent), **told
            )
        for item, one in ended:
            if not isinstance(one, Failure):
                self.progress.advance(len(item.units), item.rows)
            yield item, one

    def _attempts(self, plans: Sequence[UnitPlan], items: Sequence[Item]) -> Attempts:
        """Begin to count failures; what is there, and what failed before, tell whether work can succeed."""
        return Attempts(items, kept=any(plan.present for plan in plans), known=self._known(plans))

    def _known(self, plans: Sequence[UnitPlan]) -> set[int]:
        """Return the shards that units were set aside in before."""
        known: set[int] = set()
        if self.before is not None:
            for plan in plans:
                with suppress(StoreError):
                    known |= set(self.before.manifest(plan.unit.name).aside)
        return known

    def _facts(self, plan: UnitPlan, spent: Spent) -> dict[str, Any]:
        """Return what a manifest keeps about the engine of a unit."""
        if plan.stage.needs(self.config) is None:
            return {}
        from pipelines.extract import journals

        asked = plan.unit.runtime.get("journals") or journals(self.config.extract)
        return {**spent.facts(), "model": self.config.extract.model, "journal": asked}


def make_items(
    store: Store,
    plans: Sequence[UnitPlan],
    upstream: Mapping[str, Keys],
    manifests: Mapping[str, Manifest],
) -> list[Item]:
    """Turn missing parts into work items; units of a stage that share work are put together by shard."""
    groups: dict[tuple[int, str], list[UnitPlan]] = {}
    for plan in plans:
        for shard in plan.missing:
            groups.setdefault((shard, "" if plan.stage.together else plan.unit.name), []).append(plan)
    rows = {part.shard: sum(t.rows for t in part.tables.values()) for part in manifests["ingest"].parts}
    cases = {part.shard: part.stats.get("cases", 0) for part in manifests["ingest"].parts}
    wholes = [name for name, manifest in manifests.items() if manifest.whole]
    own = {plan.unit.name: _by_shard(store, plan) for plan in plans if plan.missing}
    items = []
    for (shard, _), members in sorted(groups.items()):
        stage = members[0].stage
        reads = dict.fromkeys(name for plan in members for name in plan.unit.reads)
        shared = dict.fromkeys(name for plan in members for name in plan.unit.reads_whole)
        if members[0].unit.whole:
            every = [one for plan in members for one in whole_reads(plan.unit, upstream, plan.aside, wholes)]
            parts = {name: tuple(found) for name, found in every}
        else:
            parts = {n: ((shard, upstream[n][shard]),) if shard in upstream[n] else () for n in reads}
        parts |= {name: tuple(sorted(upstream[name].items())) for name in shared}
        items.append(
            Item(
                store.storage.absolute,
                store.shards,
                stage.name,
                shard,
                tuple(own[plan.unit.name][shard] for plan in members),
                tuple(plan.keys[shard] for plan in members),
                parts,
                rows.get(shard, 0),
                cases.get(shard, 0),
            )
        )
    return items


def _by_shard(store: Store, plan: UnitPlan) -> dict[int, Unit]:
    """Return the unit as each missing shard has it."""
    chosen = plan.unit.by_shard(store.shards)
    besides = plan.stage.besides(store, plan.unit, plan.missing)
    units = {shard: chosen.get(shard, plan.unit) for shard in plan.missing}
    return {shard: replace(unit, runtime={**unit.runtime, **besides.get(shard, {})}) for shard, unit in units.items()}


def _manifest(
    store: Store,
    plan: UnitPlan,
    done: Mapping[tuple[str, int], Part],
    aside: Mapping[int, str],
    inputs: Mapping[str, str],
    busy: float,
    facts: Mapping[str, Any],
) -> Manifest:
    found = {**plan.present, **{shard: part for (unit, shard), part in done.items() if unit == plan.unit.name}}
    wanted = {shard: key for shard, key in plan.keys.items() if shard not in aside}
    unseen = {shard: key for shard, key in wanted.items() if shard not in found}
    found |= whole_parts(store, plan.unit.outputs, unseen, verify=False)
    parts = []
    for shard in sorted(wanted):
        part = found.get(shard)
        if part is None:
            raise StoreError(
                f"the part of shard {shard} is missing after stage '{plan.unit.name}'",
                where=store.storage.uri,
                remedy="Run the same command again.",
            )
        parts.append(part)
    worked = {"busy_seconds": round(busy, 3), "parts_made": len(plan.missing) - len(aside), **facts}
    left_out = {**plan.aside, **aside}
    return Manifest(
        unit=plan.unit.name,
        fingerprint=unit_fingerprint(plan.unit.name, part_keys(parts), left_out),
        version=plan.stage.version,
        config=plan.unit.described,
        tables=plan.unit.outputs,
        inputs=dict(inputs),
        parts=tuple(parts),
        run=worked,
        whole=plan.unit.whole,
        aside=left_out,
    )
