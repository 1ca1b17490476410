"""Forgetting as an experiment: generations with less of a graph, their sizes, and what that does to rankings."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from pipelines import asides, reindex
from pipelines.evaluate import JUDGED
from pipelines.progress import Progress
from pipelines.query import settings as settings_of
from pipelines.store import Generation, Store
from schemas.config import EvaluateConfig, ForgetConfig, GraphConfig, RunConfig
from schemas.errors import UsageError
from schemas.ids import nearest
from schemas.options import checked
from transforms import experiments, graphs
from transforms.experiments import Row
from transforms.forgetting import accessing

EXPERIMENT = "forgetting"
WHOLE = "whole"
"""Variant of the generation that nothing was forgotten in."""

MOST = 100
"""Variants of a sweep."""


@dataclass(frozen=True)
class Variant:
    """One generation of the experiment.

    Attributes:
        name: What was changed, such as ``threshold=0.05``; `WHOLE` for the generation gone on from.
        x: Value of what was swept, where that is one number; a threshold of 0 forgets nothing.
        generation: The generation.
        kept: Name that what was called like it before has now; empty where there was nothing.
        nodes, edges, bytes: Rows of both tables of the graph, and the size of their files.
        kinds: Node kind -> nodes that went for good.
        pinned: Nodes that were pinned.
    """

    name: str
    x: float | None
    generation: Generation
    kept: str
    nodes: int
    edges: int
    bytes: int
    kinds: Mapping[str, int]
    pinned: int


@dataclass(frozen=True)
class Forgotten:
    """What the experiment made and measured.

    Attributes:
        graph: Graph kind.
        variants: The whole one, then those of the sweep.
        presets: Presets over the graph.
        results: Table `results`.
        remarks: What a reader must know, in words.
    """

    graph: str
    variants: tuple[Variant, ...]
    presets: tuple[str, ...]
    results: pa.Table
    remarks: tuple[str, ...]


def run(
    config: RunConfig,
    graph: str,
    settings: Mapping[str, Any],
    *,
    sweep: Mapping[str, Sequence[Any]] | None = None,
    origin: str = "main",
    name: str | None = None,
    access: str | None = None,
    wait: float = 0.0,
    progress: Progress | None = None,
) -> Forgotten:
    """Make the generations, and compare each with the one that it goes on from.

    Args:
        config: The corpus, and how to compute.
        graph: Graph kind to forget in.
        settings: Settings of `ForgetConfig`; a dot in a key leads into `weights`.
        sweep: Setting -> values to try, all with all.
        origin: Generation to go on from; the graph is whole in it.
        name: Name of the generation, and first part of the names of a sweep's; default ``ORIGIN-forgotten``.
        access: Preset of `origin` whose rankings for half of the questions count as accesses. Effects are then measured
            on the other half.
        wait: Seconds to wait while another run holds the corpus.
        progress: Who is told.

    Raises:
        UsageError, ConfigError: A setting is not valid, or the graph is not whole in `origin`.
        StoreError: There is no such generation, or it lacks the graph.
    """
    before = Store.open(config.corpus).generation(origin)
    _check(before, graph)
    asides.warn(before)
    given = dict(settings)
    if access is not None:
        given["access"] = {"unit": f"rank/{access}", "runs": _rankings(before, access)}
    chosen = list(_variants(given, sweep or {}, graph))
    stem = name or f"{origin}-forgotten"
    names = [stem + "".join(f"-{part.replace('=', '-')}" for part in label if part) for label, _, _ in chosen]
    if origin in names:
        raise UsageError(f"'{origin}' is what the new generation goes on from", where="--name")
    prepared = [
        reindex.prepare(
            config.model_copy(update={"graph": _section(before, graph, own)}),
            origin=origin,
            name=one,
        )
        for one, (_, _, own) in zip(names, chosen, strict=True)
    ]
    by_threshold = set(sweep or {"threshold"}) == {"threshold"}
    variants = [_variant(WHOLE, 0.0 if by_threshold else None, before, "", graph)]
    evaluation = EvaluateConfig()  # type: ignore[call-arg]
    for one, (label, x, own), ready in zip(names, chosen, prepared, strict=True):
        done = reindex.run(ready, wait=wait, progress=progress)
        made = done.result.generation
        evaluation = done.result.config.evaluate
        shown = ", ".join(label) or f"threshold={own.threshold:g}"
        at = x if label else own.threshold
        variants.append(_variant(shown, at, Generation(made.store, done.equal or one, made.head), done.kept, graph))
    presets, remarks = _presets(before, graph)
    if access is not None:
        remarks.append(
            f"accesses are those of {access} for half of the questions; effects are measured on the other half, while "
            "the metrics of the new generation are over both"
        )
    if any(given.get(key) for key in ("pinned", "pinned_kinds")) and not any(one.pinned for one in variants):
        remarks.append("no node is pinned: no key or kind is like those given")
    if all(one.nodes == variants[0].nodes for one in variants):
        remarks.append(_why_none([own for _, _, own in chosen]))
    rows = [*_sizes(variants, before), *_effects(variants, presets, evaluation, half=access is not None)]
    return Forgotten(graph, tuple(variants), tuple(presets), experiments.results(EXPERIMENT, rows), tuple(remarks))


def _section(before: Generation, graph: str, own: ForgetConfig) -> GraphConfig:
    """Return the settings that differ; they name the graph, so that they hold whatever presets later runs have."""
    kinds = dict.fromkeys([*settings_of(before).graph.kinds, graph])
    return GraphConfig.model_validate({"kinds": tuple(kinds), "forget": {graph: own.model_dump()}})


def _why_none(chosen: Sequence[ForgetConfig]) -> str:
    """Say how long a case must be before the shares of turns and of one edge let a node fall below the threshold."""
    least = math.inf
    for own in chosen:
        left = own.threshold - own.weights.degree * math.log(2) / math.log(11)
        if left > 0:
            share = max(own.weights.turns / left, 1)
            least = min(least, max(own.every, own.half_life_turns * math.log2(share)))
    if math.isinf(least):
        return "no node was forgotten: a single edge keeps a node above such a threshold"
    return (
        "no node was forgotten: with these settings a node of one edge stays for "
        f"{math.ceil(least):,} interactions in any event"
    )


def _check(before: Generation, graph: str) -> None:
    graphs.load(graph)
    if f"graph/{graph}" not in before.units:
        raise UsageError(
            f"generation '{before.name}' has no graph '{graph}'",
            where="--graph",
            remedy=f"Make it first: tagloom run -C {before.store.storage.uri} --name {before.name} with a preset over "
            f"it, or --set graph.kinds=[{graph}]",
        )
    if "forget" in before.manifest(f"graph/{graph}").config:
        raise UsageError(
            f"generation '{before.name}' has forgotten already",
            where="--from",
            remedy="Name one where the graph is whole; forgetting replays the whole history.",
        )


def _rankings(before: Generation, preset: str) -> str:
    unit = f"rank/{preset}"
    if unit not in before.units:
        ranked = [one.partition("/")[2] for one in before.units if one.startswith("rank/")]
        guess = nearest(preset, ranked)
        hint = f"Did you mean '{guess}'? " if guess else ""
        raise UsageError(
            f"generation '{before.name}' has no ranking by '{preset}'",
            where="--access",
            remedy=f"{hint}It has: {', '.join(ranked) or 'none'}.",
        )
    return before.units[unit]


def _variants(
    settings: Mapping[str, Any], sweep: Mapping[str, Sequence[Any]], graph: str
) -> Iterator[tuple[list[str], float | None, ForgetConfig]]:
    """Yield what is changed, where that stands on the axis, and the settings of each variant."""
    count = 1
    for values in sweep.values():
        count *= len(values)
    if count > MOST:
        raise UsageError(f"{count} variants; {MOST} are the most", where="--sweep", remedy="Try fewer values.")
    for key, values in sweep.items():
        for value in values:
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise UsageError(f"'{key}={value}' is no number", where="--sweep")
    for chosen in product(*sweep.values()):
        label = [f"{key}={value:g}" for key, value in zip(sweep, chosen, strict=True)]
        given = _nested({**settings, **dict(zip(sweep, chosen, strict=True))})
        found = checked(ForgetConfig, given, owner="forgetting", where=f"graph.forget.{graph}")
        yield label, float(chosen[0]) if len(chosen) == 1 else None, cast("ForgetConfig", found)


def _nested(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with a section for each dot in a key."""
    found: dict[str, Any] = {}
    for key, value in settings.items():
        section, dot, inner = key.partition(".")
        if not dot:
            found[key] = value
        elif isinstance(found.setdefault(section, {}), dict):
            found[section] = {**found[section], inner: value}
        else:
            raise UsageError(f"'{section}' is a value, not a section", where=f"--set {key}")
    return found


def _variant(name: str, x: float | None, generation: Generation, kept: str, graph: str) -> Variant:
    unit = f"graph/{graph}"
    manifest = generation.manifest(unit)
    kinds: dict[str, int] = {}
    if "forgotten" in manifest.tables:
        for part in generation.parts("forgotten", ["kind", "returned"], unit):
            gone = part.filter(pc.invert(part["returned"]))["kind"].cast(pa.string())
            for one in gone.value_counts().to_pylist():
                kinds[one["values"]] = kinds.get(one["values"], 0) + one["counts"]
    size = sum(part.tables[table].bytes for part in manifest.parts for table in ("nodes", "edges"))
    pinned = manifest.stats.get("pinned", 0)
    nodes, edges = manifest.rows("nodes"), manifest.rows("edges")
    return Variant(name, x, generation, kept, nodes, edges, size, dict(sorted(kinds.items())), pinned)


def _presets(before: Generation, graph: str) -> tuple[list[str], list[str]]:
    """Return the presets that read the graph, and what there is to say about them."""
    units = before.manifest(JUDGED).config["presets"] if JUDGED in before.units else []
    read = {f"index/{graph}", f"embed/{graph}"}
    found = [unit.partition("/")[2] for unit in units if read & set(before.manifest(unit).inputs)]
    if found:
        return found, []
    return [], [
        f"no preset of generation '{before.name}' reads the graph '{graph}', so there are no effects to measure"
    ]


def _sizes(variants: Sequence[Variant], before: Generation) -> Iterator[Row]:
    cases = before.manifest("ingest").stats.get("cases", 0)
    for one in variants:
        for metric, value in (("nodes", one.nodes), ("edges", one.edges), ("bytes", one.bytes)):
            yield Row(one.name, "", metric, float(value), x=one.x, cases=cases)


def _effects(
    variants: Sequence[Variant], presets: Sequence[str], config: EvaluateConfig, *, half: bool
) -> Iterator[Row]:
    """Yield the means of each variant, and its paired differences to the whole graph."""
    if not presets:
        return
    for one in variants:
        yield from experiments.means(
            partial(_judged, one.generation, presets, half),
            presets,
            config,
            variant=one.name,
            x=one.x,
        )
    pairs = [(f"{preset}\0", preset) for preset in presets]
    for one in variants[1:]:
        yield from experiments.differences(
            partial(_both, one.generation, variants[0].generation, presets, half),
            pairs,
            config,
            variant=one.name,
            x=one.x,
            as_named=lambda _, preset: (preset, WHOLE),
        )


def _both(one: Generation, whole: Generation, presets: Sequence[str], half: bool) -> Iterator[pa.Table]:
    sides = experiments.labelled(_judged(one, presets, half), "\0"), _judged(whole, presets, half)
    for tables in zip(*sides, strict=True):
        yield pa.concat_tables(tables).unify_dictionaries()


def _judged(generation: Generation, presets: Iterable[str], half: bool) -> Iterator[pa.Table]:
    """Yield the metrics of some presets, shard by shard; of half of the questions where the others gave accesses."""
    wanted = pa.array(presets, pa.string())
    for part in generation.parts("question_metrics", unit=JUDGED):
        rows = part.filter(pc.is_in(part["retriever"].cast(pa.string()), value_set=wanted))
        if half:
            rows = rows.filter(pa.array(~accessing(rows["case_id"], rows["question_id"]), pa.bool_()))
        yield rows
