"""Term counts of many cases' documents as sorted arrays: how they are built, stored, and looked up.

A posting list is a row (case, term); its entries are the documents that hold the term, with counts. Rows and entries
are in ascending order, so that a score of any kind is a gather over the rows of a question's terms.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import scipy

from schemas import tables
from schemas.errors import SchemaError
from transforms.tokens import Tokens

Ints = npt.NDArray[np.int64]
Int32s = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Postings:
    """Posting lists of one field over all cases of a shard.

    Cases, and the documents of a case, are numbered in the order they were given; C cases, R rows, E entries.

    Attributes:
        document_offsets: (C + 1,) int64, where each case's documents begin in `lengths`.
        term_offsets: (C + 1,) int64, where each case's rows begin in `terms`.
        terms: (R,) int32, term id of each row, ascending within a case.
        indptr: (R + 1,) int64, where each row's entries begin.
        documents: (E,) int32, number of the document within its case, ascending within a row.
        counts: (E,) int32, occurrences of the term in the document, at least 1.
        lengths: (documents of all cases,) int32, tokens of each document.
    """

    document_offsets: Ints
    term_offsets: Ints
    terms: Int32s
    indptr: Ints
    documents: Int32s
    counts: Int32s
    lengths: Int32s

    @property
    def cases(self) -> int:
        """Number of cases."""
        return len(self.document_offsets) - 1


@dataclass(frozen=True)
class Queries:
    """Tokens of many questions, each of one case; a token may occur more than once.

    Attributes:
        case: (questions,) int64, number of the question's case in the postings.
        offsets: (questions + 1,) int64, where each question's tokens begin in `terms`.
        terms: (tokens,) int32, term ids; -1 for a token that the vocabulary lacks.
    """

    case: Ints
    offsets: Ints
    terms: Int32s


def build_postings(tokens: Tokens, case_offsets: Ints, terms: int | None = None) -> Postings:
    """Count the tokens of documents by case, in time linear in the tokens.

    Args:
        tokens: Tokens of all documents, cases one after the other.
        case_offsets: (cases + 1,) where each case's documents begin.
        terms: Size of the vocabulary, where it is larger than that of `tokens`.

    Returns:
        Postings whose term ids are those of `tokens`.
    """
    case_offsets = np.asarray(case_offsets, dtype=np.int64)
    width = len(tokens.terms) if terms is None else terms
    starts = tokens.offsets[case_offsets]
    parts = [_count(tokens, case_offsets[a : b + 1], width) for a, b in _groups(starts, width)]
    return Postings(
        document_offsets=case_offsets,
        term_offsets=_running([part[0] for part in parts]),
        terms=_joined([part[1] for part in parts], np.int32),
        indptr=_running([part[2] for part in parts]),
        documents=_joined([part[3] for part in parts], np.int32),
        counts=_joined([part[4] for part in parts], np.int32),
        lengths=np.diff(tokens.offsets).astype(np.int32),
    )


def _running(sizes: Sequence[npt.NDArray[Any]]) -> Ints:
    out = np.zeros(1 + sum(map(len, sizes)), dtype=np.int64)
    if sizes:
        np.cumsum(np.concatenate(sizes), out=out[1:])
    return out


def _joined(parts: Sequence[npt.NDArray[Any]], kind: Any) -> npt.NDArray[Any]:
    return np.concatenate(parts) if parts else np.zeros(0, dtype=kind)


def _narrow(offsets: Ints) -> npt.NDArray[Any]:
    """Return offsets as int32 where they fit: scipy widens indices to the kind of the offsets."""
    return offsets.astype(np.int32) if offsets[-1] <= np.iinfo(np.int32).max else offsets


def _groups(starts: Ints, width: int) -> Iterator[tuple[int, int]]:
    """Cut cases into runs with about as many tokens as there are terms, so that neither dominates the work."""
    cases, first = len(starts) - 1, 0
    while first < cases:
        last = int(np.searchsorted(starts, starts[first] + max(width, 1 << 14), side="left"))
        last = min(max(last, first + 1), cases)
        yield first, last
        first = last


def _count(tokens: Tokens, case_offsets: Ints, width: int) -> tuple[npt.NDArray[Any], ...]:
    """Count a run of cases by two counting sorts, by term and then by case; both keep the order they find.

    Returns:
        Rows of each case; terms and sizes of the rows; documents and counts of the entries.
    """
    cases = len(case_offsets) - 1
    offsets = tokens.offsets[case_offsets[0] : case_offsets[-1] + 1]
    ids = tokens.ids[offsets[0] : offsets[-1]]
    if not len(ids):
        nothing = np.zeros(0, dtype=np.int32)
        return np.zeros(cases, dtype=np.int64), nothing, nothing, nothing, nothing
    by_document = scipy.sparse.csr_array(
        (np.zeros(len(ids), dtype=np.int8), ids, _narrow(offsets - offsets[0])), shape=(len(offsets) - 1, width)
    )
    by_term = by_document.tocsc()
    begins = by_term.indptr
    present = np.flatnonzero(begins[1:] != begins[:-1])
    # One entry a document: repeated tokens of a document stand next to each other within their term.
    first = np.empty(len(ids), dtype=bool)
    np.not_equal(by_term.indices[1:], by_term.indices[:-1], out=first[1:])
    first[begins[present]] = True
    at = np.flatnonzero(first)
    documents = by_term.indices[at].astype(np.int32, copy=False)
    counts = np.diff(at, append=len(ids)).astype(np.int32)
    rows = np.cumsum(first, dtype=begins.dtype)[begins[present]] - 1
    if cases == 1:
        sizes = np.diff(rows, append=len(at))
        return np.array([len(rows)]), present.astype(np.int32), sizes, documents, counts
    bounds = case_offsets - case_offsets[0]
    case = np.repeat(np.arange(cases, dtype=np.int32), np.diff(bounds))[documents]
    ends = np.append(rows, len(at))
    by_row = scipy.sparse.csr_array((np.arange(len(at)), case, _narrow(ends)), shape=(len(rows), cases))
    by_case = by_row.tocsc()
    order, term = by_case.data, by_case.indices
    documents = documents[order] - np.repeat(bounds[:-1], np.diff(by_case.indptr)).astype(np.int32)
    change = np.empty(len(at), dtype=bool)
    np.not_equal(term[1:], term[:-1], out=change[1:])
    change[by_case.indptr[:-1][np.diff(by_case.indptr) > 0]] = True
    heads = np.flatnonzero(change)
    return (
        np.diff(np.searchsorted(heads, by_case.indptr)),
        present[term[heads]].astype(np.int32),
        np.diff(heads, append=len(at)),
        documents,
        counts[order],
    )


def add_postings(left: Postings, right: Postings) -> Postings:
    """Return the postings of documents that are those of both sides joined, document by document.

    Raises:
        ValueError: The sides do not have the same documents.
    """
    if not np.array_equal(left.document_offsets, right.document_offsets):
        raise ValueError("postings to add are not of the same documents")
    if not len(right.terms) or not len(left.terms):
        return right if len(right.terms) else left
    width = int(max(left.terms.max(), right.terms.max())) + 1
    keys = [_row_case(side) * width + side.terms for side in (left, right)]
    # A stable sort of two ascending runs is one merge.
    rows = np.sort(np.concatenate(keys), kind="stable")
    rows = rows[np.append(True, rows[1:] != rows[:-1])]
    size = int(np.diff(left.document_offsets).max())
    own, added = (
        scipy.sparse.csr_array(
            (side.counts, side.documents, _narrow(_spread(side, key, rows))), shape=(len(rows), size)
        )
        for side, key in zip((left, right), keys, strict=True)
    )
    total = own + added
    return Postings(
        document_offsets=left.document_offsets,
        term_offsets=np.searchsorted(rows, np.arange(left.cases + 1) * width),
        terms=(rows % width).astype(np.int32),
        indptr=total.indptr.astype(np.int64),
        documents=total.indices.astype(np.int32, copy=False),
        counts=total.data,
        lengths=left.lengths + right.lengths,
    )


def _row_case(postings: Postings) -> Ints:
    return np.repeat(np.arange(postings.cases), np.diff(postings.term_offsets))


def _spread(postings: Postings, keys: Ints, rows: Ints) -> Ints:
    """Return row starts over `rows`, of which `keys` are some."""
    sizes = np.zeros(len(rows), dtype=np.int64)
    sizes[np.searchsorted(rows, keys)] = np.diff(postings.indptr)
    return _running([sizes])


def to_table(postings: Postings, case_ids: Sequence[str] | pa.Array, field: str) -> pa.Table:
    """Return postings as rows of the table `postings`, one a case.

    Args:
        postings: Postings of one field.
        case_ids: (cases,) their ids.
        field: raw, note or tag.

    Raises:
        SchemaError: A list column would pass 2**31 - 1 values, or the ids are not one a case.
    """
    cases = postings.cases
    if len(postings.documents) + len(postings.lengths) + cases > np.iinfo(np.int32).max:
        raise SchemaError(
            f"{len(postings.documents)} postings do not fit one part", where="postings", remedy="Use more shards."
        )
    entries = postings.indptr[postings.term_offsets]
    # Each case repeats its last row end as the next one's first, less what came before.
    spread = np.repeat(np.arange(cases), np.diff(postings.term_offsets) + 1)
    indptr = postings.indptr[np.arange(len(spread)) - spread] - entries[spread]
    return tables.build(
        "postings",
        {
            "case_id": case_ids,
            "field": pa.DictionaryArray.from_arrays(pa.array(np.zeros(cases, dtype=np.int32)), pa.array([field])),
            "terms": _lists(postings.term_offsets, postings.terms),
            "indptr": _lists(postings.term_offsets + np.arange(cases + 1), indptr),
            "documents": _lists(entries, postings.documents),
            "counts": _lists(entries, postings.counts),
            "lengths": _lists(postings.document_offsets, postings.lengths),
        },
    )


def _lists(offsets: Ints, values: npt.NDArray[Any]) -> pa.ListArray:
    kind = tables.schema("postings").field("terms").type
    places = pa.array(offsets.astype(np.int32))
    return pa.ListArray.from_arrays(places, pa.array(values.astype(np.int32, copy=False)), type=kind)


def from_table(table: pa.Table, field: str) -> Postings:
    """Return the postings of one field out of the table `postings`; cases keep the order of their rows.

    Entries are views of the table's buffers where its rows of that field lie in one chunk.
    """
    rows = table.filter(pc.equal(table["field"].cast(pa.string()), field)).combine_chunks()
    document_offsets, lengths = _values(rows, "lengths")
    term_offsets, terms = _values(rows, "terms")
    _, indptr = _values(rows, "indptr")
    entry_offsets, documents = _values(rows, "documents")
    _, counts = _values(rows, "counts")
    ends = np.delete(indptr, (term_offsets + np.arange(len(term_offsets)))[:-1]).astype(np.int64)
    ends += np.repeat(entry_offsets[:-1], np.diff(term_offsets))
    return Postings(document_offsets, term_offsets, terms, np.append(np.int64(0), ends), documents, counts, lengths)


def _values(table: pa.Table, column: str) -> tuple[Ints, Int32s]:
    """Return where each list begins, and the values of all lists."""
    chunks = table[column].chunks
    if not chunks:
        return np.zeros(1, dtype=np.int64), np.zeros(0, dtype=np.int32)
    lists = chunks[0] if len(chunks) == 1 else pa.concat_arrays(chunks)
    offsets = lists.offsets.to_numpy().astype(np.int64)
    return offsets - offsets[0], lists.flatten().to_numpy()


def vocabulary_table(terms: pa.Array) -> pa.Table:
    """Return terms as the table `vocabulary`; a term's id is its place."""
    return tables.build("vocabulary", {"term_id": np.arange(len(terms), dtype=np.int32), "term": terms})
