"""Stage graph: notes -> nodes and edges of each graph kind, on Beam."""

from __future__ import annotations

from collections.abc import Sequence

from pipelines import extract, repair
from pipelines.forgetting import forgetful, forgetting
from pipelines.stage import Inputs, Output, Stage, Unit
from pipelines.wanted import graph_kinds
from schemas.config import RunConfig
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
        settings = {"graph": kind, "version": builder.VERSION, "options": options.model_dump(mode="json")}
        unit = Unit(f"graph/{kind}", settings, reads, ("nodes", "edges", "merges"))
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
    built = builder.build(tables, graphs.parse_options(builder, unit.config["options"]))._asdict()
    return [forgetting(inputs, unit, built) if "forget" in unit.config else Output(built)]


STAGE = Stage("graph", 2, "beam", units, process)
