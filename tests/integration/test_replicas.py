"""Workers that hold an engine, on a real Ray: they stay from one unit of a stage to the next."""

import pytest

from pipelines import reader
from pipelines.ray_session import RaySession
from tests.engines.stub_server import running
from tests.pipelines.corpora import configure, live, question, run, session, write_lines
from transforms.engines import EngineError

TASKS = ["notes", "facts", "triples"]


@pytest.fixture(scope="module")
def stub():
    with running() as server:
        yield server


@pytest.fixture
def started(monkeypatch):
    """The workers that were started, in order, with whether they were ended again."""
    found = []
    real = RaySession.replicas

    def replicas(self, needs):
        crew = real(self, needs)
        if crew is None:
            return None
        end = crew.end
        found.append([len(crew), False])
        place = len(found) - 1

        def ended(*given):
            found[place][1] = True
            end(*given)

        crew.end = ended
        return crew

    monkeypatch.setattr(RaySession, "replicas", replicas)
    return found


def test_one_worker_serves_all_units_of_a_stage(ray_session, stub, started, tmp_path):
    lines = [session(case, 1, f"I live in town {case}.", "Good.", f"I met Ann {case}.", "Fine.") for case in "abc"]
    asked = [question(case, f"Who is in {case}?", "s1") for case in "abc"]
    talks = write_lines(tmp_path / "talks.jsonl", *lines, *asked)
    own = {
        "shards": 8,
        "rank.presets": ["bm25", "bm25-raw"],
        "extract.extractor": "openai",
        "extract.model": "stub",
        "extract.options": {"base_url": stub.base_url, "patience": 20.0},
        "extract.tasks": TASKS,
    }
    alone = run(tmp_path / "alone", talks, **own)
    assert started == []
    result = run(tmp_path / "c", talks, **own, **{"compute.workers": 1})
    assert started == [[1, True]]
    assert live(tmp_path / "c") == live(tmp_path / "alone")
    # Each unit tells what was asked for it alone, although the worker counts on.
    units = ["extract", "extract/facts", "extract/triples"]
    for unit in units:
        told, wanted = result.asked[unit], alone.asked[unit]
        assert [told[name] for name in ("requests", "prompt_tokens", "completion_tokens", "from_journal")] == [
            wanted[name] for name in ("requests", "prompt_tokens", "completion_tokens", "from_journal")
        ]

    # A study asks for two presets; its results are made of what was replied, without an engine.
    config = configure(tmp_path / "c", **own, **{"compute.workers": 1}).model_copy(update={"inputs": ()})
    done = reader.run(config, reader.Reading(presets=("bm25", "bm25-raw")))
    assert started == [[1, True]] * 2
    assert sum(done.made.values()) > 0 and done.generation.table("results").num_rows


def test_an_engine_that_is_held_ends_with_an_error(ray_session, started, tmp_path):
    """No server answers, which ends the stage; the worker does not outlive it."""
    talks = write_lines(tmp_path / "talks.jsonl", session("a", 1, "I live in Rome.", "Good."))
    own = {
        "shards": 8,
        "extract.extractor": "openai",
        "extract.model": "stub",
        "extract.options": {"base_url": "http://127.0.0.1:9/v1", "patience": 0.1},
        "extract.tasks": TASKS[:2],
    }
    with pytest.raises(EngineError):
        run(tmp_path / "c", talks, **own, **{"compute.workers": 1})
    assert started == [[1, True]]
