"""Rank the questions of a shard with presets: what presets have in common is computed once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from indexers.batch import Batch, Embedding, RankStats
from indexers.presets import Preset
from indexers.scores import Scores, ranked
from indexers.shard import Shard, TableOf, open_shard
from schemas.tables import build as build_table
from schemas.tables import empty
from transforms.metrics import SESSION_DEPTH

_CELLS = 2_000_000


def rank_shard(
    presets: Sequence[Preset],
    interactions: pa.Table,
    questions: pa.Table,
    table_of: TableOf,
    depth: int,
    *,
    embedding: Embedding,
    language: str = "english",
) -> tuple[dict[str, pa.Table], dict[str, RankStats]]:
    """Rank all questions of a shard, or of a part of it, with each preset.

    A preset's ranking does not depend on the other presets or questions of the call.

    Args:
        presets: The presets.
        interactions: case_id, session_id and interaction_id.
        questions: Table `questions`. Of cases without questions little or nothing is looked at.
        table_of: Gives the tables of units of the stages index and embed.
        depth: Interactions kept of each ranking. Below them, only the first interaction of each further session is
            kept, with its true rank, until `SESSION_DEPTH` sessions are there.
        embedding: Gives the vectors of questions, where a preset needs them.
        language: Language of the stems.

    Returns:
        By preset, the table `runs` (in order of the questions and of rank) and the counts.

    Raises:
        SchemaError: A case with questions lacks postings or a graph, or the tables do not fit together.
    """
    shard = open_shard(interactions, questions, table_of, language)
    runs: dict[str, list[pa.Table]] = {preset.name: [] for preset in presets}
    stats = {preset.name: RankStats() for preset in presets}
    for batch in batches(shard, questions, embedding, shared_arms(presets)):
        for preset in presets:
            scores = batch.scores(preset, stats[preset.name])
            runs[preset.name].append(_runs(preset.name, batch, scores, depth, stats[preset.name]))
    return {name: pa.concat_tables(parts) if parts else empty("runs") for name, parts in runs.items()}, stats


def batches(
    shard: Shard, questions: pa.Table, embedding: Embedding, shared: frozenset[str] = frozenset()
) -> Iterator[Batch]:
    """Cut questions into batches whose scores fit the memory; those of cases that are not there are left out."""
    place = {case: number for number, case in enumerate(shard.cases)}
    names = questions["case_id"].cast(pa.string()).to_pylist()
    case = np.array([place.get(name, -1) for name in names], np.int64)
    rows = np.flatnonzero(case >= 0)
    cost = np.cumsum(np.diff(shard.offsets)[case[rows]])
    low = 0
    while low < len(rows):
        before = cost[low - 1] if low else 0
        high = max(low + 1, int(np.searchsorted(cost, before + _CELLS, side="right")))
        taken = questions.take(pa.array(rows[low:high]))
        yield Batch(shard, taken, case[rows[low:high]], embedding, shared)
        low = high


def shared_arms(presets: Sequence[Preset]) -> frozenset[str]:
    """Return the marks of presets that are made use of more than once."""
    uses: Counter[str] = Counter()

    def count(preset: Preset) -> None:
        uses[preset.mark] += 1
        if uses[preset.mark] == 1:
            for arm in preset.arms.values():
                count(arm)

    for preset in presets:
        count(preset)
    return frozenset(mark for mark, times in uses.items() if times > 1)


def _runs(name: str, batch: Batch, scores: Scores, depth: int, stats: RankStats) -> pa.Table:
    question, document, rank = ranked(scores)
    case, shard = batch.case, batch.shard
    row = shard.offsets[case[question]] + document
    # Earliest row of each session: rows are written last to first, so the first one stays.
    session_offsets = np.cumsum(shard.sessions[case]) - shard.sessions[case]
    slot = session_offsets[question] + shard.session[row]
    earliest = np.full(int(shard.sessions[case].sum()), -1, np.int64)
    earliest[slot[::-1]] = np.arange(len(slot))[::-1]
    fresh = earliest[slot] == np.arange(len(slot))
    running = np.concatenate([[0], np.cumsum(fresh)])
    starts = np.searchsorted(question, np.arange(len(case)))
    sessions_seen = running[1:] - running[starts[question]]
    kept = np.flatnonzero((rank <= depth) | (fresh & (sessions_seen <= SESSION_DEPTH)))
    stats.questions += len(case)
    stats.no_results += len(case) - len(np.unique(question))
    codes = pa.array(question[kept])
    return build_table(
        "runs",
        {
            "case_id": pa.DictionaryArray.from_arrays(
                pa.array(case[question[kept]].astype(np.int32)), pa.array(shard.cases, pa.string())
            ),
            "question_id": batch.questions["question_id"].combine_chunks().take(codes),
            "retriever": pa.DictionaryArray.from_arrays(pa.array(np.zeros(len(kept), np.int32)), pa.array([name])),
            "rank": rank[kept].astype(np.int32),
            "interaction_id": shard.interactions["interaction_id"].combine_chunks().take(pa.array(row[kept])),
            "score": scores.values[scores.offsets[question[kept]] + document[kept]],
        },
    )
