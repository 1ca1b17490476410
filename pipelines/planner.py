"""What a run would do: which parts are there, which must be made, and why."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from types import MappingProxyType

from pipelines.stage import STAGES, Stage, Unit, load_stage, part_key
from pipelines.store import Generation, Manifest, Part, Store
from schemas.config import RunConfig
from schemas.errors import StoreError
from schemas.ids import fingerprint

Keys = dict[int, str]

LACKS = "lacks it"
"""End of the reason of a shard that is left out because a unit that is read leaves it out."""

READERS = 8
"""Parts that are looked at side by side; each is in memory for that."""


@dataclass(frozen=True)
class UnitPlan:
    """One unit: the key of every part, those that are there, and why the rest must be made.

    Attributes:
        keys: Shard -> key, of the shards that it can have.
        known: The manifest, when this very unit was finished before.
        present: Shard -> part that is there, whole, though no manifest names it yet.
        reason: Why parts must be made; empty when none.
        aside: Shard -> why it is left out: a unit that this one reads lacks it.
    """

    stage: Stage
    unit: Unit
    keys: Mapping[int, str]
    fingerprint: str
    known: Manifest | None
    present: Mapping[int, Part]
    reason: str
    aside: Mapping[int, str] = field(default_factory=dict)

    @property
    def missing(self) -> list[int]:
        """Shards whose parts must be made."""
        return [] if self.known else [shard for shard in self.keys if shard not in self.present]


def unit_fingerprint(unit: str, keys: Mapping[int, str], aside: Collection[int] = ()) -> str:
    """Return the fingerprint of a unit: the hash of its name, of all its part keys, and of the shards it leaves out."""
    own = [unit, sorted(keys.items())]
    return fingerprint([*own, sorted(aside)] if aside else own)


def all_units(config: RunConfig, stages: Iterable[str] = STAGES) -> list[tuple[Stage, Unit]]:
    """Return every unit of a run, in order of execution."""
    return [(stage, unit) for stage in map(load_stage, stages) for unit in stage.units(config)]


def plan_unit(
    store: Store,
    stage: Stage,
    unit: Unit,
    upstream: Mapping[str, Mapping[int, str]],
    before: Generation | None,
    aside: Mapping[str, Collection[int]] = MappingProxyType({}),
    wholes: Collection[str] = (),
) -> UnitPlan:
    """Plan one unit.

    Args:
        store: The corpus.
        stage: The unit's stage.
        unit: The unit.
        upstream: Unit -> shard -> key, for every unit that it reads.
        before: The generation that the name points at now, to tell what changed.
        aside: Unit -> shards that it leaves out; a unit that reads it leaves them out as well.
        wholes: Those units whose one part covers all shards that they do not leave out.
    """
    lacking = {shard: name for name in (*unit.reads, *unit.reads_whole) for shard in aside.get(name, ())}
    left_out = {shard: f"'{name}' {LACKS}" for shard, name in sorted(lacking.items())}
    if unit.whole:
        reads = whole_reads(unit, upstream, left_out, wholes)
        keys: Keys = {0: part_key(stage, unit, reads)} if any(found for _, found in reads) else {}
    else:
        shards = sorted({shard for name in unit.reads for shard in upstream[name]} - set(left_out))
        own = unit.by_shard(store.shards)
        keys = {
            shard: part_key(
                stage,
                own.get(shard, unit),
                [
                    *((n, [(shard, upstream[n][shard])] if shard in upstream[n] else []) for n in unit.reads),
                    *((n, sorted(upstream[n].items())) for n in unit.reads_whole),
                ],
            )
            for shard in shards
        }
    mark = unit_fingerprint(unit.name, keys, left_out)
    known = finished(store, unit.name, mark)
    if known is not None:
        return UnitPlan(stage, unit, keys, mark, known, {part.shard: part for part in known.parts}, "", left_out)
    present = whole_parts(store, unit.outputs, keys, named=named_parts(before, unit.name))
    reason = _reason(stage, unit, keys, before) if len(present) < len(keys) else ""
    return UnitPlan(stage, unit, keys, mark, None, present, reason, left_out)


def whole_reads(
    unit: Unit, upstream: Mapping[str, Mapping[int, str]], left_out: Collection[int], wholes: Collection[str]
) -> list[tuple[str, list[tuple[int, str]]]]:
    """Return (unit, [(shard, key)]) of all that a part over all shards reads, less the shards that some read lacks.

    Without that one input would hold rows of shards that another one lacks.
    """
    return [
        (name, [(s, key) for s, key in sorted(upstream[name].items()) if name in wholes or s not in left_out])
        for name in unit.reads
    ]


def whole_parts(
    store: Store,
    tables: Iterable[str],
    keys: Mapping[int, str],
    *,
    verify: bool = True,
    named: Iterable[Part] = (),
) -> dict[int, Part]:
    """Return the parts that are there and whole: what a killed run left is read to its end before it is trusted.

    Args:
        store: The corpus.
        tables: Tables of a part.
        keys: Shard -> key.
        verify: Check every page; needless for what this very run made.
        named: Parts that a manifest names. They were whole then, and are not read again.
    """
    own = tuple(tables)
    local = store.storage.local is not None
    taken = {
        part.shard: part
        for part in named
        if keys.get(part.shard) == part.key and set(part.tables) == set(own) and (not local or is_there(store, part))
    }
    left = sorted((shard, key) for shard, key in keys.items() if shard not in taken)
    # One after the other, a thousand parts on object storage would take many minutes: most of that is waiting.
    with ThreadPoolExecutor(READERS) as pool:
        found = pool.map(lambda one: store.adopt_part(own, *one, verify=verify), left)
        return taken | {part.shard: part for part in found if part is not None}


def named_parts(before: Generation | None, unit: str) -> list[Part]:
    """Return the parts that a generation's manifests of a unit name, those of one that waits included."""
    found: dict[str, Part] = {}
    if before is not None:
        for group in (before.units, before.head.get("pending", {})):
            if unit in group:
                with suppress(StoreError):
                    found |= {part.key: part for part in before.store.read_manifest(unit, group[unit]).parts}
    return list(found.values())


def is_there(store: Store, part: Part) -> bool:
    """Tell whether a part on a disk has the files, and they the sizes, that a manifest says.

    A machine that lost its power may leave a file of its final name without all of its bytes.
    """
    root = store.storage.local
    assert root is not None
    try:
        return all(
            (root / store.part_path(name, part.shard, part.key)).stat().st_size == table.bytes
            for name, table in part.tables.items()
        )
    except OSError:
        return False


def _reason(stage: Stage, unit: Unit, keys: Mapping[int, str], before: Generation | None) -> str:
    if before is None or unit.name not in before.units:
        return "not made before"
    try:
        old = before.manifest(unit.name)
    except StoreError:
        return "its manifest is missing"
    if old.version != stage.version:
        return f"stage version {old.version} -> {stage.version}"
    now = unit.described
    changed = sorted(k for k in {*old.config, *now} if old.config.get(k) != now.get(k))
    if changed:
        named = ("its cases" if name == "chosen" else name for name in changed)
        return f"configuration changed: {', '.join(named)}"
    had = {part.shard: part.key for part in old.parts}
    touched = {shard for shard, key in keys.items() if had.get(shard) != key}
    if unit.whole and touched and old.aside:
        return f"{len(old.aside)} shards were left out"
    if touched and touched <= set(old.aside):
        return f"{len(touched)} of {len(keys)} shards were set aside"
    return f"inputs changed in {len(touched)} of {len(keys)} shards"


def finished(store: Store, unit: str, fingerprint: str) -> Manifest | None:
    """Return the manifest of a unit that is finished, or None; one whose parts were removed or cut short is not.

    On object stores a look at every part would cost more than the rare removal: there the manifest is believed.
    """
    known = store.find_manifest(unit, fingerprint)
    if known is not None and store.storage.local is not None:
        return known if all(is_there(store, part) for part in known.parts) else None
    return known


def part_keys(parts: Iterable[Part]) -> Keys:
    """Return shard -> key."""
    return {part.shard: part.key for part in parts}
