"""HippoRAG 2's retrieval, without its model that filters facts: PageRank from the phrases of the nearest triples.

After HippoRAG 2 (arXiv 2502.14802, section 3) and its public code: an undirected graph of phrases and passages with
synonym edges between phrases of like vectors; the best triples give their phrases ``cosine / passages that hold the
phrase``, the mean over the triples that name it; every passage gets a small share by its own cosine.
"""

from __future__ import annotations

import numpy as np
from pydantic import Field

from indexers import ppr
from indexers.batch import Batch, RankStats
from indexers.csr import Graphs, Ints, expand
from indexers.explain import Explanation
from indexers.explain.blends import of_question, scores_of
from indexers.explain.diffusion import explain_walk
from indexers.methods._nodes import node_cosines, node_units, node_vectors
from indexers.methods._options import Diffusion
from indexers.presets import Preset
from indexers.scores import Floats, Scores, best_of, extreme, over_max, spread_over
from indexers.shard import Shard
from indexers.vectors import synonyms
from schemas.options import Section

NAME = "hipporag"
VERSION = 1

_FACT = ("subject", "object")
_OFF = (*_FACT, "source")
"""Edges that lead to triples, which the walk does not visit."""


class Seeds(Section):
    """Where walks begin."""

    triples: int = Field(5, ge=0, description="Triples by cosine that give their phrases")
    passages: float = Field(0.05, ge=0, description="Factor of the passages' cosines, stretched from 0 to 1")


class Options(Section):
    """Numbers of the search."""

    graph: str = Field("triples", description="Graph kind")
    seeds: Seeds = Seeds()  # type: ignore[call-arg]
    synonyms: float = Field(0.8, ge=0, le=1, description="Cosine from which phrases are synonyms; 1 has none")
    diffusion: Diffusion = Diffusion(alpha=0.5)  # type: ignore[call-arg]


def units(options: Options) -> tuple[str, ...]:
    """Return the units read."""
    return node_units(options.graph)


def scores(preset: Preset, batch: Batch, stats: RankStats) -> Scores:
    """Score passages by PageRank."""
    own: Options = preset.options
    graphs = with_synonyms(batch.shard, own.graph, own.synonyms)
    found, unseeded = ppr.personalized_pagerank(
        _walk(own, batch, graphs),
        seeds(own, batch, graphs),
        own.diffusion.alpha,
        own.diffusion.tolerance,
        files_only=True,
    )
    stats.no_seeds += int(unseeded.sum())
    return found


def _walk(own: Options, batch: Batch, graphs: Graphs) -> ppr.Walk:
    return batch.shard.once(
        ("hipporag", own.graph, own.synonyms), lambda: ppr.walk(graphs, dict.fromkeys(_OFF, 0.0), undirected=True)
    )


def explain(preset: Preset, batch: Batch, question: int, document: int) -> Explanation:
    """Tell which paths carried the score, from the triples that made phrases seeds."""
    own: Options = preset.options
    graphs = with_synonyms(batch.shard, own.graph, own.synonyms)
    near, best, node = _triples(own, batch, graphs)
    leads: dict[int, tuple[int, str]] = {}
    chosen = best[(best >= near.offsets[question]) & (best < near.offsets[question + 1])]
    for triple in node[chosen[np.argsort(-near.values[chosen], kind="stable")]].tolist():
        for edge in range(int(graphs.indptr[triple]), int(graphs.indptr[triple + 1])):
            kind = graphs.edge_kind_names[graphs.edge_kinds[edge]]
            if kind in _FACT:
                leads.setdefault(int(graphs.indices[edge]), (triple, kind))
    return explain_walk(
        _walk(own, batch, graphs),
        own.graph,
        seeds(own, batch, graphs),
        {},
        question,
        int(graphs.file_nodes[graphs.file_offsets[batch.case[question]] + document]),
        float(of_question(scores_of(preset, batch), question)[document]),
        own.diffusion.alpha,
        without=_OFF,
        undirected=True,
        leads=leads,
    )


def _triples(own: Options, batch: Batch, graphs: Graphs) -> tuple[Scores, Ints, Ints]:
    """Return the cosines of all nodes, which of them are a question's best triples, and the node of each."""
    near = node_cosines(batch, own.graph)
    question = np.repeat(np.arange(len(batch.case)), np.diff(near.offsets))
    node = np.arange(len(near.values)) - near.offsets[question] + graphs.node_offsets[batch.case[question]]
    is_triple = graphs.nodes_of(("triple",))
    triples = Scores(near.offsets, np.where(is_triple[node], near.values, 0.0))
    best = np.flatnonzero(best_of(triples, own.seeds.triples)) if own.seeds.triples else np.zeros(0, np.int64)
    return near, best, node


def seeds(own: Options, batch: Batch, graphs: Graphs) -> ppr.Seeds:
    """Return where the walk of each question begins."""
    near, best, node = _triples(own, batch, graphs)
    question = np.repeat(np.arange(len(batch.case)), np.diff(near.offsets))
    to_phrase = graphs.edges_of(_FACT)
    entry, of = expand(graphs.indptr[node[best]], np.diff(graphs.indptr)[node[best]])
    entry, of = entry[to_phrase[entry]], of[to_phrase[entry]]
    phrase = graphs.indices[entry]
    held = np.bincount(graphs.indices[graphs.edges_of(("contains",))], minlength=len(graphs.node_kinds))
    score = near.values[best][of] / np.maximum(held[phrase], 1)
    pair, number = np.unique(question[best][of] * len(graphs.node_kinds) + phrase, return_inverse=True)
    number = number.reshape(-1)
    mean = np.bincount(number, weights=score, minlength=len(pair)) / np.maximum(
        np.bincount(number, minlength=len(pair)), 1
    )

    starts, place = spread_over(batch.case, graphs.file_offsets)
    files = graphs.file_nodes[place]
    mine = np.repeat(np.arange(len(batch.case)), np.diff(starts))
    own_cosine = near.values[near.offsets[mine] + files - graphs.node_offsets[batch.case[mine]]]
    passages = own.seeds.passages * stretched(Scores(starts, own_cosine))
    owner = np.concatenate([pair // len(graphs.node_kinds), mine])
    order = np.argsort(owner, kind="stable")
    return ppr.Seeds(
        batch.case,
        np.searchsorted(owner[order], np.arange(len(batch.case) + 1)),
        np.concatenate([pair % len(graphs.node_kinds), files])[order],
        np.concatenate([mean, passages])[order],
    )


def stretched(found: Scores) -> Floats:
    """Return scores moved and scaled so that each question's go from 0 to 1; where they are alike, 1, or 0 for 0."""
    size = np.diff(found.offsets)
    least = np.repeat(extreme(np.minimum, found), size)
    moved = Scores(found.offsets, found.values - least)
    flat = np.repeat(extreme(np.maximum, moved) == 0, size)
    return np.where(flat, np.sign(found.values), over_max(moved))


def with_synonyms(shard: Shard, kind: str, threshold: float) -> Graphs:
    """Return the graphs of a kind with edges ``synonym`` between phrases of like vectors, weighted by their cosine."""
    graphs = shard.graphs(kind)
    if threshold >= 1:
        return graphs

    def make() -> Graphs:
        vectors = node_vectors(shard, kind)
        source: list[Ints] = []
        target: list[Ints] = []
        weight: list[Floats] = []
        phrases = graphs.nodes_of(("phrase",))
        for low, high in zip(graphs.node_offsets[:-1], graphs.node_offsets[1:], strict=True):
            chosen = low + np.flatnonzero(phrases[low:high])
            left, right, cosine = synonyms(vectors[chosen], threshold)
            source.append(chosen[left])
            target.append(chosen[right])
            weight.append(cosine.astype(np.float64))
        return added(graphs, "synonym", np.concatenate(source), np.concatenate(target), np.concatenate(weight))

    return shard.once(("synonyms", kind, threshold), make)


def added(graphs: Graphs, kind: str, source: Ints, target: Ints, weight: Floats) -> Graphs:
    """Return graphs with more edges of a kind that they do not have."""
    rows = np.concatenate([np.repeat(np.arange(len(graphs.node_kinds)), np.diff(graphs.indptr)), source])
    columns = np.concatenate([graphs.indices, target])
    kinds = np.concatenate([graphs.edge_kinds, np.full(len(source), len(graphs.edge_kind_names), np.int8)])
    order = np.lexsort((columns, rows))
    return Graphs(
        **{
            **vars(graphs),
            "indptr": np.searchsorted(rows[order], np.arange(len(graphs.node_kinds) + 1)),
            "indices": columns[order],
            "edge_kinds": kinds[order],
            "edge_kind_names": (*graphs.edge_kind_names, kind),
            "weights": np.concatenate([graphs.weights, weight])[order],
        }
    )
