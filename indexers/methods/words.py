"""Question and interaction compared word by word: shared words, near words, and centroids of words' vectors."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from indexers import words
from indexers.batch import Batch, RankStats
from indexers.csr import Bools
from indexers.embedders import Rows
from indexers.explain import Explanation, Part
from indexers.explain.blends import of_question, scores_of
from indexers.methods._options import Window
from indexers.postings import Postings, Queries
from indexers.presets import Preset
from indexers.queries import questions_to_queries
from indexers.scores import Ints, Scores
from indexers.vectors import Vectors, cosine
from schemas.options import Section
from transforms.stems import STOP_WORDS, stemmed
from transforms.tokens import Tokens, tokenize

NAME = "words"
VERSION = 1

_TOLD = {
    "coverage": "share of the question's idf that the interaction holds",
    "soft": "best cosine of each of the question's words with one of the interaction's, by idf",
    "centroid": "cosine of the sums of words' vectors by count and idf",
}


_FIELDS = {"all": "stem", "user": "user"}


class Options(Section):
    """What is compared."""

    score: Literal["coverage", "soft", "centroid"] = Field(
        "soft",
        description="coverage: share of the question's idf (over stems) that is held; soft: the nearest word of each "
        "of its words; centroid: sums of words' vectors",
    )
    side: Literal["all", "user"] = Field("all", description="user: what the user said alone (coverage only)")
    window: Window = Window()  # type: ignore[call-arg]


def units(options: Options) -> tuple[str, ...]:
    """Return the units read."""
    if options.score == "coverage":
        return (f"index/{_FIELDS[options.side]}",)
    return ("index/raw", "embed/words")


def scores(preset: Preset, batch: Batch, stats: RankStats) -> Scores:
    """Score interactions by their words."""
    own: Options = preset.options
    if own.score == "coverage":
        kept = batch.once(("first stems",), lambda: _first(_stems(batch)))
        field = _FIELDS[own.side]
        return words.coverage(_postings(own, batch, field), batch.queries(f"index/{field}", field), kept)
    postings = _postings(own, batch, "raw")
    queries, vectors, rows, kept = batch.once(("word rows",), lambda: word_rows(batch))
    if own.score == "soft":
        return words.soft_matches(postings, queries, vectors, rows, kept)
    key = ("centroids", own.window.reach)
    own_words = batch.shard.vectors("embed/words").vectors.values
    held = batch.shard.once(key, lambda: words.centroids(postings, own_words))
    asked = words.query_centroids(postings, queries, vectors, rows)
    return cosine(asked, batch.case, Vectors(batch.shard.cases, postings.document_offsets, held))


def _postings(own: Options, batch: Batch, field: str) -> Postings:
    if not own.window.reach:
        return batch.shard.postings(f"index/{field}", field)
    return batch.shard.by_window(f"index/{field}", field, own.window.reach)


def _stems(batch: Batch) -> Tokens:
    return stemmed(tokenize(batch.questions["question"].combine_chunks()), batch.shard.language)


def _first(tokens: Tokens) -> Bools:
    """Tell for each token whether its text has not had it before."""
    text = np.repeat(np.arange(len(tokens.offsets) - 1), np.diff(tokens.offsets))
    first = np.zeros(len(tokens.ids), np.bool_)
    first[np.unique(text * (len(tokens.terms) + 1) + tokens.ids, return_index=True)[1]] = True
    return first


def word_rows(batch: Batch) -> tuple[Queries, Rows, Ints, Bools]:
    """Return the questions' words as terms of ``index/raw``, vectors of words, the row of each one, and what counts.

    Stop words, and words that the question has said before, do not count.
    """
    texts = batch.questions["question"].combine_chunks()
    queries = questions_to_queries(texts, batch.case, batch.shard.vocabulary("index/raw"))
    tokens = tokenize(texts)
    known = batch.shard.vectors("embed/words")
    vectors = known.vectors.values
    found = pc.index_in(tokens.terms, value_set=known.keys)
    place = pc.fill_null(found, -1).to_numpy(zero_copy_only=False).astype(np.int64)
    new = np.flatnonzero(place < 0)
    if len(new):
        added = batch.embedding.words(tokens.terms.take(pa.array(new)).to_pylist())
        place[new] = len(vectors) + np.arange(len(new))
        vectors = np.concatenate([vectors, added])
    rows = place[tokens.ids]
    stop = np.asarray(
        pc.is_in(tokens.terms, value_set=pa.array(sorted(STOP_WORDS.get(batch.shard.language, ())), pa.string()))
    )
    return queries, vectors, rows, _first(tokens) & ~stop[tokens.ids]


def explain(preset: Preset, batch: Batch, question: int, document: int) -> Explanation:
    """Tell the score as a whole; it is a share or a cosine, and no sum."""
    own: Options = preset.options
    score = float(of_question(scores_of(preset, batch), question)[document])
    if score:
        return Explanation(_TOLD[own.score], score, (Part("vector", own.score, score),))
    nothing = {"coverage": "it holds no word of the question", "centroid": "the cosine is not above 0"}
    return Explanation(_TOLD[own.score], 0.0, (), (nothing.get(own.score, "no word is near one of the question"),))
