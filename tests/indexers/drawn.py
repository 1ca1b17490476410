"""Shards drawn by hand for the tests of methods: files, nodes, edges and vectors, without the stages behind them."""

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from indexers import csr, presets
from indexers.batch import RankStats
from indexers.rank import batches
from indexers.shard import open_shard
from schemas import tables

LIST = pa.list_(pa.string())


@dataclass
class Case:
    """One case; nodes are numbered files first.

    Attributes:
        files: Vector of each interaction.
        sessions: Session of each; one session by default.
        nodes: (kind, vector) of every other node.
        edges: (source, target, kind, weight).
        started: Time of each interaction; none by default.
        chunks: Vectors of the chunks of each interaction; the interaction's own by default.
    """

    files: list
    sessions: list | None = None
    nodes: list = field(default_factory=list)
    edges: list = field(default_factory=list)
    started: list | None = None
    chunks: list | None = None


def interactions(cases):
    """Return the columns of `interactions` that ranking reads."""
    rows = [(name, case, n) for name, case in cases.items() for n in range(len(case.files))]
    return pa.table(
        {
            "case_id": pa.array([name for name, _, _ in rows], pa.string()).dictionary_encode(),
            "session_id": pa.array(
                [case.sessions[n] if case.sessions else "s" for _, case, n in rows], pa.string()
            ).dictionary_encode(),
            "interaction_id": pa.array([f"i{n}" for _, _, n in rows], pa.string()),
            "started_at": pa.array(
                [case.started[n] if case.started else None for _, case, n in rows], pa.timestamp("us", tz="UTC")
            ),
        }
    )


def questions(rows):
    """Return the table `questions`; a row is (case, text) and perhaps the time when it was asked."""
    count = len(rows)
    none = pa.array([[]] * count, LIST)
    return tables.build(
        "questions",
        {
            "case_id": pa.array([row[0] for row in rows], pa.string()),
            "question_id": pa.array([f"q{n}" for n in range(count)], pa.string()),
            "question": pa.array([row[1] for row in rows], pa.string()),
            "question_type": pa.array([""] * count, pa.string()),
            "asked_at": pa.array([row[2] if len(row) > 2 else None for row in rows], pa.timestamp("us", tz="UTC")),
            "answer": pa.nulls(count, pa.string()),
            **dict.fromkeys(("gold_session_ids", "gold_message_ids", "gold_interaction_ids"), none),
            "expected_contains": none,
            "answerable": pa.array([True] * count, pa.bool_()),
        },
    )


def table_of(cases, graph):
    """Return what gives the tables of the units over these cases."""
    files = [(name, f"i{n}", vector) for name, case in cases.items() for n, vector in enumerate(case.files)]
    nodes = [(name, f"n{n}", vector) for name, case in cases.items() for n, (_, vector) in enumerate(case.nodes)]
    chunks = [
        (name, f"i{n}#{k}", vector)
        for name, case in cases.items()
        for n, own in enumerate(case.chunks or [[vector] for vector in case.files])
        for k, vector in enumerate(own)
    ]
    kinds, edges = [], []
    for name, case in cases.items():
        every = ["file"] * len(case.files) + [kind for kind, _ in case.nodes]
        kinds += [(name, number, kind) for number, kind in enumerate(every)]
        edges += [(name, *edge) for edge in sorted(case.edges)]
    size = len(kinds)
    given = {
        ("embed/interactions", "vectors"): _vectors(files),
        ("embed/chunks", "vectors"): _vectors(chunks),
        (f"embed/{graph}", "vectors"): _vectors(nodes),
        (f"index/{graph}", "matrices"): csr.matrices(
            tables.build(
                "nodes",
                {
                    "case_id": [row[0] for row in kinds],
                    "graph": [graph] * size,
                    "node_id": [row[1] for row in kinds],
                    "kind": [row[2] for row in kinds],
                    "key": [""] * size,
                    "text": [None] * size,
                    "interaction_id": [None] * size,
                },
            ),
            tables.build(
                "edges",
                {
                    "case_id": [row[0] for row in edges],
                    "graph": [graph] * len(edges),
                    "source": [row[1] for row in edges],
                    "target": [row[2] for row in edges],
                    "kind": [row[3] for row in edges],
                    "weight": [row[4] for row in edges],
                    "interaction_id": [None] * len(edges),
                },
            ),
        ),
    }
    return lambda unit, table: given[unit, table]


def _vectors(rows):
    return tables.build(
        "vectors",
        {
            "case_id": [row[0] for row in rows],
            "kind": ["x"] * len(rows),
            "key": [row[1] for row in rows],
            "content_hash": [""] * len(rows),
            "vector": pa.array([unit(row[2]) for row in rows], pa.list_(pa.float32())),
        },
    )


@dataclass
class Given:
    """Vectors of the questions, in order (`indexers.batch.Embedding`)."""

    vectors: np.ndarray

    def questions(self, questions):
        return self.vectors[: len(questions)]

    def words(self, words):
        raise AssertionError("no method here asks for words")


def unit(vector):
    """Return a vector scaled to unit length; zeros stay."""
    values = np.asarray(vector, np.float64)
    return (values / (np.linalg.norm(values) or 1)).astype(np.float32)


def batch(cases, asked, graph="concept", tables_of=None):
    """Return the batch of all questions; each is (case, vector), and perhaps its text and time."""
    rows = questions([(row[0], *(row[2:] or [""])) for row in asked])
    given = tables_of or table_of(cases, graph)
    shard = open_shard(interactions(cases), rows, given)
    vectors = np.array([unit(row[1]) for row in asked], np.float32)
    (one,) = batches(shard, rows, Given(vectors))
    return one


def scored(preset, made):
    """Return the scores of a preset, one list a question, and what it counted."""
    stats = RankStats()
    found = preset.code.scores(preset, made, stats)
    parts = np.split(found.values, found.offsets[1:-1])
    assert np.isfinite(found.values).all()
    return parts, stats


def preset(**spec):
    """Return a preset written out."""
    return presets.get("own", {"own": spec})
