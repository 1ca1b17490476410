"""Content overlap, plain and TF-IDF weighted, and the rule that drops common query tokens."""

from __future__ import annotations

import numpy as np

from indexers.postings import Postings, Queries
from indexers.queries import distinct, gather, keep_tokens, token_rows
from indexers.scores import Floats, Ints, Scores


def drop_common(queries: Queries, postings: Postings, share: float = 0.15) -> Queries:
    """Drop query tokens that occur in more than `share` of the documents of the question's case.

    The stop-word rule of TAGGRAPH (stopwords). Tokens that fewer than two documents hold stay, so that a case of a
    few documents, where every token that occurs passes the share, can still be asked.
    """
    rows = token_rows(postings, queries)
    case = np.repeat(queries.case, np.diff(queries.offsets))
    documents = np.diff(postings.document_offsets)[case]
    frequency = _document_frequency(postings, rows)
    return keep_tokens(queries, (frequency < 2) | (frequency <= share * documents))


def overlap_scores(postings: Postings, queries: Queries) -> Scores:
    """Count the distinct query tokens that each document holds."""
    once = distinct(queries)
    rows = token_rows(postings, once)
    return gather(postings, once, rows, np.ones(len(rows)))


def tfidf_scores(postings: Postings, queries: Queries) -> Scores:
    """Weigh the overlap of query and document by TF-IDF, with the length of the document taken out.

    ``score(q, d) = sum over distinct tokens t of q in d of (1 + ln tf(t, d)) * idf(t)**2 / sqrt(length(d))`` with
    ``idf(t) = ln((1 + N) / (1 + df(t))) + 1`` over the N documents of the case: the product of query and document
    vectors, where the square root of the document's length in tokens stands for the norm of its vector.
    """
    once = distinct(queries)
    rows = token_rows(postings, once)
    case = np.repeat(once.case, np.diff(once.offsets))
    documents = np.diff(postings.document_offsets)[case]
    idf = np.log((1 + documents) / (1 + _document_frequency(postings, rows))) + 1

    def weigh(entry: Ints, document: Ints) -> Floats:
        gain: Floats = (1 + np.log(postings.counts[entry])) / np.sqrt(postings.lengths[document])
        return gain

    return gather(postings, once, rows, idf * idf, weigh)


def _document_frequency(postings: Postings, rows: Ints) -> Ints:
    known = rows >= 0
    safe = np.where(known, rows, 0)
    if not known.any():
        return np.zeros(len(rows), dtype=np.int64)
    return np.where(known, postings.indptr[safe + 1] - postings.indptr[safe], 0)
