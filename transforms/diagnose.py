"""Why evidence is missed: whether its notes have a tag that the question names; how tags are reused; degrees of graphs.

All come as rows of table `question_metrics`, so that they are kept and added up like metrics. Levels: ``interaction``
for counts of a question's gold interactions, `transforms.experiments.CASE` for figures of a case.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from schemas.tables import NOTE_FIELDS, build, empty
from transforms.contains import expecting, holders
from transforms.derive import items_of, joined_of, plain_of
from transforms.experiments import CASE
from transforms.tokens import tokenize

PERCENTILES = (50, 90, 99)
"""Percentiles of the degrees."""

Ints = npt.NDArray[np.int64]


def missed_gold(
    runs: Mapping[str, pa.Table], questions: pa.Table, interactions: pa.Table, notes: pa.Table, within: int
) -> pa.Table:
    """Count the gold interactions that rankings miss, and those whose note has no helpful tag.

    A tag helps if one of its words is a word of the question, as TAGGRAPH's traversal compares them.

    Args:
        runs: Preset -> its rows of table `runs`.
        questions: Table `questions`; gold are the interactions that it names, or else those that hold what it expects.
        interactions: Table `interactions` of the same cases.
        notes: Table `notes` of the same interactions.
        within: Rank within which an interaction is found.

    Returns:
        Of every question with gold and every preset the counts ``gold``, ``untagged``, ``missed`` and
        ``missed_untagged``.
    """
    question, row = _gold(questions, interactions)
    helped = _helped(question, row, questions, interactions, notes)
    gold_keys = _pair_keys(questions, interactions, question, row)
    asked = np.unique(question)
    at = np.searchsorted(asked, question)
    made = []
    for preset, run in runs.items():
        top = run.filter(pc.less_equal(run["rank"], within))
        ranked = pc.binary_join_element_wise(joined_of(top, "question_id"), plain_of(top, "interaction_id"), "\0")
        found = np.asarray(pc.is_in(gold_keys, value_set=ranked))
        for metric, counted in (
            ("gold", np.ones(len(found), bool)),
            ("untagged", ~helped),
            ("missed", ~found),
            ("missed_untagged", ~found & ~helped),
        ):
            made.append((preset, metric, np.bincount(at[counted], minlength=len(asked))))
    about = questions.take(pa.array(asked))
    return _rows(made, about["case_id"], about["question_id"], about["question_type"], about["answerable"], None)


def tag_figures(notes: pa.Table) -> pa.Table:
    """Count tags by case: ``notes``, ``tag_uses`` (tags of all notes), ``tags`` (distinct), ``tags_once``."""
    case = plain_of(notes, "case_id")
    names = pc.unique(case)
    owner = np.asarray(pc.index_in(case, value_set=names), np.int64)
    cases, tags = [], []
    for name in NOTE_FIELDS:
        lists = notes[name].combine_chunks()
        cases.append(np.repeat(owner, np.asarray(pc.list_value_length(lists), np.int64)))
        tags.append(lists.flatten().cast(pa.string()))
    frame = pl.DataFrame({"case": np.concatenate(cases), "tag": pl.Series(pa.concat_arrays(tags))})
    uses = frame.group_by("case", "tag").agg(pl.len().alias("n"))
    own = uses["case"].to_numpy()
    counts = {
        "notes": np.bincount(owner, minlength=len(names)),
        "tag_uses": np.bincount(frame["case"].to_numpy(), minlength=len(names)),
        "tags": np.bincount(own, minlength=len(names)),
        "tags_once": np.bincount(own[uses["n"].to_numpy() == 1], minlength=len(names)),
    }
    return _of_cases("", names, counts)


def degree_figures(kind: str, nodes: pa.Table, edges: pa.Table) -> pa.Table:
    """Describe the graphs of a kind by case: nodes, edges, and degrees (edges that leave or enter a node).

    Args:
        kind: Graph kind; it stands in the column `retriever`.
        nodes: Table `nodes`, of that kind.
        edges: Table `edges`, of the same cases.
    """
    case = plain_of(nodes, "case_id")
    names = pc.unique(case)
    owner = np.asarray(pc.index_in(case, value_set=names), np.int64)
    sizes = np.bincount(owner, minlength=len(names))
    starts = np.cumsum(sizes) - sizes
    edge_case = np.asarray(pc.index_in(plain_of(edges, "case_id"), value_set=names), np.int64)
    ends = [starts[edge_case] + np.asarray(edges[end], np.int64) for end in ("source", "target")]
    place = starts[owner] + np.asarray(nodes["node_id"], np.int64)
    degree = np.bincount(np.concatenate(ends), minlength=len(nodes))[place]
    is_file = np.asarray(pc.equal(plain_of(nodes, "kind"), "file"))
    order = np.lexsort((degree, owner))
    counts: dict[str, Any] = {
        "nodes": sizes,
        "edges": np.bincount(edge_case, minlength=len(names)),
        "isolated_files": np.bincount(owner[is_file & (degree == 0)], minlength=len(names)),
    }
    for percent in PERCENTILES:
        counts[f"degree_p{percent}"] = degree[order][starts + (sizes - 1) * percent // 100]
    counts["degree_max"] = degree[order][starts + sizes - 1]
    return _of_cases(kind, names, counts)


def _gold(questions: pa.Table, interactions: pa.Table) -> tuple[Ints, Ints]:
    keys = joined_of(interactions, "interaction_id")
    wanted, asker = items_of(questions, "gold_interaction_ids")
    at = np.asarray(pc.index_in(wanted, value_set=keys).fill_null(-1), np.int64)
    question, row = asker[at >= 0], at[at >= 0]
    if expecting(questions):
        other, held = holders(questions, interactions)[0]
        fresh = ~np.isin(other, question)
        question, row = np.append(question, other[fresh]), np.append(row, held[fresh])
    pair = np.unique(np.stack([question, row]), axis=1)
    return pair[0], pair[1]


def _helped(
    question: Ints, row: Ints, questions: pa.Table, interactions: pa.Table, notes: pa.Table
) -> npt.NDArray[np.bool_]:
    """Tell of each pair whether a tag of the interaction's note has a word of the question."""
    wanted = joined_of(interactions.select(["case_id", "interaction_id"]).take(pa.array(row)), "interaction_id")
    note = pc.index_in(wanted, value_set=joined_of(notes, "interaction_id"))
    taken = notes.select(list(NOTE_FIELDS)).take(note)
    words = [pc.binary_join(taken[name].combine_chunks().cast(pa.list_(pa.string())), " ") for name in NOTE_FIELDS]
    # To a word tokenizer "_" is a letter.
    text = pc.replace_substring(pc.binary_join_element_wise(*(pc.coalesce(w, "") for w in words), " "), "_", " ")
    tags = tokenize(pa.chunked_array([text]))
    asked = tokenize(questions["question"])
    pair_of = np.repeat(np.arange(len(row)), np.diff(tags.offsets))
    theirs = pl.DataFrame({"pair": pair_of, "word": pl.Series(tags.terms)[tags.ids]}).unique()
    theirs = theirs.with_columns(pl.Series("question", question[theirs["pair"].to_numpy()]))
    asker = np.repeat(np.arange(len(questions)), np.diff(asked.offsets))
    ours = pl.DataFrame({"question": asker, "word": pl.Series(asked.terms)[asked.ids]}).unique()
    helped = np.zeros(len(row), bool)
    helped[theirs.join(ours, on=["question", "word"], how="semi")["pair"].to_numpy()] = True
    return helped


def _pair_keys(questions: pa.Table, interactions: pa.Table, question: Ints, row: Ints) -> pa.Array:
    asked = joined_of(questions, "question_id").take(pa.array(question))
    return pc.binary_join_element_wise(asked, plain_of(interactions, "interaction_id").take(pa.array(row)), "\0")


def _of_cases(owner: str, names: pa.Array, counts: Mapping[str, Any]) -> pa.Table:
    blank = pa.array([""] * len(names), pa.string())
    yes = pa.array(np.ones(len(names), bool))
    return _rows([(owner, name, count) for name, count in counts.items()], names, blank, blank, yes, CASE)


def _rows(made: list[Any], case: Any, question: Any, kind: Any, answerable: Any, level: str | None) -> pa.Table:
    if not made or not len(case):
        return empty("question_metrics")
    times = len(made)
    return build(
        "question_metrics",
        {
            "case_id": pa.concat_arrays([_one(case)] * times),
            "question_id": pa.concat_arrays([_one(question)] * times),
            "question_type": pa.concat_arrays([_one(kind)] * times),
            "answerable": pa.concat_arrays([_one(answerable)] * times),
            "retriever": [owner for owner, _, count in made for _ in range(len(count))],
            "level": [level or "interaction"] * (times * len(case)),
            "metric": [metric for _, metric, count in made for _ in range(len(count))],
            "value": np.concatenate([count for _, _, count in made]).astype(np.float64),
        },
    )


def _one(column: Any) -> pa.Array:
    plain = column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column
    return plain.combine_chunks() if isinstance(plain, pa.ChunkedArray) else plain
