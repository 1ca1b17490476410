"""Postings with other terms or other documents: stems in place of words, sessions in place of interactions."""

from __future__ import annotations

import numpy as np
import scipy

from indexers.postings import Int32s, Ints, Postings


def with_terms(postings: Postings, renamed: Int32s) -> Postings:
    """Return postings whose terms are replaced; counts of terms that become one add up.

    Args:
        postings: Postings of one field.
        renamed: (terms,) new id of each term; -1 leaves it out. Lengths count what stays.
    """
    case = np.repeat(np.arange(postings.cases), np.diff(postings.term_offsets))
    term = renamed[postings.terms].astype(np.int64) if len(postings.terms) else np.zeros(0, np.int64)
    width = int(renamed.max(initial=0)) + 1
    sizes = np.diff(postings.indptr)
    kept = term >= 0
    rows, row = np.unique((case * width + term)[kept], return_inverse=True)
    entry = np.repeat(kept, sizes)
    documents = postings.documents[entry].astype(np.int64)
    owner = np.repeat(row.reshape(-1), sizes[kept])
    counts = postings.counts[entry]
    home = postings.document_offsets[(rows // width)[owner]] if len(rows) else np.zeros(0, np.int64)
    lengths = np.bincount(home + documents, weights=counts, minlength=len(postings.lengths))
    return _summed(postings.document_offsets, rows, width, owner, documents, counts, lengths.astype(np.int32))


def grouped(postings: Postings, group: Ints, document_offsets: Ints) -> Postings:
    """Return postings whose documents are groups of documents of one case; counts and lengths add up.

    Args:
        postings: Postings of one field.
        group: (documents,) group of each document, numbered through all cases.
        document_offsets: (cases + 1,) where the groups of each case begin.
    """
    case = np.repeat(np.arange(postings.cases), np.diff(postings.term_offsets))
    width = int(postings.terms.max(initial=0)) + 1
    rows = case * width + postings.terms
    owner = np.repeat(np.arange(len(rows)), np.diff(postings.indptr))
    home = postings.document_offsets[case[owner]] if len(rows) else np.zeros(0, np.int64)
    documents = group[home + postings.documents] - (document_offsets[case[owner]] if len(rows) else 0)
    lengths = np.bincount(group, weights=postings.lengths, minlength=int(document_offsets[-1])).astype(np.int32)
    return _summed(document_offsets, rows, width, owner, documents, postings.counts, lengths)


def _summed(
    document_offsets: Ints, rows: Ints, width: int, owner: Ints, documents: Ints, counts: Int32s, lengths: Int32s
) -> Postings:
    cases = len(document_offsets) - 1
    size = int(np.diff(document_offsets).max(initial=0))
    total = scipy.sparse.csr_array((counts, (owner, documents)), shape=(len(rows), max(size, 1)))
    total.sum_duplicates()
    return Postings(
        document_offsets=document_offsets,
        term_offsets=np.searchsorted(rows, np.arange(cases + 1) * width),
        terms=(rows % width).astype(np.int32),
        indptr=total.indptr.astype(np.int64),
        documents=total.indices.astype(np.int32, copy=False),
        counts=total.data.astype(np.int32, copy=False),
        lengths=lengths,
    )


def windowed(postings: Postings, session: Ints, reach: int) -> Postings:
    """Return postings whose documents hold their neighbours as well.

    Args:
        postings: Postings of one field.
        session: (documents,) session of each document, numbered within its case; neighbours are of one session.
        reach: Neighbours before, and as many after.
    """
    sizes = np.diff(postings.document_offsets)
    home = np.repeat(np.arange(postings.cases), sizes)
    mark = home * (int(session.max(initial=0)) + 1) + session
    count = len(mark)
    case = np.repeat(np.arange(postings.cases), np.diff(postings.term_offsets))
    width = int(postings.terms.max(initial=0)) + 1
    rows = case * width + postings.terms
    owner = np.repeat(np.arange(len(rows)), np.diff(postings.indptr))
    flat = (postings.document_offsets[case[owner]] if len(rows) else np.zeros(0, np.int64)) + postings.documents
    lengths = np.zeros(count, np.int64)
    parts: list[tuple[Ints, Ints, Int32s]] = []
    for step in range(-reach, reach + 1):
        target = np.arange(count) + step
        inside = (target >= 0) & (target < count)
        inside[inside] = mark[target[inside]] == mark[inside]
        np.add.at(lengths, target[inside], postings.lengths[inside])
        kept = inside[flat]
        parts.append((owner[kept], target[flat[kept]], postings.counts[kept]))
    owners, targets, counts = (np.concatenate(part) for part in zip(*parts, strict=True))
    documents = targets - (postings.document_offsets[case[owners]] if len(rows) else 0)
    return _summed(postings.document_offsets, rows, width, owners, documents, counts, lengths.astype(np.int32))
