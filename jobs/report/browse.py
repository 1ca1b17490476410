"""The questions of a corpus with what every preset returned, as compact JSON in blocks that a browser unpacks in turn.

A block holds some questions of one shard; its texts stand there once each, whatever ranks them. The index, one for all,
holds what lists and filters need. Everything is columns of numbers and texts; numbers of interactions count from 0
within a block, numbers of questions within the collection.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from jobs.report.hits import JUDGED_COLUMNS, RUN_COLUMNS, Evidence, Hits, first_ranks, top
from pipelines.evaluate import JUDGED
from pipelines.store import Generation, Part
from schemas.tables import empty
from transforms.interactions import full_text

TOP = 10
"""Results shown of each preset."""

EXCERPT = 300
"""Characters shown of an interaction's text, at most."""

LEAST = 80
"""Characters shown of it, at least, however many interactions there are."""

TEXTS = 60_000_000
"""Characters of all texts, about: where there are more interactions, less is shown of each."""

QUESTION = 2_000
"""Characters shown of a question and of an answer."""

EVIDENCE = 8
"""Interactions with evidence whose text is shown, of each question."""

_BLOCK = 150
_LARGEST = 1_000

_INTERACTION = [
    "case_id",
    "interaction_id",
    "session_id",
    "started_at",
    "started_at_text",
    "speakers",
    "user_text",
    "assistant_text",
]

Ints = npt.NDArray[np.int64]

Explain = Callable[[str, str, str, str], str | None]
"""(generation, case_id, question_id, preset) -> why the preset ranked as it did, as plain text, or None."""


@dataclass(frozen=True)
class Ranking:
    """One preset of one generation, as the reader sees it."""

    name: str
    generation: Generation
    preset: str


@dataclass
class _Index:
    cases: dict[str, int] = field(default_factory=dict)
    types: dict[str, int] = field(default_factory=dict)
    case: list[int] = field(default_factory=list)
    kind: list[int] = field(default_factory=list)
    text: list[str] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    first: list[list[int]] = field(default_factory=list)


@dataclass
class Collection:
    """Generations over the same interactions and questions.

    Attributes:
        generations: They.
        rankings: Their presets.
        level: Level of the ranks in the index; empty where nothing was judged.
        index: Columns of all questions, filled while the blocks are made.
        excerpt: Characters of each text.
    """

    generations: tuple[Generation, ...]
    rankings: tuple[Ranking, ...]
    level: str
    excerpt: int = EXCERPT
    index: _Index = field(default_factory=_Index)

    @property
    def name(self) -> str:
        """The names of its generations."""
        return ", ".join(generation.name for generation in self.generations)

    @property
    def questions(self) -> int:
        """How many questions there are."""
        return self.generations[0].manifest("questions").rows("questions")


def collections(generations: Sequence[Generation], levels: Mapping[str, str]) -> list[Collection]:
    """Put generations together that have the same interactions and questions.

    Args:
        generations: The generations.
        levels: Generation -> level that its ranks are told at; empty or missing where it was not judged.
    """
    groups: dict[tuple[str | None, str | None], list[Generation]] = {}
    for generation in generations:
        units = generation.units
        if "ingest" in units and "questions" in units:
            groups.setdefault((units["ingest"], units["questions"]), []).append(generation)
    made = []
    for own in groups.values():
        rankings = [
            Ranking(name if len(own) == 1 else f"{generation.name}: {name}", generation, name)
            for generation in own
            for name in presets(generation)
        ]
        level = next((levels[g.name] for g in own if levels.get(g.name)), "")
        most = own[0].manifest("questions").rows("questions") * (len(rankings) * TOP + EVIDENCE)
        shown = max(min(most, own[0].manifest("ingest").rows("interactions")), 1)
        excerpt = min(EXCERPT, max(LEAST, TEXTS // shown))
        made.append(Collection(tuple(own), tuple(rankings), level, excerpt))
    return made


def presets(generation: Generation) -> list[str]:
    """Return the presets that a generation has rankings of, in the order in which they were run."""
    held = [unit.partition("/")[2] for unit in generation.units if unit.startswith("rank/")]
    if JUDGED not in generation.units:
        return held
    order = [unit.partition("/")[2] for unit in generation.manifest(JUDGED).config["presets"]]
    return [*(name for name in order if name in held), *(name for name in held if name not in order)]


def pack(data: Any) -> str:
    """Return data as JSON, deflated, in base64: no character of it means anything in HTML."""
    raw = orjson.dumps(data, option=orjson.OPT_SERIALIZE_NUMPY)
    squeezer = zlib.compressobj(6, zlib.DEFLATED, -15)
    return base64.b64encode(squeezer.compress(raw) + squeezer.flush()).decode("ascii")


def index(collection: Collection) -> str:
    """Return the packed index; the blocks must have been made."""
    own = collection.index
    return pack(
        {
            "cases": list(own.cases),
            "types": list(own.types),
            "case": own.case,
            "type": own.kind,
            "text": own.text,
            "starts": own.starts,
            "first": own.first,
        }
    )


def blocks(collection: Collection, explain: Explain | None = None) -> Iterator[str]:
    """Yield packed blocks of questions, and fill the collection's index. One shard is in memory at a time."""
    first = collection.generations[0]
    store = first.store
    collection.index.first = [[] for _ in collection.rankings]
    held = _parts(first, "ingest")
    units = {id(r): _parts(r.generation, f"rank/{r.preset}") for r in collection.rankings}
    judged = {g.name: _parts(g, JUDGED) for g in collection.generations}
    for part in first.manifest("questions").parts:
        questions = store.read_part("questions", part.shard, part.key)
        if not questions.num_rows:
            continue
        interactions = _read(first, "interactions", _INTERACTION, held, part.shard)
        evidence = Evidence.of(questions, interactions)
        ranks = {
            g.name: first_ranks(
                _read(g, "question_metrics", JUDGED_COLUMNS, judged[g.name], part.shard), questions, collection.level
            )
            for g in collection.generations
        }
        hits = []
        for number, ranking in enumerate(collection.rankings):
            runs = _read(ranking.generation, "runs", RUN_COLUMNS, units[id(ranking)], part.shard)
            hits.append(top(runs, evidence, TOP))
            found = ranks[ranking.generation.name].get(ranking.preset)
            known = found if found is not None else np.full(questions.num_rows, -1)
            collection.index.first[number] += known.tolist()
        yield from _blocks(collection, questions, interactions, evidence, hits, explain)


def _parts(generation: Generation, unit: str) -> dict[int, Part]:
    return {part.shard: part for part in generation.manifest(unit).parts} if unit in generation.units else {}


def _read(generation: Generation, table: str, columns: list[str], parts: Mapping[int, Part], shard: int) -> pa.Table:
    part = parts.get(shard)
    if part is None or table not in part.tables:
        return empty(table).select(columns)
    return generation.store.read_part(table, shard, part.key, columns)


def _blocks(
    collection: Collection,
    questions: pa.Table,
    interactions: pa.Table,
    evidence: Evidence,
    hits: Sequence[Hits],
    explain: Explain | None,
) -> Iterator[str]:
    own = collection.index
    cases = questions.column("case_id").cast(pa.string()).to_pylist()
    for start, stop in _slices(cases):
        rows = questions.slice(start, stop - start)
        own.starts.append(len(own.case))
        own.case += [own.cases.setdefault(case, len(own.cases)) for case in cases[start:stop]]
        types = rows.column("question_type").cast(pa.string()).to_pylist()
        own.kind += [own.types.setdefault(kind, len(own.types)) for kind in types]
        own.text += _cut(rows.column("question"), QUESTION).to_pylist()
        yield pack(_block(collection, rows, start, interactions, evidence, hits, explain))


def _slices(cases: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield bounds of blocks: they end where a case does, unless it is very large."""
    start = 0
    for n in range(1, len(cases) + 1):
        last = n == len(cases)
        if last or n - start >= _LARGEST or (n - start >= _BLOCK and cases[n] != cases[n - 1]):
            yield start, n
            start = n


def _block(
    collection: Collection,
    rows: pa.Table,
    start: int,
    interactions: pa.Table,
    evidence: Evidence,
    hits: Sequence[Hits],
    explain: Explain | None,
) -> dict[str, Any]:
    stop = start + rows.num_rows
    cut = [one.between(start, stop) for one in hits]
    golds, gold_counts = evidence.shown(start, stop, EVIDENCE)
    shown = np.unique(np.concatenate([golds, *(one.row for one in cut)]))
    there = interactions.take(pa.array(shown))
    texts = full_text(there)
    sessions = there.column("session_id").cast(pa.string()).combine_chunks().dictionary_encode()
    made: dict[str, Any] = {
        "id": there.column("interaction_id").to_pylist(),
        "session": np.asarray(sessions.indices),
        "sessions": sessions.dictionary.to_pylist(),
        "time": _times(there),
        "speakers": pc.binary_join(there.column("speakers").cast(pa.list_(pa.string())), ", ").to_pylist(),
        "text": _cut(texts, collection.excerpt).to_pylist(),
        "length": np.asarray(pc.utf8_length(texts), dtype=np.int64),
        "question": rows.column("question_id").to_pylist(),
        "asked": _formatted(rows.column("asked_at")).fill_null("").to_pylist(),
        "answer": _cut(rows.column("answer"), QUESTION).to_pylist(),
        "answerable": rows.column("answerable").to_pylist(),
        "expected": rows.column("expected_contains").to_pylist(),
        "gold": {"n": gold_counts, "row": np.searchsorted(shown, golds), "all": evidence.sizes[start:stop]},
        "top": [
            {
                "n": one.counts,
                "row": np.searchsorted(shown, one.row),
                "score": _digits(one.score),
                "mark": one.mark,
            }
            for one in cut
        ],
    }
    if explain is not None:
        made["why"] = [_why(explain, ranking, rows) for ranking in collection.rankings]
    return made


def _why(explain: Explain, ranking: Ranking, rows: pa.Table) -> dict[str, str]:
    cases = rows.column("case_id").to_pylist()
    asked = zip(cases, rows.column("question_id").to_pylist(), strict=True)
    told = ((n, explain(ranking.generation.name, *ids, ranking.preset)) for n, ids in enumerate(asked))
    return {str(n): text for n, text in told if text}


def _times(rows: pa.Table) -> list[str]:
    written = rows.column("started_at_text").cast(pa.string())
    told: list[str] = pc.coalesce(_formatted(rows.column("started_at")), written, pa.scalar("")).to_pylist()
    return told


def _formatted(times: Any) -> Any:
    return pc.strftime(times.cast(pa.timestamp("s")), "%Y-%m-%d %H:%M")


def _cut(texts: Any, characters: int) -> Any:
    return pc.utf8_slice_codeunits(texts, 0, characters)


def _digits(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Round to four significant digits, which is what is shown."""
    sizes = np.where(np.isfinite(values) & (values != 0), np.abs(values), 1.0)
    places = 3 - np.floor(np.log10(sizes))
    up, down = 10.0 ** np.maximum(places, 0), 10.0 ** np.maximum(-places, 0)
    rounded: npt.NDArray[np.float64] = np.round(values * up / down) * down / up
    return rounded
