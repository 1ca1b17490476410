"""How it is shown what an engine was asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from jobs import console

if TYPE_CHECKING:
    from pipelines.driver import RunResult


def show_unit(unit: str, run: Mapping[str, Any]) -> None:
    """Show what an engine did for one unit (`pipelines.spent.Spent.facts`)."""
    console.emit(
        f"{unit}: {run['requests']:,} requests to {run['model']}, {run['prompt_tokens']:,} + "
        f"{run['completion_tokens']:,} tokens, {run['from_journal']:,} from the journal; "
        f"{run['occupancy']:.0%} of slots busy, "
        f"{run['queue_seconds'] / max(1, run['requests']):.2f} s in the queue on average"
    )
    for name, words in (("retried", "tried again"), ("failed", "given up")):
        if run[name]:
            console.emit(f"  {words}: " + ", ".join(f"{reason} {count:,}" for reason, count in run[name].items()))


def show_asked(result: RunResult) -> None:
    """Show what an engine did in a run, unit by unit, and how to ask again about what failed."""
    for unit, run in result.asked.items():
        show_unit(unit, run)
    failed = {
        unit: count
        for unit, manifest in result.manifests.items()
        if unit.partition("/")[0] == "extract"
        and (count := sum(n for name, n in manifest.stats.items() if name.endswith("_failed")))
    }
    if failed:
        told = ", ".join(f"{unit} {count:,}" for unit, count in failed.items())
        generation = result.generation
        console.emit(
            f"failed, each with its reason in the column error: {told}. Ask again: tagloom reindex "
            f"-C {generation.store.storage.uri} --from {generation.name} --name {generation.name} --retry-failed"
        )
