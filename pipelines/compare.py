"""Compares two generations of a corpus, shard by shard."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pipelines import asides
from pipelines.evaluate import JUDGED
from pipelines.query import cases as all_case_ids
from pipelines.status import extractor_of
from pipelines.store import Generation, Manifest, Store
from schemas.comparison import SCHEMAS
from schemas.config import EvaluateConfig
from schemas.errors import UsageError
from schemas.ids import nearest, shard_of
from schemas.tables import empty
from transforms import compare_questions
from transforms.compare import Comparison, Figure, Side, figure, summary_table
from transforms.compare_graphs import EDGE_COLUMNS, NODE_COLUMNS, GraphSize, compare_graphs, measure, total
from transforms.compare_notes import COLUMNS, compare_notes
from transforms.evaluate import COMPARED
from transforms.metrics import metric_names

LEVELS = ("interaction", "session", "contains")
"""Levels at which rankings are compared: the first one with gold on both sides."""

SPENT = ("requests", "from_journal", "prompt_tokens", "completion_tokens", "seconds")
"""What the manifests of extract units may tell of their cost."""

_Pair = tuple["_Side", "_Side"]


@dataclass(frozen=True)
class _Side:
    """One generation, cut to some cases.

    Attributes:
        generation: The generation.
        cases: Cases to read; None = all.
    """

    generation: Generation
    cases: frozenset[str] | None = None

    @cached_property
    def manifests(self) -> dict[str, Manifest]:
        """Unit -> manifest."""
        return {unit: self.generation.manifest(unit) for unit in self.generation.units}

    @cached_property
    def keys(self) -> dict[str, dict[int, str]]:
        """Unit -> shard -> key of the parts that may hold wanted cases."""
        shards = self.generation.store.shards
        kept = None if self.cases is None else {shard_of(case, shards) for case in self.cases}
        return {
            unit: {part.shard: part.key for part in manifest.parts if kept is None or part.shard in kept}
            for unit, manifest in self.manifests.items()
        }

    def table(self, unit: str, table: str, shard: int, columns: list[str]) -> pa.Table:
        """Return what a shard holds of the wanted cases; no rows where there is no such part."""
        key = self.keys.get(unit, {}).get(shard)
        if key is None:
            return empty(table).select(columns)
        rows = self.generation.store.read_part(table, shard, key, columns)
        if self.cases is None:
            return rows
        return rows.filter(pc.is_in(rows["case_id"].cast(pa.string()), value_set=pa.array(sorted(self.cases))))


def compare(
    store: Store,
    a: str,
    b: str,
    *,
    presets: Sequence[str] = (),
    cases: Sequence[str] = (),
    all_cases: bool = False,
) -> Comparison:
    """Compare two generations. One shard of both is in memory at a time.

    Args:
        store: The corpus.
        a: Name of the generation that is compared with, such as the old one.
        b: Name of the other one; it may be the same.
        presets: Presets whose rankings are compared; by default all that both have.
        cases: Cases to compare. By default all; where the extractor of A or B is for some cases only, these.
        all_cases: Compare all cases in any event.

    Raises:
        StoreError: There is no such generation, it has no notes, or a part is damaged.
        UsageError: A preset is not in both, or a case is in neither.
    """
    whole = store.generation(a), store.generation(b)
    for generation in whole:
        generation.manifest("extract")  # raises where there are no notes
    chosen, remarks = _chosen(whole, cases, all_cases)
    kept = None if chosen is None else frozenset(chosen)
    sides = _Side(whole[0], kept), _Side(whole[1], kept)
    common = _common_presets(sides, presets)
    figures, tags = compare_notes(
        _both(sides, "extract", "notes", shard, COLUMNS) for shard in _shards(sides, "extract")
    )
    for unit in dict.fromkeys(unit for side in sides for unit in side.manifests if unit.startswith("graph/")):
        figures += compare_graphs(unit.partition("/")[2], *_graph_sizes(sides, unit))
    level, fault = _level(sides, common)
    if fault:
        remarks.append(f"rankings are not compared: {fault}")
    metrics, questions, more = _questions(sides, common, level)
    figures += [*more, *_cost(sides)]
    remarks += [*(told for g in whole if (told := asides.remark(g))), *_differences(sides)]
    named = [Side(g.name, extractor_of(g.head.get("config", {}).get("extract", {}))) for g in whole]
    return Comparison(
        named[0],
        named[1],
        None if chosen is None else tuple(chosen),
        level,
        tuple(remarks),
        summary_table(figures),
        tags,
        metrics,
        questions,
    )


def _chosen(
    whole: tuple[Generation, Generation], cases: Sequence[str], all_cases: bool
) -> tuple[list[str] | None, list[str]]:
    """Return the cases to compare (None = all) and what is to be said about them."""
    if cases and all_cases:
        raise UsageError("both cases and all cases are asked for", where="--cases", remedy="Leave --all-cases out.")
    if cases:
        _check_cases(whole, cases)
        return sorted(set(cases)), []
    tried: set[str] = set()
    for generation in whole:
        extract = generation.head.get("config", {}).get("extract")
        while extract:
            tried.update(extract.get("cases") or ())
            extract = extract.get("rest")
    if not tried or all_cases:
        return None, []
    return sorted(tried), [
        f"compared are only the cases that an extractor is set for: {len(tried):,} (--all-cases takes all)"
    ]


def _check_cases(whole: tuple[Generation, Generation], cases: Sequence[str]) -> None:
    known: set[str] = set()
    for generation in whole:
        side = _Side(generation, frozenset(cases))
        for shard in side.keys["extract"]:
            known.update(side.table("extract", "notes", shard, ["case_id"])["case_id"].to_pylist())
    if missing := sorted(set(cases) - known):
        guess = nearest(missing[0], sorted({case for generation in whole for case in all_case_ids(generation)}))
        raise UsageError(
            f"no case is called '{missing[0]}'",
            where=whole[0].store.storage.uri,
            remedy=f"Did you mean '{guess}'?" if guess else "See them: tagloom export interactions -f csv",
        )


def _shards(sides: _Pair, unit: str) -> list[int]:
    return sorted({shard for side in sides for shard in side.keys.get(unit, {})})


def _both(sides: _Pair, unit: str, table: str, shard: int, columns: list[str]) -> tuple[pa.Table, pa.Table]:
    """Return the rows of both sides; a part that they share is read once."""
    a, b = sides
    rows = a.table(unit, table, shard, columns)
    return rows, rows if _shared(sides, unit, shard) else b.table(unit, table, shard, columns)


def _shared(sides: _Pair, unit: str, shard: int) -> bool:
    a, b = (side.keys.get(unit, {}).get(shard) for side in sides)
    return a == b


def _graph_sizes(sides: _Pair, unit: str) -> list[GraphSize | None]:
    sizes: tuple[list[GraphSize], list[GraphSize]] = ([], [])
    for shard in _shards(sides, unit):
        for side, own in zip(sides, sizes, strict=True):
            if own is sizes[1] and _shared(sides, unit, shard):
                own.append(sizes[0][-1])
            else:
                tables = (("nodes", NODE_COLUMNS), ("edges", EDGE_COLUMNS))
                own.append(measure(*(side.table(unit, table, shard, columns) for table, columns in tables)))
    return [total(own) if unit in side.manifests else None for side, own in zip(sides, sizes, strict=True)]


def _common_presets(sides: _Pair, wanted: Sequence[str]) -> list[str]:
    held = []
    for side in sides:
        units = side.manifests[JUDGED].config["presets"] if JUDGED in side.manifests else []
        held.append([unit.partition("/")[2] for unit in units])
    common = [name for name in held[0] if name in held[1]]
    for name in wanted:
        if name not in common:
            guess = nearest(name, common)
            hint = f"Did you mean '{guess}'? " if guess else ""
            raise UsageError(
                f"preset '{name}' is not in both generations",
                where="--preset",
                remedy=f"{hint}In both: {', '.join(common) or 'none'}.",
            )
    return list(dict.fromkeys(wanted)) or common


def _level(sides: _Pair, presets: Sequence[str]) -> tuple[str, str]:
    """Return the level to compare at, or else why there is none."""
    for side in sides:
        if "evaluate" not in side.manifests or JUDGED not in side.manifests:
            return "", f"generation '{side.generation.name}' has not been evaluated"
    if not presets:
        return "", "no preset is in both"
    held = [set(s.generation.table("metrics", ["level"], "evaluate")["level"].to_pylist()) for s in sides]
    level = next((level for level in LEVELS if all(level in levels for levels in held)), "")
    return level, "" if level else "there are no questions with gold on both sides"


def _questions(sides: _Pair, presets: Sequence[str], level: str) -> tuple[pa.Table, pa.Table, list[Figure]]:
    """Return the tables `metrics` and `questions`, and their figures; nothing without a level."""
    if not level:
        return SCHEMAS["metrics"].empty_table(), SCHEMAS["questions"].empty_table(), []
    asked = [0, 0, 0]
    rows: list[pa.Table] = []

    def pairs() -> Iterator[Any]:
        for shard in _shards(sides, JUDGED):
            judged = _both(sides, JUDGED, "question_metrics", shard, compare_questions.JUDGED_COLUMNS)
            paired = compare_questions.pair(*judged, presets, level, metrics)
            for n, count in enumerate(compare_questions.count(judged, paired, presets[0], level)):
                asked[n] += count
            if paired.height:
                rows.append(_question_rows(sides, paired, presets, level, shard))
            yield paired

    metrics = _metrics(sides)
    made = compare_questions.metrics_table(pairs(), presets, level, metrics, _evaluation(sides))
    questions = compare_questions.questions_table(rows, presets)
    figures = [figure("questions", "questions", "", *asked), *compare_questions.question_figures(questions, made)]
    return made, questions, figures


def _question_rows(sides: _Pair, paired: Any, presets: Sequence[str], level: str, shard: int) -> pa.Table:
    def firsts(side: _Side) -> pa.Table:
        runs = [side.table(f"rank/{name}", "runs", shard, compare_questions.RUN_COLUMNS) for name in presets]
        return pa.concat_tables([run.filter(pc.equal(run["rank"], 1)) for run in runs])

    return compare_questions.question_rows(
        paired,
        sides[0].table("questions", "questions", shard, compare_questions.QUESTION_COLUMNS),
        (firsts(sides[0]), firsts(sides[1])),
        _both(sides, "ingest", "interactions", shard, compare_questions.TEXT_COLUMNS),
        level,
    )


def _metrics(sides: _Pair) -> list[str]:
    held = [metric_names(side.manifests[JUDGED].config["ks"]) for side in sides]
    return [name for name in COMPARED if all(name in names for names in held)]


def _evaluation(sides: _Pair) -> EvaluateConfig:
    """Return how both were evaluated; the defaults where they were not evaluated alike."""
    found = []
    for side in sides:
        config = side.manifests["evaluate"].config if "evaluate" in side.manifests else {}
        found.append({name: config[name] for name in ("resamples", "seed") if name in config})
    return EvaluateConfig.model_validate(found[0] if found[0] == found[1] else {})


def _differences(sides: _Pair) -> list[str]:
    """Say where rankings differ in more than notes."""
    depths = [side.manifests[JUDGED].config["depth"] if JUDGED in side.manifests else None for side in sides]
    remarks = []
    if None not in depths and depths[0] != depths[1]:
        remarks.append(f"the rankings were cut at different depths: {depths[0]} and {depths[1]}")
    if sides[0].keys.get("ingest") != sides[1].keys.get("ingest"):
        remarks.append("the interactions are not the same on both sides")
    if sides[0].cases is not None:
        remarks.append("cost is that of whole generations")
    return remarks


def _cost(sides: _Pair) -> Iterator[Figure]:
    """Yield what the runs that made the notes, and what else was extracted, say that they spent."""
    for name in SPENT:
        spent = []
        for side in sides:
            runs = [m.run.get(name) for unit, m in side.manifests.items() if unit.partition("/")[0] == "extract"]
            known = [value for value in runs if isinstance(value, int | float)]
            spent.append(float(sum(known)) if known else None)
        yield figure("cost", name, "", *spent)
