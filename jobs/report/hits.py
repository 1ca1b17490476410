"""Rankings of one shard as arrays: what each preset returned for each question, and what of it is evidence."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from transforms.contains import expecting, holders

GOLD, BESIDE = 1, 2
"""Marks of results: evidence, and not evidence itself but of a session that holds some."""

RUN_COLUMNS = ["case_id", "question_id", "rank", "interaction_id", "score"]
"""Columns of table `runs` that are read."""

JUDGED_COLUMNS = ["case_id", "question_id", "retriever", "level", "metric", "value"]
"""Columns of table `question_metrics` that are read."""

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Hits:
    """Results in order of question and rank.

    Attributes:
        counts: (questions,) results of each question.
        row: (results,) row of the interaction in its table.
        score: (results,) score.
        mark: (results,) `GOLD`, `BESIDE` or 0.
    """

    counts: Ints
    row: Ints
    score: npt.NDArray[np.float64]
    mark: Ints

    def between(self, start: int, stop: int) -> Hits:
        """Return the results of some questions."""
        ends = np.concatenate([[0], np.cumsum(self.counts)])
        own = slice(ends[start], ends[stop])
        return Hits(self.counts[start:stop], self.row[own], self.score[own], self.mark[own])


@dataclass(frozen=True)
class Evidence:
    """The questions and interactions of a shard, and which interactions are evidence.

    Attributes:
        cases: Case ids, by number.
        question_keys: (questions,) case number and id, as one string.
        interaction_keys: (interactions,) the same.
        session: (interactions,) number of the session.
        gold: Sorted question * interactions + row of all evidence.
        sizes: (questions,) interactions with evidence that there are.
        beside: Sorted question * sessions + session of sessions with evidence.
    """

    cases: pa.Array
    question_keys: pa.Array
    interaction_keys: pa.Array
    session: Ints
    gold: Ints
    sizes: Ints
    beside: Ints

    @classmethod
    def of(cls, questions: pa.Table, interactions: pa.Table) -> Evidence:
        """Read tables `questions` and `interactions` of one shard.

        Evidence are the interactions that a question names; where it names none, those of the sessions that it names;
        where it names neither, those that hold all texts that it expects.
        """
        cases = pc.unique(pa.concat_arrays([_strings(questions, "case_id"), _strings(interactions, "case_id")]))
        keys = _keys(cases, interactions, "interaction_id")
        session_keys = _keys(cases, interactions, "session_id").dictionary_encode()
        session = np.asarray(session_keys.indices, dtype=np.int64)
        asker, row = _named(cases, questions, "gold_interaction_ids", keys)
        sitter, sat = _named(cases, questions, "gold_session_ids", session_keys.dictionary)
        sizes = np.bincount(asker, minlength=questions.num_rows)
        bare = np.flatnonzero(np.isin(sitter, np.flatnonzero(sizes == 0)))
        if len(bare):
            more = _members(session, sat[bare])
            asker = np.concatenate([asker, np.repeat(sitter[bare], more[0])])
            row = np.concatenate([row, more[1]])
        left = np.setdiff1d(np.arange(questions.num_rows), asker)
        if len(left) and expecting(unnamed := questions.take(pa.array(left))):
            (asking, held), _ = holders(unnamed, interactions)
            asker, row = np.concatenate([asker, left[asking]]), np.concatenate([row, held])
        gold = np.unique(asker * max(len(keys), 1) + row)
        return cls(
            cases,
            _keys(cases, questions, "question_id"),
            keys,
            session,
            gold,
            np.bincount(gold // max(len(keys), 1), minlength=questions.num_rows),
            np.unique(sitter * max(len(session_keys.dictionary), 1) + sat),
        )

    def shown(self, start: int, stop: int, limit: int) -> tuple[Ints, Ints]:
        """Return rows of evidence of some questions, `limit` of each at most, and how many of each."""
        width = max(len(self.interaction_keys), 1)
        low, high = np.searchsorted(self.gold, [start * width, stop * width])
        own = self.gold[low:high]
        asker = own // width - start
        counts = np.bincount(asker, minlength=stop - start)
        nth = np.arange(len(own)) - np.repeat(np.cumsum(counts) - counts, counts)
        return (own % width)[nth < limit], np.minimum(counts, limit)

    def marks(self, question: Ints, row: Ints) -> Ints:
        """Return the marks of results."""
        sessions = int(self.session.max(initial=0)) + 1
        gold = _within(self.gold, question * max(len(self.interaction_keys), 1) + row)
        beside = _within(self.beside, question * sessions + self.session[row])
        marks: Ints = np.where(gold, GOLD, np.where(beside, BESIDE, 0))
        return marks


def top(runs: pa.Table, evidence: Evidence, depth: int) -> Hits:
    """Return the first results of each question.

    Args:
        runs: Table `runs` of one preset, at least `RUN_COLUMNS`.
        evidence: Of the same shard.
        depth: Results of each question at most.
    """
    runs = runs.filter(pc.less_equal(runs.column("rank"), depth))
    asked = pc.index_in(_keys(evidence.cases, runs, "question_id"), value_set=evidence.question_keys)
    found = pc.index_in(_keys(evidence.cases, runs, "interaction_id"), value_set=evidence.interaction_keys)
    known = pc.and_(pc.is_valid(asked), pc.is_valid(found))
    question, row = (np.asarray(column.filter(known), dtype=np.int64) for column in (asked, found))
    rank, score = (np.asarray(runs.column(name).filter(known)) for name in ("rank", "score"))
    order = np.lexsort((rank, question))
    question, row = question[order], row[order]
    counts = np.bincount(question, minlength=len(evidence.question_keys))
    return Hits(counts, row, score[order], evidence.marks(question, row))


def first_ranks(judged: pa.Table, questions: pa.Table, level: str) -> dict[str, Ints]:
    """Return, for each preset, the rank of the first evidence of each question.

    Args:
        judged: Table `question_metrics` of one shard, at least `JUDGED_COLUMNS`.
        questions: Table `questions` of the same shard.
        level: The level judged.

    Returns:
        Preset -> (questions,) ranks: 0 where nothing was found, -1 where the question is not judged at that level.
    """
    own = pc.and_(pc.equal(_strings(judged, "metric"), "mrr"), pc.equal(_strings(judged, "level"), level))
    judged = judged.select(["case_id", "question_id", "retriever", "value"]).filter(own)
    cases = pc.unique(_strings(questions, "case_id"))
    at = pc.index_in(_keys(cases, judged, "question_id"), value_set=_keys(cases, questions, "question_id"))
    value = np.asarray(judged.column("value"))
    # The reciprocal rank is all that tells it, and tells it exactly.
    rank = np.round(np.divide(1.0, value, out=np.zeros(len(value)), where=value > 0)).astype(np.int64)
    names = _strings(judged, "retriever").dictionary_encode()
    codes, place = np.asarray(names.indices), np.asarray(at.fill_null(-1), dtype=np.int64)
    made = {}
    for code, name in enumerate(names.dictionary.to_pylist()):
        ranks = np.full(questions.num_rows, -1, dtype=np.int64)
        mine = (codes == code) & (place >= 0)
        ranks[place[mine]] = rank[mine]
        made[name] = ranks
    return made


def _named(cases: pa.Array, questions: pa.Table, column: str, known: pa.Array) -> tuple[Ints, Ints]:
    """Return the question and the place in `known` of each id that questions name; ids that are not there are left."""
    lists = questions.column(column).combine_chunks()
    lengths = np.asarray(pc.list_value_length(lists), dtype=np.int64)
    asker = np.repeat(np.arange(questions.num_rows), lengths)
    codes = pc.index_in(_strings(questions, "case_id"), value_set=cases).take(pa.array(asker))
    place = pc.index_in(_join(codes, lists.flatten().cast(pa.string())), value_set=known)
    kept = np.asarray(pc.is_valid(place))
    return asker[kept], np.asarray(place.filter(pc.is_valid(place)), dtype=np.int64)


def _members(owner: Ints, wanted: Ints) -> tuple[Ints, Ints]:
    """Return how many rows each wanted owner has, and these rows, one owner after the other."""
    order = np.argsort(owner, kind="stable")
    sizes = np.bincount(owner, minlength=int(wanted.max(initial=-1)) + 1)
    starts = np.cumsum(sizes) - sizes
    lengths = sizes[wanted]
    within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return lengths, order[np.repeat(starts[wanted], lengths) + within]


def _within(keys: Ints, wanted: Ints) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = np.append(keys, -1)[np.searchsorted(keys, wanted)] == wanted
    return found


def _strings(table: pa.Table, name: str) -> pa.Array:
    return table.column(name).cast(pa.string()).combine_chunks()


def _keys(cases: pa.Array, table: pa.Table, name: str) -> pa.Array:
    """Return one string a row that tells ids of different cases apart; null where the case is not known."""
    return _join(pc.index_in(_strings(table, "case_id"), value_set=cases), _strings(table, name))


def _join(codes: pa.Array, ids: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(codes.cast(pa.string()), ids, ":")
