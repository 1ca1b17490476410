"""Personalised PageRank over a graph from nodes that the question names, from similar files and from similar nodes."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
from pydantic import Field

from indexers import csr, ppr, traversal
from indexers.batch import Batch, RankStats
from indexers.explain import Explanation
from indexers.explain.blends import of_question, scores_of
from indexers.explain.diffusion import explain_walk
from indexers.explain.paths import words_of_files, words_of_nodes
from indexers.explain.terms import asked, left_out
from indexers.methods._options import Diffusion, Edges, Text
from indexers.presets import Preset
from indexers.scores import Scores
from schemas.options import Section
from transforms import graphs as kinds

NAME = "diffusion"
VERSION = 1


class Seeds(Section):
    """Where walks begin."""

    words: float = Field(0.5, ge=0, description="Share of the nodes that the question's words name, all alike")
    match: Literal["any", "all"] = Field("any", description="How many of a node's words the question must have")
    files: float = Field(0.5, ge=0, description="Share of the files by their content")
    content: Literal["overlap", "tfidf"] = Field("tfidf", description="How question and file are compared")
    power: float = Field(2.0, gt=0, description="Files have shares in proportion to this power of their content score")


class Options(Section):
    """Numbers of the walk."""

    graph: str = Field("taggraph", description="Graph kind")
    text: Text = Text(field="note", stopword_share=0.15)
    seeds: Seeds = Seeds()  # type: ignore[call-arg]
    edges: Edges = Edges()  # type: ignore[call-arg]
    diffusion: Diffusion = Diffusion()  # type: ignore[call-arg]


def units(options: Options) -> tuple[str, ...]:
    """Return the units read."""
    return (f"index/{options.text.field}", "index/note", f"index/{options.graph}")


def scores(preset: Preset, batch: Batch, stats: RankStats) -> Scores:
    """Score files by PageRank."""
    own: Options = preset.options
    stats.no_matches += int((np.diff(_matches(own, batch).offsets) == 0).sum())
    found, unseeded = ppr.personalized_pagerank(
        walk(own, batch), seeds(own, batch), own.diffusion.alpha, own.diffusion.tolerance, files_only=True
    )
    stats.no_seeds += int(unseeded.sum())
    return found


def walk(own: Options, batch: Batch) -> ppr.Walk:
    """Return the transition matrix."""
    weights = tuple(sorted(own.edges.weights.items())) if own.diffusion.alpha else ()
    return batch.shard.walk(own.graph, weights, own.edges.undirected, own.edges.hub_above)


def seeds(own: Options, batch: Batch) -> ppr.Seeds:
    """Return where the walk of each question begins."""
    matches = _matches(own, batch)
    begin = own.seeds
    if begin.files == 0:
        return ppr.Seeds(batch.case, matches.offsets, matches.nodes, np.ones(len(matches.nodes)))
    text = own.text
    content = batch.content(begin.content, f"index/{own.graph}", text.field, text.stopword_share)
    share = begin.files / (begin.files + begin.words)
    return batch.once(
        ("seeds", own.graph, text, begin),
        lambda: blend_seeds(batch.shard.graphs(own.graph), matches, content, share, begin.power),
    )


def _matches(own: Options, batch: Batch) -> traversal.Matches:
    return batch.matches(own.graph, own.text.field, own.text.stopword_share, own.seeds.match)


def explain(preset: Preset, batch: Batch, question: int, document: int) -> Explanation:
    """Tell which paths carried the score."""
    own: Options = preset.options
    graphs, unit = batch.shard.graphs(own.graph), f"index/{own.graph}"
    field, share = own.text.field, own.text.stopword_share
    words, queries = asked(batch, question, unit, field), batch.queries(unit, field, share)
    named = words_of_nodes(
        graphs, kinds.load(own.graph).SEARCHED, batch.shard.postings(unit, "tag"), queries, question, words
    )
    held = words_of_files(graphs, batch.text(unit, field), queries, question, words)
    told = explain_walk(
        walk(own, batch),
        own.graph,
        seeds(own, batch),
        {**held, **named},
        question,
        int(graphs.file_nodes[graphs.file_offsets[batch.case[question]] + document]),
        float(of_question(scores_of(preset, batch), question)[document]),
        own.diffusion.alpha,
        without=[kind for kind, weight in own.edges.weights.items() if not weight],
        undirected=own.edges.undirected,
    )
    terms = queries.terms[queries.offsets[question] : queries.offsets[question + 1]]
    return replace(told, remarks=(*told.remarks, *left_out(words, terms)))


def blend_seeds(
    graphs: csr.Graphs, matches: traversal.Matches, content: Scores, file_seeds: float, power: float
) -> ppr.Seeds:
    """Seed walks in matched nodes, all alike, and in files in proportion to a power of their content score.

    Args:
        graphs: Graphs of a shard.
        matches: Matched nodes of the questions.
        content: Content scores of the files of each question's case, not negative.
        file_seeds: Share of the files, in (0, 1]. Where a question has seeds of one sort only, that sort has all.
        power: The power.
    """
    questions = len(matches.case)
    filled = np.flatnonzero(content.values)
    of_file = np.searchsorted(content.offsets, filled, side="right") - 1
    of_tag = np.repeat(np.arange(questions), np.diff(matches.offsets))
    weight = content.values[filled] ** power
    total = np.bincount(of_file, weights=weight, minlength=questions)
    tags = np.diff(matches.offsets)
    tag_weight = np.where(total > 0, 1 - file_seeds, 1.0) / np.maximum(tags, 1)
    file_weight = np.where(tags > 0, file_seeds, 1.0) / np.where(total > 0, total, 1)
    files = graphs.file_nodes[graphs.file_offsets[matches.case[of_file]] + filled - content.offsets[of_file]]
    owner = np.concatenate([of_tag, of_file])
    order = np.argsort(owner, kind="stable")
    return ppr.Seeds(
        matches.case,
        np.searchsorted(owner[order], np.arange(questions + 1)),
        np.concatenate([matches.nodes, files])[order],
        np.concatenate([tag_weight[of_tag], weight * file_weight[of_file]])[order],
    )
