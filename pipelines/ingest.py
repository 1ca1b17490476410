"""Stage ingest: logs -> interactions, questions, rejects, on Beam.

Two steps, and only references travel through Beam. **Read**: one element a file; its records become fragments on
storage, one Arrow file a table and group of some `ingest.split_mb` of text, with one record batch a shard. **Merge**:
one element a shard; its batches become the final parts. A shard's key is the hash of the content of its batches, so
only shards whose cases changed are made again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pipelines import beam_engine
from pipelines.beam_engine import About
from pipelines.failures import Failure
from pipelines.fragment_files import (
    fragment_name,
    read_fragments,
    shard_batches,
    source_manifest,
    was_read,
)
from pipelines.ingest_read import Reading, check, read_source
from pipelines.meter import Cost
from pipelines.planner import Keys, finished, named_parts, unit_fingerprint, whole_parts
from pipelines.progress import Progress
from pipelines.sources import Source
from pipelines.storage import Storage
from pipelines.store import Generation, Manifest, Part, Store
from pipelines.work import Done
from schemas.config import IngestConfig, RunConfig
from schemas.errors import InputError, StoreError
from schemas.ids import fingerprint
from transforms import formats

VERSION = 1
OUTPUTS = {"ingest": ("interactions",), "questions": ("questions", "rejects")}
"""Units that ingest makes, with their tables. Questions have keys of their own: a new one touches no interaction."""


@dataclass(frozen=True)
class Taken:
    """What ingest yields.

    Attributes:
        interactions: Manifest of the unit `ingest`.
        questions: Manifest of the unit `questions`.
        sources: Keys of the sources.
        made: Unit -> parts made.
        facts: ``records`` read, ``repairs`` by kind, and the ``sources``, of this very set of sources.
        aside: Shard -> why it was set aside while merging. What it lacks is not in the manifests.
        cost: What reading and merging took in this run.
    """

    interactions: Manifest
    questions: Manifest
    sources: tuple[str, ...]
    made: Mapping[str, int]
    facts: Mapping[str, Any]
    aside: Mapping[int, Failure] = field(default_factory=dict)
    cost: Cost = field(default_factory=Cost)


@dataclass(frozen=True)
class _Merge:
    """Work item of the second step: where the batches of one shard lie, and the units to write, with their keys."""

    uri: str
    shards: int
    shard: int
    keys: Mapping[str, str]
    batches: tuple[tuple[str, int, int], ...]


# -- sources ----------------------------------------------------------------------------------------------------------


def source_key(store: Store, config: IngestConfig, source: Source) -> str:
    """Return the key of what reading a source yields."""
    own = config.model_dump(mode="json", exclude={"max_reject_share", "split_mb"})
    if source.format:
        own |= {"format": source.format, "encoding": "auto"}
    readers = formats.versions(own["format"])
    digests = [source.digest, source.beside] if source.beside else source.digest
    return fingerprint(["read", VERSION, source.name, digests, own, readers, store.shards])


def unread(store: Store, config: IngestConfig, sources: Sequence[Source]) -> list[Source]:
    """Return the sources that were not read with this configuration."""
    return [source for source in sources if not was_read(store.storage, source_key(store, config, source))]


def known_sources(store: Store, keys: Sequence[str]) -> list[Source]:
    """Return the sources behind keys, as they were when read."""
    found = [source_manifest(store.storage, key)["source"] for key in keys]
    return [Source(**f) for f in found]


# -- merge ------------------------------------------------------------------------------------------------------------


def merge_shard(item: _Merge) -> Done:
    """Make the parts of one shard that the item names; whoever runs it counts what that costs."""
    from transforms.merge import merge  # loads polars, which a run with nothing to do does not need

    store = Store(Storage(item.uri), item.shards)
    merged = merge(read_fragments(store.storage, item.batches))
    cases = len(merged.interactions["case_id"].unique())
    stats: dict[str, dict[str, int]] = {"ingest": {"cases": cases}, "questions": {}}
    evidence = pc.starts_with(merged.rejects["reason"].cast(pa.string()), "evidence_")
    if rejected := merged.rejects.num_rows - (pc.sum(evidence).as_py() or 0):
        stats["questions"]["rejected_records"] = rejected
    for name, count in merged.repairs.items():
        stats["questions" if "question" in name else "ingest"][f"repaired_{name}"] = count
    parts = []
    for unit, key in item.keys.items():
        made = {table: getattr(merged, table) for table in OUTPUTS[unit]}
        parts.append(store.write_part(item.shard, key, made, stats[unit]))
    return Done(tuple(parts), Cost())


def shard_keys(storage: Storage, keys: Sequence[str]) -> dict[str, Keys]:
    """Return the part keys of both units by shard, from the content of sources that were read."""
    content: dict[str, dict[int, list[str]]] = {"ingest": {}, "questions": {}}
    for key in keys:
        for shard, digests in source_manifest(storage, key)["content"].items():
            for unit, digest in digests.items():
                content[unit].setdefault(int(shard), []).append(digest)
    shards = sorted({*content["ingest"], *content["questions"]})
    first = {s: fingerprint(["ingest", VERSION, sorted(content["ingest"].get(s, []))]) for s in shards}
    second = {s: fingerprint(["questions", VERSION, first[s], sorted(content["questions"].get(s, []))]) for s in shards}
    return {"ingest": first, "questions": second}


# -- the stage --------------------------------------------------------------------------------------------------------


def run(
    store: Store, config: RunConfig, sources: Sequence[Source], progress: Progress, before: Generation | None = None
) -> Taken:
    """Read the sources that were not read yet, and merge the shards that changed.

    Args:
        store: The corpus.
        config: The run.
        sources: All inputs of the generation, whether read before or not.
        progress: Who is told.
        before: What the run starts from: parts that its manifests name are not read again.

    Raises:
        InputError: A source cannot be read, or there is none.
        ConfigError: A setting is not valid.
    """
    check(config.ingest)
    if not sources:
        raise InputError("nothing was ingested here and no input is given", where=config.corpus)
    storage = store.storage
    keys = {source_key(store, config.ingest, source): source for source in sources}
    new = [
        Reading(storage.absolute, store.shards, k, s, config.ingest)
        for k, s in keys.items()
        if not was_read(storage, k)
    ]
    cost = Cost()
    if new:
        cost.add(_read_all(store, config, new, len(keys), progress))
    part_keys = shard_keys(storage, list(keys))
    marks = {unit: unit_fingerprint(unit, part_keys[unit]) for unit in OUTPUTS}
    known = {unit: finished(store, unit, marks[unit]) for unit in OUTPUTS}
    there = {
        u: whole_parts(store, OUTPUTS[u], part_keys[u], named=named_parts(before, u))
        for u, manifest in known.items()
        if manifest is None
    }
    had = {u: len(parts) for u, parts in there.items()}
    missing = sorted({shard for u, parts in there.items() for shard in part_keys[u] if shard not in parts})
    aside: dict[int, Failure] = {}
    if missing:
        batches = shard_batches(storage, list(keys))
        todo = []
        for shard in missing:
            wanted = {u: part_keys[u][shard] for u, parts in there.items() if shard not in parts}
            todo.append(_Merge(storage.absolute, store.shards, shard, wanted, tuple(batches[shard])))
        progress.begin("ingest: merge", len(part_keys["ingest"]), len(part_keys["ingest"]) - len(todo), "shards")
        kept = len(part_keys["ingest"]) > len(todo)
        known_aside = _known_aside(before)
        ran = beam_engine.run_map(
            todo, merge_shard, config.beam, "merge", progress, None, _about_merge, kept, known_aside
        )
        cost.add(ran.cost)
        aside = {todo[number].shard: failure for number, failure in ran.asides.items()}
        progress.end()
        for number, done in ran.done.items():
            for unit, part in zip(todo[number].keys, done.parts, strict=True):
                there[unit] = there[unit] | {part.shard: part}
    facts = _facts(storage, list(keys))
    interactions = known["ingest"] or _manifest("ingest", part_keys["ingest"], there["ingest"], {}, aside)
    questions = known["questions"] or _manifest(
        "questions", part_keys["questions"], there["questions"], {"ingest": interactions.fingerprint}, aside
    )
    for manifest in (interactions, questions):
        for name, count in manifest.stats.items():
            if name.startswith("repaired_"):
                facts["repairs"][name.removeprefix("repaired_")] += count
    facts["repairs"] = dict(sorted(facts["repairs"].items()))
    made = {u: len(there[u]) - had[u] if u in there else 0 for u in OUTPUTS}
    return Taken(interactions, questions, tuple(keys), made, facts, aside, cost)


def _read_all(store: Store, config: RunConfig, items: Sequence[Reading], total: int, progress: Progress) -> Cost:
    megabytes = {item.key: max(1, item.source.bytes >> 20) for item in items}
    progress.begin(f"ingest: read {len(items)} of {total} files", sum(megabytes.values()), 0, "MB")

    groups = Counter[str]()

    def read_so_far(item: Reading) -> int:
        while store.storage.exists(f"fragments/{item.key}/{fragment_name(groups[item.key], 'sessions')}"):
            groups[item.key] += 1
        return min(megabytes[item.key] - 1, groups[item.key] * config.ingest.split_mb)

    def about(item: Reading) -> About:
        return About("ingest", item.source.uri, megabytes[item.key])

    ran = beam_engine.run_map(items, read_source, config.beam, "read", progress, read_so_far, about)
    progress.worked(ran.cost)
    progress.end()
    return ran.cost


def _known_aside(before: Generation | None) -> set[int]:
    """Return the shards that were set aside when the generation before was made, or when logs were read last."""
    found: set[int] = set()
    if before is not None:
        for group in (before.units, before.head.get("pending", {})):
            for unit in OUTPUTS:
                with suppress(StoreError, KeyError):
                    found |= set(before.store.read_manifest(unit, group[unit]).aside)
    return found


def _about_merge(item: _Merge) -> About:
    return About("ingest", f"merging shard {item.shard}", 1, item.shard, tuple(item.keys))


def _facts(storage: Storage, keys: Sequence[str]) -> dict[str, Any]:
    found = [source_manifest(storage, key) for key in keys]
    repairs: Counter[str] = Counter()
    for one in found:
        repairs.update(one["repairs"])
    sources = [
        {**one["source"], "format": one["format"], "unit": one["unit"], "records": one["records"]} for one in found
    ]
    return {"records": sum(one["records"] for one in found), "repairs": repairs, "sources": sources}


def _manifest(
    unit: str, keys: Keys, parts: Mapping[int, Part], inputs: Mapping[str, str], aside: Mapping[int, Failure]
) -> Manifest:
    """Return the manifest of a unit, without what was set aside: the next run finds the whole one unmade."""
    if lost := [shard for shard in keys if shard not in parts and shard not in aside]:
        raise StoreError(f"shard {lost[0]} is missing after ingest", remedy="Run the same command again.")
    left = {shard: key for shard, key in keys.items() if shard in parts}
    without = {shard: aside[shard].reason for shard in sorted(keys) if shard not in parts}
    ordered = tuple(parts[shard] for shard in sorted(left))
    made = Manifest(unit, unit_fingerprint(unit, left, without), VERSION, {}, OUTPUTS[unit], dict(inputs), ordered)
    return replace(made, aside=without) if without else made
