"""Speed and memory against rank-bm25, igraph, networkx and a plain orjson parse, all from one run.

    python tests/benchmarks/bench.py [--quick] [--json FILE]

Prints one row for each goal, then how time and memory grow with the corpus. docs/performance.md explains the rows.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

# Read when the libraries load: every side works on one thread.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")
ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from tests.benchmarks import bench_bm25, bench_pipeline, bench_ppr  # noqa: E402

FOLDER = ROOT / "build" / "bench"
FULL, QUICK = (125, 250, 500), (30, 60)
BOUNDS = {
    "bm25 query": "looking a question's few words up in each shard's vocabulary outweighs the scores themselves.",
    "ppr": "the sparse product moves more memory the fewer columns it has, and igraph's solver needs few sweeps on "
    "small graphs; the goal was set for 50 questions on one graph, which fill the columns.",
    "index + rank": "the start of worker processes, which a large corpus pays once.",
    "ingest": "orjson stops at Python objects; ingest also hashes, compresses and writes every text twice (as "
    "fragment and as part), and loads Beam, which alone takes some 2 s.",
    "memory": "the largest fragment and the workers' own shards; both stop growing once the corpus holds more than "
    "`ingest.split_mb` of text and 8 MB a shard.",
    "workers": "the start of the second worker, and what the machine itself gives: see the row above.",
    "nothing": "loading the libraries.",
    "append": "what does not shrink with the work: loading the libraries and Beam (some 4 s), and judging the whole "
    "corpus; the rest is five whole shards made again.",
}


@dataclass(frozen=True)
class Row:
    """One goal: what was measured, and whether it is met."""

    what: str
    ours: str
    peer: str
    ratio: float
    goal: str
    met: bool
    bound: str


def goals(found: dict[str, Any]) -> list[Row]:
    """Hold the figures against the goals."""
    bm25, ppr, pipe = found["bm25"], found["ppr"], found["pipeline"]
    last = pipe["growth"][pipe["cases"]]
    rows: list[Row] = []

    def faster(what: str, ours: float, peer: float, name: str, goal: float, bound: str) -> None:
        ratio = peer / ours
        rows.append(Row(what, took(ours), f"{name} {took(peer)}", ratio, f">= {goal:g}", ratio >= goal, BOUNDS[bound]))

    def within(what: str, ours: str, peer: str, ratio: float, goal: float, bound: str) -> None:
        rows.append(Row(what, ours, peer, ratio, f"<= {goal:g}", ratio <= goal, BOUNDS[bound]))

    faster("BM25: index", bm25["index_seconds"], bm25["rank_bm25_index_seconds"], "rank-bm25", 3, "bm25 query")
    peer = bm25["rank_bm25_query_seconds"]
    faster("BM25: query, one pass", bm25["query_seconds"], peer, "rank-bm25", 40, "bm25 query")
    faster("BM25: query, shard by shard", bm25["query_by_shard_seconds"], peer, "rank-bm25", 40, "bm25 query")
    within(
        "BM25: largest difference of a score",
        f"{bm25['score_difference']:.1e}",
        "rank-bm25",
        bm25["score_difference"],
        1e-9,
        "bm25 query",
    )
    for name, label in (("one_graph", "50 questions, one graph"), ("many_graphs", "5 questions, 200 graphs")):
        own = ppr[name]
        ours = own["tagloom_ms"] / 1e3
        faster(f"PPR: {label}", ours, own["igraph_ms"] / 1e3, "igraph", 6, "ppr")
        faster(f"PPR: {label}", ours, own["networkx_ms"] / 1e3, "networkx", 50, "ppr")
        error = own["direct_solve_difference"]
        within(f"PPR: {label}, error", f"{error:.1e}", "direct solve", error, 1e-6, "ppr")
    indexed = last["seconds"]["index"] + last["seconds"]["rank"]
    faster(
        f"{pipe['input']}: index + rank, two workers",
        indexed,
        pipe["rank_bm25"]["seconds"],
        "rank-bm25",
        1,
        "index + rank",
    )
    busy = last["busy_seconds"]["index"] + last["busy_seconds"]["rank"]
    faster(
        f"{pipe['input']}: index + rank, seconds at work",
        busy,
        pipe["rank_bm25"]["seconds"],
        "rank-bm25",
        1,
        "index + rank",
    )
    ingest, parse = pipe["ingest"]["seconds"]["ingest"], pipe["orjson"]["seconds"]
    within(
        f"{pipe['input']}: ingest of {last['megabytes']:.0f} MB",
        took(ingest),
        f"orjson {took(parse)}",
        ingest / parse,
        3,
        "ingest",
    )
    sizes = sorted(pipe["growth"])
    for small, large in pairwise(sizes):
        a, b = pipe["growth"][small]["peak_mb"], pipe["growth"][large]["peak_mb"]
        within(f"peak memory, {small} -> {large} cases", f"{b:.0f} MB", f"{a:.0f} MB", b / a, 1.15, "memory")
    one = pipe["one_worker"]["seconds"]
    ceiling = pipe["two_processes"]
    rows.append(Row("two busy processes to one, on this machine now", "-", "-", ceiling, "", True, ""))
    faster("index + rank, two workers to one", indexed, one["index"] + one["rank"], "one worker", 1.7, "workers")
    share = pipe["nothing"]["wall"] / last["wall"]
    within(
        "run with nothing to do",
        took(pipe["nothing"]["wall"]),
        f"full run {took(last['wall'])}",
        share,
        0.05,
        "nothing",
    )
    for done in pipe["appended"].values():
        label = f"append {done['sessions']} sessions to {done['cases']} cases"
        within(label, took(done["wall"]), f"full run {took(last['wall'])}", done["wall"] / last["wall"], 0.10, "append")
    return rows


def took(seconds: float) -> str:
    """Write a time with three digits."""
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def table(header: list[str], rows: list[list[str]]) -> str:
    """Lay out columns; all but the first are set right."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    lines = []
    for row in [header, ["-" * width for width in widths], *rows]:
        cells = [
            cell.ljust(w) if n == 0 else cell.rjust(w) for n, (cell, w) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def report(found: dict[str, Any], rows: list[Row]) -> str:
    """Return what is printed."""
    pipe = found["pipeline"]
    lines = [
        f"\n{found['cores']} cores. Whole runs: {pipe['input']}, {pipe['cases']} cases, "
        f"{pipe['interactions']:,} interactions, presets {', '.join(bench_pipeline.PRESETS)}.\n",
        table(
            ["what", "ours", "peer", "ratio", "goal", ""],
            [
                [r.what, r.ours, r.peer, f"{r.ratio:.3g}", r.goal, ("met" if r.met else "missed") if r.goal else ""]
                for r in rows
            ],
        ),
    ]
    missed = [row for row in rows if not row.met]
    lines += ["\nWhat bounds the misses:", *(f"- {row.what}: {row.bound}" for row in missed)] if missed else []
    stages = list(pipe["growth"][pipe["cases"]]["seconds"])
    for title, pick in (
        ("seconds", "seconds"),
        ("peak memory in MB", "peak_mb_by_stage"),
        ("seconds at work", "busy_seconds"),
    ):
        body = []
        for cases, own in [*pipe["growth"].items(), (f"{pipe['cases']}, one worker", pipe["one_worker"])]:
            whole = {"seconds": own["wall"], "peak_mb_by_stage": own["peak_mb"]}.get(
                pick, sum(own["busy_seconds"].values())
            )
            places = 1 if pick != "peak_mb_by_stage" else 0
            body.append([f"{cases}", *(f"{own[pick].get(s, 0):.{places}f}" for s in stages), f"{whole:.{places}f}"])
        lines.append("\n" + table([f"cases: {title}", *stages, "whole"], body))
    lines.append(f"\ntook {took(found['took'])}; load of the machine over the last 15 minutes {found['load']:.1f}")
    return "\n".join(lines)


def measure(quick: bool) -> dict[str, Any]:
    """Measure everything."""
    started = time.perf_counter()

    def tell(what: str) -> None:
        print(f"[{time.perf_counter() - started:5.0f} s] {what}", file=sys.stderr, flush=True)

    tell("BM25 on synthetic text")
    found: dict[str, Any] = {"cores": os.cpu_count(), "quick": quick, "bm25": bench_bm25.run(60 if quick else 500)}
    tell("PPR")
    found["ppr"] = bench_ppr.run()
    found["pipeline"] = bench_pipeline.run(FOLDER, QUICK if quick else FULL, tell)
    found["took"] = time.perf_counter() - started
    found["load"] = os.getloadavg()[2]
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="60 cases in place of 500")
    parser.add_argument("--json", metavar="FILE", help="write all figures there")
    chosen = parser.parse_args()
    found = measure(chosen.quick)
    rows = goals(found)
    if chosen.json:
        Path(chosen.json).write_text(
            json.dumps({**found, "goals": [asdict(r) for r in rows]}, indent=1), encoding="utf-8"
        )
    print(report(found, rows))


if __name__ == "__main__":
    main()
