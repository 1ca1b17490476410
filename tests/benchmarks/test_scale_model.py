"""The scale model: lines that are found again, sums by stage, and sizes worked out by hand."""

import pytest

from tests.benchmarks import scale_model as model


def costs(millions):
    own = {"cpu": 3.0 + 40 * millions, "seconds": 1.0, "bytes_read": 8e8 * millions, "bytes_written": 2e8 * millions}
    return {"index": own, "rank": dict.fromkeys(model.QUANTITIES, 0.0)}


def test_lines_are_found_again():
    sizes = [0.03, 0.06, 0.12, 0.25]
    lines = model.fit(sizes, [costs(size) for size in sizes])
    assert lines["index"]["cpu"].fixed == pytest.approx(3.0)
    assert lines["index"]["cpu"].slope == pytest.approx(40.0)
    assert lines["index"]["seconds"].slope == pytest.approx(0.0, abs=1e-9)
    guess = model.predict(lines, 1.0)
    assert guess["index"] == pytest.approx(costs(1.0)["index"])
    assert guess["rank"]["cpu"] == 0.0
    assert model.total(guess, "cpu") == pytest.approx(43.0)


def test_steps_and_units_of_a_stage_are_one_stage():
    step = dict.fromkeys(model.QUANTITIES, 2.0)
    names = ("ingest: read", "ingest: merge", "index/raw", "index/note", "rank", "evaluate/questions", "evaluate")
    found = model.costs_of({"stages": [{"stage": name, "cost": step} for name in names]})
    cpu = {stage: own["cpu"] for stage, own in found.items()}
    assert cpu == {"ingest": 4.0, "index": 4.0, "rank": 2.0, "evaluate": 2.0, "aggregate": 2.0}


def test_a_corpus_is_sized():
    lines = {"index": {name: model.Line(0.0, 36.0 if name == "cpu" else 1e9) for name in model.QUANTITIES}}
    need = model.sizing(lines, millions=1000.0, input_gb=128.0, cores=20, tables=10)
    assert need.core_hours == pytest.approx(10.0)
    assert need.hours == pytest.approx(10 / 18)
    assert (need.shards, need.objects, need.written_gb) == (2048, 20480, pytest.approx(1000.0))
    lines["aggregate"] = {name: model.Line(0.0, 3.6) for name in model.QUANTITIES}
    need = model.sizing(lines, millions=1000.0, input_gb=128.0, cores=20, tables=10)
    assert need.core_hours == pytest.approx(11.0)
    assert need.hours == pytest.approx(10 / 18 + 1)
