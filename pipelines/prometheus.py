"""Prometheus metrics of a run, on request (``compute.metrics``), served for its whole length by the driver."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from pipelines.tally import Tally, stages_of
from schemas.errors import ConfigError

_ENGINE = {
    "requests": ("requests", "Requests that an engine answered"),
    "prompt_tokens": ("prompt_tokens", "Tokens of prompts"),
    "completion_tokens": ("completion_tokens", "Tokens of replies"),
    "cached_tokens": ("cached_tokens", "Prompt tokens that a prefix cache served"),
    "queue_seconds": ("queue_seconds", "Seconds that requests waited for a free slot"),
    "journal": ("from_journal", "Requests that the journal answered"),
    "corrupt": ("corrupt", "Replies that could not be used"),
    "engine_deaths": ("engine_deaths", "Ends of an engine's process"),
}
_GROUPS = {
    "pieces": ("pieces_by_status", "status", "Pieces done"),
    "retried": ("retried", "reason", "Attempts on a piece made again"),
    "failed": ("failed", "reason", "Pieces given up"),
}
_ENGINE_GAUGES = {
    "in_flight": ("in_flight", "Requests at work in engines"),
    "slots": ("slots", "Requests that engines can work on at once"),
    "pieces_wanted": ("pieces", "Pieces that the stages so far have to do"),
}
_STAGE_COUNTERS = {
    "rows": ("rows", "Rows of interactions done"),
    "shards_done": ("shards_done", "Shards done, in stages that tell of single ones"),
    "shard_retries": ("retries", "Failed attempts on a shard after which it was tried again"),
}
_COST_COUNTERS = {
    "read_bytes": ("bytes_read", "Bytes that came from storage"),
    "written_bytes": ("bytes_written", "Bytes that went to storage"),
    "storage_retries": ("retries", "Requests to storage that were sent again"),
}
_STAGE_GAUGES = {
    "stage_wanted": ("total", "Pieces that a stage has, those that were there included"),
    "stage_seconds": ("seconds", "Seconds since a stage began, or that it took"),
    "shards_at_work": ("shards_at_work", "Shards at work"),
    "shards_failing": ("shards_failing", "Shards that failed and are tried again"),
    "shards_aside": ("shards_aside", "Shards set aside: the run goes on without them"),
}
_PHASES = ("cpu", "reading", "writing", "waiting")

METRICS = tuple(
    f"tagloom_{name}"
    for name in (
        "run_info",
        "run_start_time_seconds",
        "last_progress_time_seconds",
        *(f"{name}_total" for name in (*_ENGINE, *_GROUPS, *_STAGE_COUNTERS, *_COST_COUNTERS)),
        "parts_total",
        "work_seconds_total",
        "shard_failures_total",
        *_ENGINE_GAUGES,
        *_STAGE_GAUGES,
        "stage_done",
        "stage_active",
        "oldest_shard_seconds",
        "peak_memory_bytes",
    )
)
"""Every metric by the name that a query gives it."""


class _Collector:
    def __init__(self, tally: Tally, who: Mapping[str, Any]) -> None:
        self._tally, self._who = tally, who

    def collect(self) -> Iterator[Any]:
        from prometheus_client.core import GaugeMetricFamily

        state = self._tally.plain()
        stages = stages_of(state)
        told = {name: str(self._who[name] or "") for name in ("run", "generation", "version", "host", "submission")}
        info = GaugeMetricFamily("tagloom_run_info", "The run that is served here", labels=list(told))
        info.add_metric(list(told.values()), 1)
        yield info
        for name, key, help_ in (
            ("run_start_time_seconds", "started_at", "When the run began, in seconds since 1970"),
            ("last_progress_time_seconds", "moved_at", "When something was last done, in seconds since 1970"),
        ):
            yield GaugeMetricFamily(f"tagloom_{name}", help_, value=datetime.fromisoformat(state[key]).timestamp())
        yield from _of_engines([stage["engine"] for stage in stages if stage["engine"]], state["stage"])
        yield from _of_stages(stages, state["stage"])
        yield GaugeMetricFamily(
            "tagloom_peak_memory_bytes", "The most memory that a process at work has held", value=state["cost"]["peak"]
        )


def _of_engines(asked: Sequence[Mapping[str, Any]], stage: Mapping[str, Any] | None) -> Iterator[Any]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    for name, (key, told) in _ENGINE.items():
        yield CounterMetricFamily(f"tagloom_{name}", told, value=sum(one[key] for one in asked))
    for name, (key, label, told) in _GROUPS.items():
        sums: dict[str, float] = {}
        for one in asked:
            for value, count in one[key].items():
                sums[value] = sums.get(value, 0) + count
        family = CounterMetricFamily(f"tagloom_{name}", told, labels=[label])
        for value, count in sums.items():
            family.add_metric([value], count)
        yield family
    now = stage["engine"] if stage and stage["engine"] else {}
    for name, (key, told) in _ENGINE_GAUGES.items():
        value = sum(one[key] for one in asked) if key == "pieces" else now.get(key, 0)
        yield GaugeMetricFamily(f"tagloom_{name}", told, value=value)


def _of_stages(stages: Sequence[Mapping[str, Any]], active: Mapping[str, Any] | None) -> Iterator[Any]:
    """Yield what is told by stage; steps of one name are added up."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    def family(kind: Any, name: str, told: str, labels: Sequence[str], values: Sequence[tuple[Any, ...]]) -> Any:
        """Add values up by their labels: each has the labels first, then the figure."""
        sums: dict[tuple[str, ...], float] = {}
        for *of, value in values:
            sums[tuple(of)] = sums.get(tuple(of), 0) + value
        found = kind(f"tagloom_{name}", told, labels=list(labels))
        for labelled, value in sums.items():
            found.add_metric(list(labelled), value)
        return found

    for name, (key, told) in _STAGE_COUNTERS.items():
        yield family(CounterMetricFamily, name, told, ["stage"], [(one["stage"], one[key]) for one in stages])
    for name, (key, told) in _COST_COUNTERS.items():
        values = [(one["stage"], one["cost"][key]) for one in stages]
        yield family(CounterMetricFamily, name, told, ["stage"], values)
    made = [(one["stage"], one["unit"], "made", one["done"]) for one in stages]
    kept = [(one["stage"], one["unit"], "reused", one["reused"]) for one in stages]
    yield family(
        CounterMetricFamily, "parts", "Pieces by whether they were there", ["stage", "unit", "state"], [*made, *kept]
    )
    phases = [(one["stage"], phase, one["cost"][phase]) for one in stages for phase in _PHASES]
    yield family(
        CounterMetricFamily,
        "work_seconds",
        "Seconds of work on shards, by what they went to",
        ["stage", "phase"],
        phases,
    )
    failures = [(one["stage"], kind, count) for one in stages for kind, count in one["failures"].items()]
    yield family(CounterMetricFamily, "shard_failures", "Failed attempts on shards", ["stage", "kind"], failures)
    for name, (key, told) in _STAGE_GAUGES.items():
        yield family(GaugeMetricFamily, name, told, ["stage"], [(one["stage"], one[key]) for one in stages])
    done = [(one["stage"], one["reused"] + one["done"]) for one in stages]
    yield family(GaugeMetricFamily, "stage_done", "Pieces of a stage that are there", ["stage"], done)
    at_work = [(one["stage"], int(one is active)) for one in stages]
    yield family(GaugeMetricFamily, "stage_active", "1 for the stage at work", ["stage"], at_work)
    oldest = [(one["stage"], one["at_work"][0]["seconds"] if one["at_work"] else 0) for one in stages]
    yield family(
        GaugeMetricFamily, "oldest_shard_seconds", "Seconds that the shard longest at work has taken", ["stage"], oldest
    )


def place(text: str) -> tuple[str, int]:
    """Return host and port of ``HOST:PORT`` or ``PORT``; the host is this machine alone unless given.

    Raises:
        ConfigError: It is neither.
    """
    host, _, port = text.rpartition(":")
    if not port.isdigit() or not 0 <= int(port) < 65536:
        raise ConfigError(
            f"{text!r} is no address", where="compute.metrics", remedy="Example: compute.metrics=127.0.0.1:9464"
        )
    return host.strip("[]") or "127.0.0.1", int(port)


@contextmanager
def serving(address: str | None, tally: Tally, who: Mapping[str, Any]) -> Iterator[None]:
    """Serve the counts at ``http://ADDRESS/metrics`` for the length of a block; nothing without an address.

    Args:
        address: Where; None serves nothing.
        tally: Counts the run.
        who: `pipelines.record.described`.

    Raises:
        ConfigError: The address is not valid, or something else listens there.
    """
    if address is None:
        yield
        return
    from prometheus_client import CollectorRegistry, start_http_server

    host, port = place(address)
    registry = CollectorRegistry()
    registry.register(_Collector(tally, who))
    try:
        server, thread = start_http_server(port, host, registry=registry)
    except OSError as error:
        raise ConfigError(f"cannot listen there: {error}", where=f"compute.metrics={address}") from error
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
