"""OpenTelemetry spans of a run, on request (``compute.traces``): run, stage, shard.

The driver makes all of them from what it is told, so workers need no library and send nothing.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from pipelines.failures import Failure
from pipelines.meter import Cost
from pipelines.progress import Progress
from pipelines.spent import Spent
from pipelines.tally import REASON_CHARACTERS, stage_name
from schemas.errors import ConfigError, MissingDependencyError

ATTEMPT_SECONDS = 5.0
"""How long one try to send spans may take."""
FAREWELL_SECONDS = 5.0
"""How long the end of a run waits for the last spans to be sent."""
WAITING_SPANS = 1 << 15
"""Spans that may wait to be sent; more are dropped."""


def check(address: str) -> None:
    """Make sure that spans can be sent to an address, as far as that can be told without trying.

    Raises:
        ConfigError: It is no ``http://`` or ``https://`` address, or holds a password.
        MissingDependencyError: The library is not installed.
    """
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(
            f"{address!r} is no address of a collector",
            where="compute.traces",
            remedy="Example: compute.traces=http://127.0.0.1:4318",
        )
    if parts.username or parts.password:
        raise ConfigError(
            "an address with a password in it would be shown",
            where="compute.traces",
            remedy="Put it into the environment: OTEL_EXPORTER_OTLP_HEADERS=authorization=...",
        )
    try:
        import opentelemetry.exporter.otlp.proto.http.trace_exporter
        import opentelemetry.sdk.trace  # noqa: F401
    except ImportError as error:
        raise MissingDependencyError(
            f"traces need another library: {error}",
            where="compute.traces",
            remedy="Install it: pip install 'tagloom[traces]'. Or leave compute.traces out.",
        ) from error


def target(address: str) -> str:
    """Return where spans go: the path of OTLP unless the address has one."""
    return address if urlsplit(address).path.strip("/") else address.rstrip("/") + "/v1/traces"


@contextmanager
def tracing(address: str | None, who: Mapping[str, Any]) -> Iterator[list[Progress]]:
    """Send the spans of a run for the length of a block; yields who must be told of its progress, if anybody.

    A collector that is away costs spans, never the run.

    Args:
        address: The collector; None sends nothing.
        who: `pipelines.record.described`.

    Raises:
        ConfigError, MissingDependencyError: As `check`.
    """
    if address is None:
        yield []
        return
    check(address)
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
    resource = Resource.create({"service.name": "tagloom", "service.version": who["version"], "host.name": who["host"]})
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    sender = OTLPSpanExporter(endpoint=target(address), timeout=ATTEMPT_SECONDS)
    provider.add_span_processor(BatchSpanProcessor(sender, max_queue_size=WAITING_SPANS))
    spans = Spans(provider.get_tracer("tagloom"), who)
    failed: BaseException | None = None
    try:
        yield [spans]
    except BaseException as error:
        failed = error
        raise
    finally:
        spans.close(failed)
        last = threading.Thread(target=provider.shutdown, daemon=True, name="tagloom-traces")
        last.start()
        last.join(FAREWELL_SECONDS)


class Spans:
    """Turns the progress of a run into spans."""

    def __init__(self, tracer: Any, who: Mapping[str, Any]) -> None:
        """Begin the span of the run."""
        self._tracer = tracer
        named = {name: who[name] for name in ("run", "generation", "host", "pid", "submission") if who.get(name)}
        self._ids = {f"tagloom.{name}": value for name, value in named.items()}
        self._run = tracer.start_span(f"tagloom {who['what']}", attributes=self._ids)
        self._stage: Any = None
        self._name = ""
        self._shards: dict[int, Any] = {}
        self._landed: tuple[Any, int] | None = None
        self._rows = self._pieces = self._failures = 0
        self._cost = Cost()
        self._all = {"rows": 0, "failures": 0, "bytes_read": 0, "bytes_written": 0}

    def begin(self, stage: str, total: int, reused: int, unit: str) -> None:
        """Begin the span of a stage."""
        self._land()
        self._name = stage_name(stage)
        self._rows = self._pieces = self._failures = 0
        self._cost = Cost()
        told = {**self._ids, "tagloom.stage": self._name, "tagloom.unit": unit, "tagloom.total": total}
        self._stage = self._below(self._run, self._name, {**told, "tagloom.reused": reused})

    def advance(self, pieces: int, rows: int) -> None:
        """Count what the stage did; right after a shard was finished these are its rows."""
        if self._landed is not None:
            self._landed[0].set_attribute("tagloom.rows", rows)
            self._land()
        self._pieces += pieces
        self._rows += rows

    def measure(self, spent: Spent) -> None:
        """Ignore: an engine's counts are metrics."""

    def started(self, shard: int) -> None:
        """Begin the span of an attempt on a shard."""
        self._land()
        told = {**self._ids, "tagloom.stage": self._name, "tagloom.shard": shard}
        self._shards[shard] = self._below(self._stage or self._run, f"{self._name} shard {shard}", told)

    def finished(self, shard: int, cost: Cost) -> None:
        """End it, once it is told how many rows it had."""
        self._land()
        self._cost.add(cost)
        if (span := self._shards.pop(shard, None)) is not None:
            span.set_attributes(_told(cost))
            self._landed = span, time.time_ns()

    def failed(self, failure: Failure) -> None:
        """End it as an error."""
        self._land()
        self._failures += 1
        if (span := self._shards.pop(failure.shard, None)) is not None:
            reason = failure.reason[:REASON_CHARACTERS]
            span.set_attributes(
                {"tagloom.attempt": failure.attempt, "tagloom.aside": failure.aside, "error.type": failure.kind}
            )
            span.set_status(_error(), reason)
            span.end()

    def worked(self, cost: Cost) -> None:
        """Add what a whole step cost."""
        self._cost.add(cost)

    def end(self) -> None:
        """End the span of the stage, and of what is still open in it."""
        self._end_stage()

    def close(self, error: BaseException | None) -> None:
        """End all that is open, and the run."""
        if error is not None and self._stage is not None:
            self._stage.set_status(_error(), "the run ended here")
        self._end_stage()
        self._run.set_attributes({f"tagloom.{name}": value for name, value in self._all.items()})
        if error is not None:
            told = str(error).partition("\n")[0][:REASON_CHARACTERS]
            self._run.set_attribute("error.type", type(error).__name__)
            self._run.set_status(_error(), told or type(error).__name__)
        self._run.end()

    def _land(self) -> None:
        if self._landed is not None:
            span, ended = self._landed
            span.end(ended)
        self._landed = None

    def _end_stage(self) -> None:
        self._land()
        for span in self._shards.values():
            span.end()
        self._shards.clear()
        if self._stage is None:
            return
        counts = {"tagloom.rows": self._rows, "tagloom.pieces": self._pieces, "tagloom.failures": self._failures}
        self._stage.set_attributes({**counts, **_told(self._cost)})
        self._stage.end()
        self._stage = None
        self._all["rows"] += self._rows
        self._all["failures"] += self._failures
        self._all["bytes_read"] += self._cost.bytes_read
        self._all["bytes_written"] += self._cost.bytes_written

    def _below(self, parent: Any, name: str, attributes: Mapping[str, Any]) -> Any:
        from opentelemetry.trace import set_span_in_context

        return self._tracer.start_span(name, set_span_in_context(parent), attributes=attributes)


def _told(cost: Cost) -> dict[str, Any]:
    seconds = {"work": cost.seconds, "cpu": cost.cpu, "reading": cost.reading, "writing": cost.writing}
    return {
        **{f"tagloom.{name}_seconds": round(value, 6) for name, value in seconds.items()},
        "tagloom.bytes_read": cost.bytes_read,
        "tagloom.bytes_written": cost.bytes_written,
        "tagloom.peak_bytes": cost.peak,
    }


def _error() -> Any:
    from opentelemetry.trace import StatusCode

    return StatusCode.ERROR
