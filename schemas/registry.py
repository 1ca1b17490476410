"""Kinds of plug-ins: modules found by listing a package, and by the entry points of other distributions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from pkgutil import iter_modules
from typing import Generic, TypeVar, cast

from schemas.errors import UsageError
from schemas.ids import nearest

T = TypeVar("T")


@cache
def ours(package: str) -> tuple[str, ...]:
    """Return the modules of a package whose names have no leading underscore, sorted; packages in it are none."""
    found = iter_modules(import_module(package).__path__)
    return tuple(sorted(one.name for one in found if not one.name.startswith("_") and not one.ispkg))


@cache
def theirs(group: str) -> dict[str, str]:
    """Return the modules that other distributions name in a group of entry points, by name."""
    return {point.name: point.value for point in entry_points(group=group)}


@dataclass(frozen=True)
class Registry(Generic[T]):
    """One kind of plug-in; nothing loads before it is asked for.

    Attributes:
        package: Package whose modules are of the kind; they win over those of other distributions.
        kind: What errors call one of them.
        listed: What they call all of them.
        where: Place in the configuration that names one.
        group: Group of entry points; empty where the kind has none.
    """

    package: str
    kind: str
    listed: str
    where: str = ""
    group: str = ""

    def names(self) -> tuple[str, ...]:
        """Return the names of all, sorted."""
        return tuple(sorted({*ours(self.package), *self._theirs()}))

    def place(self, name: str, where: str | None = None) -> str:
        """Return the module of a name.

        Args:
            name: The name.
            where: Who names it, for the error; by default the place in the configuration.

        Raises:
            UsageError: There is none.
        """
        if name in ours(self.package):
            return f"{self.package}.{name}"
        if name in self._theirs():
            return self._theirs()[name]
        close = nearest(name, self.names())
        raise UsageError(
            f"no {self.kind} is called '{name}'",
            where=self.where if where is None else where,
            remedy=(f"Did you mean '{close}'? " if close else "") + f"{self.listed}: {', '.join(self.names())}.",
        )

    def load(self, name: str, where: str | None = None) -> T:
        """Load what has a name; raises as `place` does."""
        return cast("T", import_module(self.place(name, where)))

    def _theirs(self) -> dict[str, str]:
        return theirs(self.group) if self.group else {}
