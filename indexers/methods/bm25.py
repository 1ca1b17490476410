"""BM25 over the words of interactions, of their notes, or over stems."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from indexers import bm25
from indexers.batch import Batch, RankStats
from indexers.explain import Explanation
from indexers.explain.terms import asked, explain_terms
from indexers.methods._options import Text, Window
from indexers.postings import Postings, Queries
from indexers.presets import Preset
from indexers.scores import Scores, spread_over
from schemas.options import Section

NAME = "bm25"
VERSION = 1

_WHAT = {
    "raw": "the interaction",
    "note": "the interaction and its note",
    "stem": "the interaction's stems",
    "user": "the stems of what the user said",
}


class Options(Section):
    """Numbers of BM25."""

    text: Text = Text()  # type: ignore[call-arg]
    idf: Literal["okapi", "lucene"] = Field("okapi", description="okapi: as rank-bm25; lucene: never negative")
    k1: float = Field(1.5, ge=0, description="Saturation of term counts")
    b: float = Field(0.75, ge=0, le=1, description="Share of length normalisation")
    epsilon: float = Field(0.25, ge=0, description="Share of the mean idf that stands in for negative ones (okapi)")
    unit: Literal["interaction", "session"] = Field(
        "interaction", description="What is a document; with session, an interaction has the score of its session"
    )
    window: Window = Window()  # type: ignore[call-arg]


def units(options: Options) -> tuple[str, ...]:
    """Return the units read."""
    return (f"index/{options.text.field}",)


def scores(preset: Preset, batch: Batch, stats: RankStats) -> Scores:
    """Score documents by BM25."""
    own: Options = preset.options
    found = _of_documents(own, batch, batch.queries(f"index/{own.text.field}", own.text.field, own.text.stopword_share))
    return found if own.unit == "interaction" else spread(found, batch)


def _of_documents(own: Options, batch: Batch, queries: Queries) -> Scores:
    shard, postings = batch.shard, _postings(own, batch)
    weights = shard.once(
        ("bm25", own.text.field, own.unit, own.window.reach, own.idf, own.k1, own.b, own.epsilon),
        lambda: bm25.bm25_weights(postings, own.k1, own.b, own.epsilon, own.idf),
    )
    return bm25.bm25_scores(postings, queries, weights=weights)


def _postings(own: Options, batch: Batch) -> Postings:
    unit, field = f"index/{own.text.field}", own.text.field
    if own.unit == "session":
        return batch.shard.by_session(unit, field)
    if own.window.reach:
        return batch.shard.by_window(unit, field, own.window.reach)
    return batch.shard.postings(unit, field)


def explain(preset: Preset, batch: Batch, question: int, document: int) -> Explanation:
    """Tell what each word adds."""
    own: Options = preset.options
    shard, unit, field = batch.shard, f"index/{own.text.field}", own.text.field
    sessions = own.unit == "session"
    wider = ", and over the rest of its session" if sessions else ", and over its neighbours" * bool(own.window.reach)
    what = _WHAT[field]
    return explain_terms(
        f"BM25 over {what}" + wider,
        lambda queries: _of_documents(own, batch, queries),
        _postings(own, batch),
        batch.queries(unit, field, own.text.stopword_share),
        question,
        int(shard.session[shard.offsets[batch.case[question]] + document]) if sessions else document,
        asked(batch, question, unit, field),
        raw=shard.postings("index/raw", "raw") if field == "note" and not wider else None,
        noun="session" if sessions else "file",
    )


def spread(sessions: Scores, batch: Batch) -> Scores:
    """Give every interaction the score of its session."""
    offsets, place = spread_over(batch.case, batch.shard.offsets)
    first = np.repeat(sessions.offsets[:-1], np.diff(offsets))
    return Scores(offsets, sessions.values[first + batch.shard.session[place]])
