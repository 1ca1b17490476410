"""Rank the questions of a shard with presets: what presets have in common is computed once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from indexers import bm25, csr, ppr, tfidf, traversal
from indexers.csr import Ints
from indexers.postings import Postings, Queries, from_table
from indexers.presets import Preset, get
from indexers.queries import questions_to_queries
from indexers.scores import Scores, ranked
from schemas.errors import SchemaError
from schemas.tables import build as build_table
from schemas.tables import empty
from transforms.metrics import SESSION_DEPTH

_CELLS = 4_000_000

INPUTS = ("interactions", "questions", "postings", "vocabulary", "matrices")
"""Tables that `rank_shard` reads; of interactions it needs case_id, session_id and interaction_id."""


@dataclass
class RankStats:
    """Counts of one preset on one shard.

    Attributes:
        questions: Questions ranked.
        no_matches: Questions whose words match no tag (presets over graphs).
        no_seeds: Questions without a seed for the walk (diffusion); all their scores are 0.
        no_results: Questions for which nothing was retrieved.
    """

    questions: int = 0
    no_matches: int = 0
    no_seeds: int = 0
    no_results: int = 0


@dataclass(frozen=True)
class _Shard:
    """Arrays of the cases looked at, those with questions among them; everything is in the order of `cases`."""

    cases: tuple[str, ...]
    tables: Mapping[str, pa.Table]
    offsets: Ints
    interaction_ids: pa.Array
    session: Ints
    sessions: Ints


def rank_shard(
    presets: Sequence[str], tables: Mapping[str, pa.Table], depth: int
) -> tuple[dict[str, pa.Table], dict[str, RankStats]]:
    """Rank all questions of a shard, or of a part of it, with each preset.

    A preset's ranking does not depend on the other presets or questions of the call.

    Args:
        presets: Preset names.
        tables: The tables of `INPUTS`. Of cases without questions little or nothing is looked at.
        depth: Interactions kept of each ranking. Below them, only the first interaction of each further session is
            kept, with its true rank, until `SESSION_DEPTH` sessions are there.

    Returns:
        By preset, the table `runs` (in order of the questions and of rank) and the counts.

    Raises:
        UsageError: A preset is unknown.
        SchemaError: A case with questions lacks postings or a graph, or the tables do not fit together.
    """
    chosen = [get(name) for name in presets]
    shard = _shard(tables)
    place = {case: number for number, case in enumerate(shard.cases)}
    names = tables["questions"]["case_id"].cast(pa.string()).to_pylist()
    case = np.array([place.get(name, -1) for name in names], np.int64)
    rows = np.flatnonzero(case >= 0)
    cost = np.cumsum(np.diff(shard.offsets)[case[rows]])
    runs: dict[str, list[pa.Table]] = {preset.name: [] for preset in chosen}
    stats = {preset.name: RankStats() for preset in chosen}
    index = _Index(shard)
    low = 0
    while low < len(rows):
        before = cost[low - 1] if low else 0
        high = max(low + 1, int(np.searchsorted(cost, before + _CELLS, side="right")))
        questions = tables["questions"].take(pa.array(rows[low:high]))
        batch = _Batch(index, questions, case[rows[low:high]])
        for preset in chosen:
            scores = batch.scores(preset, stats[preset.name])
            runs[preset.name].append(_runs(preset.name, shard, batch, scores, depth, stats[preset.name]))
        low = high
    return {name: pa.concat_tables(parts) if parts else empty("runs") for name, parts in runs.items()}, stats


def _shard(tables: Mapping[str, pa.Table]) -> _Shard:
    asked = pc.unique(tables["questions"]["case_id"].cast(pa.string()))
    interactions = tables["interactions"].select(["case_id", "session_id", "interaction_id"])
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
    unique, number = np.unique(key, return_inverse=True)
    cases = tuple(coded.dictionary.to_pylist())
    # Sessions are numbered within their case.
    first = np.searchsorted(unique // (len(session.dictionary) + 1), np.arange(len(cases) + 1))
    return _Shard(
        cases=cases,
        tables=tables,
        offsets=np.searchsorted(case, np.arange(len(cases) + 1)),
        interaction_ids=interactions["interaction_id"].combine_chunks(),
        session=number.reshape(-1) - first[case],
        sessions=np.diff(first),
    )


@dataclass
class _Index:
    """Arrays read out of the tables when first needed."""

    shard: _Shard
    _made: dict[tuple[str, ...], Any] = field(default_factory=dict)

    def postings(self, name: str) -> Postings:
        if ("postings", name) not in self._made:
            table = self.shard.tables["postings"]
            field_rows = np.flatnonzero(_numbers(pc.equal(table["field"].cast(pa.string()), name)))
            cases = pc.take(table["case_id"].cast(pa.string()), pa.array(field_rows))
            found_at = pc.index_in(pa.array(self.shard.cases, pa.string()), value_set=_plain(cases))
            if found_at.null_count:
                lacking = self.shard.cases[pc.index(found_at.is_null(), True).as_py()]
                raise SchemaError(
                    f"case '{lacking}' has no postings of field '{name}'",
                    where="postings",
                    remedy="Index the corpus again.",
                )
            rows = field_rows[_numbers(found_at)]
            # The whole shard is asked most of the time: then its rows need no copy.
            together = len(rows) > 0 and (np.diff(rows) == 1).all()
            made = from_table(table.slice(rows[0], len(rows)) if together else table.take(pa.array(rows)), name)
            if name != "tag" and not np.array_equal(made.document_offsets, self.shard.offsets):
                raise SchemaError("postings and interactions differ in number", where=f"postings of field '{name}'")
            self._made["postings", name] = made
        found: Postings = self._made["postings", name]
        return found

    def graphs(self, name: str) -> csr.Graphs:
        if ("graphs", name) not in self._made:
            made = csr.graphs(self.shard.tables["matrices"], name, self.shard.cases)
            if not np.array_equal(made.file_offsets, self.shard.offsets):
                raise SchemaError(
                    f"graph '{name}' and interactions differ in number of files",
                    where="matrices",
                    remedy="Build the graph again.",
                )
            self._made["graphs", name] = made
        found: csr.Graphs = self._made["graphs", name]
        return found

    def walk(self, name: str, without: tuple[str, ...], undirected: bool) -> ppr.Walk:
        key = ("walk", name, str(undirected), *without)
        if key not in self._made:
            self._made[key] = ppr.walk(self.graphs(name), without, undirected=undirected)
        found: ppr.Walk = self._made[key]
        return found


class _Batch:
    """Some questions; what several presets need is computed once."""

    def __init__(self, index: _Index, questions: pa.Table, case: Ints) -> None:
        self.index = index
        self.questions = questions
        self.case = case
        self.queries = cache(self._queries)
        self.content = cache(self._content)
        self.matches = cache(self._matches)
        self.reached = cache(self._reached)
        self.seeds = cache(self._seeds)

    def _queries(self, field_name: str, share: float | None) -> Queries:
        if share is None:
            texts = self.questions["question"].combine_chunks()
            return questions_to_queries(texts, self.case, self.index.shard.tables["vocabulary"])
        return tfidf.drop_common(self.queries(field_name, None), self.index.postings(field_name), share)

    def _content(self, kind: str, field_name: str, share: float | None) -> Scores:
        score = tfidf.tfidf_scores if kind == "tfidf" else tfidf.overlap_scores
        return score(self.index.postings(field_name), self.queries(field_name, share))

    def _matches(self, graph: str, field_name: str, share: float | None) -> traversal.Matches:
        postings = self.index.postings("tag")
        return traversal.match_tags(self.index.graphs(graph), postings, self.queries(field_name, share))

    def _reached(
        self, graph: str, field_name: str, share: float | None, depth: int, fan_in: int, max_children: int
    ) -> Scores:
        matches = self.matches(graph, field_name, share)
        return traversal.traverse(self.index.graphs(graph), matches, depth, fan_in, max_children)

    def _seeds(
        self, graph: str, field_name: str, share: float | None, kind: str, file_seeds: float, power: float
    ) -> ppr.Seeds:
        matches = self.matches(graph, field_name, share)
        if file_seeds == 0:
            return ppr.Seeds(self.case, matches.offsets, matches.nodes, np.ones(len(matches.nodes)))
        content = self.content(kind, field_name, share)
        return blend_seeds(self.index.graphs(graph), matches, content, file_seeds, power)

    def scores(self, preset: Preset, stats: RankStats) -> Scores:
        if preset.method == "bm25":
            postings, queries = self.index.postings(preset.field), self.queries(preset.field, preset.stopword_share)
            return bm25.bm25_scores(postings, queries, preset.k1, preset.b, preset.epsilon)
        wanted = (preset.graph, preset.field, preset.stopword_share)
        stats.no_matches += int((np.diff(self.matches(*wanted).offsets) == 0).sum())
        if preset.method == "traversal":
            reached = self.reached(*wanted, preset.depth, preset.fan_in, preset.max_children)
            content = self.content(preset.content, preset.field, preset.stopword_share)
            return traversal.with_content(reached, content, preset.depth)
        seeds = self.seeds(*wanted, preset.content, preset.file_seeds, preset.seed_power)
        walk = self.index.walk(preset.graph, preset.without_edges if preset.alpha else (), preset.undirected)
        scores, unseeded = ppr.personalized_pagerank(walk, seeds, preset.alpha, preset.tolerance, files_only=True)
        stats.no_seeds += int(unseeded.sum())
        return scores


def blend_seeds(
    graphs: csr.Graphs, matches: traversal.Matches, content: Scores, file_seeds: float, power: float
) -> ppr.Seeds:
    """Seed walks in matched tags, all alike, and in files in proportion to a power of their content score.

    Args:
        graphs: Graphs of a shard.
        matches: Matched tags of the questions.
        content: Content scores of the files of each question's case, not negative.
        file_seeds: Share of the files, in (0, 1]. Where a question has seeds of one sort only, that sort has all.
        power: The power.
    """
    questions = len(matches.case)
    filled = np.flatnonzero(content.values)
    of_file = np.searchsorted(content.offsets, filled, side="right") - 1
    of_tag = np.repeat(np.arange(questions), np.diff(matches.offsets))
    weight = content.values[filled] ** power
    total = np.bincount(of_file, weights=weight, minlength=questions)
    tags = np.diff(matches.offsets)
    tag_weight = np.where(total > 0, 1 - file_seeds, 1.0) / np.maximum(tags, 1)
    file_weight = np.where(tags > 0, file_seeds, 1.0) / np.where(total > 0, total, 1)
    files = graphs.file_nodes[graphs.file_offsets[matches.case[of_file]] + filled - content.offsets[of_file]]
    owner = np.concatenate([of_tag, of_file])
    order = np.argsort(owner, kind="stable")
    return ppr.Seeds(
        matches.case,
        np.searchsorted(owner[order], np.arange(questions + 1)),
        np.concatenate([matches.nodes, files])[order],
        np.concatenate([tag_weight[of_tag], weight * file_weight[of_file]])[order],
    )


def _runs(name: str, shard: _Shard, batch: _Batch, scores: Scores, depth: int, stats: RankStats) -> pa.Table:
    question, document, rank = ranked(scores)
    case = batch.case
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
            "interaction_id": shard.interaction_ids.take(pa.array(row[kept])),
            "score": scores.values[scores.offsets[question[kept]] + document[kept]],
        },
    )


def _plain(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks().cast(pa.string())


def _numbers(column: pa.Array | pa.ChunkedArray) -> npt.NDArray[Any]:
    values: npt.NDArray[Any] = np.asarray(column)
    return values
