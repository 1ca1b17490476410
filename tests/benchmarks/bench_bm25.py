"""BM25 against rank-bm25 on synthetic text: 500 cases of 250 documents of about 100 tokens, one question each.

Both sides start from the texts and split them into the same tokens. The index is made shard by shard (16 cases); the
questions are answered in one pass over all cases, and again shard by shard, where the look-up of a few tokens in each
shard's vocabulary outweighs the scores. Times are the best of three rounds for this
project, and of one for rank-bm25, on one thread. Run: python tests/benchmarks/bench_bm25.py
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))

from indexers.bm25 import bm25_scores, bm25_weights
from indexers.postings import build_postings, vocabulary_table
from indexers.queries import questions_to_queries
from transforms.tokens import tokenize

CASES, DOCUMENTS, TOKENS, QUESTION, SHARD = 500, 250, 100, 10, 16


def corpus(cases: int = CASES, seed: int = 0) -> tuple[list[list[str]], list[str]]:
    """Return documents by case, and a question a case; words follow Zipf's law over 50,000 words."""
    rng = np.random.default_rng(seed)
    letters = np.array(list("etaoinshrdlucmfwypvbgk"))
    words = np.array(["".join(rng.choice(letters, size)) for size in 2 + rng.poisson(4, 50_000)])
    weights = 1 / np.arange(1, len(words) + 1)
    cumulated = np.cumsum(weights / weights.sum())

    def text(size: int) -> str:
        drawn = words[np.minimum(np.searchsorted(cumulated, rng.random(size)), len(words) - 1)]
        return " ".join(drawn.tolist()).capitalize() + "."

    documents = [[text(n) for n in rng.poisson(TOKENS, DOCUMENTS)] for _ in range(cases)]
    return documents, [text(QUESTION) for _ in range(cases)]


def timed(work: Callable[[], Any], rounds: int = 3) -> tuple[float, Any]:
    """Return the least seconds of some rounds, and what the last one gave."""
    best, result = float("inf"), None
    for _ in range(rounds):
        result = None
        start = time.perf_counter()
        result = work()
        best = min(best, time.perf_counter() - start)
    return best, result


def run(cases: int = CASES) -> dict[str, float]:
    """Measure, and return times in seconds, ratios to rank-bm25, and the largest difference of a score."""
    from rank_bm25 import BM25Okapi

    documents, questions = corpus(cases)
    groups = [range(first, min(first + SHARD, cases)) for first in range(0, cases, SHARD)]
    columns = [pa.array([d for c in group for d in documents[c]], pa.large_string()) for group in groups]

    def index(texts: pa.Array, group: range) -> tuple[Any, ...]:
        tokens = tokenize(texts)
        offsets = np.append(0, np.cumsum([len(documents[c]) for c in group]))
        postings = build_postings(tokens, offsets)
        return group, postings, bm25_weights(postings), vocabulary_table(tokens.terms)

    def query(indexed: list[Any]) -> list[Any]:
        out = []
        for group, postings, weights, vocabulary in indexed:
            texts = pa.array([questions[c] for c in group])
            queries = questions_to_queries(texts, np.arange(len(group)), vocabulary)
            out.append(bm25_scores(postings, queries, weights=weights).values)
        return out

    index_seconds, shards = timed(lambda: [index(t, g) for t, g in zip(columns, groups, strict=True)])
    shard_seconds, scores = timed(lambda: query(shards))
    whole = [index(pa.concat_arrays(columns), range(cases))]
    query_seconds, _ = timed(lambda: query(whole))
    split = re.compile(r"\w+").findall
    their_index_seconds, theirs = timed(
        lambda: [BM25Okapi([split(d.lower()) for d in case]) for case in documents], rounds=1
    )
    their_query_seconds, expected = timed(
        lambda: [bm25.get_scores(split(q.lower())) for bm25, q in zip(theirs, questions, strict=True)], rounds=1
    )
    difference = np.abs(np.concatenate(scores) - np.concatenate(expected)).max()
    return {
        "megabytes": sum(len(d) for case in documents for d in case) / 1e6,
        "index_seconds": index_seconds,
        "rank_bm25_index_seconds": their_index_seconds,
        "index_ratio": their_index_seconds / index_seconds,
        "query_seconds": query_seconds,
        "rank_bm25_query_seconds": their_query_seconds,
        "query_ratio": their_query_seconds / query_seconds,
        "query_by_shard_seconds": shard_seconds,
        "query_by_shard_ratio": their_query_seconds / shard_seconds,
        "score_difference": float(difference),
    }


if __name__ == "__main__":
    print(json.dumps({name: float(f"{value:.4g}") for name, value in run().items()}, indent=2))
