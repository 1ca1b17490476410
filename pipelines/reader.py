"""Stage reader: rankings -> packs -> what a reader replies, marked; asked of a generation, never part of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from pipelines import asides, extract, studies
from pipelines.lock import writing
from pipelines.observe import observing
from pipelines.progress import Progress
from pipelines.query import settings
from pipelines.repair import REPAIR
from pipelines.stage import Inputs, Output, Stage, Unit
from pipelines.store import Generation, Store
from schemas.config import EvaluateConfig, RunConfig
from schemas.errors import StoreError, UsageError
from schemas.ids import nearest
from schemas.options import Section
from schemas.tables import empty
from transforms import graft, packing, prompts, reading
from transforms.packing import EPISODE, Limits
from transforms.reading_results import EXPERIMENT, results

ANSWER, JUDGE = "answer", "judge"
DERIVED = (("facts", "extract/facts"), ("reflections", "extract/reflections"))


class Reading(Section):
    """What a reader gets to see; the same for all presets."""

    presets: tuple[str, ...] = Field(..., min_length=1, description="Presets; the first is the baseline")
    top: int = Field(5, ge=1, le=1000, description="Interactions by rank, where no pack is made")
    tokens: int = Field(4000, ge=16, le=1_000_000, description="Tokens of memory in a prompt, 3 bytes each")
    pack: bool = Field(False, description="Make packs of facts, reflections and interactions")
    words: int = Field(1000, ge=1, le=1_000_000, description="Words of a pack")
    facts: int = Field(60, ge=0, le=10_000, description="Facts of a pack at most")
    reflections: int = Field(20, ge=0, le=10_000, description="Reflections of a pack at most")
    episodes: int = Field(80, ge=0, le=10_000, description="Interactions of a pack at most")
    judge: bool = Field(False, description="Also ask a judge")
    judge_model: str | None = Field(None, description="Model of the judge, where it is another one of the same engine")

    @property
    def limits(self) -> Limits:
        """The budget."""
        if not self.pack:
            return Limits(self.tokens, None, 0, 0, self.top)
        return Limits(self.tokens, self.words, self.facts, self.reflections, self.episodes)

    @property
    def variant(self) -> str:
        """How the budget is called in results."""
        return f"pack={self.words}" if self.pack else f"top={self.top}"


class Study(RunConfig):
    """A reader study: `extract` names the engine, `held` the units of the generation."""

    reading: Reading
    held: tuple[str, ...]


def units(config: RunConfig) -> list[Unit]:
    """One unit a preset, and one of the results."""
    assert isinstance(config, Study)
    own = config.reading
    given = prompts.chosen((ANSWER, JUDGE) if own.judge else (ANSWER,), config.extract.prompt)
    asks = [studies.ask_of(ANSWER, config.extract, given)]
    if own.judge:
        other = {"model": own.judge_model} if own.judge_model else {}
        # A verdict is the likeliest one, and as short as it is, whatever the reader is told.
        judging = config.extract.model_copy(update={"temperature": 0.0, "max_tokens": None, **other})
        asks.append(studies.ask_of(JUDGE, judging, given))
    named = {"presets", "judge", "judge_model"} | (set() if own.pack else {"words", "facts", "reflections", "episodes"})
    setting = {
        "asks": [one.described for one in asks],
        "reading": own.model_dump(mode="json", exclude=named | ({"top"} if own.pack else set())),
        "versions": [packing.VERSION, reading.VERSION],
    }
    derived = derived_of(config.held) if own.pack else ()
    found = [
        Unit(
            f"{EXPERIMENT}/{preset}",
            setting,
            ("ingest", "questions", f"rank/{preset}", *derived),
            ("answers",),
            runtime=studies.as_runtime(asks),
        )
        for preset in own.presets
    ]
    whole = {
        "presets": list(own.presets),
        "variant": own.variant,
        **config.evaluate.model_dump(mode="json", include={"resamples", "seed"}),
    }
    reads = ("questions", *(unit.name for unit in found))
    return [*found, Unit(EXPERIMENT, whole, reads, ("results",), whole=True, runtime=studies.as_runtime(asks))]


def derived_of(held: Sequence[str]) -> tuple[str, ...]:
    """Return the units that packs take facts and reflections from, of those that a generation has."""
    return tuple(unit for unit in (*(unit for _, unit in DERIVED), REPAIR) if unit in held)


async def process(inputs: Inputs, wanted: Sequence[Unit]) -> list[Output]:
    """Ask about the questions of one shard, or measure those of all."""
    (unit,) = wanted
    if unit.name == EXPERIMENT:
        return [Output({"results": _results(inputs, unit)})]
    own = unit.config["reading"]
    preset = unit.name.partition("/")[2]
    questions = inputs.table("questions", "questions")
    shown = Reading.model_validate({**own, "presets": (preset,)})
    packs = packs_of(inputs, questions, inputs.table(f"rank/{preset}", "runs"), shown.limits)
    asked = reading.asked(questions, packs.texts)
    asks = studies.from_runtime(unit.runtime)
    replies = await _ask(inputs, asks[ANSWER], reading.reading(asked), shown.tokens)
    verdicts = None
    if JUDGE in asks:
        rows = reading.to_judge(asked, replies)
        cases = reading.judging([asked[row] for row in rows], [replies[row].record.text for row in rows])
        verdicts = dict(zip(rows, await _ask(inputs, asks[JUDGE], cases), strict=True))
    table = reading.answers(asked, replies, preset, verdicts)
    stats = {f"answers_{one['values']}": one["counts"] for one in pc.value_counts(table["status"]).to_pylist()}
    return [Output({"answers": table}, dict(sorted(stats.items())))]


async def _ask(inputs: Inputs, one: studies.Ask, cases: list[Any], room_for: int = 0) -> list[Any]:
    return reading.in_rows(cases, await studies.ask(inputs, one, cases, room_for))


@dataclass(frozen=True)
class Packed:
    """Packs of some questions of a shard.

    Attributes:
        texts: (questions,) the packs.
        question: (pairs,) row of the question.
        interaction: (pairs,) row of an interaction that the pack shows.
    """

    texts: tuple[str, ...]
    question: packing.Ints
    interaction: packing.Ints


def packs_of(inputs: Inputs, questions: pa.Table, runs: pa.Table, limits: Limits) -> Packed:
    """Make the packs of some questions of one shard from a ranking.

    Args:
        inputs: Gives the interactions, and facts and reflections where the limits have room for any.
        questions: Rows of table `questions`.
        runs: Rows of table `runs` of one preset; those of other questions are passed over.
        limits: The budget.
    """
    runs = runs.filter(pc.less_equal(runs["rank"], limits.episodes or max(limits.caps)))
    question = _place(runs, "question_id", questions)
    runs = runs.filter(pa.array(question >= 0))
    question = question[question >= 0]
    interactions = inputs.table("ingest", "interactions")
    at = _place(runs, "interaction_id", interactions)
    used, row = np.unique(at[at >= 0], return_inverse=True)
    facts, reflections = (
        inputs.table(unit, name) if limits.caps[place] else empty(name) for place, (name, unit) in enumerate(DERIVED)
    )
    if limits.facts:
        added = graft.facts_of(inputs.table(REPAIR, "repairs"))
        facts = pa.concat_tables([facts, added]).unify_dictionaries()
    held = packing.memory(interactions.take(pa.array(used)), facts, reflections)
    rank = np.asarray(runs["rank"], dtype=np.int64)[at >= 0]
    found = packing.by_rank(question[at >= 0], row.reshape(-1), rank, held, derived=bool(sum(limits.caps[:2])))
    packs = packing.pack(found, held, questions.num_rows, limits)
    shown = packs.item >= held.starts[EPISODE]
    return Packed(packs.texts, packs.question[shown], used[packs.item[shown] - held.starts[EPISODE]])


def _place(rows: pa.Table, column: str, table: pa.Table) -> packing.Ints:
    """Return for each row the row of a table that has its case and id, or -1."""
    found = pc.index_in(packing.key_of(rows, column), value_set=packing.key_of(table, column))
    return np.asarray(found.fill_null(-1), dtype=np.int64)


def _results(inputs: Inputs, unit: Unit) -> pa.Table:
    presets = unit.config["presets"]
    config = EvaluateConfig.model_validate({name: unit.config[name] for name in ("resamples", "seed")})
    columns = ["case_id", "question_id", "question_type", "answerable"]

    def parts() -> Any:
        for shard in inputs.shards():
            answers = [shard.table(f"{EXPERIMENT}/{preset}", "answers") for preset in presets]
            yield shard.table("questions", "questions", columns), pa.concat_tables(answers).unify_dictionaries()

    return results(parts(), presets, unit.config["variant"], config)


STAGE = Stage(EXPERIMENT, 1, "ray", units, process, needs=extract.needs)


@dataclass(frozen=True)
class Read:
    """A reader study that is done.

    Attributes:
        generation: The generation, with the study on it.
        asked: Unit -> what an engine did for it in this run.
        made: Unit -> parts made.
    """

    generation: Generation
    asked: dict[str, Any]
    made: dict[str, int]


def run(config: RunConfig, own: Reading, *, wait: float = 0.0, progress: Progress | None = None) -> Read:
    """Let a reader answer the questions of a generation from what each preset ranked.

    Args:
        config: The corpus, the generation's name, the engine (section `extract`), and what else a run may set.
        own: Presets and budget; a preset of the generation's own may be given as it is called there.
        wait: Seconds to wait while another run holds the corpus.
        progress: Who is told.

    Raises:
        UsageError, ConfigError: A preset or a setting is not valid, or there are no questions.
        StoreError: There is no such generation, or it has not ranked with a preset.
        BudgetError: ``extract.budget_tokens`` is used up; replies are kept.
    """
    store = Store.open(config.corpus)
    with writing(store.storage, wait) as held:
        generation = store.generation(config.name)
        check(generation, own.presets)
        base = settings(generation)
        given = config.model_dump(exclude_unset=True)
        evaluate = {**base.evaluate.model_dump(), **given.get("evaluate", {})}
        more = {"evaluate": evaluate, "reading": own.model_dump(), "held": tuple(generation.units)}
        study = Study.model_validate({**given, **more})
        wanted = units(study)
        asides.warn(generation, [read for unit in wanted for read in unit.reads])
        with observing(store.storage, study, progress, "reader") as watch:
            execution = studies.execution(study, generation, watch)
            with execution.ray:
                execution.run([EXPERIMENT])
            execution.check_whole()
        made = [execution.manifests[unit.name] for unit in wanted]
        generation = studies.hang(generation, EXPERIMENT, made, held)
    return Read(generation, dict(execution.asked), dict(execution.made))


def check(generation: Generation, presets: Sequence[str]) -> None:
    """Make sure that a generation has questions and has ranked with some presets.

    Raises:
        UsageError, StoreError: It is not so.
    """
    uri, name = generation.store.storage.uri, generation.name
    ranked = [unit.partition("/")[2] for unit in generation.units if unit.startswith("rank/")]
    for preset in presets:
        if preset not in ranked:
            guess = nearest(preset, ranked)
            raise StoreError(
                f"generation '{name}' holds no ranking by '{preset}'",
                where=uri,
                remedy=(f"Did you mean '{guess}'? " if guess else "")
                + f"It has: {', '.join(ranked) or 'none'}. Make it: tagloom run -C {uri} -n {name} --preset {preset}",
            )
    if not generation.manifest("questions").rows("questions"):
        raise UsageError(
            "the corpus has no questions", where=uri, remedy="Ingest a benchmark, or give some with --questions."
        )
