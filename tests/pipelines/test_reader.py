"""Reader studies over a server on loopback, and with real weights."""

import re
from collections import Counter

import pytest

from pipelines import driver, reader
from pipelines.gc import gc
from pipelines.reader import Reading, packs_of
from pipelines.spent import BudgetError
from pipelines.stage import Inputs
from pipelines.store import Store
from schemas.config import load_config
from schemas.errors import ConfigError, StoreError, UsageError
from tests.engines.llama_server import weights
from tests.engines.stub_server import running
from tests.pipelines.corpora import live, question, run, session, write_lines
from transforms.engines import EngineError
from transforms.reading_results import EXPERIMENT

PRESETS = ("bm25-raw", "taggraph-basic")


@pytest.fixture(scope="module")
def stub():
    with running() as server:
        yield server


@pytest.fixture(scope="module")
def corpus(logs, tmp_path_factory):
    """A corpus with two rankings, not read yet."""
    path = tmp_path_factory.mktemp("reader") / "corpus"
    run(path, logs, **{"rank.presets": list(PRESETS)})
    return path


def config(corpus, server, **more):
    base = {
        "corpus": str(corpus),
        "compute.workers": 0,
        "extract.extractor": "openai",
        "extract.model": "stub",
        "extract.options": {"base_url": server.base_url, "patience": 20.0},
    }
    return load_config(None, [], {**base, **more})


def study(corpus, server, presets=PRESETS, more=(), **own):
    return reader.run(config(corpus, server, **dict(more)), Reading(presets=presets, **own))


def test_every_question_is_answered_once_and_measured(stub, corpus):
    before = stub.stats()
    done = study(corpus, stub)
    asked = stub.stats()
    rows = done.generation.table("answers").to_pylist()
    assert Counter(r["retriever"] for r in rows) == dict.fromkeys(PRESETS, 30)
    assert {r["status"] for r in rows} <= {"ok", "empty"} and all(r["prompt_tokens"] > 100 for r in rows)
    assert asked["requests"] - before["requests"] == asked["bodies"] - before["bodies"] <= 60
    results = done.generation.table("results").to_pylist()
    assert {r["experiment"] for r in results} == {EXPERIMENT} and {r["variant"] for r in results} == {"top=5"}
    shares = [r for r in results if r["metric"] == "contains" and r["scope"] == "all" and r["baseline"] is None]
    mine = [r for r in rows if r["retriever"] == PRESETS[1]]
    assert shares[1]["value"] == sum(r["contains"] for r in mine) / 30 and shares[1]["low"] < shares[1]["value"]
    first = live(corpus)
    again = study(corpus, stub)
    assert sum(again.made.values()) == 0 and live(corpus) == first
    assert stub.stats()["requests"] == asked["requests"]


def test_a_judge_is_asked_besides_and_the_reader_not_again(stub, corpus):
    study(corpus, stub)
    before = stub.stats()["requests"]
    done = study(corpus, stub, judge=True)
    rows = done.generation.table("answers").to_pylist()
    to_judge = [r for r in rows if r["f1"] is not None and not r["abstained"]]
    assert all(r["judged"] is not None for r in rows if r["f1"] is not None)
    assert 0 < stub.stats()["requests"] - before <= len(to_judge)
    metrics = {r["metric"] for r in done.generation.table("results").to_pylist()}
    assert {"judged", "judge_failed"} <= metrics


def test_faults_of_the_server_leave_no_trace(stub, corpus, logs, tmp_path):
    calm = study(corpus, stub).generation.table("answers")
    run(tmp_path / "c", logs, **{"rank.presets": list(PRESETS)})
    faults = [f"--fault={kind}:0.1" for kind in ("429", "500", "half", "garbage", "nothing")]
    with running("--retry-after", "0", *faults) as bad:
        assert study(tmp_path / "c", bad).generation.table("answers").equals(calm)


def test_a_study_lasts_while_what_it_read_does(stub, corpus, logs, tmp_path):
    path = tmp_path / "c"
    run(path, logs, **{"rank.presets": list(PRESETS)})
    study(path, stub)
    store = Store.open(str(path))
    run(path)
    assert "answers" in store.generation().tables()
    gc(store, journal=True)
    assert store.generation().table("answers").num_rows == 60
    before = stub.stats()["requests"]
    run(path, write_lines(tmp_path / "b.jsonl", session("zoe", 1, "I sold my car.", "Oh.")), append=True)
    assert "answers" not in store.generation().tables()
    gc(store)
    study(path, stub)
    assert stub.stats()["requests"] == before, "the journal has the replies"


def test_one_budget_for_all_and_packs_within_it(corpus):
    generation = Store.open(str(corpus)).generation()
    questions = generation.manifest("questions").parts[0]
    parts = {unit: [(p.shard, p.key) for p in generation.manifest(unit).parts] for unit in generation.units}
    inputs = Inputs(generation.store, {u: [p for p in ps if p[0] == questions.shard] for u, ps in parts.items()})
    table = inputs.table("questions", "questions")
    for preset in PRESETS:
        for tokens in (40, 120, 4000):
            own = Reading(presets=(preset,), tokens=tokens, top=3)
            packed = packs_of(inputs, table, inputs.table(f"rank/{preset}", "runs"), own.limits)
            # The heading counts for nothing.
            assert all(len(text.partition("\n")[2].encode()) <= 3 * tokens for text in packed.texts)
            assert all(text.count("[20") <= 3 for text in packed.texts)


def test_facts_of_an_engine_are_packed(stub, logs, tmp_path):
    engine = {"extract.extractor": "openai", "extract.model": "stub", "extract.options": {"base_url": stub.base_url}}
    run(tmp_path / "c", logs, **engine, **{"extract.tasks": ["notes", "facts"], "rank.presets": ["bm25-raw"]})
    done = study(tmp_path / "c", stub, presets=("bm25-raw",), pack=True, words=200)
    assert done.generation.manifest("reader/bm25-raw").inputs.keys() >= {"extract/facts"}
    assert {r["variant"] for r in done.generation.table("results").to_pylist()} == {"pack=200"}


def test_what_is_wrong_is_told(stub, corpus, logs, tmp_path):
    with pytest.raises(StoreError, match=r"holds no ranking by 'bm25-rwa'") as caught:
        study(corpus, stub, presets=("bm25-rwa",))
    assert "Did you mean 'bm25-raw'" in str(caught.value) and "tagloom run" in str(caught.value)
    with pytest.raises(ConfigError, match="'lexical' is no engine"):
        reader.run(load_config(None, [], {"corpus": str(corpus)}), Reading(presets=PRESETS))
    with pytest.raises(StoreError, match="no generation is called 'other'"):
        study(corpus, stub, more={"name": "other"})
    none = tmp_path / "none"
    run(none, write_lines(tmp_path / "a.jsonl", session("ann", 1, "Hi.", "Hello!")), **{"rank.presets": ["bm25-raw"]})
    with pytest.raises(UsageError, match="no questions"):
        study(none, stub, presets=("bm25-raw",))
    bad = tmp_path / "mine.md"
    bad.write_text("---\ntask: notes\nversion: 1\n---\n=== system ===\nx\n=== user ===\n{{text}}\n")
    with pytest.raises(ConfigError, match="not asked"):
        study(corpus, stub, more={"extract.prompt": str(bad)})


def test_a_budget_of_tokens_stops_it_and_what_was_answered_is_kept(stub, logs, tmp_path):
    run(tmp_path / "c", logs, **{"rank.presets": list(PRESETS)})
    with running("--delay", "0.3") as slow:
        with pytest.raises(BudgetError):
            study(tmp_path / "c", slow, more={"extract.budget_tokens": 100})
        assert "answers" not in Store.open(str(tmp_path / "c")).generation().tables()
        first = slow.stats()["bodies"]
        study(tmp_path / "c", slow)
        assert slow.stats()["bodies"] - first <= 60 - first and slow.stats()["wasted"] == 0


def test_an_own_prompt_makes_answers_of_its_own(stub, corpus, tmp_path):
    from importlib.resources import files

    text = files("transforms.prompts").joinpath("answer.md").read_text()
    own = tmp_path / "mine.md"
    own.write_text(re.sub("=== user ===\n", "=== user ===\nBe brief.\n", text))
    before = stub.stats()["requests"]
    study(corpus, stub, presets=PRESETS[:1], more={"extract.prompt": str(own)})
    assert stub.stats()["requests"] > before


@pytest.mark.slow
def test_a_small_real_model_reads(tmp_path):
    lines = [
        session("ann", 1, "My cat is called Miso.", "Lovely!"),
        session("bob", 1, "I live in Oslo.", "Nice!"),
        {"type": "question", **question("ann", "What is the cat called?", "s1"), "answer": "Miso"},
    ]
    log, asked = write_lines(tmp_path / "a.jsonl", *lines[:2]), lines[2]
    write_lines(tmp_path / "q.jsonl", {k: v for k, v in asked.items() if k != "type"})
    run(tmp_path / "c", log, questions=[str(tmp_path / "q.jsonl")], **{"rank.presets": ["bm25-raw"]})
    base = {
        "corpus": str(tmp_path / "c"),
        "compute.workers": 0,
        "extract.extractor": "llamacpp",
        "extract.model": str(weights()),
        "extract.options": {"threads": 1, "context_tokens": 2048, "parallel": 1},
    }
    own = Reading(presets=("bm25-raw",), tokens=400, judge=True)
    done = reader.run(load_config(None, [], base), own)
    (row,) = done.generation.table("answers").to_pylist()
    assert row["status"] in ("ok", "empty", "repaired") and row["prompt_tokens"] > 200
    with pytest.raises(EngineError, match="no room for 4000 tokens"):
        reader.run(load_config(None, [], base), Reading(presets=("bm25-raw",)))


def test_it_is_no_stage_of_a_run():
    from pipelines.stage import STAGES

    assert EXPERIMENT not in STAGES and driver.STAGES == STAGES
