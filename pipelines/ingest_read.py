"""The first step of ingest: one file becomes fragments on storage."""

from __future__ import annotations

import contextvars
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any, BinaryIO, cast
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pipelines import meter
from pipelines.fragment_files import fragment_name, write_group
from pipelines.sources import Hashing, Source, names_beside, opened
from pipelines.storage import Storage
from schemas.config import IngestConfig
from schemas.errors import ConfigError, InputError
from transforms import formats
from transforms.fragments import FRAGMENT_SCHEMAS, fragments
from transforms.records import Record


@dataclass(frozen=True)
class Reading:
    """Work item of the first step."""

    uri: str
    shards: int
    key: str
    source: Source
    config: IngestConfig


def check(config: IngestConfig) -> None:
    """Check what pydantic cannot: the format and the time zone.

    Raises:
        ConfigError: The time zone is not known.
        InputError: The format is not known.
    """
    if config.format != "auto":
        formats.named(config.format)
    _zone(config.timezone)


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError) as error:
        raise ConfigError(
            f"no time zone is called '{name}'",
            where="ingest.timezone",
            remedy="Use an IANA name, such as Europe/Paris.",
        ) from error


class _Metered:
    """A source's stream; waiting for it counts as reading."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def read(self, size: int = -1) -> bytes:
        """Return up to so many bytes."""
        with meter.reading() as cost:
            block: bytes = self._stream.read(size)
            cost.bytes_read += len(block)
        return block


def read_source(item: Reading) -> int:
    """Read one source into fragments and write their manifest last; return its records.

    Raises:
        InputError: The file cannot be opened, or its format is not known.
    """
    storage = Storage(item.uri)
    try:
        with opened(item.source) as stream:
            hashing = Hashing(_Metered(stream), item.source.bytes)
            manifest = _read_stream(storage, item, cast(BinaryIO, hashing))
            while hashing.read(1 << 20):
                pass
    except OSError as error:
        raise InputError(
            f"cannot be read: {error}",
            where=item.source.uri,
            remedy="Put it back, or run again naming the inputs that there are; those are then all.",
        ) from error
    if item.source.hashed and hashing.hexdigest() != item.source.digest:
        raise InputError(
            "the file has changed since it was looked at",
            where=item.source.uri,
            remedy="Run again, naming it as an input.",
        )
    storage.write_json(f"fragments/{item.key}/manifest.json", manifest)
    return int(manifest["records"])


def open_source(stream: BinaryIO, source: Source, config: IngestConfig) -> formats.Reading:
    """Open a source with the settings that hold for it."""
    chosen, encoding = (source.format, "auto") if source.format else (config.format, config.encoding)
    zone, names = _zone(config.timezone), names_beside(source)
    return formats.read_source(stream, source.name, chosen, config.unit, zone, encoding, names)


def _read_stream(storage: Storage, item: Reading, stream: BinaryIO) -> dict[str, Any]:
    config = item.config
    reading = open_source(stream, item.source, config)
    counted: Counter[str] = Counter()
    digests: dict[int, dict[str, Any]] = {}
    groups: list[list[int]] = []
    limit = config.split_mb << 20
    # Encoding runs beside parsing, in order; at most one group waits, so memory stays bounded.
    with ThreadPoolExecutor(1) as encoder:
        writing: Future[None] | None = None
        records = _counting(reading.records, counted)
        for number, group in enumerate(fragments(records, item.source.name, reading.unit, item.shards, limit)):
            groups.append(sorted(group))
            if writing is not None:
                writing.result()
            metered = contextvars.copy_context()  # what the other thread writes counts for this item
            writing = encoder.submit(metered.run, write_group, storage, item.key, number, group, digests)
        if writing is not None:
            writing.result()
    files = [fragment_name(n, table) for n in range(len(groups)) for table in FRAGMENT_SCHEMAS]
    return {
        "source": asdict(item.source),
        "format": reading.reader.NAME,
        "unit": reading.unit,
        "encoding": reading.encoding,
        "files": files,
        "groups": groups,
        "content": {
            str(shard): {unit: d.hexdigest() for unit, d in sorted(by_unit.items())}
            for shard, by_unit in sorted(digests.items())
        },
        "records": counted["records"],
        "repairs": dict(sorted(reading.context.repairs.items())),
    }


def _counting(records: Iterator[Record], counted: Counter[str]) -> Iterator[Record]:
    for record in records:
        counted["records"] += 1
        yield record
