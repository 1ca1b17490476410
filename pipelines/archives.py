"""Zip archives as inputs: what they hold, and reading one member. Nothing is ever unpacked to a disk."""

from __future__ import annotations

import bz2
import errno
import lzma
import re
import stat
import struct
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, cast

from pipelines.storage_files import Patient
from schemas.errors import InputError

ENDING = ".zip"
BOMB_BYTES = 1 << 30
"""Size from which on a member, or an archive, is refused if it shrank by more than `BOMB_RATIO`."""
BOMB_RATIO = 200
DICTIONARY_BYTES = 256 << 20
"""Memory that a member may ask for to be unpacked."""

_SCHEME = "zip://"
_AGAIN = "Get the archive again, or unpack it and name the folder."
_UNPACK = "Unpack the archive and name the folder."
_DRIVE = re.compile(r"[A-Za-z]:[\\/]")
_ENCRYPTED, _UTF8 = 0x1, 0x800
_STEP = 64 << 10
"""Packed bytes that are read at once."""
_HEADER = struct.Struct("<4s22xHH")
_FAULTS = (
    *(zipfile.BadZipFile, zipfile.LargeZipFile, zlib.error, lzma.LZMAError, EOFError, struct.error),
    *(NotImplementedError, RuntimeError, ValueError, IndexError, OverflowError, MemoryError),
)
"""What `zipfile` raises at data that is damaged, or was made to mislead."""
_NO_CONVERSATION = frozenset(
    (
        *("jpg", "jpeg", "png", "gif", "webp", "heic", "heif", "bmp", "tif", "tiff", "svg", "ico"),
        *("mp3", "m4a", "aac", "ogg", "opus", "oga", "wav", "amr", "flac", "wma"),
        *("mp4", "mov", "avi", "mkv", "webm", "3gp", "m4v"),
        *("pdf", "doc", "docx", "xls", "xlsx", "ppt", "pptx", "odt", "ods", "odp", "rtf"),
        *("vcf", "html", "htm", "css", "js"),
    )
)


def passed_over(path: str) -> bool:
    """Tell whether a file is passed over inside a folder, a glob or an archive, by its path there.

    Hidden files are, what macOS adds to archives, and endings of pictures, sounds, films, documents and pages.
    """
    steps = path.split("/")
    hidden = any(step.startswith(".") or step == "__MACOSX" for step in steps)
    return hidden or steps[-1].rpartition(".")[2].lower() in _NO_CONVERSATION


def is_archive(path: str) -> bool:
    """Tell whether a file is taken for a zip archive: by the end of its name."""
    return path.lower().endswith(ENDING)


def member_uri(member: str, archive: str) -> str:
    """Return the URI of a member, chained as fsspec has it."""
    return f"{_SCHEME}{member}::{archive}"


def member_of(uri: str) -> tuple[str, str] | None:
    """Part the URI of a member into its name in the archive and the archive's URI; None for other URIs."""
    if not uri.startswith(_SCHEME):
        return None
    member, _, archive = uri.removeprefix(_SCHEME).partition("::")
    return member, archive


def directory(handle: BinaryIO, where: str) -> dict[str, zipfile.ZipInfo]:
    """Read what an archive says that it holds; nothing else of it is looked at.

    Args:
        handle: The archive, seekable.
        where: The archive, for errors.

    Returns:
        The members that are not passed over by their names: path, its steps parted by ``/``, to what is known of it.

    Raises:
        InputError: It is no zip archive, is cut or damaged, or a member cannot be read safely.
    """
    with _typed(where):
        infos = zipfile.ZipFile(handle).infolist()
        size = handle.seek(0, 2)
    found: dict[str, zipfile.ZipInfo] = {}
    for info in infos:
        name = _name(info)
        if name.endswith(("/", "\\")):
            continue
        steps = name.replace("\\", "/").split("/")
        path = "/".join(step for step in steps if step not in ("", "."))
        if ".." in steps or not steps[0] or _DRIVE.match(name) or not path:
            raise _refused(f"member '{name}' has a name that leads out of the archive", where)
        if passed_over(path):
            continue
        if path in found:
            raise _refused(f"two members are called '{path}'", where, _UNPACK)
        if fault := _fault(info):
            raise _refused(f"member '{path}' {fault[0]}", where, fault[1])
        found[path] = info
    _weigh(found.values(), size, where)
    return found


def _name(info: zipfile.ZipInfo) -> str:
    """Return the name of a member. Many programs write UTF-8 and do not say so."""
    if not info.flag_bits & _UTF8:
        try:
            return info.filename.encode("cp437").decode("utf-8")
        except UnicodeError:
            pass
    return info.filename


def _fault(info: zipfile.ZipInfo) -> tuple[str, str] | None:
    """Tell why a member is not read, and what to do; None where nothing speaks against it."""
    kind = stat.S_IFMT(info.external_attr >> 16)
    if info.flag_bits & _ENCRYPTED:
        return "is encrypted", "Unpack the archive with its password and name the folder."
    if kind not in (0, stat.S_IFREG):
        return "is a link or another thing that is no file", "Remove it from the archive."
    if "::" in info.filename:
        return "has '::' in its name, which parts the steps of a URI", _UNPACK
    if _bomb(info.file_size, info.compress_size):
        return _bomb(info.file_size, info.compress_size), "Unpack the archive if you trust it, and name the folder."
    return None


def _bomb(size: int, packed: int) -> str:
    if size <= BOMB_BYTES or size <= BOMB_RATIO * packed:
        return ""
    return f"would unpack {packed:,} bytes to {size:,}, more than {BOMB_RATIO} times as many"


def _weigh(infos: Collection[zipfile.ZipInfo], size: int, where: str) -> None:
    if sum(info.compress_size for info in infos) > size:
        raise _refused("the members say that they take more room than the archive has", where)
    if told := _bomb(sum(info.file_size for info in infos), size):
        raise _refused(told, where, "Unpack the archive if you trust it, and name the folder.")


class Member:
    """A member of an archive, unpacked while it is read, its checksum verified at the end."""

    def __init__(self, handle: BinaryIO, info: zipfile.ZipInfo, where: str, ask: Callable[[Callable[[], Any]], Any]):
        """Begin at the start of a member.

        Args:
            handle: The archive, seekable, used for nothing else meanwhile.
            info: The member, of `directory`.
            where: The member, for errors.
            ask: Does something with the store, patiently.

        Raises:
            InputError: The archive is not what its directory says, or compressed by an unknown method.
        """
        self._where = where
        with _typed(where):
            named = _to_content(handle, info, ask)
            if named != info.orig_filename.encode("utf-8" if info.flag_bits & _UTF8 else "cp437"):
                raise zipfile.BadZipFile("the directory and the member differ in its name")
            packed = cast(BinaryIO, Patient(handle, ask))
            blocks = info.compress_type in (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
            self._file = _Blocks(packed, info) if blocks else zipfile.ZipExtFile(packed, "r", info)

    def read(self, size: int = -1) -> bytes:
        """Return up to so many bytes; empty at the end.

        Raises:
            InputError: The member is damaged or cut.
        """
        with _typed(self._where):
            try:
                return bytes(self._file.read(size))
            except OSError as error:  # of bz2: those of storage are errors of ours by now
                raise zipfile.BadZipFile(str(error)) from error


class _Blocks:
    """A member packed by bzip2 or LZMA, unpacked no further than it is read: `zipfile` unpacks these without bound."""

    def __init__(self, packed: BinaryIO, info: zipfile.ZipInfo) -> None:
        self._packed, self._info = packed, info
        self._packed_left, self._left = info.compress_size, info.file_size
        self._crc, self._ended = 0, False
        self._unpacks: Any = bz2.BZ2Decompressor() if info.compress_type == zipfile.ZIP_BZIP2 else self._lzma()

    def _lzma(self) -> lzma.LZMADecompressor:
        """Read the head of an LZMA member: version, size of what follows, place and dictionary settings."""
        (size,) = struct.unpack("<2xH", self._take(4))
        settings = self._take(size)
        if size != 5:
            raise zipfile.BadZipFile("the member's LZMA settings are not as they must be")
        places, wanted = struct.unpack("<BI", settings)
        places, low = divmod(places, 9)
        high, middle = divmod(places, 5)
        # What a member may refer back to is never more than itself.
        wanted = max(4096, min(wanted, self._left))
        if wanted > DICTIONARY_BYTES:
            raise zipfile.BadZipFile(f"the member needs {wanted:,} bytes of memory to be unpacked")
        asked = {"id": lzma.FILTER_LZMA1, "dict_size": wanted, "lc": low, "lp": middle, "pb": high}
        return lzma.LZMADecompressor(lzma.FORMAT_RAW, filters=[asked])

    def _take(self, size: int) -> bytes:
        size = min(size, self._packed_left)
        data = self._packed.read(size) if size else b""
        if size and not data:
            raise EOFError("the archive ends inside a member")
        self._packed_left -= len(data)
        return data

    def read(self, size: int = -1) -> bytes:
        """Return up to so many bytes; empty at the end."""
        wanted = self._left if size < 0 else min(size, self._left)
        made: list[bytes] = []
        while wanted and not self._unpacks.eof:
            fresh = self._take(_STEP) if self._unpacks.needs_input else b""
            data = self._unpacks.decompress(fresh, wanted)
            if not data and not fresh:
                break
            made.append(data)
            wanted -= len(data)
            self._left -= len(data)
            self._crc = zlib.crc32(data, self._crc)
        if (wanted or not self._left) and not self._ended:
            self._ended = True
            if self._crc != self._info.CRC:
                raise zipfile.BadZipFile(f"Bad CRC-32 for file {self._info.filename!r}")
        return b"".join(made)


def _to_content(handle: BinaryIO, info: zipfile.ZipInfo, ask: Callable[[Callable[[], Any]], Any]) -> bytes:
    """Go to where the bytes of a member begin; return its name as written there."""
    start = info.header_offset
    if start < 0:
        raise zipfile.BadZipFile("a member begins before the archive")
    mark, named, more = _HEADER.unpack(ask(lambda: _at(handle, start, _HEADER.size)))
    if mark != b"PK\x03\x04":
        raise zipfile.BadZipFile("no member begins where one should")
    name: bytes = ask(lambda: _at(handle, start + _HEADER.size, named))
    handle.seek(start + _HEADER.size + named + more)
    return name


def _at(handle: BinaryIO, start: int, size: int) -> bytes:
    handle.seek(start)
    return handle.read(size)


@contextmanager
def _typed(where: str) -> Iterator[None]:
    try:
        yield
    except (*_FAULTS, OSError) as error:
        if isinstance(error, OSError) and error.errno != errno.EINVAL:  # a place before the beginning of a file
            raise
        told = str(error) or type(error).__name__
        raise InputError(f"the zip archive is damaged or cannot be read: {told}", where=where, remedy=_AGAIN) from error


def _refused(message: str, where: str, remedy: str = _AGAIN) -> InputError:
    return InputError(message, where=where, remedy=remedy)
