"""Retrieval presets, as data. What a preset does is told in docs/presets.md; how, in `indexers.rank`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal

from schemas.errors import UsageError
from schemas.ids import nearest


@dataclass(frozen=True)
class Preset:
    """One way to rank the interactions of a case for a question.

    Attributes:
        name: Name in configurations and in the column `retriever`.
        doc: What it is, in a line.
        method: bm25 (text alone), traversal (from matched tags over the ontology), diffusion (personalised PageRank).
        version: Raised whenever the same input gives another ranking.
        field: Postings that text is compared with: raw or note.
        k1: BM25's saturation of term counts.
        b: BM25's share of length normalisation.
        epsilon: BM25's share of the mean idf that stands in for negative ones.
        graph: Graph kind.
        stopword_share: Query tokens in more than this share of the case's files are dropped; None drops none.
        content: How question and file are compared: overlap (distinct common tokens) or tfidf.
        depth: Ontology steps that a traversal goes.
        fan_in: Matched tags that count for one topic, at most.
        max_children: A traversal does not descend from ontology nodes with more children than this.
        alpha: Probability that a walk goes on; 0 ranks by the seeds alone.
        tolerance: L1 error of PageRank.
        without_edges: Edge kinds that the walk does not use.
        undirected: The walk goes along edges in both directions.
        file_seeds: Share of the seeds that goes to files by content; the rest goes to matched tags.
        seed_power: Seeds of files are proportional to this power of their content score.
    """

    name: str
    doc: str
    method: Literal["bm25", "traversal", "diffusion"]
    version: int = 1
    field: Literal["raw", "note"] = "note"
    k1: float = 1.5
    b: float = 0.75
    epsilon: float = 0.25
    graph: str = "taggraph"
    stopword_share: float | None = None
    content: Literal["overlap", "tfidf"] = "overlap"
    depth: int = 2
    fan_in: int = 8
    max_children: int = 64
    alpha: float = 0.85
    tolerance: float = 1e-8
    without_edges: tuple[str, ...] = ()
    undirected: bool = False
    file_seeds: float = 0.5
    seed_power: float = 2.0


_TEXT = ("method", "version", "field", "stopword_share")
FIELDS: dict[str, tuple[str, ...]] = {
    "bm25": (*_TEXT, "k1", "b", "epsilon"),
    "traversal": (*_TEXT, "graph", "content", "depth", "fan_in", "max_children"),
    "diffusion": (
        *_TEXT,
        "graph",
        "content",
        "alpha",
        "tolerance",
        "without_edges",
        "file_seeds",
        "undirected",
        "seed_power",
    ),
}
"""By method, the fields that its ranking depends on; others do not touch it."""

_ADAPTIVE = Preset(
    "adaptivegraph",
    "PageRank from matched tags and similar files over the tag graph with chronological edges",
    "diffusion",
    stopword_share=0.15,
    content="tfidf",
)
_OFF: dict[str, tuple[str, dict[str, Any]]] = {
    "no-diffusion": ("without diffusion (alpha 0)", {"alpha": 0.0}),
    "no-chronology": ("without chronological edges", {"without_edges": ("chronological",)}),
    "no-file-seeds": ("without seeds in files", {"file_seeds": 0.0}),
}


def _ablations() -> list[Preset]:
    presets = []
    for bits in (0b001, 0b010, 0b100, 0b011, 0b101, 0b110, 0b111):
        off = [name for number, name in enumerate(_OFF) if bits >> number & 1]
        changes = {key: value for name in off for key, value in _OFF[name][1].items()}
        doc = "adaptivegraph " + ", ".join(_OFF[name][0] for name in off)
        presets.append(replace(_ADAPTIVE, name="-".join(["adaptivegraph", *off]), doc=doc, **changes))
    return presets


_ABLATIONS = _ablations()

PRESETS: dict[str, Preset] = {
    preset.name: preset
    for preset in (
        Preset("bm25", "Okapi BM25 over the whole note: tags, summary and interaction", "bm25", field="note"),
        Preset("bm25-raw", "Okapi BM25 over the interaction alone", "bm25", field="raw"),
        Preset("taggraph-basic", "Traversal from matched tags, ties by common words", "traversal"),
        Preset(
            "taggraph-stopwords",
            "taggraph-basic without words common in the case",
            "traversal",
            stopword_share=0.15,
        ),
        Preset(
            "taggraph-tfidf",
            "taggraph-stopwords, ties by TF-IDF",
            "traversal",
            stopword_share=0.15,
            content="tfidf",
        ),
        _ADAPTIVE,
        *_ABLATIONS,
        replace(
            _ADAPTIVE,
            name="adaptivegraph-undirected",
            doc="adaptivegraph with a walk that goes along edges in both directions",
            undirected=True,
        ),
    )
}

GROUPS: dict[str, tuple[str, ...]] = {
    "all": tuple(PRESETS),
    "ablations": ("adaptivegraph", *(preset.name for preset in _ABLATIONS)),
}
"""Names that stand for several presets."""


def get(name: str) -> Preset:
    """Return a preset.

    Raises:
        UsageError: None has that name.
    """
    if name not in PRESETS:
        guess = nearest(name, [*PRESETS, *GROUPS])
        hint = f"Did you mean '{guess}'? " if guess else ""
        raise UsageError(
            f"no preset is called '{name}'", where="rank.presets", remedy=f"{hint}Presets: {', '.join(PRESETS)}."
        )
    return PRESETS[name]


def expand(names: Iterable[str]) -> tuple[str, ...]:
    """Return the presets that names and groups stand for, each once, in order of first mention.

    Raises:
        UsageError: A name is neither a preset nor a group.
    """
    found = [preset for name in names for preset in GROUPS.get(name, (name,))]
    return tuple(dict.fromkeys(get(name).name for name in found))
