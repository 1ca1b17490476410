"""GRAFT: a generation whose memory is repaired where questions could not be answered from it.

Stage graft makes table `repairs` from the questions that may be used, and later measures what they changed: on those
questions, and on the ones held out. The repaired generation is made by a re-index whose graphs read the repairs, so
nothing is extracted again; dropping it drops them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from indexers import presets
from indexers.rank import rank_shard
from pipelines import extract, studies
from pipelines.embed import Kept
from pipelines.evaluate import JUDGED
from pipelines.query import question_table
from pipelines.reader import DERIVED, Packed, derived_of, packs_of
from pipelines.repair import REPAIR
from pipelines.stage import Inputs, Output, Stage, Unit
from pipelines.store import BEFORE
from schemas.config import EvaluateConfig, RunConfig
from schemas.options import Section
from schemas.tables import empty
from transforms import experiments, graft, packing, prompts, reading
from transforms.graft import Lack, Made
from transforms.interactions import full_text
from transforms.packing import Limits
from transforms.tasks.studies._shared import shut

EXPERIMENT = "graft"
REPAIRS = "graft/repairs"
ENOUGH, ASKS, WRITES = "enough", "subquestions", "repairs"
SEARCH, SEARCHED = "bm25-raw", "index/raw"
"""What looks for sub-questions, and the unit that it reads."""
ON, HELD_OUT = "repaired-on", "held-out"


class Grafting(Section):
    """How a memory is repaired."""

    preset: str = Field(..., description="Preset whose packs are mended")
    mode: Literal["batch", "online"] = Field("batch", description="batch: gold tells what is missing; online: a judge")
    share: float = Field(0.5, gt=0, le=1, description="Share of the questions that repairs may be made from")
    seed: int = Field(7, ge=0, description="Seed of the draw of those questions")
    tokens: int = Field(4000, ge=16, le=1_000_000, description="Tokens of memory in a prompt, 3 bytes each")
    words: int = Field(1000, ge=1, le=1_000_000, description="Words of a pack")

    @property
    def limits(self) -> Limits:
        """The budget of a pack."""
        return Limits(self.tokens, self.words)


class Study(RunConfig):
    """A repair of a generation: `extract` names the engine, `held` its units; there are `counts` after the repairs."""

    grafting: Grafting
    held: tuple[str, ...]
    asking: bool
    round: int
    presets: tuple[str, ...] = ()
    counts: dict[str, int] | None = None


def units(config: RunConfig) -> list[Unit]:
    """The unit of repairs, or that of results."""
    assert isinstance(config, Study)
    if config.counts is not None:
        whole = {
            "presets": list(config.presets),
            "counts": config.counts,
            "evaluate": config.evaluate.model_dump(mode="json"),
            **config.grafting.model_dump(mode="json", include={"share", "seed"}),
        }
        return [Unit(EXPERIMENT, whole, ("questions", REPAIR, JUDGED, BEFORE), ("results",), whole=True)]
    names = [ASKS, WRITES] if config.asking else []
    if config.grafting.mode == "online":
        names.insert(0, ENOUGH)
    given = prompts.chosen(names, config.extract.prompt)
    asks = [studies.ask_of(name, config.extract, given) for name in names]
    setting = {
        "asks": [one.described for one in asks],
        "grafting": config.grafting.model_dump(mode="json"),
        "round": config.round,
        "versions": [packing.VERSION, reading.VERSION, graft.VERSION],
    }
    reads = ("ingest", "questions", f"rank/{config.grafting.preset}", *derived_of(config.held))
    if asks:
        reads = (*reads, SEARCHED)
    return [Unit(REPAIRS, setting, reads, ("repairs",), runtime=studies.as_runtime(asks))]


async def process(inputs: Inputs, wanted: Sequence[Unit]) -> list[Output]:
    """Make the repairs of one shard, or measure what those of all changed."""
    (unit,) = wanted
    if unit.name == EXPERIMENT:
        return [Output({"results": _results(inputs, unit)})]
    own = Grafting.model_validate(unit.config["grafting"])
    every = inputs.table("questions", "questions")
    # Nothing of the questions that are held out goes any further than this line.
    questions = every.filter(pa.array(graft.source(every, own.share, own.seed), pa.bool_()))
    interactions = inputs.table("ingest", "interactions")
    packed = packs_of(inputs, questions, inputs.table(f"rank/{own.preset}", "runs"), own.limits)
    asked = reading.asked(questions, packed.texts)
    asks = studies.from_runtime(unit.runtime)
    lacks, unknown = await _diagnosed(inputs, own, asks, questions, interactions, packed)
    if WRITES in asks:
        made = await _written(inputs, own, asks, asked, lacks, interactions)
    else:
        made = _extracted(asked, lacks, interactions)
    by = asks.get(WRITES)
    table = graft.table(
        made,
        questions,
        interactions["interaction_id"].to_pylist(),
        round=unit.config["round"],
        mode=own.mode,
        model=by.engine.journal if by else None,
        prompt=by.prompt.hash if by else None,
    )
    counts = {
        "questions": len(asked),
        "undiagnosed": unknown,
        "lacking": len(lacks),
        "repaired": len({one.row for one in made}),
        "repairs": len(made),
    }
    return [Output({"repairs": table}, counts)]


async def _diagnosed(
    inputs: Inputs,
    own: Grafting,
    asks: dict[str, studies.Ask],
    questions: pa.Table,
    interactions: pa.Table,
    packed: Packed,
) -> tuple[list[Lack], int]:
    """Return what is lacking, and how many questions could not be diagnosed."""
    if own.mode == "batch":
        keys = packing.key_of(interactions)
        return graft.lacking(questions, keys, packed.texts, packed.question, packed.interaction)
    cases = reading.reading(reading.asked(questions, packed.texts))
    verdicts = reading.in_rows(cases, await studies.ask(inputs, asks[ENOUGH], cases, own.tokens))
    lacks = [Lack(row, ()) for row, one in enumerate(verdicts) if one.record is False]
    return lacks, sum(one.record is None for one in verdicts)


def _extracted(asked: Sequence[reading.Asked], lacks: Sequence[Lack], interactions: pa.Table) -> list[Made]:
    rows = sorted({row for lack in lacks for row in lack.missing})
    texts = dict(zip(rows, full_text(interactions.take(pa.array(rows, pa.int64()))).to_pylist(), strict=True))
    found: list[Made] = []
    for lack in lacks:
        one = asked[lack.row]
        sought = graft.uncovered(one.text, one.pack)
        found += graft.extracted(lack, one.text, one.gold, texts, sought)
    return found


async def _written(
    inputs: Inputs,
    own: Grafting,
    asks: dict[str, studies.Ask],
    asked: Sequence[reading.Asked],
    lacks: Sequence[Lack],
    interactions: pa.Table,
) -> list[Made]:
    """Ask for sub-questions, read again what they find, and have the missing facts written."""
    lacking = [asked[lack.row] for lack in lacks]
    if not lacking:
        return []
    cases = reading.reading(lacking)
    replies = reading.in_rows(cases, await studies.ask(inputs, asks[ASKS], cases, own.tokens))
    sought = [
        tuple(one.record or ()) or (graft.uncovered(question.text, question.pack),)
        for one, question in zip(replies, lacking, strict=True)
    ]
    found = _searched(inputs, lacking, sought, interactions)
    session = packing.key_of(interactions, "session_id").to_pylist()
    shown = [graft.episodes(rows, lack.missing, session) for rows, lack in zip(found, lacks, strict=True)]
    lines, facts = _told(inputs, sorted({row for rows in shown for row in rows}), interactions)
    again, known = [], []
    for rows in shown:
        part = Limits(max(16, own.tokens // max(1, len(rows))))
        again.append(graft.numbered([packing.cut(lines[row], part) for row in rows]))
        known.append([fact for row in rows for fact in facts.get(row, ())])
    values = [
        {"question": shut(one.text), "known": shut(packing.cut("\n".join(dict.fromkeys(facts)), own.limits))}
        for one, facts in zip(lacking, known, strict=True)
    ]
    cases = reading.pieces(lacking, [(shut(text), own) for text, own in zip(again, values, strict=True)])
    results = reading.in_rows(cases, await studies.ask(inputs, asks[WRITES], cases, own.tokens))
    made: list[Made] = []
    for place, (lack, result) in enumerate(zip(lacks, results, strict=True)):
        told = frozenset(fact.removeprefix("- ").casefold() for fact in known[place])
        made += graft.written(lack, result, shown[place], sought[place], told)
    return made


def _searched(
    inputs: Inputs, lacking: Sequence[reading.Asked], sought: Sequence[Sequence[str]], interactions: pa.Table
) -> list[list[int]]:
    """Return the rows that the sub-questions of each question find, the best of each first."""
    asked = [
        (one.case_id, text, f"{place}.{number}")
        for place, (one, texts) in enumerate(zip(lacking, sought, strict=True))
        for number, text in enumerate(texts)
    ]
    table = pa.concat_tables([question_table(case, text) for case, text, _ in asked]).unify_dictionaries()
    at = table.schema.get_field_index("question_id")
    table = table.set_column(at, table.schema.field(at), pa.array([name for _, _, name in asked], pa.string()))
    preset = presets.get(SEARCH)
    runs, _ = rank_shard(
        [preset],
        interactions,
        table,
        inputs.table,
        graft.FOUND,
        embedding=Kept(inputs.table),  # words alone are compared, so it is never asked
    )
    top = runs[SEARCH].filter(pc.less_equal(runs[SEARCH]["rank"], graft.FOUND)).sort_by("rank")
    row = pc.index_in(packing.key_of(top), value_set=packing.key_of(interactions)).to_pylist()
    found: list[list[int]] = [[] for _ in lacking]
    for name, at in zip(top["question_id"].to_pylist(), row, strict=True):
        found[int(name.partition(".")[0])].append(at)
    return found


def _told(inputs: Inputs, rows: Sequence[int], interactions: pa.Table) -> tuple[dict[int, str], dict[int, list[str]]]:
    """Return by row what a model sees of interactions, and the facts that rest on each."""
    facts = pa.concat_tables(
        [inputs.table(DERIVED[0][1], "facts"), graft.facts_of(inputs.table(REPAIR, "repairs"))]
    ).unify_dictionaries()
    held = packing.memory(interactions.take(pa.array(rows, pa.int64())), facts, empty("reflections"))
    lines = held.lines.to_pylist()
    start = held.starts[packing.EPISODE]
    known: dict[int, list[str]] = {}
    for episode, fact in held.links.tolist():
        known.setdefault(rows[episode - start], []).append(lines[fact])
    return dict(zip(rows, lines[start:], strict=True)), known


def _results(inputs: Inputs, unit: Unit) -> pa.Table:
    """Measure presets on the questions that repairs were made from and on the others, against the generation before."""
    config = EvaluateConfig.model_validate(unit.config["evaluate"])
    names = unit.config["presets"]
    rows: list[experiments.Row] = []
    for half in (ON, HELD_OUT):

        def after(half: str = half) -> Iterator[pa.Table]:
            return _judged(inputs, unit, JUDGED, half)

        def both(half: str = half) -> Iterator[pa.Table]:
            sides = experiments.labelled(_judged(inputs, unit, JUDGED, half), "\0"), _judged(inputs, unit, BEFORE, half)
            for tables in zip(*sides, strict=True):
                yield pa.concat_tables(tables).unify_dictionaries()

        rows += experiments.means(after, names, config, variant=half)
        pairs = [(f"{name}\0", name) for name in names]
        rows += experiments.differences(
            both, pairs, config, variant=half, as_named=lambda _, name: (name, "unrepaired")
        )
    for name, count in unit.config["counts"].items():
        rows.append(experiments.Row("", "", name, float(count), questions=unit.config["counts"]["questions"]))
    return experiments.results(EXPERIMENT, rows)


def _judged(inputs: Inputs, unit: Unit, read: str, half: str) -> Iterator[pa.Table]:
    """Yield the metrics of one half of the questions, shard by shard.

    A question with a repair, of this round or an earlier one, is never held out, whatever the draw says.
    """
    wanted = pa.array(unit.config["presets"], pa.string())
    for shard in inputs.shards():
        rows = shard.table(read, "question_metrics")
        rows = rows.filter(pc.is_in(rows["retriever"].cast(pa.string()), value_set=wanted))
        source = pa.array(graft.source(rows, unit.config["share"], unit.config["seed"]), pa.bool_())
        repairs = shard.table(REPAIR, "repairs")
        used = packing.key_of(repairs, "question_id")
        source = pc.or_(source, pc.is_in(packing.key_of(rows, "question_id"), value_set=used))
        yield rows.filter(source if half == ON else pc.invert(source))


def _needs(config: RunConfig) -> Any:
    asks = isinstance(config, Study) and config.counts is None and extract.is_engine(config.extract)
    return extract.needs(config) if asks else None


STAGE = Stage(EXPERIMENT, 1, "ray", units, process, needs=_needs)
