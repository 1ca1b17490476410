"""Stage evaluate: runs and questions -> metrics of each question by shard, then means and comparisons over all."""

from __future__ import annotations

from collections.abc import Sequence

from pipelines import rank
from pipelines.stage import Inputs, Output, Stage, Unit
from schemas.config import EvaluateConfig, RunConfig
from transforms.contains import expecting
from transforms.evaluate import summarise
from transforms.metrics import question_metrics

JUDGED = "evaluate/questions"
"""Unit of the metrics of each question; new questions or logs make only the shards that they touch."""


def units(config: RunConfig) -> list[Unit]:
    """Two units, of all presets of the run together, because they are compared."""
    presets = [unit.name for unit in rank.units(config)]
    own = config.evaluate.model_dump(mode="json")
    judged = {"ks": own["ks"], "depth": config.rank.depth, "presets": presets}
    return [
        Unit(JUDGED, judged, ("ingest", "questions", *presets), ("question_metrics",)),
        Unit("evaluate", {**own, "presets": presets}, (JUDGED,), ("metrics", "comparisons"), whole=True),
    ]


def process(inputs: Inputs, wanted: Sequence[Unit]) -> list[Output]:
    """Judge the questions of one shard, or aggregate those of all."""
    (unit,) = wanted
    presets = [name.partition("/")[2] for name in unit.config["presets"]]
    if unit.name == JUDGED:
        questions = inputs.table("questions", "questions")
        columns = ["case_id", "interaction_id", "session_id", "message_ids"]
        if expecting(questions):
            columns += ["user_text", "assistant_text"]
        judged = question_metrics(
            {name: inputs.table(f"rank/{name}", "runs") for name in presets},
            questions,
            inputs.table("ingest", "interactions", columns),
            ks=unit.config["ks"],
            depth=unit.config["depth"],
        )
        return [Output({"question_metrics": judged})]
    own = EvaluateConfig.model_validate({key: unit.config[key] for key in EvaluateConfig.model_fields})
    parts = (shard.table(JUDGED, "question_metrics") for shard in inputs.shards())
    return [Output(summarise(parts, presets, own))]


STAGE = Stage("evaluate", 2, "ray", units, process)
