"""Helpers of the driver's tests: run, and look at what lies on storage."""

import hashlib
import json
from pathlib import Path

from pipelines import driver
from schemas.config import RunConfig, load_config

PRESETS = ["bm25", "bm25-raw", "taggraph-basic", "adaptivegraph"]


def configure(corpus, *inputs, **settings) -> RunConfig:
    base = {"compute.workers": 0, "rank.presets": PRESETS, "evaluate.resamples": 200, **settings}
    return load_config(None, [], {"corpus": str(corpus), "inputs": [str(i) for i in inputs], **base})


def run(corpus, *inputs, append=False, stages=None, **settings) -> driver.RunResult:
    more = {} if stages is None else {"stages": stages}
    return driver.run(configure(corpus, *inputs, **settings), append=append, **more)


def tables(corpus) -> dict[str, str]:
    """Path -> SHA-256 of every table file of a corpus on disk."""
    root = Path(corpus) / "tables"
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def live(corpus, name="main") -> dict[str, str]:
    """The same, of the tables that a generation names."""
    from pipelines.store import Store

    store = Store.open(str(corpus))
    generation = store.generation(name)
    found = {}
    for unit in generation.units:
        for part in generation.manifest(unit).parts:
            for table, info in part.tables.items():
                found[store.part_path(table, part.shard, part.key)] = info.sha256
    return found


def write_lines(path: Path, *lines: dict) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def session(case: str, number: int, *texts: str) -> dict:
    """A session line: user and assistant in turn."""
    roles = ("user", "assistant")
    messages = [{"role": roles[n % 2], "content": text} for n, text in enumerate(texts)]
    return {
        "case_id": case,
        "session_id": f"s{number}",
        "started_at": f"2024-01-{number:02d}T10:00:00Z",
        "messages": messages,
    }


def question(case: str, text: str, *gold: str) -> dict:
    return {"case_id": case, "question_id": text[:20], "question": text, "gold_session_ids": list(gold)}
