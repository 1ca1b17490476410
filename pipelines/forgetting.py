"""What forgetting adds to the stage graph: a graph under `graph.forget` is built whole, then forgotten in part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa

from pipelines.stage import Inputs, Output, Unit
from schemas.config import AccessConfig, ForgetConfig
from schemas.errors import StoreError
from transforms.forgetting import COLUMNS, VERSION, forget, retrieved


def forgetful(unit: Unit, own: ForgetConfig) -> Unit:
    """Return the unit of a graph that is forgotten in part; it has a table more and a key of its own."""
    return replace(
        unit,
        config={**unit.config, "forget": {"version": VERSION, **own.model_dump(mode="json")}},
        reads=tuple(dict.fromkeys([*unit.reads, "ingest"])),
        outputs=(*unit.outputs, "forgotten"),
    )


def forgetting(inputs: Inputs, unit: Unit, built: Mapping[str, pa.Table]) -> Output:
    """Forget a part of the tables that a graph kind made of a shard; the unit's configuration says what."""
    given = unit.config["forget"]
    own = ForgetConfig.model_validate({key: given[key] for key in ForgetConfig.model_fields})
    hits = None if own.access is None else _hits(inputs, own.access)
    kept = forget(built["nodes"], built["edges"], inputs.table("ingest", "interactions", COLUMNS), own, hits)
    counts = {"pinned": kept.pinned, "forgotten": kept.forgotten.num_rows}
    tables = {**built, "nodes": kept.nodes, "edges": kept.edges, "forgotten": kept.forgotten}
    return Output(tables, {name: count for name, count in counts.items() if count})


def _hits(inputs: Inputs, access: AccessConfig) -> pa.Table | None:
    store = inputs.store
    manifest = store.find_manifest(access.unit, access.runs)
    if manifest is None:
        raise StoreError(
            f"the rankings {access.runs} of '{access.unit}', which tell what was retrieved, are gone",
            where=store.storage.uri,
            remedy="Make the generation anew with 'tagloom forget', from one that has such rankings.",
        )
    shards = {shard for shard, _ in inputs.parts["ingest"]}
    runs = [store.read_part("runs", part.shard, part.key) for part in manifest.parts if part.shard in shards]
    return retrieved(pa.concat_tables(runs).unify_dictionaries(), access.depth) if runs else None
