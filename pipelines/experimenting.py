"""Plans an experiment on a generation, runs what is missing, and hangs it on the generation."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from indexers import presets
from indexers.presets import Preset
from pipelines import asides, experiments
from pipelines.evaluate import JUDGED
from pipelines.execute import Execution
from pipelines.experiment import STAGE
from pipelines.experiments import Asked, Experiment
from pipelines.lock import writing
from pipelines.observe import observing
from pipelines.planner import all_units, part_keys
from pipelines.progress import Progress
from pipelines.query import settings
from pipelines.stage import Unit
from pipelines.storage import Storage
from pipelines.store import Generation, Manifest, Store
from schemas.config import RunConfig
from schemas.errors import StoreError, UsageError
from schemas.ids import nearest
from schemas.options import checked
from transforms.tokens import VERSION as TOKENS_VERSION

log = logging.getLogger(__name__)

_GIVEN = ("embed/interactions", "embed/questions")
"""Units of the stages after extract of which derived stores take their rows."""

_WHOLE = "route/"
"""Units of which every shard reads the one part."""


@dataclass(frozen=True)
class Wanted:
    """An experiment that is asked for.

    Attributes:
        name: Its name.
        presets: Presets and groups; none = those that the experiment is about, or else the generation's.
        baseline: The preset that the others are compared with; None = the first one.
        options: The experiment's own options.
        other: Name of another generation of the corpus, or a corpus URI.
        other_name: Name of the generation in that other corpus.
    """

    name: str
    presets: tuple[str, ...] = ()
    baseline: str | None = None
    options: Mapping[str, Any] | None = None
    other: str | None = None
    other_name: str = "main"


@dataclass(frozen=True)
class Done:
    """An experiment that was run.

    Attributes:
        generation: The generation, with the experiment.
        name: The experiment.
        asked: What it was asked for.
        results: Table `results`.
        manifests: Unit -> its manifest.
        made: Unit -> parts made (the others were there).
    """

    generation: Generation
    name: str
    asked: Asked
    results: pa.Table
    manifests: Mapping[str, Manifest]
    made: Mapping[str, int]


def run(
    corpus: str,
    name: str,
    wanted: Wanted,
    *,
    workers: int | str = "auto",
    wait: float = 0.0,
    progress: Progress | None = None,
) -> Done:
    """Run an experiment on a generation; whatever is there already is not made again.

    Args:
        corpus: The corpus.
        name: The generation.
        wanted: The experiment.
        workers: As ``compute.workers``.
        wait: Seconds to wait while a run holds the corpus.
        progress: Who is told.

    Raises:
        UsageError: It cannot be asked for in this way, or there is nothing to measure.
        StoreError: The generation lacks what a preset reads, or a part is damaged.
        LockedError: A run holds the corpus.
    """
    store = Store.open(corpus)
    with writing(store.storage, wait) as held:
        generation = store.generation(name)
        config = settings(generation)
        config = config.model_copy(update={"compute": config.compute.model_copy(update={"workers": workers})})
        planned, asked = plan(generation, config, wanted)
        _check_whole(generation, planned)
        with observing(store.storage, config, progress, "experiment") as watch:
            execution = Execution(store, config, generation, watch)
            for unit in sorted({read for one in planned for read in (*one.reads, *one.reads_whole)} | {"ingest"}):
                if unit in generation.units:
                    execution.manifests[unit] = generation.manifest(unit)
                    execution.upstream[unit] = part_keys(execution.manifests[unit].parts)
            with execution.ray:
                execution.make([(STAGE, unit) for unit in planned])
            execution.check_whole()
        own = {unit.name: execution.manifests[unit.name] for unit in planned}
        marks = {unit: manifest.fingerprint for unit, manifest in own.items()}
        head = store.heads()[name]
        head = {**head, "experiments": {**head.get("experiments", {}), wanted.name: marks}}
        held.check()
        store.move_heads({name: head})
    after = Generation(store, name, head)
    found = after.table("results", unit=f"experiment/{wanted.name}")
    return Done(after, wanted.name, asked, found, own, {unit: execution.made[unit] for unit in own})


def plan(generation: Generation, config: RunConfig, wanted: Wanted) -> tuple[list[Unit], Asked]:
    """Return the units of an experiment, in order, and what it is asked for; arguments and errors as `run`."""
    experiment = experiments.load(wanted.name)
    options = checked(experiment.Options, wanted.options or {}, owner=wanted.name, where=f"experiment.{wanted.name}")
    chosen = wanted.presets or experiment.PRESETS
    sweep = {} if chosen else config.rank.sweep
    found = presets.expand(chosen or config.rank.presets, config.rank.define, sweep)
    baseline = _baseline(found, wanted.baseline)
    _check_questions(generation)
    other = _other(generation, experiment, wanted)
    sides = () if other is None else _sides(generation, other)
    asked = Asked(tuple(found), baseline, options, config.evaluate, sides)
    if other is not None:
        return [_two(generation, other, experiment, asked)], asked
    variants = [
        _variant(generation, config, experiment, found, one.name, one.stores)
        for one in experiment.variants(asked, generation)
    ]
    return [*variants, _whole(experiment, asked, [unit.name for unit in variants], None, {})], asked


def _baseline(found: Mapping[str, Preset], wanted: str | None) -> str:
    if wanted is None:
        return next(iter(found))
    if wanted not in found:
        guess = nearest(wanted, list(found))
        hint = f"Did you mean '{guess}'? " if guess else ""
        raise UsageError(
            f"'{wanted}' is none of the presets compared",
            where="--baseline",
            remedy=f"{hint}Presets: {', '.join(found)}.",
        )
    return wanted


def _check_questions(generation: Generation) -> None:
    """Make sure that some question has evidence.

    Raises:
        UsageError: None has.
    """
    columns = ["gold_session_ids", "gold_message_ids", "gold_interaction_ids", "expected_contains"]
    asked = 0
    for part in generation.parts("questions", columns):
        asked += len(part)
        if any(pc.any(pc.greater(pc.list_value_length(part[name]), 0)).as_py() for name in columns):
            return
    raise UsageError(
        f"none of its {asked:,} questions names evidence" if asked else "the generation has no questions",
        where=f"{generation.store.storage.uri}, generation '{generation.name}'",
        remedy=f"Add some: tagloom run -C {generation.store.storage.uri} --append --questions FILE",
    )


def _check_whole(generation: Generation, planned: Sequence[Unit]) -> None:
    """Say so where what an experiment reads lacks shards.

    Raises:
        StoreError: Cases are pooled: a smaller pool is easier to search, so figures would be of another experiment.
    """
    reads = dict.fromkeys(read for one in planned for read in (*one.reads, *one.reads_whole))
    if (told := asides.remark(generation, reads)) and any(
        one.config.get("stores", {}).get("kind") == "pooled" for one in planned
    ):
        raise StoreError(
            f"cases cannot be pooled: {told}", where=generation.store.storage.uri, remedy="Run again, then measure."
        )
    asides.warn(generation, reads)


def _variant(
    generation: Generation,
    config: RunConfig,
    experiment: Experiment,
    found: Mapping[str, Preset],
    name: str,
    stores: Mapping[str, Any],
) -> Unit:
    needed = list(dict.fromkeys(unit for preset in found.values() for unit in preset.units))
    described: dict[str, Any] = {
        "experiment": experiment.NAME,
        "variant": name,
        "stores": dict(stores),
        "presets": {preset: one.described for preset, one in found.items()},
        "depth": config.rank.depth,
        "ks": list(config.evaluate.ks),
        "language": config.index.language,
        "tokens": TOKENS_VERSION,
    }
    if stores["kind"] == "same":
        extra = ["extract", *(f"graph/{kind}" for kind in stores["graphs"])] if "graphs" in stores else []
        reads = list(dict.fromkeys(["ingest", "questions", *needed, *extra]))
    else:
        reads, described["makes"] = _made_of(config_of(config, found), needed)
    _check_held(generation, reads, found)
    return Unit(
        f"experiment/{experiment.NAME}/{name}",
        described,
        tuple(unit for unit in reads if not unit.startswith(_WHOLE)),
        ("question_metrics",),
        whole=stores["kind"] == "pooled",
        reads_whole=tuple(unit for unit in reads if unit.startswith(_WHOLE)),
        runtime={} if stores["kind"] == "same" else _runtime(generation, described),
    )


def unit_of(generation: Generation, manifest: Manifest) -> Unit | None:
    """Return a finished unit as it was planned; None where it also reads another generation."""
    config = manifest.config
    if config.get("sides"):
        return None
    derived = config.get("stores", {"kind": "same"})["kind"] != "same"
    return Unit(
        manifest.unit,
        config,
        tuple(unit for unit in manifest.inputs if not unit.startswith(_WHOLE)),
        manifest.tables,
        whole=manifest.whole,
        reads_whole=tuple(unit for unit in manifest.inputs if unit.startswith(_WHOLE)),
        runtime=_runtime(generation, config) if derived else {},
    )


def _runtime(generation: Generation, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a worker needs to make stores."""
    found = {name: presets.rebuilt(name, described) for name, described in config["presets"].items()}
    units = [unit for unit in generation.units if unit.partition("/")[0] == "extract"]
    return {
        "config": config_of(settings(generation), found).model_dump(mode="json"),
        "tables": {unit: list(generation.manifest(unit).tables) for unit in units},
    }


def config_of(config: RunConfig, found: Mapping[str, Preset]) -> RunConfig:
    """Return a configuration with these presets alone, so that its units are those that they read."""
    own = {f"own-{n}": preset.described for n, preset in enumerate(found.values())}
    define = {name: {k: v for k, v in described.items() if k != "version"} for name, described in own.items()}
    rank = config.rank.model_copy(update={"presets": tuple(define), "define": define, "sweep": {}})
    # Repairs are of the cases as they are.
    graph = config.graph.model_copy(update={"repairs": ()})
    return config.model_copy(update={"rank": rank, "graph": graph})


def _made_of(config: RunConfig, needed: Sequence[str]) -> tuple[list[str], dict[str, Any]]:
    """Return the units that stores are made of, and how what is made of them is made."""
    every = {unit.name: (stage, unit) for stage, unit in all_units(config)}
    reads: dict[str, None] = {"ingest": None, "questions": None}
    made: dict[str, Any] = {}

    def look(name: str) -> None:
        if name in reads or name in made:
            return
        if name.partition("/")[0] == "extract" or name in _GIVEN:
            reads[name] = None
            return
        if name not in every or name.startswith(_WHOLE):
            raise UsageError(
                f"'{name}', which a preset reads, cannot be made for stores of their own",
                where="--preset",
                remedy="Leave that preset out, or take it to an experiment over the cases as they are.",
            )
        stage, unit = every[name]
        made[name] = [stage.version, unit.described]
        for read in unit.reads:
            look(read)

    for name in needed:
        look(name)
    return list(reads), dict(sorted(made.items()))


def _check_held(generation: Generation, reads: Sequence[str], found: Mapping[str, Preset]) -> None:
    """Make sure that the generation holds what is read.

    Raises:
        StoreError: It does not.
    """
    for unit in reads:
        if unit not in generation.units:
            needing = next((name for name, preset in found.items() if unit in preset.units), None)
            why = f", which preset '{needing}' reads" if needing else ""
            _refuse(generation, f"holds no '{unit}'{why}", [name.partition("@")[0] for name in found])


def _refuse(generation: Generation, fault: str, names: Sequence[str]) -> None:
    uri, name = generation.store.storage.uri, generation.name
    option = "" if name == "main" else f" --name {name}"
    chosen = " ".join(f"--preset {preset}" for preset in dict.fromkeys(names))
    raise StoreError(
        f"generation '{name}' {fault}", where=uri, remedy=f"Make it: tagloom run -C {uri}{option} {chosen}"
    )


def _whole(
    experiment: Experiment,
    asked: Asked,
    reads: Sequence[str],
    other: str | None,
    runtime: Mapping[str, Any],
) -> Unit:
    described = {
        "experiment": experiment.NAME,
        "version": experiment.VERSION,
        "presets": list(asked.presets),
        "baseline": asked.baseline,
        "options": asked.options.model_dump(mode="json"),
        "evaluate": asked.evaluate.model_dump(mode="json"),
        "sides": list(asked.sides),
        "other": other,
    }
    return Unit(f"experiment/{experiment.NAME}", described, tuple(reads), ("results",), whole=True, runtime=runtime)


def _other(generation: Generation, experiment: Experiment, wanted: Wanted) -> Generation | None:
    """Return the generation that this one is compared with, where the experiment compares two."""
    if not experiment.TWO:
        if wanted.other is not None:
            raise UsageError(f"'{wanted.name}' is about one generation", where="--with", remedy="Leave it out.")
        return None
    if wanted.other is None:
        heads = sorted(set(generation.store.heads()) - {generation.name})
        known = f"Generations here: {', '.join(heads)}; or " if heads else "Give "
        raise UsageError(
            f"'{wanted.name}' compares with another generation", where="--with", remedy=f"{known}a corpus URI."
        )
    heads_ = generation.store.heads()
    if wanted.other in heads_:
        return Generation(generation.store, wanted.other, heads_[wanted.other])
    if not Storage(wanted.other).exists("corpus.json"):
        raise UsageError(
            f"'{wanted.other}' is neither a generation of this corpus nor a corpus",
            where="--with",
            remedy=f"Generations here: {', '.join(sorted(heads_))}.",
        )
    return Store.open(wanted.other).generation(wanted.other_name)


def _sides(generation: Generation, other: Generation) -> tuple[str, str]:
    """Name both sides; by their corpora, where these are not the same."""
    if generation.store.storage.absolute == other.store.storage.absolute:
        if generation.name == other.name:
            raise UsageError("a generation cannot be compared with itself", where="--with", remedy="Name another one.")
        return generation.name, other.name
    names = [g.store.storage.absolute.rstrip("/").rpartition("/")[2] for g in (generation, other)]
    if names[0] == names[1]:
        names = ["a", "b"]
    return names[0], names[1]


def _two(generation: Generation, other: Generation, experiment: Experiment, asked: Asked) -> Unit:
    asides.warn(other, [JUDGED])
    for side in (generation, other):
        evaluated = side.manifest(JUDGED).config["presets"] if JUDGED in side.units else []
        lacking = [name for name in asked.presets if f"rank/{name}" not in evaluated]
        if lacking:
            every = [unit.partition("/")[2].partition("@")[0] for unit in evaluated]
            _refuse(side, f"has not ranked '{lacking[0]}'", [*every, *(name.partition("@")[0] for name in lacking)])
    manifest = other.manifest(JUDGED)
    runtime = {
        "uri": other.store.storage.absolute,
        "shards": other.store.shards,
        "parts": [(part.shard, part.key) for part in manifest.parts],
    }
    return _whole(experiment, asked, [JUDGED], manifest.fingerprint, runtime)
