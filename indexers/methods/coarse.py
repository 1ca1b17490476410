"""Coarse to fine: the sessions nearest to a question by their mean vector, then the interactions inside them."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from indexers.batch import Batch, RankStats
from indexers.embedders import Rows
from indexers.explain import Explanation, Part
from indexers.explain.blends import of_question, rank_of, scores_of
from indexers.presets import Preset
from indexers.scores import Scores, best_of, spread_over
from indexers.vectors import Vectors, cosine
from schemas.options import Section

NAME = "coarse"
VERSION = 1


class Options(Section):
    """Numbers of the search."""

    sessions: int = Field(3, ge=1, description="Sessions that are looked into")


def units(options: Options) -> tuple[str, ...]:
    """Return the units read."""
    return ("embed/interactions", "embed/questions")


def scores(preset: Preset, batch: Batch, stats: RankStats) -> Scores:
    """Score interactions of the best sessions by their cosine; the others are not retrieved."""
    shard = batch.shard
    documents = shard.vectors("embed/interactions")
    coarse = _sessions(batch)
    fine = cosine(batch.vectors(), batch.case, documents.vectors)
    inside = best_of(coarse, preset.options.sessions)
    _, place = spread_over(batch.case, shard.offsets)
    session = np.repeat(coarse.offsets[:-1], np.diff(fine.offsets)) + shard.session[place]
    return Scores(fine.offsets, np.where(inside[session], fine.values, 0.0))


def _sessions(batch: Batch) -> Scores:
    """Return the cosines of questions and sessions."""
    matrix = batch.shard.vectors("embed/interactions").vectors.values
    means = batch.shard.once(("session vectors",), lambda: session_means(batch, matrix))
    return cosine(batch.vectors(), batch.case, means)


def session_means(batch: Batch, matrix: Rows) -> Vectors:
    """Return the mean vectors, of unit length, of the sessions of each case."""
    shard = batch.shard
    offsets = np.concatenate([[0], np.cumsum(shard.sessions)]).astype(np.int64)
    home = np.repeat(offsets[:-1], np.diff(shard.offsets)) + shard.session
    order = np.argsort(home, kind="stable")
    starts = np.searchsorted(home[order], np.arange(offsets[-1]))
    total = np.zeros((int(offsets[-1]), matrix.shape[1]))
    if len(order):
        total = np.add.reduceat(matrix[order].astype(np.float64), starts, axis=0)
    length = np.sqrt((total * total).sum(axis=1, keepdims=True))
    return Vectors(shard.cases, offsets, (total / np.where(length > 0, length, 1)).astype(np.float32))


def explain(preset: Preset, batch: Batch, question: int, document: int) -> Explanation:
    """Tell the cosine of the interaction, and the place of its session."""
    most = preset.options.sessions
    score = float(of_question(scores_of(preset, batch), question)[document])
    shard = batch.shard
    sessions = of_question(batch.once(("explained", "sessions"), lambda: _sessions(batch)), question)
    own = int(shard.session[shard.offsets[batch.case[question]] + document])
    rank = rank_of(sessions, own)
    method = f"cosine, within the {most} sessions nearest by their mean vector"
    facts = (("cosine of its session", float(sessions[own])), ("rank of its session", rank or "none"))
    if score:
        return Explanation(method, score, (Part("vector", "cosine", score, facts=facts),))
    inside = rank is not None and rank <= most
    why = "its own is not above 0" if inside else f"only the first {most} are looked into"
    return Explanation(
        method, 0.0, (), (f"its session has rank {rank or 'none'} (cosine {float(sessions[own]):.3f}), and {why}",)
    )
