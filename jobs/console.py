"""What a person sees: progress on a terminal, plain lines in a log, tables, and errors without tracebacks."""

from __future__ import annotations

import json
import logging
import signal
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pipelines import logs
from pipelines.failures import Failure
from pipelines.meter import Cost
from pipelines.progress import Silent
from pipelines.spent import Spent

LINE_SECONDS = (5.0, 60.0)
"""How often a plain line tells the progress where there is no terminal: at first, and of a stage that takes long."""


def emit(text: str) -> None:
    """Print to standard output, replacing what its encoding cannot show."""
    _write(sys.stdout, text + "\n")


def tell(text: str, level: str = "info") -> None:
    """Print to standard error: progress, warnings, errors; never data. As JSON where logs are."""
    _write(sys.stderr, (_as_json(text, level) if _json_logs else text) + "\n")


def _as_json(text: str, level: str) -> str:
    """Return a line as JSON; what is said after a run is of that run still."""
    return logs.line(text, level, **({} if logs.ids() else logs.last()))


_json_logs = False
"""Whether lines on standard error are JSON: `set_up_logging` looks."""


def _write(stream: Any, text: str) -> None:
    encoding = getattr(stream, "encoding", None) or "utf-8"
    stream.write(printable(text).encode(encoding, "replace").decode(encoding))
    stream.flush()


def printable(text: str) -> str:
    """Make control characters visible, so that text from logs cannot drive the terminal; keeps newline and tab."""
    if text.isprintable():
        return text
    return "".join(c if c in "\n\t" or c.isprintable() else f"\\x{ord(c):02x}" for c in text)


def emit_json(value: Any) -> None:
    """Print one JSON document to standard output."""
    emit(json.dumps(value, ensure_ascii=False, indent=1, default=str))


def size(count: float) -> str:
    """Write a number of bytes for people."""
    for unit in ("B", "KB", "MB", "GB", "TB"):
        if count < 1000 or unit == "TB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    raise AssertionError


def duration(seconds: float) -> str:
    """Write a duration for people."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 120 else f"{minutes // 60} h {minutes % 60:02d} min"


def counted(number: int, noun: str) -> str:
    """Write a number with its noun, in the plural where it needs one."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def table(headers: Sequence[str], rows: Iterable[Sequence[str]], align: str = "") -> str:
    """Lay out a plain table; `align` has ``l`` or ``r`` a column (default: first left, others right)."""
    cells = [list(headers), *[list(row) for row in rows]]
    sides = align or "l" + "r" * (len(headers) - 1)
    widths = [max(len(row[n]) for row in cells) for n in range(len(headers))]
    lines = [
        "  ".join(
            c.ljust(w) if side == "l" else c.rjust(w) for c, w, side in zip(row, widths, sides, strict=True)
        ).rstrip()
        for row in cells
    ]
    lines.insert(1, "  ".join("-" * w for w in widths))
    return "\n".join(lines)


class Lines:
    """Progress as plain lines on standard error, for logs."""

    def __init__(self) -> None:
        self._clock = _Clock("", 0, "")

    def begin(self, stage: str, total: int, reused: int, unit: str) -> None:
        """Say what begins."""
        self._clock = _Clock(stage, total - reused, unit)
        kept = f", {reused} of {total} {unit} kept" if reused else ""
        tell(f"{stage}: {total - reused} {unit} to do{kept}")

    def advance(self, pieces: int, rows: int) -> None:
        """Say how far it is, now and then."""
        self._clock.add(pieces, rows)
        if self._clock.due():
            tell(f"{self._clock.stage}: {self._clock.state()}")

    def measure(self, spent: Spent) -> None:
        """Say now and then what the engine did."""
        if self._clock.due():
            tell(f"{self._clock.stage}: {engine_line(spent)}")

    def started(self, shard: int) -> None:
        """Ignore: too much for a person."""

    def finished(self, shard: int, cost: Cost) -> None:
        """Ignore: too much for a person."""

    def failed(self, failure: Failure) -> None:
        """Say so at once."""
        tell(failure_line(failure), "warning")

    def worked(self, cost: Cost) -> None:
        """Ignore: too much for a person."""

    def end(self) -> None:
        """Say what it took."""
        tell(f"{self._clock.stage}: done in {self._clock.taken()}")


class Bars:
    """Progress as live bars on a terminal."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self._clock = _Clock("", 0, "")
        self._task: Any = None
        self._asking = False
        self._progress = Progress(
            TextColumn("{task.description:<18}"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(compact=True),
            console=Console(stderr=True),
            transient=True,
        )

    def begin(self, stage: str, total: int, reused: int, unit: str) -> None:
        """Show a bar."""
        self._clock = _Clock(stage, total - reused, unit)
        self._progress.start()
        self._asking = False
        self._task = self._progress.add_task(stage, total=total - reused, rate="")

    def advance(self, pieces: int, rows: int) -> None:
        """Move the bar."""
        self._clock.add(pieces, rows)
        if not self._asking:
            self._progress.update(self._task, advance=pieces, rate=self._clock.rate())

    def measure(self, spent: Spent) -> None:
        """Let the bar count pieces rather than parts, and show what the engine did beside it."""
        self._asking = spent.pieces > 0
        if self._asking:
            self._progress.update(self._task, completed=spent.done, total=spent.pieces)
        self._progress.update(self._task, rate=engine_work(spent))

    def started(self, shard: int) -> None:
        """Ignore: too much for a person."""

    def finished(self, shard: int, cost: Cost) -> None:
        """Ignore: too much for a person."""

    def failed(self, failure: Failure) -> None:
        """Say so at once."""
        tell(failure_line(failure), "warning")

    def worked(self, cost: Cost) -> None:
        """Ignore: too much for a person."""

    def end(self) -> None:
        """Replace the bar by a line."""
        self._progress.remove_task(self._task)
        self._progress.stop()
        tell(f"{self._clock.stage:<18} done in {self._clock.taken()}")


class _Clock:
    def __init__(self, stage: str, total: int, unit: str) -> None:
        self.stage, self.total, self.unit = stage, total, unit
        self.pieces = self.rows = 0
        self.started = self.told = time.monotonic()

    def add(self, pieces: int, rows: int) -> None:
        self.pieces += pieces
        self.rows += rows

    def due(self) -> bool:
        """Tell whether it is time for another line, and take it as written."""
        now = time.monotonic()
        often, seldom = LINE_SECONDS
        if now - self.told <= min(seldom, max(often, (now - self.started) / 10)):
            return False
        self.told = now
        return True

    def rate(self) -> str:
        spent = max(1e-9, time.monotonic() - self.started)
        return f"{self.rows / spent:,.0f} rows/s" if self.rows else f"{self.pieces / spent:.1f} {self.unit}/s"

    def taken(self) -> str:
        return f"{duration(time.monotonic() - self.started)} ({self.rate()})"

    def state(self) -> str:
        spent = time.monotonic() - self.started
        left = spent / self.pieces * (self.total - self.pieces) if self.pieces else 0.0
        return f"{self.pieces}/{self.total} {self.unit}, {self.rate()}, {duration(left)} left"


def failure_line(failure: Failure) -> str:
    """Return what happened to a shard, in one line."""
    then = "set aside; the rest goes on" if failure.aside else "tried again"
    return f"{failure.stage}: shard {failure.shard} failed ({failure.attempt}): {failure.reason}; {then}"


def engine_line(spent: Spent) -> str:
    """Return how far an engine is and what it did, in one line."""
    if not spent.pieces:
        return f"{spent.done:,} pieces; {engine_work(spent)}"
    left = (spent.pieces - spent.done) / spent.done * spent.seconds if spent.done else None
    told = f"{spent.done:,} of {spent.pieces:,} pieces; {engine_work(spent)}"
    return told if left is None else f"{told}; {duration(left)} left"


def engine_work(spent: Spent) -> str:
    """Return what engines did so far: rates, slots, caches, failures by kind."""
    seconds = max(1e-9, spent.seconds)
    told = [
        f"{spent.count('requests') / seconds:,.1f} requests/s",
        f"{spent.count('prompt_tokens') / seconds:,.0f} + {spent.count('completion_tokens') / seconds:,.0f} tokens/s",
        f"{spent.in_flight} of {spent.slots} slots busy",
    ]
    if spent.count("cached_tokens"):
        told.append(f"{spent.count('cached_tokens') / max(1, spent.count('prompt_tokens')):.0%} of prompts from cache")
    if spent.count("journal"):
        told.append(f"{spent.count('journal'):,.0f} from the journal")
    for name, words in (("failed", "failed"), ("retried", "tried again")):
        if group := spent.group(name):
            told.append(f"{words}: " + ", ".join(f"{reason} {count:,.0f}" for reason, count in group.items()))
    return "; ".join(told)


def progress(quiet: bool, as_json: bool) -> Bars | Lines | Silent:
    """Choose how progress is shown: bars on a terminal, lines elsewhere, nothing when quiet."""
    if quiet:
        return Silent()
    return Bars() if sys.stderr.isatty() and not as_json and not _json_logs else Lines()


def heed_sigterm() -> None:
    """Let SIGTERM end this process as orderly as Ctrl-C does."""

    def end(number: int, _: object) -> None:
        signal.alarm(0)  # set by Ray's handler, which comes first: it would abort this process after three seconds
        sys.exit(128 + number)

    signal.signal(signal.SIGTERM, end)


def set_up_logging(verbose: bool) -> None:
    """Send log records to standard error: our own from INFO, or everything with `verbose`.

    What libraries warn of while they load is no news to a user; what goes wrong in them reaches the user as an error.

    Raises:
        UsageError: The environment asks for a format of logs that there is not.
    """
    global _json_logs  # noqa: PLW0603  (set once, when a command begins)
    _json_logs = logs.as_json()
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.INFO if verbose else logging.ERROR,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    if _json_logs:
        for handler in logging.getLogger().handlers:
            handler.setFormatter(logs.JsonFormatter())
    for name in logs.OWN:
        logging.getLogger(name).setLevel(logging.DEBUG if verbose else logging.INFO)
    if not verbose:
        for name in ("apache_beam", "ray"):
            logging.getLogger(name).setLevel(logging.CRITICAL)


def results_table(metrics: Sequence[Mapping[str, Any]], level: str, shown: Sequence[str]) -> str:
    """Lay out presets by metric with intervals, scope ``all``, one level.

    Args:
        metrics: Rows of table `metrics`.
        level: interaction, message or session.
        shown: Metrics, in order.
    """
    cells: dict[str, dict[str, str]] = {}
    for row in metrics:
        if row["level"] == level and row["scope"] == "all" and row["metric"] in shown:
            span = "" if row["low"] is None else f" [{row['low']:.3f}, {row['high']:.3f}]"
            cells.setdefault(row["retriever"], {})[row["metric"]] = f"{row['mean']:.3f}{span}"
    rows = [[name, *(values.get(metric, "-") for metric in shown)] for name, values in cells.items()]
    return table([f"preset ({level})", *shown], rows, "l" * (len(shown) + 1))
