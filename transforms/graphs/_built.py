"""What the graph kinds share: what they return, and the interactions of a shard as arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from schemas.errors import SchemaError

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


class Built(NamedTuple):
    """What a graph kind makes of the tables of one shard.

    Attributes:
        nodes: Table `nodes`.
        edges: Table `edges`.
        merges: Table `merges`; without rows where a kind merges nothing.
    """

    nodes: pa.Table
    edges: pa.Table
    merges: pa.Table


@dataclass(frozen=True)
class Shard:
    """The interactions of a shard, R of them in C cases.

    Attributes:
        names: (C,) case ids, in order of appearance.
        case: (R,) case of each interaction.
        ids: (R,) interaction ids; in order of position within a case.
    """

    names: pa.Array
    case: Ints
    ids: pa.Array

    def cases_of(self, column: pa.ChunkedArray) -> Ints:
        """Return the number of each case id, -1 for those without interactions."""
        found = pc.index_in(plain(column), value_set=self.names)
        cases: Ints = pc.fill_null(found, -1).to_numpy(zero_copy_only=False).astype(np.int64)
        return cases

    def rows_of(self, case: Ints, ids: pa.Array) -> Ints:
        """Return the row of each interaction, named by the number of its case and its id; -1 where there is none."""
        code = codes(pa.concat_arrays([self.ids, ids]))
        width = int(code.max(initial=0)) + 1
        own = self.case * width + code[: len(self.ids)]
        order = np.argsort(own, kind="stable")
        wanted = case * width + code[len(self.ids) :]
        at = np.searchsorted(own[order], wanted)
        found = order[np.minimum(at, len(order) - 1)] if len(order) else np.zeros(len(wanted), np.int64)
        return np.where((case >= 0) & (at < len(order)), np.where(own[found] == wanted, found, -1), -1)


def shard(interactions: pa.Table, notes: pa.Table) -> Shard:
    """Read the interactions of a shard, and see that the notes are theirs.

    Raises:
        SchemaError: The rows of a case do not stand together, or a note belongs to another interaction than its row.
    """
    coded = plain(interactions["case_id"]).dictionary_encode()
    case = coded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    if (np.diff(case) < 0).any():
        raise SchemaError("rows of one case do not stand together", where="interactions.case_id")
    ids = plain(interactions["interaction_id"])
    if not plain(notes["interaction_id"]).equals(ids):
        raise SchemaError("notes and interactions are not the same rows in the same order", where="notes")
    return Shard(coded.dictionary, case, ids)


def plain(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """Return a column of strings as one array of the type string."""
    joined = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return joined if joined.type == pa.string() else joined.cast(pa.string())


def listed(column: pa.ChunkedArray) -> tuple[pa.Array, Ints]:
    """Return the strings in a column of lists, and the row of each."""
    joined = column.combine_chunks()
    lengths = pc.fill_null(pc.list_value_length(joined), 0).to_numpy(zero_copy_only=False)
    return plain(joined.flatten()), np.repeat(np.arange(len(lengths), dtype=np.int64), lengths)


def codes(strings: pa.Array) -> Ints:
    """Number strings by first appearance."""
    numbers: Ints = strings.dictionary_encode().indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return numbers


def visible(strings: pa.Array) -> Bools:
    """Tell which strings have anything but white space."""
    shown: Bools = pc.greater(pc.utf8_length(pc.utf8_trim_whitespace(strings)), 0).to_numpy(zero_copy_only=False)
    return shown
