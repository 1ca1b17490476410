"""Extraction against a stub server that answers after a set delay: rate, CPU and memory a request.

    python tests/benchmarks/bench_extract.py [--quick] [--json FILE]

The server proves nothing about models; it shows what Tagloom itself adds. Each case is asked one interaction after the
other (window 1), so a case can have one request in flight, and 64 cases at once ideally give 64 / delay requests a
second.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import threading
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from pipelines import driver  # noqa: E402
from pipelines.progress import Silent  # noqa: E402
from schemas.config import RunConfig  # noqa: E402
from tests.engines.stub_server import running  # noqa: E402

FOLDER = ROOT / "build" / "bench" / "extract"
IN_FLIGHT = 64
DELAY = 0.2


def write_cases(path: Path, cases: int, interactions: int) -> None:
    """Write cases of equal length, so that all of them are in flight until the end."""
    path.parent.mkdir(parents=True, exist_ok=True)
    words = ["harbour", "violin", "orchard", "lantern", "market", "glacier", "recipe", "bicycle", "novel", "island"]
    with path.open("w") as out:
        for case in range(cases):
            messages = []
            for n in range(interactions):
                told = " ".join(words[(case * 7 + n * k) % 10] for k in range(1, 40))
                messages += [
                    {"role": "user", "content": f"Case {case}, note {n}: {told}."},
                    {"role": "assistant", "content": f"You told me about the {words[(case + n) % 10]} ({n})."},
                ]
            line = {"case_id": f"c{case:05d}", "session_id": "s", "started_at": "2024-01-01", "messages": messages}
            out.write(json.dumps(line) + "\n")


class Memory(threading.Thread):
    """Samples this process's own memory and how many requests were answered."""

    def __init__(self, requests: Any) -> None:
        super().__init__(daemon=True)
        self.requests, self.samples, self.done = requests, [], threading.Event()

    def run(self) -> None:
        import psutil

        me = psutil.Process()
        while not self.done.wait(1.0):
            info = me.memory_info()
            self.samples.append((int(self.requests()), (info.rss - info.shared) / 1e6))


def extract(name: str, cases: int, interactions: int, delay: float, shards: int) -> dict[str, Any]:
    """Extract a corpus through the stage itself, in this process, and measure that stage alone."""
    from pipelines.spent import Spent

    shutil.rmtree(FOLDER / name, ignore_errors=True)
    log = FOLDER / name / "log.jsonl"
    write_cases(log, cases, interactions)
    seen: list[Spent] = []

    class Watch(Silent):
        def measure(self, spent: Spent) -> None:
            seen[:] = [spent]

    with running("--delay", str(delay)) as server:
        settings = {
            "corpus": str(FOLDER / name / "corpus"),
            "inputs": [str(log)],
            "shards": shards,
            "compute": {"workers": 0},
            "extract": {
                "extractor": "openai",
                "model": "stub",
                "options": {"base_url": server.base_url, "concurrency": IN_FLIGHT},
            },
        }
        driver.run(RunConfig.model_validate(settings), stages=())
        memory = Memory(lambda: seen[0].count("requests") if seen else 0)
        memory.start()
        cpu, wall = time.process_time(), time.perf_counter()
        result = driver.run(RunConfig.model_validate({**settings, "inputs": []}), stages=("extract",), progress=Watch())
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        memory.done.set()
        memory.join()
    run = result.manifests["extract"].run
    requests = int(run["requests"])
    return {
        "requests": requests,
        "seconds": wall,
        "stage_seconds": result.seconds["extract"],
        "rate": requests / result.seconds["extract"],
        "ideal_rate": min(IN_FLIGHT, cases) / delay if delay else None,
        "cpu_ms": cpu / requests * 1e3,
        "occupancy": run["occupancy"],
        "notes": result.manifests["extract"].stats,
        "memory": memory.samples,
    }


def measure(quick: bool) -> dict[str, Any]:
    """Measure rate and CPU, then memory over many requests."""
    rate = extract("rate", IN_FLIGHT, 20 if quick else 100, DELAY, 16)
    total = 10_000 if quick else 200_000
    memory = extract("memory", total // 100, 100, 0.02, total // 800)
    samples = [(done, held) for done, held in memory["memory"] if done > total // 10]
    early = [held for done, held in samples if done <= total * 4 // 10]
    late = [held for done, held in samples if done >= total * 7 // 10]
    return {
        "rate": rate,
        "memory": {
            **{k: v for k, v in memory.items() if k != "memory"},
            "early_mb": max(early, default=0.0),
            "late_mb": max(late, default=0.0),
        },
    }


def report(found: dict[str, Any]) -> str:
    """Return what is printed."""
    rate, memory = found["rate"], found["memory"]
    share = rate["rate"] / rate["ideal_rate"]
    return "\n".join(
        [
            f"{rate['requests']:,} requests, {IN_FLIGHT} cases in flight, answers after {DELAY} s:",
            f"  {rate['rate']:.1f} requests/s, {share:.1%} of the ideal {rate['ideal_rate']:.0f}; goal 90 %",
            f"  {rate['cpu_ms']:.2f} ms of CPU a request, start and journal included; goal 2 ms",
            f"{memory['requests']:,} requests: {memory['rate']:.0f} requests/s, {memory['cpu_ms']:.2f} ms of CPU each;",
            f"  memory at most {memory['early_mb']:.0f} MB in the first 40 %, "
            f"{memory['late_mb']:.0f} MB in the last 30 %",
        ]
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of the requests")
    parser.add_argument("--json", metavar="FILE", help="write all figures there")
    chosen = parser.parse_args()
    found = measure(chosen.quick)
    if chosen.json:
        Path(chosen.json).write_text(json.dumps(found, indent=1), encoding="utf-8")
    print(report(found))


if __name__ == "__main__":
    main()
