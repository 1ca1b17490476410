"""Shows the state of a corpus, and of the run at work on it."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from jobs import console
from pipelines import record
from pipelines.status import describe
from pipelines.store import Store
from schemas.errors import StoreError, UsageError

REFRESH_SECONDS = (1.0, 5.0)
"""How often a run is looked at: on a disk, on object storage."""
SHOWN = 5
"""Shards of a kind that are named."""
LOST = 1
"""Exit code where a run has vanished."""


def status(corpus: str, *, as_json: bool) -> None:
    """Show the generations of a corpus and its newest run."""
    found = describe(corpus)
    if as_json:
        console.emit_json(found)
        return
    console.emit(f"corpus {corpus}: {found['shards']} shards, {console.size(found['bytes'])}")
    console.emit(f"a run is at work: {found['writer']}" if found["writer"] else "no run is at work")
    if found["run"]:
        console.emit("\n".join(run_lines(found["run"])))
    for held in found["journals"]:
        console.emit(f"journal {held['extractor']}: {held['entries']:,} replies, {console.size(held['bytes'])}")
    for head in found["generations"]:
        _show_generation(head)


def _show_generation(head: Mapping[str, Any]) -> None:
    waiting = "  (ingested but not run: tagloom run)" if head["pending"] else ""
    console.emit(f"\ngeneration '{head['name']}': {head['extractor']}{waiting}")
    rows = [
        [u["unit"], f"{u['parts']}", f"{u['rows']:,}", console.size(u["bytes"]), f"{u['seconds']:.1f}", u["made_at"]]
        for u in head["units"]
    ]
    console.emit(console.table(["unit", "parts", "rows", "size", "seconds", "made at (UTC)"], rows, "lrrrrl"))
    for line in head["remarks"]:
        console.emit(line)


def follow(corpus: str, *, as_json: bool) -> int:
    """Show the newest run again and again until it ends.

    Returns:
        Its exit code; 1 where it vanished without a word.

    Raises:
        UsageError: No run has left a record.
        StoreError: There is no corpus.
    """
    storage = Store.open(corpus).storage
    names = record.runs(storage)
    if not names:
        raise UsageError("no run has left a record here yet", where=corpus, remedy="Begin one: tagloom run.")
    following = record.Following(storage, names[0])
    screen: AbstractContextManager[Any] = nullcontext()
    live = sys.stdout.isatty() and not as_json
    if live:
        from rich.live import Live

        screen = Live(auto_refresh=False, transient=True)
    told, beat = 0.0, None
    with screen as shown:
        while True:
            found = _look(following)
            ended = found["state"] != "running"
            if as_json and (ended or found["beat"] != beat):
                console.emit(json.dumps(found, ensure_ascii=False, default=str))
            elif live and not ended:
                from rich.text import Text

                shown.update(Text(console.printable("\n".join(run_lines(found)))), refresh=True)
            elif not ended and not as_json and time.monotonic() - told >= console.LINE_SECONDS[0]:
                console.emit(_line(found))
                told = time.monotonic()
            beat = found["beat"]
            if ended:
                break
            time.sleep(REFRESH_SECONDS[storage.local is None])
    if not as_json:
        console.emit("\n".join(run_lines(found)))
    return LOST if found["state"] == "lost" else int(found["exit_code"] or 0)


def _look(following: record.Following) -> dict[str, Any]:
    """Look, and once more where the store did not answer: it may be away for a moment."""
    for pause in (1.0, 5.0, 15.0):
        try:
            return following.look()
        except StoreError:
            time.sleep(pause)
    return following.look()


def run_lines(run: Mapping[str, Any]) -> list[str]:
    """Return what a person wants to know of a run, line by line."""
    who = f"process {run['pid']} on {run['host']}" + (f", job {run['submission']}" if run["submission"] else "")
    lines = [f"run {run['run']} ({run['what']}, generation '{run['generation']}'): {_state(run)}; {who}"]
    stage = run["stage"]
    if stage is not None:
        lines.append(f"  {_line(run)}")
        lines += [f"  {text}" for text in _shards(stage)]
    for done in run["stages"]:
        lines += [f"  {done['stage']}: {text}" for text in _troubles(done["failing"], done["shards_aside"])]
    if run["error"]:
        lines.append("  " + run["error"].replace("\n", "\n  "))
    return lines


def _state(run: Mapping[str, Any]) -> str:
    took = console.duration(run["seconds"])
    if run["state"] == "running":
        return f"at work for {took}"
    if run["state"] == "lost":
        if not run["held"]:
            return f"lost: it ended without a word, last sign at {_when(run['updated_at'])}, after {took} of work"
        silent = console.duration(max(0.0, run["silent_seconds"]))
        return f"lost: no sign for {silent} by this machine's clock; its own said {_when(run['updated_at'])}"
    ended = {"incomplete": "done without some shards", "done": "done"}.get(run["state"], run["state"])
    code = f" with exit code {run['exit_code']}" if run["exit_code"] else ""
    return f"{ended}{code} at {_when(run['updated_at'])}, after {took}"


def _when(text: str) -> str:
    return text[:19].replace("T", " ") + " UTC"


def _line(run: Mapping[str, Any]) -> str:
    """Return how far the stage at work is, in one line."""
    stage = run["stage"]
    if stage is None:
        return "between two stages" if run["stages"] else "beginning"
    kept = f" ({stage['reused']:,} kept)" if stage["reused"] else ""
    told = [f"{stage['label']}: {stage['reused'] + stage['done']:,} of {stage['total']:,} {stage['unit']}{kept}"]
    rate = stage["rows_per_second"]
    if stage["done"]:
        told.append(f"{rate:,.0f} rows/s" if rate else f"{stage['pieces_per_second']:,.1f} {stage['unit']}/s")
    if stage["engine"] and stage["engine"]["pieces"]:
        told.insert(1, f"{stage['engine']['pieces_done']:,} of {stage['engine']['pieces']:,} pieces")
    if stage["seconds_left"] is not None:
        told.append(f"{console.duration(stage['seconds_left'])} left")
    if stage["shards_at_work"]:
        told.append(console.counted(stage["shards_at_work"], "shard") + " at work")
    elif not stage["done"]:
        told.append("nothing done yet")
    return ", ".join(told)


def _shards(stage: Mapping[str, Any]) -> list[str]:
    lines = [
        f"slow: shard {one['shard']}, for {console.duration(one['seconds'])}, {one['factor']:g} times the median"
        for one in stage["slow"][:SHOWN]
    ]
    return lines + _troubles(stage["failing"], stage["shards_aside"])


def _troubles(failing: Sequence[Mapping[str, Any]], aside: int) -> list[str]:
    """Return what is wrong with shards: those set aside first."""
    lines = []
    for one in failing[:SHOWN]:
        word = "set aside" if one["aside"] else "failing"
        times = "once" if one["attempts"] == 1 else f"{one['attempts']} times"
        kind, reason = one["kind"], one["reason"]
        why = reason if reason.startswith(f"{kind}:") else f"{kind}: {reason}"
        lines.append(f"{word}: shard {one['shard']} failed {times}: {why}")
    if len(failing) > SHOWN:
        lines.append(f"... and {len(failing) - SHOWN} more; {console.counted(aside, 'shard')} set aside in all")
    return lines
