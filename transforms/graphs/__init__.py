"""Graph kinds: each builds the nodes and edges of all cases of a shard.

A kind is one module of this package (or one that a distribution names in the entry point group ``tagloom.graphs``)
with the names of `GraphKind` at its top level; adding a module adds a kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import pyarrow as pa
from pydantic import BaseModel, ValidationError

from schemas.errors import ConfigError
from schemas.ids import nearest
from schemas.registry import Registry
from transforms.graphs._assembly import Embed
from transforms.graphs._built import Built


class GraphKind(Protocol):
    """What a graph module holds.

    Attributes:
        NAME: Name in configurations and in the column `graph`.
        VERSION: Raised whenever the same input gives another output.
        Options: The kind's options.
        INPUTS: Tables that `build` reads: interactions, notes, or those of further tasks; a table that the run does
            not make is empty.
        SEARCHED: Node kinds that a question's words are compared with.
    """

    NAME: str
    VERSION: int
    Options: type[BaseModel]
    INPUTS: tuple[str, ...]
    SEARCHED: tuple[str, ...]

    def build(self, tables: Mapping[str, pa.Table], options: Any) -> Built:
        """Return the tables `nodes`, `edges` and `merges` of every case in the tables of one shard.

        File nodes are numbered in order of position within their case.
        """
        ...


class MergingKind(GraphKind, Protocol):
    """A kind that can merge near-duplicates by vectors: its options have `merge_cosine`, a number or None."""

    def build(self, tables: Mapping[str, pa.Table], options: Any, embed: Embed | None = None) -> Built:
        """Return the tables; `embed` is given where `merge_cosine` is a number."""
        ...


KINDS: Registry[GraphKind] = Registry(__name__, "graph kind", "Kinds", "graph.kinds", "tagloom.graphs")
names, load = KINDS.names, KINDS.load


def parse_options(kind: GraphKind, options: Mapping[str, Any]) -> BaseModel:
    """Check the options of a kind.

    Raises:
        ConfigError: An option is unknown or of the wrong kind.
    """
    try:
        return kind.Options.model_validate(dict(options))
    except ValidationError as error:
        known = list(kind.Options.model_fields)
        faults, hints = [], []
        for fault in error.errors():
            key = ".".join(str(part) for part in fault["loc"])
            faults.append(f"'{key}': {fault['msg']}")
            guess = nearest(key, known) if fault["type"] == "extra_forbidden" else None
            if guess:
                hints.append(f"Did you mean '{guess}'?")
        hints.append(f"Options: {', '.join(known)}.")
        raise ConfigError("; ".join(faults), where=f"graph.options.{kind.NAME}", remedy=" ".join(hints)) from None
