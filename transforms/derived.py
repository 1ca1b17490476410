"""The tables of derived stores: each is a case of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from schemas.tables import schema
from transforms.derive import GOLD, Ints, Log, Stores, by_time, homes, items_of, joined_of, plain_of

ROWS = 25_000
"""Interactions of the stores that are made at once."""


def groups(log: Log, stores: Stores, *, pool: bool = False, rows: int = ROWS) -> Iterator[Derived]:
    """Make stores, as many at once as have some `rows` interactions together.

    Args:
        log: What they are made of.
        stores: The stores.
        pool: Interactions of several cases meet in a store: ids gain their case, and time orders the sessions.
        rows: Interactions at once.
    """
    sizes = np.bincount(log.session, minlength=len(log.sessions))
    running = np.append(0, np.cumsum(sizes[stores.sessions]))[stores.offsets]
    low, count = 0, len(stores.offsets) - 1
    while low < count:
        high = max(low + 1, int(np.searchsorted(running, running[low] + rows, side="right")) - 1)
        mine = (stores.store >= low) & (stores.store < high)
        cut = slice(int(stores.offsets[low]), int(stores.offsets[high]))
        yield Derived(
            log,
            Stores(
                stores.offsets[low : high + 1] - stores.offsets[low],
                stores.sessions[cut],
                stores.questions[mine],
                stores.store[mine] - low,
            ),
            pool,
        )
        low = high


@dataclass(frozen=True)
class Derived:
    """Some stores at once, as tables in which each is a case.

    Attributes:
        log: What they are made of.
        stores: The stores.
        pool: As in `groups`.
    """

    log: Log
    stores: Stores
    pool: bool

    @cached_property
    def rows(self) -> tuple[Ints, Ints]:
        """Row in the log, and store, of each interaction, in order of store and of position in it."""
        by_session = np.argsort(self.log.session, kind="stable")
        sizes = np.bincount(self.log.session, minlength=len(self.log.sessions))
        starts = np.cumsum(sizes) - sizes
        lengths = sizes[self.stores.sessions]
        member = np.repeat(np.arange(len(lengths)), lengths)
        within = np.arange(len(member)) - (np.cumsum(lengths) - lengths)[member]
        row = by_session[starts[self.stores.sessions[member]] + within]
        store = np.repeat(np.arange(len(self.stores.offsets) - 1), np.diff(self.stores.offsets))[member]
        order = np.lexsort((row, by_time(self.log)[self.log.session[row]], store) if self.pool else (row, store))
        return row[order], store[order]

    @cached_property
    def names(self) -> pa.Array:
        """(stores,) ids, ascending."""
        return pa.array([f"{number:08d}" for number in range(len(self.stores.offsets) - 1)], pa.string())

    def interactions(self) -> pa.Table:
        """Return table `interactions`."""
        row, store = self.rows
        taken = self.log.interactions.take(pa.array(row))
        first = np.searchsorted(store, store, side="left")
        changed = {"position": np.arange(len(row)) - first}
        if self.pool:
            changed |= {
                "session_id": _prefixed(self._homes.take(pa.array(row)), plain_of(taken, "session_id")),
                "interaction_id": self._ids.take(pa.array(row)),
                "message_ids": self._listed(taken["message_ids"], self._homes.take(pa.array(row))),
            }
        return self._placed("interactions", taken, store, changed)

    def questions(self) -> pa.Table:
        """Return table `questions`; ids are the rows of the questions in the log."""
        taken = self.log.questions.take(pa.array(self.stores.questions))
        changed: dict[str, Any] = {"question_id": pa.array(self.stores.questions).cast(pa.string())}
        if self.pool:
            changed |= {name: self._gold(taken, name, column) for name, column in GOLD.items()}
        return self._placed("questions", taken, self.stores.store, changed)

    def by_interaction(self, name: str, table: pa.Table) -> pa.Table:
        """Return a table whose rows each stand for an interaction, in the stores' order."""
        mine = pl.DataFrame({"key": pl.Series(joined_of(table, "interaction_id")), "at": np.arange(len(table))})
        both = self._frame.join(mine, on="key", how="inner").sort("n", "at")
        changed = {"interaction_id": pa.array(both["id"].to_arrow()).cast(pa.string())} if self.pool else {}
        return self._placed(name, table.take(both["at"].to_arrow()), both["store"].to_numpy(), changed)

    def by_evidence(self, name: str, table: pa.Table) -> pa.Table:
        """Return a table of rows with `interaction_ids`: in each store those whose interactions are all there."""
        keys, owner = items_of(table, "interaction_ids")
        wanted = pl.DataFrame({"key": pl.Series(keys), "at": owner, "place": np.arange(len(owner))})
        sizes = np.bincount(owner, minlength=len(table))
        found = wanted.join(self._frame, on="key", how="inner")
        whole = found.group_by("store", "at").agg(pl.len().alias("found"))
        kept = whole.filter(pl.col("found") == pl.Series(sizes)[whole["at"]]).sort("store", "at")
        taken = table.take(kept["at"].to_arrow())
        changed: dict[str, Any] = {}
        if self.pool:
            ids = found.join(kept, on=["store", "at"], how="semi").sort("store", "at", "place")["id"]
            offsets = np.append(0, np.cumsum(sizes[kept["at"].to_numpy()])).astype(np.int32)
            changed["interaction_ids"] = pa.ListArray.from_arrays(offsets, ids.to_arrow().cast(pa.string()))
            prefix = plain_of(taken, "case_id")
            for column in ("fact_id", "reflection_id"):
                if column in taken.column_names:
                    changed[column] = _prefixed(prefix, plain_of(taken, column))
            if "fact_ids" in taken.column_names:
                changed["fact_ids"] = self._listed(taken["fact_ids"], prefix)
        return self._placed(name, taken, kept["store"].to_numpy(), changed)

    def vectors(self, table: pa.Table, of: str) -> pa.Table:
        """Return the rows of table `vectors` of ``interactions`` or ``questions``."""
        if of == "questions":
            wanted = joined_of(self.log.questions, "question_id").take(pa.array(self.stores.questions))
            at = pc.index_in(wanted, value_set=joined_of(table, "key"))
            changed: dict[str, Any] = {"key": pa.array(self.stores.questions).cast(pa.string())}
            return self._placed("vectors", table.take(at), self.stores.store, changed)
        row, store = self.rows
        at = pc.index_in(pa.array(self._keys.take(pa.array(row))), value_set=joined_of(table, "key"))
        return self._placed("vectors", table.take(at), store, {"key": self._ids.take(pa.array(row))})

    def asked_by(self, judged: pa.Table) -> pa.Table:
        """Return table `question_metrics` of these stores with the cases and questions of the log."""
        rows = pa.array(np.asarray(judged["question_id"].cast(pa.int64())))
        for name in ("question_id", "case_id"):
            column = self.log.questions[name].combine_chunks().take(rows)
            judged = judged.set_column(judged.column_names.index(name), schema("question_metrics").field(name), column)
        return judged

    @cached_property
    def _keys(self) -> pa.Array:
        return joined_of(self.log.interactions, "interaction_id")

    @cached_property
    def _homes(self) -> pa.Array:
        """(interactions of the log,) case whose session stands for each one's session."""
        names = pc.unique(plain_of(self.log.interactions, "case_id"))
        return names.take(pa.array(self.log.sessions[homes(self.log)[self.log.session]]))

    @cached_property
    def _ids(self) -> pa.Array:
        own = plain_of(self.log.interactions, "interaction_id")
        return _prefixed(self._homes, own) if self.pool else own

    @cached_property
    def _frame(self) -> pl.DataFrame:
        row, store = self.rows
        taken = pa.array(row)
        columns = {"key": self._keys.take(taken), "id": self._ids.take(taken), "store": pa.array(store)}
        return pl.DataFrame(pa.table(columns)).with_row_index("n")

    def _gold(self, taken: pa.Table, name: str, column: str) -> pa.Array:
        """Give gold ids the case whose session stands for theirs; ids of nothing keep the question's own."""
        keys, owner = items_of(self.log.interactions, column)
        wanted, asker = items_of(taken, name)
        at = pc.index_in(wanted, value_set=keys) if len(keys) else pa.nulls(len(wanted), pa.int32())
        home = self._homes.take(pa.array(owner)).take(at)
        prefix = pc.coalesce(home, plain_of(taken, "case_id").take(pa.array(asker)))
        lists = taken[name].combine_chunks()
        sizes = np.asarray(pc.list_value_length(lists))
        offsets = np.append(0, np.cumsum(sizes)).astype(np.int32)
        return pa.ListArray.from_arrays(offsets, _prefixed(prefix, lists.flatten().cast(pa.string())))

    def _listed(self, column: pa.ChunkedArray, prefix: pa.Array) -> pa.Array:
        lists = column.combine_chunks()
        sizes = np.asarray(pc.list_value_length(lists), np.int64)
        of = pa.array(np.repeat(np.arange(len(sizes)), sizes))
        offsets = np.append(0, np.cumsum(sizes)).astype(np.int32)
        return pa.ListArray.from_arrays(offsets, _prefixed(prefix.take(of), lists.flatten().cast(pa.string())))

    def _placed(self, name: str, taken: pa.Table, store: Ints, changed: dict[str, Any]) -> pa.Table:
        """Return rows with the stores as their cases and with columns changed."""
        cases = pa.DictionaryArray.from_arrays(pa.array(np.asarray(store).astype(np.int32)), self.names)
        columns = []
        for field in schema(name):
            value = cases if field.name == "case_id" else changed.get(field.name)
            if value is None:
                columns.append(taken[field.name])
                continue
            value = pa.array(value) if isinstance(value, np.ndarray) else value
            coded = pa.types.is_dictionary(field.type) and not pa.types.is_dictionary(value.type)
            columns.append((value.dictionary_encode() if coded else value).cast(field.type))
        return pa.Table.from_arrays(columns, schema=schema(name))


def _prefixed(prefix: pa.Array, ids: pa.Array) -> pa.Array:
    made = pc.binary_join_element_wise(prefix, ids, "/")
    return made.combine_chunks() if isinstance(made, pa.ChunkedArray) else made
