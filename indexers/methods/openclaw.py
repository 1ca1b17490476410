"""OpenClaw's hybrid search: chunks of raw text by cosine and by full-text search, .7 and .3.

After OpenClaw's source at 0031734: tokens joined with AND and SQLite's bm25 rank r, which gives ``-r / (1 - r)``; each
arm gives its best candidates, and what an arm lacks counts 0. An interaction has the score of its best chunk.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow.compute as pc
from pydantic import Field

from indexers import bm25
from indexers.batch import Batch, RankStats
from indexers.explain import Explanation, Part
from indexers.explain.blends import of_question, scores_of
from indexers.explain.terms import asked, explain_terms
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
    dense, text = _arms(own, batch)
    total = own.weights.dense * dense.values + own.weights.text * text.values
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


def _arms(own: Options, batch: Batch) -> tuple[Scores, Scores]:
    """Return what the two arms give their candidates."""
    both = cosine(batch.vectors(), batch.case, batch.shard.vectors("embed/chunks").vectors), full_text(batch)
    dense, text = (Scores(arm.offsets, np.where(best_of(arm, own.candidates), arm.values, 0.0)) for arm in both)
    return dense, text


def explain(preset: Preset, batch: Batch, question: int, document: int) -> Explanation:
    """Tell what the arms give the best chunk of the interaction."""
    own: Options = preset.options
    shard, case = batch.shard, int(batch.case[question])
    dense, text = batch.once(("explained", "arms", preset.mark), lambda: _arms(own, batch))
    chunks = shard.vectors("embed/chunks")
    home = np.cumsum(np.asarray(pc.ends_with(chunks.keys, "#0"))) - 1
    first = int(chunks.vectors.offsets[case])
    place = np.flatnonzero(home == shard.offsets[case] + document) - first
    pairs = of_question(dense, question)[place], of_question(text, question)[place]
    total = own.weights.dense * pairs[0] + own.weights.text * pairs[1]
    best = int(np.argmax(total))
    chunk = int(place[best])
    fade = 1.0
    if own.half_life_days is not None:
        starts, files = spread_over(batch.case, shard.offsets)
        days = float(_age(batch, starts, files)[starts[question] + document])
        fade = float(np.exp2(-days / own.half_life_days))
    parts = [
        Part(
            "vector",
            "cosine of its best chunk",
            own.weights.dense * float(pairs[0][best]) * fade,
            facts=(("weight", own.weights.dense), ("cosine", float(pairs[0][best])), ("chunk", best)),
        ),
        Part(
            "content",
            "full text of its best chunk",
            own.weights.text * float(pairs[1][best]) * fade,
            facts=(("weight", own.weights.text), ("r / (1 + r)", float(pairs[1][best]))),
            inner=_text_of(batch, question, chunk),
        ),
    ]
    method = "cosine and full text of chunks" + ("" if fade == 1 else f", * {fade:.3g} for its age")
    score = float(of_question(scores_of(preset, batch), question)[document])
    if not score:
        sum_ = float(total[best]) * fade
        cut = f"its {sum_:.3f} is below the {own.min_score} that is kept"
        why = cut if sum_ else f"none of its {len(place)} chunks is among the {own.candidates} best of an arm"
        parts = [replace(part, value=0.0) for part in parts]
        return Explanation(method, 0.0, tuple(parts), (why,))
    return Explanation(method, score, tuple(sorted(parts, key=lambda part: -part.value)))


def _text_of(batch: Batch, question: int, chunk: int) -> Explanation:
    """Return what each word adds to the rank r of a chunk; it counts if the chunk holds all of them."""
    unit, field = "index/chunk", "chunk"
    postings, queries = batch.shard.postings(unit, field), batch.queries(unit, field)
    return explain_terms(
        "full-text rank r, which counts where all words are held",
        lambda some: bm25.bm25_scores(postings, some, weights=_weights(batch)),
        postings,
        queries,
        question,
        chunk,
        asked(batch, question, unit, field),
        noun="chunk",
    )


def _weights(batch: Batch) -> bm25.Bm25Weights:
    postings = batch.shard.postings("index/chunk", "chunk")
    return batch.shard.once(("fts5",), lambda: bm25.bm25_weights(postings, 1.2, 0.75, idf_form="fts5"))


def full_text(batch: Batch) -> Scores:
    """Score the chunks that hold every word of the question, as SQLite's FTS5 does, brought to [0, 1)."""
    unit, field = "index/chunk", "chunk"
    postings, queries = batch.shard.postings(unit, field), batch.queries(unit, field)
    found = bm25.bm25_scores(postings, queries, weights=_weights(batch))
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
