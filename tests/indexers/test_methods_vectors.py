"""Methods over vectors alone, and OpenClaw's hybrid: against numpy, against SQLite's own FTS5, and by hand."""

import sqlite3
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexers import postings as lists
from indexers import presets
from indexers.methods import openclaw
from tests.indexers.drawn import Case, batch, preset, scored, table_of, unit
from transforms.tokens import tokenize

DAY = datetime(2024, 5, 1, tzinfo=UTC)


def direct_coarse(case, question, most):
    """Coarse to fine, one session and one file at a time."""
    vectors = [unit(vector).astype(float) for vector in case.files]
    asked = unit(question).astype(float)
    names = list(dict.fromkeys(case.sessions))
    means = [np.mean([v for v, s in zip(vectors, case.sessions, strict=True) if s == name], axis=0) for name in names]
    near = [unit(mean).astype(float) @ asked for mean in means]
    inside = [names[i] for i in sorted(range(len(names)), key=lambda i: -near[i])[:most] if near[i] > 1e-9]
    return [max(v @ asked, 0) if s in inside else 0 for v, s in zip(vectors, case.sessions, strict=True)]


def random_case(seed, sizes, width):
    rng = np.random.default_rng(seed)
    sessions = [f"s{n}" for n, size in enumerate(sizes) for _ in range(size)]
    return Case([rng.normal(size=width).tolist() for _ in sessions], sessions)


@pytest.mark.parametrize("width", [1, 2, 16])
def test_coarse_to_fine_equals_means_by_numpy(width):
    cases = {"a": random_case(1, [3, 1, 4, 2, 2], width), "b": random_case(2, [5], width)}
    rng = np.random.default_rng(3)
    asked = [(name, rng.normal(size=width)) for name in ("b", "a", "a", "b", "a")]
    for most in (1, 2, 3, 9):
        parts, _ = scored(preset(method="coarse", sessions=most), batch(cases, asked))
        for (name, question), part in zip(asked, parts, strict=True):
            assert part == pytest.approx(direct_coarse(cases[name], question, most), abs=1e-6)


def test_a_session_is_near_by_its_mean_and_not_by_its_best():
    # Session s has the best file, (1, 0), and points away from the question on the whole; t is near in all.
    case = Case([[1, 0], [-1, 0.1], [-1, 0.1], [0.8, 0.6]], ["s", "s", "s", "t"])
    parts, _ = scored(preset(method="coarse", sessions=1), batch({"a": case}, [("a", [1, 0])]))
    assert parts[0] == pytest.approx([0, 0, 0, 0.8], abs=1e-6)
    assert presets.get("coarse-to-fine").options.sessions == 3


def test_sessions_that_are_alike_come_in_the_order_of_their_case():
    # The other case has the same sessions in another order.
    alike = Case([[1, 0], [1, 0], [1, 0]], ["x", "y", "z"])
    turned = Case([[1, 0], [1, 0], [1, 0]], ["z", "y", "x"])
    one = preset(method="coarse", sessions=1)
    for cases in ({"a": alike, "b": turned}, {"b": turned, "a": alike}, {"b": turned}):
        parts, _ = scored(one, batch(cases, [("b", [1, 0])]))
        assert parts[0].tolist() == [1, 0, 0]


@pytest.mark.parametrize("name", ["dense", "coarse-to-fine"])
def test_nothing_to_see_is_not_retrieved(name):
    # A zero vector is a text without a word that the embedder knows.
    cases = {"a": Case([[0, 0], [1, 0], [-1, 0]], ["s", "t", "u"]), "b": Case([[0, 0]])}
    parts, _ = scored(presets.get(name), batch(cases, [("a", [1, 0]), ("a", [0, 0]), ("b", [1, 0]), ("b", [0, 0])]))
    assert [part.tolist() for part in parts] == [[0, 1, 0], [0, 0, 0], [0], [0]]


def indexed(cases, texts, asked):
    """Return a batch whose chunks have these texts: by case, by interaction, by chunk."""
    flat = [piece for name in cases for own in texts[name] for piece in own]
    counts = [sum(map(len, texts[name])) for name in cases]
    tokens = tokenize(pa.array(flat, pa.string()))
    made = lists.build_postings(tokens, np.concatenate([[0], np.cumsum(counts)]))
    tables = {
        ("index/chunk", "postings"): lists.to_table(made, list(cases), "chunk"),
        ("index/chunk", "vocabulary"): lists.vocabulary_table(tokens.terms),
    }
    other = table_of(cases, "concept")
    return batch(cases, asked, tables_of=lambda unit, name: tables.get((unit, name)) or other(unit, name))


def fts5(chunks, words):
    """Return OpenClaw's text score of each chunk, by SQLite itself."""
    base = sqlite3.connect(":memory:")
    try:
        base.execute("create virtual table t using fts5(body)")
    except sqlite3.OperationalError:
        pytest.skip("this Python's SQLite has no FTS5")
    base.executemany("insert into t(rowid, body) values (?, ?)", enumerate(chunks))
    found = [0.0] * len(chunks)
    if words:
        match = " AND ".join(f'"{word}"' for word in words)
        for row, rank in base.execute("select rowid, bm25(t) from t where t match ?", [match]):
            found[row] = -rank / (1 - rank) if rank < 0 else 1 / (1 + rank)
    return found


words = st.lists(st.sampled_from(["ann", "bob", "rome", "tea", "dog"]), max_size=7)


@given(st.lists(words, min_size=1, max_size=8), words.map(lambda found: found[:4]))
@settings(max_examples=30, deadline=None)
def test_the_text_arm_equals_sqlite(documents, asked):
    chunks = [" ".join(document) for document in documents]
    case = Case([[1, 0]] * len(chunks))
    other = Case([[1, 0]] * 2)
    texts = {"other": [["ann tea"], ["ann"]], "a": [[chunk] for chunk in chunks]}
    made = indexed({"other": other, "a": case}, texts, [("a", [1, 0], " ".join(asked)), ("other", [1, 0], "tea?")])
    found = openclaw.full_text(made)
    assert found.values[: len(chunks)] == pytest.approx(fts5(chunks, asked), rel=1e-9, abs=1e-12)
    assert found.values[len(chunks) :] == pytest.approx(fts5(["ann tea", "ann"], ["tea"]), rel=1e-9)


def test_every_word_must_be_held():
    made = indexed(
        {"a": Case([[1, 0]] * 3)},
        {"a": [["ann had tea"], ["ann had milk"], ["bob had tea"]]},
        [("a", [1, 0], text) for text in ("Ann tea", "ann zebra", "", "tea tea")],
    )
    held = openclaw.full_text(made).values.reshape(4, 3) > 0
    assert held.tolist() == [[1, 0, 0], [0, 0, 0], [0, 0, 0], [1, 0, 1]]


CASE = Case(
    files=[[1, 0], [0, 1], [0.6, 0.8], [0, 1]],
    chunks=[[[0.6, 0.8], [1, 0]], [[0, 1]], [[0.8, 0.6], [0, 1], [-1, 0]], [[0, 1]]],
    started=[DAY - timedelta(days=30), DAY, None, DAY + timedelta(days=90)],
)
TEXTS = [["tea", "milk"], ["tea tea"], ["milk", "tea and cake", "rome"], ["bread"]]


def test_an_interaction_has_the_score_of_its_best_chunk():
    made = indexed({"a": CASE}, {"a": TEXTS}, [("a", [1, 0], "tea")])
    flat = [piece for own in TEXTS for piece in own]
    text = fts5(flat, ["tea"])
    cosines = [0.6, 1, 0, 0.8, 0, 0, 0]
    total = [0.7 * c + 0.3 * t for c, t in zip(cosines, text, strict=True)]
    wanted = [max(total[:2]), total[2], max(total[3:6]), 0]
    assert scored(presets.get("openclaw"), made)[0][0] == pytest.approx(wanted, abs=1e-6)
    # Only the best chunk of each arm: the second by cosine; "tea tea" by words.
    assert total[2] > 0
    one = scored(preset(base="openclaw", candidates=1), made)[0][0]
    assert one == pytest.approx([0.7, total[2], 0, 0], abs=1e-6)
    heavy = scored(preset(base="openclaw", weights={"dense": 0, "text": 2}), made)[0][0]
    assert heavy == pytest.approx([2 * text[0], 2 * text[2], 2 * text[4], 0], abs=1e-6)


def test_the_cut_drops_what_only_words_find():
    made = indexed({"a": CASE}, {"a": TEXTS}, [("a", [1, 0], "tea")])
    full, cut = scored(presets.get("openclaw"), made)[0][0], scored(presets.get("openclaw-minscore"), made)[0][0]
    assert full[1] > 0  # "tea tea" has the words and no cosine
    assert cut.tolist() == [full[0], 0, full[2], 0]
    assert min(full[0], full[2]) >= 0.35


def test_age_halves_a_score_and_what_has_no_time_keeps_its_own():
    later = DAY + timedelta(days=60)
    asked = [("a", [1, 0], "tea", DAY), ("a", [1, 0], "tea", later), ("a", [1, 0], "tea", None)]
    made = indexed({"a": CASE}, {"a": TEXTS}, asked)
    plain = scored(presets.get("openclaw"), made)[0][0]
    parts = scored(preset(base="openclaw", half_life_days=30), made)[0]
    assert parts[0] == pytest.approx(plain * [0.5, 1, 1, 1])
    assert parts[1] == pytest.approx(plain * [0.125, 0.25, 1, 1])  # the last one is later than the question
    assert parts[2].tolist() == plain.tolist()


def test_interaction_ids_may_look_like_chunks(monkeypatch):
    case = Case([[1, 0], [0, 1]], chunks=[[[0, 1], [1, 0]], [[0, 1]]])
    made = indexed({"a": case}, {"a": [["x", "y"], ["z"]]}, [("a", [1, 0], "")])
    keys = pa.array(["i#0#0", "i#0#1", "i#1#0"])
    held = made.shard.vectors("embed/chunks")
    monkeypatch.setattr(made.shard, "vectors", lambda unit: type(held)(held.vectors, keys))
    assert scored(presets.get("openclaw"), made)[0][0] == pytest.approx([0.7, 0], abs=1e-6)
