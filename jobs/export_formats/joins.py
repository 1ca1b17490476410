"""Tables as a reader wants them: each row with what it refers to. One shard is in memory at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pipelines.store import Generation
from schemas.errors import StoreError
from schemas.tables import empty
from transforms.interactions import full_text

QRELS = "qrels"
"""Name of the derived table of gold interactions."""

_SLICE = 50_000
"""Rows of a run that get their texts at once."""

_INTERACTION = ["case_id", "interaction_id", "session_id", "started_at", "speakers", "user_text", "assistant_text"]
_QUESTION = ["case_id", "question_id", "question", "question_type", "gold_interaction_ids"]
_NODE = ["case_id", "graph", "node_id", "kind", "key"]


def view(generation: Generation, what: str) -> Iterator[pa.Table]:
    """Yield a table part by part, joined where that helps a reader; at least one part, if without rows.

    ``interactions`` gain text; ``notes`` session_id, started_at, speakers and text of their interaction; ``runs``
    session_id and text of the interaction, question, question_type and gold (whether the interaction holds evidence);
    ``edges`` kind and key of source and target. ``qrels`` has case_id, question_id, interaction_id and relevance, one
    row a gold interaction. All other tables come as they are. Dictionaries are decoded.

    Raises:
        StoreError: The generation does not hold the table, or a table that it refers to.
        SchemaError: No table has that name.
    """
    table = "questions" if what == QRELS else what
    join, *besides = _VIEWS.get(what, (_as_it_is,))
    some = False
    for unit in units(generation, table):
        # Nodes belong to the unit of the edges: another graph numbers its nodes anew.
        others = [Beside(generation, name, columns, unit if name == "nodes" else None) for name, columns in besides]
        for part in generation.parts(table, unit=unit):
            for start in range(0, part.num_rows, _SLICE if what == "runs" else max(part.num_rows, 1)):
                rows = plain(part.slice(start, _SLICE) if what == "runs" else part)
                yield join(rows, *(other.of(rows) for other in others))
                some = True
    if not some:
        yield join(plain(empty(table)), *(plain(empty(name).select(columns)) for name, columns in besides))


def units(generation: Generation, table: str) -> list[str]:
    """Return the units that hold a table.

    Raises:
        SchemaError: No table has that name.
        StoreError: The generation does not hold it.
    """
    held = generation.tables().get(table, [])
    if not held:
        next(generation.parts(table))
    return held


def plain(table: pa.Table) -> pa.Table:
    """Return a table with its dictionary columns decoded."""
    for n, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            decoded = field.with_type(field.type.value_type)
            table = table.set_column(n, decoded, table.column(n).cast(field.type.value_type))
    return table.replace_schema_metadata(None)


class Beside:
    """The rows of another table for the cases of each part, found in one pass: both come in order of shard."""

    def __init__(self, generation: Generation, table: str, columns: list[str], unit: str | None = None) -> None:
        self._name = table
        self._parts = generation.parts(table, columns, unit)
        self._table = plain(empty(table).select(columns))
        self._cases: set[str] = set()

    def of(self, rows: pa.Table) -> pa.Table:
        """Return the part that holds the cases of `rows`.

        Raises:
            StoreError: No part does.
        """
        wanted = set(pc.unique(rows.column("case_id")).to_pylist())
        while not wanted <= self._cases:
            part = next(self._parts, None)
            if part is None:
                case = min(wanted - self._cases)
                raise StoreError(
                    f"holds nothing of case '{case}'", where=self._name, remedy="Run the generation again: tagloom run."
                )
            self._table = plain(part)
            self._cases = set(pc.unique(self._table.column("case_id")).to_pylist())
        return self._table


def _as_it_is(rows: pa.Table) -> pa.Table:
    return rows


def _interactions(rows: pa.Table) -> pa.Table:
    return rows.append_column("text", full_text(rows))


def _notes(rows: pa.Table, interactions: pa.Table) -> pa.Table:
    there = interactions.take(_places(rows, interactions, ["case_id", "interaction_id"]))
    for name in ("session_id", "started_at", "speakers"):
        rows = rows.append_column(name, there.column(name))
    return rows.append_column("text", full_text(there))


def _runs(rows: pa.Table, questions: pa.Table, interactions: pa.Table) -> pa.Table:
    there = interactions.take(_places(rows, interactions, ["case_id", "interaction_id"]))
    asked = _places(rows, questions, ["case_id", "question_id"])
    golds = questions.column("gold_interaction_ids").combine_chunks()
    owners = pc.list_parent_indices(golds).cast(pa.string())
    marks = pc.binary_join_element_wise(owners, golds.flatten(), ":")
    own = pc.binary_join_element_wise(asked.cast(pa.string()), rows.column("interaction_id").combine_chunks(), ":")
    rows = rows.append_column("session_id", there.column("session_id"))
    for name in ("question", "question_type"):
        rows = rows.append_column(name, questions.column(name).take(asked))
    return rows.append_column("gold", pc.is_in(own, value_set=marks)).append_column("text", full_text(there))


def _edges(rows: pa.Table, nodes: pa.Table) -> pa.Table:
    for end in ("source", "target"):
        there = nodes.take(_places(rows, nodes, ["case_id", "graph", end], ["case_id", "graph", "node_id"]))
        rows = rows.append_column(f"{end}_kind", there.column("kind"))
        rows = rows.append_column(f"{end}_key", there.column("key"))
    return rows


def _qrels(questions: pa.Table) -> pa.Table:
    golds = questions.column("gold_interaction_ids").combine_chunks()
    owner = pc.list_parent_indices(golds)
    pairs = pa.table({"owner": owner, "interaction_id": golds.flatten()})
    pairs = pairs.group_by(["owner", "interaction_id"], use_threads=False).aggregate([])
    made = {name: questions.column(name).take(pairs.column("owner")) for name in ("case_id", "question_id")}
    made["interaction_id"] = pairs.column("interaction_id")
    made["relevance"] = pa.array([1] * pairs.num_rows, pa.int8())
    return pa.table(made)


_VIEWS: dict[str, tuple[Any, ...]] = {
    "interactions": (_interactions,),
    "notes": (_notes, ("interactions", _INTERACTION)),
    "runs": (_runs, ("questions", _QUESTION), ("interactions", _INTERACTION)),
    "edges": (_edges, ("nodes", _NODE)),
    QRELS: (_qrels,),
}
"""Table -> how its rows are joined, and with which columns of which tables."""


def _places(rows: pa.Table, others: pa.Table, names: Sequence[str], theirs: Sequence[str] | None = None) -> Any:
    """Return, for each row, where the row of `others` with the same key lies.

    Raises:
        StoreError: There is none.
    """
    theirs = theirs or names
    keys: list[Any] = []
    other_keys: list[Any] = []
    for n, (name, their) in enumerate(zip(names, theirs, strict=True)):
        own = rows.column(name).combine_chunks().cast(pa.string())
        other = others.column(their).combine_chunks().cast(pa.string())
        if n < len(names) - 1:
            # Numbers instead of ids, so that the joined key is unambiguous whatever ids hold.
            known = pc.unique(other)
            own, other = (pc.index_in(ids, value_set=known).cast(pa.string()) for ids in (own, other))
        keys.append(own)
        other_keys.append(other)
    found = pc.index_in(
        pc.binary_join_element_wise(*keys, ":"), value_set=pc.binary_join_element_wise(*other_keys, ":")
    )
    if found.null_count:
        row = rows.filter(found.is_null()).slice(0, 1).select(list(names)).to_pylist()[0]
        raise StoreError(f"refers to {row}, which the generation does not hold", where="export")
    return found
