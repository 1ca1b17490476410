"""Stage evaluate: runs and questions -> metrics and comparisons of all presets, over the whole corpus."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from pipelines import rank
from pipelines.stage import Inputs, Output, Stage, Unit
from schemas.config import EvaluateConfig, RunConfig
from schemas.tables import empty
from transforms.evaluate import summarise
from transforms.metrics import question_metrics


def units(config: RunConfig) -> list[Unit]:
    """One unit: all presets of the run together, because they are compared."""
    presets = [unit.name for unit in rank.units(config)]
    settings = {**config.evaluate.model_dump(mode="json"), "depth": config.rank.depth, "presets": presets}
    return [
        Unit("evaluate", settings, ("ingest", "questions", *presets), ("question_metrics", "metrics", "comparisons"))
    ]


def process(inputs: Inputs, wanted: Sequence[Unit]) -> list[Output]:
    """Judge every shard, then aggregate; only the judgements of a shard's questions are kept."""
    (unit,) = wanted
    presets = [name.partition("/")[2] for name in unit.config["presets"]]
    own = EvaluateConfig.model_validate({k: unit.config[k] for k in EvaluateConfig.model_fields})
    judged = [
        question_metrics(
            {name: shard.table(f"rank/{name}", "runs") for name in presets},
            shard.table("questions", "questions"),
            shard.table("ingest", "interactions", ["case_id", "interaction_id", "session_id", "message_ids"]),
            ks=own.ks,
            depth=unit.config["depth"],
        )
        for shard in inputs.shards()
    ]
    every = pa.concat_tables(judged).unify_dictionaries() if judged else empty("question_metrics")
    return [Output({"question_metrics": every, **summarise(judged, presets, own)})]


STAGE = Stage("evaluate", 1, "ray", units, process, whole=True)
