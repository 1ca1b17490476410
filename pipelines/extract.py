"""Stage extract: interactions -> notes, on Ray."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import pyarrow.compute as pc

from pipelines.stage import Inputs, Output, Stage, Unit
from schemas.config import RunConfig
from transforms import extractors


def units(config: RunConfig) -> list[Unit]:
    """One unit: the configured extractor."""
    own = extractors.fingerprint_parts(config.extract.extractor, dict(config.extract.options))
    settings = {
        "extractor": own,
        "options": dict(config.extract.options),
        "ontology_window": config.extract.ontology_window,
    }
    return [Unit("extract", settings, ("ingest",), ("notes",))]


@cache
def _extractor(name: str, options: str) -> extractors.Extractor:
    return extractors.make(name, json.loads(options))


async def process(inputs: Inputs, wanted: Sequence[Unit]) -> list[Output]:
    """Make the notes of one shard."""
    (unit,) = wanted
    config: Mapping[str, Any] = unit.config
    extractor = _extractor(config["extractor"]["name"], json.dumps(config["options"], sort_keys=True))
    notes = await extractor.extract(inputs.table("ingest", "interactions"), config["ontology_window"])
    status = Counter(pc.cast(notes["status"], "string").to_pylist())
    return [Output({"notes": notes}, {f"notes_{name}": count for name, count in sorted(status.items())})]


STAGE = Stage("extract", 1, "ray", units, process)
