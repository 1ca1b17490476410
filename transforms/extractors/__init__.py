"""Extractors: interactions in, notes out.

Each module of this package whose name has no leading underscore is an extractor. Third parties add theirs as an
entry point of the group ``tagloom.extractors`` that names a module. Such a module has the names of `Module`.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Protocol

from pydantic import BaseModel

from schemas.errors import ConfigError, MissingDependencyError, UsageError
from schemas.ids import nearest
from schemas.options import checked

if TYPE_CHECKING:
    import pyarrow as pa

GROUP = "tagloom.extractors"

_EXTRAS = {"spacy": "spacy"}


class Extractor(Protocol):
    """What `make` gives. An extractor that holds a connection may also have ``async def close(self) -> None``."""

    async def extract(self, interactions: pa.Table, ontology_window: int) -> pa.Table:
        """Make notes.

        Args:
            interactions: Table of the schema `interactions`: whole cases, each in order of position.
            ontology_window: Interactions of a case that may share one ontology snapshot; 0 = no ontology.

        Returns:
            Table of the schema `notes`, the same rows in the same order. Notes of a case depend on that case
            alone, never on which other cases come in the same call.
        """
        ...


class Module(Protocol):
    """What an extractor's module has at its top level.

    Attributes:
        NAME: Name of the extractor.
        VERSION: Goes up by one whenever the same input would give another output.
        Options: Frozen pydantic model of the options, which forbids unknown ones. A method
            ``file_hashes(self) -> dict[str, str]``, where there is one, gives the hashes of the files that the
            options name.
    """

    NAME: str
    VERSION: int
    Options: type[BaseModel]

    def make(self, options: Any) -> Extractor:
        """Make the extractor.

        Raises:
            MissingDependencyError: An optional library or model is not installed.
            InputError: A file that the options name cannot be used.
        """
        ...


def names() -> list[str]:
    """Return the names of all extractors, in order."""
    return sorted(set(_own()) | {point.name for point in entry_points(group=GROUP)})


def _own() -> list[str]:
    return [m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_")]


def load(name: str) -> Module:
    """Return the module of an extractor; Tagloom's own come before third parties'.

    Raises:
        UsageError: No extractor has that name.
        MissingDependencyError: The module needs a library that is not installed.
        ConfigError: A third party's module lacks one of the names that an extractor needs.
    """
    if name in _own():
        target = f"{__name__}.{name}"
    else:
        points = [point for point in entry_points(group=GROUP) if point.name == name]
        if not points:
            close = nearest(name, names())
            hint = f"Did you mean '{close}'? " if close else ""
            raise UsageError(
                f"no extractor is called '{name}'",
                where="extract.extractor",
                remedy=f"{hint}Extractors: {', '.join(names())}.",
            )
        target = points[0].value
    try:
        module: Any = importlib.import_module(target)
    except ModuleNotFoundError as error:
        raise MissingDependencyError(
            f"extractor '{name}' needs the module '{error.name}', which is not installed",
            where="extract.extractor",
            remedy=f"Run: {_install(name)}",
        ) from error
    missing = [needed for needed in ("NAME", "VERSION", "Options", "make") if not hasattr(module, needed)]
    if missing:
        raise ConfigError(
            f"module '{target}' is no extractor: it lacks {', '.join(missing)}", where="extract.extractor"
        )
    return module  # type: ignore[no-any-return]


def _install(name: str) -> str:
    extra = f"[{_EXTRAS[name]}]" if name in _EXTRAS else ""
    return f"pip install 'tagloom{extra}'"


def options_of(module: Module, options: Mapping[str, Any]) -> BaseModel:
    """Check an extractor's options.

    Raises:
        ConfigError: An option is unknown, missing or of the wrong kind.
    """
    return checked(module.Options, options, owner=module.NAME, where="extract.options")


def make(name: str, options: Mapping[str, Any]) -> Extractor:
    """Load an extractor and make it with checked options; raises what `load`, `options_of` and its `make` do."""
    module = load(name)
    return module.make(options_of(module, options))


def fingerprint_parts(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return what an extractor's output depends on besides its input: name, version, options and file hashes.

    Raises:
        UsageError, ConfigError: As `load` and `options_of`.
        InputError: A file that the options name cannot be read.
    """
    module = load(name)
    checked: Any = options_of(module, options)
    parts: dict[str, Any] = {
        "name": module.NAME,
        "version": module.VERSION,
        "options": checked.model_dump(mode="json"),
    }
    if hasattr(checked, "file_hashes"):
        parts["files"] = checked.file_hashes()
    return parts
