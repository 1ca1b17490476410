"""Where the time, the bytes and the memory of a run went, worked out from its record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipelines.tally import stages_of

BOUNDS = ("reading", "writing", "processor", "engine", "waiting", "one slow shard", "start-up")
"""What a run's time can have gone to; see `bounds`."""
SLOWEST = 10


def profile(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the profile of a run, so far where it is at work.

    Args:
        record: `pipelines.record.read`.

    Returns:
        ``stages`` (seconds by phase, bytes, rows, parts, tokens, failures), ``slowest`` shards of all stages, ``where``
        (bound -> seconds of the run's time), ``bound`` (the largest of them), and the run's sums.
    """
    stages = stages_of(record)
    slowest = [{"stage": stage["stage"], **one} for stage in stages for one in stage["slowest"]]
    slowest.sort(key=lambda one: (-(one["factor"] or 0.0), -one["seconds"], one["stage"], one["shard"]))
    went: dict[str, dict[str, float]] = {}
    for stage in stages:  # steps of one name are added up
        sums = went.setdefault(stage["stage"], dict.fromkeys(BOUNDS, 0.0))
        for name, seconds in bounds(stage).items():
            sums[name] += seconds
    outside = max(0.0, record["seconds"] - sum(stage["seconds"] for stage in stages))
    where = {name: sum(one[name] for one in went.values()) for name in BOUNDS}
    where["start-up"] += outside
    first = max(BOUNDS, key=lambda name: where[name])
    in_stage = max(went, key=lambda stage: went[stage][first], default="")
    if first == "start-up" and outside >= (went[in_stage][first] if in_stage else 0.0):
        in_stage = ""
    return {
        **{name: record[name] for name in ("run", "what", "generation", "state", "seconds", "failures")},
        "cost": record["cost"],
        "stages": [_stage(stage) for stage in stages],
        "reused": [unit for unit, one in record["units"].items() if one["parts"] and not one["made"]],
        "slowest": slowest[:SLOWEST],
        "where": {name: round(seconds, 3) for name, seconds in where.items()},
        "bound": {
            "by": first,
            "seconds": round(where[first], 3),
            "share": round(where[first] / record["seconds"], 4) if record["seconds"] else 0.0,
            "stage": in_stage,
        },
    }


def bounds(stage: Mapping[str, Any]) -> dict[str, float]:
    """Split the seconds that a stage took by what they went to.

    Time before its first shard began, and time in which less was at work than one shard, is start-up. Time in which the
    last of several shards worked alone is that shard's. The rest is split as the work on all shards was. Work that
    neither computed nor waited for storage waited for the engine, or, without one, for a free core.
    """
    found = dict.fromkeys(BOUNDS, 0.0)
    cost = stage["cost"]
    found["one slow shard"] = stage["alone_seconds"]
    rest = max(0.0, stage["seconds"] - stage["start_seconds"] - stage["alone_seconds"])
    at_work = min(rest, cost["seconds"])
    found["start-up"] = stage["start_seconds"] + rest - at_work
    waiting = "engine" if stage["engine"] else "waiting"
    parts = {"reading": cost["reading"], "writing": cost["writing"], "processor": cost["cpu"], waiting: cost["waiting"]}
    whole = sum(parts.values())
    for name, seconds in parts.items():
        found[name] += at_work * seconds / whole if whole else 0.0
    return found


def _stage(stage: Mapping[str, Any]) -> dict[str, Any]:
    cost, engine = stage["cost"], stage["engine"] or {}
    return {
        "stage": stage["stage"],
        "unit": stage["unit"],
        "wall": stage["seconds"],
        "busy": cost["seconds"],
        **{name: cost[name] for name in ("cpu", "reading", "writing", "waiting", "bytes_read", "bytes_written")},
        "rows": stage["rows"],
        "rows_per_second": stage["rows_per_second"],
        "peak": cost["peak"],
        "made": stage["done"],
        "reused": stage["reused"],
        "median_seconds": stage["median_seconds"],
        "slowest": stage["slowest"],
        "requests": engine.get("requests", 0),
        "tokens": engine.get("prompt_tokens", 0) + engine.get("completion_tokens", 0),
        "failures": stage["failures"],
        "aside": stage["shards_aside"],
    }
