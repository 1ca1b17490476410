"""The arrays of one shard that retrieval methods read, each made out of its table when first needed."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from indexers import csr, ppr, vectors
from indexers.csr import Ints
from indexers.postings import Postings, from_table
from indexers.regroup import grouped, windowed
from indexers.vectors import Vectors
from schemas.errors import SchemaError

TableOf = Callable[[str, str], pa.Table]
"""(unit, table) -> the table, over the cases of a shard."""

Singles = npt.NDArray[np.float32]
T = TypeVar("T")


@dataclass(frozen=True)
class Embedded:
    """Vectors of the cases of a shard, and what each stands for.

    Attributes:
        vectors: The vectors.
        keys: (n,) key of each.
    """

    vectors: Vectors
    keys: pa.Array


@dataclass
class Shard:
    """The cases that are asked, of one shard; everything is in the order of `cases`.

    Attributes:
        cases: Their ids.
        table_of: Gives the tables of units.
        offsets: (cases + 1,) where the interactions of each case begin.
        interactions: case_id, session_id, interaction_id (and more, where more was given), case by case.
        session: (interactions,) number of each one's session within its case.
        sessions: (cases,) how many sessions each has.
        language: Language of the stems.
    """

    cases: tuple[str, ...]
    table_of: TableOf
    offsets: Ints
    interactions: pa.Table
    session: Ints
    sessions: Ints
    language: str = "english"
    _made: dict[Hashable, Any] = field(default_factory=dict)

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return what was made under a key; it is made on first call."""
        if key not in self._made:
            self._made[key] = make()
        found: T = self._made[key]
        return found

    def postings(self, unit: str, name: str) -> Postings:
        """Return the postings of a field of a unit.

        Raises:
            SchemaError: A case lacks them, or they do not fit the interactions.
        """
        return self.once(("postings", unit, name), lambda: self._postings(unit, name))

    def by_session(self, unit: str, name: str) -> Postings:
        """Return the postings of a field with sessions in place of interactions as documents."""

        def make() -> Postings:
            first = np.repeat(np.cumsum(self.sessions) - self.sessions, np.diff(self.offsets))
            offsets = np.concatenate([[0], np.cumsum(self.sessions)])
            return grouped(self.postings(unit, name), first + self.session, offsets)

        return self.once(("sessions", unit, name), make)

    def by_window(self, unit: str, name: str, reach: int) -> Postings:
        """Return the postings of a field in which documents hold their neighbours in the session as well."""
        place = np.repeat(np.cumsum(self.sessions) - self.sessions, np.diff(self.offsets)) + self.session
        return self.once(("window", unit, name, reach), lambda: windowed(self.postings(unit, name), place, reach))

    def vocabulary(self, unit: str) -> pa.Table:
        """Return the terms of a unit."""
        return self.once(("vocabulary", unit), lambda: self.table_of(unit, "vocabulary"))

    def graphs(self, kind: str) -> csr.Graphs:
        """Return the graphs of a kind.

        Raises:
            SchemaError: They do not fit the interactions.
        """
        return self.once(("graphs", kind), lambda: self._graphs(kind))

    def walk(self, kind: str, weights: tuple[tuple[str, float], ...], undirected: bool, hub: int | None) -> ppr.Walk:
        """Return the transition matrix over the graphs of a kind."""
        key = ("walk", kind, weights, undirected, hub)
        return self.once(key, lambda: ppr.walk(self.graphs(kind), dict(weights), undirected=undirected, hub_above=hub))

    def vectors(self, unit: str) -> Embedded:
        """Return the vectors of a unit.

        Raises:
            SchemaError: They do not fit the interactions.
        """
        return self.once(("vectors", unit), lambda: self._vectors(unit))

    def _postings(self, unit: str, name: str) -> Postings:
        table = self.table_of(unit, "postings")
        field_rows = np.flatnonzero(np.asarray(pc.equal(table["field"].cast(pa.string()), name)))
        cases = pc.take(table["case_id"].cast(pa.string()), pa.array(field_rows))
        found_at = pc.index_in(pa.array(self.cases, pa.string()), value_set=_plain(cases))
        if found_at.null_count:
            lacking = self.cases[pc.index(found_at.is_null(), True).as_py()]
            raise SchemaError(
                f"case '{lacking}' has no postings of field '{name}'", where=unit, remedy="Index the corpus again."
            )
        rows = field_rows[np.asarray(found_at)]
        # The whole shard is asked most of the time: then its rows need no copy.
        together = len(rows) > 0 and (np.diff(rows) == 1).all()
        made = from_table(table.slice(rows[0], len(rows)) if together else table.take(pa.array(rows)), name)
        if name not in ("tag", "chunk") and not np.array_equal(made.document_offsets, self.offsets):
            raise SchemaError("postings and interactions differ in number", where=f"{unit}, field '{name}'")
        return made

    def _graphs(self, kind: str) -> csr.Graphs:
        made = csr.graphs(self.table_of(f"index/{kind}", "matrices"), kind, self.cases)
        if not np.array_equal(made.file_offsets, self.offsets):
            raise SchemaError(
                f"graph '{kind}' and interactions differ in number of files",
                where="matrices",
                remedy="Build the graph again.",
            )
        return made

    def _vectors(self, unit: str) -> Embedded:
        table = self.table_of(unit, "vectors")
        if unit == "embed/words":
            whole = np.array([0, len(table)])
            return Embedded(Vectors(("",), whole, vectors.matrix_of(table["vector"])), _plain(table["key"]))
        names = table["case_id"].cast(pa.string())
        mine = pc.is_in(names, value_set=pa.array(self.cases, pa.string()))
        table = table if pc.all(mine).as_py() in (True, None) else table.filter(mine)
        read = vectors.matrix(table, self.cases)
        if unit in ("embed/interactions", "embed/user") and not np.array_equal(read.offsets, self.offsets):
            raise SchemaError("vectors and interactions differ in number", where=unit, remedy="Run again.")
        return Embedded(read, _plain(table["key"]))


def open_shard(interactions: pa.Table, questions: pa.Table, table_of: TableOf, language: str = "english") -> Shard:
    """Return the shard of the cases that questions ask.

    Args:
        interactions: case_id, session_id and interaction_id at least, case by case; columns beside them are kept.
        questions: Table `questions`; of cases without any, little or nothing is looked at.
        table_of: Gives the tables of units.
        language: Language of the stems.

    Raises:
        SchemaError: Rows of one case do not stand together.
    """
    asked = pc.unique(questions["case_id"].cast(pa.string()))
    known = pc.unique(interactions["case_id"].cast(pa.string()))
    # Cutting a few cases out of a shard saves work; leaving a few away would copy all the others.
    if 2 * len(asked) < len(known):
        interactions = interactions.filter(pc.is_in(interactions["case_id"].cast(pa.string()), value_set=asked))
    coded = interactions["case_id"].combine_chunks().cast(pa.string()).dictionary_encode()
    case = coded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    if (np.diff(case) < 0).any():
        raise SchemaError("rows of one case do not stand together", where="interactions.case_id")
    session = interactions["session_id"].combine_chunks().cast(pa.string()).dictionary_encode()
    key = case * (len(session.dictionary) + 1) + session.indices.to_numpy(zero_copy_only=False)
    _, head, number = np.unique(key, return_index=True, return_inverse=True)
    cases = tuple(coded.dictionary.to_pylist())
    # Sessions are numbered within their case, in its order: other cases may have the same ones in another order.
    rank = np.empty(len(head), np.int64)
    rank[np.argsort(head)] = np.arange(len(head))
    first = np.searchsorted(np.sort(case[head]), np.arange(len(cases) + 1))
    return Shard(
        cases=cases,
        table_of=table_of,
        offsets=np.searchsorted(case, np.arange(len(cases) + 1)),
        interactions=interactions,
        session=rank[number.reshape(-1)] - first[case],
        sessions=np.diff(first),
        language=language,
    )


def _plain(column: pa.ChunkedArray) -> pa.Array:
    joined = column.combine_chunks().cast(pa.string())
    return pa.concat_arrays(joined.chunks) if isinstance(joined, pa.ChunkedArray) else joined
