"""How a traversal came to an interaction: from each matched tag over the ontology to the topic and its file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import scipy

from indexers.csr import Graphs, Ints, expand
from indexers.explain import Edge, Explanation, Part, Step
from indexers.explain.terms import Words
from indexers.postings import Postings, Queries
from indexers.queries import token_rows
from indexers.traversal import Matches, units

_SHOWN = 5
"""Matched tags, and tags of the file's topic, that are named where none leads to the file."""

Origins = Mapping[int, tuple[str, ...]]
"""Node, numbered through all cases -> words of the question that name it."""


def words_of_nodes(
    graphs: Graphs, kinds: Sequence[str], postings: Postings, queries: Queries, question: int, words: Words
) -> Origins:
    """Return the nodes that words of a question name, each with those words.

    Args:
        graphs: Graphs of a shard.
        kinds: Kinds of the nodes that are searched.
        postings: Postings of the field `tag`: the words of those nodes.
        queries: Questions as the matching gets them.
        question: One of them.
        words: Its words.
    """
    searched = np.flatnonzero(graphs.nodes_of(kinds))
    first = np.searchsorted(searched, graphs.node_offsets[queries.case[question]])
    return _origins(searched[first:], postings, queries, question, words)


def words_of_files(graphs: Graphs, postings: Postings, queries: Queries, question: int, words: Words) -> Origins:
    """Return the files that hold words of a question, each with those words; as `words_of_nodes`, of a text field."""
    first = graphs.file_offsets[queries.case[question]]
    return _origins(graphs.file_nodes[first:], postings, queries, question, words)


def _origins(nodes: Ints, postings: Postings, queries: Queries, question: int, words: Words) -> Origins:
    """Return those of some nodes, which stand for the documents of a case, that hold words of a question."""
    kept = set(queries.terms[queries.offsets[question] : queries.offsets[question + 1]].tolist())
    terms = np.array([term for term in dict.fromkeys(words.terms.tolist()) if term in kept], np.int32)
    alone = Queries(np.full(len(terms), queries.case[question]), np.arange(len(terms) + 1), terms)
    found: dict[int, tuple[str, ...]] = {}
    for term, row in zip(terms.tolist(), token_rows(postings, alone).tolist(), strict=True):
        if row >= 0:
            for document in postings.documents[postings.indptr[row] : postings.indptr[row + 1]].tolist():
                node = int(nodes[document])
                found[node] = (*found.get(node, ()), words.first[term])
    return found


def explain_traversal(
    graphs: Graphs,
    graph: str,
    matches: Matches,
    origins: Origins,
    question: int,
    document: int,
    content: Explanation,
    depth: int = 2,
    fan_in: int = 8,
    max_children: int = 64,
) -> Explanation:
    """Take a traversal's score apart by matched tags, and by the content that orders equals.

    Args:
        graphs: Graphs of a shard.
        graph: Their kind.
        matches: Matched tags.
        origins: The words of each matched tag.
        question: One question.
        document: Position of the file in the question's case.
        content: The content score of the same question and file.
        depth: As given to `indexers.traversal.traverse`.
        fan_in: As given to it.
        max_children: As given to it.
    """
    case = int(matches.case[question])
    matched = matches.nodes[matches.offsets[question] : matches.offsets[question + 1]]
    file = int(graphs.file_nodes[graphs.file_offsets[case] + document])
    ontology = graphs.adjacency(graphs.edges_of(("ontology",)))
    topics = _sources(graphs, "topic_file", file)
    best = _Reached(-1, 0, (), np.zeros(0, np.int64))
    for topic in topics:
        distance, following = _toward(ontology, _sources(graphs, "tag_topic", topic), depth, max_children)
        near = sorted((int(distance[tag]), int(tag)) for tag in matched if distance[tag] >= 0)
        total = sum(units(depth) // (1 + d) for d, _ in near[:fan_in])
        if total > best.total:
            best = _Reached(topic, total, tuple(near), following)
    describe = _Describe(graphs, int(graphs.node_offsets[case]))
    method = f"traversal: 1 / (1 + distance) of each matched tag within {depth} ontology steps, of {fan_in} at most"
    if not best.near:
        return Explanation(method, 0.0, *_nothing(graphs, describe, matched, origins, topics, depth), graph)
    parts: list[Part] = []
    for number, (distance_of, tag) in enumerate(best.near):
        counted = number < fan_in
        steps = [describe.step(tag)]
        for _ in range(distance_of):
            before, node = steps[-1].node, int(best.following[steps[-1].node + describe.base])
            steps.append(describe.step(node, Edge("ontology", against=not ontology[before + describe.base, node])))
        steps += [describe.step(best.topic, Edge("tag_topic")), describe.step(file, Edge("topic_file"))]
        label = f"tag at distance {distance_of}" + ("" if counted else ", past those that count")
        value = units(depth) // (1 + distance_of) / units(depth) if counted else 0.0
        parts.append(Part("tag", label, value, origins.get(tag, ()), tuple(steps)))
    bounded = min(content.score, 1e9)
    tie = bounded / (1 + bounded)
    parts.append(Part("content", "content, which orders equals", tie / units(depth), inner=content))
    parts.sort(key=lambda part: -part.value)
    return Explanation(method, (best.total + tie) / units(depth), tuple(parts), (), graph)


@dataclass(frozen=True)
class _Reached:
    """The topic of a file that matched tags give most: their sum in units, each one's distance, and the way there."""

    topic: int
    total: int
    near: tuple[tuple[int, int], ...]
    following: Ints


@dataclass(frozen=True)
class _Describe:
    """Makes steps of nodes that are numbered through all cases."""

    graphs: Graphs
    base: int

    def step(self, node: int, *edges: Edge) -> Step:
        kind = self.graphs.node_kind_names[self.graphs.node_kinds[node]]
        return Step(node - self.base, kind, edges)


def _sources(graphs: Graphs, kind: str, target: int) -> list[int]:
    """Return the nodes with an edge of a kind to a node."""
    edges = np.flatnonzero(graphs.edges_of((kind,)) & (graphs.indices == target))
    found: list[int] = np.unique(np.searchsorted(graphs.indptr, edges, side="right") - 1).tolist()
    return found


def _toward(ontology: scipy.sparse.csr_array, ends: Sequence[int], depth: int, max_children: int) -> tuple[Ints, Ints]:
    """Walk the ontology backwards from some nodes, as far as `indexers.traversal.traverse` goes forwards.

    Returns:
        Of each node the steps to the nearest end, -1 where there are too many, and the node that the way goes on to.
    """
    upward = ontology.tocsc()
    distance = np.full(ontology.shape[0], -1, np.int64)
    following = np.full(ontology.shape[0], -1, np.int64)
    narrow = np.diff(ontology.indptr) <= max_children
    border = np.array(ends, np.int64)
    distance[border] = 0
    for steps in range(1, depth + 1):
        children, parent = _neighbours(ontology, border)
        parents, child = _neighbours(upward, border)
        source = np.concatenate([children, parents[narrow[parents]]])
        target = np.concatenate([parent, child[narrow[parents]]])
        # Last written stays: the lowest of several ways.
        order = np.argsort(-target, kind="stable")
        order = order[distance[source[order]] < 0]
        following[source[order]] = target[order]
        distance[source[order]] = steps
        border = np.unique(source[order])
    return distance, following


def _neighbours(matrix: scipy.sparse.csr_array | scipy.sparse.csc_array, nodes: Ints) -> tuple[Ints, Ints]:
    """Return what stands in the rows (or columns) of some nodes, and the node of each."""
    start = matrix.indptr[nodes].astype(np.int64)
    entries, owner = expand(start, matrix.indptr[nodes + 1] - start)
    return matrix.indices[entries].astype(np.int64), nodes[owner]


def _nothing(
    graphs: Graphs, describe: _Describe, matched: Ints, origins: Origins, topics: Sequence[int], depth: int
) -> tuple[tuple[Part, ...], tuple[str, ...]]:
    """Say why no matched tag leads to a file."""
    if not len(matched):
        return (), ("no word of the question is a word of a tag",)
    own = [tag for topic in topics for tag in _sources(graphs, "tag_topic", topic)]
    parts = [
        Part("tag", "a matched tag, elsewhere", 0.0, origins.get(int(tag), ()), (describe.step(int(tag)),))
        for tag in matched[:_SHOWN]
    ]
    parts += [Part("tag", "a tag of this file's topic", 0.0, (), (describe.step(tag),)) for tag in own[:_SHOWN]]
    if not own:
        return tuple(parts), ("the file's topic has no tags, so no path leads to it",)
    told = f"none of the {len(matched)} matched tags is within {depth} ontology steps of the {len(own)} tags that lead"
    return tuple(parts), (f"{told} to this file",)
