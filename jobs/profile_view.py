"""Shows where the time, the bytes and the memory of a run went."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jobs import console
from pipelines import record
from pipelines.profiles import profile
from pipelines.store import Store
from schemas.errors import UsageError

SHOWN = 5
"""Slow shards that are shown."""
NOTABLE = 1.5
"""A shard is shown as slow from this multiple of the median on, ..."""
LONG_SECONDS = 0.5
"""... and where it took so long."""


def show(corpus: str, run: str | None, *, as_json: bool) -> None:
    """Show the profile of a run, the newest unless one is named.

    Raises:
        UsageError: It has left no record.
        StoreError: There is no corpus, or the record is damaged.
    """
    storage = Store.open(corpus).storage
    names = record.runs(storage) if run is None else [run]
    if not names:
        raise UsageError("no run has left a record here yet", where=corpus, remedy="Begin one: tagloom run.")
    found = profile(record.read(storage, names[0]))
    if as_json:
        console.emit_json(found)
        return
    console.emit(
        f"run {found['run']} ({found['what']}, generation '{found['generation']}'): {found['state']}, "
        f"{console.duration(found['seconds'])}"
    )
    if found["stages"]:
        console.emit("\n" + _seconds(found))
        console.emit("\n" + _amounts(found))
    slow = [one for one in found["slowest"] if (one["factor"] or 0.0) >= NOTABLE and one["seconds"] >= LONG_SECONDS]
    for one in slow[:SHOWN]:
        console.emit(
            f"slow: shard {one['shard']} of {one['stage']} took {console.duration(one['seconds'])}, "
            f"{one['factor']:g} times the median"
        )
    for stage in found["stages"]:
        if stage["failures"]:
            told = ", ".join(f"{kind} {count:,}" for kind, count in stage["failures"].items())
            aside = f"; {console.counted(stage['aside'], 'shard')} set aside" if stage["aside"] else ""
            console.emit(f"failed attempts in {stage['stage']}: {told}{aside}")
    if found["cost"].get("retries"):
        console.emit(f"storage was asked again {console.counted(found['cost']['retries'], 'time')}")
    if found["reused"]:
        console.emit(f"whole from before: {', '.join(found['reused'])}")
    console.emit(_bound(found))


def _seconds(found: Mapping[str, Any]) -> str:
    rows = [
        [
            stage["stage"],
            *(f"{stage[name]:.1f}" for name in ("wall", "busy", "cpu", "reading", "writing", "waiting")),
            f"{stage['made']:,}",
            f"{stage['reused']:,}",
            stage["unit"],
        ]
        for stage in found["stages"]
    ]
    heads = ["seconds", "wall", "busy", "cpu", "reading", "writing", "waiting", "made", "kept", "of"]
    return console.table(heads, rows, "l" + "r" * 8 + "l")


def _amounts(found: Mapping[str, Any]) -> str:
    asked = any(stage["requests"] for stage in found["stages"])
    rows = []
    for stage in found["stages"]:
        row = [
            stage["stage"],
            f"{stage['rows']:,}" if stage["rows"] else "-",
            f"{stage['rows_per_second']:,.0f}" if stage["rows"] else "-",
            *(console.size(stage[name]) if stage[name] else "-" for name in ("bytes_read", "bytes_written", "peak")),
        ]
        rows.append([*row, *([f"{stage['requests']:,}", f"{stage['tokens']:,}"] if asked else [])])
    heads = ["amounts", "rows", "rows/s", "read", "written", "memory", *(["requests", "tokens"] if asked else [])]
    return console.table(heads, rows)


def _bound(found: Mapping[str, Any]) -> str:
    bound = found["bound"]
    where = f", most of it in {bound['stage']}" if bound["stage"] else ""
    names = {"processor": "the processor", "engine": "the engine", "waiting": "waiting for a free core"}
    by = names.get(bound["by"], bound["by"])
    return f"bounded by {by}: {bound['share']:.0%} of {console.duration(found['seconds'])}{where}"
