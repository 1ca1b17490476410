"""OpenClaw's hybrid search: chunks of raw text by cosine and by full-text search, .7 and .3.

After OpenClaw's source at 0031734: tokens joined with AND and SQLite's bm25 rank r, which gives ``-r / (1 - r)``; each
arm gives its best candidates, and what an arm lacks counts 0. An interaction has the score of its best chunk.
"""

from __future__ import annotations

import numpy as np
import pyarrow.compute as pc
from pydantic import Field

from indexers import bm25
from indexers.batch import Batch, RankStats
from indexers.presets import Preset
from indexers.queries import distinct, gather, token_rows
from indexers.scores import Floats, Ints, Scores, best_of, spread_over
from indexers.vectors import cosine
from schemas.options import Section

NAME = "openclaw"
VERSION = 1

_DAY = 86_400e6


class Weights(Section):
    """Shares of the arms."""

    dense: float = Field(0.7, ge=0, description="Weight of the cosine")
    text: float = Field(0.3, ge=0, description="Weight of the full-text score")


class Options(Section):
    """Numbers of the search."""

    weights: Weights = Weights()  # type: ignore[call-arg]
    candidates: int = Field(200, ge=1, description="Chunks that each arm gives")
    min_score: float | None = Field(None, ge=0, le=1, description="What scores less is dropped")
    half_life_days: float | None = Field(
        None, gt=0, description="Age at question time that halves a score; none takes no account of age"
    )


def units(options: Options) -> tuple[str, ...]:
    """Return the units read."""
    return ("index/chunk", "embed/chunks", "embed/questions")


def scores(preset: Preset, batch: Batch, stats: RankStats) -> Scores:
    """Score interactions by their best chunk."""
    own: Options = preset.options
    chunks = batch.shard.vectors("embed/chunks")
    dense = cosine(batch.vectors(), batch.case, chunks.vectors)
    text = full_text(batch)
    total = own.weights.dense * np.where(best_of(dense, own.candidates), dense.values, 0.0)
    total += own.weights.text * np.where(best_of(text, own.candidates), text.values, 0.0)
    starts, place = spread_over(batch.case, batch.shard.offsets)
    _, chunk = spread_over(batch.case, chunks.vectors.offsets)
    home = np.cumsum(np.asarray(pc.ends_with(chunks.keys, "#0"))) - 1
    question = np.repeat(np.arange(len(batch.case)), np.diff(dense.offsets))
    file = starts[question] + home[chunk] - batch.shard.offsets[batch.case[question]]
    values = np.zeros(int(starts[-1]))
    np.maximum.at(values, file, total)
    if own.half_life_days is not None:
        values *= np.exp2(-_age(batch, starts, place) / own.half_life_days)
    if own.min_score is not None:
        values[values < own.min_score] = 0.0
    return Scores(starts, values)


def full_text(batch: Batch) -> Scores:
    """Score the chunks that hold every word of the question, as SQLite's FTS5 does, brought to [0, 1)."""
    unit, field = "index/chunk", "chunk"
    postings, queries = batch.shard.postings(unit, field), batch.queries(unit, field)
    weights = batch.shard.once(("fts5",), lambda: bm25.bm25_weights(postings, 1.2, 0.75, idf_form="fts5"))
    found = bm25.bm25_scores(postings, queries, weights=weights)
    once = distinct(queries)
    rows = token_rows(postings, once)
    held = gather(postings, once, rows, np.ones(len(rows)))
    wanted = np.repeat(np.diff(once.offsets), np.diff(found.offsets))
    values = np.where(held.values >= np.maximum(wanted, 1), found.values, 0.0)
    return Scores(found.offsets, values / (1 + values))


def _age(batch: Batch, starts: Ints, place: Ints) -> Floats:
    """Return the days from each interaction to its question; 0 where either has no time, or for what is later."""
    began = _micros(batch.shard.interactions["started_at"])
    asked = _micros(batch.questions["asked_at"])
    days = (np.repeat(asked, np.diff(starts)) - began[place]) / _DAY
    return np.maximum(np.nan_to_num(days), 0.0)


def _micros(column: object) -> Floats:
    values: Floats = np.asarray(pc.cast(pc.cast(column, "int64"), "float64"), np.float64)
    return values
