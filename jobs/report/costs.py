"""What the parts of a generation took to make: time, tokens, requests, bytes. All of it stands in the manifests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pipelines.stage import STAGES, load_stage
from pipelines.store import Generation, Manifest

_INGEST = ("ingest", "questions")
"""Units of the stage ingest, which is none of `STAGES`."""


@dataclass(frozen=True)
class UnitCost:
    """One unit.

    Attributes:
        seconds: From the start of the work to its end; units of a stage that were made together share it.
        busy: Seconds of all workers, likewise; None where the engine does not tell.
        engine: What a language model did for it: name -> number, those that are known.
        price: By `extract.prices`; None where none is set or no model was asked.
    """

    unit: str
    stage: str
    parts: int
    rows: int
    bytes: int
    seconds: float
    busy: float | None
    made_at: str
    code: str
    engine: tuple[tuple[str, float], ...]
    price: float | None


@dataclass(frozen=True)
class Costs:
    """All units, and the seconds of each stage."""

    units: tuple[UnitCost, ...]
    stages: tuple[tuple[str, float], ...]
    bytes: int
    asked: bool


_ENGINE = (
    ("requests", "requests"),
    ("from_journal", "replies from the journal"),
    ("prompt_tokens", "prompt tokens"),
    ("completion_tokens", "reply tokens"),
    ("cached_tokens", "prompt tokens cached"),
)


def costs(generation: Generation) -> Costs:
    """Read what the units of a generation took."""
    extract = generation.head.get("config", {}).get("extract", {})
    prices = extract.get("prices", {}) if isinstance(extract, Mapping) else {}
    units = tuple(_unit(generation.manifest(name), prices) for name in sorted(generation.units, key=_order))
    seconds: dict[str, dict[Any, float]] = {}
    for one in units:
        batches = seconds.setdefault(one.stage, {})
        batch = _batch(one)
        batches[batch] = max(batches.get(batch, 0.0), one.seconds)
    stages = tuple((stage, sum(batches.values())) for stage, batches in seconds.items())
    return Costs(units, stages, sum(one.bytes for one in units), any(one.engine for one in units))


def _order(unit: str) -> tuple[int, str]:
    stage = _stage(unit)
    return (("ingest", *STAGES).index(stage) if stage in ("ingest", *STAGES) else len(STAGES) + 1), unit


def _stage(unit: str) -> str:
    return "ingest" if unit in _INGEST else unit.partition("/")[0]


def _batch(one: UnitCost) -> Any:
    """Return what tells units that were made together, and so share their time, from others."""
    if one.stage == "ingest":
        return one.made_at[:16]
    if one.stage in STAGES and load_stage(one.stage).together:
        return one.busy
    return one.unit


def _unit(manifest: Manifest, prices: Mapping[str, Any]) -> UnitCost:
    run = manifest.run
    tables = [table for part in manifest.parts for table in part.tables.values()]
    known = {name: run[name] for name, _ in _ENGINE if isinstance(run.get(name), int | float)}
    busy = run.get("busy_seconds")
    return UnitCost(
        manifest.unit,
        _stage(manifest.unit),
        len(manifest.parts),
        sum(table.rows for table in tables),
        sum(table.bytes for table in tables),
        float(run.get("seconds", 0.0)),
        # Ingest does not say: one merge makes parts of two units.
        float(busy) if busy else None,
        str(run.get("made_at", ""))[:19].replace("T", " "),
        str(run.get("code", "")),
        tuple((word, float(known[name])) for name, word in _ENGINE if name in known),
        _price(known, float(run.get("seconds", 0.0)), prices) if known.get("requests") else None,
    )


def _price(known: Mapping[str, float], seconds: float, prices: Mapping[str, Any]) -> float | None:
    parts = (
        ("prompt", known.get("prompt_tokens", 0) / 1e6),
        ("completion", known.get("completion_tokens", 0) / 1e6),
        ("hour", seconds / 3600),
    )
    told = [prices[name] * amount for name, amount in parts if prices.get(name) is not None]
    return sum(told) if told else None
