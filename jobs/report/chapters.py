"""One generation, laid out for the page: tables with their axes, drawings, and what is missing in words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from jobs.report import charts
from jobs.report.costs import Costs, costs
from jobs.report.experiments import Experiment, experiments
from jobs.report.figures import SHOWN, Difference, Estimate, Judged, judged, sentences, variants
from jobs.report.graphs import GraphFigures, graphs
from jobs.report.vocabulary import COLUMNS, Vocabulary, vocabulary
from pipelines import asides
from pipelines.status import extractor_of
from pipelines.store import Generation
from transforms.evaluate import COMPARED

MATRIX = 60
"""Presets up to which every pair is shown."""

TYPES = 30
"""Question types shown: those with most questions."""

SHADES = 6
"""Steps of the shades of a table."""


@dataclass(frozen=True)
class PresetRow:
    """A preset with its means; None where a metric was not computed."""

    name: str
    cells: tuple[Estimate | None, ...]
    best: tuple[bool, ...]
    mark: charts.Mark


@dataclass(frozen=True)
class PresetTable:
    """Presets by metric at one level, best first by the first metric."""

    level: str
    questions: int
    cases: int
    metrics: tuple[str, ...]
    axis: charts.Axis
    rows: tuple[PresetRow, ...]
    curve: charts.Lines | None


@dataclass(frozen=True)
class TypeCell:
    """A mean in a table of question types: its shade from 0 to `SHADES` - 1, and whether it is the best of its type."""

    estimate: Estimate
    shade: int
    best: bool


@dataclass(frozen=True)
class TypeTable:
    """Presets by question type; columns are (type, questions)."""

    metric: str
    columns: tuple[tuple[str, int], ...]
    rows: tuple[tuple[str, tuple[TypeCell | None, ...]], ...]
    left_out: int


@dataclass(frozen=True)
class DifferenceRow:
    """A paired difference on its axis; `estimate` is the mean of the preset itself."""

    difference: Difference
    estimate: Estimate | None
    mark: charts.Mark


@dataclass(frozen=True)
class DifferenceTable:
    """Paired differences of presets to one, by one metric; `family` presets were compared with it at once."""

    metric: str
    baseline: str
    base: Estimate | None
    axis: charts.Axis
    rows: tuple[DifferenceRow, ...]
    family: int


@dataclass(frozen=True)
class Matrix:
    """Every pair of presets: row minus column."""

    metric: str
    names: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Difference | None, ...]], ...]


@dataclass(frozen=True)
class Chapter:
    """Everything about one generation.

    Attributes:
        facts: (what, how much), as text.
        lead: Sentences that say what came out.
        missing: Why there are no metrics; empty where there are some.
        variants: (preset, its variants set against it by each main metric).
    """

    name: str
    facts: tuple[tuple[str, str], ...]
    lead: tuple[str, ...]
    missing: str
    level: str
    presets: tuple[PresetTable, ...]
    types: tuple[TypeTable, ...]
    differences: tuple[DifferenceTable, ...]
    matrix: Matrix | None
    variants: tuple[tuple[str, tuple[DifferenceTable, ...]], ...]
    experiments: tuple[Experiment, ...]
    vocabulary: Vocabulary | None
    graphs: tuple[GraphFigures, ...]
    costs: Costs


def chapter(generation: Generation) -> Chapter:
    """Read everything about a generation but its rankings. One shard is in memory at a time."""
    found = judged(generation)
    tables = generation.tables()
    notes = vocabulary(generation.parts("notes", COLUMNS)) if "notes" in tables else None
    spent = costs(generation)
    lacks = asides.remark(generation)
    lead = [f"{lacks[0].upper()}{lacks[1:]}."] if lacks else []
    return Chapter(
        generation.name,
        tuple(_facts(generation, found)),
        (*lead, *(sentences(found) if found else ())),
        "" if found else _missing(generation),
        found.level if found else "",
        tuple(_preset_table(found, level) for level in found.levels) if found else (),
        tuple(_type_tables(found)) if found else (),
        tuple(_difference_tables(found)) if found else (),
        _matrix(found) if found else None,
        tuple(_variants(found)) if found else (),
        tuple(experiments(generation)),
        notes,
        tuple(graphs(generation)),
        spent,
    )


def _missing(generation: Generation) -> str:
    """Say why there are no metrics."""
    units = generation.units
    if "questions" in units and not generation.manifest("questions").rows("questions"):
        return "The logs hold no questions, so no preset can be judged."
    if not any(unit.startswith("rank/") for unit in units):
        return "No preset has ranked yet: tagloom run."
    if "evaluate" not in units:
        return "Rankings have not been judged yet: tagloom run."
    return "No question has evidence that could be found, so no preset can be judged."


def _facts(generation: Generation, found: Judged | None) -> Iterator[tuple[str, str]]:
    units = generation.units
    config = generation.head.get("config", {})
    if "ingest" in units:
        manifest = generation.manifest("ingest")
        yield "cases", f"{manifest.stats.get('cases', 0):,}"
        yield "interactions", f"{manifest.rows('interactions'):,}"
    if "questions" in units:
        manifest = generation.manifest("questions")
        asked = manifest.rows("questions")
        yield "questions", f"{asked:,}"
        if found:
            judged_at = found.estimate(found.level, found.metrics[0], found.presets[0])
            scored = judged_at.questions if judged_at else 0
            yield f"with evidence ({found.level} level)", f"{scored:,}"
        yield "records rejected", f"{manifest.rows('rejects'):,}"
    if named := extractor_of(config.get("extract", {})):
        yield "notes by", named
    if found:
        yield "presets", f"{len(found.presets):,}"
        own = generation.manifest("evaluate").config
        yield "resamples, seed", f"{own.get('resamples', 0):,}, {own.get('seed', 0)}"
    if depth := config.get("rank", {}).get("depth"):
        yield "ranking depth", f"{depth:,}"


def _preset_table(found: Judged, level: str) -> PresetTable:
    metrics = tuple(name for name in SHOWN if name in found.metrics) or found.metrics[:1]
    ranked = found.ranked(level, metrics[0])
    scale = charts.scale(v for _, e in ranked for v in (e.value, e.low, e.high))
    cells = {name: tuple(found.estimate(level, metric, name) for metric in metrics) for name, _ in ranked}
    tops = [max(cell.value if cell else 0.0 for cell in column) for column in zip(*cells.values(), strict=True)]
    rows = tuple(
        PresetRow(
            name,
            cells[name],
            tuple(cell is not None and cell.value == top > 0 for cell, top in zip(cells[name], tops, strict=True)),
            charts.mark(scale, estimate.value, estimate.low, estimate.high),
        )
        for name, estimate in ranked
    )
    first = ranked[0][1]
    return PresetTable(
        level, first.questions, first.cases, metrics, charts.axis(scale), rows, _recall_curve(found, level, ranked)
    )


def _recall_curve(found: Judged, level: str, ranked: list[tuple[str, Estimate]]) -> charts.Lines | None:
    """Draw recall by depth, of the best presets by the first metric and the baseline."""
    depths = sorted(int(name.partition("@")[2]) for name in found.metrics if name.startswith("recall@"))
    if len(depths) < 3:
        return None
    names = [name for name, _ in ranked]
    chosen = names[: charts.STYLES]
    if found.baseline not in chosen:
        chosen[-1] = found.baseline
    series: list[tuple[str, list[charts.Measured]]] = []
    for name in chosen:
        points = [(k, found.estimate(level, f"recall@{k}", name)) for k in depths]
        series.append((name, [(float(k), e.value, e.low, e.high) for k, e in points if e is not None]))
    return charts.lines(f"Recall by depth, {level} level", "results looked at (k)", series, chosen)


def _type_tables(found: Judged) -> Iterator[TypeTable]:
    sizes = {
        scope: row["questions"]
        for (level, scope, metric, preset), row in found.cells.items()
        if (level, metric, preset) == (found.level, found.main[0], found.presets[0])
    }
    types = [scope for scope in found.scopes if scope.startswith("type:") and scope in sizes]
    shown = sorted(sorted(types, key=lambda scope: -sizes[scope])[:TYPES])
    if "unanswerable" in sizes:
        shown += [scope for scope in ("answerable", "unanswerable") if scope in sizes]
    if not shown:
        return
    for metric in found.main:
        names = [name for name, _ in found.ranked(found.level, metric)]
        cells = [[found.estimate(found.level, metric, name, scope) for scope in shown] for name in names]
        values = [[cell.value if cell else 0.0 for cell in row] for row in cells]
        low, high = (pick(map(pick, values)) for pick in (min, max))
        tops = [max(column) for column in zip(*values, strict=True)]
        rows = tuple(
            (name, tuple(_type_cell(cell, low, high, top) for cell, top in zip(row, tops, strict=True)))
            for name, row in zip(names, cells, strict=True)
        )
        columns = tuple((scope.removeprefix("type:"), sizes[scope]) for scope in shown)
        yield TypeTable(metric, columns, rows, max(0, len(types) - TYPES))


def _type_cell(estimate: Estimate | None, low: float, high: float, top: float) -> TypeCell | None:
    if estimate is None:
        return None
    share = (estimate.value - low) / (high - low) if high > low else 0.0
    return TypeCell(estimate, min(int(share * SHADES), SHADES - 1), estimate.value == top > 0)


def _difference_tables(found: Judged) -> Iterator[DifferenceTable]:
    metrics = [*found.main, *(name for name in COMPARED if name not in found.main)]
    for metric in metrics:
        names = [name for name in found.presets if name != found.baseline]
        table = _against(found, metric, found.baseline, names)
        if table is not None:
            yield table


def _variants(found: Judged) -> Iterator[tuple[str, tuple[DifferenceTable, ...]]]:
    for base, names in variants(found.presets).items():
        tables = tuple(t for m in found.main if (t := _against(found, m, base, names, in_order=True)) is not None)
        if tables:
            yield base, tables


def _against(
    found: Judged, metric: str, baseline: str, names: list[str], *, in_order: bool = False
) -> DifferenceTable | None:
    """Set presets against one of them; None where they were not compared by that metric."""
    every = [found.difference(found.level, metric, name, baseline) for name in names]
    known = [difference for difference in every if difference is not None]
    if not known:
        return None
    scale = charts.scale((v for d in known for v in (d.value, d.low, d.high)), zero=True)
    rows = tuple(
        DifferenceRow(d, found.estimate(found.level, metric, d.preset), charts.mark(scale, d.value, d.low, d.high))
        for d in (known if in_order else sorted(known, key=lambda d: -d.value))
    )
    base = found.estimate(found.level, metric, baseline)
    family = max(found.family(found.level, metric, baseline), 1)
    return DifferenceTable(metric, baseline, base, charts.axis(scale, zero=True), rows, family)


def _matrix(found: Judged) -> Matrix | None:
    metric = found.main[0]
    names = [name for name, _ in found.ranked(found.level, metric)]
    if not 2 < len(names) <= MATRIX:
        return None
    rows = tuple((a, tuple(found.difference(found.level, metric, a, b) for b in names)) for a in names)
    return Matrix(metric, tuple(names), rows)
