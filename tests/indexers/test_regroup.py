"""Postings regrouped, against postings built from scratch."""

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from indexers.postings import build_postings
from indexers.regroup import grouped, windowed, with_terms
from transforms.stems import stem_terms, stemmed
from transforms.tokens import tokenize

WORDS = ["dog", "dogs", "the", "cat", "cats", "running", "run", "a", "北京", "x"]
cases = st.lists(
    st.lists(st.tuples(st.sampled_from("stu"), st.lists(st.sampled_from(WORDS), max_size=5)), max_size=6), max_size=4
)


def built(texts, sizes, terms=None):
    """Return postings of texts, and their terms; numbered as in `terms` where given."""
    tokens = tokenize(pa.array(texts, pa.string()))
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    return build_postings(tokens, offsets), tokens


def told(postings, terms):
    """Return all that postings say, by words."""
    said = {}
    for case in range(postings.cases):
        for row in range(postings.term_offsets[case], postings.term_offsets[case + 1]):
            entries = slice(postings.indptr[row], postings.indptr[row + 1])
            pairs = zip(postings.documents[entries].tolist(), postings.counts[entries].tolist(), strict=True)
            said[case, terms[postings.terms[row]]] = list(pairs)
    return said, postings.lengths.tolist(), postings.document_offsets.tolist()


def in_order(postings):
    """Rows ascend within a case, documents within a row, and counts are above 0."""
    for low, high in zip(postings.term_offsets[:-1], postings.term_offsets[1:], strict=True):
        assert (np.diff(postings.terms[low:high]) > 0).all()
    for low, high in zip(postings.indptr[:-1], postings.indptr[1:], strict=True):
        assert high > low
        assert (np.diff(postings.documents[low:high]) > 0).all()
    assert (postings.counts > 0).all()
    assert postings.indptr[-1] == len(postings.documents) == len(postings.counts)
    kinds = [getattr(postings, name).dtype for name in ("terms", "documents", "counts", "lengths")]
    assert kinds == [np.int32] * 4


@given(cases)
@settings(max_examples=25, deadline=None)
def test_stems_in_place_of_words(drawn):
    texts = [" ".join(words) for case in drawn for _, words in case]
    sizes = [len(case) for case in drawn]
    raw, tokens = built(texts, sizes)
    coded = stem_terms(tokens.terms).dictionary_encode()
    made = with_terms(raw, coded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int32))
    in_order(made)
    direct = stemmed(tokens)
    wanted = build_postings(direct, raw.document_offsets)
    assert told(made, coded.dictionary.to_pylist()) == told(wanted, direct.terms.to_pylist())


def grouping(drawn):
    """Number the groups of each case in order of first appearance."""
    numbers, offsets = [], [0]
    for case in drawn:
        names = list(dict.fromkeys(name for name, _ in case))
        numbers += [offsets[-1] + names.index(name) for name, _ in case]
        offsets.append(offsets[-1] + len(names))
    return np.array(numbers, np.int64), np.array(offsets, np.int64)


@given(cases)
@settings(max_examples=25, deadline=None)
def test_sessions_in_place_of_interactions(drawn):
    raw, tokens = built([" ".join(words) for case in drawn for _, words in case], [len(case) for case in drawn])
    made = grouped(raw, *grouping(drawn))
    in_order(made)
    texts = [
        " ".join(word for own, words in case if own == name for word in words)
        for case in drawn
        for name in dict.fromkeys(name for name, _ in case)
    ]
    wanted, again = built(texts, np.diff(grouping(drawn)[1]))
    assert told(made, tokens.terms.to_pylist()) == told(wanted, again.terms.to_pylist())


@given(cases, st.integers(0, 3))
@settings(max_examples=25, deadline=None)
def test_neighbours_of_one_session_as_part_of_a_document(drawn, reach):
    raw, tokens = built([" ".join(words) for case in drawn for _, words in case], [len(case) for case in drawn])
    numbers, offsets = grouping(drawn)
    session = numbers - np.repeat(offsets[:-1], [len(case) for case in drawn])
    made = windowed(raw, session, reach)
    in_order(made)
    texts = [
        " ".join(
            word
            for other in range(max(place - reach, 0), place + reach + 1)
            if other < len(case) and case[other][0] == case[place][0]
            for word in case[other][1]
        )
        for case in drawn
        for place in range(len(case))
    ]
    wanted, again = built(texts, [len(case) for case in drawn])
    assert told(made, tokens.terms.to_pylist()) == told(wanted, again.terms.to_pylist())


def test_a_term_left_out_leaves_no_row_and_no_length():
    raw, tokens = built(["a b a", "b"], [1, 1])
    assert tokens.terms.to_pylist() == ["a", "b"]
    made = with_terms(raw, np.array([-1, 0], np.int32))
    assert told(made, ["b"]) == ({(0, "b"): [(0, 1)], (1, "b"): [(0, 1)]}, [1, 1], [0, 1, 2])
    nothing = with_terms(raw, np.array([-1, -1], np.int32))
    assert told(nothing, []) == ({}, [0, 0], [0, 1, 2])
