"""Tables that an extractor filled: checked, and what became of each piece."""

from __future__ import annotations

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from schemas import tables
from schemas.errors import SchemaError
from transforms.extractors import Filled
from transforms.tasks import Task

_ABSENT = "the extractor has nothing for this"
_REMEDY = "An extractor's 'fill' gives the tables of the task, with rows of what it was given alone."


def complete(extractor: str, task: Task, source: pa.Table, filled: Filled) -> dict[str, pa.Table]:
    """Check the tables of a task and add the outcomes.

    A piece is an interaction, or all facts of a case (key ``0``). It is ``ok`` where some row rests on it, else
    ``empty``.

    Args:
        extractor: Its name, for errors.
        task: The task.
        source: What the extractor was given.
        filled: What it made.

    Returns:
        The task's tables by name, in the order of `transforms.tasks.Task.TABLES`.

    Raises:
        SchemaError: A table is missing or unknown, does not fit its schema, or holds rows of something else.
    """
    wanted = [name for name in task.TABLES if name != "outcomes"]
    if set(filled.tables) != set(wanted):
        raise SchemaError(
            f"extractor '{extractor}' gave the tables {sorted(filled.tables)}, expected {sorted(wanted)}",
            where=f"extract/{task.NAME}",
            remedy=_REMEDY,
        )
    for name in wanted:
        tables.validate(name, filled.tables[name])
    item = "fact_id" if task.READS[1] == "facts" else "interaction_id"
    given = _pairs(source, item)
    told = []
    for name in wanted:
        made = filled.tables[name]
        rests = _pairs(made, item)
        strange = rests.join(given, on=["case_id", "item"], how="anti")
        if len(strange):
            case, key = strange.row(0)
            raise SchemaError(
                f"extractor '{extractor}' gave {len(strange)} rows of what it was not given, such as {item} '{key}' "
                f"of case '{case}'",
                where=name,
                remedy=_REMEDY,
            )
        if name == "concepts":
            if not rests.equals(given):
                raise SchemaError(
                    f"extractor '{extractor}' returned other rows than it was given", where=name, remedy=_REMEDY
                )
            rests = _pairs(made.filter(pc.greater(pc.list_value_length(made["concepts"]), 0)), item)
        told.append(rests)
    pieces = (
        given if item == "interaction_id" else given.select("case_id", item=pl.lit("0")).unique(maintain_order=True)
    )
    keys = ["case_id", "item"] if item == "interaction_id" else ["case_id"]
    done = pl.concat(told).select(keys).unique().with_columns(ok=pl.lit(True))
    found = pieces.join(done, on=keys, how="left", maintain_order="left")["ok"].to_arrow()
    count = len(pieces)
    outcomes = tables.build(
        "outcomes",
        {
            "case_id": pieces["case_id"].to_list(),
            "key": pieces["item"].to_list(),
            "status": pc.if_else(pc.is_valid(found), "ok", "empty"),
            "error": pc.if_else(pc.is_valid(found), pa.scalar(None, pa.string()), _ABSENT),
            "prompt_tokens": np.zeros(count, dtype=np.int32),
            "completion_tokens": np.zeros(count, dtype=np.int32),
        },
    )
    return {**{name: filled.tables[name] for name in wanted}, "outcomes": outcomes}


def _pairs(table: pa.Table, item: str) -> pl.DataFrame:
    """Return case_id and item, one row for each item that a row names."""
    column = table[item] if item in table.column_names else table[f"{item}s"]
    found = pl.from_arrow(pa.table({"case_id": table["case_id"].cast(pa.string()), "item": column}))
    assert isinstance(found, pl.DataFrame)
    if not isinstance(found.schema["item"], pl.List):
        return found
    return found.explode("item", empty_as_null=False, keep_nulls=False)
