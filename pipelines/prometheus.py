"""Prometheus metrics of a run, on request (``compute.metrics``)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pipelines.spent import Spent
from schemas.errors import ConfigError

_COUNTERS = {
    "requests": "Requests that an engine answered",
    "prompt_tokens": "Tokens of prompts",
    "completion_tokens": "Tokens of replies",
    "cached_tokens": "Prompt tokens that a prefix cache served",
    "queue_seconds": "Seconds that requests waited for a free slot",
    "journal": "Requests that the journal answered",
    "corrupt": "Replies that could not be used",
    "engine_deaths": "Ends of an engine's process",
}
_GROUPS = {
    "pieces": ("status", "Pieces done"),
    "retried": ("reason", "Attempts made again"),
    "failed": ("reason", "Pieces given up"),
}


class _Collector:
    def __init__(self, spent: Spent) -> None:
        self._spent = spent

    def collect(self) -> Iterator[Any]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        for name, told in _COUNTERS.items():
            yield CounterMetricFamily(f"tagloom_{name}", told, value=self._spent.count(name))
        for name, (label, told) in _GROUPS.items():
            family = CounterMetricFamily(f"tagloom_{name}", told, labels=[label])
            for value, count in self._spent.group(name).items():
                family.add_metric([value], count)
            yield family
        yield GaugeMetricFamily("tagloom_in_flight", "Requests at work in engines", value=self._spent.in_flight)
        yield GaugeMetricFamily("tagloom_slots", "Requests that engines can work on at once", value=self._spent.slots)
        yield GaugeMetricFamily("tagloom_pieces_wanted", "Pieces that this run has to do", value=self._spent.pieces)


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
def exporting(address: str | None, spent: Spent) -> Iterator[None]:
    """Serve the counts at ``http://ADDRESS/metrics`` for the length of a block; nothing without an address.

    Raises:
        ConfigError: The address is not valid, or something else listens there.
    """
    if address is None:
        yield
        return
    from prometheus_client import CollectorRegistry, start_http_server

    host, port = place(address)
    registry = CollectorRegistry()
    registry.register(_Collector(spent))
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
