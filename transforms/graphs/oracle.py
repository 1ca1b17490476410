"""The graph of `transforms.graphs.relations` over given entities and relations alone, such as a ground truth.

Nothing stands in for tables that are empty: its nodes are then the files, and no edge leads anywhere. So a corpus that
has a ground truth can be ranked by it and, with ``graph.options.relations.source: text``, by what notes and texts say.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from transforms.graphs import relations
from transforms.graphs._assembly import Embed
from transforms.graphs._built import Built
from transforms.graphs.relations import Options

__all__ = ["INPUTS", "NAME", "SEARCHED", "VERSION", "Options", "build"]

NAME = "oracle"
VERSION = relations.VERSION
INPUTS = relations.INPUTS
SEARCHED = relations.SEARCHED


def build(tables: Mapping[str, pa.Table], options: Options, embed: Embed | None = None) -> Built:
    """Build the graphs of all cases of a shard.

    Raises:
        SchemaError: The rows of a case do not stand together.
    """
    return relations.assemble(NAME, tables, options, embed, given=True)
