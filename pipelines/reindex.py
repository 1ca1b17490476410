"""Re-index: a generation made anew under other settings, beside the one that it goes on from.

Nothing is read again and nothing is overwritten: the new generation takes the inputs and settings of the old one, with
the settings given now above them, and makes only the parts that differ. Names move once all of it is there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pipelines import ingest
from pipelines.driver import RunResult, build, conclude, continued, open_store
from pipelines.extract import is_engine, variants
from pipelines.lock import writing
from pipelines.observe import observing
from pipelines.planner import all_units, part_keys, plan_unit
from pipelines.planner_view import PlanView, plan_generation
from pipelines.progress import Progress
from pipelines.sources import Source
from pipelines.store import Generation, Store
from pipelines.trial import Trial, choose
from schemas.config import NAME_PATTERN, ExtractConfig, RunConfig
from schemas.errors import StoreError, UsageError


@dataclass(frozen=True)
class Reindex:
    """A re-index that is prepared.

    Attributes:
        before: What it goes on from.
        old: Settings of `before`.
        config: Settings of the new generation, with its name.
        sources: Its inputs: those of `before`.
        keep: Name that what the new name points at now will have; empty where the name is new.
        heads: What the names meant when this was prepared.
    """

    store: Store
    before: Generation
    old: RunConfig
    config: RunConfig
    sources: tuple[Source, ...]
    keep: str
    heads: Mapping[str, Any]

    @property
    def settings(self) -> dict[str, tuple[Any, Any]]:
        """Setting -> what it was and what it will be, where these differ."""
        passing = {"corpus", "name", "inputs", "questions", "compute", "beam"}
        was, now = (_flat(config.model_dump(mode="json", exclude=passing)) for config in (self.old, self.config))
        return {key: (was.get(key), now[key]) for key in now if was.get(key) != now[key]}

    def plan(self) -> PlanView:
        """Tell what it would make and cost."""
        return plan_generation(self.store, self.config, self.sources, self.before)


@dataclass(frozen=True)
class Reindexed:
    """A re-index that is done.

    Attributes:
        result: What was made.
        equal: Generation that it equals, which then is the only one that is left; empty where it is new.
        kept: Name of what the new name pointed at before; empty where it pointed at nothing.
    """

    result: RunResult
    equal: str
    kept: str


def _flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in settings.items():
        if isinstance(value, dict) and key != "rest":
            found |= _flat(value, f"{prefix}{key}.")
        else:
            found[prefix + key] = value
    return found


def prepare(
    config: RunConfig,
    *,
    origin: str | None = None,
    name: str | None = None,
    keep: str | None = None,
    trial: Trial | None = None,
    retry_failed: bool = False,
) -> Reindex:
    """Settle what a re-index goes on from, under which settings, on which cases, and under which names.

    Args:
        config: The corpus and the settings that shall be other; inputs in it are passed over.
        origin: Generation to go on from; default is the configuration's name.
        name: Name of the new one; default is the next free ``ORIGIN-2``. Where it is in use, it moves.
        keep: Name for what `name` points at now; default is the next free ``NAME-1``.
        trial: Cases that the new settings of `extract` are for, the others keep their extractor; None = all.
        retry_failed: Ask an engine again about what it failed at.

    Raises:
        UsageError: A name, a case or a choice is not valid.
        StoreError: There is no such corpus or generation.
    """
    store = Store.open(config.corpus)
    open_store(config, ())  # the number of shards cannot change
    heads = store.heads()
    before = store.generation(config.name if origin is None else origin)
    if "extract" not in before.units:
        raise UsageError(
            f"generation '{before.name}' was ingested but never run",
            where=config.corpus,
            remedy=f"Run it first: tagloom run -C {config.corpus}",
        )
    name, keep = _names(heads, before.name, name, keep)
    here = config.model_copy(update={"inputs": (), "questions": (), "name": name})
    old = continued(RunConfig(corpus=config.corpus, name=name), before, True)  # type: ignore[call-arg]
    new = continued(here, before, True)
    if retry_failed:
        if trial:
            raise UsageError("what failed is asked again in all cases", where="--retry-failed")
        extract = _again(new.extract, before)
        if _extract_units(new) != _extract_units(old):
            raise UsageError(
                "what failed is asked again under the settings of 'extract' that it failed under; others are given",
                where="--retry-failed",
                remedy="Leave them out, or re-index with them and without --retry-failed.",
            )
        _check_same(store, before, old, "notes that did not fail")
        new = new.model_copy(update={"extract": extract})
    if trial:
        extract = _tried(store, before, old, new, trial)
        new = new.model_copy(update={"extract": extract})
    sources = tuple(ingest.known_sources(store, before.head["sources"]))
    return Reindex(store, before, old, new, sources, keep, heads)


def _names(heads: Mapping[str, Any], origin: str, name: str | None, keep: str | None) -> tuple[str, str]:
    for given, where in ((name, "--name"), (keep, "--keep")):
        if given is not None and not re.fullmatch(NAME_PATTERN, given):
            raise UsageError(f"'{given}' is no name of a generation", where=where, remedy="Use letters, digits, . _ -")
    name = name or _free(heads, origin, 2)
    if name not in heads:
        if keep is not None:
            raise UsageError(f"nothing is called '{name}' yet, so there is nothing to keep", where="--keep")
        return name, ""
    if keep in heads or keep == name:
        raise UsageError(f"a generation is called '{keep}' already", where="--keep", remedy="Choose another name.")
    return name, keep or _free(heads, name, 1)


def _free(heads: Mapping[str, Any], stem: str, number: int) -> str:
    while f"{stem[:56]}-{number}" in heads:
        number += 1
    return f"{stem[:56]}-{number}"


def _again(extract: ExtractConfig, before: Generation) -> ExtractConfig:
    """Raise the round of every engine, unless nothing failed.

    Raises:
        UsageError: No engine is asked.
    """
    if not any(is_engine(one) for one in variants(extract)):
        raise UsageError(
            f"extractor '{extract.extractor}' asks no model, so asking again changes nothing", where="--retry-failed"
        )
    units = [before.manifest(unit) for unit in before.units if unit.partition("/")[0] == "extract"]
    if not any(count for unit in units for name, count in unit.stats.items() if name.endswith("_failed")):
        return extract

    def raised(one: ExtractConfig) -> ExtractConfig:
        rest = one.rest and raised(one.rest)
        return one.model_copy(update={"rest": rest, "retry_round": one.retry_round + is_engine(one)})

    return raised(extract)


def _tried(store: Store, before: Generation, old: RunConfig, new: RunConfig, trial: Trial) -> ExtractConfig:
    """Return the section where some cases have the new extractor and the others that of before."""
    everywhere = new.extract.model_copy(update={"cases": (), "rest": None})
    whole = new.model_copy(update={"extract": everywhere})
    if _extract_units(whole) == _extract_units(old):
        return old.extract
    _check_same(store, before, old, "the other cases")
    ingested = Generation(store, before.name, {"units": {**before.units, **before.head.get("pending", {})}})
    cases = choose(ingested, everywhere, trial)
    found: dict[str, Any] = {"cases": cases, "rest": _without(old.extract, frozenset(cases))}
    if trial.budget_tokens is not None:
        found["budget_tokens"] = trial.budget_tokens
    return everywhere.model_copy(update=found)


def _without(extract: ExtractConfig, cases: frozenset[str]) -> ExtractConfig:
    """Return an extractor and its rest without some cases, and without those that are left with none."""
    if not extract.cases or extract.rest is None:
        return extract
    left, rest = tuple(case for case in extract.cases if case not in cases), _without(extract.rest, cases)
    return extract.model_copy(update={"cases": left, "rest": rest}) if left else rest


def _extract_units(config: RunConfig) -> list[tuple[str, dict[str, Any]]]:
    return [(unit.name, unit.described) for _, unit in all_units(config, ["extract"])]


def _check_same(store: Store, before: Generation, old: RunConfig, whose: str) -> None:
    """Make sure that the settings of before still mean what they meant, so that what is not concerned stays.

    Of shards that were set aside there is nothing that could stay.

    Args:
        store: The corpus.
        before: What the re-index goes on from.
        old: Its settings.
        whose: What must stay.

    Raises:
        UsageError: A file that they name, or the code, is not what it was.
    """
    ingested = before.manifest("ingest")
    upstream: dict[str, Mapping[int, str]] = {"ingest": part_keys(ingested.parts)}
    aside: dict[str, Mapping[int, str]] = {"ingest": ingested.aside}
    for stage, unit in all_units(old, ["extract"]):
        planned = plan_unit(store, stage, unit, upstream, before, aside)
        made = before.manifest(unit.name) if unit.name in before.units else None
        if made is not None:
            upstream[unit.name], aside[unit.name] = part_keys(made.parts), made.aside
        wanted = {shard: key for shard, key in planned.keys.items() if made is None or shard not in made.aside}
        if made is None or wanted != upstream[unit.name]:
            raise UsageError(
                f"{whose} would be made anew as well: {planned.reason or 'their extractor is another'}",
                where=unit.name,
                remedy="What made them has changed since. Give a prompt or file its old content back and the new one "
                "another name, or re-index all cases.",
            )


def run(prepared: Reindex, *, wait: float = 0.0, progress: Progress | None = None) -> Reindexed:
    """Make the generation, then move the names, all at once.

    Args:
        prepared: What to do.
        wait: Seconds to wait while another run holds the corpus.
        progress: Who is told.

    Raises:
        StoreError: A generation that it concerns was replaced since it was prepared.
        TagloomError: Anything that a user must mend; finished parts stay for the next try and no name has moved.
    """
    store, name, keep = prepared.store, prepared.config.name, prepared.keep
    with writing(store.storage, wait) as held:
        heads = store.heads()
        if any(heads.get(one) != prepared.heads.get(one) for one in (prepared.before.name, name, keep)):
            raise StoreError(
                f"generation '{prepared.before.name}' or '{name}' was replaced meanwhile",
                where=store.storage.uri,
                remedy="Run the same command again: it goes on from what is there now.",
            )
        with observing(store.storage, prepared.config, progress, "reindex") as watch:
            result = build(store, prepared.config, prepared.sources, prepared.before, progress=watch)
            head = result.generation.head
            rivals = [prepared.before.name, *([name] if name in heads else heads)]
            equal = next((one for one in rivals if _same(heads[one], head)), "")
            if not equal:
                held.check()
                store.move_heads({name: head, **({keep: heads[name]} if keep else {})})
            conclude(watch, result)
    return Reindexed(result, equal, "" if equal else keep)


def _same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return one.get("units") == other["units"] and sorted(one.get("sources", ())) == sorted(other["sources"])
