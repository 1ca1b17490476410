"""The commands `plan` and `reindex`: what would be made and what it may cost, and making it beside what there is."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import typer

from jobs import console
from jobs.engine_view import show_asked
from schemas.config import RunConfig

if TYPE_CHECKING:
    from pipelines.planner_view import CostView, PlanView
    from pipelines.reindex import Reindex, Reindexed
    from pipelines.trial import Trial


def plan(config: RunConfig, *, append: bool, as_json: bool) -> None:
    """Show what a run would do."""
    from pipelines import planner_view

    planned = planner_view.plan(config, append=append)
    if as_json:
        console.emit_json(planned.as_dict())
        return
    console.emit(f"corpus {config.corpus}, generation '{config.name}', {planned.shards} shards")
    show_plan(planned)


def show_plan(planned: PlanView) -> None:
    """Show a plan: units, then what engines are asked for, then the sum."""
    for line in planned.ingest:
        console.emit(line)
    rows = [
        [u.unit, str(u.reused), str(u.to_make) if u.exact else f"up to {u.to_make}", u.estimate, u.reason]
        for u in planned.units
    ]
    console.emit(console.table(["unit", "reused", "to make", "estimate", "why"], rows, "lrrll"))
    if planned.cost is not None:
        show_cost(planned.cost)
    console.emit(planned.summary)


def show_cost(cost: CostView) -> None:
    """Show what engines are asked for."""
    console.emit("\ncost (estimated)")
    lines: list[tuple[str, str, Mapping[str, Any]]]
    lines = [(one.unit, f"{one.engine} {one.model}".strip(), vars(one)) for one in cost.units]
    lines += [("total", "", cost.total)] if len(lines) > 1 else []
    rows = [
        [
            unit,
            model,
            *(f"{figures[name]:,}" for name in ("requests", "answered", "prompt_tokens", "completion_tokens")),
            "-" if figures["seconds"] is None else console.duration(figures["seconds"]),
            "-" if figures["price"] is None else f"{figures['price']:,.2f}",
        ]
        for unit, model, figures in lines
    ]
    headers = ["unit", "model", "requests", "in journal", "prompt tokens", "reply tokens", "time", "price"]
    console.emit(console.table(headers, rows, "llrrrrrr"))
    console.emit("; ".join(cost.remarks) + "\n")


def cost_line(cost: CostView) -> str:
    """Say in one line what engines are asked for."""
    figures = cost.total
    told = [
        f"{figures['requests']:,} requests",
        f"{figures['prompt_tokens']:,} prompt and {figures['completion_tokens']:,} reply tokens",
        f"at most some {figures['most_tokens']:,} tokens in all",
        "time not known" if figures["seconds"] is None else f"about {console.duration(figures['seconds'])}",
        "price not known" if figures["price"] is None else f"price {figures['price']:,.2f}",
    ]
    return f"estimated{', roughly' if cost.rough else ''}: " + ", ".join(told)


def reindex(
    config: RunConfig,
    *,
    origin: str | None,
    name: str | None,
    keep: str | None,
    trial: Trial | None,
    retry_failed: bool,
    dry_run: bool,
    yes: bool,
    wait: float,
    quiet: bool,
    as_json: bool,
) -> None:
    """Make a generation anew under other settings, or tell what that would take."""
    from pipelines import reindex as maker
    from pipelines.driver import shards_aside

    prepared = maker.prepare(config, origin=origin, name=name, keep=keep, trial=trial, retry_failed=retry_failed)
    if dry_run:
        _show_dry_run(prepared, as_json)
        return
    if not yes and sys.stdin.isatty() and sys.stderr.isatty() and not _agreed(prepared):
        console.tell("nothing was done")
        raise typer.Exit(1)
    done = maker.run(prepared, wait=wait, progress=console.progress(quiet, as_json))
    if as_json:
        console.emit_json(_as_dict(prepared, done))
    else:
        _show(prepared, done)
    if (error := shards_aside(done.result)) is not None:
        raise error


def _agreed(prepared: Reindex) -> bool:
    """Ask before an engine is."""
    from pipelines.extract import is_engine, variants

    if not any(is_engine(one) for one in variants(prepared.config.extract)):
        return True
    cost = prepared.plan().cost
    if cost is None or not cost.total["requests"]:
        return True
    console.tell(cost_line(cost))
    return typer.confirm("Go on?", err=True)


def _show_dry_run(prepared: Reindex, as_json: bool) -> None:
    planned = prepared.plan()
    if as_json:
        console.emit_json({**planned.as_dict(), **_names(prepared), "settings": _settings(prepared)})
        return
    console.emit(_heading(prepared, "would be made"))
    _show_settings(prepared)
    show_plan(planned)


def _show(prepared: Reindex, done: Reindexed) -> None:
    result = done.result
    if done.equal:
        console.emit(f"nothing to do: generation '{done.equal}' is the same already")
        return
    console.emit(_heading(prepared, "made"))
    _show_settings(prepared)
    made = {unit: count for unit, count in result.made.items() if count}
    parts = [f"{unit} {count} of {len(result.manifests[unit].parts)}" for unit, count in made.items()]
    shown = ", ".join(parts[:8]) + (f", and {len(parts) - 8} more units" if len(parts) > 8 else "")
    console.emit(f"parts made: {shown or 'none'}; took {console.duration(sum(result.seconds.values()))}")
    show_asked(result)
    corpus, name = prepared.config.corpus, prepared.config.name
    other = done.kept if name == prepared.before.name else prepared.before.name
    console.emit(f"next: tagloom compare -C {corpus} {other} {name}")


def _heading(prepared: Reindex, verb: str) -> str:
    kept = f"; what '{prepared.config.name}' was stays as '{prepared.keep}'" if prepared.keep else ""
    return f"generation '{prepared.config.name}' {verb} from '{prepared.before.name}'{kept}"


def _show_settings(prepared: Reindex) -> None:
    for key, (was, now) in prepared.settings.items():
        if key != "extract.rest" and not (key == "extract.cases" and now):
            console.emit(f"  {key}: {_short(was)} -> {_short(now)}")
    if cases := prepared.config.extract.cases:
        console.emit(f"  the new extractor is for {console.counted(len(cases), 'case')}, the others keep theirs")


def _short(value: Any) -> str:
    text = "none" if value is None else str(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _settings(prepared: Reindex) -> dict[str, Sequence[Any]]:
    return {key: [was, now] for key, (was, now) in prepared.settings.items()}


def _names(prepared: Reindex) -> dict[str, Any]:
    return {
        "corpus": prepared.config.corpus,
        "generation": prepared.config.name,
        "from": prepared.before.name,
        "kept": prepared.keep or None,
    }


def _as_dict(prepared: Reindex, done: Reindexed) -> Mapping[str, Any]:
    result = done.result
    return {
        **_names(prepared),
        "kept": done.kept or None,
        "equal": done.equal or None,
        "settings": _settings(prepared),
        "parts": {unit: len(manifest.parts) for unit, manifest in result.manifests.items()},
        "parts_made": dict(result.made),
        "seconds": {stage: round(spent, 2) for stage, spent in result.seconds.items()},
        "notes": result.manifests["extract"].stats,
    }
