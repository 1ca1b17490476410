"""Packs: what a reader gets to see of a case for a question, under a budget (GAAMA, arXiv 2603.27910).

A pack is made from candidates in order: interactions by rank with the facts and reflections that rest on them, or nodes
of any kind by score. Each kind has a cap; of what is left, as many are taken as the budget has room for, and the first
that does not fit ends the pack. Only an item that is the first and too large by itself is cut, and marked.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from transforms.tasks import Piece
from transforms.tasks._tables import pieces

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

VERSION = 1
"""Goes up by one whenever the same candidates would make another pack."""
KINDS = ("fact", "reflection", "episode")
FACT, REFLECTION, EPISODE = range(len(KINDS))
CUT = " [cut]"
"""Ends an item that was cut."""

_TITLES = ("Facts:", "Reflections:", "Conversations, in order of time:")
_ALONE = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff"  # Thai, Lao, Burmese, Khmer, kana, Han
_WORD = rf"[{_ALONE}]|[^\s{_ALONE}]+"


@dataclass(frozen=True)
class Limits:
    """What a pack may hold.

    Attributes:
        tokens: Tokens in all, as `transforms.asking.estimate` counts them: 3 bytes each.
        words: Words in all; None sets no limit. A letter of a script without spaces is a word.
        facts: Facts at most.
        reflections: Reflections at most.
        episodes: Interactions at most.
    """

    tokens: int
    words: int | None = None
    facts: int = 60
    reflections: int = 20
    episodes: int = 80

    @property
    def caps(self) -> tuple[int, int, int]:
        """The caps in order of `KINDS`."""
        return self.facts, self.reflections, self.episodes


@dataclass(frozen=True)
class Memory:
    """The items of some cases that packs are made of: facts, reflections, then episodes, in order of their tables.

    Attributes:
        kind: (items,) index into `KINDS`.
        lines: (items,) what a reader sees of each.
        text: (items,) number of its text: equal texts, case and white space at the ends aside, have equal numbers.
        starts: (3,) number of the first item of each kind.
        links: (pairs, 2) episode and fact or reflection that rests on it, as numbers of items, sorted.
    """

    kind: Ints
    lines: pa.LargeStringArray
    text: Ints
    starts: tuple[int, int, int]
    links: Ints


@dataclass(frozen=True)
class Candidates:
    """What may go into packs, in the order in which it shall.

    Attributes:
        question: (candidates,) number of the question, ascending.
        item: (candidates,) number of the item; once a question.
    """

    question: Ints
    item: Ints


@dataclass(frozen=True)
class Packs:
    """The packs of some questions.

    Attributes:
        texts: (questions,) the packs.
        question: (taken,) number of the question, ascending.
        item: (taken,) item, in order of candidates.
    """

    texts: tuple[str, ...]
    question: Ints
    item: Ints


def key_of(table: pa.Table, column: str = "interaction_id") -> pa.Array:
    """Return case and id of each row as one string, by which rows of several cases can be looked up."""
    return pc.binary_join_element_wise(_flat(table["case_id"]), _flat(table[column]), "\x00")


def listed_keys(table: pa.Table, column: str) -> tuple[Ints, pa.Array]:
    """Return for each id in a column of lists the row that it stands in, and its key as `key_of` makes it."""
    lists = _flat(table[column])
    owner = pc.list_parent_indices(lists)
    keys = pc.binary_join_element_wise(_flat(table["case_id"]).take(owner), pc.list_flatten(lists), "\x00")
    return np.asarray(owner, dtype=np.int64), keys


def _flat(column: pa.ChunkedArray) -> pa.Array:
    plain = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    return pa.concat_arrays([pa.array([], plain), *column.cast(plain).chunks])


def memory(interactions: pa.Table, facts: pa.Table, reflections: pa.Table) -> Memory:
    """Return the items of some interactions, and of the facts and reflections that rest on any of them.

    Args:
        interactions: Rows of table `interactions`, in its order.
        facts: Rows of table `facts` of the same cases.
        reflections: Rows of table `reflections` likewise.
    """
    keys = key_of(interactions)
    texts, links = [], []
    start = 0
    for table in (facts, reflections):
        owner, episode = _rests(table, keys)
        kept, number = np.unique(owner, return_inverse=True)
        rows = table["text"].cast(pa.large_string()).take(pa.array(kept))
        texts.append(pc.replace_substring_regex(rows, r"\s+", " "))
        links.append(np.stack([episode, number.reshape(-1) + start], axis=1))
        start += len(kept)
    starts = (0, len(texts[0]), start)
    told = [f"[{one.values['when']}] {one.text}" for one in _in_order(interactions)]
    lines = [
        *(
            pc.binary_join_element_wise(pa.scalar("-", pa.large_string()), one, pa.scalar(" ", pa.large_string()))
            for one in texts
        ),
        told,
    ]
    raw = [*texts, pa.array(told, pa.large_string())]
    pairs = np.concatenate(links) + np.array([start, 0])
    return Memory(
        np.repeat(np.arange(3), [len(one) for one in raw]),
        _whole([pa.array(one, pa.large_string()) if isinstance(one, list) else one for one in lines]),
        _codes(pc.utf8_lower(pc.utf8_trim_whitespace(_whole(raw)))),
        starts,
        pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))],
    )


def _in_order(interactions: pa.Table) -> list[Piece]:
    found = {row: one for case in pieces(interactions) for one in case.pieces for row in one.rows}
    return [found[row] for row in range(interactions.num_rows)]


def _rests(table: pa.Table, keys: pa.Array) -> tuple[Ints, Ints]:
    """Return rows of a table and of the interactions that they rest on, pair by pair."""
    owner, listed = listed_keys(table, "interaction_ids")
    row = np.asarray(pc.index_in(listed, value_set=keys).fill_null(-1), dtype=np.int64)
    return owner[row >= 0], row[row >= 0]


def _whole(arrays: Sequence[pa.Array | pa.ChunkedArray]) -> pa.LargeStringArray:
    return pa.chunked_array([c for a in arrays for c in (a.chunks if isinstance(a, pa.ChunkedArray) else [a])],
                            pa.large_string()).combine_chunks()  # fmt: skip


def _codes(texts: pa.Array | pa.ChunkedArray) -> Ints:
    return np.asarray(_whole([texts]).dictionary_encode().indices, dtype=np.int64)


def by_rank(question: Ints, row: Ints, rank: Ints, held: Memory, *, derived: bool) -> Candidates:
    """Return candidates from a ranking: each interaction after the facts and reflections that rest on it.

    Args:
        question: (rows,) number of the question.
        row: (rows,) row of the interaction in the table that `held` was made of.
        rank: (rows,) its rank.
        held: The items.
        derived: Whether facts and reflections take part.
    """
    episode = row + held.starts[EPISODE]
    if derived and len(held.links):
        low = np.searchsorted(held.links[:, 0], episode, side="left")
        count = np.searchsorted(held.links[:, 0], episode, side="right") - low
        place = np.repeat(low - np.cumsum(count) + count, count) + np.arange(count.sum())
        question = np.concatenate([question, np.repeat(question, count)])
        rank = np.concatenate([rank, np.repeat(rank, count)])
        episode = np.concatenate([episode, held.links[place, 1]])
    return _ordered(question, episode, rank, held)


def by_score(question: Ints, item: Ints, score: npt.NDArray[np.float64], held: Memory) -> Candidates:
    """Return candidates by score, the highest first; equal ones in order of kind and item.

    Args:
        question: (rows,) number of the question.
        item: (rows,) number of the item.
        score: (rows,) its score.
        held: The items.
    """
    return _ordered(question, item, -score, held)


def _ordered(question: Ints, item: Ints, order: npt.NDArray[np.generic], held: Memory) -> Candidates:
    """Sort candidates and keep each item, and each text, once a question."""
    place = np.lexsort((item, held.kind[item], order, question))
    question, item = question[place], item[place]
    key = np.stack([question, held.text[item]], axis=1)
    _, first = np.unique(key, axis=0, return_index=True)
    kept = np.sort(first)
    return Candidates(question[kept], item[kept])


def choose(question: Ints, kind: Ints, sizes: Sequence[Ints], budgets: Sequence[int], caps: Sequence[int]) -> Bools:
    """Tell which candidates go into the packs.

    Args:
        question: (candidates,) number of the question, ascending.
        kind: (candidates,) index into `KINDS`.
        sizes: By measure, (candidates,) size.
        budgets: By measure, what a question's candidates may have in all.
        caps: By kind, how many a question may have.

    Returns:
        (candidates,) whether it is taken: those within the caps, up to the first that is over a budget. Nothing of a
        question is taken where its first candidate is.
    """
    order = np.lexsort((np.arange(len(question)), kind, question))
    place = np.empty(len(question), np.int64)
    place[order] = _within(question[order] * len(KINDS) + kind[order])
    allowed: Bools = place < np.asarray(caps)[kind]
    first = _first(question)
    taken = allowed.copy()
    for size, budget in zip(sizes, budgets, strict=True):
        total = np.cumsum(np.where(allowed, size, 0))
        before = (total - np.where(allowed, size, 0))[first]
        taken &= total - before <= budget
    over = np.cumsum(allowed & ~taken)
    return taken & (over - (over - (allowed & ~taken))[first] == 0)


def _first(group: Ints) -> Ints:
    """Return for each row the place of the first row of its group; groups lie together."""
    starts = np.flatnonzero(np.diff(group, prepend=group[:1] - 1))
    found: Ints = np.repeat(starts, np.diff(starts, append=len(group)))
    return found


def _within(group: Ints) -> Ints:
    found: Ints = np.arange(len(group)) - _first(group)
    return found


def pack(candidates: Candidates, held: Memory, questions: int, limits: Limits) -> Packs:
    """Make the packs of some questions.

    Facts and reflections stand in order of candidates, episodes in order of time. A heading stands before each kind and
    counts for nothing.

    Args:
        candidates: What may go into them.
        held: The items.
        questions: Number of questions; one without candidates has an empty pack.
        limits: The budget.
    """
    kind = held.kind[candidates.item]
    used, place = np.unique(candidates.item, return_inverse=True)
    lines = held.lines.take(pa.array(used))
    sizes, budgets = [_tokens(lines)[place]], [limits.tokens]
    if limits.words is not None:
        sizes.append(_words(lines)[place])
        budgets.append(limits.words)
    taken = choose(candidates.question, kind, sizes, budgets, limits.caps)
    some = np.zeros(questions, bool)
    some[candidates.question[taken]] = True
    capped = np.asarray(limits.caps)[kind] > 0
    alone = np.zeros(len(taken), bool)  # the first of a question that would have nothing else
    alone[np.unique(np.where(capped, candidates.question, -1), return_index=True)[1]] = True
    alone &= capped & ~some[candidates.question]
    shown = np.flatnonzero(taken | alone)
    at = np.searchsorted(used, candidates.item[shown])
    told = dict(zip(np.unique(at).tolist(), lines.take(pa.array(np.unique(at))).to_pylist(), strict=True))
    parts: list[_Parts] = [([], [], []) for _ in range(questions)]
    for row, line in zip(shown.tolist(), at.tolist(), strict=True):
        text = cut(told[line], limits) if alone[row] else told[line]
        facts, reflections, episodes = parts[int(candidates.question[row])]
        if kind[row] == EPISODE:
            episodes.append((int(candidates.item[row]), text))
        else:
            (facts if kind[row] == FACT else reflections).append(text)
    return Packs(tuple(map(_text, parts)), candidates.question[shown], candidates.item[shown])


_Parts = tuple[list[str], list[str], list[tuple[int, str]]]


def _text(parts: _Parts) -> str:
    facts, reflections, episodes = parts
    told = (facts, reflections, [text for _, text in sorted(episodes)])
    return "\n\n".join("\n".join([title, *lines]) for title, lines in zip(_TITLES, told, strict=True) if lines)


def cut(text: str, limits: Limits) -> str:
    """Cut a text to a budget, at the end of a word where there is one, and mark it."""
    end = len(text)
    if limits.words is not None:
        every = [match.end() for match in re.finditer(_WORD, text)]
        if len(every) > limits.words:
            end = every[limits.words - 1]
    head = text[:end].encode("utf-8", "replace")[: max(0, 3 * limits.tokens - len(CUT))].decode("utf-8", "ignore")
    if head == text:
        return text
    if head != text[:end] and " " in head[len(head) // 2 :]:
        head = head[: head.rindex(" ")]
    return head.rstrip() + CUT


def _tokens(lines: pa.Array) -> Ints:
    found: Ints = (np.asarray(pc.binary_length(lines), dtype=np.int64) + 3) // 3  # with the line's end
    return found


def _words(lines: pa.Array) -> Ints:
    return np.asarray(pc.count_substring_regex(lines, _WORD), dtype=np.int64)
