"""Questions against postings: their tokens as term ids, the rows they name, and the sum over those rows' entries."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from indexers.postings import Int32s, Postings, Queries
from indexers.scores import Floats, Ints, Scores
from transforms.stems import stemmed
from transforms.tokens import Tokens, tokenize

_CHUNK = 1 << 16
"""Entries looked at in one go; bounds the memory of `gather`."""


def lookup(vocabulary: pa.Table, tokens: pa.Array) -> Int32s:
    """Return the term id of each token, or -1 where the vocabulary lacks it."""
    wanted = tokens.dictionary_encode()
    # The few tokens are hashed and the many terms looked up: the other way round costs a hash table of all terms.
    found = pc.index_in(vocabulary["term"], value_set=wanted.dictionary.cast(pa.string())).combine_chunks()
    terms = np.flatnonzero(found.is_valid().to_numpy(zero_copy_only=False))
    ids = np.full(len(wanted.dictionary), -1, dtype=np.int32)
    ids[found.drop_null().to_numpy()] = terms
    result: Int32s = ids[wanted.indices.to_numpy()]
    return result


def numbered(vocabulary: pa.Table, tokens: Tokens) -> Tokens:
    """Number tokens by a vocabulary; terms that it lacks follow its own, in order of first appearance."""
    ids = lookup(vocabulary, tokens.terms)
    new = np.flatnonzero(ids < 0)
    ids[new] = vocabulary.num_rows + np.arange(len(new), dtype=np.int32)
    added = tokens.terms.take(pa.array(new)).cast(pa.string())
    return Tokens(ids[tokens.ids], tokens.offsets, pa.concat_arrays([*vocabulary["term"].chunks, added]))


def questions_to_queries(
    texts: pa.ChunkedArray | pa.Array, case: Ints, vocabulary: pa.Table, stems: str | None = None
) -> Queries:
    """Tokenise questions.

    Args:
        texts: (questions,) their texts.
        case: (questions,) number of each one's case in the postings.
        vocabulary: Terms of the shard.
        stems: Language in which words become stems; None leaves them as they are.
    """
    tokens = tokenize(texts) if stems is None else stemmed(tokenize(texts), stems)
    return Queries(np.asarray(case, dtype=np.int64), tokens.offsets, lookup(vocabulary, tokens.terms)[tokens.ids])


def token_rows(postings: Postings, queries: Queries) -> Ints:
    """Return the row of each query token in the postings of its question's case, or -1 where it has none."""
    case = np.repeat(queries.case, np.diff(queries.offsets))
    low, end = postings.term_offsets[case], postings.term_offsets[case + 1]
    if not len(postings.terms):
        return np.full(len(case), -1, dtype=np.int64)
    # Binary search of every token at once, each between the first and last row of its own case.
    high = end.copy()
    for _ in range(int((end - low).max(initial=0)).bit_length()):
        middle = (low + high) // 2
        right = (low < high) & (postings.terms.take(middle, mode="clip") < queries.terms)
        low, high = np.where(right, middle + 1, low), np.where(right, high, middle)
    found = (low < end) & (postings.terms.take(low, mode="clip") == queries.terms)
    return np.where(found, low, -1)


def distinct(queries: Queries) -> Queries:
    """Return the questions with each token once, in order of first appearance."""
    question = np.repeat(np.arange(len(queries.case)), np.diff(queries.offsets))
    width = int(queries.terms.max(initial=0)) + 2
    _, first = np.unique(question * width + queries.terms + 1, return_index=True)
    keep = np.zeros(len(question), dtype=bool)
    keep[first] = True
    return keep_tokens(queries, keep)


def keep_tokens(queries: Queries, keep: npt.NDArray[np.bool_]) -> Queries:
    """Return the questions with only the tokens marked in `keep`."""
    kept = np.append(0, np.cumsum(keep))
    return Queries(queries.case, kept[queries.offsets], queries.terms[keep])


def gather(
    postings: Postings,
    queries: Queries,
    rows: Ints,
    token_weights: Floats,
    entry_weights: Callable[[Ints, Ints], Floats] | None = None,
) -> Scores:
    """Sum weights over the entries of each question's rows.

    Args:
        postings: Postings of one field.
        queries: Questions.
        rows: (tokens,) row of each token, -1 for none, as `token_rows` gives.
        token_weights: (tokens,) factor of each token; that of a token without a row is not looked at.
        entry_weights: Gives the factor of each entry, from the entries' numbers and from the numbers of their
            documents among those of all cases; 1 where it is None.

    Returns:
        Scores of every document of each question's case. Terms are added in the order of the question's tokens.
    """
    offsets = np.append(0, np.cumsum(np.diff(postings.document_offsets)[queries.case]))
    values = np.zeros(offsets[-1])
    known = np.flatnonzero(rows >= 0)
    row, weight = rows[known], token_weights[known]
    question = np.searchsorted(queries.offsets, known, side="right") - 1
    start = postings.indptr[row]
    size = postings.indptr[row + 1] - start
    total = np.append(0, np.cumsum(size))
    # Chunks end where a question does, so that a sum is the same whatever else is asked in the same call.
    ends = np.flatnonzero(np.diff(question, append=-1)) + 1
    first = 0
    while first < len(known):
        fitting = int(np.searchsorted(total, total[first] + _CHUNK, side="right")) - 1
        place_of_end = max(int(np.searchsorted(ends, fitting, side="right")) - 1, int(np.searchsorted(ends, first + 1)))
        last = int(ends[place_of_end])
        part = slice(first, last)
        entry = np.arange(total[first], total[last]) + np.repeat(start[part] - total[part], size[part])
        document = postings.documents[entry]
        low, high = offsets[question[first]], offsets[question[last - 1] + 1]
        place = document + np.repeat(offsets[question[part]] - low, size[part])
        gain = np.repeat(weight[part], size[part])
        if entry_weights is not None:
            home = postings.document_offsets[queries.case[question[part]]]
            gain *= entry_weights(entry, document + np.repeat(home, size[part]))
        values[low:high] += np.bincount(place, weights=gain, minlength=high - low)
        first = last
    return Scores(offsets, values)
