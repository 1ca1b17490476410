"""The driver: plans a run, runs what is missing, writes manifests, and moves the head at the end."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError

from pipelines import asides, beam_options, ingest, kept_prompts, observe, ray_nodes
from pipelines.execute import Execution
from pipelines.extract import variants
from pipelines.failures import ShardsAsideError
from pipelines.lock import writing
from pipelines.observe import Watch, observing
from pipelines.planner import all_units
from pipelines.progress import Progress, Silent
from pipelines.sources import Source, distinguished, find_sources
from pipelines.stage import STAGES
from pipelines.storage import Storage
from pipelines.store import BEFORE, Generation, Manifest, Store, refuse_foreign
from pipelines.uris import naming
from pipelines.work import peak_memory
from schemas.config import RunConfig
from schemas.errors import ConfigError, InputError, TooManyRejectsError
from schemas.ids import shard_of

log = logging.getLogger(__name__)

MEMORY = "memory/"
"""Folder of a corpus that holds what its memories were told, as files of the tagloom format."""
OWN_FORMAT = "tagloom"
"""Format of question files and of what memories were told."""
MB_PER_SHARD = 8
LARGE_SHARD_BYTES = 128 << 20
SMALL_BYTES = 20 << 20
"""New input above which Ray starts while ingest is at work."""
MAX_SHARDS = 4096


@dataclass(frozen=True)
class RunResult:
    """A finished run.

    Attributes:
        generation: What the name points at now.
        manifests: Unit -> its manifest.
        seconds: Stage -> seconds spent in it, in order.
        made: Unit -> parts made (the others were there).
        asked: Unit -> what an engine did for it in this run (`pipelines.spent.Spent.facts`).
        facts: What ingest counted over all sources: ``records``, ``repairs``, ``sources``.
        config: The configuration that held, with what it took over from the generation before.
        memory: The most memory, in bytes, that this process (``process``) and one at work on a shard (``worker``) held.
        aside: Unit -> shard -> why this run went on without it.
    """

    generation: Generation
    manifests: Mapping[str, Manifest]
    seconds: Mapping[str, float]
    made: Mapping[str, int]
    asked: Mapping[str, Mapping[str, Any]]
    facts: Mapping[str, Any]
    config: RunConfig
    memory: Mapping[str, int]
    aside: asides.Asides


def given_sources(config: RunConfig, storage: Storage) -> list[Source]:
    """Return the inputs and question files that a run names; the corpus itself, if it lies among them, is no input.

    Raises:
        InputError: One does not exist or cannot be read.
    """
    corpus = storage.absolute
    logs = find_sources(config.inputs, without=corpus) if config.inputs else []
    asked = find_sources(config.questions, format=OWN_FORMAT, without=corpus) if config.questions else []
    named = {source.uri for source in asked}
    return distinguished([*(source for source in logs if source.uri not in named), *asked])


def open_store(config: RunConfig, sources: Sequence[Source]) -> Store:
    """Open the run's corpus, or make it; the caller holds the lock.

    Raises:
        ConfigError: The corpus has another number of shards than the configuration wants.
        StoreError: It cannot be opened.
    """
    store = Store.create(config.corpus, default_shards(sources) if config.shards == "auto" else config.shards)
    if config.shards not in ("auto", store.shards):
        raise ConfigError(
            f"the corpus has {store.shards} shards, not {config.shards}; their number is fixed when it is made",
            where=config.corpus,
            remedy="Leave 'shards' out, or name another corpus.",
        )
    return store


def continued(config: RunConfig, before: Generation | None, append: bool) -> RunConfig:
    """Return the settings of a run that goes on from a generation: its settings, under those given now.

    A run that names all of its inputs states everything anew and takes nothing over. One that names another extractor
    states the whole section `extract` anew: a model, a prompt or options are one extractor's own.
    """
    if before is None or not (append or not (config.inputs or config.questions)):
        return config
    old = kept_prompts.located(before.store.storage, before.head["config"])
    given = config.model_dump(exclude_unset=True)
    was, now = old.get("extract", {}), given.get("extract", {})
    if now.get("extractor", was.get("extractor")) != was.get("extractor"):
        old["extract"] = {}
    elif "rest" in now:
        old["extract"] = {**was, "rest": None}
    try:
        return RunConfig.model_validate({**_over(old, given), "name": config.name})
    except ValidationError as error:
        raise ConfigError(
            f"the settings of generation '{before.name}' are not those of this version: {error.errors()[0]['loc']}",
            where=config.corpus,
            remedy="Name the inputs again, so that the run takes no setting over.",
        ) from error


def _over(below: dict[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        merged[key] = _over(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return merged


def starting_point(store: Store, name: str) -> Generation | None:
    """Return what a run under a name starts from: what the name points at, or else the generation ``main``."""
    heads = store.heads()
    found = next((known for known in (name, "main") if known in heads), None)
    return Generation(store, found, heads[found]) if found else None


def all_sources(store: Store, given: Sequence[Source], before: Generation | None, append: bool) -> list[Source]:
    """Return every input of the generation: those given, those kept from before, and what memories were told.

    Args:
        store: The corpus.
        given: Inputs of this run; none means those of before.
        before: What the run starts from.
        append: Keep the inputs of before as well; a given one replaces what the same file held then.
    """
    told = memory_sources(store, before)
    kept = ingest.known_sources(store, before.head["sources"]) if before and (append or not given) else []
    kept = [source for source in kept if not source.name.startswith(MEMORY)]
    names = {source.uri: source.name for source in kept}
    again = [replace(source, name=names[source.uri]) for source in given if source.uri in names]
    new = distinguished([s for s in given if s.uri not in names], names.values())
    renewed = {source.uri for source in again}
    return [*(s for s in kept if s.uri not in renewed), *again, *new, *told]


def memory_sources(store: Store, before: Generation | None = None) -> list[Source]:
    """Return the logs that `tagloom.Memory` wrote into the corpus.

    An object store may be slow to list them, so those that the generation before read are looked for by name.
    """
    storage = store.storage
    found = {path for path, _ in storage.walk(MEMORY.rstrip("/"))}
    if before is not None and storage.local is None:
        known = (one.uri for one in ingest.known_sources(store, before.head["sources"]) if one.name.startswith(MEMORY))
        names = {MEMORY + uri.rpartition("/")[2] for uri in known}
        found |= {name for name in names - found if storage.exists(name)}
    logs = sorted(name for name in found if not name.rpartition("/")[2].startswith("."))
    uri_of = naming(storage.fs, storage.uri)
    uris = [uri_of(storage.path(name)) for name in logs]
    found_sources = find_sources(uris, format=OWN_FORMAT, hashed=True) if uris else []
    return [replace(source, name=MEMORY + source.name.rpartition("/")[2]) for source in found_sources]


def default_shards(sources: Sequence[Source]) -> int:
    """Return a power of two so that a shard holds some 8 MB of input, at least 8 so that appends touch few cases."""
    wanted = max(8, sum(s.bytes for s in sources) // (MB_PER_SHARD << 20))
    return int(min(MAX_SHARDS, 1 << (wanted - 1).bit_length()))


def run(
    config: RunConfig,
    *,
    stages: Sequence[str] = STAGES,
    append: bool = False,
    wait: float = 0.0,
    progress: Progress | None = None,
) -> RunResult:
    """Run ingest and the stages named; whatever is there already is not made again.

    Args:
        config: The run.
        stages: Stages after ingest to run; an empty sequence only ingests.
        append: Add the inputs to those of the generation rather than take them as all there is.
        wait: Seconds to wait while another run holds the corpus.
        progress: Who is told.

    Raises:
        TagloomError: Anything that a user must mend; finished parts stay for the next try.
    """
    storage = Storage(config.corpus)
    sources = given_sources(config, storage)
    if not sources and not storage.exists("corpus.json"):
        raise InputError("no corpus here and no input given", where=config.corpus, remedy="Name input files.")
    refuse_foreign(storage)
    with writing(storage, wait) as held:
        if not storage.exists("corpus.json"):
            _check(config, stages)  # a setting that is wrong must not leave a corpus behind
            beam_options.check(config.beam, storage.uri if storage.private else None)
        store = open_store(config, sources)
        before = starting_point(store, config.name)
        config = continued(config, before, append)
        every = all_sources(store, sources, before, append)
        with observing(storage, config, progress) as watch:
            result = build(store, config, every, before, stages=stages, progress=watch)
            held.check()
            store.move_heads({config.name: result.generation.head})
            conclude(watch, result)
    return result


def build(
    store: Store,
    config: RunConfig,
    sources: Sequence[Source],
    before: Generation | None,
    *,
    stages: Sequence[str] = STAGES,
    progress: Progress | None = None,
) -> RunResult:
    """Make what is missing of a generation; no name points at it yet. The caller holds the lock.

    Args:
        store: The corpus.
        config: The run, with all that it takes over from before.
        sources: Every input of the generation.
        before: What it starts from, to tell what changed.
        stages: As `run`.
        progress: Who is told.
    """
    _check(config, stages)
    config = kept_prompts.keep(store.storage, config)
    execution = Execution(store, config, before, progress or Silent())
    _warn_of_large_shards(store, sources)
    with execution.ray:
        unread = sum(source.bytes for source in ingest.unread(store, config.ingest, sources))
        if stages and unread > SMALL_BYTES:
            execution.ray.start()
        with execution.timed("ingest"):
            taken = ingest.run(store, config, sources, execution.progress, before)
        for manifest in (taken.interactions, taken.questions):
            execution.keep(manifest, execution.seconds["ingest"], taken.made[manifest.unit])
        for failure in taken.aside.values():
            execution.set_aside(failure)
        _warn_of_unknown_cases(store, config, taken.interactions)
        execution.run(stages)
    head = _head(store, execution, taken, config, before, complete=bool(stages))
    generation = Generation(store, config.name, head)
    return RunResult(
        generation,
        execution.manifests,
        execution.seconds,
        execution.made,
        execution.asked,
        taken.facts,
        config,
        {"process": peak_memory(), "worker": execution.peak},
        execution.aside,
    )


def _check(config: RunConfig, stages: Sequence[str]) -> None:
    """Find settings that are wrong before anything is done.

    Raises:
        ConfigError, UsageError: One is.
    """
    all_units(config, stages)
    ray_nodes.check(config.compute)
    observe.check(config.compute)


def _warn_of_large_shards(store: Store, sources: Sequence[Source]) -> None:
    """Say so where a corpus has outgrown its shards, whose number is fixed: workers hold a shard in memory."""
    each = sum(source.bytes for source in sources) // store.shards
    if each > LARGE_SHARD_BYTES:
        log.warning(
            "%s has %d shards with some %d MB of input each, and a worker holds one in memory; a new corpus of the "
            "same inputs would have %d (--set shards=N)",
            store.storage.uri,
            store.shards,
            each >> 20,
            default_shards(sources),
        )


def _warn_of_unknown_cases(store: Store, config: RunConfig, interactions: Manifest) -> None:
    """Say which cases have an extractor of their own and are not in the corpus (they may come with later logs)."""
    named: dict[int, set[str]] = {}
    for one in variants(config.extract):
        for case in one.cases:
            named.setdefault(shard_of(case, store.shards), set()).add(case)
    for part in interactions.parts:
        if part.shard in named:
            there = store.read_part("interactions", part.shard, part.key, ["case_id"])["case_id"]
            named[part.shard] -= set(there.unique().to_pylist())
    if unknown := sorted(set().union(*named.values())):
        shown = ", ".join(unknown[:5]) + (", ..." if len(unknown) > 5 else "")
        log.warning("extract.cases: %d of the cases named are not in the corpus: %s", len(unknown), shown)


def conclude(watch: Watch, result: RunResult) -> None:
    """Let the record of a run keep what it made, and what the command will end with although all is written."""
    parts = {unit: len(manifest.parts) for unit, manifest in result.manifests.items()}
    watch.conclude(parts, result.made, shards_aside(result) or too_many_rejects(result))


def check_finished(result: RunResult) -> None:
    """Raise where a run is finished and yet not as it should be.

    Raises:
        ShardsAsideError: It went on without some shards.
        TooManyRejectsError: The share of rejects is above the limit.
    """
    if (error := shards_aside(result) or too_many_rejects(result)) is not None:
        raise error


def shards_aside(result: RunResult) -> ShardsAsideError | None:
    """Return the error of a run that went on without some shards; None where it made all."""
    return asides.complaint(result.generation.store, result.aside, result.manifests)


def too_many_rejects(result: RunResult) -> TooManyRejectsError | None:
    """Return the error of a run whose share of rejects is above the limit; None where it is not."""
    config = result.config
    records = int(result.facts["records"])
    rejects = result.manifests["questions"].stats.get("rejected_records", 0)
    share = rejects / max(1, records)
    if share > config.ingest.max_reject_share:
        return TooManyRejectsError(
            f"{rejects} of {records} records were rejected ({share:.1%}); the limit is "
            f"{config.ingest.max_reject_share:.1%}",
            where=config.corpus,
            remedy=f"See them: tagloom export -C {config.corpus} rejects. "
            "Raise ingest.max_reject_share if they may be missing.",
        )
    return None


def _head(
    store: Store,
    execution: Execution,
    taken: ingest.Taken,
    config: RunConfig,
    before: Generation | None,
    *,
    complete: bool,
) -> dict[str, Any]:
    """Describe the new head. Ingest alone never takes the finished units away; what it read waits as ``pending``."""
    units = {unit: manifest.fingerprint for unit, manifest in execution.manifests.items()}
    passing = {"corpus": True, "compute": True, "inputs": True, "questions": True, "beam": True}
    settings = config.model_dump(mode="json", exclude={**passing, "extract": {"budget_tokens"}})
    settings = kept_prompts.portable(store.storage, settings)
    facts = {"records": taken.facts["records"], "repairs": dict(taken.facts["repairs"])}
    head = {"sources": list(taken.sources), "units": units, "config": settings, "pending": {}, "facts": facts}
    head |= {"aside": asides.in_head(execution.aside)} if execution.aside else {}
    if before is None or before.name != config.name or set(before.units) <= {"ingest", "questions"}:
        return head
    if not complete:
        waits = {"pending": units, "pending_aside": asides.in_head(execution.aside)}
        return {**before.head, "sources": head["sources"], **waits}
    return {**head, "experiments": _still(store, before, units)}


def _still(store: Store, before: Generation, units: Mapping[str, str]) -> dict[str, Any]:
    """Return the experiments of the generation before that are of what it holds now.

    What they read of other generations does not count.
    """
    kept = {}
    for name, own in before.head.get("experiments", {}).items():
        known = {**units, **own}
        found = [store.find_manifest(unit, mark) for unit, mark in own.items()]
        if all(one and all(known.get(u) == mark for u, mark in one.inputs.items() if u != BEFORE) for one in found):
            kept[name] = own
    return kept
