"""Retrieval methods: each gives every document of a case a score for a question.

A method is one module of this package (or one that a distribution names in the entry point group ``tagloom.methods``)
with the names of `Method` at its top level. A preset (`indexers.presets`) is a method with its numbers.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any, Protocol, cast

from pydantic import BaseModel

from schemas.errors import UsageError
from schemas.ids import nearest

if TYPE_CHECKING:
    from indexers.batch import Batch, RankStats
    from indexers.explain import Explanation
    from indexers.presets import Preset
    from indexers.scores import Scores

_GROUP = "tagloom.methods"


class Method(Protocol):
    """What a method's module holds.

    Attributes:
        NAME: Name in presets.
        VERSION: Raised whenever the same input gives another ranking.
        Options: The numbers of a preset, in sections; unknown ones are refused. A field `arms` holds other presets.
    """

    NAME: str
    VERSION: int
    Options: type[BaseModel]

    def units(self, options: Any) -> tuple[str, ...]:
        """Return the units of the stages index and embed that it reads."""
        ...

    def scores(self, preset: Preset, batch: Batch, stats: RankStats) -> Scores:
        """Score every document of each question's case; 0 means not retrieved.

        The scores of a question do not depend on what else is in the batch.
        """
        ...

    def explain(self, preset: Preset, batch: Batch, question: int, document: int) -> Explanation:
        """Tell how the score of one document for one question of the batch came about."""
        ...


@cache
def _places() -> dict[str, str]:
    places = {point.name: point.value for point in entry_points(group=_GROUP)}
    ours = [m.name for m in iter_modules(__path__) if not m.name.startswith("_")]
    return places | {name: f"{__name__}.{name}" for name in ours}


def names() -> tuple[str, ...]:
    """Return the names of all methods, sorted."""
    return tuple(sorted(_places()))


def load(name: str, where: str = "rank.define") -> Method:
    """Return a method by name.

    Args:
        name: Its name.
        where: Who names it, for the error.

    Raises:
        UsageError: There is none.
    """
    place = _places().get(name)
    if place is None:
        guess = nearest(name, names())
        hint = f"Did you mean '{guess}'? " if guess else ""
        raise UsageError(f"no method is called '{name}'", where=where, remedy=f"{hint}Methods: {', '.join(names())}.")
    return cast("Method", import_module(place))
