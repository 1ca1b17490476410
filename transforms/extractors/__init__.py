"""Extractors: interactions in, notes out, and on request the tables of further tasks.

Each module of this package whose name has no leading underscore is an extractor. Third parties add theirs as an
entry point of the group ``tagloom.extractors`` that names a module. Such a module has the names of `Module`; one that
makes more than notes has those of `TaskModule` as well.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from pydantic import BaseModel

from schemas.errors import ConfigError, MissingDependencyError
from schemas.options import checked
from schemas.registry import Registry

if TYPE_CHECKING:
    import pyarrow as pa

NOTES = "notes"
"""The task that every extractor does."""

_EXTRAS = {"spacy": "spacy"}


@dataclass(frozen=True)
class Filled:
    """What an extractor made for a task.

    Attributes:
        tables: Table -> its rows: those of the task (`transforms.tasks.Task.TABLES`) but ``outcomes``. Cases are in
            the order of the source; ``concepts`` has its rows.
        stats: What was counted on the way, such as rows that could not be used; each count is of the cases of the
            source alone.
    """

    tables: Mapping[str, pa.Table]
    stats: Mapping[str, int] = field(default_factory=dict)


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


class TaskExtractor(Extractor, Protocol):
    """What `make` gives where the module has `tasks`."""

    async def fill(self, task: str, source: pa.Table) -> Filled:
        """Make the tables of a task other than notes.

        Args:
            task: One of those that the module's `tasks` gave.
            source: What the task reads (`transforms.tasks.Task.READS`): rows of whole cases, interactions or facts.
        """
        ...


class TaskModule(Module, Protocol):
    """What the module of an extractor that makes more than notes has besides."""

    def tasks(self, options: Any) -> Mapping[str, BaseModel]:
        """Return the tasks that are done with these options, each with the options that its tables depend on.

        The fingerprint of a task's tables holds those options and the hashes of their files, nothing else. Where
        notes are not among the tasks, they depend on all options.

        Raises:
            ConfigError: The options do not go together.
        """
        ...


EXTRACTORS: Registry[Module] = Registry(__name__, "extractor", "Extractors", "extract.extractor", "tagloom.extractors")
names = EXTRACTORS.names


def load(name: str) -> Module:
    """Return the module of an extractor; Tagloom's own come before third parties'.

    Raises:
        UsageError: No extractor has that name.
        MissingDependencyError: The module needs a library that is not installed.
        ConfigError: A third party's module lacks one of the names that an extractor needs.
    """
    target = EXTRACTORS.place(name)
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


def tasks_of(name: str, options: Mapping[str, Any]) -> dict[str, BaseModel]:
    """Return the tasks that an extractor does, notes first, each with the options that its tables depend on.

    Raises:
        UsageError, ConfigError: As `load` and `options_of`, or the module names a task that there is not.
    """
    from transforms import tasks

    module: Any = load(name)
    checked = options_of(module, options)
    offered = {NOTES: checked} | (dict(module.tasks(checked)) if hasattr(module, "tasks") else {})
    for task in offered:
        if task not in tasks.names():
            raise ConfigError(
                f"extractor '{name}' offers '{task}', which is no task",
                where="extract.extractor",
                remedy=f"Its module's 'tasks' may give: {', '.join(tasks.names())}.",
            )
    return offered


def fingerprint_parts(name: str, options: Mapping[str, Any], task: str = NOTES) -> dict[str, Any]:
    """Return what a task's tables depend on besides their source: extractor, version, options and file hashes.

    Args:
        name: The extractor.
        options: Its options.
        task: One of `tasks_of`.

    Raises:
        UsageError, ConfigError: As `tasks_of`.
        InputError: A file that the options name cannot be read.
    """
    own: Any = tasks_of(name, options)[task]
    module = load(name)
    parts: dict[str, Any] = {"name": module.NAME, "version": module.VERSION, "options": own.model_dump(mode="json")}
    if hasattr(own, "file_hashes"):
        parts["files"] = own.file_hashes()
    return parts
