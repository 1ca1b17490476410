"""The code that a submitted job brings along: a wheel of the Tagloom that submits it, and the zip that Ray unpacks."""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import tomllib
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.ray_session import PACKAGES
from schemas.errors import TagloomError, UsageError

NAME = "tagloom"
RUN_FOLDER = "tagloom-run"
"""Folder beside the code, in what Ray unpacks, that holds the run file and its prompts."""
_MODULE = "tagloom.py"
_SUFFIXES = frozenset((".py", ".json", ".txt", ".yaml", ".md", ".html", ".css", ".js", ".typed"))
_EPOCH = (1980, 1, 1, 0, 0, 0)
_COMMAND = "[console_scripts]\ntagloom = jobs.cli:main\n"


@dataclass(frozen=True)
class _About:
    """What a wheel says of itself."""

    version: str
    python: str
    requires: tuple[str, ...]


def build_wheel(folder: Path) -> Path:
    """Write a wheel of this very Tagloom, installed or checked out; the same code gives the same bytes.

    Args:
        folder: Where to write it.

    Raises:
        TagloomError: The code cannot be found or read.
    """
    root = Path(__file__).resolve().parent.parent
    about = _about(root)
    try:
        files = {name: (root / name).read_bytes() for name in _code(root)}
    except OSError as error:
        raise TagloomError(f"Tagloom's own code cannot be read: {error}", where=str(root)) from error
    info = f"{NAME}-{about.version}.dist-info"
    files[f"{info}/METADATA"] = _metadata(about)
    files[f"{info}/WHEEL"] = b"Wheel-Version: 1.0\nGenerator: tagloom\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    files[f"{info}/entry_points.txt"] = _COMMAND.encode()
    files[f"{info}/top_level.txt"] = "".join(f"{name}\n" for name in sorted((*PACKAGES, NAME))).encode()
    record = "".join(f"{name},sha256={_digest(data)},{len(data)}\n" for name, data in sorted(files.items()))
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    path = folder / f"{NAME}-{about.version}-py3-none-any.whl"
    _write(path, files)
    return path


def wheel_version(wheel: Path) -> str:
    """Return the version of a wheel that a user built.

    Raises:
        UsageError: It is no wheel of Tagloom.
    """
    remedy = "Build one with 'pip wheel --no-deps', or leave --package out: the running Tagloom travels then."
    try:
        with zipfile.ZipFile(wheel) as archive:
            names = archive.namelist()
    except (OSError, zipfile.BadZipFile) as error:
        raise UsageError(f"is not a wheel: {error}", where=str(wheel), remedy=remedy) from error
    outside = next((name for name in names if name.startswith("/") or ".." in name.split("/")), None)
    if outside is not None:
        raise UsageError(f"holds a file outside of itself: {outside!r}", where=str(wheel), remedy=remedy)
    tops = {name.partition("/")[0] for name in names}
    found = sorted(name for name in tops if name.startswith(f"{NAME}-") and name.endswith(".dist-info"))
    if len(found) != 1 or "jobs/cli.py" not in names:
        raise UsageError("is not a wheel of Tagloom", where=str(wheel), remedy=remedy)
    return found[0].removeprefix(f"{NAME}-").removesuffix(".dist-info")


def pack(wheel: Path, files: Mapping[str, bytes], target: Path) -> Path:
    """Write what Ray unpacks as the job's folder: the files of a wheel, and those of the run below `RUN_FOLDER`.

    Args:
        wheel: The wheel.
        files: Path below `RUN_FOLDER` -> content.
        target: The zip to write.
    """
    with zipfile.ZipFile(wheel) as archive:
        content = {one.filename: archive.read(one) for one in archive.infolist() if not one.is_dir()}
    _write(target, {**content, **{f"{RUN_FOLDER}/{name}": data for name, data in files.items()}})
    return target


def _about(root: Path) -> _About:
    """Describe the code beside this module: by the project file of a checkout, or by what is installed."""
    if project := _project(root):
        extras: Mapping[str, list[str]] = project.get("optional-dependencies", {})
        requires = [*project["dependencies"], *(f'{one}; extra == "{x}"' for x, own in extras.items() for one in own)]
        return _About(project["version"], project["requires-python"], tuple(requires))
    try:
        found = importlib.metadata.distribution(NAME)
    except importlib.metadata.PackageNotFoundError as error:
        raise TagloomError(
            "this Tagloom is neither installed nor a checkout, so that no package can be made of it",
            where=str(root),
            remedy="Install it, or send a wheel: --package WHEEL",
        ) from error
    return _About(found.version, found.metadata["Requires-Python"], tuple(found.requires or ()))


def _project(root: Path) -> Mapping[str, Any]:
    """Return what the project file of a checkout says; empty where the code is installed."""
    try:
        found = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8")).get("project", {})
    except (OSError, ValueError):
        return {}
    return found if found.get("name") == NAME else {}


def _code(root: Path) -> Sequence[str]:
    """Return the code's files, relative to `root`: all of a checkout, or those that the installation lists."""
    if _project(root):
        found = [path for package in PACKAGES for path in (root / package).rglob("*")]
        found = [path for path in found if path.suffix in _SUFFIXES and path.is_file()]
        return [*(path.relative_to(root).as_posix() for path in found), _MODULE]
    files = importlib.metadata.distribution(NAME).files or []
    return [
        file.as_posix()
        for file in files
        if (file.parts[0] in PACKAGES or file.as_posix() == _MODULE) and file.suffix in _SUFFIXES
    ]


def _metadata(about: _About) -> bytes:
    lines = ["Metadata-Version: 2.1", f"Name: {NAME}", f"Version: {about.version}"]
    lines += [f"Requires-Python: {about.python}"] if about.python else []
    lines += [f"Requires-Dist: {one}" for one in sorted(about.requires)]
    extras = sorted({one.partition("extra ==")[2].strip(" \"')") for one in about.requires if "extra ==" in one})
    return "\n".join([*lines, *(f"Provides-Extra: {one}" for one in extras), ""]).encode()


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def _write(path: Path, files: Mapping[str, bytes]) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in sorted(files.items()):
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.external_attr = 0o100644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system = 3
            archive.writestr(entry, data, compresslevel=6)
