"""Stage extract: interactions -> notes, on Ray."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pipelines.stage import Inputs, Output, Stage, Unit
from schemas.config import RunConfig
from schemas.errors import SchemaError
from schemas.ids import canonical_json
from transforms import extractors


def units(config: RunConfig) -> list[Unit]:
    """One unit: the configured extractor, with its checked options and the hashes of the files that they name."""
    own = extractors.fingerprint_parts(config.extract.extractor, dict(config.extract.options))
    settings = {"extractor": own, "ontology_window": config.extract.ontology_window}
    return [Unit("extract", settings, ("ingest",), ("notes",))]


@lru_cache(maxsize=4)
def _extractor(identity: bytes) -> extractors.Extractor:
    """Make an extractor once a process; its identity holds the hashes of its files, which may change."""
    import orjson

    own: Mapping[str, Any] = orjson.loads(identity)
    return extractors.make(own["name"], own["options"])


async def process(inputs: Inputs, wanted: Sequence[Unit]) -> list[Output]:
    """Make the notes of one shard."""
    (unit,) = wanted
    own: Mapping[str, Any] = unit.config["extractor"]
    interactions = inputs.table("ingest", "interactions")
    notes = await _extractor(canonical_json(own)).extract(interactions, unit.config["ontology_window"])
    _check_rows(interactions, notes, own["name"])
    status = Counter(pc.cast(notes["status"], "string").to_pylist())
    return [Output({"notes": notes}, {f"notes_{name}": count for name, count in sorted(status.items())})]


def _check_rows(interactions: pa.Table, notes: pa.Table, name: str) -> None:
    """Check that an extractor kept its promise: one note an interaction, in the same order.

    Raises:
        SchemaError: It did not.
    """
    for column in ("case_id", "interaction_id"):
        given, made = (table[column].cast(pa.string()).combine_chunks() for table in (interactions, notes))
        if not given.equals(made):
            raise SchemaError(
                f"extractor '{name}' returned other rows than it was given",
                where=f"notes.{column}",
                remedy="An extractor gives one note an interaction, in the same order.",
            )


STAGE = Stage("extract", 1, "ray", units, process)
