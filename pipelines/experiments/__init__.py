"""Experiments: each is one module of this package, with the names of `Experiment` at its top level.

An experiment ranks and judges the questions of a generation in some variants of its stores, and makes table `results`
of what comes out. `pipelines.experimenting` runs them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, Protocol, cast

import pyarrow as pa
from pydantic import BaseModel

from pipelines.store import Generation
from schemas.config import EvaluateConfig
from schemas.errors import UsageError
from schemas.ids import nearest
from transforms.experiments import Row


@dataclass(frozen=True)
class Variant:
    """One way to ask the questions.

    Attributes:
        name: Its name, such as ``distractors=8``.
        stores: How the stores that are asked are made of the cases: ``kind`` ``same``, ``sampled`` or ``pooled``, and
            what `transforms.derive` needs; part of the key.
        x: Place on an axis.
    """

    name: str
    stores: Mapping[str, Any] = field(default_factory=lambda: {"kind": "same"})
    x: float | None = None


@dataclass(frozen=True)
class Asked:
    """What an experiment is asked for.

    Attributes:
        presets: Presets, in order.
        baseline: The one of them that the others are compared with.
        options: The experiment's own `Options`.
        evaluate: Cut-offs, resamples and seed.
        sides: Names of the generation and of the other one, where there is another.
    """

    presets: tuple[str, ...]
    baseline: str
    options: Any
    evaluate: EvaluateConfig
    sides: tuple[str, ...] = ()

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Each preset with the baseline."""
        return [(name, self.baseline) for name in self.presets if name != self.baseline]


PartsOf = Callable[[str], Iterable[pa.Table]]
"""Variant, or side -> its tables `question_metrics`, one a shard, each time anew."""


class Experiment(Protocol):
    """What an experiment's module holds.

    Attributes:
        NAME: Its name.
        DOC: What it finds out, in a line.
        VERSION: Raised whenever the same input gives other results.
        Options: Its own options.
        PRESETS: Presets and groups that it is about; none = those of the generation.
        TWO: It compares two generations by what their own evaluation says, and asks nothing itself.
    """

    NAME: str
    DOC: str
    VERSION: int
    Options: type[BaseModel]
    PRESETS: tuple[str, ...]
    TWO: bool

    def variants(self, asked: Asked, generation: Generation) -> list[Variant]:
        """Return the variants, in order."""
        ...

    def results(self, parts: PartsOf, asked: Asked) -> Iterable[Row]:
        """Return the rows of table `results`."""
        ...


@cache
def names() -> tuple[str, ...]:
    """Return the names of all experiments, sorted."""
    return tuple(sorted(m.name.replace("_", "-") for m in iter_modules(__path__) if not m.name.startswith("_")))


def load(name: str) -> Experiment:
    """Return an experiment by name.

    Raises:
        UsageError: There is none.
    """
    if name not in names():
        guess = nearest(name, names())
        hint = f"Did you mean '{guess}'? " if guess else ""
        raise UsageError(
            f"no experiment is called '{name}'",
            where="experiment",
            remedy=f"{hint}Experiments: {', '.join(names())}.",
        )
    return cast("Experiment", import_module(f"{__name__}.{name.replace('-', '_')}"))
