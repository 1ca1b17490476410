"""Own tables for `replay`: their rows matched to the interactions, or facts, that are there."""

from __future__ import annotations

import polars as pl
import pyarrow as pa

from schemas import tables
from transforms.extractors import Filled

_STRINGS = tables.schema("concepts").field("concepts").type


def frame(table: pa.Table, *columns: str, **renamed: str) -> pl.DataFrame:
    """Return columns of a table as a frame; dictionaries become plain strings."""
    plain = {}
    for name, given in ({name: name for name in columns} | renamed).items():
        column = table[given]
        plain[name] = column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
    found = pl.from_arrow(pa.table(plain))
    assert isinstance(found, pl.DataFrame)
    return found


def strings(series: pl.Series) -> pa.Array:
    """Return strings as an Arrow array."""
    array = series.to_arrow(compat_level=pl.CompatLevel.oldest()).cast(pa.string())
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def places(source: pa.Table) -> pl.DataFrame:
    """Return case_id, interaction_id and place (row number) of interactions."""
    return frame(source, "case_id", "interaction_id").with_row_index("place")


def places_of(rows: pa.Table, source: pa.Table) -> pa.Array:
    """Return for each interaction the number of its row among others: of several the first, null for none."""
    own = frame(rows, "case_id", "interaction_id").with_row_index("row")
    own = own.unique(["case_id", "interaction_id"], keep="first", maintain_order=True)
    found = places(source).join(own, on=["case_id", "interaction_id"], how="left", maintain_order="left")
    return pa.array(found["row"].to_list(), type=pa.int64())


def _mine(rows: pa.Table, source: pa.Table, *columns: str) -> pl.DataFrame:
    """Return rows, numbered, whose case is in the source."""
    own = frame(rows, "case_id", *columns).with_row_index("row")
    return own.join(frame(source, "case_id").unique(), on="case_id", how="semi", maintain_order="left")


def counts(**found: int) -> dict[str, int]:
    """Return the counts that are not 0."""
    return {name: count for name, count in found.items() if count}


def one_each(name: str, rows: pa.Table, source: pa.Table) -> Filled:
    """Take rows that belong to one interaction each (entities, relations, triples), in order of the interactions.

    Counts: NAME_taken; NAME_unknown, whose interaction the case does not hold.
    """
    own = _mine(rows, source, "interaction_id")
    kept = own.join(places(source), on=["case_id", "interaction_id"], how="inner", maintain_order="left")
    kept = kept.sort("place", "row")
    table = _taken(name, rows, kept["row"])
    stats = counts(**{f"{name}_taken": len(kept), f"{name}_unknown": len(own) - len(kept)})
    return Filled({name: table}, stats)


def _taken(name: str, rows: pa.Table, which: pl.Series, **changed: pa.Array) -> pa.Table:
    """Return some rows, in another order, with some columns replaced."""
    found = rows.take(pa.array(which.to_numpy()))
    return tables.build(name, {column: changed.get(column, found[column]) for column in found.column_names})


def concepts(rows: pa.Table, source: pa.Table) -> Filled:
    """Take the concepts of interactions, one row an interaction; those that have no row have none.

    Counts: concepts_taken, concepts_unknown; concepts_repeated, whose interaction has an earlier row.
    """
    own = _mine(rows, source, "interaction_id", "concepts")
    known = own.join(places(source), on=["case_id", "interaction_id"], how="inner", maintain_order="left")
    first = known.unique("place", keep="first", maintain_order=True)
    stats = counts(
        concepts_taken=len(first),
        concepts_unknown=len(own) - len(known),
        concepts_repeated=len(known) - len(first),
    )
    labels = first.select("place", label="concepts").explode("label", empty_as_null=False, keep_nulls=False)
    return Filled({"concepts": labelled(source, labels)}, stats)


def labelled(source: pa.Table, labels: pl.DataFrame) -> pa.Table:
    """Make the concepts table from (place, label) pairs in order, one row an interaction."""
    columns = {"case_id": source["case_id"], "interaction_id": source["interaction_id"]}
    return tables.build("concepts", {**columns, "concepts": lists(labels, "place", "label", source.num_rows)})


def lists(pairs: pl.DataFrame, key: str, value: str, count: int) -> pa.Array:
    """Gather one list of strings a key from 0 to `count` - 1, values in the order in which they come."""
    pairs = pairs.sort(key, maintain_order=True)
    ends = pairs[key].search_sorted(pl.Series(range(count + 1), dtype=pairs[key].dtype), side="left")
    return pa.ListArray.from_arrays(ends.to_arrow().cast(pa.int32()), strings(pairs[value]), type=_STRINGS)


def facts(rows: pa.Table, source: pa.Table) -> Filled:
    """Take facts whose interactions the case holds, in order of the first of these.

    Counts: facts_taken; facts_unknown, which name no interaction of the case; facts_repeated, whose fact_id an earlier
    one has; evidence_unknown, interactions that facts which were taken name and the case does not hold.
    """
    own = _mine(rows, source, "fact_id", "interaction_ids")
    left = own.unique(["case_id", "fact_id"], keep="first", maintain_order=True)
    named = left.select("row", "case_id", interaction_id="interaction_ids")
    named = named.explode("interaction_id", empty_as_null=False, keep_nulls=False)
    named = named.unique(["row", "interaction_id"], keep="first", maintain_order=True)
    known = named.join(places(source), on=["case_id", "interaction_id"], how="inner", maintain_order="left")
    order = known.group_by("row").agg(pl.col("place").min()).sort("place", "row").with_row_index("at")
    known = known.join(order.select("row", "at"), on="row", maintain_order="left")
    ids = lists(known, "at", "interaction_id", len(order))
    unplaced = named.join(order, on="row", how="anti")
    stats = counts(
        facts_taken=len(order),
        facts_unknown=len(left) - len(order),
        facts_repeated=len(own) - len(left),
        evidence_unknown=len(named) - len(known) - len(unplaced),
    )
    return Filled({"facts": _taken("facts", rows, order["row"], interaction_ids=ids)}, stats)


def concepts_of_facts(found: pa.Table, source: pa.Table) -> pl.DataFrame:
    """Return (place, label) pairs: the labels of each interaction's facts, the first of each fact first."""
    told = frame(found, "case_id", "interaction_ids", "concepts").with_row_index("fact")
    told = told.explode("interaction_ids", empty_as_null=False, keep_nulls=False)
    told = told.rename({"interaction_ids": "interaction_id"})
    told = told.join(places(source), on=["case_id", "interaction_id"], how="inner", maintain_order="left")
    told = told.with_columns(rank=pl.int_ranges(pl.col("concepts").list.len()))
    pairs = told.select("place", "fact", "rank", label="concepts")
    pairs = pairs.explode("rank", "label", empty_as_null=False, keep_nulls=False).sort("place", "rank", "fact")
    return pairs.select("place", "label").unique(maintain_order=True)


def reflections(rows: pa.Table, found: pa.Table) -> Filled:
    """Take reflections whose facts were taken, by case in order of the file; their interactions are those of the facts.

    Args:
        rows: Rows of the table reflections.
        found: The facts.

    Counts: reflections_taken; reflections_unknown, which name no fact of the case; reflections_repeated, whose
    reflection_id an earlier one has; evidence_unknown, facts that those which were taken name and that were not taken.
    """
    own = _mine(rows, found, "reflection_id", "fact_ids")
    left = own.unique(["case_id", "reflection_id"], keep="first", maintain_order=True)
    held = frame(found, "case_id", "fact_id", "interaction_ids")
    cases = held.select("case_id").unique(maintain_order=True).with_row_index("case")
    named = left.select("row", "case_id", fact_id="fact_ids")
    named = named.explode("fact_id", empty_as_null=False, keep_nulls=False).unique(maintain_order=True)
    known = named.join(held, on=["case_id", "fact_id"], how="inner", maintain_order="left")
    known = known.join(cases, on="case_id", maintain_order="left")
    order = known.select("case", "row").unique().sort("case", "row").with_row_index("at")
    known = known.join(order.select("row", "at"), on="row", maintain_order="left")
    behind = known.select("at", interaction_id="interaction_ids")
    behind = behind.explode("interaction_id", empty_as_null=False, keep_nulls=False).unique(maintain_order=True)
    made = _taken(
        "reflections",
        rows,
        order["row"],
        fact_ids=lists(known, "at", "fact_id", len(order)),
        interaction_ids=lists(behind, "at", "interaction_id", len(order)),
    )
    unplaced = named.join(order, on="row", how="anti")
    stats = counts(
        reflections_taken=len(order),
        reflections_unknown=len(left) - len(order),
        reflections_repeated=len(own) - len(left),
        evidence_unknown=len(named) - len(known) - len(unplaced),
    )
    return Filled({"reflections": made}, stats)


def with_ends(entities: pa.Table, relations: pa.Table, source: pa.Table) -> Filled:
    """Add an entity for each end of a relation that its interaction has none for, whatever the case of its letters.

    Counts: ends_added.
    """
    keys = ["case_id", "interaction_id", "folded"]
    folded = pl.col("title").str.to_lowercase().alias("folded")
    there = frame(entities, "case_id", "interaction_id", "title").with_columns(folded)
    ends = frame(relations, "case_id", "interaction_id", "source", "target").with_row_index("row")
    each = [ends.select("case_id", "interaction_id", "row", title=side) for side in ("source", "target")]
    ends = pl.concat(each).with_columns(folded).sort("row", maintain_order=True)
    ends = ends.unique(keys, keep="first", maintain_order=True)
    added = ends.join(there, on=keys, how="anti", maintain_order="left")
    if not len(added):
        return Filled({"entities": entities, "relations": relations})
    more = tables.build(
        "entities",
        {
            **{name: strings(added[name]) for name in ("case_id", "interaction_id", "title")},
            "kind": ["entity"] * len(added),
            "attributes": [[]] * len(added),
            "role": ["user"] * len(added),
        },
    )
    both = pa.concat_tables([entities, more]).unify_dictionaries()
    where = frame(both, "case_id", "interaction_id").with_row_index("row")
    order = where.join(places(source), on=["case_id", "interaction_id"], maintain_order="left").sort("place", "row")
    whole = _taken("entities", both, order["row"])
    return Filled({"entities": whole, "relations": relations}, {"ends_added": len(added)})
