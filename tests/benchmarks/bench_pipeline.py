"""Whole runs of the `tagloom` command: time and memory as the corpus grows, one worker and two, nothing to do, appends.

The corpus is LME-R where the real data lies beside the project, else a synthetic one of the same number of cases and
interactions.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.benchmarks import peers
from tests.benchmarks.measure import Measured, measure

ROOT = Path(__file__).parents[2]
BUILDER = ROOT.parent / "shared" / "data" / "longmemeval" / "build_r.py"
PRESETS = ("bm25", "taggraph-basic", "taggraph-stopwords", "taggraph-tfidf", "adaptivegraph")
SESSIONS_A_CASE, INTERACTIONS_A_CASE = 45, 229
APPENDED_CASES = 5


@dataclass(frozen=True)
class Corpus:
    """Input of a run.

    Attributes:
        name: What it is.
        files: What the command is given.
        parsed: The files themselves.
        megabytes: Their size.
    """

    name: str
    files: tuple[str, ...]
    parsed: tuple[str, ...]
    megabytes: float


def make_corpus(folder: Path, cases: int) -> Corpus:
    """Make the input of so many cases, once."""
    if BUILDER.is_file():
        file = folder / f"lme-r-{cases}.json"
        if not file.is_file():
            aside = file.with_suffix(".part")
            subprocess.run([sys.executable, str(BUILDER), str(aside), "--cases", str(cases)], check=True)
            aside.replace(file)
        return Corpus("LME-R", (str(file),), (str(file),), file.stat().st_size / 1e6)
    from transforms import synth

    target = folder / f"synthetic-{cases}"
    if not (target / "questions.jsonl").is_file():
        synth.write(str(target), size=cases * INTERACTIONS_A_CASE, cases=cases, seed=7, overwrite=True)
    files = sorted(target.glob("*.jsonl"))
    return Corpus("synthetic", (str(target),), tuple(map(str, files)), sum(f.stat().st_size for f in files) / 1e6)


def command(corpus: Path, *rest: str, verb: str = "run", workers: int | str = "auto") -> list[str]:
    """Return a command line."""
    presets = [word for name in PRESETS for word in ("--preset", name)]
    tagloom = "import sys; from jobs.cli import main; sys.exit(main())"
    options = ["--unit", "exchange", "--json"]
    if verb == "run":
        options += ["--workers", str(workers), *presets]
    return [sys.executable, "-c", tagloom, verb, "-C", str(corpus), *options, *rest]


def two_processes() -> float:
    """Return how much more work two busy processes do than one, here and now: what no second worker can exceed."""
    work = "import time; t = time.perf_counter(); sum(i * i for i in range(20_000_000)); print(time.perf_counter() - t)"

    def slowest(count: int) -> float:
        started = [subprocess.Popen([sys.executable, "-c", work], stdout=subprocess.PIPE) for _ in range(count)]
        return max(float(process.communicate()[0]) for process in started)

    return 2 * slowest(1) / slowest(2)


def fresh_run(folder: Path, source: Corpus, cases: int, workers: int) -> tuple[Path, Measured]:
    """Run everything into a new corpus."""
    target = folder / f"corpus-{cases}-{workers}"
    shutil.rmtree(target, ignore_errors=True)
    return target, measure(command(target, *source.files, workers=workers))


def busy_seconds(corpus: Path) -> dict[str, float]:
    """Return, by stage, the seconds that workers were at work, from the manifests."""
    busy: dict[str, float] = {}
    for file in corpus.glob("manifests/*/*.json"):
        found = json.loads(file.read_text(encoding="utf-8"))
        stage, spent = found["unit"].partition("/")[0], float(found["run"].get("busy_seconds", 0))
        # The presets of a run are ranked together and all tell the whole.
        busy[stage] = max(busy.get(stage, 0.0), spent) if stage == "rank" else busy.get(stage, 0.0) + spent
    return busy


def write_sessions(corpus: Path, file: Path, cases: int, sessions: int) -> int:
    """Write new sessions for some cases, made of texts that other cases hold; return their number."""
    from pipelines.store import Store

    generation = Store.open(str(corpus)).generation()
    names = sorted(
        {
            name
            for part in generation.parts("interactions", ["case_id"])
            for name in part["case_id"].unique().to_pylist()
        }
    )
    chosen = names[:: max(1, len(names) // cases)][:cases]
    part = next(generation.parts("interactions", ["case_id", "session_id", "user_text", "assistant_text"]))
    found: dict[tuple[str, str], list[dict[str, str]]] = {}
    for row in part.to_pylist():
        messages = found.setdefault((row["case_id"], row["session_id"]), [])
        for role in ("user", "assistant"):
            if row[f"{role}_text"]:
                messages.append({"role": role, "content": row[f"{role}_text"]})
    texts = list(found.values())
    with file.open("w", encoding="utf-8") as out:
        for n in range(sessions):
            line: dict[str, Any] = {"case_id": chosen[n % len(chosen)], "session_id": f"{file.stem}-{n}"}
            line |= {"started_at": f"2024-01-{n % 28 + 1:02d}T10:00:00Z", "messages": texts[n % len(texts)]}
            out.write(json.dumps(line, ensure_ascii=False) + "\n")
    return sessions


def run(folder: Path, sizes: tuple[int, ...], tell: Any = lambda _: None) -> dict[str, Any]:
    """Measure whole runs; the largest size is also run on one worker, run again, and appended to.

    Args:
        folder: Where inputs and corpora are put.
        sizes: Numbers of cases, ascending.
        tell: Told what is going on.

    Returns:
        Figures; ``corpus`` is where the largest corpus lies.
    """
    folder.mkdir(parents=True, exist_ok=True)
    growth = {}
    for cases in sizes:
        source = make_corpus(folder, cases)
        tell(f"run of {cases} cases, two workers")
        corpus, two = fresh_run(folder, source, cases, 2)
        growth[cases] = {**figures(two), "megabytes": source.megabytes, "busy_seconds": busy_seconds(corpus)}
        if cases != sizes[-1]:
            shutil.rmtree(corpus)
    ceiling = two_processes()
    tell("the same, one worker")
    single, one = fresh_run(folder, source, cases, 1)
    ones = {**figures(one), "busy_seconds": busy_seconds(single)}
    tell("ingest alone")
    shutil.rmtree(single)
    ingested = measure(command(single, *source.files, verb="ingest"))
    tell("rank-bm25 and orjson alone")
    others = {"rank_bm25": peers.alone("rank-bm25", str(corpus)), "orjson": peers.alone("orjson", *source.parsed)}
    shutil.rmtree(single)
    tell("nothing to do")
    nothing = measure(command(corpus, *source.files))
    appended = {}
    for name, sessions in (("few", APPENDED_CASES), ("percent", max(1, cases * SESSIONS_A_CASE // 100))):
        file = folder / f"appended-{name}.jsonl"
        count = write_sessions(corpus, file, APPENDED_CASES, sessions)
        tell(f"append {count} sessions to {APPENDED_CASES} cases")
        done = measure(command(corpus, str(file), "--append"))
        appended[name] = {**figures(done), "sessions": count, "cases": APPENDED_CASES}
        appended[name]["parts_made"] = done.result["parts_made"]
    return {
        "input": source.name,
        "files": source.parsed,
        "corpus": str(corpus),
        "cases": cases,
        "interactions": two.result["interactions"],
        "growth": growth,
        "one_worker": ones,
        "two_processes": ceiling,
        "ingest": figures(ingested),
        **others,
        "nothing": figures(nothing),
        "appended": appended,
    }


def figures(done: Measured) -> dict[str, Any]:
    """Return what a table shows of a measured run."""
    return {
        "wall": done.wall,
        "cpu": done.cpu,
        "peak_mb": done.peak_mb,
        "peak_mb_by_stage": dict(done.peak_mb_by_stage),
        "seconds": done.result["seconds"],
    }
