"""Dense vectors: texts embedded once each, exact cosines of questions with the documents of their cases, neighbours.

Cosines are exact to the last bit whatever stands beside a vector: components are rounded to multiples of 2**-26, so
that every product is a multiple of 2**-52 and every sum of products, which is below 2 for vectors of unit length, has
an exact float64. The order in which a matrix product adds up, and so its shape, its threads and its machine, cannot
matter. The rounding moves a cosine by less than 1e-6.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indexers.embedders import Embedder, Purpose, Rows
from indexers.scores import Floats, Ints, Scores
from schemas.errors import MissingDependencyError, SchemaError
from schemas.ids import content_hash
from schemas.tables import build as build_table

EXACT_PAIRS = 20_000_000_000
"""Pairs of vectors up to which neighbours are exact; with 256 dimensions they take one core some minutes."""

_SCALE = 2.0**26
_BLOCK = 1 << 19  # float64 numbers of one block, so that it stays in the cache
_QUESTIONS = 128
_OFFSETS = 2**31 - 1
_LISTS = 0.125  # share of the lists of an approximate index that a search looks into
_TRAINING = 40  # vectors for each list that the lists are found from
_SPARE = 16  # candidates beyond those wanted: their order is that of float16


@dataclass(frozen=True)
class Vectors:
    """The vectors of the cases of a shard; n vectors of d dimensions.

    Attributes:
        case_ids: Cases, in order.
        offsets: (cases + 1,) where the vectors of each case begin.
        values: (n, d) float32, C-contiguous; rows of unit length or zeros.
    """

    case_ids: tuple[str, ...]
    offsets: Ints
    values: Rows


def embed_rows(
    rows: pa.Table,
    embedder: Embedder,
    purpose: Purpose,
    known: pa.Table | None = None,
    dtype: Literal["float16", "float32"] = "float16",
    batch: int = 4096,
) -> pa.Table:
    """Make the table `vectors`, each distinct text embedded once.

    Args:
        rows: case_id, kind, key and text of each vector wanted.
        embedder: Embedder at work.
        purpose: What the texts are.
        known: A table with the columns content_hash and vector, made with the same embedder and `dtype`; texts whose
            hash it has are not embedded again.
        dtype: Numbers that the values are rounded to; they are stored as float32 in either case.
        batch: Distinct texts embedded at once.

    Returns:
        The table, in the order of `rows`. A content hash covers the embedder's prefix and the text; that of a blank
        text is the hash of nothing.

    Raises:
        EmbedderError: The embedder cannot be used.
        SchemaError: Known vectors have another number of dimensions than new ones.
    """
    coded = pa.chunked_array(rows["text"]).combine_chunks().cast(pa.large_string()).dictionary_encode()
    texts, place = coded.dictionary.to_pylist(), np.asarray(coded.indices)
    prefix = embedder.prefixes[purpose]
    hashes = pa.array([content_hash([prefix + text if text.strip() else ""]) for text in texts], pa.string())
    found = np.full(len(texts), -1, np.int64)
    parts = []
    if known is not None and known.num_rows:
        found = np.asarray(pc.fill_null(pc.index_in(hashes, value_set=known["content_hash"].combine_chunks()), -1))
        parts.append(matrix_of(known["vector"])[found[found >= 0]])
    new = np.flatnonzero(found < 0)
    for low in range(0, len(new), batch):
        vectors = embedder.embed([texts[row] for row in new[low : low + batch]], purpose)
        parts.append(vectors.astype(np.float16).astype(np.float32) if dtype == "float16" else vectors)
    if len(widths := {part.shape[1] for part in parts}) > 1:
        raise SchemaError(
            f"vectors of {' and of '.join(map(str, sorted(widths)))} dimensions",
            where="vectors.vector",
            remedy="Embed all texts with the same model.",
        )
    made = np.concatenate(parts) if parts else np.zeros((0, 0), np.float32)
    distinct = np.empty_like(made)
    distinct[np.concatenate([np.flatnonzero(found >= 0), new])] = made
    return build_table(
        "vectors",
        {
            "case_id": rows["case_id"],
            "kind": rows["kind"],
            "key": rows["key"],
            "content_hash": hashes.take(pa.array(place)),
            "vector": _lists(distinct[place]),
        },
    )


def matrix(table: pa.Table, case_ids: Sequence[str] | None = None) -> Vectors:
    """Read vectors out of a `vectors` table, without a copy where it is in one piece and in order.

    Args:
        table: The table, or those rows of it that are wanted.
        case_ids: Cases wanted, in this order; one without rows has no vectors. By default the table's.

    Raises:
        SchemaError: Rows of one case do not stand together, or vectors differ in length.
    """
    coded = table["case_id"].cast(pa.string()).combine_chunks().dictionary_encode()
    case = np.asarray(coded.indices).astype(np.int64)
    heads = np.flatnonzero(np.diff(case, prepend=-1))
    names = coded.dictionary.to_pylist()
    if len(heads) > len(names):
        raise SchemaError("rows of one case do not stand together", where="vectors.case_id")
    values = matrix_of(table["vector"])
    offsets = np.append(heads, len(case)).astype(np.int64)
    if case_ids is None or list(case_ids) == names:
        return Vectors(tuple(names), offsets, values)
    number = {name: place for place, name in enumerate(names)}
    spans = [offsets[number[name] : number[name] + 2] if name in number else np.zeros(2, np.int64) for name in case_ids]
    low, high = np.array(spans, np.int64).reshape(-1, 2).T
    taken = [values[start:stop] for start, stop in zip(low, high, strict=True)]
    cut = np.concatenate(taken) if taken else values[:0]
    return Vectors(tuple(case_ids), np.append(0, np.cumsum(high - low)), cut)


def matrix_of(column: pa.ChunkedArray) -> Rows:
    """Return (rows, dimensions) of a column of lists, without a copy where it is in one chunk.

    Raises:
        SchemaError: Lists differ in length.
    """
    parts = []
    for chunk in column.chunks:
        if len(chunk):
            lengths = np.diff(chunk.offsets)
            if (lengths != lengths[0]).any():
                raise SchemaError("vectors differ in length", where="vectors.vector", remedy="Index the corpus again.")
            parts.append(chunk.flatten().to_numpy().reshape(len(chunk), int(lengths[0])))
    if len({part.shape[1] for part in parts}) > 1:
        raise SchemaError("vectors differ in length", where="vectors.vector", remedy="Index the corpus again.")
    if len(parts) == 1:
        return np.asarray(parts[0], np.float32)
    return np.concatenate(parts) if parts else np.zeros((0, 0), np.float32)


def cosine(questions: Rows, case: Ints, documents: Vectors) -> Scores:
    """Score every document of each question's case by its cosine.

    One matrix product a case, in blocks; each cosine depends on its two vectors alone.

    Args:
        questions: (questions, d) vectors.
        case: (questions,) number of each question's case.
        documents: Vectors of the cases.

    Returns:
        Cosines, negative ones as 0, which means "not retrieved".

    Raises:
        SchemaError: Questions and documents differ in their dimensions, or a vector is longer than 1 or not finite.
    """
    sizes = np.diff(documents.offsets)[case]
    offsets = np.append(0, np.cumsum(sizes)).astype(np.int64)
    scores = np.zeros(int(offsets[-1]))
    if not len(scores):
        return Scores(offsets, scores)
    order = np.argsort(case, kind="stable")
    step = _step(documents.values)
    for first, last in pairwise(np.append(np.flatnonzero(np.diff(case[order], prepend=-1)), len(order)).tolist()):
        low, high = documents.offsets[case[order[first]] :][:2].tolist()
        for start in range(low, high, step):
            block = _Whole(documents.values[start : min(start + step, high)])
            for place in range(first, last, _QUESTIONS):
                some = order[place : min(place + _QUESTIONS, last)]
                found = _Whole(questions[some]).cosines(block)
                columns = np.arange(start - low, start - low + found.shape[1])
                scores[offsets[some][:, None] + columns] = np.maximum(found, 0.0)
    return Scores(offsets, scores)


def nearest(
    questions: Rows, rows: Rows, top: int, least: float = -1.0, exact_pairs: int = EXACT_PAIRS
) -> tuple[Ints, Floats]:
    """Find the rows of the largest cosine with each question.

    Exact up to `exact_pairs` pairs of a question and a row. Beyond, candidates come from an inverted file (Sivic,
    Zisserman, ICCV 2003) of float16 vectors, of which a search looks into one list in eight, and are ranked by their
    exact cosines.

    Args:
        questions: (questions, d) vectors.
        rows: (rows, d) vectors.
        top: Rows wanted for each question.
        least: Least cosine of a row that counts.
        exact_pairs: Pairs up to which the answer is exact.

    Returns:
        (questions, top) row numbers and cosines, higher first, equal ones by row; -1 and 0 where there are no more.

    Raises:
        MissingDependencyError: There are more pairs than `exact_pairs`, and faiss is not installed.
        SchemaError: Questions and rows differ in their dimensions, or a vector is longer than 1 or not finite.
    """
    found = np.full((len(questions), top), -1, np.int64)
    values = np.full((len(questions), top), np.nextafter(least, -np.inf))
    step = _step(rows)
    if len(questions) * len(rows) <= exact_pairs:
        for start in range(0, len(rows), step):
            block = _Whole(rows[start : start + step])
            for low in range(0, len(questions), _QUESTIONS):
                rated = _Whole(questions[low : low + _QUESTIONS]).cosines(block)
                places, best = _best(rated, values[low : low + _QUESTIONS, -1], top)
                _keep(found, values, low, np.where(places < 0, -1, places + start), best)
    else:
        candidates = _candidates(questions, rows, top)
        width = max(1, step // candidates.shape[1])
        for low in range(0, len(questions), width):
            some = candidates[low : low + width]
            asked = _Whole(np.repeat(questions[low : low + width], some.shape[1], axis=0))
            rated = asked.cosines_by_row(_Whole(rows[some.reshape(-1)])).reshape(some.shape)
            _keep(found, values, low, some, np.where((some >= 0) & (rated >= least), rated, -np.inf))
    values[found < 0] = 0.0
    return found, values


def synonyms(
    vectors: Rows, threshold: float, top: int = 100, exact_pairs: int = EXACT_PAIRS
) -> tuple[Ints, Ints, Floats]:
    """Find pairs of vectors whose cosine is at least `threshold`, for synonym edges.

    Args:
        vectors: (n, d) vectors.
        threshold: Least cosine, above 0.
        top: Others that each vector names at most, its nearest ones; a pair needs to be named once.
        exact_pairs: As in `nearest`.

    Returns:
        The lower and the higher number of each pair, in order, and its cosine.

    Raises:
        MissingDependencyError, SchemaError: As `nearest`.
    """
    found, values = nearest(vectors, vectors, top + 1, threshold, exact_pairs)
    own = np.arange(len(vectors))[:, None]
    named = (found >= 0) & (found != own)
    named &= np.cumsum(named, axis=1) <= top
    pair = np.stack([np.minimum(found, own)[named], np.maximum(found, own)[named]])
    unique, place = np.unique(pair, axis=1, return_index=True)
    return unique[0], unique[1], values[named][place]


class _Whole:
    """Vectors in units of 2**-26.

    Raises:
        SchemaError: One is longer than 1, so that sums might not be exact, or not finite.
    """

    def __init__(self, values: Rows) -> None:
        self.units = np.rint(values.astype(np.float64) * _SCALE)
        squares = np.einsum("ij,ij->i", self.units, self.units)
        self.squares = np.where(squares == 0, 1.0, squares)
        if not (squares < 1.01 * _SCALE**2).all():
            raise SchemaError(
                "a vector is longer than 1 or not finite", where="vectors.vector", remedy="Index the corpus again."
            )

    def cosines(self, others: _Whole) -> Floats:
        """Return (vectors, others) cosines.

        Raises:
            SchemaError: They differ in their dimensions.
        """
        if self.units.shape[1] != others.units.shape[1]:
            raise SchemaError(
                f"vectors of {self.units.shape[1]} and of {others.units.shape[1]} dimensions",
                where="vectors.vector",
                remedy="Embed questions and documents with the same model.",
            )
        products: Floats = self.units @ others.units.T
        lengths = np.multiply.outer(self.squares, others.squares)
        products /= np.sqrt(lengths, out=lengths)
        np.minimum(products, 1.0, out=products)
        return products

    def cosines_by_row(self, others: _Whole) -> Floats:
        """Return the cosine of each vector with the other of the same row, the same as `cosines` gives."""
        products: Floats = np.einsum("ij,ij->i", self.units, others.units)
        products /= np.sqrt(self.squares * others.squares)
        np.minimum(products, 1.0, out=products)
        return products


def _step(values: Rows) -> int:
    return max(1, _BLOCK // max(int(values.shape[1]), 1))


def _best(rated: Floats, worst: Floats, top: int) -> tuple[Ints, Floats]:
    """Return columns and values of the `top` largest above `worst` of each row, in order of column.

    Of equal ones the first columns count. Where there are fewer, -1 and -inf fill up.
    """
    better = rated > worst[:, None]
    counts = np.count_nonzero(better, axis=1)
    if (counts > top).any():
        last = np.partition(rated, rated.shape[1] - top, axis=1)[:, rated.shape[1] - top, None]
        above = rated > last
        equal = rated == last
        room = top - np.count_nonzero(above, axis=1)
        better &= above | (equal & (np.cumsum(equal, axis=1) <= room[:, None]))
        counts = np.count_nonzero(better, axis=1)
    row, column = np.nonzero(better)
    slot = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
    places = np.full((len(rated), counts.max(initial=0)), -1, np.int64)
    values = np.full(places.shape, -np.inf)
    places[row, slot] = column
    values[row, slot] = rated[row, column]
    return places, values


def _keep(found: Ints, values: Floats, low: int, places: Ints, rated: Floats) -> None:
    """Merge new candidates, in order of place, into the best so far of the questions from `low` on."""
    some = slice(low, low + len(places))
    both = np.concatenate([values[some], rated], axis=1)
    order = np.argsort(-both, axis=1, kind="stable")[:, : found.shape[1]]
    found[some] = np.take_along_axis(np.concatenate([found[some], places], axis=1), order, axis=1)
    values[some] = np.take_along_axis(both, order, axis=1)


def _candidates(questions: Rows, rows: Rows, top: int) -> Ints:
    """Return (questions, some more than top) rows that are probably near, ascending; -1 where there are no more."""
    try:
        faiss: Any = import_module("faiss")
    except ModuleNotFoundError:
        raise MissingDependencyError(
            f"neighbours of {len(questions):,} among {len(rows):,} vectors need an approximate index, and so the "
            "module 'faiss', which is not installed",
            where="embed",
            remedy="Run: pip install 'tagloom[faiss]'",
        ) from None
    lists = min(1 << round(float(np.log2(4 * np.sqrt(len(rows))))), len(rows))
    coarse = faiss.IndexFlatIP(rows.shape[1])
    index = faiss.IndexIVFScalarQuantizer(
        coarse, rows.shape[1], lists, faiss.ScalarQuantizer.QT_fp16, faiss.METRIC_INNER_PRODUCT, False
    )
    index.cp.seed, index.cp.niter, index.cp.spherical, index.cp.min_points_per_centroid = 7, 6, True, 1
    index.train(np.ascontiguousarray(rows[:: max(1, len(rows) // (_TRAINING * lists))]))
    index.nprobe = max(8, int(lists * _LISTS))
    step = _step(rows)
    for start in range(0, len(rows), step):
        index.add(np.ascontiguousarray(rows[start : start + step]))
    more = min(len(rows), top + _SPARE)
    parts = [index.search(questions[low : low + step], more)[1] for low in range(0, len(questions), step)]
    found: Ints = np.concatenate(parts)
    found.sort(axis=1)
    return found


def _lists(values: Rows) -> pa.ChunkedArray:
    """Return rows as lists, in as many chunks as their offsets, which are int32, need."""
    count, width = values.shape
    most = _OFFSETS // max(width, 1)
    chunks = []
    for low in range(0, max(count, 1), most):
        some = np.ascontiguousarray(values[low : low + most])
        offsets = pa.array(np.arange(len(some) + 1, dtype=np.int32) * np.int32(width))
        chunks.append(pa.ListArray.from_arrays(offsets, pa.array(some.reshape(-1), pa.float32())))
    return pa.chunked_array(chunks)
