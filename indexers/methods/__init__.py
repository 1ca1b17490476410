"""Retrieval methods: each gives every document of a case a score for a question.

A method is one module of this package (or one that a distribution names in the entry point group ``tagloom.methods``)
with the names of `Method` at its top level. A preset (`indexers.presets`) is a method with its numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from pydantic import BaseModel

from schemas.registry import Registry

if TYPE_CHECKING:
    from indexers.batch import Batch, RankStats
    from indexers.explain import Explanation
    from indexers.presets import Preset
    from indexers.scores import Scores


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


METHODS: Registry[Method] = Registry(__name__, "method", "Methods", "rank.define", "tagloom.methods")
names, load = METHODS.names, METHODS.load
