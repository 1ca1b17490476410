"""Questions and documents compared by the vectors of their words: soft matches, centroids; and by the words they share.

A word weighs its idf, ``ln(1 + (N - df + 0.5) / (df + 0.5))`` over the documents of the question's case, so that a word
that no document holds weighs most.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import scipy

from indexers.csr import Bools
from indexers.embedders import Rows
from indexers.postings import Postings, Queries
from indexers.queries import gather, keep_tokens, token_rows
from indexers.scores import Floats, Ints, Scores

_SCALE = 2.0**26
_CELLS = 4_000_000


def row_idf(postings: Postings) -> Floats:
    """Return (rows,) idf of each row of the postings."""
    case = np.repeat(np.arange(postings.cases), np.diff(postings.term_offsets))
    documents = np.diff(postings.document_offsets)[case]
    df = np.diff(postings.indptr)
    idf: Floats = np.log1p((documents - df + 0.5) / (df + 0.5))
    return idf


def query_idf(postings: Postings, queries: Queries) -> Floats:
    """Return (tokens,) idf of each question's token; of one that the case lacks, that of df 0."""
    rows = token_rows(postings, queries)
    documents = np.repeat(np.diff(postings.document_offsets)[queries.case], np.diff(queries.offsets))
    lacking = np.log1p((documents + 0.5) / 0.5)
    if not len(postings.terms):
        return lacking
    return np.where(rows >= 0, row_idf(postings)[rows], lacking)


def coverage(postings: Postings, queries: Queries, kept: Bools) -> Scores:
    """Score documents by the share of the question's idf, over its distinct words, that they hold.

    Args:
        postings: Postings of stems.
        queries: Questions.
        kept: (tokens of `queries`,) whether a token counts; repeated ones do not. (Their terms do not tell them apart:
            all that no case of the shard holds have the same.)
    """
    once = keep_tokens(queries, kept)
    idf = query_idf(postings, once)
    question = np.repeat(np.arange(len(once.case)), np.diff(once.offsets))
    total = np.bincount(question, weights=idf, minlength=len(once.case))
    found = gather(postings, once, token_rows(postings, once), idf)
    size = np.diff(found.offsets)
    return Scores(found.offsets, found.values / np.repeat(np.where(total > 0, total, 1), size))


def soft_matches(postings: Postings, queries: Queries, vectors: Rows, words: Ints, kept: Bools) -> Scores:
    """Score documents by the best cosine of each of the question's words with one of theirs, weighted by idf.

    ``sum over distinct words w of q of idf(w) / sum of idf * max over words u of d of max(0, cos(w, u))``: late
    interaction (ColBERT, Khattab and Zaharia, SIGIR 2020) over word vectors in place of token vectors.

    Args:
        postings: Postings of words.
        queries: Questions.
        vectors: (words, dimensions) vectors of unit length; term t of the postings has row t.
        words: (tokens of `queries`,) row of each token's word in `vectors`, -1 for none.
        kept: (tokens,) whether a token counts; stop words and repeated ones do not.

    Returns:
        Scores in [0, 1]. A document without a word near any of the question's is not retrieved.
    """
    exact = np.rint(vectors.astype(np.float64) * _SCALE) / _SCALE
    idf = query_idf(postings, queries)
    size = np.diff(postings.document_offsets)[queries.case]
    offsets = np.concatenate([[0], np.cumsum(size)]).astype(np.int64)
    values = np.zeros(int(offsets[-1]))
    order = np.argsort(queries.case, kind="stable")
    bounds = np.searchsorted(queries.case[order], np.arange(postings.cases + 1))
    for case in np.unique(queries.case).tolist():
        own = order[bounds[case] : bounds[case + 1]]
        first, last = postings.term_offsets[case], postings.term_offsets[case + 1]
        start, stop = postings.indptr[first], postings.indptr[last]
        row = np.repeat(np.arange(last - first), np.diff(postings.indptr[first : last + 1]))
        document = postings.documents[start:stop]
        by_document = np.argsort(document, kind="stable")
        row, document = row[by_document], document[by_document]
        heads = np.flatnonzero(np.diff(document, prepend=-1))
        tokens = [np.flatnonzero(kept[a:b] & (words[a:b] >= 0)) + a for a, b in _spans(queries, own)]
        asked = np.unique(words[np.concatenate(tokens)]) if tokens else np.zeros(0, np.int64)
        if not len(asked) or not len(row):
            continue
        table = exact[postings.terms[first:last]].T
        best = np.zeros((len(asked), int(size[own[0]])))
        step = max(1, _CELLS // max(len(row), 1))
        for low in range(0, len(asked), step):
            near = np.maximum(exact[asked[low : low + step]] @ table, 0.0)
            best[low : low + step, document[heads]] = np.maximum.reduceat(near[:, row], heads, axis=1)
        for question, mine in zip(own.tolist(), tokens, strict=True):
            if len(mine):
                weight = idf[mine] / idf[mine].sum()
                place = np.searchsorted(asked, words[mine])
                values[offsets[question] : offsets[question + 1]] = (weight[:, None] * best[place]).sum(axis=0)
    return Scores(offsets, values)


def _spans(queries: Queries, questions: Ints) -> list[tuple[int, int]]:
    spans = list(pairwise(queries.offsets.tolist()))
    return [spans[question] for question in questions.tolist()]


def centroids(postings: Postings, vectors: Rows) -> Rows:
    """Return (documents of all cases, dimensions): each one's words' vectors by count and idf, of unit length."""
    case = np.repeat(np.arange(postings.cases), np.diff(postings.term_offsets))
    sizes = np.diff(postings.indptr)
    home = np.repeat(postings.document_offsets[case], sizes) if len(case) else np.zeros(0, np.int64)
    weight = postings.counts * np.repeat(row_idf(postings), sizes)
    term = np.repeat(postings.terms, sizes)
    shape = (len(postings.lengths), len(vectors))
    return _unit(scipy.sparse.coo_array((weight, (home + postings.documents, term)), shape=shape).tocsr(), vectors)


def query_centroids(postings: Postings, queries: Queries, vectors: Rows, words: Ints) -> Rows:
    """Return (questions, dimensions): the same of questions; `words` as in `soft_matches`."""
    idf = query_idf(postings, queries)
    question = np.repeat(np.arange(len(queries.case)), np.diff(queries.offsets))
    known = words >= 0
    shape = (len(queries.case), len(vectors))
    weights = scipy.sparse.coo_array((idf[known], (question[known], words[known])), shape=shape).tocsr()
    return _unit(weights, vectors)


def _unit(weights: scipy.sparse.csr_array, vectors: Rows) -> Rows:
    """Return weighted sums of unit length; sums are taken row by row, in order of the columns."""
    weights.sort_indices()
    step = max(1, _CELLS // max(vectors.shape[1], 1))
    out = np.zeros((weights.shape[0], vectors.shape[1]), np.float32)
    wide = vectors.astype(np.float64)
    for low in range(0, weights.shape[0], step):
        total = weights[low : low + step] @ wide
        length = np.sqrt((total * total).sum(axis=1, keepdims=True))
        out[low : low + step] = total / np.where(length > 0, length, 1)
    return out
