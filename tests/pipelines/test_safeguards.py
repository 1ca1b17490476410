"""What keeps a run from costing more than it was meant to: budgets, refusals, and plans that tell the truth."""

import shutil
from importlib.resources import files

import pytest

from pipelines import driver, planner_view, ray_engine, reindex
from pipelines.spent import BudgetError
from pipelines.trial import Trial
from schemas.config import load_config
from schemas.errors import ConfigError, UsageError
from tests.engines.stub_server import running
from tests.pipelines.corpora import configure, run, session, write_lines

CASES = [f"case{n}" for n in range(4)]
FEW = {"rank.presets": ["bm25-raw"], "evaluate.resamples": 100}


@pytest.fixture(scope="module")
def stub():
    with running() as server:
        yield server


@pytest.fixture(scope="module")
def built(tmp_path_factory, stub):
    """Four cases of one interaction each, extracted by a prompt file of their own."""
    folder = tmp_path_factory.mktemp("safeguards")
    own = files("transforms.prompts").joinpath("notes.md").read_text()
    (folder / "own.md").write_text(own.replace("=== user ===", "Be brief.\n\n=== user ===", 1))
    lines = [session(case, 1, f"My cat called Miso likes {case}.", "A lovely name.") for case in CASES]
    run(folder / "c", write_lines(folder / "a.jsonl", *lines), **asks(stub, prompt=str(folder / "own.md")), **FEW)
    return folder


@pytest.fixture
def corpus(built, tmp_path):
    return shutil.copytree(built / "c", tmp_path / "c")


def asks(server, **more):
    section = {"extractor": "openai", "model": "stub", "options": {"base_url": server.base_url, "patience": 20.0}}
    return {f"extract.{name}": value for name, value in {**section, **more}.items()}


def given(corpus, **more):
    return load_config(None, [], {"corpus": str(corpus), "compute.workers": 0, **more})


def test_a_budget_that_the_last_request_used_up_fails_nothing(stub, built, tmp_path, monkeypatch):
    monkeypatch.setattr(ray_engine, "WATCH_SECONDS", 600.0)  # the engine is looked at when a shard ends, and only then
    own = {**asks(stub), **FEW, "shards": 1}
    notes = run(tmp_path / "a", built / "a.jsonl", **own).asked["extract"]
    budget = notes["prompt_tokens"] + notes["completion_tokens"]
    again = run(tmp_path / "b", built / "a.jsonl", **own, **{"extract.budget_tokens": budget})
    assert again.asked["extract"]["completion_tokens"] == notes["completion_tokens"] > 0
    assert again.made["extract"] == 1


def test_a_budget_is_for_all_tasks_of_a_run(stub, built, tmp_path):
    notes = driver.run(configure(tmp_path / "a", built / "a.jsonl", **asks(stub), **FEW)).asked["extract"]
    once = notes["prompt_tokens"] + notes["completion_tokens"]
    # One after the other: a budget that is used up with the last request ends nothing.
    slow = {"base_url": stub.base_url, "patience": 20.0, "concurrency": 1}
    both = asks(stub, tasks=["notes", "triples"], budget_tokens=once + 10, options=slow)
    with pytest.raises(BudgetError, match="tokens were asked for") as caught:
        run(tmp_path / "b", built / "a.jsonl", **both, **FEW)
    assert int(caught.value.message.partition(" ")[0].replace(",", "")) > once + 10
    rest = driver.run(configure(tmp_path / "b", built / "a.jsonl", **both, **FEW)).asked
    asked = [facts["requests"] for facts in rest.values()]  # a part that was whole when the run stopped is not there
    assert "extract" not in rest and sum(asked) < 4, "what was answered is kept"


def test_what_failed_is_not_asked_again_under_other_settings(corpus, stub):
    with pytest.raises(UsageError, match="others are given"):
        reindex.prepare(given(corpus, **asks(stub, model="other")), retry_failed=True)
    with pytest.raises(UsageError, match="others are given"):
        reindex.prepare(given(corpus, **{"extract.temperature": 0.5}), retry_failed=True)
    limits = {"extract.options": {"base_url": stub.base_url, "concurrency": 2}}
    assert reindex.prepare(given(corpus, **limits), retry_failed=True).plan().cost.total["requests"] == 0


def test_an_edited_prompt_does_not_stand_in_the_way_of_asking_again(corpus, built):
    text = (built / "own.md").read_text()
    (built / "own.md").write_text(text.replace("Be brief.", "Be very brief."))
    try:
        assert reindex.prepare(given(corpus), retry_failed=True).plan().cost.total["requests"] == 0
    finally:
        (built / "own.md").write_text(text)


def test_cases_without_an_extractor_for_the_others(corpus, built, stub, tmp_path):
    before = stub.stats()["requests"]
    with pytest.raises(ConfigError, match="no extractor for the others"):
        run(tmp_path / "new", built / "a.jsonl", **asks(stub, cases=["case1"]), **FEW)
    assert stub.stats()["requests"] == before and not (tmp_path / "new" / "corpus.json").exists()


def test_an_address_of_metrics_is_read_before_anything_is_done(built, stub, tmp_path):
    with pytest.raises(ConfigError, match="'abc' is no address"):
        run(tmp_path / "new", built / "a.jsonl", **asks(stub), **{"compute.metrics": "abc"}, **FEW)
    assert not (tmp_path / "new" / "corpus.json").exists()


@pytest.mark.parametrize("other", [{"temperature": 0.5}, {"max_tokens": 300}])
def test_a_plan_does_not_take_replies_to_other_requests_for_answers(corpus, built, stub, other):
    config = configure(corpus, built / "a.jsonl", **asks(stub, prompt=str(built / "own.md"), **other), **FEW)
    (told,) = planner_view.plan(config, append=False).cost.units
    before = stub.stats()["requests"]
    driver.run(config)
    assert (told.requests, told.answered) == (stub.stats()["requests"] - before, 0) == (4, 0)


def test_a_case_that_is_tried_again_leaves_no_extractor_without_cases(corpus, stub):
    for model, origin, name in (("second", "main", "try"), ("third", "try", "more")):
        settings = given(corpus, **{"extract.model": model})
        prepared = reindex.prepare(settings, origin=origin, name=name, trial=Trial(("case1",)))
        rest = prepared.config.extract.rest
        assert (prepared.config.extract.model, rest.model, rest.cases) == (model, "stub", ())
        assert reindex.run(prepared).result.made["extract"] == 1
