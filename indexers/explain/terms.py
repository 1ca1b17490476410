"""What the words of a question add to a text score: BM25, and overlap plain or weighted by TF-IDF."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from indexers.csr import Ints
from indexers.explain import Explanation, Part
from indexers.postings import Int32s, Postings, Queries
from indexers.queries import lookup, token_rows
from indexers.scores import Floats, Scores
from transforms.stems import stem_terms
from transforms.tokens import tokenize_one

if TYPE_CHECKING:
    from indexers.batch import Batch

_CELLS = 1_000_000
_WORDS, _LETTERS = 20, 48
"""Words that a remark lists, and letters of each."""


@dataclass(frozen=True)
class Words:
    """The words of one question.

    Attributes:
        texts: Those that are compared with texts, in order.
        terms: Term id of each, -1 where the shard's vocabulary lacks it.
        stops: Those that are not: stop words.
    """

    texts: tuple[str, ...]
    terms: Int32s
    stops: tuple[str, ...] = ()

    @cached_property
    def first(self) -> dict[int, str]:
        """The first word of each term id."""
        return dict(zip(reversed(self.terms.tolist()), reversed(self.texts), strict=True))


def words_of(text: str, vocabulary: pa.Table, stems: str | None = None) -> Words:
    """Return the words of a question.

    Args:
        text: The question.
        vocabulary: Terms of the shard.
        stems: Language in which words become stems; None leaves them as they are.
    """
    texts = pa.array(tokenize_one(text), pa.string())
    terms = texts if stems is None else stem_terms(texts, stems)
    kept = terms.is_valid()
    stops = texts.filter(terms.is_null())
    return Words(
        tuple(texts.filter(kept).to_pylist()), lookup(vocabulary, terms.filter(kept)), tuple(stops.to_pylist())
    )


def asked(batch: Batch, question: int, unit: str, name: str) -> Words:
    """Return the words of a question of a batch, as `Batch.queries` has their terms."""
    text = batch.questions["question"][question].as_py()
    return words_of(text, batch.shard.vocabulary(unit), batch.shard.language if name in ("stem", "user") else None)


def explain_terms(
    method: str,
    scorer: Callable[[Queries], Scores],
    postings: Postings,
    queries: Queries,
    question: int,
    document: int,
    words: Words,
    *,
    raw: Postings | None = None,
    noun: str = "file",
) -> Explanation:
    """Take a text score apart by the words of the question.

    Every word is asked alone, so the values are those that `scorer` itself adds up, word after word.

    Args:
        method: How the score is made, in a few words.
        scorer: Scores queries over `postings`; the score of a question is the sum of those of its words.
        postings: Postings of the field that is searched.
        queries: Questions as the scorer gets them.
        question: One of them.
        document: A document of its case.
        words: All words of that question; those that `queries` lacks were left out on purpose.
        raw: Postings of the interaction's own text, where `postings` is of the whole note: tells how often a word is in
            the interaction, and how often in what the extractor said of it.
        noun: What a document is.
    """
    terms = queries.terms[queries.offsets[question] : queries.offsets[question + 1]]
    case = int(queries.case[question])
    distinct, times = np.unique(terms[terms >= 0], return_counts=True)
    counts, spread = _counts(postings, case, distinct, document)
    found = np.flatnonzero(counts)
    own = None if raw is None else _counts(raw, case, distinct, document)[0]
    files = int(postings.document_offsets[case + 1] - postings.document_offsets[case])
    length = int(postings.lengths[postings.document_offsets[case] + document])
    values = _values(scorer, case, distinct[found], document, max(1, _CELLS // files))
    by_term = dict(zip(distinct[found].tolist(), values.tolist(), strict=True))
    # In the scorer's own order, so that the sum is the same to the bit.
    score = float(sum(by_term.get(term, 0.0) for term in terms.tolist()))
    parts = []
    for number, value in zip(found.tolist(), values.tolist(), strict=True):
        facts: list[tuple[str, float | int | str]] = [("count", int(counts[number]))]
        if own is not None:
            facts += [("in the interaction", int(own[number])), ("in its note", int(counts[number] - own[number]))]
        facts += [(f"{noun}s with it", int(spread[number])), (f"{noun}s", files), (f"words in this {noun}", length)]
        if times[number] > 1:
            facts.append(("times asked", int(times[number])))
        word = words.first[int(distinct[number])]
        parts.append(Part("term", word, value * int(times[number]), (word,), facts=tuple(facts)))
    parts.sort(key=lambda part: (-part.value, part.label))
    there = dict(zip(distinct.tolist(), zip(counts.tolist(), spread.tolist(), strict=True), strict=True))
    return Explanation(method, score, tuple(parts), _remarks(words, terms, there, noun))


def _values(scorer: Callable[[Queries], Scores], case: int, terms: Int32s, document: int, most: int) -> Floats:
    """Return what each of some terms alone gives a document, `most` of them scored at a time."""
    made = [np.zeros(0)]
    for low in range(0, len(terms), most):
        some = terms[low : low + most]
        scored = scorer(Queries(np.full(len(some), case), np.arange(len(some) + 1), some))
        made.append(scored.values[scored.offsets[:-1] + document])
    return np.concatenate(made)


def _remarks(words: Words, terms: Int32s, there: Mapping[int, tuple[int, int]], noun: str) -> tuple[str, ...]:
    """Say which words had no part in the score, and why; `there` has each term's count and its number of documents."""
    elsewhere, nowhere = [], []
    for text, term in zip(words.texts, words.terms.tolist(), strict=True):
        count, spread = there.get(term, (0, 0))
        if term < 0 or (term in there and not spread):
            nowhere.append(text)
        elif spread and not count:
            elsewhere.append(f"{words.first[term]} ({spread})")
    told = [] if any(count for count, _ in there.values()) else [f"no word that counts is in this {noun}"]
    if not words.texts and not words.stops:
        told = ["the question has no words"]
    for says, which in ((f"only in other {noun}s (how many)", elsewhere), (f"in no {noun} of the case", nowhere)):
        if which:
            told.append(f"{says}: {_listed(which)}")
    return (*told, *left_out(words, terms, noun))


def left_out(words: Words, terms: Int32s, noun: str = "file") -> tuple[str, ...]:
    """Say which words of a question are not asked for.

    Args:
        words: All its words.
        terms: Terms of those that are.
        noun: What a document is.
    """
    kept = set(terms.tolist())
    common = [
        text for text, term in zip(words.texts, words.terms.tolist(), strict=True) if term >= 0 and term not in kept
    ]
    told = ((f"left out, being in too many {noun}s", common), ("left out, being stop words", words.stops))
    return tuple(f"{says}: {_listed(which)}" for says, which in told if which)


def _listed(words: Iterable[str]) -> str:
    once = list(dict.fromkeys(words))
    more = f", and {len(once) - _WORDS:,} more" if len(once) > _WORDS else ""
    return ", ".join(word if len(word) <= _LETTERS else f"{word[:_LETTERS]}..." for word in once[:_WORDS]) + more


def _counts(postings: Postings, case: int, terms: Int32s, document: int) -> tuple[Ints, Ints]:
    """Return how often each term is in a document of a case, and in how many of its documents it is."""
    count, spread = np.zeros(len(terms), np.int64), np.zeros(len(terms), np.int64)
    rows = token_rows(postings, Queries(np.full(len(terms), case), np.arange(len(terms) + 1), terms))
    for number, row in enumerate(rows.tolist()):
        if row >= 0:
            low, high = int(postings.indptr[row]), int(postings.indptr[row + 1])
            place = low + int(np.searchsorted(postings.documents[low:high], document))
            spread[number] = high - low
            if place < high and postings.documents[place] == document:
                count[number] = postings.counts[place]
    return count, spread
