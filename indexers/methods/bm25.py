"""BM25 over the words of interactions, of their notes, or over stems."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from indexers import bm25
from indexers.batch import Batch, RankStats
from indexers.methods._options import Text
from indexers.presets import Preset
from indexers.scores import Scores
from schemas.options import Section

NAME = "bm25"
VERSION = 1


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


def units(options: Options) -> tuple[str, ...]:
    """Return the units read."""
    return (f"index/{options.text.field}",)


def scores(preset: Preset, batch: Batch, stats: RankStats) -> Scores:
    """Score documents by BM25."""
    own: Options = preset.options
    unit, field = f"index/{own.text.field}", own.text.field
    queries = batch.queries(unit, field, own.text.stopword_share)
    shard = batch.shard
    postings = shard.postings(unit, field) if own.unit == "interaction" else shard.by_session(unit, field)
    weights = shard.once(
        ("bm25", unit, own.unit, own.idf, own.k1, own.b, own.epsilon),
        lambda: bm25.bm25_weights(postings, own.k1, own.b, own.epsilon, own.idf),
    )
    found = bm25.bm25_scores(postings, queries, weights=weights)
    return found if own.unit == "interaction" else spread(found, batch)


def spread(sessions: Scores, batch: Batch) -> Scores:
    """Give every interaction the score of its session."""
    shard, case = batch.shard, batch.case
    size = np.diff(shard.offsets)[case]
    offsets = np.concatenate([[0], np.cumsum(size)])
    place = np.arange(offsets[-1]) + np.repeat(shard.offsets[case] - offsets[:-1], size)
    return Scores(offsets, sessions.values[np.repeat(sessions.offsets[:-1], size) + shard.session[place]])
