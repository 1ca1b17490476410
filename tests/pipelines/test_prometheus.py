"""Metrics as Prometheus scrapes them, while a run works."""

import json
import re
import socket
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pipelines import driver, record
from pipelines.failures import Failure
from pipelines.meter import Cost
from pipelines.prometheus import METRICS, place, serving
from pipelines.spent import Spent
from pipelines.tally import Tally
from schemas.errors import ConfigError
from tests.pipelines.corpora import configure, session, write_lines
from tests.pipelines.observing import Peeking

WHO = record.described("20240101T000000Z-00000000", "main", "run", "1")
ROOT = Path(__file__).resolve().parents[2]


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def scrape(port: int) -> dict[tuple, float]:
    """(name, label values in order of the labels' names) -> value, of all samples."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as reply:
        text = reply.read().decode()
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if not sample.name.endswith("_created")
    }


def told() -> Tally:
    """A run with two steps of one stage, failures and an engine."""
    tally = Tally()
    for _ in range(2):
        tally.begin("ingest: read 3 of 5 files", 4, 1, "MB")
        tally.advance(3, 0)
        tally.worked(Cost(seconds=2, cpu=1, reading=0.5, bytes_read=100, bytes_written=10, peak=900))
        tally.end()
    tally.begin("extract", 8, 2, "parts")
    for shard in range(4):
        tally.started(shard)
    tally.failed(Failure("extract", ("extract",), 0, 1, "lost", "gone", False))
    tally.failed(Failure("extract", ("extract",), 1, 3, "ValueError", "bad", True))
    tally.finished(2, Cost(seconds=1, bytes_read=7, peak=500))
    tally.advance(1, 40)
    spent = Spent(pieces=50)
    counts = {"requests": 9, "prompt_tokens": 90, "completion_tokens": 8, "journal": 4, "pieces.ok": 11}
    spent.take(
        [{"id": "a", "counts": {**counts, "retried.429": 2, "failed.length": 1}, "in_flight": 3, "slots": 6}],
    )
    tally.measure(spent)
    return tally


def test_every_metric_by_its_value():
    port = free_port()
    with serving(f"127.0.0.1:{port}", told(), WHO):
        found = scrape(port)
    assert found["tagloom_run_info", "main", WHO["host"], WHO["run"], "", "1"] == 1
    assert found["tagloom_rows_total", "extract"] == 40
    assert found["tagloom_read_bytes_total", "ingest: read"] == 200  # both steps
    assert found["tagloom_written_bytes_total", "ingest: read"] == 20
    assert found["tagloom_parts_total", "ingest: read", "made", "MB"] == 6
    assert found["tagloom_parts_total", "extract", "reused", "parts"] == 2
    assert found["tagloom_work_seconds_total", "cpu", "ingest: read"] == 2
    assert found["tagloom_work_seconds_total", "waiting", "ingest: read"] == 1
    assert found["tagloom_shard_failures_total", "lost", "extract"] == 1
    assert found["tagloom_shard_failures_total", "ValueError", "extract"] == 1
    assert found["tagloom_shard_retries_total", "extract"] == 1
    assert found["tagloom_shards_aside", "extract"] == 1
    assert found["tagloom_shards_failing", "extract"] == 1
    assert found["tagloom_shards_at_work", "extract"] == 1
    assert found["tagloom_shards_done_total", "extract"] == 1
    assert found["tagloom_stage_wanted", "extract"] == 8
    assert found["tagloom_stage_done", "extract"] == 3
    assert found["tagloom_stage_active", "extract"] == 1
    assert found["tagloom_stage_active", "ingest: read"] == 0
    assert found["tagloom_oldest_shard_seconds", "extract"] >= 0
    assert found["tagloom_peak_memory_bytes",] == 900
    assert found["tagloom_requests_total",] == 9
    assert found["tagloom_prompt_tokens_total",] == 90
    assert found["tagloom_journal_total",] == 4
    assert found["tagloom_pieces_total", "ok"] == 11
    assert found["tagloom_retried_total", "429"] == 2
    assert found["tagloom_failed_total", "length"] == 1
    assert (found["tagloom_in_flight",], found["tagloom_slots",], found["tagloom_pieces_wanted",]) == (3, 6, 50)


def test_the_list_of_metrics_is_what_is_served():
    port = free_port()
    with serving(f"127.0.0.1:{port}", told(), WHO):
        found = {name for name, *_ in scrape(port)}
    assert found == set(METRICS)
    assert len(METRICS) == len(set(METRICS))


def test_counters_of_an_engine_go_on_over_the_stages_of_a_run():
    tally, port = told(), free_port()
    tally.end()
    tally.begin("extract/facts", 1, 0, "parts")
    later = Spent()
    later.take([{"id": "a", "counts": {"requests": 1, "prompt_tokens": 10}, "in_flight": 0, "slots": 6}])
    tally.measure(later)
    with serving(f"127.0.0.1:{port}", tally, WHO):
        found = scrape(port)
    assert (found["tagloom_requests_total",], found["tagloom_prompt_tokens_total",]) == (10, 100)


def test_a_run_serves_them_from_its_beginning_to_its_end(tmp_path):
    port, seen = free_port(), []
    cats = [session(f"case{n}", 1, f"My cat number {n} is called Miso.", "A lovely name.") for n in range(6)]
    config = configure(
        tmp_path / "c",
        write_lines(tmp_path / "a.jsonl", *cats),
        **{"compute.metrics": f"127.0.0.1:{port}", "rank.presets": ["bm25"]},
    )
    driver.run(config, progress=Peeking(lambda: seen.append(scrape(port))))
    assert any(one.get(("tagloom_stage_active", "ingest: merge")) for one in seen), "before any engine or worker"
    assert any(one.get(("tagloom_stage_active", "index/raw")) for one in seen)
    last = seen[-1]
    assert last["tagloom_rows_total", "index/raw"] == 6
    assert last["tagloom_read_bytes_total", "index/raw"] > 0
    counters = {key for one in seen for key in one if key[0].endswith("_total")}
    for key in counters:
        values = [one[key] for one in seen if key in one]
        assert values == sorted(values), key
    with pytest.raises(OSError):
        scrape(port)


def test_a_place_that_is_taken_ends_the_run_before_it_begins(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        config = configure(
            tmp_path / "c",
            write_lines(tmp_path / "a.jsonl", session("a", 1, "Hello.", "Hi.")),
            **{"compute.metrics": address},
        )
        with pytest.raises(ConfigError, match="cannot listen there"):
            driver.run(config)
    assert not (tmp_path / "c" / "tables").exists()


@pytest.mark.parametrize("text", ["", "host", "host:", "host:99999", "host:port"])
def test_what_is_no_place_is_refused(text):
    with pytest.raises(ConfigError):
        place(text)


@pytest.mark.parametrize(
    ("text", "found"),
    [("9464", ("127.0.0.1", 9464)), ("0.0.0.0:1", ("0.0.0.0", 1)), ("[::1]:2", ("::1", 2))],
)
def test_places(text, found):
    assert place(text) == found


@pytest.mark.parametrize("path", ["infra/grafana/tagloom.json", "infra/prometheus/tagloom-alerts.yml"])
def test_what_is_drawn_and_what_rings_is_served(path):
    text = (ROOT / path).read_text()
    named = set(re.findall(r"\btagloom_\w+", text))
    assert named
    assert named <= set(METRICS)


def test_the_documentation_names_every_metric():
    text = (ROOT / "docs" / "operations.md").read_text()
    assert [name for name in METRICS if f"`{name}`" not in text] == []


def test_the_dashboard_is_one():
    board = json.loads((ROOT / "infra/grafana/tagloom.json").read_text())
    panels = [panel for panel in board["panels"] if panel["type"] != "row"]
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    assert all(target["expr"] for panel in panels for target in panel["targets"])
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in panels)
