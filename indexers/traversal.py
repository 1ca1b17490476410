"""TAGGRAPH's traversal: from the tags that a question names, over the ontology, to topics and their files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import scipy

from indexers.csr import Graphs, Ints, expand
from indexers.postings import Postings, Queries
from indexers.queries import distinct, token_rows
from indexers.scores import Scores
from schemas.errors import SchemaError

_CHUNK = 8_000_000
_LEVEL = 21  # bits for the matched tags within one distance; three distances fill an int64


@dataclass(frozen=True)
class Matches:
    """Tags that questions name.

    Attributes:
        case: (questions,) number of each question's case.
        offsets: (questions + 1,) where the matches of each question begin.
        nodes: (matches,) tag node, numbered through all cases, ascending within a question.
    """

    case: Ints
    offsets: Ints
    nodes: Ints


def searched_texts(nodes: pa.Table, kinds: Sequence[str]) -> tuple[pa.Array, pa.Array]:
    """Return what the nodes of some kinds are searched by, and the case of each, in node order.

    A node is searched by the words of its text, or else of its key; ``_`` becomes a space (to a word tokenizer it is a
    letter).
    """
    chosen = nodes.filter(pc.is_in(nodes["kind"].cast(pa.string()), value_set=pa.array(kinds, pa.string())))
    texts = pc.coalesce(_joined(chosen["text"]), _joined(chosen["key"]))
    return pc.replace_substring(texts, "_", " "), _joined(chosen["case_id"].cast(pa.string()))


def match_nodes(
    graphs: Graphs, kinds: Sequence[str], postings: Postings, queries: Queries, *, whole: bool = False
) -> Matches:
    """Find the nodes with a word that equals a question's word.

    Args:
        graphs: Graphs of a shard.
        kinds: Kinds of the nodes that are searched.
        postings: Postings of the field `tag`: the words of those nodes, of the same cases.
        queries: Questions.
        whole: Every word of the node must be one of the question's.

    Raises:
        SchemaError: Postings and graphs differ in their nodes.
    """
    tags = np.flatnonzero(graphs.nodes_of(kinds))
    first = np.searchsorted(tags, graphs.node_offsets)
    if not np.array_equal(first, postings.document_offsets):
        raise SchemaError(
            "tag postings and matrices are not of the same tags", where="postings", remedy="Index the corpus again."
        )
    once = distinct(queries)
    rows = token_rows(postings, once)
    known = np.flatnonzero(rows >= 0)
    question = np.searchsorted(once.offsets, known, side="right") - 1
    start = postings.indptr[rows[known]]
    entries, of = expand(start, postings.indptr[rows[known] + 1] - start)
    place = first[queries.case[question[of]]] + postings.documents[entries]
    width = len(graphs.node_kinds) + 1
    pair, inverse = np.unique(question[of] * width + tags[place], return_inverse=True)
    if whole:
        held = np.bincount(inverse.reshape(-1), weights=postings.counts[entries], minlength=len(pair))
        length = np.zeros(len(graphs.node_kinds) + 1, np.int64)
        length[tags] = postings.lengths
        pair = pair[held >= length[pair % width]]
    question, node = pair // width, pair % width
    return Matches(queries.case, np.searchsorted(question, np.arange(len(queries.case) + 1)), node)


def traverse(graphs: Graphs, matches: Matches, depth: int = 2, fan_in: int = 8, max_children: int = 64) -> Scores:
    """Score files by the ontology distance of their topics' tags from the matched tags.

    A matched tag reaches a topic at distance d when d is the least number of steps along ontology edges, up or down
    and at most `depth`, from it to a tag of the topic; it gives ``1 / (1 + d)``. A topic has the sum of its `fan_in`
    best such values, and a file the value of its best topic. Scores come in units of ``1 / units(depth)``, so that
    they are whole numbers and sums exact.

    A node with more than `max_children` children is left only upwards: descendants of a matched tag carry its words
    and match by themselves, and tags under so wide a node are not related by it. So the work is linear in the
    matched tags and their edges.

    Returns:
        Scores over the files of each question's case, by position; 0 where no path leads.

    Raises:
        ValueError: `depth` is not 0, 1 or 2.
    """
    if not 0 <= depth <= 2:
        raise ValueError(f"depth is {depth}, not 0, 1 or 2")
    nodes = len(graphs.node_kinds)
    ontology = graphs.adjacency(graphs.edges_of(("ontology",))).astype(np.bool_)
    narrow = scipy.sparse.diags_array(np.diff(ontology.indptr) <= max_children, dtype=np.bool_)
    step = (ontology.T + narrow @ ontology + scipy.sparse.eye_array(nodes, dtype=np.bool_)).tocsr()
    topics = graphs.adjacency(graphs.edges_of(("tag_topic",))).astype(np.bool_)
    files = graphs.adjacency(graphs.edges_of(("topic_file",)))
    position = np.full(nodes, -1, np.int64)
    position[graphs.file_nodes] = np.arange(len(graphs.file_nodes)) - np.repeat(
        graphs.file_offsets[:-1], np.diff(graphs.file_offsets)
    )
    # What a matched tag costs at most: the sizes of the products below.
    cost = np.diff(topics.indptr).astype(np.int64) + 1
    for _ in range(depth):
        cost = step.astype(np.int64) @ cost
    spent = np.concatenate([[0], np.cumsum(cost[matches.nodes])])[matches.offsets]

    offsets = np.concatenate([[0], np.cumsum(np.diff(graphs.file_offsets)[matches.case])])
    values = np.zeros(int(offsets[-1]))
    low, questions = 0, len(matches.case)
    while low < questions:
        high = max(low + 1, int(np.searchsorted(spent, spent[low] + _CHUNK, side="right")) - 1)
        begin, end = matches.offsets[low], matches.offsets[high]
        if end > begin:
            unique, column = np.unique(matches.nodes[begin:end], return_inverse=True)
            reach = scipy.sparse.csr_array(
                (np.ones(len(unique), np.bool_), (np.arange(len(unique)), unique)), shape=(len(unique), nodes)
            )
            # Reach grows with the distance, so counts at one distance are differences of counts within.
            within = (reach @ topics).astype(np.int64) * (1 << (_LEVEL * depth))
            for level in range(depth - 1, -1, -1):
                reach = reach @ step
                within = within + (reach @ topics).astype(np.int64) * (1 << (_LEVEL * level))
            named = scipy.sparse.csr_array(
                (np.ones(end - begin, np.int64), column.reshape(-1), matches.offsets[low : high + 1] - begin),
                shape=(high - low, len(unique)),
            )
            found = (named @ within).tocsr()
            score = _best(found.data, depth, fan_in)
            question = np.repeat(np.arange(low, high), np.diff(found.indptr))
            start = files.indptr[found.indices].astype(np.int64)
            edges, of = expand(start, files.indptr[found.indices + 1] - start)
            file = position[files.indices[edges]]
            real = file >= 0
            np.maximum.at(values, (offsets[question[of]] + file)[real], score[of][real])
        low = high
    return Scores(offsets, values)


def units(depth: int) -> int:
    """Return the least number that every ``1 + d`` up to `depth` divides: 6 for depth 2."""
    return int(np.lcm.reduce(np.arange(1, depth + 2)))


def with_content(graph: Scores, content: Scores, depth: int = 2) -> Scores:
    """Order files of equal graph score by content: ``(g + c / (1 + c)) / units`` where g, in units, is above 0.

    Graph scores in units are whole numbers and the content part is below 1, so content never reorders files of
    different graph scores.

    Args:
        graph: Scores as `traverse` gives them.
        content: Content scores c of the same files, not negative.
        depth: As given to `traverse`.
    """
    bounded = np.minimum(content.values, 1e9)
    both = (graph.values + bounded / (1 + bounded)) / units(depth)
    return Scores(graph.offsets, np.where(graph.values > 0, both, 0.0))


def _best(counts: Ints, depth: int, fan_in: int) -> Ints:
    """Sum the `fan_in` best contributions; `counts` holds, in 21 bits each, the matches within each distance."""
    room = np.full(len(counts), fan_in, np.int64)
    score = np.zeros(len(counts), np.int64)
    before = np.zeros(len(counts), np.int64)
    for distance in range(depth + 1):
        within = (counts >> (_LEVEL * (depth - distance))) & ((1 << _LEVEL) - 1)
        taken = np.minimum(within - before, room)
        score += taken * (units(depth) // (1 + distance))
        room -= taken
        before = within
    return score


def _joined(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks()
