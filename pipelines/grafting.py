"""Repairs a generation: the repairs first, then the generation that has them, then what they changed."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from pipelines import asides, extract, reindex, repair, studies
from pipelines.evaluate import JUDGED
from pipelines.graft import EXPERIMENT, REPAIRS, SEARCH, SEARCHED, Grafting, Study
from pipelines.lock import writing
from pipelines.observe import observing
from pipelines.planner import part_keys
from pipelines.progress import Progress
from pipelines.query import settings
from pipelines.reader import check
from pipelines.store import BEFORE, Generation, Store
from schemas.config import NAME_PATTERN, RunConfig
from schemas.errors import ConfigError, StoreError, UsageError
from schemas.tables import empty


@dataclass(frozen=True)
class Grafted:
    """A memory that was repaired.

    Attributes:
        before: The generation that was gone on from.
        generation: The repaired one; None where there was nothing to repair.
        counts: Questions looked at, lacking and repaired, and repairs.
        repairs: Table `repairs` of this round.
        results: Table `results`; empty where there is no generation.
        asked: Unit -> what an engine did.
        remarks: On what the figures rest.
    """

    before: Generation
    generation: Generation | None
    counts: dict[str, int]
    repairs: pa.Table
    results: pa.Table
    asked: dict[str, Any]
    remarks: tuple[str, ...]


def run(
    config: RunConfig, own: Grafting, *, name: str | None = None, wait: float = 0.0, progress: Progress | None = None
) -> Grafted:
    """Repair a generation where questions cannot be answered from its packs.

    Args:
        config: The corpus, the generation to go on from, and the engine (section `extract`); without an engine
            repairs are sentences of the gold interactions.
        own: The preset, the mode and the questions to use.
        name: Name of the repaired generation; default is ``NAME-graft``.
        wait: Seconds to wait while another run holds the corpus.
        progress: Who is told.

    Raises:
        UsageError, ConfigError: A name or a setting is not valid, or there are no questions.
        StoreError: The generation lacks what is read.
    """
    store = Store.open(config.corpus)
    name = name or f"{config.name}-graft"
    if not re.fullmatch(NAME_PATTERN, name):
        raise UsageError(f"'{name}' is no name of a generation", where="--name", remedy="Use letters, digits, . _ -")
    asking = extract.is_engine(config.extract)
    if own.mode == "online" and not asking:
        raise ConfigError("online mode asks a judge", where="--online", remedy="Name an engine: --engine, --model.")
    with writing(store.storage, wait):
        before = store.generation(config.name)
        _check(before, own, asking)
        asides.warn(before)
        base = settings(before)
        given = config.model_dump(exclude_unset=True)
        more = {"grafting": own.model_dump(), "held": tuple(before.units), "asking": asking}
        study = Study.model_validate({**given, **more, "round": len(base.graph.repairs) + 1})
        with observing(store.storage, study, progress, "graft") as watch:
            execution = studies.execution(study, before, watch)
            with execution.ray:
                execution.run([EXPERIMENT])
            execution.check_whole()
        manifest = execution.manifests[REPAIRS]
        parts = (store.read_part("repairs", part.shard, part.key) for part in manifest.parts)
        found = pa.concat_tables([empty("repairs"), *parts]).unify_dictionaries()
        found = found.take(pa.array(np.argsort(np.array(found["case_id"].to_pylist(), np.str_), kind="stable")))
        counts = manifest.stats
        if not found.num_rows:
            return Grafted(before, None, counts, found, empty("results"), dict(execution.asked), ())
        written = repair.write(store.storage, found)
    after, remarks = _reindexed(config, base, written, before, name, wait, progress)
    with writing(store.storage, wait) as held:
        after = store.generation(after.name)
        shared = [one for one in _judging(after) if one in _judging(before)]
        last = Study.model_validate(
            {
                "corpus": config.corpus,
                "name": after.name,
                "compute": config.compute.model_dump(exclude_unset=True),
                "evaluate": base.evaluate.model_dump(),
                **more,
                "round": study.round,
                "presets": shared,
                "counts": counts,
            }
        )
        with observing(store.storage, last, progress, "graft") as watch:
            measuring = studies.execution(last, after, watch)
            judged = before.manifest(JUDGED)
            measuring.manifests[BEFORE], measuring.upstream[BEFORE] = judged, part_keys(judged.parts)
            with measuring.ray:
                measuring.run([EXPERIMENT])
            measuring.check_whole()
        after = studies.hang(after, EXPERIMENT, [measuring.manifests[EXPERIMENT]], held)
    results = after.table("results", unit=EXPERIMENT)
    return Grafted(before, after, counts, found, results, dict(execution.asked), remarks)


def _reindexed(
    config: RunConfig,
    base: RunConfig,
    repairs: str,
    before: Generation,
    name: str,
    wait: float,
    progress: Progress | None,
) -> tuple[Generation, tuple[str, ...]]:
    """Make the repaired generation; also tell where it ranks as before."""
    graph = {"repairs": list(dict.fromkeys([*base.graph.repairs, repairs]))}
    compute = config.compute.model_dump(exclude_unset=True)
    wanted = RunConfig.model_validate(
        {"corpus": config.corpus, "name": before.name, "graph": graph, "compute": compute}
    )
    done = reindex.run(reindex.prepare(wanted, origin=before.name, name=name), wait=wait, progress=progress)
    after = before.store.generation(done.equal or name)
    if all(after.units.get(unit) == mark for unit, mark in before.units.items() if unit.startswith("rank/")):
        remark = (
            "no preset of the generation ranks by facts or concepts, so rankings are as before; packs have the facts"
        )
        return after, (remark,)
    return after, ()


def _check(before: Generation, own: Grafting, asking: bool) -> None:
    """Make sure that a generation has what repairs are made from."""
    check(before, [own.preset])
    uri = before.store.storage.uri
    if asking and SEARCHED not in before.units:
        raise StoreError(
            f"generation '{before.name}' holds no '{SEARCHED}', which sub-questions are looked up in",
            where=uri,
            remedy=f"Make it: tagloom run -C {uri} -n {before.name} --preset {SEARCH} --preset {own.preset}",
        )
    if JUDGED not in before.units:
        raise UsageError(
            f"generation '{before.name}' was not evaluated, so no gain could be told",
            where=uri,
            remedy=f"Run it whole: tagloom run -C {uri} -n {before.name}",
        )


def _judging(generation: Generation) -> Iterable[str]:
    """Return the presets that a generation's evaluation is about."""
    return [name.partition("/")[2] for name in generation.manifest(JUDGED).config["presets"]]
