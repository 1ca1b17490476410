"""Stage embed: texts of interactions, chunks, questions and graph nodes -> vectors, on Ray, where a preset reads them.

Vectors are known by the hash of what was embedded and of what embeds it: a part is made of the vectors that the
shard's other parts hold, and only texts that none of them holds are embedded. So re-indexing pays for new texts alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indexers.shard import Singles, TableOf
from pipelines.stage import Inputs, Output, Stage, Unit
from pipelines.wanted import graph_kinds, needed
from schemas.config import EmbedConfig, RunConfig
from schemas.errors import SchemaError
from schemas.ids import fingerprint
from transforms.chunks import VERSION as CHUNKS
from transforms.chunks import chunks
from transforms.interactions import full_text
from transforms.tokens import tokenize

if TYPE_CHECKING:
    from indexers.embedders import Embedder
    from pipelines.store import Store

QUESTIONS = "embed/questions"

_loaded: dict[str, Embedder] = {}
"""The embedder that was at work last in this process: a model takes longer to load than a small shard to embed."""


def units(config: RunConfig) -> list[Unit]:
    """Return a unit for each kind of text that a preset reads the vectors of."""
    read = [unit.partition("/")[2] for unit in needed(config) if unit.startswith("embed/")]
    if not read:
        return []
    settings, runtime = identified(config.embed)
    sources: dict[str, tuple[str, ...]] = {
        "interactions": ("ingest",),
        "chunks": ("ingest",),
        "questions": ("questions",),
    }
    sources |= {"words": ("index/raw", "questions"), "user": ("ingest",)}
    sources |= {kind: (f"graph/{kind}",) for kind in graph_kinds(config)}
    return [
        Unit(
            f"embed/{kind}",
            settings | ({"chunks": CHUNKS} if kind == "chunks" else {}),
            sources[kind],
            ("vectors",),
            runtime=runtime,
        )
        for kind in read
    ]


def identified(own: EmbedConfig) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what vectors depend on, for the configuration of a unit, and what a worker needs besides to make them.

    Raises:
        UsageError, ConfigError, MissingDependencyError: The embedder cannot be used.
    """
    from indexers import embedders

    code = embedders.load(own.embedder)
    settings = {
        "embedder": own.embedder,
        "version": code.VERSION,
        "identity": code.identity(own.model, embedders.options_of(code, own.options)),
        "dtype": own.dtype,
    }
    return settings, {"model": code.located(own.model), "options": own.options}


def process(inputs: Inputs, wanted: Sequence[Unit]) -> list[Output]:
    """Embed the texts of one shard for one unit."""
    (unit,) = wanted
    kind = unit.name.partition("/")[2]
    rows = _rows(inputs, kind)
    purpose: Literal["query", "document"] = "query" if kind == "questions" else "document"
    from indexers.vectors import embed_rows

    known = known_vectors(inputs, unit)
    with at_work(unit.config["embedder"], unit.runtime["model"], unit.runtime["options"]) as embedder:
        made = embed_rows(rows, embedder, purpose, known, dtype=unit.config["dtype"])
    # What a service refused has no vector; how often it was asked again is no fact about the part.
    return [Output({"vectors": made}, {"without_vector": without_vector(made, rows)})]


@contextmanager
def at_work(name: str, model: str | None, options: Mapping[str, Any]) -> Iterator[Embedder]:
    """Give an embedder; it stays open for the next part, until another one is wanted or it fails."""
    from indexers import embedders

    code = embedders.load(name)
    own = embedders.options_of(code, options)
    mark = fingerprint([name, model, own.model_dump(mode="json"), code.identity(model, own)])
    if mark not in _loaded:
        _close()
        _loaded[mark] = code.open(model, own)
    try:
        yield _loaded[mark]
    except BaseException:
        _close()
        raise


def _close() -> None:
    while _loaded:
        _loaded.popitem()[1].close()


def without_vector(made: pa.Table, rows: pa.Table) -> int:
    """Count the texts with something to see that have no vector."""
    from indexers.vectors import matrix_of

    empty = ~matrix_of(made["vector"]).any(axis=1)
    seen = np.asarray(pc.greater(pc.utf8_length(pc.utf8_trim_whitespace(rows["text"])), 0))
    return int((empty & seen).sum())


def earlier(store: Store, unit: Unit, shards: Sequence[int]) -> dict[int, dict[str, Any]]:
    """Return shard -> the keys of its parts that manifests name, of the same embedder and precision, as ``earlier``.

    Every manifest is read for that, so it is done once for all shards.
    """
    keys: dict[int, dict[str, None]] = {shard: {} for shard in shards}
    for manifest in store.manifests("embed"):
        if all(manifest.config.get(key) == unit.config[key] for key in ("embedder", "version", "identity", "dtype")):
            for part in manifest.parts:
                if part.shard in keys:
                    keys[part.shard][part.key] = None
    return {shard: {"earlier": tuple(own)} for shard, own in keys.items()}


def known_vectors(inputs: Inputs, unit: Unit) -> pa.Table | None:
    """Return the vectors of `earlier` parts of this shard that are still there."""
    keys = unit.runtime.get("earlier", ())
    if not keys:
        return None
    (shard,) = {shard for parts in inputs.parts.values() for shard, _ in parts}
    there = [key for key in keys if inputs.store.has_part(("vectors",), shard, key)]
    if not there:
        return None
    columns = ["content_hash", "vector"]
    return pa.concat_tables([inputs.store.read_part("vectors", shard, key, columns) for key in there])


@dataclass(frozen=True)
class Kept:
    """Vectors of questions that a run has embedded (`indexers.batch.Embedding`)."""

    table_of: TableOf

    def questions(self, questions: pa.Table) -> Singles:
        """Return their vectors, (questions, dimensions)."""
        return vectors_of(questions, self.table_of(QUESTIONS, "vectors"))

    def words(self, words: Sequence[str]) -> Singles:
        """Fail: the unit of words has all words of the corpus' own questions.

        Raises:
            SchemaError: Always.
        """
        raise SchemaError(f"the word '{words[0]}' has no vector", where="embed/words", remedy="Run again.")


@dataclass(frozen=True)
class Fresh:
    """Questions that are no part of a corpus, embedded when asked (`indexers.batch.Embedding`)."""

    config: RunConfig

    def questions(self, questions: pa.Table) -> Singles:
        """Return their vectors, (questions, dimensions)."""
        return embedded(self.config.embed, questions["question"].to_pylist(), "query")

    def words(self, words: Sequence[str]) -> Singles:
        """Return their vectors, (words, dimensions)."""
        return embedded(self.config.embed, words, "document")


def embedded(own: EmbedConfig, texts: Sequence[str], purpose: Literal["query", "document"]) -> Singles:
    """Return the vectors of texts, (texts, dimensions), rounded as kept ones: a question asked again ranks alike."""
    with at_work(own.embedder, own.model, own.options) as embedder:
        found = embedder.embed(texts, purpose)
    return found.astype(np.float16).astype(np.float32) if own.dtype == "float16" else found


def vectors_of(questions: pa.Table, vectors: pa.Table) -> Singles:
    """Return the vectors of some questions out of those of their shard, (questions, dimensions)."""
    wanted = _keys(questions["case_id"], questions["question_id"])
    at = pc.index_in(wanted, value_set=_keys(vectors["case_id"], vectors["key"]))
    if at.null_count:
        raise SchemaError("a question has no vector", where=QUESTIONS, remedy="Run again.")
    taken = vectors["vector"].combine_chunks().take(at)
    flat: Singles = taken.flatten().to_numpy()
    return flat.reshape(len(questions), -1)


def _keys(case: pa.ChunkedArray, key: pa.ChunkedArray) -> pa.Array:
    joined = pc.binary_join_element_wise(case.cast(pa.string()), key.cast(pa.string()), "\0")
    return joined.combine_chunks() if isinstance(joined, pa.ChunkedArray) else joined


def _rows(inputs: Inputs, kind: str) -> pa.Table:
    """Return what is embedded: case_id, kind, key, text."""
    texts = ["case_id", "interaction_id", "user_text", "assistant_text"]
    if kind == "interactions":
        table = inputs.table("ingest", "interactions", texts)
        return _named(table["case_id"], "interaction", table["interaction_id"], full_text(table))
    if kind == "user":
        table = inputs.table("ingest", "interactions", texts)
        return _named(table["case_id"], "user", table["interaction_id"], table["user_text"])
    if kind == "chunks":
        table = chunks(inputs.table("ingest", "interactions", texts))
        key = pc.binary_join_element_wise(table["interaction_id"], table["number"].cast(pa.string()), "#")
        return _named(table["case_id"], "chunk", key, table["text"])
    if kind == "questions":
        table = inputs.table("questions", "questions", ["case_id", "question_id", "question"])
        return _named(table["case_id"], "question", table["question_id"], table["question"])
    if kind == "words":
        return _words(inputs)
    nodes = inputs.table(f"graph/{kind}", "nodes")
    nodes = nodes.filter(pc.not_equal(nodes["kind"].cast(pa.string()), "file"))
    text = pc.coalesce(nodes["text"], nodes["key"])
    for mark in ("_", "/"):
        text = pc.replace_substring(text, mark, " ")
    return _named(nodes["case_id"], nodes["kind"], nodes["key"], text)


def _words(inputs: Inputs) -> pa.Table:
    """Return the terms of the shard, term t in row t, and then the questions' words that are none of them."""
    terms = inputs.table("index/raw", "vocabulary")["term"]
    asked = tokenize(inputs.table("questions", "questions", ["question"])["question"]).terms
    new = asked.filter(pc.invert(pc.is_in(asked, value_set=terms.combine_chunks())))
    words = pa.chunked_array([*terms.chunks, new.cast(pa.string())])
    return _named(pa.array([""] * len(words)), "word", words, words)


def _named(case: Any, kind: Any, key: Any, text: Any) -> pa.Table:
    kinds = pa.array(np.full(len(case), kind, object), pa.string()) if isinstance(kind, str) else kind
    return pa.table({"case_id": case, "kind": kinds, "key": key, "text": text})


STAGE = Stage("embed", 1, "ray", units, process, besides=earlier)
