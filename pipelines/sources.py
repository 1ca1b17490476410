"""Finds the input files of a run and identifies them by content."""

from __future__ import annotations

import logging
import posixpath
import re
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, BinaryIO, TypeVar, cast

import xxhash

from pipelines import archives
from pipelines.storage_faults import Patience, explained, patiently
from pipelines.storage_files import streaming
from pipelines.storage_remote import filesystem
from pipelines.uris import inside, naming
from schemas.errors import InputError, MissingDependencyError, TagloomError
from schemas.uris import secret_in, shown
from transforms import formats

T = TypeVar("T")
log = logging.getLogger(__name__)

UNKNOWN = ""
"""Format of a source that goes by the configuration."""
_TAGS = {"s3": "ETag", "s3a": "ETag", "gs": "generation", "gcs": "generation"} | dict.fromkeys(
    ("abfs", "abfss", "az"), "etag"
)
"""Object stores, and what they call their own tag of a file, which changes with its content."""
_MARK = "tag:"
"""Beginning of a digest that is a store's tag."""
_OWN_PROTOCOL = (
    "Name it by the store's own protocol (s3://, gs://, abfs://, sftp://), give the credentials by the store's usual "
    "means, or fetch the file."
)
_PATIENCE = Patience()
_CHAINED = re.compile(r"(?:zip|tar|libarchive)(?:://|::)")
_LEAST, _MOST = 64 << 10, 4 << 20
"""Bytes of an archive on a store that one request asks for."""


@dataclass(frozen=True)
class Source:
    """One input file.

    Attributes:
        name: Path relative to the input that named it, and at least as much of the path as a format goes by
            (`transforms.formats.place`); what tables and messages show. Of a member of an archive: that of the archive,
            ``/``, and the member's path in it.
        uri: Where to open it; ``zip://MEMBER::URI`` is a member of an archive.
        bytes: Its size; only so much is read, should it grow.
        digest: Hash of its content (on object stores: the store's own tag, after ``tag:``; for a member that of its
            archive).
        format: Its format, where that is known whatever the configuration says.
        beside: Hash of the files that tell the names of what it mentions (`transforms.formats.beside`); empty without.
    """

    name: str
    uri: str
    bytes: int
    digest: str
    format: str = UNKNOWN
    beside: str = ""

    @property
    def hashed(self) -> bool:
        """True where `digest` is the xxh3-128 of the content."""
        return not self.digest.startswith(_MARK)


def find_sources(
    inputs: Iterable[str], *, format: str = UNKNOWN, without: str = "", hashed: bool = False
) -> list[Source]:
    """Expand files, folders and globs into sources, each file once, in order of URI.

    A file that ends in ``.zip`` stands for its members, in order of their paths; those that fit no format are passed
    over. So is, inside of folders, globs and archives, what `pipelines.archives.passed_over` names.

    Args:
        inputs: Paths or URIs.
        format: Format of them all, where it is known.
        without: URI of a folder whose files are no inputs (the corpus, which may lie among the logs).
        hashed: Read and hash files of object stores as well: such as may grow while they are read.

    Raises:
        InputError: An input does not exist, cannot be read or holds a secret in its URI, a folder or glob holds no
            file, or an archive no conversation or what cannot be read safely.
    """
    _directory.cache_clear()
    _told_beside.cache_clear()
    found: dict[str, tuple[str, Any, str]] = {}
    corpus = _filesystem(without) if without else None
    for text in inputs:
        if fault := secret_in(text):
            raise InputError(fault, where=text, remedy=_OWN_PROTOCOL)
        fs, path = _filesystem(text)
        uri_of = naming(fs, text)
        for name, file in _asked(fs, partial(_expand, fs, path, text), text):
            if corpus is None or not inside(fs, file, corpus):
                found.setdefault(uri_of(file), (max(name, formats.place(file), key=len), fs, file))
    sources: list[Source] = []
    for uri, (name, fs, file) in sorted(found.items()):
        try:
            name.encode("utf-8")
        except UnicodeEncodeError as error:
            raise InputError("the file's name is not valid UTF-8", where=repr(file), remedy="Rename it.") from error
        if archives.is_archive(file):
            sources.extend(_members(fs, file, Source(name, uri, 0, UNKNOWN, format), hashed))
            continue
        size, digest = _asked(fs, partial(_looked_at, fs, file, hashed), file)
        sources.append(_with_beside(Source(name, uri, size, digest, format)))
    return sources


def _members(fs: Any, path: str, archive: Source, hashed: bool) -> list[Source]:
    """Return the members of an archive that fit a format."""
    if "::" in archive.uri:
        raise InputError("the archive's path has '::' in it, which parts the steps of a URI", where=path)
    ask = partial(_asked, fs, where=path)
    tag = "" if hashed else _asked(fs, partial(_tag, fs, path), path)
    taken: dict[str, Source] = {}
    others: list[str] = []
    with _open(fs, path, _MOST) as handle:
        known = _asked(fs, partial(archives.directory, handle, path), path)
        # In order of place, so that a store is asked for one stretch after the other.
        for name, info in sorted(known.items(), key=lambda one: one[1].header_offset):
            where, told = f"{path}/{name}", f"{archive.name}/{name}"
            member = partial(archives.Member, handle, info, where, ask)
            if archives.is_archive(name) or not formats.fits(cast(BinaryIO, member()), told):
                others.append(name)
                continue
            uri = archives.member_uri(info.filename, archive.uri)
            digest = tag or _content(member(), info.file_size)
            taken[name] = replace(archive, name=told, uri=uri, bytes=info.file_size, digest=digest)
    nested = sorted(name for name in others if archives.is_archive(name))
    if not taken:
        more = f" (archives inside an archive are not opened: {', '.join(nested[:3])})" if nested else ""
        raise InputError(
            f"the archive holds no conversation of a known format{more}",
            where=path,
            remedy="Unpack it and name the files that hold conversations. docs/formats.md describes the formats.",
        )
    if others:
        level = logging.WARNING if nested else logging.INFO
        some = ", ".join([*nested, *sorted(set(others) - set(nested))][:5]) + (", ..." if len(others) > 5 else "")
        log.log(level, "%s: %d members fit no format and are passed over: %s", shown(path), len(others), some)
    return [_with_beside(taken[name]) for name in sorted(taken)]


# -- names that files beside a source tell --------------------------------------------------------------------------


def names_beside(source: Source) -> dict[str, str]:
    """Return what the files beside a source tell: names by id. The caller changes nothing in it.

    Raises:
        InputError: One of them has changed since the source was looked at, or cannot be read.
    """
    if not source.beside:
        return {}
    uris = _beside(source.uri)
    if _told_beside(uris)[0] != source.beside:
        _told_beside.cache_clear()
    digest, names = _told_beside(uris)
    if digest != source.beside:
        raise _changed(source.uri)
    return names


def _with_beside(source: Source) -> Source:
    uris = _beside(source.uri)
    return replace(source, beside=_told_beside(uris)[0]) if uris else source


def _beside(uri: str) -> tuple[str, ...]:
    chained = archives.member_of(uri)
    if chained is None:
        return formats.beside(uri)
    return tuple(archives.member_uri(member, chained[1]) for member in formats.beside(chained[0]))


@lru_cache(maxsize=64)  # all days of all channels have the same
def _told_beside(uris: tuple[str, ...]) -> tuple[str, dict[str, str]]:
    """Read the files among some that are there: the hash of them, empty without any, and the names that they tell."""
    digests: list[str] = []
    names: dict[str, str] = {}
    for uri in uris:
        found = _there(uri)
        if found is None:
            continue
        with opened(found) as stream:
            counted = Hashing(stream, found.bytes)
            names |= formats.names(cast(BinaryIO, counted), uri)
            while counted.read(1 << 20):
                pass
        name = posixpath.basename((archives.member_of(uri) or (uri,))[0])  # where the folder lies does not matter
        digests.append(f"{name} {counted.hexdigest()}")
    return (xxhash.xxh3_128_hexdigest("\n".join(digests).encode()) if digests else "", names)


def _there(uri: str) -> Source | None:
    chained = archives.member_of(uri)
    fs, path = _filesystem(chained[1] if chained else uri)
    if chained:
        info = _info(fs, path, chained[1], chained[0])
        return Source(uri, uri, info.file_size, UNKNOWN) if info else None
    if not _asked(fs, lambda: fs.isfile(path), path):
        return None
    return Source(uri, uri, int(_asked(fs, lambda: fs.size(path), path) or 0), UNKNOWN)


# -- reading ----------------------------------------------------------------------------------------------------------


@contextmanager
def opened(source: Source) -> Iterator[BinaryIO]:
    """Open a source to read it once, from its beginning; faults that pass are waited for.

    Raises:
        InputError: It cannot be opened, or is not what it was when it was looked at (where a store's tag tells).
    """
    chained = archives.member_of(source.uri)
    fs, path = _filesystem(chained[1] if chained else source.uri)
    if not source.hashed and _asked(fs, partial(_tag, fs, path), source.uri) != source.digest:
        raise _changed(source.uri)
    ask = partial(_asked, fs, where=source.uri)
    if chained is None:
        with streaming(fs, path, ask) as stream:
            yield stream
        return
    info = _info(fs, path, chained[1], chained[0])
    if info is None:
        raise _changed(source.uri)
    with _open(fs, path, max(_LEAST, min(_MOST, info.compress_size + 4096))) as handle:
        yield cast(BinaryIO, archives.Member(handle, info, source.uri, ask))


def _changed(where: str) -> InputError:
    return InputError(
        "the file has changed since it was looked at", where=where, remedy="Run again, naming it as an input."
    )


def _open(fs: Any, path: str, block: int) -> Any:
    return _asked(fs, lambda: fs.open(path, "rb", block_size=block), path)


def _info(fs: Any, path: str, uri: str, member: str) -> zipfile.ZipInfo | None:
    return _directory(uri, _asked(fs, lambda: str(fs.ukey(path)), path)).get(member)


@lru_cache(maxsize=8)  # an archive of many members is not to be parsed for each of them
def _directory(uri: str, mark: str) -> dict[str, zipfile.ZipInfo]:
    """Return the members of an archive, as they are called in it, while it is what a mark says."""
    fs, path = _filesystem(uri)
    with _open(fs, path, _MOST) as handle:
        known = _asked(fs, partial(archives.directory, handle, path), path)
    return {info.filename: info for info in known.values()}


def _asked(fs: Any, act: Callable[[], T], where: str) -> T:
    """Ask something of the file system of inputs.

    Raises:
        InputError: It refuses, or stays away.
    """
    remote = not {"file", "memory"} & set(_protocols(fs))
    try:
        return patiently(act, where, _PATIENCE) if remote else act()
    except TagloomError:
        raise
    except Exception as error:
        if not remote and not isinstance(error, OSError):
            raise
        told = explained(error, "cannot be read", where, remote=remote)
        raise InputError(told.message, where=where, remedy=told.remedy) from error


def _protocols(fs: Any) -> tuple[str, ...]:
    return fs.protocol if isinstance(fs.protocol, tuple) else (fs.protocol,)


def distinguished(sources: Iterable[Source], taken: Iterable[str] = ()) -> list[Source]:
    """Give sources of one name distinct ones: the second is called ``NAME~2``.

    Args:
        sources: Sources, in order.
        taken: Names in use already.
    """
    used = set(taken)
    made = []
    for source in sources:
        name, number = source.name, 1
        while name in used:
            number += 1
            name = f"{source.name}~{number}"
        used.add(name)
        made.append(replace(source, name=name))
    return made


def _filesystem(text: str) -> tuple[Any, str]:
    if _CHAINED.match(text):
        raise InputError("names a file inside an archive", where=text, remedy="Name the zip archive itself.")
    try:
        fs, path = filesystem(text)
    except ImportError as error:
        raise MissingDependencyError(f"this kind of storage needs another library: {error}", where=text) from error
    except ValueError as error:
        raise InputError(str(error), where=text) from error
    fs.invalidate_cache()  # what an earlier look at the store remembered may be out of date
    return fs, path


def _expand(fs: Any, path: str, text: str) -> list[tuple[str, str]]:
    remedy = "Check the path; folders and globs ('logs/*.jsonl') work too."
    if fs.isfile(path):
        return [(posixpath.basename(path), path)]
    if fs.isdir(path):
        base = path.rstrip("/")
        files = sorted(fs.find(base))
        root = base
    elif any(mark in path for mark in "*?["):
        files = sorted(f for f in fs.glob(path) if fs.isfile(f))
        head = path[: min(path.index(m) for m in "*?[" if m in path)]
        root = posixpath.dirname(head)
    else:
        raise InputError("no such file or folder", where=text, remedy=remedy)
    pairs = [(posixpath.relpath(f, root) if root else f, f) for f in files]
    kept = [(n, f) for n, f in pairs if not archives.passed_over(n)]
    if not kept:
        raise InputError("no file there", where=text, remedy=remedy)
    return kept


def _looked_at(fs: Any, path: str, hashed: bool) -> tuple[int, str]:
    """Return the size of a file and its digest."""
    tag = "" if hashed else _tag(fs, path)
    size = int(fs.info(path)["size"] or 0)
    if tag:
        return size, tag
    with streaming(fs, path, lambda act: _asked(fs, act, path)) as stream:
        return size, _content(stream, size)


def _tag(fs: Any, path: str) -> str:
    """Return the store's own tag of a file as it is now, after ``tag:``; empty where it gives none."""
    fs.invalidate_cache()  # a listing may be older than the file
    named = next((_TAGS[name] for name in _protocols(fs) if name in _TAGS), "")
    return f"{_MARK}{fs.info(path)[named]}" if named else ""


def _content(stream: Any, size: int) -> str:
    counted = Hashing(stream, size)
    while counted.read(1 << 20):
        pass
    return counted.hexdigest()


class Hashing:
    """The beginning of a stream, hashed as it is read."""

    def __init__(self, stream: Any, size: int) -> None:
        """Read at most `size` bytes of a stream."""
        self._stream = stream
        self._left = size
        self._digest = xxhash.xxh3_128()

    def read(self, size: int = -1) -> bytes:
        """Return up to so many bytes; empty at the end."""
        block: bytes = self._stream.read(self._left if size < 0 else min(size, self._left)) if self._left else b""
        self._left -= len(block)
        self._digest.update(block)
        return block

    def hexdigest(self) -> str:
        """Return the xxh3-128 of what was read."""
        return self._digest.hexdigest()
