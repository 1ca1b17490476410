"""Runs experiments and checks replay files for the command line, and shows what came out."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import typer

from jobs import console
from pipelines import replay
from pipelines.experimenting import Done, Wanted
from pipelines.experimenting import run as run_experiment
from pipelines.store import Generation, Store
from schemas.errors import UsageError

SHOWN = ("mrr", "recall@10")
"""Metrics of rankings that are shown; table `results` has more."""

_LEVELS = ("contains", "interaction", "message", "session", "contains_any")
"""Levels, the first one with results is shown."""

_MOST = 60
"""Rows of a table that are shown."""

Row = Mapping[str, Any]


def run(
    corpus: str,
    name: str,
    what: str,
    *,
    presets: tuple[str, ...],
    baseline: str | None,
    other: str | None,
    other_name: str,
    sets: Sequence[str],
    workers: str | None,
    wait: float,
    quiet: bool,
    as_json: bool,
) -> None:
    """Run an experiment, write its replay file, and show it."""
    wanted = Wanted(what, presets, baseline, options(sets), other, other_name)
    done = run_experiment(
        corpus,
        name,
        wanted,
        workers=_workers(workers),
        wait=wait,
        progress=console.progress(quiet, as_json),
    )
    path = replay.keep(done.generation, done.name)
    if as_json:
        console.emit_json(
            {
                "corpus": corpus,
                "generation": name,
                "experiment": done.name,
                "presets": list(done.asked.presets),
                "baseline": done.asked.baseline,
                "parts_made": dict(done.made),
                "seconds": {u: m.run.get("busy_seconds", 0.0) for u, m in done.manifests.items()},
                "replay": path,
                "results": done.results.to_pylist(),
            }
        )
        return
    show(done)
    option = "" if name == "main" else f" --name {name}"
    console.emit(f"\n{done.results.num_rows:,} rows -> tagloom export -C {corpus}{option} results")
    console.emit(f"replay file: {corpus.rstrip('/')}/{path}   (tagloom replay -C {corpus} FILE checks it)")


def options(sets: Sequence[str]) -> dict[str, Any]:
    """Return the options of an experiment.

    Raises:
        UsageError: One is not KEY=VALUE, or its value is no YAML.
    """
    import yaml

    found: dict[str, Any] = {}
    for item in sets:
        key, sign, text = item.partition("=")
        try:
            value = yaml.safe_load(text)
        except yaml.YAMLError:
            sign = ""
        if not sign or not key.strip():
            raise UsageError(f"'{item}' is not KEY=VALUE", where="--set", remedy="Example: --set counts=[0,8]")
        found[key.strip()] = value
    return found


def _workers(text: str | None) -> int | str:
    if text is None or text == "auto":
        return "auto"
    if not text.isdigit():
        raise UsageError(f"'{text}' is neither a number nor auto", where="--workers")
    return int(text)


def show(done: Done) -> None:
    """Print the results: means and differences on one level, then what has no level."""
    rows = done.results.to_pylist()
    levels = {row["level"] for row in rows} - {""}
    level = next((name for name in _LEVELS if name in levels), "")
    ranked = [row for row in rows if row["level"] == level and row["scope"] == "all"] if level else []
    metrics = [name for name in SHOWN if any(row["metric"] == name for row in ranked)]
    metrics = metrics or list(dict.fromkeys(row["metric"] for row in ranked))
    for differences in (False, True):
        own = [row for row in ranked if (row["baseline"] is not None) == differences and row["metric"] in metrics]
        if own:
            _show_ranked(own, metrics, level, differences=differences)
    rest = [row for row in rows if not row["level"]]
    if rest:
        cells = [[row["variant"], row["metric"], _figure(row), f"{row['questions']:,}"] for row in rest[:_MOST]]
        console.emit("\n" + console.table(["variant", "figure", "value [95 % interval]", "questions"], cells, "lllr"))
    if rows and all(row["low"] is None for row in rows):
        console.emit("\nno intervals: there is one case")
    _show_time(done)


def _show_ranked(rows: Sequence[Row], metrics: Sequence[str], level: str, *, differences: bool) -> None:
    most = max(rows, key=lambda row: row["questions"])
    what = (
        "paired difference [95 % interval by case] and sign-flip p" if differences else "mean [95 % interval by case]"
    )
    console.emit(f"\n{level} level, {most['questions']:,} questions, {most['cases']:,} cases; {what}")
    lines: dict[tuple[str, str, str], dict[str, str]] = {}
    for row in rows:
        key = (row["variant"], row["retriever"], row["baseline"] or "")
        lines.setdefault(key, {})[row["metric"]] = _figure(row, signed=differences)
    headers = ["variant", "preset", *(["against"] if differences else []), *metrics]
    cells = [
        [*key[: 3 if differences else 2], *(values.get(name, "-") for name in metrics)] for key, values in lines.items()
    ]
    console.emit(console.table(headers, cells[:_MOST], "l" * len(headers)))
    if len(cells) > _MOST:
        console.emit(f"... and {len(cells) - _MOST:,} more")


def _figure(row: Row, *, signed: bool = False) -> str:
    sign = "+" if signed else ""
    digits = 3 if abs(row["value"]) < 100 else 1
    text = f"{row['value']:{sign}.{digits}f}"
    if row["low"] is not None:
        text += f" [{row['low']:{sign}.{digits}f}, {row['high']:{sign}.{digits}f}]"
    return text + (f" p {row['p_value']:.4f}" if row["p_value"] is not None else "")


def _show_time(done: Done) -> None:
    """Show what each variant took: stores made and questions ranked with all presets."""
    lines = []
    for unit, manifest in done.manifests.items():
        asked = manifest.stats.get("questions", 0)
        if asked:
            seconds = float(manifest.run.get("busy_seconds", 0.0))
            lines.append([unit.rpartition("/")[2], f"{seconds:.2f}", f"{1000 * seconds / asked:.2f}"])
    if lines:
        console.emit("\n" + console.table(["variant", "seconds of work", "ms a question"], lines, "lrr"))


def record(
    corpus: str | None, name: str, experiment: str | None, target: str, *, overwrite: bool, as_json: bool
) -> None:
    """Write a replay file of a generation, or of an experiment on it."""
    path = Path(target)
    if path.exists() and not overwrite:
        raise UsageError("is there already", where=target, remedy="Name another file, or give --overwrite.")
    kept = replay.record(_generation(corpus, name), experiment)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(kept, indent=1, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")
    if as_json:
        console.emit_json(kept)
    else:
        console.emit(f"{len(kept['units']):,} units, {len(kept['inputs']):,} inputs -> {target}")


def check(file: str | None, corpus: str | None, name: str | None, *, recompute: bool, as_json: bool) -> None:
    """Check a replay file and show what agrees and what differs; exit code 1 where the results do not follow."""
    if file is None:
        raise UsageError("no replay file is named", where="replay", remedy="Example: tagloom replay replay.json -C URI")
    if recompute and corpus is None:
        raise UsageError("nothing can be computed without a corpus", where="--recompute", remedy="Name it: -C URI")
    kept = replay.read(file)
    generation = None if corpus is None else _generation(corpus, name or kept["generation"])
    found = replay.check(kept, generation, recompute=recompute)
    if as_json:
        findings = [asdict(one) for one in found.findings]
        console.emit_json({"verdict": found.verdict, "follows": found.follows, "findings": findings})
    else:
        _show_findings(found)
    if not found.follows:
        raise typer.Exit(1)


def _show_findings(found: replay.Checked) -> None:
    sections: dict[str, list[replay.Finding]] = {}
    for one in found.findings:
        sections.setdefault(one.section, []).append(one)
    rows = []
    for section, own in sections.items():
        agree = sum(one.state == "agrees" for one in own)
        rows.append([section, f"{agree:,}", f"{len(own) - agree:,}"])
    console.emit(console.table(["", "agree", "do not"], rows))
    for one in [one for one in found.findings if one.state != "agrees"][:_MOST]:
        console.emit(f"{one.section}: {one.what} {one.state}" + (f" ({one.detail[:200]})" if one.detail else ""))
    console.emit(found.verdict)


def _generation(corpus: str | None, name: str) -> Generation:
    if corpus is None:
        raise UsageError("no corpus is named", where="--corpus", remedy="Name it: -C URI")
    return Store.open(corpus).generation(name)
