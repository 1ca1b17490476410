"""What `tagloom plan` tells: parts reused and to make, why, how long it may take, and what an engine may cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from pipelines import estimate, ingest, ingest_read
from pipelines.driver import all_sources, continued, default_shards, given_sources, starting_point
from pipelines.estimate import Asked, Rate
from pipelines.planner import Keys, UnitPlan, all_units, finished, named_parts, plan_unit, unit_fingerprint, whole_parts
from pipelines.sources import Source
from pipelines.storage import Storage
from pipelines.store import Generation, Store
from schemas.config import RunConfig
from schemas.errors import InputError, StoreError


@dataclass(frozen=True)
class UnitView:
    """One line of a plan.

    Attributes:
        exact: False where new inputs are not read yet, so that the shards which they touch are not known.
        estimate: Requests, or time at the rate last measured; empty where there are none.
    """

    unit: str
    reused: int
    to_make: int
    exact: bool
    estimate: str
    reason: str


@dataclass(frozen=True)
class CostView:
    """What engines are asked for, estimated.

    Attributes:
        units: One an extract unit and engine.
        total: Their sums by column; None where a part is not known.
        rough: True where texts are not read yet, so that the size of the input is all that is known.
        remarks: On what the figures rest.
    """

    units: tuple[Asked, ...]
    total: Mapping[str, Any]
    rough: bool
    remarks: tuple[str, ...]


@dataclass(frozen=True)
class PlanView:
    """A plan, ready to show.

    Attributes:
        cost: None where no engine is asked.
    """

    shards: int
    ingest: tuple[str, ...]
    units: tuple[UnitView, ...]
    cost: CostView | None
    summary: str

    def as_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self)


def plan(config: RunConfig, *, append: bool) -> PlanView:
    """Plan a run without doing anything.

    Raises:
        TagloomError: The configuration or an input is not valid.
    """
    ingest_read.check(config.ingest)
    given = given_sources(config, Storage(config.corpus))
    if Storage(config.corpus).exists("corpus.json"):
        store = Store.open(config.corpus)
        before = starting_point(store, config.name)
        config = continued(config, before, append)
        return plan_generation(store, config, all_sources(store, given, before, append), before)
    units = all_units(config)
    if not given:
        raise InputError("no corpus here and no input given", where=config.corpus, remedy="Name input files.")
    shards = default_shards(given) if config.shards == "auto" else config.shards
    lines = (_ingest_line(given, len(given)), "the corpus does not exist yet; this run makes it")
    size = sum(source.bytes for source in given)
    asked = {
        unit.name: estimate.of_unit(config.extract, unit.name, [], lambda *_: None, unread=size)
        for stage, unit in units
        if stage.name == "extract"
    }
    views = [UnitView("ingest", 0, shards, False, "", "not made before")]
    for _, unit in units:
        told = _requests(asked.get(unit.name, ()))
        views.append(UnitView(unit.name, 0, 1 if unit.whole else shards, False, told, "not made before"))
    return PlanView(shards, lines, tuple(views), _cost(asked, [], 0, rough=True), _summary(views))


def plan_generation(store: Store, config: RunConfig, sources: Sequence[Source], before: Generation | None) -> PlanView:
    """Plan what a generation lacks.

    Args:
        store: The corpus.
        config: The run, with all that it takes over from before.
        sources: Every input of the generation.
        before: What it starts from, to tell what changed.
    """
    units = all_units(config)
    unread = ingest.unread(store, config.ingest, sources)
    read = [ingest.source_key(store, config.ingest, s) for s in sources if s not in unread]
    keys = ingest.shard_keys(store.storage, read)
    views = [_ingest_view(store, unit, keys[unit], unread, before) for unit in ingest.OUTPUTS]
    upstream: dict[str, Mapping[int, str]] = dict(keys)
    rates = estimate.rates(Generation(store, name, head) for name, head in store.heads().items())
    size = sum(source.bytes for source in unread)
    if not unread and views[0].to_make:
        size = sum(source.bytes for source in sources) * views[0].to_make // len(keys["ingest"])
    asked: dict[str, list[Asked]] = {}
    most = 0

    def table(unit: str, name: str, shard: int) -> pa.Table | None:
        key = upstream.get(unit, {}).get(shard)
        return store.read_part(name, shard, key) if key and store.has_part((name,), shard, key) else None

    for stage, unit in units:
        planned = plan_unit(store, stage, unit, upstream, before)
        upstream[unit.name] = planned.keys
        if stage.name == "extract":
            missing = planned.missing
            asked[unit.name] = estimate.of_unit(
                config.extract, unit.name, missing, table, storage=store.storage, known=rates, unread=size
            )
            most = max(most, len(missing) if asked[unit.name] else 0)
        views.append(_view(planned, store, before, asked.get(unit.name, ()), exact=not unread))
    cost = _cost(asked, rates, most, rough=bool(size))
    return PlanView(store.shards, (_ingest_line(unread, len(sources)),), tuple(views), cost, _summary(views))


def _cost(asked: Mapping[str, Sequence[Asked]], rates: Sequence[Rate], shards: int, *, rough: bool) -> CostView | None:
    lines = tuple(one for ones in asked.values() for one in ones)
    if not lines:
        return None
    remarks = ["tokens are estimated from letters and signs"]
    if rough:
        each = estimate.BYTES_AN_INTERACTION
        remarks.append(f"rough: input that is not read yet is taken for one interaction in {each:,} bytes")
    if shards > estimate.SAMPLED:
        remarks.append(f"{estimate.SAMPLED} of {shards} shards were read and the sum was scaled")
    if any(line.requests for line in lines):
        models = sorted({line.measured for line in lines if line.requests and line.seconds is not None})
        named = ", ".join(name or "an unnamed model" for name in models)
        remarks.append(
            f"time at the rate last measured here, of {named}" if models else "no rate was measured here yet"
        )
    return CostView(lines, estimate.total(lines), rough, tuple(remarks))


def _requests(asked: Sequence[Asked]) -> str:
    return f"~{sum(one.requests for one in asked):,} requests" if asked else ""


def _ingest_line(unread: Sequence[Source], total: int) -> str:
    size = sum(source.bytes for source in unread) / 1e6
    return f"{total} input files; {len(unread)} to read ({size:,.1f} MB)"


def _ingest_view(store: Store, unit: str, keys: Keys, unread: Sequence[Source], before: Generation | None) -> UnitView:
    if finished(store, unit, unit_fingerprint(unit, keys)):
        missing = []
    else:
        there = whole_parts(store, ingest.OUTPUTS[unit], keys, named=named_parts(before, unit))
        missing = [shard for shard in keys if shard not in there]
    if unread:
        reason = "inputs are new or changed; which shards they touch is known once they are read"
        return UnitView(unit, len(keys) - len(missing), store.shards, False, "", reason)
    reason = ("inputs changed" if before else "not made before") if missing else ""
    return UnitView(unit, len(keys) - len(missing), len(missing), True, "", reason)


def _view(
    planned: UnitPlan, store: Store, before: Generation | None, asked: Sequence[Asked], *, exact: bool
) -> UnitView:
    to_make = len(planned.missing)
    name, reused = planned.unit.name, len(planned.keys) - to_make
    if not exact:
        most = 1 if planned.unit.whole else store.shards
        return UnitView(name, reused, most, False, _requests(asked), planned.reason or "new inputs")
    told = (_requests(asked) or _seconds(planned, before)) if to_make else ""
    return UnitView(name, reused, to_make, True, told, planned.reason)


def _seconds(planned: UnitPlan, before: Generation | None) -> str:
    """Scale the seconds that the unit's parts took last time; those of another extractor tell nothing."""
    if before is None or planned.unit.name not in before.units:
        return ""
    try:
        old = before.manifest(planned.unit.name)
    except StoreError:
        return ""
    if _extractor(old.config) != _extractor(planned.unit.config):
        return ""
    made, seconds = int(old.run.get("parts_made", 0)), float(old.run.get("seconds", 0.0))
    return f"~{seconds / made * len(planned.missing):.1f} s" if made else ""


def _extractor(config: Mapping[str, Any]) -> Any:
    return (config.get("extractor") or {}).get("name")


def _summary(views: list[UnitView]) -> str:
    to_make = sum(v.to_make for v in views)
    if not to_make:
        return "nothing to do: every part is there"
    least = "" if all(v.exact for v in views) else "at most "
    return f"{least}{to_make} parts to make, {sum(v.reused for v in views)} reused"
