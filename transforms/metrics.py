"""Ranking metrics of every question, over whole run tables at once.

Several levels judge the same ranking: the interactions themselves, the messages that they join, and the sessions that
they are part of, each against the gold that the source names; and the interactions against the texts that a question
expects, all of them (`contains`) or any (`contains_any`). Relevance is binary. Only the order of a list counts, never
its scores, so a scorer that gives every document one score gains nothing. Values equal those of trec_eval (RR, R@k,
Success@k, nDCG@10, AP).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from schemas.errors import SchemaError
from schemas.tables import build, empty
from transforms.contains import Pairs, expecting, holders

GOLD_LEVELS = ("interaction", "message", "session")
"""Levels whose gold is named by id."""

LEVELS = (*GOLD_LEVELS, "contains", "contains_any")
"""The levels at which a ranking is judged."""

SESSION_DEPTH = 40
"""Sessions kept of each ranking (the TAGGRAPH paper's protocol)."""

NDCG_DEPTH = 10
"""Cut-off of nDCG."""

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def metric_names(ks: Sequence[int]) -> tuple[str, ...]:
    """Return the names of the metrics, in the order of their columns and rows."""
    cut = sorted(set(ks))
    return ("mrr", *(f"recall@{k}" for k in cut), *(f"hit@{k}" for k in cut), f"ndcg@{NDCG_DEPTH}", "map")


def from_hits(question: Ints, rank: Ints, gold: Ints, ks: Sequence[int]) -> Floats:
    """Compute all metrics from the ranks of the gold documents that were found.

    With r_1 < r_2 < ... the ranks of the gold documents found for a question and G its gold documents:
    mrr = 1/r_1; recall@k = |{r <= k}|/G; hit@k = [r_1 <= k]; map = (1/G) sum_i i/r_i;
    ndcg@10 = sum_{r <= 10} 1/log2(r+1) / sum_{i <= min(G, 10)} 1/log2(i+1).

    Args:
        question: (hits,) question of each hit, ascending.
        rank: (hits,) its rank from 1, ascending within a question.
        gold: (questions,) number of gold documents, found or not; all metrics of a question without any are 0.
        ks: Cut-offs of recall and hit.

    Returns:
        (questions, metrics) values in [0, 1], columns as in `metric_names`.
    """
    n = len(gold)
    found = np.bincount(question, minlength=n)
    starts = np.cumsum(found) - found
    nth = np.arange(len(question)) - starts[question] + 1
    share = 1.0 / np.maximum(gold, 1)
    first = nth == 1
    columns: list[npt.NDArray[Any]] = [np.bincount(question[first], 1.0 / rank[first], n)]
    inside = [np.bincount(question[rank <= k], minlength=n) for k in sorted(set(ks))]
    columns += [count * share for count in inside]
    columns += [(count > 0).astype(np.float64) for count in inside]
    gains = 1.0 / np.log2(np.arange(2, NDCG_DEPTH + 2))
    ideal = np.concatenate([[1.0], np.cumsum(gains)])[np.minimum(gold, NDCG_DEPTH)]
    top = rank <= NDCG_DEPTH
    columns.append(np.bincount(question[top], gains[rank[top] - 1], n) / ideal)
    columns.append(np.bincount(question, nth / rank, n) * share)
    # A perfect list may come out one rounding step above 1.
    values: Floats = np.minimum(np.stack(columns, axis=1), 1.0)
    return values


@dataclass(frozen=True)
class _Level:
    """Document codes at one level, and the gold of every question in them.

    Attributes:
        starts, items: Interaction row i holds the documents ``items[starts[i]:starts[i + 1]]``, in order.
        size: Number of document codes.
        gold_keys: Sorted ``question * size + document`` of all gold.
        gold: (questions,) number of distinct gold documents.
    """

    starts: Ints
    items: Ints
    size: int
    gold_keys: Ints
    gold: Ints

    def hits(self, question: Ints, row: Ints, depth: int | None) -> tuple[Ints, Ints]:
        """Return question and rank of each gold document in ranked lists of interaction rows."""
        lengths = self.starts[row + 1] - self.starts[row]
        question = np.repeat(question, lengths)
        within = np.arange(len(question)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        keys = question * self.size + self.items[np.repeat(self.starts[row], lengths) + within]
        first = np.zeros(len(keys), dtype=bool)
        first[np.unique(keys, return_index=True)[1]] = True
        keys, question = keys[first], question[first]
        counts = np.bincount(question, minlength=len(self.gold))
        rank = np.arange(len(keys)) - (np.cumsum(counts) - counts)[question] + 1
        place = np.searchsorted(self.gold_keys, keys)
        hit = np.append(self.gold_keys, -1)[place] == keys
        if depth is not None:
            hit &= rank <= depth
        return question[hit], rank[hit]


def question_metrics(
    runs: Mapping[str, pa.Table],
    questions: pa.Table,
    interactions: pa.Table,
    *,
    ks: Sequence[int],
    depth: int,
) -> pa.Table:
    """Judge every question under every preset, level and metric.

    A level judges the questions that have gold at that level; such a question counts 0 when the run lacks it. The
    level of sessions sees all rows, each session at the place of its first interaction, cut at `SESSION_DEPTH`; the
    other levels see the rows with ``rank <= depth``. Recall is measured against all distinct gold ids of the question.
    At the levels `contains` and `contains_any`, gold are the interactions that `transforms.contains.holders` finds.

    Args:
        runs: Preset name to its rows of table `runs`, with the columns case_id, question_id, rank, interaction_id.
            A preset that found nothing has an empty table.
        questions: Table `questions`.
        interactions: Table `interactions`, at least case_id, interaction_id, session_id and message_ids, of the same
            cases; where a question expects texts (`transforms.contains.expecting`), user_text and assistant_text too.
        ks: Cut-offs of recall and hit.
        depth: The ranking depth (`rank.depth`).

    Returns:
        Table `question_metrics`, in order of preset (as given), level, question (as given) and metric.

    Raises:
        SchemaError: A run names an interaction that is not in `interactions`.
    """
    cases = pc.unique(pa.concat_arrays([_strings(questions, "case_id"), _strings(interactions, "case_id")]))
    question_keys = _keys(cases, questions, "question_id")
    row_keys = _keys(cases, interactions, "interaction_id")
    levels = _levels(cases, questions, interactions, row_keys)
    if expecting(questions):
        levels += [_contained(pairs, questions, interactions) for pairs in holders(questions, interactions)]
    names = metric_names(ks)
    parts: list[tuple[int, int, Ints, Floats]] = []
    for preset, name in enumerate(runs):
        question, row, rank = _ranking(cases, runs[name], question_keys, row_keys, name)
        shallow = rank <= depth
        for number, level in enumerate(levels):
            if LEVELS[number] == "session":
                hits = level.hits(question, row, SESSION_DEPTH)
            else:
                hits = level.hits(question[shallow], row[shallow], None)
            population = np.flatnonzero(level.gold)
            parts.append((preset, number, population, from_hits(*hits, level.gold, ks)[population]))
    return _table(parts, tuple(runs), LEVELS[: len(levels)], names, questions)


def _ranking(cases: Any, run: pa.Table, question_keys: Any, row_keys: Any, name: str) -> tuple[Ints, Ints, Ints]:
    """Return question index, interaction row and rank of each row of a run, in order of question and rank."""
    found = pc.index_in(_keys(cases, run, "question_id"), value_set=question_keys)
    known = found.is_valid()
    question = np.asarray(found.filter(known), dtype=np.int64)
    run = run.filter(known)
    rows = pc.index_in(_keys(cases, run, "interaction_id"), value_set=row_keys)
    if rows.null_count:
        bad = run.filter(rows.is_null()).slice(0, 1).to_pylist()[0]
        raise SchemaError(
            f"preset '{name}' ranks interaction '{bad['interaction_id']}' of case '{bad['case_id']}', which the "
            "corpus does not hold",
            where="runs",
            remedy="Rank again: the run belongs to another generation of the corpus.",
        )
    rank = np.asarray(run.column("rank"), dtype=np.int64)
    order = np.lexsort((rank, question))
    return question[order], np.asarray(rows, dtype=np.int64)[order], rank[order]


def _levels(cases: Any, questions: pa.Table, interactions: pa.Table, row_keys: Any) -> list[_Level]:
    one_each = np.arange(interactions.num_rows + 1)
    starts, messages = _flat(interactions, "message_ids")
    owner = np.repeat(np.arange(interactions.num_rows), np.diff(starts))
    case_of_row = pc.index_in(_strings(interactions, "case_id"), value_set=cases)
    items = {
        "interaction": (one_each, row_keys),
        "message": (starts, _join(case_of_row.take(pa.array(owner)), messages)),
        "session": (one_each, _keys(cases, interactions, "session_id")),
    }
    case_of_question = pc.index_in(_strings(questions, "case_id"), value_set=cases)
    made = []
    for level in GOLD_LEVELS:
        bounds, gold_ids = _flat(questions, f"gold_{level}_ids")
        asker = np.repeat(np.arange(questions.num_rows), np.diff(bounds))
        gold_keys = _join(case_of_question.take(pa.array(asker)), gold_ids)
        first, item_keys = items[level]
        # Gold that no interaction holds gets a code too: it counts in recall and can never be found.
        both = pa.concat_arrays([item_keys, gold_keys]).dictionary_encode()
        codes, size = np.asarray(both.indices, dtype=np.int64), max(len(both.dictionary), 1)
        gold = np.unique(asker * size + codes[len(item_keys) :])
        count = np.bincount(gold // size, minlength=questions.num_rows)
        made.append(_Level(first, codes[: len(item_keys)], size, gold, count))
    return made


def _contained(pairs: Pairs, questions: pa.Table, interactions: pa.Table) -> _Level:
    question, row = pairs
    count, size = np.bincount(question, minlength=questions.num_rows), max(interactions.num_rows, 1)
    return _Level(np.arange(size + 1), np.arange(size), size, question * size + row, count)


def _table(
    parts: list[tuple[int, int, Ints, Floats]],
    presets: tuple[str, ...],
    levels: tuple[str, ...],
    names: tuple[str, ...],
    questions: pa.Table,
) -> pa.Table:
    if not parts:
        return empty("question_metrics")
    width = len(names)
    question = pa.array(np.repeat(np.concatenate([p[2] for p in parts]), width))
    lengths = np.array([len(p[2]) * width for p in parts])
    about = questions.select(["case_id", "question_id", "question_type", "answerable"]).unify_dictionaries()
    columns = {name: about.column(name).combine_chunks().take(question) for name in about.column_names}
    columns["retriever"] = _coded(np.repeat([p[0] for p in parts], lengths), presets)
    columns["level"] = _coded(np.repeat([p[1] for p in parts], lengths), levels)
    columns["metric"] = _coded(np.tile(np.arange(width), len(question) // width), names)
    columns["value"] = pa.array(np.concatenate([p[3].ravel() for p in parts]))
    return build("question_metrics", columns)


def _coded(codes: npt.NDArray[Any], names: Sequence[str]) -> Any:
    return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)), pa.array(names, pa.string()))


def _strings(table: pa.Table, name: str) -> Any:
    return table.column(name).cast(pa.string()).combine_chunks()


def _flat(table: pa.Table, name: str) -> tuple[Ints, Any]:
    """Return the bounds of each row's list (rows + 1) and all items in one array."""
    lists = table.column(name).combine_chunks()
    lengths = np.asarray(pc.list_value_length(lists), dtype=np.int64)
    return np.concatenate([[0], np.cumsum(lengths)]), lists.flatten().cast(pa.string())


def _keys(cases: Any, table: pa.Table, name: str) -> Any:
    """Return one string per row that tells ids of different cases apart; null where the case is not known."""
    return _join(pc.index_in(_strings(table, "case_id"), value_set=cases), _strings(table, name))


def _join(case_codes: Any, ids: Any) -> Any:
    return pc.binary_join_element_wise(case_codes.cast(pa.string()), ids, ":")
