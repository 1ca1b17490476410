"""Replay files: what results rest on, as hashes, and whether a corpus and an environment still agree with them.

A file holds no text of the data, no secret and no place on a machine: inputs by name and digest, settings by value
where they are neither paths nor credentials and by hash in any event, code and libraries by version and hash, every
part by its SHA-256.
"""

from __future__ import annotations

import hashlib
import json
import platform
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.resources import files
from pathlib import Path
from typing import Any

import xxhash

from pipelines.execute import code_version
from pipelines.experimenting import unit_of
from pipelines.fragment_files import source_manifest
from pipelines.ingest import known_sources
from pipelines.parquet import encode_table
from pipelines.stage import Inputs, Unit, load_stage
from pipelines.store import Generation, Manifest, Part, Store
from pipelines.work import wait_for
from schemas.errors import InputError, StoreError, UsageError
from schemas.ids import fingerprint, nearest

FORMAT = 1
SAMPLE = 3
"""Shards of a unit that are computed again."""

RECOMPUTED = ("rank", "experiment")
"""Stages that are computed again: they ask no model."""

_PACKAGES = ("schemas", "transforms", "indexers", "pipelines")
_SUFFIXES = (".py", ".yaml", ".txt", ".md", ".json")
_SECRET = re.compile(r"key$|token$|secret|password|passwd|credential|authorization|headers", re.IGNORECASE)
_PLACE = re.compile(r"^(/|~|[A-Za-z]:[\\/]|\\\\|[A-Za-z][A-Za-z0-9+.-]*://)")


@dataclass(frozen=True)
class Finding:
    """One thing that was compared.

    Attributes:
        section: inputs, settings, data, results, code, environment or recomputed.
        what: The thing.
        state: ``agrees``, ``differs`` or ``missing``.
        detail: What was recorded and what is there, where they differ.
    """

    section: str
    what: str
    state: str
    detail: str = ""


@dataclass(frozen=True)
class Checked:
    """What a check found.

    Attributes:
        findings: Everything compared, in order.
        verdict: Whether the results follow, in a sentence.
        follows: True where nothing that results rest on differs or is missing.
    """

    findings: tuple[Finding, ...]
    verdict: str
    follows: bool


BEARING = ("inputs", "settings", "data", "results", "recomputed")
"""Sections that results rest on; code and environment may differ and give the same bytes."""


def keep(generation: Generation, experiment: str) -> str:
    """Write the replay file of an experiment into its corpus; returns its place there."""
    path = f"experiments/{generation.name}/{experiment}/replay.json"
    generation.store.storage.write_json(path, record(generation, experiment))
    return path


def record(generation: Generation, experiment: str | None = None) -> dict[str, Any]:
    """Describe what a generation, or an experiment on it, rests on.

    Raises:
        UsageError: There is no such experiment.
        StoreError: A manifest is damaged.
    """
    units = _units(generation, experiment)
    return {
        "replay": FORMAT,
        "generation": generation.name,
        "experiment": experiment,
        "inputs": _inputs(generation),
        "units": {name: _described(manifest) for name, manifest in sorted(units.items())},
        "results": fingerprint(sorted((name, one.fingerprint) for name, one in units.items())),
        "code": {"version": code_version(), "source": _source()},
        "environment": environment(),
    }


def _units(generation: Generation, experiment: str | None) -> dict[str, Manifest]:
    """Return the units of a generation's run, or of an experiment with all that these read."""
    made = generation.head.get("experiments", {})
    if experiment is None:
        return {name: generation.manifest(name) for name in generation.head.get("units", {})}
    if experiment not in made:
        guess = nearest(experiment, list(made))
        hint = f"Did you mean '{guess}'?" if guess else f"Run it: tagloom experiment {experiment}"
        raise UsageError(
            f"generation '{generation.name}' has no experiment '{experiment}'",
            where=generation.store.storage.uri,
            remedy=hint,
        )
    found: dict[str, Manifest] = {}
    waiting = list(made[experiment])
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name] = generation.manifest(name)
            waiting += list(found[name].inputs)
    return found


def _inputs(generation: Generation) -> list[dict[str, Any]]:
    storage, keys = generation.store.storage, list(generation.head.get("sources", []))
    found = []
    for key, source in zip(keys, known_sources(generation.store, keys), strict=True):
        held = source_manifest(storage, key)
        about = {name: held[name] for name in ("format", "unit", "encoding", "records")}
        found.append({"name": source.name, "bytes": source.bytes, "digest": source.digest, **about})
    return sorted(found, key=lambda one: (one["name"], one["digest"]))


def _described(manifest: Manifest) -> dict[str, Any]:
    return {
        "fingerprint": manifest.fingerprint,
        "version": manifest.version,
        "settings": _plain(manifest.config),
        "settings_hash": fingerprint(dict(manifest.config)),
        "reads": dict(manifest.inputs),
        "parts": [
            {
                "shard": part.shard,
                "key": part.key,
                "tables": {name: {"rows": t.rows, "sha256": t.sha256} for name, t in part.tables.items()},
            }
            for part in manifest.parts
        ],
    }


def _plain(value: Any, name: str = "") -> Any:
    """Return settings without credentials and places; prompts and models that are files keep their last name."""
    if value and _SECRET.search(name):
        return "(left out)"
    if isinstance(value, Mapping):
        return {key: _plain(inner, str(key)) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner, name) for inner in value]
    if isinstance(value, str) and _PLACE.match(value):
        return "(place)/" + re.split(r"[\\/]", value.rstrip("/"))[-1]
    return value


@cache
def _source() -> str:
    """Return the hash of the source of the packages that results depend on."""
    digest = hashlib.blake2b(digest_size=16)
    for package in _PACKAGES:
        root = Path(str(files(package)))
        for path in sorted(p for p in root.rglob("*") if p.suffix in _SUFFIXES and p.is_file()):
            digest.update(f"{package}/{path.relative_to(root).as_posix()}\0".encode())
            digest.update(hashlib.sha256(path.read_bytes().replace(b"\r\n", b"\n")).digest())
    return digest.hexdigest()


def environment() -> dict[str, Any]:
    """Return the versions of Python, of the libraries that Tagloom names, and the platform."""
    try:
        lines = [line for line in requires("tagloom") or () if 'extra == "dev"' not in line.replace("'", '"')]
        named = [re.split(r"[\s\[;<>=!~]", line, maxsplit=1)[0] for line in lines]
    except PackageNotFoundError:
        named = []
    libraries = {}
    for name in sorted(set(named)):
        try:
            libraries[name] = version(name)
        except PackageNotFoundError:
            continue  # of an extra that is not installed
    return {
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "system": platform.system(),
        "machine": platform.machine(),
        "libraries": libraries,
    }


def read(path: str) -> dict[str, Any]:
    """Read a replay file.

    Raises:
        InputError: It cannot be read, or is none.
    """
    try:
        found = json.loads(Path(path).read_bytes())
    except (OSError, ValueError) as error:
        raise InputError(f"cannot be read as a replay file: {error}", where=path) from error
    shape = {"generation": str, "inputs": list, "units": dict, "code": dict, "environment": dict}
    if not isinstance(found, dict) or found.get("replay") != FORMAT:
        raise InputError("is no replay file of this version", where=path, remedy="tagloom replay --record writes one.")
    for name, kind in shape.items():
        if not isinstance(found.get(name), kind):
            raise InputError(f"has no '{name}'", where=path, remedy="The file is damaged; record it again.")
    try:
        for unit in found["units"].values():
            for part in unit["parts"]:
                _ = part["shard"], part["key"], [one["sha256"] for one in part["tables"].values()]
            _ = unit["fingerprint"], unit["settings_hash"]
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(f"is damaged: {error!r}", where=path, remedy="Record it again.") from error
    return found


def check(kept: Mapping[str, Any], generation: Generation | None, *, recompute: bool = False) -> Checked:
    """Compare a replay file with a generation and with this environment.

    Args:
        kept: What `read` returned.
        generation: The generation; None compares code and environment alone.
        recompute: Also compute a sample of shards again, and compare bytes.

    Raises:
        StoreError: A manifest is damaged.
    """
    findings = [*_check_code(kept)]
    again: list[Finding] = []
    if generation is not None:
        findings = [*_check_inputs(kept, generation), *_check_units(kept, generation), *findings]
        if recompute:
            again = list(_recompute(kept, generation))
    findings += again
    wrong = [one for one in findings if one.state != "agrees" and one.section in BEARING]
    drift = [one for one in findings if one.state != "agrees" and one.section not in BEARING]
    if generation is None:
        verdict = "no corpus was named: only code and environment are compared"
    elif wrong:
        verdict = f"the results do not follow: {len(wrong)} of what they rest on differ or are missing"
    elif again:
        verdict = f"the results follow: {len(again)} parts were computed again and have the same bytes"
    elif drift:
        verdict = "the recorded results are there; --recompute tells whether this code and environment give them"
    else:
        verdict = "the recorded results are there, and code and environment are those that made them"
    return Checked(tuple(findings), verdict, not wrong)


def _compared(section: str, what: str, recorded: Any, found: Any) -> Finding:
    if recorded == found:
        return Finding(section, what, "agrees")
    if found is None:
        return Finding(section, what, "missing", f"recorded {recorded}")
    return Finding(section, what, "differs", f"recorded {recorded}, found {found}")


def _check_code(kept: Mapping[str, Any]) -> Iterator[Finding]:
    now = {"version": code_version(), "source": _source()}
    for name, found in now.items():
        yield _compared("code", name, kept["code"].get(name), found)
    here = environment()
    for name in ("python", "implementation", "system", "machine"):
        yield _compared("environment", name, kept["environment"].get(name), here[name])
    recorded = kept["environment"].get("libraries", {})
    for name in sorted({*recorded, *here["libraries"]}):
        yield _compared("environment", name, recorded.get(name), here["libraries"].get(name))


def _check_inputs(kept: Mapping[str, Any], generation: Generation) -> Iterator[Finding]:
    def by_name(inputs: list[dict[str, Any]]) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for one in inputs:
            found.setdefault(str(one.get("name")), []).append(str(one.get("digest")))
        return {name: sorted(digests) for name, digests in found.items()}

    recorded, here = by_name(kept["inputs"]), by_name(_inputs(generation))
    for name in sorted({*recorded, *here}):
        yield _compared("inputs", name, recorded.get(name), here.get(name))


def _check_units(kept: Mapping[str, Any], generation: Generation) -> Iterator[Finding]:
    for name, unit in sorted(kept["units"].items()):
        section = "results" if name.partition("/")[0] in ("evaluate", "experiment") else "data"
        if name not in generation.units:
            yield Finding(section, name, "missing", f"generation '{generation.name}' has not made it")
            continue
        manifest = generation.manifest(name)
        yield _compared("settings", name, unit["settings_hash"], fingerprint(dict(manifest.config)))
        recorded = {part["shard"]: part for part in unit["parts"]}
        there = {part.shard: part for part in manifest.parts}
        faults = [f"shard {shard} is new" for shard in there if shard not in recorded]
        for shard, part in recorded.items():
            if shard not in there:
                faults.append(f"shard {shard} is not there")
                continue
            sums = {table: one["sha256"] for table, one in part["tables"].items()}
            if sums != _sums(generation.store, there[shard]):
                faults.append(f"shard {shard} has other bytes")
        state = "differs" if faults else "agrees"
        yield Finding(section, name, state, "; ".join(faults[:5]) + (" ..." if len(faults) > 5 else ""))


def _sums(store: Store, part: Part) -> dict[str, str]:
    """Return the SHA-256 of a part's tables as they lie on storage now."""
    found = {}
    for table in part.tables:
        try:
            data = store.storage.read(store.part_path(table, part.shard, part.key))
        except StoreError:
            continue
        found[table] = hashlib.sha256(data).hexdigest()
    return found


def _recompute(kept: Mapping[str, Any], generation: Generation) -> Iterator[Finding]:
    for name, recorded in sorted(kept["units"].items()):
        if name.partition("/")[0] not in RECOMPUTED or name not in generation.units:
            continue
        manifest = generation.manifest(name)
        unit = unit_of(generation, manifest)
        if unit is None:
            continue
        wanted = {part["shard"]: part for part in recorded["parts"]}
        for part in _sample(name, manifest):
            if part.shard not in wanted:
                continue
            sums = {table: one["sha256"] for table, one in wanted[part.shard]["tables"].items()}
            yield _compared("recomputed", f"{name}, shard {part.shard}", sums, _made(generation, unit, part.shard))


def _sample(unit: str, manifest: Manifest) -> list[Part]:
    drawn = sorted(manifest.parts, key=lambda part: xxhash.xxh64_intdigest(f"{unit} {part.shard}".encode()))
    return sorted(drawn[:SAMPLE], key=lambda part: part.shard)


def _made(generation: Generation, unit: Unit, shard: int) -> dict[str, str]:
    parts = {}
    left_out = generation.manifest(unit.name).aside
    for name in (*unit.reads, *unit.reads_whole):
        held = generation.manifest(name)
        if name in unit.reads_whole or (unit.whole and held.whole):
            wanted = {part.shard for part in held.parts}
        else:
            wanted = {part.shard for part in held.parts if part.shard not in left_out} if unit.whole else {shard}
        parts[name] = [(part.shard, part.key) for part in held.parts if part.shard in wanted]
    made = load_stage(unit.stage).process(Inputs(generation.store, parts), (unit,))
    (output,) = made if isinstance(made, list | tuple) else wait_for(made)  # type: ignore[arg-type]
    return {
        name: hashlib.sha256(encode_table(name, table, output.stats if n == 0 else None)).hexdigest()
        for n, (name, table) in enumerate(output.tables.items())
    }
