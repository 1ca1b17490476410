"""The cases on which a new extractor is tried: named, drawn as a share of all, or as many as a budget allows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import pyarrow as pa
import xxhash

from pipelines import estimate
from pipelines.extract import is_engine
from pipelines.planner import all_units, part_keys
from pipelines.store import Generation
from schemas.config import ExtractConfig, RunConfig
from schemas.errors import UsageError
from schemas.ids import nearest, shard_of

SEED = 1
"""Seed of the hash that draws cases; that of shards is 0, so a draw is spread over them."""


@dataclass(frozen=True)
class Trial:
    """How to choose the cases on which a new extractor is tried; one attribute is set.

    Attributes:
        cases: Their ids.
        sample: Share of the cases, drawn by hash: a case stays in or out as the corpus grows.
        budget_tokens: Tokens that the upper end of the estimate may reach; cases are drawn in order of hash.
    """

    cases: tuple[str, ...] = ()
    sample: float | None = None
    budget_tokens: int | None = None


def choose(generation: Generation, extract: ExtractConfig, trial: Trial) -> tuple[str, ...]:
    """Return the cases of a trial, sorted; at least one.

    Args:
        generation: Whose cases.
        extract: The extractor to be tried, for the budget.
        trial: How to choose.

    Raises:
        UsageError: A case does not exist, a share is not one, or no case fits the budget.
    """
    if trial.cases:
        return _named(generation, trial.cases)
    drawn = sorted(_case_ids(generation), key=lambda case: (_draw(case), case))
    if trial.sample is not None:
        if not 0 < trial.sample <= 1:
            raise UsageError(f"{trial.sample} is no share above 0 and up to 1", where="--sample")
        return tuple(sorted([case for case in drawn if _draw(case) < trial.sample * 2**64] or drawn[:1]))
    budget = trial.budget_tokens or 0
    if not is_engine(extract):
        raise UsageError(
            f"extractor '{extract.extractor}' asks no model, so it needs no tokens", where="--budget-tokens"
        )
    taken, left, least = [], budget, None
    most = _most(generation, extract)
    for case in drawn:
        need = most(case)
        least = need if least is None else min(least, need)
        if need > budget:
            continue
        if need > left:
            break
        taken.append(case)
        left -= need
    if not taken:
        raise UsageError(
            f"{budget:,} tokens are not enough for any case; the smallest may take {least or 0:,}",
            where="--budget-tokens",
        )
    return tuple(sorted(taken))


def _draw(case: str) -> int:
    return xxhash.xxh64_intdigest(case.encode("utf-8"), SEED)


def _named(generation: Generation, cases: Iterable[str]) -> tuple[str, ...]:
    wanted = sorted(set(cases))
    there = _case_ids(generation, {shard_of(case, generation.store.shards) for case in wanted})
    for case in wanted:
        if case not in there:
            guess = nearest(case, sorted(_case_ids(generation)))
            raise UsageError(
                f"no case is called '{case}'",
                where="--cases",
                remedy=f"Did you mean '{guess}'?" if guess else "See them: tagloom export interactions -f csv",
            )
    return tuple(wanted)


def _case_ids(generation: Generation, shards: set[int] | None = None) -> set[str]:
    found: set[str] = set()
    for part in generation.manifest("ingest").parts:
        if shards is None or part.shard in shards:
            table = generation.store.read_part("interactions", part.shard, part.key, ["case_id"])
            found.update(table["case_id"].unique().to_pylist())
    return found


def _most(generation: Generation, extract: ExtractConfig) -> Callable[[str], int]:
    """Return the function that gives the tokens that a case may take; a journal counts for nothing, so that the same
    budget gives the same cases each time. Shards are read once.
    """
    store, keys = generation.store, part_keys(generation.manifest("ingest").parts)
    config = RunConfig(corpus=store.storage.uri, extract=extract)  # type: ignore[call-arg]
    rules = [estimate.rules(extract, unit.name) for _, unit in all_units(config, ["extract"])]
    known: dict[int, dict[str, float]] = {}

    def read(unit: str, table: str, shard: int) -> pa.Table | None:
        return store.read_part(table, shard, keys[shard]) if unit == "ingest" else None

    def most(case: str) -> int:
        shard = shard_of(case, store.shards)
        if shard not in known:
            needs = known[shard] = {}
            for own in rules:
                for _, name, load in estimate.by_case(own, extract, shard, read):
                    needs[name] = needs.get(name, 0.0) + load.most_tokens
        return round(known[shard].get(case, 0.0))

    return most
