"""Describes a corpus for `tagloom status`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from pipelines import journal, record
from pipelines.lock import holder
from pipelines.store import Generation, Store

SHOWN = 5
"""Shards set aside that are named for a unit; `describe` holds all of them."""


def describe(uri: str) -> dict[str, Any]:
    """Return what a corpus holds: shards, bytes, who writes to it, the newest run, replies, generations with units.

    Raises:
        StoreError: There is no corpus, or a manifest is damaged.
    """
    store = Store.open(uri)
    return {
        "corpus": uri,
        "shards": store.shards,
        "bytes": sum(size for _, size in store.storage.walk()),
        "writer": holder(store.storage),
        "run": record.newest(store.storage),
        "runs": record.runs(store.storage),
        "journals": [asdict(held) for held in journal.extractors(store.storage)],
        "generations": [_generation(Generation(store, name, head)) for name, head in sorted(store.heads().items())],
    }


def _generation(generation: Generation) -> dict[str, Any]:
    units, remarks = [], []
    if repairs := generation.head.get("facts", {}).get("repairs"):
        remarks.append("repaired at ingest: " + ", ".join(f"{name} {count:,}" for name, count in repairs.items()))
    for unit in generation.units:
        manifest = generation.manifest(unit)
        tables = [table for part in manifest.parts for table in part.tables.values()]
        units.append(
            {
                "unit": unit,
                "fingerprint": manifest.fingerprint,
                "parts": len(manifest.parts),
                "rows": sum(table.rows for table in tables),
                "bytes": sum(table.bytes for table in tables),
                "seconds": float(manifest.run.get("seconds", 0.0)),
                "made_at": str(manifest.run.get("made_at", ""))[:19].replace("T", " "),
                "stats": manifest.stats,
            }
        )
        if unit == "questions" and manifest.rows("rejects"):
            remarks.append(f"rejects: {manifest.rows('rejects'):,} (tagloom export rejects)")
        if unit.partition("/")[0] == "extract":
            asked = unit.partition("/")[2] or "notes"
            counts = {k.partition("_")[2]: v for k, v in manifest.stats.items() if k.startswith(("notes_", "pieces_"))}
            remarks.append(f"{asked}: " + ", ".join(f"{name} {count:,}" for name, count in counts.items()))
        if manifest.stats.get("no_seeds"):
            remarks.append(f"{unit}: {manifest.stats['no_seeds']:,} questions matched no seed and have no ranking")
    aside = generation.head.get("aside", {})
    waiting = generation.head.get("pending_aside", {})
    for group, what in ((aside, ""), (waiting, ", of the inputs that wait")):
        for unit, own in group.items():
            named = [f"shard {shard} ({reason})" for shard, reason in list(own.items())[:SHOWN]]
            more = f" and {len(own) - SHOWN} more" if len(own) > SHOWN else ""
            remarks.append(f"set aside in {unit}{what}: {', '.join(named)}{more}; run it again to make them")
    return {
        "name": generation.name,
        "extractor": extractor_of(generation.head.get("config", {}).get("extract", {})),
        "units": units,
        "pending": bool(generation.head.get("pending")),
        "aside": aside,
        "pending_aside": waiting,
        "remarks": remarks,
    }


def extractor_of(settings: Mapping[str, Any]) -> str:
    """Say in a few words who extracted: extractor and model, and for how many cases where another one has the rest."""
    named = " ".join(str(settings[key]) for key in ("extractor", "model") if settings.get(key))
    if not settings.get("cases") or not settings.get("rest"):
        return named
    return f"{named} for {len(settings['cases']):,} cases, else {extractor_of(settings['rest'])}"
