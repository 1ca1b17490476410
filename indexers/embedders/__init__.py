"""Embedders: models that turn texts into vectors, behind one interface.

Each module of this package whose name has no leading underscore is an embedder and has the names of `Module`. Third
parties add theirs as an entry point of the group ``tagloom.embedders`` that names a module. What is embedded, and
where vectors are kept, is no concern of an embedder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel

from schemas.errors import MissingDependencyError, TagloomError
from schemas.options import checked
from schemas.registry import Registry

Purpose = Literal["document", "query"]
Rows = npt.NDArray[np.float32]


class EmbedderError(TagloomError):
    """The embedder cannot be used: a damaged model, a rejected key, an endpoint that stays away."""


class Embedder(Protocol):
    """A model at work.

    Attributes:
        prefixes: What goes before a text of each purpose; equal prefixes and texts together have equal vectors.
        counts: What happened since it was opened: ``tokens``, where a remote endpoint tells them; ``shortened`` and
            ``refused`` texts; ``retried.REASON``, attempts that failed. Counts only ever grow.
    """

    prefixes: Mapping[Purpose, str]
    counts: Mapping[str, int]

    def embed(self, texts: Sequence[str], purpose: Purpose) -> Rows:
        """Return the vectors of texts.

        A local model's vector of a text does not depend, to the last bit, on the texts beside it.

        Args:
            texts: Texts of any length.
            purpose: What they are: some models take questions in another way than what is searched.

        Returns:
            (texts, dimensions) finite rows of unit length, in order. A text without a character to see has a row of
            zeros, and so has one that the model cannot take.

        Raises:
            EmbedderError: It cannot be used at all.
        """
        ...

    def close(self) -> None:
        """End it and free what it holds; never raises."""
        ...


class Module(Protocol):
    """What an embedder's module has at its top level.

    Attributes:
        NAME: Name of the embedder.
        VERSION: Goes up by one whenever the same text would get another vector.
        Options: Frozen pydantic model of the options, which forbids unknown ones.
    """

    NAME: str
    VERSION: int
    Options: type[BaseModel]

    def identity(self, model: str | None, options: Any) -> dict[str, Any]:
        """Return plain data that vectors depend on: hashes of local files rather than paths, versions of libraries
        that compute, and the options that change vectors, never keys, endpoints or limits.

        Raises:
            ConfigError: The model is missing or cannot be found.
            MissingDependencyError: A library is not installed.
        """
        ...

    def located(self, model: str | None) -> str | None:
        """Return the model as a worker finds it that runs in another folder: paths made absolute."""
        ...

    def open(self, model: str | None, options: Any) -> Embedder:
        """Load the model, or connect.

        Raises:
            ConfigError: The model is missing or cannot be found.
            EmbedderError: It cannot be used.
            MissingDependencyError: A library is not installed.
        """
        ...


EMBEDDERS: Registry[Module] = Registry(__name__, "embedder", "Embedders", "embed.embedder", "tagloom.embedders")
names, load = EMBEDDERS.names, EMBEDDERS.load


def options_of(module: Module, options: Mapping[str, Any]) -> BaseModel:
    """Check an embedder's options.

    Raises:
        ConfigError: An option is unknown, missing or of the wrong kind.
    """
    return checked(module.Options, options, owner=module.NAME, where="embed.options")


def missing_library(name: str, error: ModuleNotFoundError, install: str) -> MissingDependencyError:
    """Return the error that tells how to install what an embedder needs."""
    return MissingDependencyError(
        f"embedder '{name}' needs the module '{error.name}', which is not installed",
        where="embed.embedder",
        remedy=f"Run: {install}",
    )
