"""BM25 in the form of rank-bm25's BM25Okapi, for all questions of all cases in one pass."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from indexers.postings import Postings, Queries
from indexers.queries import gather, token_rows
from indexers.scores import Floats, Ints, Scores


@dataclass(frozen=True)
class Bm25Weights:
    """What does not depend on a question.

    Attributes:
        idf: (rows,) inverse document frequency of each row of the postings.
        norm: (documents of all cases,) ``k1 * (1 - b + b * length / mean length)``.
        k1: Saturation of the term frequency.
    """

    idf: Floats
    norm: Floats
    k1: float


_ZERO_IDF = 1e-12
"""Stands in for an idf of 0 (a term in exactly half of the documents), so that what holds the term is retrieved."""


def bm25_weights(
    postings: Postings, k1: float = 1.5, b: float = 0.75, epsilon: float = 0.25, idf_form: str = "okapi"
) -> Bm25Weights:
    """Return the weights of each case's terms and documents, with statistics of that case alone.

    ``idf = ln(N - df + 0.5) - ln(df + 0.5)``; where that is negative, `epsilon` times the mean idf of all terms of
    the case (negative ones included), as in rank-bm25 0.2.2 (Trotman, Puurula, Burgess, ADCS 2014). An idf of
    exactly 0 becomes 1e-12. With `idf_form` ``lucene`` it is ``ln(1 + (N - df + 0.5) / (df + 0.5))``, never
    negative; with ``fts5`` it is 1e-6 where it is not above 0, as in SQLite.
    """
    documents = np.diff(postings.document_offsets)
    rows = np.diff(postings.term_offsets)
    case = np.repeat(np.arange(postings.cases), rows)
    df = np.diff(postings.indptr)
    if idf_form == "lucene":
        return Bm25Weights(np.log1p((documents[case] - df + 0.5) / (df + 0.5)), _norm(postings, k1, b), k1)
    idf = np.log(documents[case] - df + 0.5) - np.log(df + 0.5)
    if idf_form == "fts5":
        return Bm25Weights(np.where(idf > 0, idf, 1e-6), _norm(postings, k1, b), k1)
    # Summed by document frequency: the order of the rows is that of the vocabulary, which other cases have a part in.
    slots = documents + 1
    first = np.cumsum(slots) - slots
    terms = np.bincount(first[case] + df, minlength=int(slots.sum()))
    owner = np.repeat(np.arange(postings.cases), slots)
    level = np.arange(len(terms)) - first[owner]
    total = terms * (np.log(documents[owner] - level + 0.5) - np.log(level + 0.5))
    mean = np.bincount(owner, weights=total, minlength=postings.cases) / np.maximum(rows, 1)
    idf = np.where(idf < 0, epsilon * mean[case], idf)
    idf[idf == 0] = _ZERO_IDF
    return Bm25Weights(idf, _norm(postings, k1, b), k1)


def _norm(postings: Postings, k1: float, b: float) -> Floats:
    documents = np.diff(postings.document_offsets)
    home = np.repeat(np.arange(postings.cases), documents)
    total = np.bincount(home, weights=postings.lengths, minlength=postings.cases)
    # A case without a token has no row that could be scored; any length but 0 serves.
    average = np.where(total > 0, total, 1.0) / np.maximum(documents, 1)
    norm: Floats = k1 * (1 - b + b * postings.lengths / average[home])
    return norm


def bm25_scores(
    postings: Postings,
    queries: Queries,
    k1: float = 1.5,
    b: float = 0.75,
    epsilon: float = 0.25,
    *,
    weights: Bm25Weights | None = None,
) -> Scores:
    """Score every document of each question's case.

    ``sum over query tokens of idf * tf * (k1 + 1) / (tf + norm)``; a token that the question repeats counts each
    time, one that the case lacks counts nothing. Equal to rank-bm25 within rounding.

    Args:
        postings: Postings of one field.
        queries: Questions and their tokens.
        k1: Saturation of the term frequency.
        b: Share of the length normalisation.
        epsilon: Share of the mean idf that replaces a negative one.
        weights: What `bm25_weights` gave for these postings, to save doing it again; the three numbers above are
            then not looked at.
    """
    known = weights or bm25_weights(postings, k1, b, epsilon)

    def saturation(entry: Ints, document: Ints) -> Floats:
        count = postings.counts[entry]
        gain: Floats = count * (known.k1 + 1) / (count + known.norm[document])
        return gain

    rows = token_rows(postings, queries)
    idf = known.idf[rows] if len(known.idf) else np.zeros(len(rows))
    return gather(postings, queries, rows, idf, saturation)
