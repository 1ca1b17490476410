"""How reader studies are run and shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from jobs import console
from jobs.engine_view import show_unit
from schemas.config import RunConfig
from schemas.options import checked

SHOWN = ("f1", "contains", "judged", "abstained")
_LABELS = {"f1": "token F1", "contains": "holds answer", "judged": "judged right", "abstained": "abstained"}


def read(config: RunConfig, reading: Mapping[str, Any], *, wait: float, quiet: bool, as_json: bool) -> None:
    """Run a reader study and show presets by mark, with intervals and differences to the baseline."""
    from pipelines import reader
    from transforms.reading_results import EXPERIMENT

    given = {**reading, "presets": tuple(dict.fromkeys(reading["presets"]))}
    own = cast("reader.Reading", checked(reader.Reading, given, owner="read", where="command line"))
    done = reader.run(config, own, wait=wait, progress=console.progress(quiet, as_json))
    rows = done.generation.table("results", unit=EXPERIMENT).to_pylist()
    if as_json:
        console.emit_json(
            {
                "corpus": config.corpus,
                "generation": config.name,
                "presets": list(own.presets),
                "variant": own.variant,
                "engine": done.asked,
                "parts_made": done.made,
                "results": rows,
            }
        )
        return
    seen = f"packs of {own.words:,} words" if own.pack else f"the first {own.top}"
    console.emit(f"{config.extract.extractor} {config.extract.model or ''} read {seen}, at most {own.tokens:,} tokens")
    for unit, facts in done.asked.items():
        if unit != EXPERIMENT:
            show_unit(unit, facts)
    _show_scopes(rows, own.presets)
    _show_differences(rows, own.presets)
    _show_faults(rows)
    console.emit(f"\nnext: tagloom export -C {config.corpus} --name {config.name} answers   | results")


def _show_scopes(rows: Sequence[Mapping[str, Any]], presets: Sequence[str]) -> None:
    values = {(r["scope"], r["metric"], r["retriever"]): r for r in rows if r["baseline"] is None}
    for scope in dict.fromkeys(r["scope"] for r in rows):
        metrics = [m for m in SHOWN if any((scope, m, p) in values for p in presets)]
        if not metrics:
            continue
        sizes = values[scope, metrics[0], next(p for p in presets if (scope, metrics[0], p) in values)]
        console.emit(
            f"\n{scope}: {console.counted(sizes['questions'], 'question')}, {console.counted(sizes['cases'], 'case')}; "
            "[95 % interval: bootstrap by case of F1, Wilson of shares]"
        )
        table = [[p, *(_figure(values.get((scope, m, p))) for m in metrics)] for p in presets]
        console.emit(console.table(["preset", *(_LABELS[m] for m in metrics)], table))


def _figure(row: Mapping[str, Any] | None) -> str:
    if row is None:
        return "-"
    if row["low"] is None:
        return f"{row['value']:.3f}"
    return f"{row['value']:.3f} [{row['low']:.3f}, {row['high']:.3f}]"


def _show_differences(rows: Sequence[Mapping[str, Any]], presets: Sequence[str]) -> None:
    pairs = [r for r in rows if r["baseline"] is not None and r["scope"] == "all"]
    if not pairs:
        return
    console.emit(f"\npaired differences to {presets[0]}, all; [95 % bootstrap interval by case], sign-flip p")
    table = [
        [
            r["retriever"],
            _LABELS[r["metric"]],
            f"{r['value']:+.3f}" + ("" if r["low"] is None else f" [{r['low']:+.3f}, {r['high']:+.3f}]"),
            "-" if r["p_value"] is None else f"{r['p_value']:.4f}",
        ]
        for r in pairs
    ]
    console.emit(console.table(["preset", "mark", "difference", "p"], table, "llrr"))


def _show_faults(rows: Sequence[Mapping[str, Any]]) -> None:
    told = {"failed": "replies failed and count as wrong", "judge_failed": "verdicts failed and count as wrong"}
    for metric, words in told.items():
        found = [r for r in rows if r["metric"] == metric and r["scope"] == "all" and r["value"]]
        if found:
            counts = ", ".join(f"{r['retriever']} {r['value']:.0f} of {r['questions']:,}" for r in found)
            console.emit(f"{words}: {counts}")
