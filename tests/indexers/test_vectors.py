import importlib.util

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexers import vectors
from indexers.embedders import wordllama
from indexers.vectors import Vectors, cosine, embed_rows, matrix, nearest, synonyms
from schemas.errors import MissingDependencyError, SchemaError
from schemas.ids import content_hash
from schemas.tables import schema


class Counting:
    """A real embedder that remembers what it was asked."""

    def __init__(self, prefix=""):
        self.inner = wordllama.open(None, wordllama.Options())
        self.prefixes = {"document": "", "query": prefix}
        self.counts = {}
        self.asked = []

    def embed(self, texts, purpose):
        self.asked.append(list(texts))
        return self.inner.embed([self.prefixes[purpose] + text for text in texts], purpose)

    def close(self):
        self.inner.close()


@pytest.fixture(scope="module")
def shared():
    return Counting()


@pytest.fixture
def counting(shared):
    shared.asked, shared.prefixes = [], {"document": "", "query": ""}
    return shared


def rows(*texts, case="a"):
    return pa.table(
        {
            "case_id": pa.array([case] * len(texts), pa.string()),
            "kind": pa.array(["interaction"] * len(texts), pa.string()),
            "key": pa.array([str(number) for number in range(len(texts))], pa.string()),
            "text": pa.array(texts, pa.large_string()),
        }
    )


def random_rows(number, seed=0, d=24):
    found = np.random.default_rng(seed).normal(size=(number, d))
    return (found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float32)


# Embedding


def test_a_text_is_embedded_once_and_stands_in_every_row(counting):
    made = embed_rows(rows("red", "green", "red", "", " \n"), counting, "document", batch=2)
    assert counting.asked == [["red", "green"], ["", " \n"]]
    assert made.schema == schema("vectors")
    assert made["key"].to_pylist() == ["0", "1", "2", "3", "4"]
    found = matrix(made).values
    assert found[0].tobytes() == found[2].tobytes() != found[1].tobytes()
    assert not found[3:].any()
    hashes = made["content_hash"].to_pylist()
    assert hashes[0] == hashes[2] == content_hash(["red"])
    assert hashes[3] == hashes[4] == content_hash([""])


def test_known_texts_are_not_embedded_again_and_bytes_are_the_same(counting):
    before = embed_rows(rows("red", "green", ""), counting, "document")
    counting.asked = []
    known = before.select(["content_hash", "vector"]).slice(1)
    made = embed_rows(rows("blue", "green", "red", "green"), counting, "document", known)
    assert counting.asked == [["blue", "red"]]
    fresh = embed_rows(rows("blue", "green", "red", "green"), counting, "document")
    assert made.equals(fresh)
    counting.asked = []
    assert embed_rows(rows("green"), counting, "document", pa.concat_tables([known, known])).num_rows == 1
    assert counting.asked == []


def test_float16_rounds_values_and_keeps_their_type(counting):
    made = matrix(embed_rows(rows("red", "blue"), counting, "document")).values
    exact = matrix(embed_rows(rows("red", "blue"), counting, "document", dtype="float32")).values
    assert made.dtype == exact.dtype == np.float32
    assert np.array_equal(made, made.astype(np.float16).astype(np.float32))
    assert not np.array_equal(made, exact)
    assert made == pytest.approx(exact, abs=2**-12)


def test_a_prefix_is_part_of_the_hash(counting):
    counting.prefixes = {"document": "", "query": "q: "}
    asked = embed_rows(rows("red", " "), counting, "query")
    assert asked["content_hash"].to_pylist() == [content_hash(["q: red"]), content_hash([""])]
    told = embed_rows(rows("q: red"), counting, "document")
    assert told["content_hash"][0] == asked["content_hash"][0]
    assert told["vector"][0] == asked["vector"][0]


def test_vectors_of_another_model_are_not_mixed_in(counting):
    known = pa.table({"content_hash": [content_hash(["red"])], "vector": pa.array([[1.0]], pa.list_(pa.float32()))})
    with pytest.raises(SchemaError, match="of 1 and of 256 dimensions"):
        embed_rows(rows("red", "green"), counting, "document", known)


def test_nothing_to_embed(counting):
    made = embed_rows(rows(), counting, "document")
    assert made.schema == schema("vectors")
    assert (made.num_rows, counting.asked) == (0, [])
    assert matrix(made).values.shape == (0, 0)
    assert cosine(random_rows(2), np.zeros(2, np.int64), matrix(made, ["a"])).values.tolist() == []


def test_the_cut_into_batches_and_shards_changes_no_byte(counting):
    texts = [f"word{number % 7} and {number}" for number in range(40)]
    whole = embed_rows(rows(*texts), counting, "document")
    assert embed_rows(rows(*texts), counting, "document", batch=3).equals(whole)
    halves = [embed_rows(rows(*part), counting, "document") for part in (texts[:11], texts[11:])]
    parts = [matrix(half).values for half in halves]
    assert np.concatenate(parts).tobytes() == matrix(whole).values.tobytes()


def test_offsets_that_would_overflow_make_further_chunks(counting, monkeypatch):
    texts = [f"word{number}" for number in range(7)]
    whole = embed_rows(rows(*texts), counting, "document")
    monkeypatch.setattr(vectors, "_OFFSETS", 3 * 256 + 1)
    made = embed_rows(rows(*texts), counting, "document")
    assert [len(chunk) for chunk in made["vector"].chunks] == [3, 3, 1]
    assert made.combine_chunks().equals(whole.combine_chunks())
    assert matrix(made).values.tobytes() == matrix(whole).values.tobytes()


# Reading


def table(*cases, d=2):
    """Make a `vectors` table with a row (case number, row number) for each row of each (case, rows)."""
    flat = [(case, [float(number)] * d) for case, count in cases for number in range(count)]
    return pa.table(
        {
            "case_id": pa.array([case for case, _ in flat], pa.string()).dictionary_encode(),
            "vector": pa.array([values for _, values in flat], schema("vectors").field("vector").type),
        }
    )


def test_a_table_in_one_piece_is_read_without_a_copy():
    one = table(("b", 2), ("a", 3))
    read = matrix(one)
    assert read.case_ids == ("b", "a")
    assert read.offsets.tolist() == [0, 2, 5]
    assert np.shares_memory(read.values, one["vector"].chunk(0).flatten().to_numpy())
    assert read.values.flags.c_contiguous
    cut = matrix(one.slice(2))
    assert (cut.case_ids, cut.values.tolist()) == (("a",), [[0, 0], [1, 1], [2, 2]])


def test_pieces_and_another_order_of_cases():
    pieces = pa.concat_tables([table(("b", 2)), table(("a", 3))])
    assert matrix(pieces).values.tolist() == [[0, 0], [1, 1], [0, 0], [1, 1], [2, 2]]
    read = matrix(pieces, ["a", "none", "b"])
    assert read.offsets.tolist() == [0, 3, 3, 5]
    assert read.values.tolist() == [[0, 0], [1, 1], [2, 2], [0, 0], [1, 1]]
    assert matrix(pieces, []).values.shape == (0, 2)


def test_scattered_cases_and_ragged_vectors_are_refused():
    with pytest.raises(SchemaError, match="do not stand together"):
        matrix(pa.concat_tables([table(("a", 1)), table(("b", 1)), table(("a", 1))]))
    for ragged in (
        pa.concat_tables([table(("a", 1)), table(("b", 1), d=3)]),
        pa.concat_tables([table(("a", 1)), table(("b", 1), d=3)]).combine_chunks(),
    ):
        with pytest.raises(SchemaError, match="differ in length"):
            matrix(ragged)


# Cosines


def test_cosines_by_hand():
    documents = Vectors(
        ("a", "b", "c"), np.array([0, 2, 2, 5]), np.array([[1, 0], [0.6, 0.8], [0, 1], [-1, 0], [0, 0]])
    )
    questions = np.array([[1, 0], [0.6, 0.8], [0, 0]], np.float32)
    found = cosine(questions, np.array([2, 0, 0]), documents)
    assert found.offsets.tolist() == [0, 3, 5, 7]
    assert found.values == pytest.approx([0, 0, 0, 0.6, 1.0, 0, 0], abs=1e-7)
    assert found.values[[0, 1, 2, 5, 6]].tolist() == [0.0] * 5
    assert cosine(questions, np.array([1, 1, 1]), documents).offsets.tolist() == [0, 0, 0, 0]


def test_a_vector_is_like_itself_to_the_last_bit_and_rounding_to_float16_does_not_matter():
    some = random_rows(50)
    short = some.astype(np.float16).astype(np.float32)
    for one in (some, short):
        documents = Vectors(("a",), np.array([0, 50]), one)
        own = cosine(one, np.zeros(50, np.int64), documents).values.reshape(50, 50)
        assert np.diag(own).tolist() == [1.0] * 50
        assert np.array_equal(own, own.T)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_cosines_are_those_of_float64_and_no_company_changes_a_bit(data):
    sizes = data.draw(st.lists(st.integers(0, 30), min_size=1, max_size=4))
    count = data.draw(st.integers(1, 40))
    case = np.array(data.draw(st.lists(st.integers(0, len(sizes) - 1), min_size=count, max_size=count)))
    documents = Vectors(
        tuple(map(str, range(len(sizes)))), np.append(0, np.cumsum(sizes)), random_rows(sum(sizes), 1, d=33)
    )
    questions = random_rows(count, 2, d=33)
    whole = cosine(questions, case, documents)
    for question in range(count):
        one = cosine(questions[question : question + 1], case[question : question + 1], documents).values
        low, high = documents.offsets[case[question] :][:2]
        exact = documents.values[low:high].astype(np.float64) @ questions[question].astype(np.float64)
        assert one == pytest.approx(np.maximum(exact, 0), abs=1e-6)
        assert one.tobytes() == whole.values[whole.offsets[question] : whole.offsets[question + 1]].tobytes()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vectors, "_BLOCK", 33 * 5)
        patch.setattr(vectors, "_QUESTIONS", 3)
        assert cosine(questions, case, documents).values.tobytes() == whole.values.tobytes()


def test_sums_are_exact_whole_numbers():
    """The claim that the module rests on, in Python's integers."""
    one, other = (vectors._Whole(random_rows(3, seed, d=768)) for seed in (1, 2))
    products = one.units @ other.units.T
    for i in range(3):
        for j in range(3):
            exact = sum(int(a) * int(b) for a, b in zip(one.units[i], other.units[j], strict=True))
            assert int(products[i, j]) == exact


@pytest.mark.parametrize("bad", [[2.0, 0.0], [np.nan, 0.0], [np.inf, 0.0]])
def test_vectors_that_are_none_are_refused(bad):
    good, bad = np.array([[1, 0]], np.float32), np.array([bad], np.float32)
    for question, document in ((good, bad), (bad, good)):
        with pytest.raises(SchemaError, match="longer than 1 or not finite"):
            cosine(question, np.array([0]), Vectors(("a",), np.array([0, 1]), document))


def test_other_dimensions_are_refused():
    with pytest.raises(SchemaError, match="of 3 and of 2 dimensions"):
        cosine(random_rows(1, d=3), np.array([0]), Vectors(("a",), np.array([0, 1]), random_rows(1, d=2)))


# Neighbours


def by_sorting(questions, data, top, least=-1.0):
    """Return what `nearest` should: sorted by cosine and row."""
    places, values = [], []
    for row in vectors._Whole(questions).cosines(vectors._Whole(data)).tolist():
        best = sorted((-value, place) for place, value in enumerate(row) if value >= least)[:top]
        places.append([place for _, place in best] + [-1] * (top - len(best)))
        values.append([-value for value, _ in best] + [0.0] * (top - len(best)))
    return places, values


@settings(max_examples=80, deadline=None)
@given(
    st.integers(0, 9), st.integers(0, 60), st.integers(1, 8), st.integers(1, 12), st.sampled_from([-1.0, 0.1, 0.5, 1.0])
)
def test_neighbours_in_blocks_are_those_of_sorting_and_equal_ones_go_by_row(questions, count, distinct, top, least):
    data = random_rows(distinct, 3)[np.random.default_rng(4).integers(0, distinct, count)].reshape(count, 24)
    asked = np.concatenate([random_rows(questions, 5), data[:3]])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vectors, "_BLOCK", 24 * 7)
        patch.setattr(vectors, "_QUESTIONS", 4)
        found, values = nearest(asked, data, top, least)
    assert (found.tolist(), values.tolist()) == by_sorting(asked, data, top, least)


def test_synonyms_by_hand():
    angles = np.radians([0, 10, 20, 90, 95, 180])
    fan = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    low, high, values = synonyms(fan, float(np.cos(np.radians(15))))
    assert list(zip(low.tolist(), high.tolist(), strict=True)) == [(0, 1), (1, 2), (3, 4)]
    assert values == pytest.approx(np.cos(np.radians([10, 10, 5])), abs=1e-6)


def test_synonyms_are_capped_for_each_vector_and_named_by_either():
    same = np.repeat(np.array([[1, 0]], np.float32), 30, axis=0)
    low, high, _ = synonyms(same, 0.8, top=2)
    assert list(zip(low.tolist(), high.tolist(), strict=True))[:3] == [(0, 1), (0, 2), (0, 3)]
    assert len(low) <= 2 * 30
    assert (low < high).all()
    assert len(synonyms(np.zeros((4, 2), np.float32), 0.8)[0]) == 0
    assert len(synonyms(np.zeros((0, 2), np.float32), 0.8)[0]) == 0


@pytest.mark.skipif(importlib.util.find_spec("faiss") is not None, reason="faiss is installed")
def test_more_pairs_than_are_exact_need_a_library():
    with pytest.raises(MissingDependencyError, match=r"5 among 9 vectors.*faiss.*\n.*pip install"):
        nearest(random_rows(5), random_rows(9), 2, exact_pairs=44)


def test_an_approximate_index_finds_nearly_all_and_the_same_again():
    pytest.importorskip("faiss")
    centers = random_rows(50, 7)
    noise = 0.3 * random_rows(4000, 8)
    data = centers[np.arange(4000) % 50] + noise
    data = (data / np.linalg.norm(data, axis=1, keepdims=True)).astype(np.float32)
    asked = data[::40] + np.float32(0)
    exact, values = nearest(asked, data, 10)
    found, near = nearest(asked, data, 10, exact_pairs=0)
    shares = [len(set(one) & set(other)) / 10 for one, other in zip(exact.tolist(), found.tolist(), strict=True)]
    assert np.mean(shares) >= 0.95
    same = found == exact
    assert near[same].tolist() == values[same].tolist()
    assert nearest(asked, data, 10, exact_pairs=0)[0].tobytes() == found.tobytes()
    assert nearest(asked[:2], data[:3], 5, exact_pairs=0)[0].tolist() == nearest(asked[:2], data[:3], 5)[0].tolist()
    pairs = {tuple(pair) for pair in np.stack(synonyms(data[:1000], 0.9)[:2], axis=1).tolist()}
    near_pairs = {tuple(pair) for pair in np.stack(synonyms(data[:1000], 0.9, exact_pairs=0)[:2], axis=1).tolist()}
    assert len(pairs & near_pairs) >= 0.95 * len(pairs)
