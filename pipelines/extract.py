"""Stage extract: interactions -> notes, and what else an engine is asked for or an extractor can tell, on Ray.

Unit ``extract`` makes the notes; ``extract/TASK`` is one further task each, so that adding one leaves the others as
they are. They are those that an engine is asked for, or all that an extractor can do with its options. Where an
extractor is for some cases only (``extract.cases``), the configuration of a shard without any of them is that of the
extractor of the rest: its parts keep their keys.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import lru_cache
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from pipelines.desk import Engine, JournalDesk, room
from pipelines.journal import Journal, write_identity
from pipelines.stage import Inputs, Needs, Output, Stage, Unit
from schemas.config import ExtractConfig, RunConfig
from schemas.errors import ConfigError, SchemaError, UsageError
from schemas.ids import canonical_json, fingerprint, nearest, shard_of
from schemas.tables import empty
from transforms import asking, engines, extractors, prompts, replies, tasks
from transforms.asking import Question, ask_all, cases_at_once
from transforms.extractors import Filled
from transforms.prompts import Prompt

NOTES = "notes"


def units(config: RunConfig) -> list[Unit]:
    """Return the unit of notes and one for each further task.

    Raises:
        ConfigError, UsageError: A setting is not valid.
    """
    for one in variants(config.extract):
        if one.cases and one.rest is None:
            raise ConfigError(
                "cases are named, but no extractor for the others",
                where="extract.cases",
                remedy="Name cases with 'tagloom reindex --cases', or set extract.rest as well.",
            )
        _in_order(one.tasks)
        if NOTES not in one.tasks:
            raise ConfigError(
                f"{list(one.tasks)} lacks notes, which graphs and indexes are made of",
                where="extract.tasks",
                remedy="Add it: extract.tasks: [notes, ...]",
            )
    found = []
    for name in all_tasks(config.extract):
        task = tasks.load(name)
        unit, _ = task.READS
        setting, runtime = _variant(config.extract, name)
        found.append(
            Unit(
                "extract" if name == NOTES else f"extract/{name}",
                setting,
                (unit,),
                task.TABLES,
                variants=_chosen(config.extract, name),
                runtime=runtime,
            )
        )
    return found


def all_tasks(extract: ExtractConfig) -> list[str]:
    """Return what any of the extractors does, in order; cases of the others have no rows there.

    Raises:
        ConfigError, UsageError: A setting is not valid.
    """
    return _in_order([name for one in variants(extract) for name in _tasks_of(one)])


def _tasks_of(extract: ExtractConfig) -> Sequence[str]:
    """Return the tasks of one extractor: those that an engine is asked for, or all that the options allow."""
    if is_engine(extract):
        return extract.tasks
    _known(extract)
    offered = list(extractors.tasks_of(extract.extractor, extract.options))
    made = "notes alone" if len(offered) == 1 else f"{', '.join(offered)} with these options"
    for task in extract.tasks:
        if task not in offered:
            raise ConfigError(
                f"extractor '{extract.extractor}' makes {made}, not {task}",
                where="extract.tasks",
                remedy=f"Leave it out, or choose an engine: {', '.join(engines.names())}.",
            )
    return offered


def _known(extract: ExtractConfig) -> None:
    """Check that there is such an extractor, and that it is not told what only engines need.

    Raises:
        ConfigError, UsageError: It is not so.
    """
    known = extractors.names()
    if extract.extractor not in known:
        close = nearest(extract.extractor, [*known, *engines.names()])
        raise UsageError(
            f"no extractor and no engine is called '{extract.extractor}'",
            where="extract.extractor",
            remedy=(f"Did you mean '{close}'? " if close else "")
            + f"Extractors: {', '.join(known)}; engines: {', '.join(engines.names())}.",
        )
    if extract.model is not None or extract.prompt is not None:
        raise ConfigError(
            f"extractor '{extract.extractor}' asks no model",
            where="extract.model" if extract.model is not None else "extract.prompt",
            remedy=f"Leave it out, or choose an engine: --set extract.extractor=NAME, one of "
            f"{', '.join(engines.names())}.",
        )


def _in_order(names: Sequence[str]) -> list[str]:
    """Return tasks once each, and after those whose tables they read.

    Raises:
        ConfigError, UsageError: There is no such task, or one reads those of a task that is not asked.
    """
    reads = {name: tasks.load(name).READS[0].removeprefix("extract/") for name in names}
    for name, other in reads.items():
        if other != "ingest" and other not in reads:
            raise ConfigError(
                f"{list(names)} lacks {other}, which {name} are made of",
                where="extract.tasks",
                remedy=f"Add it: extract.tasks: [notes, {other}, {name}]",
            )
    return sorted(reads, key=lambda name: reads[name] != "ingest")


def asked_by(extract: ExtractConfig, task: str) -> str:
    """Return the hash of what the requests of a task depend on, besides the engine and the texts."""
    return _asked_by(_setting(extract, task)[0])


def _asked_by(setting: Mapping[str, Any]) -> str:
    names = ("task", "prompt", "ontology_window", "ontology_tokens", "temperature", "max_tokens")
    return fingerprint({name: setting[name] for name in names})


def is_engine(extract: ExtractConfig) -> bool:
    """Tell whether a model is asked, rather than an extractor."""
    return extract.extractor in engines.names()


def variants(extract: ExtractConfig) -> Iterator[ExtractConfig]:
    """Yield the extractor and those of the rest, the first to choose first."""
    current: ExtractConfig | None = extract
    while current is not None:
        yield current
        current = current.rest if current.cases and current.rest else None


def engine_of(extract: ExtractConfig) -> Engine:
    """Return the engine that a configuration names.

    Raises:
        ConfigError, UsageError: Its model or an option is not valid.
    """
    module = engines.load(extract.extractor)
    options = engines.options_of(module, extract.options)
    identity = {"version": module.VERSION, **module.identity(extract.model, options)}
    return Engine(module.NAME, module.located(extract.model), options.model_dump(mode="json"), identity)


def journals(extract: ExtractConfig) -> list[str]:
    """Return the journals that a configuration reads and writes."""
    return list(dict.fromkeys(engine_of(one).journal for one in variants(extract) if is_engine(one)))


def _variant(extract: ExtractConfig, task: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what the last extractor's output depends on, and by fingerprint what each needs to run."""
    setting: dict[str, Any] = {}
    runtime: dict[str, Any] = {}
    for one in variants(extract):
        setting, needs = _setting(one, task)
        runtime[fingerprint(setting)] = needs
    return setting, runtime


def _chosen(extract: ExtractConfig, task: str) -> tuple[tuple[tuple[str, ...], Mapping[str, Any]], ...]:
    """Return the extractors that are for some cases only, in order of choice."""
    return tuple((one.cases, _setting(one, task)[0]) for one in variants(extract) if one.cases and one.rest)


def _setting(extract: ExtractConfig, task: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return one extractor's configuration, and what it needs to run that its output does not depend on."""
    if task not in _tasks_of(extract):
        return {"extractor": None}, {}
    if not is_engine(extract):
        own = extractors.fingerprint_parts(extract.extractor, extract.options, task)
        # Notes alone may go by the ontology; their configuration is what it was before there were other tasks.
        return {"extractor": own, **({"ontology_window": extract.ontology_window} if task == NOTES else {})}, {}
    engine, made = engine_of(extract), tasks.load(task)
    prompt = prompts.chosen(extract.tasks, extract.prompt)[task]
    window = extract.ontology_window if "vocabulary" in prompts.placeholders(prompt) else 0
    setting = {
        "extractor": {"name": engine.name, "identity": dict(engine.identity)},
        "task": {"name": task, "version": made.VERSION},
        "prompt": prompt.hash,
        "versions": {"asking": asking.VERSION, "prompts": prompts.VERSION, "replies": replies.VERSION},
        "ontology_window": window,
        "ontology_tokens": extract.ontology_tokens if window else 0,
        "temperature": extract.temperature,
        "max_tokens": extract.max_tokens or made.REPLY_TOKENS,
        "retry_round": extract.retry_round,
    }
    return setting, {"engine": asdict(engine), "prompt": asdict(prompt)}


async def process(inputs: Inputs, wanted: Sequence[Unit]) -> list[Output]:
    """Do one task for one shard."""
    (unit,) = wanted
    task = tasks.load(unit.name.partition("/")[2] or NOTES)
    source = inputs.table(*task.READS)
    made: list[Mapping[str, pa.Table]] = []
    counted: Counter[str] = Counter()
    for setting, rows in _split(unit.config, source):
        filled = await _make(inputs, unit, task, setting, rows)
        made.append(filled.tables)
        counted.update(filled.stats)
    joined = made[0] if len(made) == 1 else _joined(made, source)
    tables = {name: joined[name].unify_dictionaries() for name in unit.outputs}
    stats: dict[str, int] = dict(sorted(counted.items()))
    status = tables["notes" if "notes" in tables else "outcomes"]
    counts = Counter(pc.cast(status["status"], "string").to_pylist())
    stats |= {f"{'notes' if task.NAME == NOTES else 'pieces'}_{name}": n for name, n in sorted(counts.items())}
    for column in ("prompt_tokens", "completion_tokens"):
        stats[column] = pc.sum(status[column]).as_py() or 0
    return [Output(tables, stats)]


def _split(setting: Mapping[str, Any], source: pa.Table) -> Iterator[tuple[Mapping[str, Any], pa.Table]]:
    """Yield each extractor's configuration with the rows that it is for."""
    rest = source
    for chosen in setting.get("chosen", ()):
        mine = pc.is_in(rest["case_id"].cast(pa.string()), value_set=pa.array(chosen["cases"], pa.string()))
        yield {k: v for k, v in chosen.items() if k != "cases"}, rest.filter(mine)
        rest = rest.filter(pc.invert(mine))
    yield {k: v for k, v in setting.items() if k != "chosen"}, rest


def _joined(made: Sequence[Mapping[str, pa.Table]], source: pa.Table) -> dict[str, pa.Table]:
    """Join the tables of several extractors, cases in the order of the source."""
    order = source["case_id"].cast(pa.string()).unique()
    tables = {}
    for name in made[0]:
        whole = pa.concat_tables([one[name] for one in made]).combine_chunks()
        place = pc.index_in(whole["case_id"].cast(pa.string()), value_set=order)
        # Rows of a case lie together and in order already; a stable order by case is all that is needed.
        rank = pc.rank(pa.chunked_array([place.combine_chunks()]), tiebreaker="first")
        tables[name] = whole.take(pc.sort_indices(rank))
    return tables


async def _make(inputs: Inputs, unit: Unit, task: tasks.Task, setting: Mapping[str, Any], rows: pa.Table) -> Filled:
    own = setting["extractor"]
    if own is None:
        return Filled({name: empty(name) for name in unit.outputs})
    if "task" not in setting:
        found = await _extract(task, own, setting.get("ontology_window", 0), rows)
        room().counts["pieces.other"] += rows.num_rows
        return found
    needs = unit.runtime[fingerprint(setting)]
    engine, prompt = Engine(**needs["engine"]), Prompt(**needs["prompt"])
    cases = task.cases(rows)
    question = Question(
        task,
        prompt,
        setting["ontology_window"],
        setting["ontology_tokens"],
        setting["max_tokens"],
        setting["temperature"],
    )
    if not cases:
        return Filled(task.tables(rows, cases, []))
    here = room()
    write_identity(inputs.store.storage, engine.journal, dict(engine.identity))
    journal = Journal(inputs.store.storage, engine.journal, shard_of(cases[0].case_id, inputs.store.shards))
    await journal.load()
    desk = JournalDesk(await here.engine(engine), journal, _asked_by(setting), setting["retry_round"], here.counts)
    try:
        results = await ask_all(cases, question, desk)
    except BaseException:
        await journal.flush()
        raise
    await journal.finish()
    return Filled(task.tables(rows, cases, results))


async def _extract(task: tasks.Task, own: Mapping[str, Any], ontology_window: int, rows: pa.Table) -> Filled:
    """Let an extractor do a task for some rows."""
    extractor = _extractor(canonical_json(own))
    if task.NAME == NOTES:
        notes = await extractor.extract(rows, ontology_window)
        _check_rows(rows, notes, own["name"])
        return Filled({"notes": notes})
    from transforms.extractors._filled import complete

    filled = await extractor.fill(task.NAME, rows)
    return Filled(complete(own["name"], task, rows, filled), filled.stats)


@lru_cache(maxsize=4)
def _extractor(identity: bytes) -> extractors.TaskExtractor:
    """Make an extractor once a process; its identity holds the hashes of its files, which may change."""
    import orjson

    own: Mapping[str, Any] = orjson.loads(identity)
    return cast(extractors.TaskExtractor, extractors.make(own["name"], own["options"]))


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


def needs(config: RunConfig) -> Needs | None:
    """Return what the workers need: those of engines, the most of all that are configured."""
    asked = [one for one in variants(config.extract) if is_engine(one)]
    if not asked:
        return None
    wanted = []
    for one in asked:
        module = engines.load(one.extractor)
        wanted.append(module.resources(engines.options_of(module, one.options)))
    replicas = config.extract.workers
    return Needs(
        None if replicas == "auto" else replicas,
        max(w.cpus for w in wanted),
        max(w.gpus for w in wanted),
        next((one.python for one in asked if one.python), None),
        cases_at_once(max(w.slots for w in wanted)),
    )


STAGE = Stage("extract", 1, "ray", units, process, needs=needs)
