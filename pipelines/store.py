"""The corpus on storage: parts, manifests, heads.

Layout (format 1)::

    corpus.json                                   identity, format version, number of shards
    tables/TABLE/00012-of-00064/KEY.parquet       one part
    fragments/SOURCE_KEY/00003.arrow              what a reader made of one input file
    manifests/STAGE/FINGERPRINT.json              the parts of one unit, written last
    heads.json                                    name -> fingerprints of one generation, replaced atomically

Nothing is overwritten but `heads.json`; the same key always means the same bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import pyarrow as pa

from pipelines.parquet import decode_table, encode_table, read_facts
from pipelines.storage import Storage, is_temporary, json_bytes
from schemas.errors import LockedError, StoreError
from schemas.ids import shard_name, shard_of
from schemas.tables import empty, schema

FORMAT = 1

BEFORE = "before"
"""Name that an experiment gives to a unit of another generation that it compares with."""


@dataclass(frozen=True)
class TablePart:
    """One Parquet file: its rows, bytes and SHA-256."""

    rows: int
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Part:
    """The tables of one unit in one shard."""

    shard: int
    key: str
    tables: Mapping[str, TablePart]
    stats: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Manifest:
    """Everything about one unit (stage and variant) in one generation.

    Attributes:
        unit: Name, such as ``rank/bm25``.
        fingerprint: Hash of the unit's configuration and of all part keys.
        version: Version of the stage's code.
        config: The unit's own configuration.
        tables: Tables of the unit, also where no shard has rows.
        inputs: Names of the units that it read -> their fingerprints.
        parts: One a shard that has rows, in order of shard.
        run: What may differ between equal results: seconds, time, code version, workers.
        whole: True where its one part covers all shards.
        aside: Shard -> why it is left out: what failed too often there, here or in a unit that this one reads.
    """

    unit: str
    fingerprint: str
    version: int
    config: Mapping[str, Any]
    tables: tuple[str, ...]
    inputs: Mapping[str, str]
    parts: tuple[Part, ...]
    run: Mapping[str, Any] = field(default_factory=dict)
    whole: bool = False
    aside: Mapping[int, str] = field(default_factory=dict)

    @property
    def stats(self) -> dict[str, int]:
        """Counts of all parts, added up."""
        total: dict[str, int] = {}
        for part in self.parts:
            for name, count in part.stats.items():
                total[name] = total.get(name, 0) + count
        return dict(sorted(total.items()))

    def rows(self, table: str) -> int:
        """Rows of one table over all parts."""
        return sum(part.tables[table].rows for part in self.parts if table in part.tables)


def refuse_foreign(storage: Storage) -> None:
    """Check that a corpus is here, or may be made here.

    Raises:
        StoreError: The folder holds something else.
    """
    ours = ("lock.json", ".lock")
    foreign = (name for name, _ in storage.walk() if name not in ours and not is_temporary(name))
    if not storage.exists("corpus.json") and any(True for _ in foreign):
        raise StoreError(
            "the folder is not empty and holds no corpus", where=storage.uri, remedy="Name another folder."
        )


def units_of(head: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield every (unit, fingerprint) that a generation needs: its own, those that wait, those of experiments."""
    for group in (head.get("units", {}), head.get("pending", {}), *head.get("experiments", {}).values()):
        yield from group.items()


@dataclass(frozen=True)
class Store:
    """A corpus: reads and writes its parts, manifests and heads."""

    storage: Storage
    shards: int

    # -- identity ---------------------------------------------------------------------------------------------

    @classmethod
    def open(cls, uri: str) -> Store:
        """Open an existing corpus.

        Raises:
            StoreError: There is none, or its format is not known.
        """
        storage = Storage(uri)
        found = storage.find_json("corpus.json")
        if found is None:
            storage.require_bucket()
            raise StoreError("no corpus here", where=uri, remedy="Make one: tagloom run --corpus URI INPUT...")
        return cls._of(storage, found)

    @classmethod
    def _of(cls, storage: Storage, found: Any) -> Store:
        if not isinstance(found, dict) or found.get("format") != FORMAT:
            raise StoreError(
                f"corpus format {found.get('format') if isinstance(found, dict) else '?'} is not {FORMAT}",
                where=storage.uri,
            )
        return cls(storage, int(found["shards"]))

    @classmethod
    def create(cls, uri: str, shards: int) -> Store:
        """Open a corpus, making it first where there is none; an existing one keeps its number of shards.

        Call it while holding `pipelines.lock.writing`, so that two processes do not make it with different shards.

        Raises:
            StoreError: The folder holds something else.
        """
        storage = Storage(uri)
        found = storage.find_json("corpus.json")
        if found is not None:
            return cls._of(storage, found)
        storage.require_bucket()
        refuse_foreign(storage)
        storage.write_json("corpus.json", {"format": FORMAT, "shards": shards})
        return cls(storage, shards)

    # -- parts ------------------------------------------------------------------------------------------------

    def part_path(self, table: str, shard: int, key: str) -> str:
        """Return where a part of a table lies."""
        return f"tables/{table}/{shard_name(shard, self.shards)}/{key}.parquet"

    def has_part(self, tables: Iterable[str], shard: int, key: str) -> bool:
        """Tell whether all tables of a part are there; an empty file on a disk is what a power failure left of one."""
        root, paths = self.storage.local, [self.part_path(table, shard, key) for table in tables]
        return all(self.storage.exists(path) and (root is None or (root / path).stat().st_size) for path in paths)

    def write_part(
        self, shard: int, key: str, tables: Mapping[str, pa.Table], stats: Mapping[str, int] | None = None
    ) -> Part:
        """Write the tables of a part; counts travel in the first table's Parquet metadata."""
        written = {}
        for n, (name, table) in enumerate(tables.items()):
            data = encode_table(name, table, stats if n == 0 else None)
            self.storage.write(self.part_path(name, shard, key), data)
            written[name] = TablePart(table.num_rows, len(data), hashlib.sha256(data).hexdigest())
        return Part(shard, key, written, dict(stats or {}))

    def adopt_part(self, tables: Iterable[str], shard: int, key: str, *, verify: bool = True) -> Part | None:
        """Describe a part that is there already, or return None when it is not whole.

        Args:
            tables: Its tables.
            shard: Its shard.
            key: Its key.
            verify: Read it to its end, with page checksums; needless for what this very run made.
        """
        found, stats = {}, {}
        for n, name in enumerate(tables):
            path = self.part_path(name, shard, key)
            data = self.storage.find(path)
            if data is None:
                return None
            try:
                if verify:
                    decode_table(name, data, path)
                rows, counts = read_facts(data, path)
            except StoreError:
                return None
            if n == 0:
                stats = counts
            found[name] = TablePart(rows, len(data), hashlib.sha256(data).hexdigest())
        return Part(shard, key, found, stats)

    def read_part(self, table: str, shard: int, key: str, columns: list[str] | None = None) -> pa.Table:
        """Read one table of a part.

        Raises:
            StoreError: It is missing or damaged.
        """
        path = self.part_path(table, shard, key)
        return decode_table(table, self.storage.read(path), self.storage.path(path), columns)

    # -- manifests and heads ----------------------------------------------------------------------------------

    def manifest_path(self, unit: str, fingerprint: str) -> str:
        """Return where a manifest lies."""
        return f"manifests/{unit.partition('/')[0]}/{fingerprint}.json"

    def write_manifest(self, manifest: Manifest) -> None:
        """Write a manifest; it comes after all parts that it names."""
        told = asdict(manifest)
        aside = {str(shard): reason for shard, reason in sorted(told.pop("aside").items())}
        told |= {"aside": aside} if aside else {}
        self.storage.write_json(self.manifest_path(manifest.unit, manifest.fingerprint), told)

    def read_manifest(self, unit: str, fingerprint: str) -> Manifest:
        """Read a manifest.

        Raises:
            StoreError: It is missing or damaged.
        """
        path = self.manifest_path(unit, fingerprint)
        return self._manifest(path, self.storage.read_json(path))

    def _manifest(self, path: str, raw: Any) -> Manifest:
        try:
            parts = tuple(
                Part(p["shard"], p["key"], {t: TablePart(**v) for t, v in p["tables"].items()}, p["stats"])
                for p in raw.pop("parts")
            )
            aside = {int(shard): str(reason) for shard, reason in raw.pop("aside", {}).items()}
            return Manifest(**{**raw, "tables": tuple(raw["tables"]), "parts": parts, "aside": aside})
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise StoreError(f"is damaged: {error}", where=self.storage.path(path)) from error

    def find_manifest(self, unit: str, fingerprint: str) -> Manifest | None:
        """Read a manifest, or return None where there is none."""
        path = self.manifest_path(unit, fingerprint)
        raw = self.storage.find_json(path)
        return None if raw is None else self._manifest(path, raw)

    def manifests(self, stage: str) -> Iterator[Manifest]:
        """Yield every manifest of a stage that is there and can be read, in order of fingerprint."""
        for path, _ in sorted(self.storage.walk(f"manifests/{stage}")):
            name = path.rpartition("/")[2]
            if name.endswith(".json"):
                try:
                    yield self.read_manifest(stage, name.removesuffix(".json"))
                except StoreError:
                    continue

    def heads(self) -> dict[str, dict[str, Any]]:
        """Return name -> generation; see `Generation` for its keys."""
        return self._heads(self.storage.find("heads.json"))

    def _heads(self, data: bytes | None) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {} if data is None else self.storage.parsed("heads.json", data)
        if not isinstance(found, dict) or not all(isinstance(head, dict) for head in found.values()):
            raise StoreError(
                "does not hold generations",
                where=self.storage.path("heads.json"),
                remedy="Remove it and run again with the inputs named; parts that are whole are found and kept.",
            )
        return found

    def move_heads(self, moved: Mapping[str, Mapping[str, Any]], dropped: Iterable[str] = ()) -> None:
        """Point names at generations, and forget others, all at once; the caller holds the lock.

        Raises:
            LockedError: Another process moved one in this very moment; nothing has changed then.
        """
        gone = set(dropped)

        def after(now: bytes | None) -> bytes:
            kept = {name: head for name, head in self._heads(now).items() if name not in gone}
            return json_bytes({**kept, **{name: dict(head) for name, head in moved.items()}})

        if not self.storage.change("heads.json", after):
            raise LockedError(
                "another process has moved a generation's name at the same time",
                where=self.storage.path("heads.json"),
                remedy="Finished parts stay. Run the same command again.",
            )

    def generation(self, name: str = "main") -> Generation:
        """Return a named generation.

        Raises:
            StoreError: There is none of that name.
        """
        heads = self.heads()
        if name not in heads:
            known = f"Generations here: {', '.join(sorted(heads))}." if heads else "Nothing has been run here yet."
            raise StoreError(f"no generation is called '{name}'", where=self.storage.uri, remedy=known)
        return Generation(self, name, heads[name])


@dataclass(frozen=True)
class Generation:
    """One complete set of tables under a name.

    Attributes:
        head: ``units`` (unit -> fingerprint), ``sources`` (keys of the inputs read), ``config``, ``experiments``
            (name -> units that were made of it afterwards), ``aside`` (unit -> shard -> reason) where shards failed,
            ``pending`` and ``pending_aside``, the same of inputs that wait.
    """

    store: Store
    name: str
    head: Mapping[str, Any]

    @property
    def units(self) -> dict[str, str]:
        """Unit -> fingerprint, those of experiments included."""
        found = dict(self.head.get("units", {}))
        for own in self.head.get("experiments", {}).values():
            found.update(own)
        return found

    def manifest(self, unit: str) -> Manifest:
        """Return the manifest of a unit.

        Raises:
            StoreError: The generation has no such unit.
        """
        if unit not in self.units:
            raise StoreError(
                f"generation '{self.name}' holds no '{unit}'",
                where=self.store.storage.uri,
                remedy=f"It holds: {', '.join(sorted(self.units)) or 'nothing'}. 'tagloom run' makes the rest.",
            )
        return self.store.read_manifest(unit, self.units[unit])

    def tables(self) -> dict[str, list[str]]:
        """Return table -> the units that hold it; of experiments their results and answers alone."""
        found: dict[str, list[str]] = {}
        own = self.head.get("units", {})
        for unit in self.units:
            for table in self.manifest(unit).tables:
                if unit in own or table in ("results", "answers"):
                    found.setdefault(table, []).append(unit)
        return found

    def parts(self, table: str, columns: list[str] | None = None, unit: str | None = None) -> Iterator[pa.Table]:
        """Yield the table shard by shard (unit by unit where several hold it); one part is in memory at a time.

        Raises:
            SchemaError: No table has that name.
            StoreError: The generation does not hold it, or a part is damaged.
        """
        schema(table)
        held = self.tables().get(table, [])
        units = held if unit is None else [unit]
        if not units:
            raise StoreError(
                f"generation '{self.name}' holds no table '{table}'",
                where=self.store.storage.uri,
                remedy=f"It holds: {', '.join(sorted(self.tables())) or 'nothing'}.",
            )
        for name in units:
            for part in self.manifest(name).parts:
                if table in part.tables:
                    yield self.store.read_part(table, part.shard, part.key, columns)

    def table(self, table: str, columns: list[str] | None = None, unit: str | None = None) -> pa.Table:
        """Return the whole table in memory."""
        tables = [part for part in self.parts(table, columns, unit) if part.num_rows]
        if not tables:
            return empty(table) if columns is None else empty(table).select(columns)
        return pa.concat_tables(tables).unify_dictionaries()

    def case_part(self, unit: str, table: str, case_id: str) -> pa.Table:
        """Return one table of the shard that holds a case (other cases of the shard included)."""
        manifest = self.manifest(unit)
        shard = 0 if manifest.whole else shard_of(case_id, self.store.shards)
        for part in manifest.parts:
            if part.shard == shard and table in part.tables:
                return self.store.read_part(table, shard, part.key)
        return empty(table)
