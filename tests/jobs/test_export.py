import csv
import json
import re
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import duckdb
import ir_measures
import networkx as nx
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from jobs.export import EXPORTABLE, export
from jobs.export_formats import joins
from pipelines.store import Manifest, Store
from schemas.config import EvaluateConfig
from schemas.errors import StoreError, UsageError
from schemas.ids import escape_id, shard_of
from schemas.tables import NOTE_FIELDS, TABLES, build
from transforms.evaluate import evaluate

SHARDS = 2
DOCS = Path(__file__).parents[2] / "docs" / "export.md"
CASES = ("alma", "a b:%", "zoë", "d4", "e5")
NASTY = 'plain\n---\nnot: yaml\n--- \x01\x0b <b>&"\r\n\U0001f600 end'
TEXTS = {0: "=HYPERLINK(1)", 1: NASTY, 2: "", 3: "-3 apples"}
UNITS = 4
DEPTH = 3


def unit(n):
    return f"i {n}" if n == 1 else f"i{n}"


def tables(cases):
    rows = [(c, n) for c in cases for n in range(UNITS)]
    interactions = build(
        "interactions",
        {
            "case_id": [c for c, _ in rows],
            "session_id": [f"s{n // 2}" for _, n in rows],
            "interaction_id": [unit(n) for _, n in rows],
            "content_hash": ["0" * 32] * len(rows),
            "position": [n for _, n in rows],
            "started_at": [None if n == 3 else datetime(2024, 5, n + 1, 7, tzinfo=UTC) for _, n in rows],
            "started_at_text": [None] * len(rows),
            "user_text": [TEXTS[n] for _, n in rows],
            "assistant_text": [f"answer {n} in {c}" for c, n in rows],
            "speakers": [["user", "assistant"]] * len(rows),
            "message_ids": [[f"m{n}"] for _, n in rows],
            "source": ["f.jsonl"] * len(rows),
            "source_offset": [0] * len(rows),
        },
    )
    questions = build(
        "questions",
        {
            "case_id": list(cases),
            "question_id": ["q 1"] * len(cases),
            "question": [f"what of {c}?" for c in cases],
            "question_type": ["single"] * len(cases),
            "asked_at": [None] * len(cases),
            "answer": [None] * len(cases),
            "gold_session_ids": [["s0"]] * len(cases),
            "gold_message_ids": [["m1"]] * len(cases),
            "gold_interaction_ids": [["i 1", "i3", "i 1"]] * len(cases),
            "expected_contains": [[]] * len(cases),
            "answerable": [True] * len(cases),
        },
    )
    notes = build(
        "notes",
        {
            "case_id": [c for c, _ in rows],
            "interaction_id": [unit(n) for _, n in rows],
            **{name: [[f"{name}/x{n}", "shared/---"] if n else [] for _, n in rows] for name in NOTE_FIELDS},
            "summary": ["a\n---\nb: [" for _ in rows],
            "status": ["ok"] * len(rows),
            "error": [None] * len(rows),
            "prompt_tokens": [0] * len(rows),
            "completion_tokens": [0] * len(rows),
        },
    )
    nodes = build(
        "nodes",
        {
            "case_id": [c for c in cases for _ in range(3)],
            "graph": ["g"] * 3 * len(cases),
            "node_id": [0, 1, 2] * len(cases),
            "kind": ["tag", "topic", "file"] * len(cases),
            "key": ["what/x<&>", "what", "i 1"] * len(cases),
            "text": [NASTY, None, None] * len(cases),
            "interaction_id": [None, None, "i 1"] * len(cases),
        },
    )
    linked = [c for c in cases if c != "d4"]  # a case may have nodes and no edges
    edges = build(
        "edges",
        {
            "case_id": [c for c in linked for _ in range(3)],
            "graph": ["g"] * 3 * len(linked),
            "source": [0, 0, 1] * len(linked),
            "target": [1, 1, 2] * len(linked),
            "kind": ["tag_topic", "twin", "topic_file"] * len(linked),
            "weight": [1.0, 0.5, 2.0] * len(linked),
            "interaction_id": [None, None, "i 1"] * len(linked),
        },
    )
    return {"interactions": interactions, "questions": questions, "notes": notes, "nodes": nodes, "edges": edges}


def runs(cases, preset, order):
    rows = [(c, r) for c in cases if not (preset == "bm25" and c == "e5") for r in range(UNITS)]
    return build(
        "runs",
        {
            "case_id": [c for c, _ in rows],
            "question_id": ["q 1"] * len(rows),
            "retriever": [preset] * len(rows),
            "rank": [r + 1 for _, r in rows],
            "interaction_id": [unit(order[r]) for _, r in rows],
            "score": [0.5] * len(rows),
        },
    )


@pytest.fixture(scope="module")
def generation(tmp_path_factory):
    store = Store.create(str(tmp_path_factory.mktemp("corpus") / "c"), SHARDS)
    shards = {s: [c for c in CASES if shard_of(c, SHARDS) == s] for s in range(SHARDS)}
    assert all(shards.values())
    made = {s: tables(cases) for s, cases in shards.items()}
    units = {
        "ingest": (["interactions"], {}),
        "questions": (["questions"], {}),
        "extract": (["notes"], {}),
        "graph/g": (["nodes", "edges"], {}),
    }
    orders = {"bm25": (0, 1, 2, 3), "adaptivegraph": (1, 3, 0, 2)}
    every = {n: pa.concat_tables([made[s][n] for s in made]) for n in ("questions", "interactions")}
    ranked = {p: {s: runs(c, p, order) for s, c in shards.items()} for p, order in orders.items()}
    judged = evaluate(
        {p: pa.concat_tables(r.values()) for p, r in ranked.items()},
        *every.values(),
        EvaluateConfig(resamples=100),
        DEPTH,
    )
    heads = {}

    def put(name, config, parts):
        fingerprint = name.replace("/", "-")
        written = tuple(store.write_part(s, f"{fingerprint}-{s}", t) for s, t in parts.items())
        store.write_manifest(Manifest(name, fingerprint, 1, config, tuple(next(iter(parts.values()))), {}, written))
        heads[name] = fingerprint

    for name, (held, config) in units.items():
        put(name, config, {s: {t: made[s][t] for t in held} for s in made})
    for preset in orders:
        put(f"rank/{preset}", {"rank.depth": DEPTH}, {s: {"runs": ranked[preset][s]} for s in made})
    put("evaluate", {}, {0: judged})
    store.move_heads({"main": {"units": heads, "sources": [], "config": {}}})
    return store.generation("main")


def read(path):
    return pq.ParquetFile(path).read().to_pylist()


def test_runs_gain_texts_and_gold_marks(generation, tmp_path):
    done = export(generation, "runs", target=tmp_path / "runs.parquet")
    rows = read(done.target)
    assert done.rows == len(rows) == 4 * UNITS + 5 * UNITS
    row = next(r for r in rows if (r["case_id"], r["retriever"], r["rank"]) == ("zoë", "adaptivegraph", 2))
    assert row["interaction_id"] == "i3"
    assert row["text"] == "-3 apples\nanswer 3 in zoë"
    assert (row["session_id"], row["question"], row["question_type"]) == ("s1", "what of zoë?", "single")
    assert {(r["interaction_id"], r["gold"]) for r in rows} == {
        ("i0", False),
        ("i 1", True),
        ("i2", False),
        ("i3", True),
    }


def test_small_slices_change_nothing(generation, tmp_path, monkeypatch):
    whole = read(export(generation, "runs", target=tmp_path / "a.parquet").target)
    monkeypatch.setattr(joins, "_SLICE", 3)
    assert read(export(generation, "runs", target=tmp_path / "b.parquet").target) == whole


def test_edges_gain_keys_and_kinds(generation, tmp_path):
    rows = read(export(generation, "edges", target=tmp_path / "e.parquet").target)
    assert len(rows) == 3 * 4
    assert {(r["source_kind"], r["source_key"], r["target_kind"], r["target_key"]) for r in rows} == {
        ("tag", "what/x<&>", "topic", "what"),
        ("topic", "what", "file", "i 1"),
    }


def test_other_joins(generation, tmp_path):
    notes = read(export(generation, "notes", target=tmp_path / "n.parquet").target)
    assert len(notes) == len(CASES) * UNITS
    assert next(n for n in notes if n["case_id"] == "d4" and n["interaction_id"] == "i2")["text"] == "answer 2 in d4"
    texts = [r["text"] for r in read(export(generation, "interactions", target=tmp_path / "i.parquet").target)]
    assert f"{NASTY}\nanswer 1 in alma" in texts
    qrels = read(export(generation, "qrels", "parquet", tmp_path / "q.parquet").target)
    assert [q["interaction_id"] for q in qrels if q["case_id"] == "alma"] == ["i 1", "i3"]


def test_by_case_partitions_hold_every_row_once(generation, tmp_path):
    done = export(generation, "runs", target=tmp_path / "runs", by_case=True)
    assert {p.parent.name for p in done.files} == {f"case={escape_id(c)}" for c in CASES}
    rows = [r for p in done.files for r in read(p)]
    flat = read(export(generation, "runs", target=tmp_path / "runs.parquet").target)

    def order(row):
        return row["case_id"], row["retriever"], row["rank"]

    assert sorted(rows, key=order) == sorted(flat, key=order)
    for path in done.files:
        assert {f"case={escape_id(r['case_id'])}" for r in read(path)} == {path.parent.name}


def test_csv_is_safe_in_spreadsheets_and_round_trips(generation, tmp_path):
    done = export(generation, "interactions", target=tmp_path / "i.csv")
    with done.target.open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == done.rows == len(CASES) * UNITS
    of = {(r["case_id"], r["interaction_id"]): r for r in rows}
    assert of["alma", "i0"]["user_text"] == "'=HYPERLINK(1)"
    assert of["alma", "i3"]["user_text"] == "'-3 apples"
    assert of["alma", "i 1"]["user_text"] == NASTY
    assert json.loads(of["alma", "i0"]["speakers"]) == ["user", "assistant"]
    assert datetime.fromisoformat(of["alma", "i0"]["started_at"]) == datetime(2024, 5, 1, 7, tzinfo=UTC)
    assert of["alma", "i3"]["started_at"] == ""
    assert not [v for r in rows for v in r.values() if v[:1] in "=+-@\t\r" and v]


def test_jsonl_equals_parquet(generation, tmp_path):
    lines = export(generation, "notes", target=tmp_path / "n.jsonl").target.read_text("utf-8").splitlines()
    rows = read(export(generation, "notes", target=tmp_path / "n.parquet").target)
    for line, row in zip(map(json.loads, lines), rows, strict=True):
        moment = line.pop("started_at")
        assert (moment and datetime.fromisoformat(moment)) == row.pop("started_at")
        assert line == row


def test_trec_files_give_our_metrics(generation, tmp_path):
    done = export(generation, "runs", "trec", tmp_path / "runs")
    assert [p.name for p in done.files] == ["adaptivegraph.run", "bm25.run"]
    assert done.rows == DEPTH * (4 + 5)
    qrels = export(generation, "qrels", target=tmp_path / "qrels.qrels")
    assert "a%20b%3A%25:q%201 0 i%201 1\n" in qrels.target.read_text("utf-8")
    gold = list(ir_measures.read_trec_qrels(str(qrels.target)))
    assert len(gold) == 2 * len(CASES)
    expected = {
        (m["retriever"], m["metric"]): m["mean"]
        for m in generation.table("metrics").to_pylist()
        if (m["level"], m["scope"]) == ("interaction", "all")
    }
    for path in done.files:
        run = list(ir_measures.read_trec_run(str(path)))
        found = ir_measures.calc_aggregate([ir_measures.RR, ir_measures.nDCG @ 10, ir_measures.AP], gold, run)
        for measure, name in ((ir_measures.RR, "mrr"), (ir_measures.nDCG @ 10, "ndcg@10"), (ir_measures.AP, "map")):
            assert found[measure] == pytest.approx(expected[path.stem, name], abs=1e-9)


def test_trec_scores_fall_strictly_as_32_bit_floats(generation, tmp_path):
    import numpy as np

    path = export(generation, "runs", "trec", tmp_path / "runs").files[0]
    scores = [np.float32(line.split()[4]) for line in path.read_text("utf-8").splitlines()[:DEPTH]]
    assert all(a > b for a, b in pairwise(scores))
    assert np.float32(f"{1 / 99_999:.9g}") > np.float32(f"{1 / 100_000:.9g}")


def test_markdown_front_matter_survives_hostile_text(generation, tmp_path):
    done = export(generation, "notes", "markdown", tmp_path / "notes")
    assert done.rows == len(done.files) == len(CASES) * UNITS
    notes = {(n["case_id"], n["interaction_id"]): n for n in generation.table("notes").to_pylist()}
    for path in done.files:
        start, front, body = re.split(r"^---\n", path.read_bytes().decode(), maxsplit=2, flags=re.M)
        assert start == ""
        loaded = yaml.safe_load(front)
        note = notes.pop((loaded["case_id"], loaded["interaction_id"]))
        assert path.relative_to(done.target).parts == (
            escape_id(loaded["case_id"]),
            escape_id(loaded["interaction_id"]) + ".md",
        )
        assert {name: loaded[name] for name in NOTE_FIELDS} == {name: note[name] for name in NOTE_FIELDS}
        assert loaded["summary"] == "a\n---\nb: ["
        if note["interaction_id"] == "i 1":
            assert body == f"\n{NASTY}\nanswer 1 in {note['case_id']}\n"
    assert not notes


def test_graphml_is_read_back_by_networkx(generation, tmp_path):
    done = export(generation, "graphs", target=tmp_path / "graphs")
    assert done.rows == 3 * len(CASES) + 3 * 4
    assert [p.relative_to(done.target).as_posix() for p in done.files] == sorted(
        f"{escape_id(c)}/g.graphml" for c in CASES
    )
    graph = nx.read_graphml(done.target / "alma" / "g.graphml", force_multigraph=True)
    assert graph.is_directed()
    assert graph.nodes["n2"] == {"kind": "file", "key": "i 1", "interaction_id": "i 1"}
    assert graph.nodes["n0"]["key"] == "what/x<&>"
    assert graph.nodes["n0"]["text"] == NASTY.replace("\x01", "").replace("\x0b", "")
    assert sorted((a, b, d["kind"], d["weight"]) for a, b, d in graph.edges(data=True)) == [
        ("n0", "n1", "tag_topic", 1.0),
        ("n0", "n1", "twin", 0.5),
        ("n1", "n2", "topic_file", 2.0),
    ]
    assert nx.read_graphml(done.target / "d4" / "g.graphml").number_of_edges() == 0


@pytest.mark.parametrize("what", [w for w in EXPORTABLE if w != "graphs"])
@pytest.mark.parametrize("fmt", ["parquet", "csv", "jsonl"])
def test_everything_exports_or_says_that_it_is_not_there(generation, tmp_path, what, fmt):
    held = {*generation.tables(), "qrels"}
    if what in held:
        done = export(generation, what, fmt, tmp_path / "out")
        assert done.files == (tmp_path / "out",)
        if what in TABLES:
            assert done.rows == generation.table(what).num_rows
    else:
        with pytest.raises(StoreError, match="holds no table"):
            export(generation, what, fmt, tmp_path / "out")
        assert not list(tmp_path.iterdir())


def test_a_taken_target_is_left_alone(generation, tmp_path):
    file = tmp_path / "m.csv"
    file.write_text("mine")
    with pytest.raises(UsageError, match="is there already"):
        export(generation, "metrics", target=file)
    assert file.read_text() == "mine"
    export(generation, "metrics", target=file, overwrite=True)
    assert file.read_text().startswith('"retriever"')
    folder = tmp_path / "graphs"
    export(generation, "graphs", target=folder)
    with pytest.raises(UsageError, match="is not empty"):
        export(generation, "graphs", target=folder)
    export(generation, "graphs", target=folder, overwrite=True)
    (folder / "thesis.doc").write_text("mine")
    with pytest.raises(UsageError, match=r"thesis\.doc"):
        export(generation, "graphs", target=folder, overwrite=True)
    assert (folder / "thesis.doc").read_text() == "mine"
    with pytest.raises(UsageError, match="a folder is needed"):
        export(generation, "graphs", "graphml", file, overwrite=True)
    assert export(generation, "metrics", "jsonl", folder).target == folder / "metrics.jsonl"


def test_a_failed_export_leaves_nothing_behind(generation, tmp_path, monkeypatch):
    export(generation, "runs", target=tmp_path / "r.parquet")
    before = (tmp_path / "r.parquet").read_bytes()

    def broken(rows):
        raise StoreError("is damaged")

    monkeypatch.setattr(joins, "full_text", broken)
    with pytest.raises(StoreError):
        export(generation, "runs", target=tmp_path / "r.parquet", overwrite=True)
    with pytest.raises(StoreError):
        export(generation, "notes", "markdown", tmp_path / "notes")
    assert [p.name for p in tmp_path.iterdir()] == ["r.parquet"]
    assert (tmp_path / "r.parquet").read_bytes() == before


@pytest.mark.parametrize(
    ("what", "fmt", "by_case", "message"),
    [
        ("egdes", None, False, "Did you mean 'edges'"),
        ("edges", "parqet", False, "Did you mean 'parquet'"),
        ("edges", "trec", False, "It holds: runs, qrels"),
        ("graphs", "csv", False, "It holds: tables"),
        ("metrics", "parquet", True, "not kept by case"),
        ("runs", "csv", True, "not partitioned by case"),
    ],
)
def test_what_does_not_go_together_is_refused(generation, tmp_path, what, fmt, by_case, message):
    with pytest.raises(UsageError, match=message):
        export(generation, what, fmt, tmp_path / "x", by_case=by_case)
    with pytest.raises(UsageError, match="not a local path"):
        export(generation, "runs", None, "s3://bucket/x")


def test_documented_examples_run(generation, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for table in ("runs", "edges", "question_metrics"):
        export(generation, table)
    export(generation, "notes", target="notes", by_case=True)
    export(generation, "qrels")
    export(generation, "runs", "trec", "runs")
    blocks = re.findall(r"^```(sql|python)\n(.*?)^```$", DOCS.read_text("utf-8"), flags=re.M | re.S)
    assert [kind for kind, _ in blocks].count("sql") == 4
    found = []
    for kind, code in blocks:
        if kind == "sql":
            found.append(duckdb.sql(code).fetchall())
        else:
            scope = {}
            exec(code, scope)
            found.append(scope)
    missed, by_type, tags, notes, first_gold, counted, measured = found
    # bm25 finds i 1 at rank 2 everywhere but in e5, which its run lacks.
    assert missed == [("e5", "q 1", "what of e5?")]
    assert [(r, t, round(v, 9), n) for r, t, v, n in by_type] == [
        ("adaptivegraph", "single", 1.0, 5),
        ("bm25", "single", 0.4, 5),
    ]
    assert tags == [("what/x<&>", 8)]
    assert sorted(notes) == sorted((c, UNITS, 0) for c in CASES)
    assert first_gold["first_gold"].to_dicts() == [
        {"retriever": "adaptivegraph", "found": 5, "median_rank": 1.0},
        {"retriever": "bm25", "found": 4, "median_rank": 2.0},
    ]
    assert counted["tags"].filter(pl.col("case_id") == "alma").to_dicts()[0] == {
        "case_id": "alma", "tag": "shared/---", "len": 3,
    }  # fmt: skip
    assert measured["measured"][ir_measures.RR] == pytest.approx(0.4)
