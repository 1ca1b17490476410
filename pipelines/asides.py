"""What a user is told at the end of a run that went on without some shards."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from pipelines.failures import ShardsAsideError
from pipelines.planner import LACKS
from pipelines.store import Generation, Manifest, Store
from schemas.errors import StoreError

log = logging.getLogger(__name__)

SHOWN = 5
"""Shards, and cases of a shard, that are named; the head and the run's record hold all shards."""
JUDGED = "evaluate/questions"

Asides = Mapping[str, Mapping[int, str]]
"""Unit -> shard -> why it was set aside."""


def in_head(aside: Asides) -> dict[str, dict[str, str]]:
    """Return what a head keeps of shards that were set aside, in a fixed order."""
    return {unit: {str(shard): why for shard, why in sorted(own.items())} for unit, own in sorted(aside.items())}


def complaint(store: Store, aside: Asides, manifests: Mapping[str, Manifest]) -> ShardsAsideError | None:
    """Return the error that a run ends with after all is written; None where no shard was set aside.

    Args:
        store: The corpus.
        aside: What failed in this run.
        manifests: Unit -> manifest of the run.
    """
    # Units of one stage share what fails; its first unit speaks for them.
    failed: dict[tuple[str, int], str] = {}
    for unit, own in aside.items():
        for shard, why in own.items():
            failed.setdefault((unit.partition("/")[0], shard), why)
    if not failed:
        return None
    told = [
        f"{stage}, shard {shard}{_cases(store, manifests, shard)}: {why}"
        for (stage, shard), why in list(failed.items())[:SHOWN]
    ]
    if len(failed) > SHOWN:
        told.append(f"and {len(failed) - SHOWN} more")
    count = len({shard for _, shard in failed})
    word = f"{_shards(count)} {'was' if count == 1 else 'were'}"
    unscored = not_scored(manifests)
    lost = f" {unscored:,} questions of theirs are not scored." if unscored else ""
    if unread := unknown_questions(manifests):
        lost += f" How many questions the logs of {_shards(unread)} hold is not known; none of them is scored."
    return ShardsAsideError(
        f"{word} set aside: {'; '.join(told)}.{lost}",
        where=store.storage.uri,
        remedy="All else is done and kept. Run the same command again: it makes what is missing.",
    )


def remark(generation: Generation, units: Iterable[str] | None = None) -> str:
    """Return what a reader of a generation must know where some of its units lack shards, else nothing.

    Args:
        generation: The generation.
        units: Units that are read; None = all. Those that it does not hold do not count.
    """
    lacking: dict[int, str] = {}
    for unit in generation.units if units is None else units:
        if unit in generation.units:
            for shard, reason in generation.manifest(unit).aside.items():
                if shard not in lacking or not reason.endswith(LACKS):  # rather where it failed than what follows
                    lacking[shard] = unit
    if not lacking:
        return ""
    named = ", ".join(f"{shard} in '{unit}'" for shard, unit in sorted(lacking.items())[:SHOWN])
    more = f" and {len(lacking) - SHOWN} more" if len(lacking) > SHOWN else ""
    return (
        f"generation '{generation.name}' is incomplete: it lacks {_shards(len(lacking))} that failed ({named}{more}); "
        "'tagloom run' makes what is missing"
    )


def warn(generation: Generation, units: Iterable[str] | None = None) -> None:
    """Say so where what is read of a generation lacks shards; arguments as `remark`."""
    if told := remark(generation, units):
        log.warning("%s", told)


def _shards(count: int) -> str:
    return "1 shard" if count == 1 else f"{count:,} shards"


def unknown_questions(manifests: Mapping[str, Manifest]) -> int:
    """Count the shards whose questions could not be merged, so that nobody knows how many there are."""
    return len(manifests["questions"].aside) if JUDGED in manifests and "questions" in manifests else 0


def not_scored(manifests: Mapping[str, Manifest]) -> int:
    """Count the known questions of shards that evaluation leaves out; see `unknown_questions` for the others."""
    if JUDGED not in manifests or "questions" not in manifests:
        return 0
    left_out = manifests[JUDGED].aside
    return sum(p.tables["questions"].rows for p in manifests["questions"].parts if p.shard in left_out)


def _cases(store: Store, manifests: Mapping[str, Manifest], shard: int) -> str:
    found: list[Any] = []
    with suppress(StoreError):
        for part in manifests["ingest"].parts:
            if part.shard == shard:
                column = store.read_part("interactions", shard, part.key, ["case_id"])["case_id"]
                found = sorted(column.unique().to_pylist())
    if not found:
        return ""
    more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    return f" ({'case' if len(found) == 1 else 'cases'} {', '.join(found[:SHOWN])}{more})"
