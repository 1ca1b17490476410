"""TAGGRAPH's traversal from matched tags over the ontology."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from indexers import tfidf, traversal
from indexers.batch import Batch, RankStats
from indexers.explain import Explanation
from indexers.explain.paths import explain_traversal, words_of_nodes
from indexers.explain.terms import asked, explain_terms
from indexers.methods._options import Text
from indexers.presets import Preset
from indexers.queries import distinct
from indexers.scores import Scores
from schemas.options import Section
from transforms import graphs as kinds

NAME = "traversal"
VERSION = 1


class Options(Section):
    """Numbers of the traversal."""

    graph: str = Field("taggraph", description="Graph kind")
    text: Text = Text(field="note")  # type: ignore[call-arg]
    content: Literal["overlap", "tfidf"] = Field("overlap", description="How ties are broken")
    depth: int = Field(2, ge=0, le=2, description="Ontology steps")
    fan_in: int = Field(8, ge=1, le=1_000_000, description="Matched tags that count for one topic, at most")
    max_children: int = Field(64, ge=1, description="Ontology nodes with more children are not descended")


def units(options: Options) -> tuple[str, ...]:
    """Return the units read."""
    return (f"index/{options.text.field}", "index/note", f"index/{options.graph}")


def scores(preset: Preset, batch: Batch, stats: RankStats) -> Scores:
    """Score files by the distance of their topics' tags from the matched tags, ties by content."""
    own: Options = preset.options
    field, share = own.text.field, own.text.stopword_share
    matches = batch.matches(own.graph, field, share)
    stats.no_matches += int((np.diff(matches.offsets) == 0).sum())
    reached = batch.once(
        ("reached", own.graph, field, share, own.depth, own.fan_in, own.max_children),
        lambda: traversal.traverse(batch.shard.graphs(own.graph), matches, own.depth, own.fan_in, own.max_children),
    )
    content = batch.content(own.content, f"index/{own.graph}", field, share)
    return traversal.with_content(reached, content, own.depth)


def explain(preset: Preset, batch: Batch, question: int, document: int) -> Explanation:
    """Tell by which tags the file was reached, and what orders it among equals."""
    own: Options = preset.options
    graphs, unit = batch.shard.graphs(own.graph), f"index/{own.graph}"
    field, share = own.text.field, own.text.stopword_share
    words, queries = asked(batch, question, unit, field), batch.queries(unit, field, share)
    postings = batch.text(unit, field)
    score = tfidf.tfidf_scores if own.content == "tfidf" else tfidf.overlap_scores
    content = explain_terms(
        {"tfidf": "common words, weighted by TF-IDF", "overlap": "common words"}[own.content],
        lambda some: score(postings, some),
        postings,
        distinct(queries),
        question,
        document,
        words,
    )
    searched = kinds.load(own.graph).SEARCHED
    named = words_of_nodes(graphs, searched, batch.shard.postings(unit, "tag"), queries, question, words)
    matches = batch.matches(own.graph, field, share)
    return explain_traversal(
        graphs, own.graph, matches, named, question, document, content, own.depth, own.fan_in, own.max_children
    )
