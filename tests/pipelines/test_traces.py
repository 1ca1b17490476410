"""Spans as a collector receives them over HTTP."""

import gzip
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

pytest.importorskip("opentelemetry.sdk")
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Status

from pipelines import driver, record, traces
from pipelines.failures import Failure
from pipelines.meter import Cost
from pipelines.traces import tracing
from schemas.errors import ConfigError, MissingDependencyError
from tests.pipelines.corpora import configure, session, write_lines

WHO = record.described("20240101T000000Z-00000000", "main", "run", "1.2")


class Collector:
    """A receiver of OTLP over HTTP; answers with a status and after a while."""

    def __init__(self, status: int = 200, delay: float = 0.0):
        self.spans, self.resources, self.paths, self.headers = [], [], [], []
        received = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                body = gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body
                received.paths.append(self.path)
                received.headers.append(dict(self.headers))
                request = ExportTraceServiceRequest.FromString(body)
                for resource in request.resource_spans:
                    received.resources.append(plain(resource.resource.attributes))
                    received.spans += [span for scope in resource.scope_spans for span in scope.spans]
                time.sleep(delay)
                self.send_response(status)
                self.end_headers()

            def log_message(self, *args):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def by_name(self):
        return {span.name: span for span in self.spans}


@contextmanager
def collecting(**more):
    found = Collector(**more)
    thread = threading.Thread(target=found.server.serve_forever, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        found.server.shutdown()
        found.server.server_close()
        thread.join()


def plain(attributes) -> dict:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in attributes}


def tell(watcher):
    """A run of one stage: shard 0 is done, shard 1 fails once and is done, shard 2 is set aside."""
    watcher.begin("index/raw", 4, 1, "parts")
    for shard in range(3):
        watcher.started(shard)
    watcher.finished(0, Cost(seconds=1.5, cpu=1, bytes_read=10, bytes_written=4, peak=99))
    watcher.advance(1, 30)
    watcher.failed(Failure("index", ("index/raw",), 1, 1, "lost", "the worker ended", False))
    watcher.started(1)
    watcher.failed(Failure("index", ("index/raw",), 2, 3, "ValueError", "poison", True))
    watcher.finished(1, Cost(seconds=0.5, bytes_read=20, bytes_written=6))
    watcher.advance(1, 12)
    watcher.end()


def test_run_stage_and_shards():
    with collecting() as found, tracing(found.url, WHO) as (watcher,):
        tell(watcher)
    assert set(found.paths) == {"/v1/traces"}
    assert found.resources[0]["service.name"] == "tagloom"
    assert found.resources[0]["service.version"] == "1.2"
    assert len({span.trace_id for span in found.spans}) == 1
    spans = {}
    for span in found.spans:
        spans.setdefault(span.name, []).append(span)
    assert sorted(spans) == ["index/raw", "index/raw shard 0", "index/raw shard 1", "index/raw shard 2", "tagloom run"]
    (run,), (stage,) = spans["tagloom run"], spans["index/raw"]
    assert (run.parent_span_id, stage.parent_span_id) == (b"", run.span_id)
    shards = [span for name, own in spans.items() if " shard " in name for span in own]
    assert len(shards) == 4  # one a try
    assert {span.parent_span_id for span in shards} == {stage.span_id}
    first = plain(spans["index/raw shard 0"][0].attributes)
    assert first["tagloom.run"] == WHO["run"]
    assert (first["tagloom.stage"], first["tagloom.shard"], first["tagloom.rows"]) == ("index/raw", 0, 30)
    assert (first["tagloom.bytes_read"], first["tagloom.work_seconds"], first["tagloom.peak_bytes"]) == (10, 1.5, 99)
    failed, again = sorted(spans["index/raw shard 1"], key=lambda span: span.start_time_unix_nano)
    assert (failed.status.code, failed.status.message) == (Status.STATUS_CODE_ERROR, "the worker ended")
    assert plain(failed.attributes)["error.type"] == "lost"
    assert again.status.code == Status.STATUS_CODE_UNSET
    assert plain(again.attributes)["tagloom.rows"] == 12
    assert plain(spans["index/raw shard 2"][0].attributes)["tagloom.aside"] is True
    whole = plain(stage.attributes)
    assert (whole["tagloom.rows"], whole["tagloom.pieces"], whole["tagloom.failures"]) == (42, 2, 2)
    assert (whole["tagloom.bytes_read"], whole["tagloom.total"], whole["tagloom.reused"]) == (30, 4, 1)
    every = plain(run.attributes)
    assert (every["tagloom.rows"], every["tagloom.failures"], every["tagloom.bytes_written"]) == (42, 2, 10)
    assert all(span.start_time_unix_nano <= span.end_time_unix_nano for span in found.spans)


def test_a_run_that_fails_ends_its_spans_as_errors():
    with collecting() as found, pytest.raises(ZeroDivisionError), tracing(found.url, WHO) as (watcher,):
        watcher.begin("extract", 1, 0, "parts")
        watcher.started(0)
        raise ZeroDivisionError("once\nand more")
    spans = found.by_name()
    assert set(spans) == {"tagloom run", "extract", "extract shard 0"}
    assert spans["tagloom run"].status.message == "once"
    assert plain(spans["tagloom run"].attributes)["error.type"] == "ZeroDivisionError"
    assert spans["extract"].status.code == Status.STATUS_CODE_ERROR


def test_a_real_run_sends_its_stages(tmp_path):
    cats = [session(f"case{n}", 1, f"My cat number {n} is called Miso.", "A lovely name.") for n in range(6)]
    path = write_lines(tmp_path / "a.jsonl", *cats)
    with collecting() as found:
        driver.run(configure(tmp_path / "c", path, **{"compute.traces": found.url, "rank.presets": ["bm25"]}))
    spans = found.by_name()
    assert {"tagloom run", "ingest: read", "ingest: merge", "extract", "index/raw", "rank/bm25"} <= set(spans)
    assert plain(spans["index/raw"].attributes)["tagloom.rows"] == 6
    shards = [span for span in found.spans if span.parent_span_id == spans["index/raw"].span_id]
    assert sum(plain(span.attributes)["tagloom.rows"] for span in shards) == 6
    run = plain(spans["tagloom run"].attributes)["tagloom.run"]
    assert (tmp_path / "c" / "runs" / f"{run}.json").exists()


@pytest.mark.parametrize("away", ["nobody there", "refuses", "hangs"])
def test_a_collector_that_is_away_never_hurts_the_run(away, monkeypatch, caplog, capfd):
    monkeypatch.setattr(traces, "FAREWELL_SECONDS", 0.3)
    monkeypatch.setattr(traces, "ATTEMPT_SECONDS", 0.2)
    more = {"refuses": {"status": 503}, "hangs": {"delay": 2.0}, "nobody there": {}}[away]
    with collecting(**more) as found:
        url = "http://127.0.0.1:9" if away == "nobody there" else found.url
        done = []
        with tracing(url, WHO) as (watcher,):
            tell(watcher)
            done.append(True)
    assert done == [True]
    assert caplog.records == []
    assert "Traceback" not in capfd.readouterr().err


def test_headers_come_from_the_environment(monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20abc")
    with collecting() as found, tracing(found.url + "/tenant/v1/traces", WHO) as (watcher,):
        tell(watcher)
    assert set(found.paths) == {"/tenant/v1/traces"}
    assert found.headers[0]["authorization"] == "Bearer abc"


@pytest.mark.parametrize("address", ["localhost:4318", "file:///tmp/x", "", "http://", "grpc://a:4317"])
def test_what_is_no_collector_is_refused(address):
    with pytest.raises(ConfigError):
        traces.check(address)


def test_a_password_in_the_address_is_refused_and_not_repeated():
    with pytest.raises(ConfigError) as refused:
        traces.check("https://me:hunter2@collector")
    assert "hunter2" not in str(refused.value)


def test_a_missing_library_is_told_before_any_work(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "opentelemetry.sdk.trace", None)
    path = write_lines(tmp_path / "a.jsonl", session("a", 1, "Hello.", "Hi."))
    with pytest.raises(MissingDependencyError, match=r"tagloom\[traces\]"):
        driver.run(configure(tmp_path / "c", path, **{"compute.traces": "http://127.0.0.1:4318"}))
    assert not (tmp_path / "c").exists() or not (tmp_path / "c" / "corpus.json").exists()
