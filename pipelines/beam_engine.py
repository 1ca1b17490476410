"""Runs work items on Beam. Only references travel through Beam; texts stay on storage."""

from __future__ import annotations

import base64
import json
import logging
import os
import re
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pipelines.progress import Progress
from schemas import errors
from schemas.errors import FAULT, ConfigError, TagloomError
from schemas.ids import nearest

T = TypeVar("T")
POLL_SECONDS = 0.25
LOCAL_RUNNERS = ("FnApiRunner", "DirectRunner")


def run_map(
    items: Sequence[T],
    function: Callable[[T], object],
    beam: Mapping[str, Any],
    label: str,
    progress: Progress,
    measure: Callable[[T], tuple[int, int]],
) -> None:
    """Apply a function to every item with a Beam pipeline; the function leaves its result on storage.

    Args:
        items: Picklable work items, each worth seconds of work.
        function: A function of a module, which workers import.
        beam: Beam options; ``runner`` names the runner (default FnApiRunner, with a thread a core up to four), the
            rest goes to it as it is.
        label: Name of the step.
        progress: Who is told.
        measure: Tells from storage how many pieces and rows of an item are done. Runners tell nothing about single
            elements, storage does, on any of them.

    Raises:
        ConfigError: Beam does not know the runner or an option.
        TagloomError: The pipeline failed.
    """
    os.environ.setdefault("PYTHONSAFEPATH", "1")
    import apache_beam
    from apache_beam.options.pipeline_options import PipelineOptions

    given = dict(beam)
    runner = str(given.pop("runner", "FnApiRunner"))
    if runner == "FnApiRunner":
        given = {"direct_running_mode": "multi_threading", "direct_num_workers": min(4, os.cpu_count() or 1)} | given
    _check_options(runner, given, list(PipelineOptions([]).get_all_options()))
    flags = [f"--{key}" if value is True else f"--{key}={value}" for key, value in given.items() if value is not False]
    try:
        pipeline = apache_beam.Pipeline(runner=_runner(runner), options=PipelineOptions(flags))
    except (ValueError, SystemExit, ImportError) as error:
        raise ConfigError(
            f"Beam does not take this runner or option: {error}",
            where=f"beam: runner={runner} {' '.join(flags)}",
            remedy="Runners: FnApiRunner, DirectRunner, PortableRunner, FlinkRunner, SparkRunner, DataflowRunner.",
        ) from error
    in_process = runner == "FnApiRunner" and given.get("direct_running_mode") != "multi_processing"
    token = uuid.uuid4().hex if in_process else ""
    guarded = _Guarded(function, token)
    spread = pipeline | f"{label} items" >> apache_beam.Create(list(items)) | apache_beam.Reshuffle()
    _ = spread | label >> apache_beam.Map(guarded)
    _quieten()
    failures: list[BaseException] = []

    def work() -> None:
        try:
            pipeline.run().wait_until_finish()
        except BaseException as error:
            failures.append(error)

    _KEPT[token] = []
    try:
        thread = threading.Thread(target=work, daemon=True, name=f"beam-{label}")
        thread.start()
        _watch(thread, items, progress, measure)
        failures += _KEPT[token]
    finally:
        del _KEPT[token]
    if failures:
        raise _unwrapped(failures[0], label) from failures[0]


def _quieten() -> None:
    """Keep Beam from printing what its workers raise, which arrives here as an error; unless somebody asked for it."""
    for name in ("apache_beam", "apache_beam.runners"):
        logger = logging.getLogger(name)
        if logger.level == logging.NOTSET:
            logger.setLevel(logging.CRITICAL)


def _check_options(runner: str, given: Mapping[str, Any], known: Sequence[str]) -> None:
    """Check the options of the local runners, which pass over what they do not know.

    Raises:
        ConfigError: One is not known.
    """
    unknown = [key for key in given if key not in known] if runner in LOCAL_RUNNERS else []
    if unknown:
        guess = nearest(unknown[0], known)
        raise ConfigError(
            f"{runner} has no option '{unknown[0]}'",
            where=f"beam.{unknown[0]}",
            remedy=f"Did you mean '{guess}'?" if guess else "See Beam's documentation of pipeline options.",
        )


def _watch(
    thread: threading.Thread, items: Sequence[T], progress: Progress, measure: Callable[[T], tuple[int, int]]
) -> None:
    seen = [(0, 0)] * len(items)
    alive = True
    while alive:
        thread.join(POLL_SECONDS)
        alive = thread.is_alive()
        now = [measure(item) for item in items]
        pieces = sum(new[0] - old[0] for new, old in zip(now, seen, strict=True))
        rows = sum(new[1] - old[1] for new, old in zip(now, seen, strict=True))
        if pieces or rows:
            progress.advance(pieces, rows)
        seen = now


def _runner(name: str) -> Any:
    if name == "FnApiRunner":
        from apache_beam.runners.portability.fn_api_runner import FnApiRunner

        return FnApiRunner()
    return name


_MARK = "tagloom-error:"


_KEPT: dict[str, list[BaseException]] = {}
"""What functions raised in this process, by run: Beam would print pages about it."""


@dataclass(frozen=True)
class _Guarded(Generic[T]):
    """Carries what a function raises to the driver, whole.

    In the driver's own process it is kept aside. Elsewhere it is raised as text that survives every runner: Beam
    rewrites messages, and what a worker process raised arrives as the text of a traceback.
    """

    function: Callable[[T], object]
    token: str

    def __call__(self, item: T) -> None:
        try:
            self.function(item)
        except Exception as error:
            if self.token in _KEPT:
                _KEPT[self.token].append(error)
                return
            known = error if isinstance(error, TagloomError) else None
            fields = {
                "type": type(error).__name__,
                "message": known.message if known else f"{type(error).__name__}: {error}",
                "where": known.where if known else "",
                "remedy": known.remedy if known else FAULT,
            }
            text = base64.b64encode(json.dumps(fields).encode()).decode()
            raise RuntimeError(f"{_MARK}{text};") from error


def _unwrapped(error: BaseException, label: str) -> TagloomError:
    if isinstance(error, TagloomError):
        return error
    seen: BaseException | None = error
    while seen is not None:
        if found := re.search(f"{_MARK}([A-Za-z0-9+/=]+);", str(seen)):
            fields = json.loads(base64.b64decode(found[1]))
            kind = getattr(errors, fields["type"], TagloomError)
            return kind(fields["message"], where=fields["where"] or f"step '{label}'", remedy=fields["remedy"])
        seen = seen.__cause__ or seen.__context__
    text = str(error).strip()
    if "Traceback" in text:  # of a worker process: its last line says what was raised
        text = text.splitlines()[-1]
    return TagloomError(f"{type(error).__name__}: {' '.join(text.split())}", where=f"step '{label}'", remedy=FAULT)
