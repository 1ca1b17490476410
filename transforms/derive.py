"""Memory stores derived from others: some sessions of a case, or all cases as one, with their questions, notes, facts.

Nothing is extracted again. A row that stands for an interaction goes where that interaction goes; a row that rests on
several (facts, reflections) goes where all of them are, since a store cannot know what rests on what it does not hold.
Questions are named by their row, because those of several cases may ask one store; `asked_by` names them back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from transforms.contains import expecting, holders

GOLD = {"gold_session_ids": "session_id", "gold_interaction_ids": "interaction_id", "gold_message_ids": "message_ids"}
_MULTIPLIERS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)

Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class Log:
    """The interactions that stores are made of, and the questions that are asked.

    Attributes:
        interactions: Table `interactions`, whole; rows of a case stand together.
        questions: Table `questions` of the same cases.
    """

    interactions: pa.Table
    questions: pa.Table

    @cached_property
    def case(self) -> Ints:
        """(interactions,) number of each one's case, in order of first appearance."""
        return _codes(plain_of(self.interactions, "case_id"))

    @cached_property
    def session(self) -> Ints:
        """(interactions,) number of each one's session among those of all cases, in order of first appearance."""
        return _codes(joined_of(self.interactions, "session_id"))

    @cached_property
    def sessions(self) -> Ints:
        """(sessions,) case of each session."""
        _, first = np.unique(self.session, return_index=True)
        found: Ints = self.case[first]
        return found

    @cached_property
    def asked_case(self) -> Ints:
        """(questions,) number of each one's case, -1 where the log has none of that name."""
        names = pc.unique(plain_of(self.interactions, "case_id"))
        return _numbers(pc.index_in(plain_of(self.questions, "case_id"), value_set=names))

    @cached_property
    def gold(self) -> tuple[Ints, Ints]:
        """Question and session of each pair where the session holds evidence, in order of both.

        Evidence is what gold ids name; of a question without any, the interactions that hold a text that it expects.
        """
        rows = np.arange(len(self.interactions))
        pairs = []
        for gold, column in GOLD.items():
            keys, owner = items_of(self.interactions, column)
            wanted, asker = items_of(self.questions, gold)
            at = _numbers(pc.index_in(wanted, value_set=keys)) if len(keys) else np.full(len(wanted), -1)
            pairs.append((asker[at >= 0], self.session[rows[owner[at[at >= 0]]]]))
        question, session = (np.concatenate(column) for column in zip(*pairs, strict=True))
        if expecting(self.questions):
            other, row = holders(self.questions, self.interactions)[1]
            fresh = ~np.isin(other, question)
            question = np.append(question, other[fresh])
            session = np.append(session, self.session[row[fresh]])
        pair = np.unique(question * max(len(self.sessions), 1) + session)
        divided = np.divmod(pair, max(len(self.sessions), 1))
        return divided[0].astype(np.int64), divided[1].astype(np.int64)


@dataclass(frozen=True)
class Stores:
    """Stores, each made of some sessions of a log.

    Attributes:
        offsets: (stores + 1,) where the sessions of each begin.
        sessions: Their numbers in the log.
        questions: (asked,) rows of the questions that are asked.
        store: (asked,) store that each is asked of.
    """

    offsets: Ints
    sessions: Ints
    questions: Ints
    store: Ints


def sampled(log: Log, seed: int, *, count: int | None = None, share: float | None = None) -> Stores:
    """Keep of each question's case the sessions with evidence and some of the others.

    The others are drawn by hashes of seed, case, question and session, so that a smaller sample is part of a larger
    one, and does not depend on other cases or questions. Questions with the same sessions share a store; those without
    a session that holds evidence are left out.

    Args:
        log: Interactions and questions.
        seed: Seed of the draw.
        count: Other sessions to keep of each case, as far as there are so many, or else
        share: share of the others to keep, rounded.
    """
    own, gold = log.gold
    asked = np.unique(own)
    sizes = np.bincount(log.sessions, minlength=int(log.case.max(initial=-1)) + 1)
    # Sessions of a case stand together, since its interactions do.
    starts = np.cumsum(sizes) - sizes
    case = log.asked_case[asked]
    lengths = sizes[case]
    question = np.repeat(np.arange(len(asked)), lengths)
    first = np.cumsum(lengths) - lengths
    session = np.arange(len(question)) - first[question] + starts[case][question]
    width = max(len(log.sessions), 1)
    is_gold = np.isin(asked[question] * width + session, own * width + gold)
    key = _mixed(_hashes(log.questions, "question_id", seed)[asked][question] ^ _session_hashes(log)[session])
    order = np.lexsort((session, key, is_gold, question))
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order)) - first[question[order]]
    others = lengths - np.bincount(question[is_gold], minlength=len(asked))
    wanted = np.full(len(asked), count or 0) if share is None else np.rint(others * share).astype(np.int64)
    kept = is_gold | (place < wanted[question])
    bounds = np.append(0, np.cumsum(np.bincount(question[kept], minlength=len(asked))))
    chosen = session[kept]
    known: dict[bytes, int] = {}
    store = np.empty(len(asked), np.int64)
    members: list[Ints] = []
    for number, (low, high) in enumerate(zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)):
        mine = chosen[low:high]
        store[number] = known.setdefault(mine.tobytes(), len(known))
        if store[number] == len(members):
            members.append(mine)
    offsets = np.append(0, np.cumsum([len(one) for one in members])).astype(np.int64)
    return Stores(offsets, np.concatenate(members) if members else np.zeros(0, np.int64), asked, store)


def pooled(log: Log) -> Stores:
    """Put all cases into one store. A session that several cases have, with the same id and content, is there once."""
    session = np.unique(log.session)
    home = homes(log)
    kept = session[home == session]
    asked = np.flatnonzero(log.asked_case >= 0)
    return Stores(np.array([0, len(kept)]), kept, asked, np.zeros(len(asked), np.int64))


def named_cases(table: pa.Table, cases: Sequence[str] | None) -> pa.Table:
    """Return the rows of some cases; None = all."""
    if cases is None:
        return table
    return table.filter(pc.is_in(plain_of(table, "case_id"), value_set=pa.array(cases, pa.string())))


def homes(log: Log) -> Ints:
    """Return (sessions,) the first session with the same id and content as each one."""
    table = log.interactions
    texts = [plain_of(table, name) for name in ("session_id", "interaction_id", "content_hash")]
    messages = pc.binary_join(table["message_ids"].combine_chunks().cast(pa.list_(pa.string())), "\0")
    row = pc.binary_join_element_wise(*texts, messages, "\1")
    frame = pl.DataFrame({"session": log.session, "row": pl.Series(row)})
    whole = frame.group_by("session", maintain_order=True).agg(pl.col("row").str.join("\2")).sort("session")
    first = whole.with_columns(pl.col("session").min().over("row").alias("home"))
    home: Ints = first["home"].to_numpy().astype(np.int64)
    return home


def by_time(log: Log) -> Ints:
    """Return (sessions,) the place of each by its earliest time, then by case and position; without a time last."""
    start = log.interactions["started_at"].combine_chunks().cast(pa.int64())
    times = np.asarray(start.fill_null(np.iinfo(np.int64).max), np.int64)
    earliest = np.full(len(log.sessions), np.iinfo(np.int64).max)
    np.minimum.at(earliest, log.session, times)
    _, first = np.unique(log.session, return_index=True)
    names = plain_of(log.interactions, "case_id").take(pa.array(first))
    alphabet = np.asarray(pc.rank(names, tiebreaker="dense"), np.int64) if len(names) else np.zeros(0, np.int64)
    place = np.empty(len(earliest), np.int64)
    place[np.lexsort((first, alphabet, earliest))] = np.arange(len(earliest))
    return place


def _hashes(table: pa.Table, column: str, seed: int) -> Words:
    keys = joined_of(table, column).to_pylist()
    return np.array([xxhash.xxh64_intdigest(key.encode("utf-8", "surrogatepass"), seed) for key in keys], np.uint64)


def _session_hashes(log: Log) -> Words:
    _, first = np.unique(log.session, return_index=True)
    return _hashes(log.interactions.select(["case_id", "session_id"]).take(pa.array(first)), "session_id", 0)


def _mixed(words: Words) -> Words:
    """Scramble words as splitmix64 does at its end (Steele, Lea and Flood, OOPSLA 2014)."""
    for shift, factor in zip((30, 27), _MULTIPLIERS, strict=True):
        words = (words ^ (words >> np.uint64(shift))) * np.uint64(factor)
    return words ^ (words >> np.uint64(31))


def items_of(table: pa.Table, column: str) -> tuple[pa.Array, Ints]:
    """Return the key (case and id) and the row of each id in a column of ids or of lists of ids."""
    found = table[column].combine_chunks()
    if not pa.types.is_list(found.type):
        return joined_of(table, column), np.arange(len(table))
    owner = np.repeat(np.arange(len(table)), np.asarray(pc.list_value_length(found), np.int64))
    ids = found.flatten().cast(pa.string())
    return _array(pc.binary_join_element_wise(plain_of(table, "case_id").take(pa.array(owner)), ids, "\0")), owner


def joined_of(table: pa.Table, column: str) -> pa.Array:
    """Return the key (case and id) of each row."""
    return _array(pc.binary_join_element_wise(plain_of(table, "case_id"), plain_of(table, column), "\0"))


def plain_of(table: pa.Table, column: str) -> pa.Array:
    """Return a column of strings in one array without a dictionary."""
    return _array(table[column].cast(pa.string()))


def _array(values: Any) -> pa.Array:
    values = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    return pa.concat_arrays(values.chunks) if isinstance(values, pa.ChunkedArray) else values


def _codes(values: pa.Array) -> Ints:
    return np.asarray(values.dictionary_encode().indices, np.int64)


def _numbers(values: pa.Array) -> Ints:
    return np.asarray(values.fill_null(-1), np.int64)
