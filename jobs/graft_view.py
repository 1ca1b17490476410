"""How a repaired memory is made and shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from jobs import console
from jobs.engine_view import show_unit
from schemas.config import RunConfig
from schemas.options import checked

SHOWN = ("mrr", "recall@10")
EXAMPLES = 5


def graft(
    config: RunConfig, options: Mapping[str, Any], *, name: str | None, wait: float, quiet: bool, as_json: bool
) -> None:
    """Repair a generation, and show what was added and what it changed."""
    from pipelines import grafting as maker
    from pipelines.graft import Grafting

    own = cast(Grafting, checked(Grafting, options, owner="graft", where="command line"))
    done = maker.run(config, own, name=name, wait=wait, progress=console.progress(quiet, as_json))
    rows = done.results.to_pylist()
    if as_json:
        console.emit_json(
            {
                "corpus": config.corpus,
                "from": done.before.name,
                "generation": done.generation.name if done.generation else None,
                "counts": done.counts,
                "engine": done.asked,
                "remarks": list(done.remarks),
                "repairs": done.repairs.to_pylist(),
                "results": rows,
            }
        )
        return
    counts = done.counts
    how = "a judge" if own.mode == "online" else "the gold"
    console.emit(
        f"{counts['questions']:,} questions to repair on: {counts['lacking']:,} cannot be answered from packs of "
        f"{own.preset}, says {how}; {counts['repaired']:,} of them got {console.counted(counts['repairs'], 'repair')}"
    )
    if counts["undiagnosed"]:
        console.emit(f"{console.counted(counts['undiagnosed'], 'question')} could not be diagnosed")
    for unit, facts in done.asked.items():
        show_unit(unit, facts)
    if done.generation is None:
        console.emit("nothing was repaired, so no generation was made")
        return
    for one in done.repairs.slice(0, EXAMPLES).to_pylist():
        rests = ", ".join(one["interaction_ids"])
        console.emit(f"  {one['case_id']} {one['repair_id']}: {_short(one['text'])}   (from {rests})")
    if done.repairs.num_rows > EXAMPLES:
        console.emit(f"  and {done.repairs.num_rows - EXAMPLES:,} more")
    _show(rows)
    for remark in done.remarks:
        console.emit(remark)
    corpus, made = config.corpus, done.generation.name
    console.emit(
        f"\ngeneration '{made}': tagloom export -C {corpus} --name {made} repairs   |   "
        f"drop it: tagloom gc -C {corpus} --drop {made}"
    )


def _show(rows: Sequence[Mapping[str, Any]]) -> None:
    """Show each half of the questions: the mean with repairs, and its paired difference to that without."""
    titles = {"repaired-on": "questions that repairs were made from", "held-out": "questions held out"}
    for variant, title in titles.items():
        own = [r for r in rows if r["variant"] == variant and r["scope"] == "all" and r["metric"] in SHOWN]
        level = next((name for name in ("interaction", "session") if any(r["level"] == name for r in own)), None)
        own = [r for r in own if r["level"] == level]
        if not own:
            console.emit(f"\n{title}: none with evidence")
            continue
        means = {(r["retriever"], r["metric"]): r for r in own if r["baseline"] is None}
        gains = {(r["retriever"], r["metric"]): r for r in own if r["baseline"] is not None}
        console.emit(f"\n{title} ({own[0]['questions']:,}, {level} level): with repairs, and the gain [95 % interval]")
        presets = dict.fromkeys(r["retriever"] for r in own)
        table = [[p, *(_cell(means.get((p, m)), gains.get((p, m))) for m in SHOWN)] for p in presets]
        console.emit(console.table(["preset", *SHOWN], table))


def _cell(mean: Mapping[str, Any] | None, gain: Mapping[str, Any] | None) -> str:
    if mean is None or gain is None:
        return "-"
    spread = "" if gain["low"] is None else f" [{gain['low']:+.3f}, {gain['high']:+.3f}]"
    return f"{mean['value']:.3f}  {gain['value']:+.3f}{spread}"


def _short(text: str) -> str:
    return text if len(text) <= 100 else text[:97] + "..."
