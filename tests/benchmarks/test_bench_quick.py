"""The pieces of `make bench` on tiny input: they run, agree with their peers and judge goals rightly. No times here."""

import importlib
import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def part(monkeypatch):
    """Import a module of this folder the way `bench.py` does."""
    monkeypatch.syspath_prepend(str(ROOT))
    return lambda name: importlib.import_module(f"tests.benchmarks.{name}")


def test_bm25_gives_the_scores_of_rank_bm25(part):
    found = part("bench_bm25").run(cases=2)
    assert found["score_difference"] < 1e-9
    assert found["index_ratio"] > 0 and found["query_ratio"] > 0 and found["query_by_shard_ratio"] > 0


def test_ppr_gives_the_scores_of_a_direct_solve(part):
    bench = part("bench_ppr")
    rng = bench.np.random.default_rng(2)
    found = bench.compare([bench.tag_graph(12, 4, 9, 2, rng) for _ in range(2)], questions=2, networkx_questions=1)
    assert found["direct_solve_difference"] < 1e-6
    assert found["questions"] == 4 and found["nodes"] == 2 * (12 + 4 + 9)


def test_measure_sees_memory_by_stage(part):
    script = (
        "import json, sys, time\n"
        "print('index/raw: 1 parts to do', file=sys.stderr, flush=True)\n"
        "held = bytearray(b'x') * 120_000_000\n"
        "time.sleep(0.5)\n"
        "print(json.dumps({'held': len(held)}))\n"
    )
    found = part("measure").measure([sys.executable, "-c", script])
    assert found.result == {"held": 120_000_000}
    assert found.peak_mb_by_stage["index"] >= 120
    assert found.peak_mb == max(found.peak_mb_by_stage.values())


def test_measure_tells_what_a_failed_command_said(part):
    with pytest.raises(RuntimeError, match="no such thing"):
        part("measure").measure([sys.executable, "-c", "raise SystemExit('no such thing')"])


def test_peers_take_what_a_corpus_holds(part, logs, tmp_path):
    from pipelines import driver
    from schemas.config import RunConfig

    config = RunConfig.model_validate({"corpus": str(tmp_path / "corpus"), "inputs": [str(logs)], "shards": 2})
    driver.run(config, stages=())
    found = part("peers").search_with_rank_bm25(config.corpus)
    assert found["documents"] == 120
    assert found["seconds"] == pytest.approx(found["tokenise"] + found["index"] + found["query"])
    files = sorted(map(str, logs.glob("*.jsonl")))
    parsed = part("peers").parse_with_orjson(files, rounds=1)
    assert parsed["megabytes"] == pytest.approx(sum(Path(f).stat().st_size for f in files) / 1e6)

    appended = tmp_path / "more.jsonl"
    assert part("bench_pipeline").write_sessions(Path(config.corpus), appended, cases=3, sessions=7) == 7
    lines = [json.loads(line) for line in appended.read_text(encoding="utf-8").splitlines()]
    assert len({line["case_id"] for line in lines}) == 3
    assert len({line["session_id"] for line in lines}) == 7
    assert all(line["messages"] for line in lines)


def test_goals_are_met_from_their_limit_on(part):
    stages = {"ingest": 3.0, "extract": 1.0, "graph": 1.0, "index": 6.0, "rank": 4.0, "evaluate": 1.0}
    one = {"wall": 100.0, "peak_mb": 1000.0, "seconds": stages, "peak_mb_by_stage": {}, "busy_seconds": stages}
    two = {**one, "megabytes": 245.0}
    ppr = {"tagloom_ms": 1.0, "igraph_ms": 6.0, "networkx_ms": 49.0, "direct_solve_difference": 1e-7}
    found = {
        "cores": 2,
        "took": 1.0,
        "load": 0.5,
        "bm25": {
            "index_seconds": 1.0,
            "rank_bm25_index_seconds": 3.0,
            "query_seconds": 1.0,
            "rank_bm25_query_seconds": 40.0,
            "query_by_shard_seconds": 2.0,
            "score_difference": 1e-8,
        },
        "ppr": {"one_graph": ppr, "many_graphs": ppr},
        "pipeline": {
            "rank_bm25": {"seconds": 9.0},
            "orjson": {"seconds": 1.0},
            "ingest": one,
            "two_processes": 1.9,
            "input": "synthetic",
            "cases": 20,
            "interactions": 100,
            "growth": {10: two, 20: {**two, "peak_mb": 1200.0}},
            "one_worker": {**one, "seconds": {**stages, "index": 13.0}},
            "nothing": {**one, "wall": 5.0},
            "appended": {"few": {**one, "wall": 11.0, "sessions": 5, "cases": 5}},
        },
    }
    bench = part("bench")
    rows = bench.goals(found)
    missed = [row.what for row in rows if not row.met]
    assert missed == [
        "BM25: query, shard by shard",
        "BM25: largest difference of a score",
        "PPR: 50 questions, one graph",
        "PPR: 5 questions, 200 graphs",
        "synthetic: index + rank, two workers",
        "synthetic: index + rank, seconds at work",
        "peak memory, 10 -> 20 cases",
        "append 5 sessions to 5 cases",
    ]
    assert all(row.bound for row in rows if row.goal)
    shown = bench.report(found, rows)
    assert shown.count("missed") == len(missed)
    assert "one worker" in shown
