"""How cost grows with the corpus: runs of doubling size, a line a stage, and a run four times larger to try them on.

    python tests/benchmarks/bench_scale.py                        # fit on up to 250,000 interactions, try on 1,000,000
    python tests/benchmarks/bench_scale.py --try-on 5000000       # and on five million besides

Corpora are synthetic, and lie in build/scale.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.benchmarks import scale_model as model
from tests.benchmarks.measure import measure

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "scale"
SIZES = (31_250, 62_500, 125_000, 250_000)
TAGLOOM = (sys.executable, "-c", "import sys; from jobs.cli import main; sys.exit(main())")
TARGETS = ((10.0, 64), (1_000.0, 1_024), (100_000.0, 16_384))
"""Millions of interactions and cores of the sizing table."""


def one(size: int, workers: int, *, keep: bool = False) -> dict[str, Any]:
    """Make logs of a size, run everything over them into a new corpus, and return what it took."""
    logs, corpus = FOLDER / f"logs-{size}", FOLDER / f"corpus-{size}"
    shutil.rmtree(corpus, ignore_errors=True)
    if not (logs / "questions.jsonl").is_file():
        shutil.rmtree(logs, ignore_errors=True)
        subprocess.run([*TAGLOOM, "synth", "--size", str(size), "--to", str(logs), "--quiet"], check=True, cwd=ROOT)
    done = measure([*TAGLOOM, "run", "-C", str(corpus), str(logs), "--workers", str(workers), "--json"])
    record = json.loads(max((corpus / "runs").glob("*.json")).read_text(encoding="utf-8"))
    tables = sorted((corpus / "tables").glob("*/*/*.parquet"))
    found = {
        "interactions": done.result["interactions"],
        "input_gb": sum(file.stat().st_size for file in logs.glob("*.jsonl")) / 1e9,
        "wall": done.wall,
        "cpu": done.cpu,
        "peak_mb": done.peak_mb,
        "peak_mb_by_stage": dict(done.peak_mb_by_stage),
        "seconds": done.result["seconds"],
        "costs": model.costs_of(record),
        "shards": len(list((corpus / "tables" / "interactions").iterdir())),
        "table_files": len(tables),
        "table_gb": sum(file.stat().st_size for file in tables) / 1e9,
    }
    if not keep:
        shutil.rmtree(corpus)
    return found


def main() -> None:
    """Run, fit, predict, compare, and print Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=lambda text: tuple(map(int, text.split(","))), default=SIZES)
    parser.add_argument("--try-on", type=int, action="append", help="interactions of a run to predict [1,000,000]")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--json", type=Path, help="keep every figure in a file")
    given = parser.parse_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    runs = []
    for size in given.sizes:
        tell(f"{size:,} interactions")
        runs.append(one(size, given.workers))
    lines = model.fit([run["interactions"] / 1e6 for run in runs], [run["costs"] for run in runs])
    tried = []
    for size in given.try_on or [1_000_000]:
        tell(f"{size:,} interactions, predicted from those before")
        tried.append(one(size, given.workers))
    show(runs, tried, lines)
    if given.json:
        plain = {stage: {name: asdict(line) for name, line in own.items()} for stage, own in lines.items()}
        given.json.write_text(json.dumps({"runs": runs, "tried": tried, "lines": plain}, indent=1), encoding="utf-8")


def tell(text: str) -> None:
    """Say what is going on."""
    print(text, file=sys.stderr, flush=True)


def show(runs: list[dict[str, Any]], tried: list[dict[str, Any]], lines: Any) -> None:
    """Print the tables of docs/scale.md."""
    stages = list(lines)
    print(
        "\n| interactions | shards | wall | processor | peak memory | tables |", "|---|---|---|---|---|---|", sep="\n"
    )
    for run in [*runs, *tried]:
        print(
            f"| {run['interactions']:,} | {run['shards']} | {run['wall']:.0f} s | {run['cpu']:.0f} s "
            f"| {run['peak_mb']:,.0f} MB | {run['table_gb']:.2f} GB in {run['table_files']:,} files |"
        )
    print(
        "\nwall time by stage",
        "| interactions | " + " | ".join(runs[0]["seconds"]) + " |",
        "|---" * (len(runs[0]["seconds"]) + 1) + "|",
        sep="\n",
    )
    for run in [*runs, *tried]:
        print(f"| {run['interactions']:,} | " + " | ".join(f"{took:.1f}" for took in run["seconds"].values()) + " |")
    print("\na million interactions more", "| stage | CPU s | read GB | written GB |", "|---|---|---|---|", sep="\n")
    for stage, own in lines.items():
        gigabytes = " | ".join(f"{own[name].slope / 1e9:.3f}" for name in ("bytes_read", "bytes_written"))
        print(f"| {stage} | {own['cpu'].slope:.1f} | {gigabytes} |")
    for run in tried:
        guess = model.predict(lines, run["interactions"] / 1e6)
        print(f"\n{run['interactions']:,} interactions: predicted and measured")
        print("| stage | CPU s | | | written MB | | |", "|---|---|---|---|---|---|---|", sep="\n")
        for stage in [*stages, "all"]:
            cells = []
            for name, unit in (("cpu", 1.0), ("bytes_written", 1e6)):
                pair = [model.total(c, name) if stage == "all" else c[stage][name] for c in (guess, run["costs"])]
                cells += [
                    f"{pair[0] / unit:,.1f}",
                    f"{pair[1] / unit:,.1f}",
                    f"{pair[0] / max(pair[1], 1e-9) - 1:+.0%}",
                ]
            print(f"| {stage} | " + " | ".join(cells) + " |")
    last = [*runs, *tried][-1]
    print(
        "\n| interactions | cores | core hours | wall | tables | shards of 64 MB | files |", "|---" * 7 + "|", sep="\n"
    )
    for millions, cores in TARGETS:
        need = model.sizing(
            lines,
            millions,
            last["input_gb"] / last["interactions"] * millions * 1e6,
            cores,
            last["table_files"] // last["shards"],
        )
        print(
            f"| {millions:,.0f} M | {cores:,} | {need.core_hours:,.1f} | {need.hours:,.2f} h "
            f"| {need.written_gb:,.1f} GB | {need.shards:,} | {need.objects:,} |"
        )


if __name__ == "__main__":
    main()
