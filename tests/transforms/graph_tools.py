"""Tables for the tests of graph kinds, and what every graph must hold."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indexers.csr import matrices
from schemas import tables

DAY = datetime(2024, 3, 1, 12, tzinfo=UTC)
EXTRA = ("facts", "concepts", "reflections", "entities", "relations", "triples")


def inputs(*rows, **given):
    """Make the tables of a shard.

    Each row is (case, interaction, {...}): tags by note field, and any of text, session, day (after `DAY`; None: no
    time) and speakers. Tables of tasks are given as lists of rows in order of their columns; the others are empty.
    """
    plain = {name: [row[2].get(name, []) for row in rows] for name in tables.NOTE_FIELDS}
    case, ids = [row[0] for row in rows], [row[1] for row in rows]
    said = [row[2] for row in rows]
    days = [one.get("day", 0) for one in said]
    notes = {name: pa.array(column, pa.list_(pa.string())) for name, column in plain.items()}
    notes |= {"case_id": pa.array(case, pa.string()), "interaction_id": pa.array(ids, pa.string())}
    count = len(rows)
    notes |= {"summary": pa.array([""] * count, pa.string()), "status": pa.array(["ok"] * count, pa.string())}
    notes |= {"error": pa.nulls(count, pa.string())}
    notes |= {name: pa.array([0] * count, pa.int32()) for name in ("prompt_tokens", "completion_tokens")}
    interactions = {
        "case_id": notes["case_id"],
        "session_id": pa.array([one.get("session", "s") for one in said], pa.string()),
        "interaction_id": notes["interaction_id"],
        "content_hash": pa.array(ids, pa.string()),
        "position": pa.array([case[:n].count(one) for n, one in enumerate(case)], pa.int32()),
        "started_at": pa.array(
            [None if day is None else DAY + timedelta(days=day) for day in days], pa.timestamp("us", tz="UTC")
        ),
        "started_at_text": pa.nulls(count, pa.string()),
        "user_text": pa.array([one.get("text", "") for one in said], pa.large_string()),
        "assistant_text": pa.array([""] * count, pa.large_string()),
        "speakers": pa.array([one.get("speakers", ["user"]) for one in said], pa.list_(pa.string())),
        "message_ids": pa.array([[]] * count, pa.list_(pa.string())),
        "source": pa.array(["x"] * count, pa.string()),
        "source_offset": pa.array([0] * count, pa.int64()),
    }
    made = {"interactions": tables.build("interactions", interactions), "notes": tables.build("notes", notes)}
    for name in EXTRA:
        wanted = tables.schema(name)
        columns = zip(*given[name], strict=True) if given.get(name) else [[] for _ in wanted]
        values = zip(wanted, columns, strict=True)
        made[name] = tables.build(name, {f.name: pa.array(list(v), _type(f.type)) for f, v in values})
    return made


def _type(kind):
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def nodes_of(built, kind=None):
    """Return (case, kind, key) of nodes in order, or the keys of one kind."""
    rows = zip(*(built.nodes[name].to_pylist() for name in ("case_id", "kind", "key")), strict=True)
    return [row if kind is None else row[2] for row in rows if kind in (None, row[1])]


def texts_of(built, kind):
    """Return key -> text of the nodes of a kind."""
    rows = built.nodes.to_pylist()
    return {row["key"]: row["text"] for row in rows if row["kind"] == kind}


def edges_of(built, *kinds):
    """Return (kind, source key, target key, weight, interaction) of edges in order."""
    key = {(row["case_id"], row["node_id"]): row["key"] for row in built.nodes.to_pylist()}
    return [
        (
            row["kind"],
            key[row["case_id"], row["source"]],
            key[row["case_id"], row["target"]],
            row["weight"],
            row["interaction_id"],
        )
        for row in built.edges.to_pylist()
        if not kinds or row["kind"] in kinds
    ]


def merges_of(built):
    """Return (kind, key, into, rule) of merges in order."""
    return [(row["kind"], row["key"], row["into"], row["rule"]) for row in built.merges.to_pylist()]


def embedded(strings):
    """Return vectors that are one for the words "home" and "house", and of their own for each other text."""
    coded = pc.replace_substring(strings, "house", "home").dictionary_encode()
    return np.eye(max(len(coded.dictionary), 1), dtype=np.float32)[coded.indices.to_numpy()]


def check(built, made):
    """Assert what every graph holds: all files in order, numbers without gaps, simple edges, keys without repeats."""
    for name, table in zip(("nodes", "edges", "merges"), built, strict=True):
        tables.validate(name, table)
    matrices(built.nodes, built.edges)  # refuses gaps, disorder and edges that lead nowhere
    files = [(row["case_id"], row["key"]) for row in built.nodes.to_pylist() if row["interaction_id"] is not None]
    wanted = made["interactions"].select(["case_id", "interaction_id"]).to_pylist()
    assert files == [(row["case_id"], row["interaction_id"]) for row in wanted]
    known = nodes_of(built)
    assert len(set(known)) == len(known)
    assert all(row["interaction_id"] is None for row in built.nodes.to_pylist() if row["kind"] != "file")
    ends = [(row["case_id"], row["source"], row["target"], row["kind"]) for row in built.edges.to_pylist()]
    assert len(set(ends)) == len(ends)
    assert all(source != target for _, source, target, _ in ends)
    ids = set(made["interactions"]["interaction_id"].to_pylist())
    assert all(row["interaction_id"] in ids for row in built.edges.to_pylist())
    for row in built.merges.to_pylist():
        assert row["key"] != row["into"]
        assert (row["case_id"], row["kind"], row["into"]) in known
        assert (row["case_id"], row["kind"], row["key"]) not in known


def unmerged(built, kind):
    """Return (case, key) of the nodes of a kind together with the forms that were merged into them."""
    own = {(case, key) for case, of, key in nodes_of(built) if of == kind}
    return own | {(row["case_id"], row["key"]) for row in built.merges.to_pylist() if row["kind"] == kind}
