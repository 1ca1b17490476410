"""What the pipeline is held against, each run in a process of its own: prints JSON.

``peers.py orjson FILE...`` parses files (whole, or a line at a time where they end in .jsonl).
``peers.py rank-bm25 CORPUS`` tokenises, indexes and asks with rank-bm25, as one would by hand: one BM25Okapi a case
over the texts of a corpus that was ingested (reading them is not counted), and all scores of each question, sorted.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))


def parse_with_orjson(files: Sequence[str], rounds: int = 3) -> dict[str, float]:
    """Return the least seconds of some rounds for reading and parsing files."""
    import orjson

    best, size = float("inf"), 0
    for _ in range(rounds):
        started = time.perf_counter()
        size = 0
        for file in files:
            data = Path(file).read_bytes()
            size += len(data)
            held = [orjson.loads(x) for x in data.splitlines()] if file.endswith(".jsonl") else orjson.loads(data)
            del held
        best = min(best, time.perf_counter() - started)
    return {"seconds": best, "megabytes": size / 1e6}


def search_with_rank_bm25(corpus: str) -> dict[str, float]:
    """Return the seconds that rank-bm25 needs for all cases and questions of a corpus."""
    from rank_bm25 import BM25Okapi

    from pipelines.store import Store
    from transforms.interactions import full_text

    generation = Store.open(corpus).generation()
    texts: dict[str, list[str]] = {}
    for part in generation.parts("interactions", ["case_id", "user_text", "assistant_text"]):
        for case, text in zip(part["case_id"].to_pylist(), full_text(part).to_pylist(), strict=True):
            texts.setdefault(case, []).append(text)
    asked: dict[str, list[str]] = {}
    for part in generation.parts("questions", ["case_id", "question"]):
        for row in part.to_pylist():
            asked.setdefault(row["case_id"], []).append(row["question"])
    spent = dict.fromkeys(("tokenise", "index", "query"), 0.0)
    for case, documents in texts.items():
        start = time.perf_counter()
        tokens = [re.findall(r"\w+", text.lower()) for text in documents]
        tokenised = time.perf_counter()
        index = BM25Okapi(tokens)
        indexed = time.perf_counter()
        for question in asked.get(case, ()):
            scores = index.get_scores(re.findall(r"\w+", question.lower()))
            (-scores).argsort(kind="stable")
        spent["tokenise"] += tokenised - start
        spent["index"] += indexed - tokenised
        spent["query"] += time.perf_counter() - indexed
    return {**spent, "seconds": sum(spent.values()), "documents": sum(map(len, texts.values()))}


def alone(*arguments: str) -> dict[str, float]:
    """Run a peer in a process of its own."""
    command = [sys.executable, __file__, *arguments]
    found: dict[str, float] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return found


if __name__ == "__main__":
    kind, *rest = sys.argv[1:]
    print(json.dumps(parse_with_orjson(rest) if kind == "orjson" else search_with_rank_bm25(*rest)))
