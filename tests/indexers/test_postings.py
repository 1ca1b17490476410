from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexers import postings as module
from indexers import queries as queries_module
from indexers.postings import (
    Postings,
    add_postings,
    build_postings,
    from_table,
    to_table,
    vocabulary_table,
)
from indexers.queries import distinct, gather, lookup, questions_to_queries, token_rows
from indexers.tfidf import drop_common, overlap_scores, tfidf_scores
from schemas import tables
from tests.indexers.tools import index_texts
from transforms.tokens import tokenize, tokenize_one

corpora = st.lists(st.lists(st.text("abcd ", max_size=12), max_size=5), max_size=5)


def offsets_of(cases):
    return np.append(0, np.cumsum([len(c) for c in cases])).astype(np.int64)


def flat(cases):
    return pa.array([d for c in cases for d in c], pa.large_string())


def postings_of(cases):
    tokens = tokenize(flat(cases))
    return build_postings(tokens, offsets_of(cases)), vocabulary_table(tokens.terms)


def queries_of(questions, case, vocabulary):
    return questions_to_queries(pa.array(questions, pa.string()), np.array(case, dtype=np.int64), vocabulary)


def plain(postings, terms):
    """Every case as {term: [(document, count)]}, in the order of the arrays."""
    out = []
    for case in range(postings.cases):
        rows = range(postings.term_offsets[case], postings.term_offsets[case + 1])
        out.append(
            {
                terms[postings.terms[r]]: list(
                    zip(
                        postings.documents[postings.indptr[r] : postings.indptr[r + 1]].tolist(),
                        postings.counts[postings.indptr[r] : postings.indptr[r + 1]].tolist(),
                        strict=True,
                    )
                )
                for r in rows
            }
        )
    return out


def counted(cases, terms):
    number = {t: i for i, t in enumerate(terms)}
    out = []
    for case in cases:
        bags = [Counter(tokenize_one(d)) for d in case]
        held = sorted(set().union(*bags), key=number.__getitem__)
        out.append({t: [(d, bag[t]) for d, bag in enumerate(bags) if t in bag] for t in held})
    return out


def same(left: Postings, right: Postings):
    for name in Postings.__dataclass_fields__:
        a, b = getattr(left, name), getattr(right, name)
        assert a.dtype == b.dtype, name
        assert a.tolist() == b.tolist(), name


@pytest.mark.parametrize("grouping", ["one case a group", "all cases in a group"])
@settings(deadline=None, max_examples=100)
@given(corpora)
def test_counts_are_those_of_a_counter(grouping, cases):
    runs = (lambda starts, _: ((i, i + 1) for i in range(len(starts) - 1))) if "one" in grouping else module._groups
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_groups", runs)
        postings, vocabulary = postings_of(cases)
    terms = vocabulary["term"].to_pylist()
    found, expected = plain(postings, terms), counted(cases, terms)
    assert found == expected
    assert [list(c) for c in found] == [list(c) for c in expected]
    assert postings.lengths.tolist() == [len(tokenize_one(d)) for c in cases for d in c]
    assert postings.document_offsets.tolist() == offsets_of(cases).tolist()
    assert postings.indptr[-1] == len(postings.documents)


def test_layout_by_hand():
    postings, vocabulary = postings_of([["b a b", "a"], [], ["c b"]])
    assert vocabulary["term"].to_pylist() == ["b", "a", "c"]
    assert postings.document_offsets.tolist() == [0, 2, 2, 3]
    assert postings.term_offsets.tolist() == [0, 2, 2, 4]
    assert postings.terms.tolist() == [0, 1, 0, 2]
    assert postings.indptr.tolist() == [0, 1, 3, 4, 5]
    assert postings.documents.tolist() == [0, 0, 1, 0, 0]
    assert postings.counts.tolist() == [2, 1, 1, 1, 1]
    assert postings.lengths.tolist() == [3, 1, 2]


def test_groups_cover_every_case_once():
    starts = np.array([0, 5, 5, 40_000, 40_001, 90_000, 90_000])
    groups = list(module._groups(starts, 10))
    assert [a for a, _ in groups] == [0, *[b for _, b in groups[:-1]]]
    assert groups[-1][1] == 6
    assert len(groups) > 1
    assert list(module._groups(np.array([0]), 10)) == []


@settings(deadline=None, max_examples=80)
@given(st.lists(st.lists(st.tuples(st.text("abc ", max_size=8), st.text("abcd ", max_size=8)), max_size=4), max_size=4))
def test_the_note_field_counts_both_texts(cases):
    raw = [[a for a, _ in c] for c in cases]
    extra = [[b for _, b in c] for c in cases]
    both = [[f"{a} {b}" for a, b in c] for c in cases]
    tags = [["tag a"] for _ in cases]
    fields, all_terms = index_texts(flat(raw), flat(extra), flat(tags), offsets_of(cases), offsets_of(tags))
    terms = all_terms.to_pylist()
    assert plain(fields["raw"], terms) == counted(raw, terms)
    assert plain(fields["note"], terms) == counted(both, terms)
    assert plain(fields["tag"], terms) == counted(tags, terms)
    assert fields["note"].lengths.tolist() == [len(tokenize_one(d)) for c in both for d in c]


def test_postings_of_other_documents_do_not_add():
    left, _ = postings_of([["a", "b"]])
    right, _ = postings_of([["a"]])
    with pytest.raises(ValueError, match="same documents"):
        add_postings(left, right)


@settings(deadline=None, max_examples=60)
@given(corpora)
def test_the_table_gives_back_what_it_took(cases):
    postings, _ = postings_of(cases)
    other, _ = postings_of([["z y z"] for _ in cases])
    ids = [f"case-{i}" for i in range(len(cases))]
    table = pa.concat_tables([to_table(postings, ids, "raw"), to_table(other, ids, "tag")])
    tables.validate("postings", table)
    same(from_table(table, "raw"), postings)
    same(from_table(table, "tag"), other)
    assert from_table(table, "note").cases == 0
    for row, case in zip(table.to_pylist(), cases, strict=False):
        assert row["indptr"][0] == 0
        assert row["indptr"][-1] == len(row["documents"])
        assert len(row["lengths"]) == len(case)


def test_the_table_order_decides_over_the_case_order():
    postings, _ = postings_of([["a a b"], ["c"], ["b", "a"]])
    table = to_table(postings, ["x", "y", "z"], "raw")
    turned = from_table(table.take([2, 0]), "raw")
    assert turned.document_offsets.tolist() == [0, 2, 3]
    assert plain(turned, ["a", "b", "c"]) == [{"a": [(1, 1)], "b": [(0, 1)]}, {"a": [(0, 2)], "b": [(0, 1)]}]
    same(from_table(table.slice(1, 2), "raw"), from_table(table.take([1, 2]), "raw"))


def test_lookup():
    vocabulary = vocabulary_table(pa.array(["b", "a"]))
    tables.validate("vocabulary", vocabulary)
    assert lookup(vocabulary, pa.array(["a", "zzz", "b", "a"])).tolist() == [1, -1, 0, 1]
    assert lookup(vocabulary_table(pa.array([], pa.string())), pa.array(["a"])).tolist() == [-1]


@settings(deadline=None, max_examples=60)
@given(corpora.filter(bool), st.lists(st.text("abcde ", max_size=10), max_size=6), st.data())
def test_rows_of_query_tokens(cases, questions, data):
    postings, vocabulary = postings_of(cases)
    case = [data.draw(st.integers(0, len(cases) - 1)) for _ in questions]
    queries = queries_of(questions, case, vocabulary)
    terms = vocabulary["term"].to_pylist()
    held = counted(cases, terms)
    expected = [(c, t) if t in held[c] else None for c, q in zip(case, questions, strict=True) for t in tokenize_one(q)]
    home = np.searchsorted(postings.term_offsets, np.arange(len(postings.terms)), side="right") - 1
    found = [(home[r], terms[postings.terms[r]]) if r >= 0 else None for r in token_rows(postings, queries)]
    assert found == expected


def test_distinct_keeps_first_appearance():
    _, vocabulary = postings_of([["a b c"]])
    queries = distinct(queries_of(["b a b q a q", "", "c c"], [0, 0, 0], vocabulary))
    assert queries.offsets.tolist() == [0, 3, 3, 4]
    assert queries.terms.tolist() == [1, 0, -1, 2]


def test_gather_in_small_chunks(monkeypatch):
    postings, vocabulary = postings_of([["a b", "b c b", "a"], ["c", "c a"]])
    queries = queries_of(["a b c", "zz", "b b", "a c"], [0, 0, 0, 1], vocabulary)
    rows = token_rows(postings, queries)
    whole = gather(postings, queries, rows, np.ones(len(rows)), lambda e, d: postings.counts[e] + 10.0 * d)
    monkeypatch.setattr(queries_module, "_CHUNK", 1)
    parts = gather(postings, queries, rows, np.ones(len(rows)), lambda e, d: postings.counts[e] + 10.0 * d)
    # Documents are 0, 1, 2 of the first case and 3, 4 of the second; each entry adds its count and ten times that.
    assert whole.values.tolist() == [2, 23, 21, 0, 0, 0, 2, 24, 0, 31, 82]
    assert parts.values.tolist() == whole.values.tolist()
    assert whole.offsets.tolist() == parts.offsets.tolist() == [0, 3, 6, 9, 11]


def test_overlap_counts_distinct_tokens():
    postings, vocabulary = postings_of([["a b b", "b", "c"], []])
    queries = queries_of(["b a b zz", "", "c a", "b"], [0, 0, 0, 1], vocabulary)
    scores = overlap_scores(postings, queries)
    assert scores.offsets.tolist() == [0, 3, 6, 9, 9]
    assert scores.values.tolist() == [2, 1, 0, 0, 0, 0, 1, 0, 1]


def test_tokens_in_more_than_the_share_go():
    # Of 20 documents "often" is in 4 (20 %), "edge" in 3 (exactly 15 %), "rare" in 1. In the second case "often" is in
    # one of two, past the share, but one document is not common.
    case = ["often edge rare", "often edge", "often edge", "often", *["filler"] * 16]
    postings, vocabulary = postings_of([case, ["often", "x"]])
    queries = queries_of(["often edge rare unknown", "often"], [0, 1], vocabulary)
    kept = drop_common(queries, postings)
    terms = vocabulary["term"].to_pylist()
    assert [terms[t] if t >= 0 else None for t in kept.terms] == ["edge", "rare", None, "often"]
    assert kept.offsets.tolist() == [0, 3, 4]
    assert drop_common(queries, postings, share=0.05).offsets.tolist() == [0, 2, 3]


def test_tfidf_by_hand():
    postings, vocabulary = postings_of([["a a b c", "b", ""]])
    scores = tfidf_scores(postings, queries_of(["a b a zz"], [0], vocabulary))
    # N = 3; df(a) = 1: idf = ln(4/2) + 1; df(b) = 2: idf = ln(4/3) + 1.
    a, b = (np.log(2) + 1) ** 2, (np.log(4 / 3) + 1) ** 2
    assert scores.values == pytest.approx([((1 + np.log(2)) * a + b) / 2, b, 0.0], abs=1e-12)


def test_scores_of_nothing():
    postings, vocabulary = postings_of([[], ["", ""]])
    queries = queries_of(["a", "a", ""], [0, 1, 1], vocabulary)
    for score in (overlap_scores, tfidf_scores):
        assert score(postings, queries).values.tolist() == [0, 0, 0, 0]
    assert drop_common(queries, postings).terms.tolist() == [-1, -1]
