"""Stage experiment: variants of a generation's stores, ranked and judged, then what comes out as table `results`.

It is no stage of `tagloom run`. Its units hang on the generation beside those of the run (``experiments`` in its head):
``experiment/NAME/VARIANT`` has `question_metrics`, one part a shard, and ``experiment/NAME`` has `results`. They have
keys like all others, so an experiment resumes, runs on Ray, and does nothing when nothing changed. Notes and facts are
read, never made; of stores that are derived, graphs and indexes are made in memory by the stages' own functions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from indexers import presets
from indexers.rank import rank_shard
from pipelines import experiments
from pipelines.embed import Kept
from pipelines.evaluate import JUDGED
from pipelines.experiments import Asked
from pipelines.held import Held, make
from pipelines.stage import Inputs, Output, Stage, Unit
from pipelines.storage import Storage
from pipelines.store import Store
from schemas.config import EvaluateConfig, RunConfig
from schemas.errors import UsageError
from schemas.tables import build, empty
from transforms import diagnose
from transforms.contains import expecting
from transforms.derive import Log, named_cases, pooled, sampled
from transforms.derived import Derived, groups
from transforms.experiments import STORE, results
from transforms.metrics import question_metrics

NAME = "experiment"


def units(config: RunConfig) -> list[Unit]:
    """Return none: an experiment is no part of a run."""
    return []


def process(inputs: Inputs, wanted: Sequence[Unit]) -> list[Output]:
    """Judge the questions of one shard (of all, where they are pooled) in a variant, or make the results."""
    (unit,) = wanted
    if "variant" not in unit.config:
        return [Output({"results": _results(inputs, unit)})]
    stores = unit.config["stores"]
    how = _How(inputs, unit)
    judged = how.as_they_are() if stores["kind"] == "same" else how.derived()
    return [Output({"question_metrics": judged}, {"questions": how.asked, "stores": how.stores})]


def asked_for(config: Mapping[str, Any]) -> Asked:
    """Return what a unit of results is asked for."""
    experiment = experiments.load(config["experiment"])
    return Asked(
        tuple(config["presets"]),
        config["baseline"],
        experiment.Options.model_validate(config["options"]),
        EvaluateConfig.model_validate(config["evaluate"]),
        tuple(config["sides"]),
    )


def _results(inputs: Inputs, unit: Unit) -> pa.Table:
    asked = asked_for(unit.config)
    experiment = experiments.load(unit.config["experiment"])
    read = {name.rpartition("/")[2]: name for name in unit.reads}
    if asked.sides:
        read = {asked.sides[0]: JUDGED}

    def parts(name: str) -> Iterator[pa.Table]:
        if name in read:
            for shard in inputs.shards():
                yield shard.table(read[name], "question_metrics")
            return
        other = Store(Storage(unit.runtime["uri"]), unit.runtime["shards"])
        for shard_number, key in unit.runtime["parts"]:
            yield other.read_part("question_metrics", shard_number, key)

    found = results(experiment.NAME, experiment.results(parts, asked))
    if not found.num_rows:
        raise UsageError(
            "no question has evidence, so there is nothing to measure",
            where=f"experiment {experiment.NAME}",
            remedy="Give questions with gold ids or expected texts: tagloom run --questions FILE",
        )
    return found


class _How:
    """One variant on one shard."""

    def __init__(self, inputs: Inputs, unit: Unit) -> None:
        self.inputs, self.unit = inputs, unit
        self.config = unit.config
        # In an order that the key knows: it does not know that of a mapping.
        self.presets = [presets.rebuilt(name, described) for name, described in sorted(unit.config["presets"].items())]
        self.asked = self.stores = 0

    def as_they_are(self) -> pa.Table:
        """Judge the questions over their own cases."""
        interactions = self.inputs.table("ingest", "interactions")
        questions = named_cases(self.inputs.table("questions", "questions"), self.config["stores"].get("cases"))
        runs = self._rank(self.inputs, interactions, questions)
        judged = [self._judged(runs, questions, interactions), _sizes(questions, interactions, questions)]
        self.asked, self.stores = len(questions), len(questions["case_id"].unique())
        if "within" in self.config["stores"]:
            judged += self._diagnosis(runs, questions, interactions)
        return pa.concat_tables(judged).unify_dictionaries()

    def derived(self) -> pa.Table:
        """Judge the questions over stores made of their cases."""
        wanted = self.config["stores"]
        log = Log(
            named_cases(self.inputs.table("ingest", "interactions"), wanted.get("cases")).combine_chunks(),
            named_cases(self.inputs.table("questions", "questions"), wanted.get("cases")).combine_chunks(),
        )
        pool = wanted["kind"] == "pooled"
        stores = (
            pooled(log) if pool else sampled(log, wanted["seed"], count=wanted.get("count"), share=wanted.get("share"))
        )
        config = RunConfig.model_validate(self.unit.runtime["config"])
        judged = []
        for some in groups(log, stores, pool=pool):
            if not len(some.stores.questions):
                continue
            interactions, questions = some.interactions(), some.questions()
            held = Held(self.inputs.store, {} if pool else self.inputs.parts, self._tables(some))
            made = [name for preset in self.presets for name in preset.units]
            make(config, held, dict.fromkeys(made), self.inputs.parts["ingest"][0][0])
            runs = self._rank(held, interactions, questions)
            judged.append(some.asked_by(self._judged(runs, questions, interactions)))
            judged.append(_sizes(questions, interactions, log.questions.take(pa.array(some.stores.questions))))
            self.asked, self.stores = self.asked + len(questions), self.stores + len(some.names)
        return pa.concat_tables(judged).unify_dictionaries() if judged else empty("question_metrics")

    def _tables(self, some: Derived) -> dict[tuple[str, str], pa.Table]:
        """Return what is known of the stores without asking or computing anything."""
        tables = {("ingest", "interactions"): some.interactions(), ("questions", "questions"): some.questions()}
        for unit in self.unit.reads:
            stage, _, about = unit.partition("/")
            if stage == "embed":
                tables[unit, "vectors"] = some.vectors(self.inputs.table(unit, "vectors"), about)
            for name in self.unit.runtime["tables"].get(unit, ()) if stage == "extract" else ():
                table = self.inputs.table(unit, name)
                if "interaction_id" in table.column_names:
                    tables[unit, name] = some.by_interaction(name, table)
                elif "interaction_ids" in table.column_names:
                    tables[unit, name] = some.by_evidence(name, table)
        return tables

    def _rank(self, inputs: Inputs, interactions: pa.Table, questions: pa.Table) -> dict[str, pa.Table]:
        runs, _ = rank_shard(
            self.presets,
            interactions,
            questions,
            inputs.table,
            self.config["depth"],
            embedding=Kept(inputs.table),
            language=self.config["language"],
        )
        return runs

    def _judged(self, runs: dict[str, pa.Table], questions: pa.Table, interactions: pa.Table) -> pa.Table:
        columns = ["case_id", "interaction_id", "session_id", "message_ids"]
        columns += ["user_text", "assistant_text"] if expecting(questions) else []
        return question_metrics(
            runs, questions, interactions.select(columns), ks=self.config["ks"], depth=self.config["depth"]
        )

    def _diagnosis(self, runs: dict[str, pa.Table], questions: pa.Table, interactions: pa.Table) -> list[pa.Table]:
        notes = self.inputs.table("extract", "notes")
        wanted = self.config["stores"]
        found = [
            diagnose.missed_gold(runs, questions, interactions, notes, wanted["within"]),
            diagnose.tag_figures(notes),
        ]
        for kind in wanted["graphs"]:
            tables = (self.inputs.table(f"graph/{kind}", name) for name in ("nodes", "edges"))
            found.append(diagnose.degree_figures(kind, *tables))
        return found


def _sizes(questions: pa.Table, interactions: pa.Table, named: pa.Table) -> pa.Table:
    """Return the sessions and interactions of the store that each question is asked of.

    Args:
        questions: Table `questions`; its cases are those of `interactions`.
        interactions: Table `interactions`.
        named: The same questions, by the names that they are to have.
    """
    columns = {name: pl.Series(interactions[name].cast(pa.string())) for name in ("case_id", "session_id")}
    sizes = (
        pl.DataFrame(columns)
        .group_by("case_id")
        .agg(pl.col("session_id").n_unique().alias("sessions"), pl.len().alias("interactions"))
    )
    asked = pl.DataFrame({"case_id": pl.Series(questions["case_id"].cast(pa.string()))}).with_row_index()
    joined = asked.join(sizes, on="case_id", how="inner").sort("index")
    about = named.take(joined["index"].to_arrow())
    parts = []
    for metric in ("sessions", "interactions"):
        parts.append(
            build(
                "question_metrics",
                {
                    **{n: about[n] for n in ("case_id", "question_id", "question_type", "answerable")},
                    "retriever": [""] * len(about),
                    "level": [STORE] * len(about),
                    "metric": [metric] * len(about),
                    "value": np.asarray(joined[metric].to_numpy(), np.float64),
                },
            )
        )
    return pa.concat_tables(parts)


STAGE = Stage(NAME, 1, "ray", units, process)
