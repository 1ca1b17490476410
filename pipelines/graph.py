"""Stage graph: notes -> nodes and edges of each graph kind, on Beam."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import partial
from typing import Any, cast

import pyarrow as pa

from indexers.shard import Singles
from pipelines import embed, extract, repair
from pipelines.forgetting import forgetful, forgetting
from pipelines.stage import Inputs, Output, Stage, Unit
from pipelines.wanted import graph_kinds
from schemas.config import EmbedConfig, RunConfig
from schemas.errors import ConfigError
from schemas.ids import nearest
from transforms import graft, graphs

READS = {
    "interactions": "ingest",
    "notes": "extract",
    "facts": "extract/facts",
    "concepts": "extract/facts",
    "reflections": "extract/reflections",
    "entities": "extract/entities",
    "relations": "extract/entities",
    "triples": "extract/triples",
}
"""Table -> the unit that a graph builder gets it from. A unit that the run does not have gives an empty table."""

_ALONE = threading.Lock()
"""Held while texts are embedded: Beam's threads share the process and its one embedder."""


def units(config: RunConfig) -> list[Unit]:
    """One unit a graph kind."""
    kinds = graph_kinds(config)
    made = {unit.name for unit in extract.units(config)} | {"ingest"}
    named = [("options", kind) for kind in config.graph.options] + [("forget", kind) for kind in config.graph.forget]
    for section, kind in named:
        if kind not in kinds:
            guess = nearest(kind, kinds)
            raise ConfigError(
                f"graph.kinds has no '{kind}'",
                where=f"graph.{section}.{kind}",
                remedy=f"Did you mean '{guess}'?" if guess else f"Kinds of this run: {', '.join(kinds)}.",
            )
    found = []
    for kind in kinds:
        builder = graphs.load(kind)
        options = graphs.parse_options(builder, config.graph.options.get(kind, {}))
        reads = tuple(dict.fromkeys(READS[table] for table in builder.INPUTS if READS[table] in made))
        if config.graph.repairs and repair.MENDED & set(builder.INPUTS):
            reads = (*reads, repair.REPAIR)
        settings: dict[str, Any] = {
            "graph": kind,
            "version": builder.VERSION,
            "options": options.model_dump(mode="json"),
        }
        runtime: dict[str, Any] = {}
        if getattr(options, "merge_cosine", None) is not None:
            settings["embed"], located = embed.identified(config.embed)
            runtime = config.embed.model_dump() | located
        unit = Unit(f"graph/{kind}", settings, reads, ("nodes", "edges", "merges"), runtime=runtime)
        own = config.graph.forget.get(kind)
        found.append(unit if own is None else forgetful(unit, own))
    return found


def process(inputs: Inputs, wanted: Sequence[Unit]) -> list[Output]:
    """Build one graph kind for one shard."""
    (unit,) = wanted
    kind = unit.config["graph"]
    builder = graphs.load(kind)
    tables = {name: inputs.table(READS[name], name) for name in builder.INPUTS}
    if repair.REPAIR in unit.reads:
        tables = graft.mended(tables, inputs.table(repair.REPAIR, "repairs"))
    options = graphs.parse_options(builder, unit.config["options"])
    if "embed" in unit.config:
        give = partial(_vectors, EmbedConfig.model_validate(unit.runtime))
        built = cast("graphs.MergingKind", builder).build(tables, options, give)._asdict()
    else:
        built = builder.build(tables, options)._asdict()
    return [forgetting(inputs, unit, built) if "forget" in unit.config else Output(built)]


def _vectors(own: EmbedConfig, strings: pa.Array) -> Singles:
    with _ALONE:
        return embed.embedded(own, strings.to_pylist(), "document")


STAGE = Stage("graph", 2, "beam", units, process)
