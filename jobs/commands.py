"""What each command does; `jobs.cli` only reads the command line."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from jobs import console
from jobs.engine_view import show_asked
from schemas.config import RunConfig
from schemas.errors import UsageError

log = logging.getLogger(__name__)

SHOWN_METRICS = ("mrr", "recall@5", "recall@10", "ndcg@10")
SHOWN_LEVELS = ("interaction", "session", "contains", "contains_any")
"""Levels shown, in order; for most corpora those of messages are as those of interactions."""


def run(config: RunConfig, *, stages: Sequence[str], append: bool, wait: float, quiet: bool, as_json: bool) -> None:
    """Run, then show presets by metric and where everything lies."""
    from pipelines import driver

    result = driver.run(config, stages=stages, append=append, wait=wait, progress=console.progress(quiet, as_json))
    _show_run(result, as_json)
    driver.check_finished(result)


def _show_run(result: Any, as_json: bool) -> None:
    generation, manifests = result.generation, result.manifests
    metrics = generation.table("metrics").to_pylist() if "evaluate" in manifests else []
    ingested, asked = manifests["ingest"], manifests["questions"]
    summary = {
        "corpus": generation.store.storage.uri,
        "generation": generation.name,
        "cases": int(ingested.stats.get("cases", 0)),
        "interactions": ingested.rows("interactions"),
        "questions": asked.rows("questions"),
        "rejects": asked.rows("rejects"),
        "reject_reasons": _reasons(generation.store, asked),
        "repairs": dict(result.facts["repairs"]),
        "seconds": {stage: round(spent, 2) for stage, spent in result.seconds.items()},
        "parts_made": dict(result.made),
        "memory": dict(result.memory),
        "notes": manifests["extract"].stats if "extract" in manifests else {},
        "engine": {unit: dict(facts) for unit, facts in result.asked.items()},
        "without_seeds": {
            unit.partition("/")[2]: m.stats["no_seeds"] for unit, m in manifests.items() if m.stats.get("no_seeds")
        },
        "metrics": metrics,
        "comparisons": generation.table("comparisons").to_pylist() if metrics else [],
    }
    if as_json:
        console.emit_json(summary)
        return
    console.emit(
        f"{summary['cases']:,} cases, {summary['interactions']:,} interactions, {summary['questions']:,} questions, "
        f"{summary['rejects']:,} rejects"
    )
    if summary["rejects"]:
        reasons = ", ".join(f"{name} {count:,}" for name, count in summary["reject_reasons"].items())
        console.emit(f"rejected: {reasons}   (tagloom export -C {summary['corpus']} rejects)")
    if summary["repairs"]:
        console.emit("repaired: " + ", ".join(f"{name} {count:,}" for name, count in summary["repairs"].items()))
    show_asked(result)
    if metrics:
        _show_metrics(metrics)
        _show_comparisons(summary["comparisons"])
        _show_apart(metrics, summary["questions"])
    total = sum(result.seconds.values())
    spent = ", ".join(f"{stage} {console.duration(took)}" for stage, took in result.seconds.items())
    console.emit(f"\ntook {console.duration(total)} ({spent}); {sum(result.made.values()):,} parts made")
    held = ", ".join(f"{name} {console.size(size)}" for name, size in result.memory.items() if size)
    console.emit(f"peak memory: {held}")
    _show_places(summary, searchable="extract" in manifests)


def _reasons(store: Any, asked: Any) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for part in asked.parts:
        if part.tables["rejects"].rows:
            counts.update(store.read_part("rejects", part.shard, part.key, ["reason"])["reason"].to_pylist())
    return dict(sorted(counts.items()))


def _show_metrics(metrics: Sequence[dict[str, Any]]) -> None:
    for level in SHOWN_LEVELS:
        rows = [m for m in metrics if m["level"] == level and m["scope"] == "all"]
        if not rows:
            continue
        cases = console.counted(rows[0]["cases"], "case")
        console.emit(
            f"\n{rows[0]['questions']:,} questions with evidence at {level} level, {cases}; "
            f"mean [95 % bootstrap interval by {_draw(rows[0])}]"
        )
        console.emit(console.results_table(metrics, level, SHOWN_METRICS))


def _draw(row: dict[str, Any]) -> str:
    return "case" if row["cases"] > 1 else "question"


def _show_comparisons(comparisons: Sequence[dict[str, Any]]) -> None:
    """Show how each preset differs from the first baseline."""
    level = _first_level(comparisons)
    pairs = [c for c in comparisons if c["level"] == level and c["metric"] == "mrr"]
    pairs = [c for c in pairs if c["baseline"] == pairs[0]["baseline"]]
    if not pairs or pairs[0]["low"] is None:
        return
    rows = [
        [
            c["retriever"],
            f"{c['difference']:+.3f} [{c['low']:+.3f}, {c['high']:+.3f}]",
            f"{c['p_value']:.4f}",
            f"{c['p_holm']:.4f}",
        ]
        for c in pairs
    ]
    console.emit(f"\npaired difference of mrr to {pairs[0]['baseline']} ({level}), sign-flip p by {_draw(pairs[0])}")
    console.emit(console.table(["preset", "difference", "p", "p (Holm)"], rows, "llrr"))


def _show_apart(metrics: Sequence[dict[str, Any]], questions: int) -> None:
    """Show what the tables leave out, and the questions that are marked unanswerable."""
    level = _first_level(metrics)
    own = [m for m in metrics if m["level"] == level and m["metric"] == "mrr"]
    scored = next((m["questions"] for m in own if m["scope"] == "all"), 0)
    marked = [m for m in own if m["scope"] == "unanswerable"]
    console.emit(f"\napart: {questions - scored:,} questions without evidence at {level} level are not scored")
    if marked:
        figures = ", ".join(f"{m['retriever']} {m['mean']:.3f}" for m in marked)
        console.emit(f"apart: {marked[0]['questions']:,} scored ones are marked unanswerable; their mrr: {figures}")


def _first_level(rows: Sequence[dict[str, Any]]) -> str:
    """Return the level that counts first among those that rows have."""
    there = {row["level"] for row in rows}
    return next((level for level in SHOWN_LEVELS if level in there), SHOWN_LEVELS[0])


def _show_places(summary: dict[str, Any], *, searchable: bool) -> None:
    corpus, name = summary["corpus"], summary["generation"]
    option = "" if name == "main" else f" --name {name}"
    console.emit(f"corpus: {corpus}   (tables as Parquet under {corpus}/tables, generation '{name}')")
    if searchable:
        console.emit(
            f"next:   tagloom query -C {corpus}{option} 'your question'   |   tagloom export -C {corpus}{option} runs"
        )
    else:
        console.emit(f"next:   tagloom run -C {corpus}{option}")


def query(
    corpus: str, name: str, case: str | None, text: str, retriever: str, k: int, *, full: bool, as_json: bool
) -> None:
    """Search one case and show what was found."""
    from pipelines.query import answer, only_case
    from pipelines.store import Store

    generation = Store.open(corpus).generation(name)
    chosen = case if case is not None else only_case(generation)
    hits = answer(generation, chosen, text, retriever, k)
    if as_json:
        console.emit_json({"case": chosen, "question": text, "retriever": retriever, "hits": hits.to_pylist()})
        return
    if not hits.num_rows:
        console.emit(f"nothing in case '{chosen}' matches; try other words, or another preset with --retriever")
    for hit in hits.to_pylist():
        when = hit["started_at"].strftime("%Y-%m-%d %H:%M") if hit["started_at"] else "no date"
        console.emit(f"{hit['rank']}. {hit['interaction_id']}   {when}   score {hit['score']:.4f}")
        shown = hit["text"] if full else _cut(hit["text"], 300)
        console.emit("   " + shown.replace("\n", "\n   "))


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[:limit].rstrip() + " ..."


def compare(
    corpus: str,
    a: str,
    b: str,
    presets: Sequence[str],
    cases: Sequence[str],
    *,
    all_cases: bool,
    to: str | None,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Compare two generations, and write the comparison where it is to go."""
    from jobs import compare_view
    from jobs.export import free_folder
    from pipelines.compare import compare as compute
    from pipelines.store import Store

    if to is not None:
        free_folder(to, ".parquet", overwrite)  # before the work, not after it
    compared = compute(Store.open(corpus), a, b, presets=presets, cases=cases, all_cases=all_cases)
    written = compare_view.write(compared, to, overwrite=overwrite) if to is not None else None
    if as_json:
        files = {"files": [str(f) for f in written.files]} if written else {}
        console.emit_json({**compare_view.as_dict(compared, corpus), **files})
        return
    compare_view.show(compared, corpus)
    if written:
        console.emit(f"\n{written.rows:,} rows -> {len(written.files)} files in {written.target}")


def report(corpus: str, names: Sequence[str], to: str, explained: int, *, overwrite: bool, as_json: bool) -> None:
    """Write a report, and tell where it lies."""
    from jobs.explain_view import for_report
    from jobs.report import write_report
    from pipelines.store import Store

    explain = for_report(Store.open(corpus), explained) if explained else None
    made = write_report(corpus, names, to, overwrite, explain)
    if as_json:
        console.emit_json({**asdict(made), "target": str(made.target)})
        return
    console.emit(
        f"{made.target}: {console.size(made.bytes)}, generations {', '.join(made.generations)}, "
        f"{made.presets} presets, {made.questions:,} questions"
    )


def export(
    corpus: str, name: str, what: str, to: str | None, fmt: str | None, *, by_case: bool, overwrite: bool, as_json: bool
) -> None:
    """Write a table elsewhere."""
    from jobs import export as exporter
    from pipelines.store import Store

    generation = Store.open(corpus).generation(name)
    written = exporter.export(generation, what, fmt, to, by_case=by_case, overwrite=overwrite)
    if as_json:
        console.emit_json({"files": [str(f) for f in written.files], "rows": written.rows})
    else:
        first = (
            str(written.files[0]) if len(written.files) == 1 else f"{len(written.files):,} files in {written.target}"
        )
        console.emit(f"{written.rows:,} rows -> {first}")


def synth(to: str, size: int, cases: int | None, seed: int, *, overwrite: bool, quiet: bool, as_json: bool) -> None:
    """Write a synthetic corpus."""
    from pathlib import Path

    from transforms import synth as maker

    folder = Path(to)
    if folder.exists() and any(folder.iterdir()) and not overwrite:
        raise UsageError("the folder is not empty", where=to, remedy="Name another one, or give --overwrite.")
    made = maker.write(to, size=size, cases=cases, seed=seed, overwrite=overwrite)
    if as_json:
        console.emit_json(made)
    elif not quiet:
        console.emit(
            f"{made['interactions']:,} interactions, {made['questions']:,} questions, {made['cases']:,} cases -> {to}"
        )
        console.emit(f"who was introduced to whom, and what was recommended: {', '.join(made['truth'])}")
        console.emit(f"next: tagloom run --corpus CORPUS {to}")


def gc(corpus: str, *, dry_run: bool, drop: tuple[str, ...], journal: bool, wait: float, as_json: bool) -> None:
    """Remove what no generation needs."""
    from pipelines.gc import gc as sweep
    from pipelines.store import Store

    swept = sweep(Store.open(corpus), dry_run=dry_run, drop=drop, journal=journal, wait=wait)
    if as_json:
        told = {"removed": list(swept.files), "bytes": swept.bytes, "kept": swept.kept, "uploads": swept.uploads}
        console.emit_json({**told, "dry_run": dry_run})
        return
    verb = "would remove" if dry_run else "removed"
    console.emit(f"{verb} {len(swept.files):,} files, {console.size(swept.bytes)}; {swept.kept:,} files stay")
    if swept.uploads:
        console.emit(f"{'would end' if dry_run else 'ended'} {swept.uploads:,} uploads that were never finished")


def doctor(*, as_json: bool) -> None:
    """Show what is installed and what can be named."""
    from jobs.doctor import examine

    found = examine()
    if as_json:
        console.emit_json(found)
        return
    rows = [[d["name"], d["version"] or "missing", d["purpose"], d["remedy"]] for d in found["libraries"]]
    console.emit(console.table(["library", "version", "for", "how to get it"], rows, "llll"))
    for kind in ("formats", "extractors", "engines", "tasks", "graphs", "embedders", "presets"):
        console.emit(f"\n{kind}: " + ", ".join(found[kind]))
    for line in found["machine"]:
        console.emit(line)
