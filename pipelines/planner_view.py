"""What `tagloom plan` tells: parts reused and to make, why, and how long it may take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from pipelines import ingest
from pipelines.driver import all_sources, continued, default_shards, given_sources, starting_point
from pipelines.planner import Keys, UnitPlan, all_units, finished, plan_unit, unit_fingerprint, whole_parts
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
        estimate: Time at the rate last measured; empty where none was.
    """

    unit: str
    reused: int
    to_make: int
    exact: bool
    estimate: str
    reason: str


@dataclass(frozen=True)
class PlanView:
    """A plan, ready to show."""

    shards: int
    ingest: tuple[str, ...]
    units: tuple[UnitView, ...]
    summary: str

    def as_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self)


def plan(config: RunConfig, *, append: bool) -> PlanView:
    """Plan a run without doing anything.

    Raises:
        TagloomError: The configuration or an input is not valid.
    """
    ingest.check(config.ingest)
    given = given_sources(config, Storage(config.corpus))
    if not Storage(config.corpus).exists("corpus.json"):
        units = all_units(config)
        if not given:
            raise InputError("no corpus here and no input given", where=config.corpus, remedy="Name input files.")
        shards = default_shards(given) if config.shards == "auto" else config.shards
        lines = (_ingest_line(given, len(given)), "the corpus does not exist yet; this run makes it")
        views = [UnitView("ingest", 0, shards, False, "", "not made before")]
        views += [UnitView(u.name, 0, 1 if u.whole else shards, False, "", "not made before") for s, u in units]
        return PlanView(shards, lines, tuple(views), _summary(views))
    store = Store.open(config.corpus)
    before = starting_point(store, config.name)
    config = continued(config, before, append)
    units = all_units(config)
    sources = all_sources(store, given, before, append)
    unread = ingest.unread(store, config.ingest, sources)
    read = [ingest.source_key(store, config.ingest, s) for s in sources if s not in unread]
    keys = ingest.shard_keys(store.storage, read)
    views = [_ingest_view(store, unit, keys[unit], unread, before) for unit in ingest.OUTPUTS]
    upstream: dict[str, Mapping[int, str]] = dict(keys)
    for stage, unit in units:
        planned = plan_unit(store, stage, unit, upstream, before)
        upstream[unit.name] = planned.keys
        views.append(_view(planned, store, before, exact=not unread))
    return PlanView(store.shards, (_ingest_line(unread, len(sources)),), tuple(views), _summary(views))


def _ingest_line(unread: list[Source], total: int) -> str:
    size = sum(source.bytes for source in unread) / 1e6
    return f"{total} input files; {len(unread)} to read ({size:,.1f} MB)"


def _ingest_view(store: Store, unit: str, keys: Keys, unread: list[Source], before: Generation | None) -> UnitView:
    if finished(store, unit, unit_fingerprint(unit, keys)):
        missing = []
    else:
        there = whole_parts(store, ingest.OUTPUTS[unit], keys)
        missing = [shard for shard in keys if shard not in there]
    if unread:
        reason = "inputs are new or changed; which shards they touch is known once they are read"
        return UnitView(unit, len(keys) - len(missing), store.shards, False, "", reason)
    reason = ("inputs changed" if before else "not made before") if missing else ""
    return UnitView(unit, len(keys) - len(missing), len(missing), True, "", reason)


def _view(planned: UnitPlan, store: Store, before: Generation | None, *, exact: bool) -> UnitView:
    to_make = len(planned.missing)
    if not exact:
        most = 1 if planned.unit.whole else store.shards
        return UnitView(planned.unit.name, len(planned.keys) - to_make, most, False, "", planned.reason or "new inputs")
    estimate = _estimate(planned, before) if to_make else ""
    return UnitView(planned.unit.name, len(planned.keys) - to_make, to_make, True, estimate, planned.reason)


def _estimate(planned: UnitPlan, before: Generation | None) -> str:
    """Scale the seconds that the unit's parts took last time."""
    if before is None or planned.unit.name not in before.units:
        return ""
    try:
        old = before.manifest(planned.unit.name).run
    except StoreError:
        return ""
    made, seconds = int(old.get("parts_made", 0)), float(old.get("seconds", 0.0))
    return f"~{seconds / made * len(planned.missing):.1f} s" if made else ""


def _summary(views: list[UnitView]) -> str:
    to_make = sum(v.to_make for v in views)
    if not to_make:
        return "nothing to do: every part is there"
    least = "" if all(v.exact for v in views) else "at most "
    return f"{least}{to_make} parts to make, {sum(v.reused for v in views)} reused"
