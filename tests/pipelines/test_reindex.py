"""Re-index: a new generation beside the old one, from the parts that differ alone; names move when all is there."""

import json
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import xxhash

from pipelines import driver, evaluate, journal, reindex
from pipelines.storage import Storage
from pipelines.store import Store
from pipelines.trial import SEED, Trial, choose
from schemas.config import load_config
from schemas.errors import StoreError, TagloomError, UsageError
from schemas.ids import shard_of
from tests.engines.stub_server import running
from tests.pipelines import corpora
from tests.pipelines.corpora import live, question, session, tables, write_lines

CASES = [f"case{n}" for n in range(12)]
ALIKE = {"graph.options": {"taggraph": {"shared_attributes": 1}}}
WIDE = {"extract.ontology_window": 5}
"""Changes every note's key and no note."""


FEW = {"rank.presets": ["bm25-raw", "taggraph-basic"], "evaluate.resamples": 100}


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Twelve cases and a question, and the corpus of them."""
    folder = tmp_path_factory.mktemp("reindex")
    (folder / "in").mkdir()
    lines = [session(case, 1, f"My cat called Miso likes {case}.", "A lovely name.") for case in CASES]
    write_lines(folder / "in" / "a.jsonl", *lines, question("case3", "What is the cat called?", "s1"))
    run(folder / "c", folder / "in")
    return folder


@pytest.fixture
def small(built):
    return built / "in"


@pytest.fixture
def corpus(built, tmp_path):
    return shutil.copytree(built / "c", tmp_path / "c")


@pytest.fixture(scope="module")
def stub():
    with running() as server:
        yield server


def asks(server, **more):
    options = {"base_url": server.base_url, "patience": 20.0}
    return {"extract.extractor": "openai", "extract.model": "stub", "extract.options": options, **more}


def configure(corpus, *inputs, **given):
    return corpora.configure(corpus, *inputs, **FEW, **given)


def run(corpus, *inputs, **given):
    return corpora.run(corpus, *inputs, **FEW, **given)


def settings(corpus, **given):
    return load_config(None, [], {"corpus": str(corpus), "compute.workers": 0, **given})


def again(corpus, *, origin=None, name=None, keep=None, trial=None, retry_failed=False, **given):
    prepared = reindex.prepare(
        settings(corpus, **given), origin=origin, name=name, keep=keep, trial=trial, retry_failed=retry_failed
    )
    return reindex.run(prepared)


def made(done):
    return {unit: count for unit, count in done.result.made.items() if count}


def heads(corpus):
    return json.loads((Path(corpus) / "heads.json").read_text())


def shard_keys(corpus, name, unit="extract"):
    return {part.shard: part.key for part in Store.open(str(corpus)).generation(name).manifest(unit).parts}


# -- names ------------------------------------------------------------------------------------------------------------


def test_nothing_changed_makes_nothing(corpus):
    before, files = heads(corpus), tables(corpus)
    done = again(corpus)
    assert (done.equal, made(done)) == ("main", {})
    assert (heads(corpus), tables(corpus)) == (before, files)


def test_a_change_makes_what_follows_it_and_leaves_the_old_generation(small, corpus, tmp_path):
    before, files = heads(corpus), live(corpus)
    done = again(corpus, **ALIKE)
    assert set(made(done)) == {
        "graph/taggraph",
        "index/taggraph",
        "rank/taggraph-basic",
        "evaluate/questions",
        "evaluate",
    }
    assert done.result.generation.name == "main-2"
    assert heads(corpus)["main"] == before["main"]
    assert live(corpus) == files
    run(tmp_path / "fresh", small, **ALIKE)
    assert live(corpus, "main-2") == live(tmp_path / "fresh")
    twice = again(corpus, **ALIKE)
    assert (twice.equal, made(twice)) == ("main-2", {})
    assert set(heads(corpus)) == {"main", "main-2"}
    assert again(corpus, **WIDE).result.generation.name == "main-3"


def test_a_name_in_use_moves_and_what_it_meant_stays_in_one_write(corpus, monkeypatch):
    old = heads(corpus)["main"]
    writes = []
    change = Storage.change

    def counted(self, name, make):
        writes.append(name)
        return change(self, name, make)

    monkeypatch.setattr(Storage, "change", counted)
    done = again(corpus, name="main", **ALIKE)
    assert writes.count("heads.json") == 1
    assert done.kept == "main-1"
    assert heads(corpus)["main-1"] == old
    assert heads(corpus)["main"]["units"] != old["units"]
    assert heads(corpus)["main"]["config"]["graph"]["options"] == ALIKE["graph.options"]
    assert again(corpus, name="main", **ALIKE).equal == "main"
    assert again(corpus, name="main", keep="second", **WIDE).kept == "second"
    assert set(heads(corpus)) == {"main", "main-1", "second"}


def test_a_trial_that_went_well_takes_the_old_name(corpus):
    again(corpus, **ALIKE)
    done = again(corpus, name="main", **ALIKE)
    assert (done.equal, done.kept, made(done)) == ("", "main-1", {})
    assert heads(corpus)["main"]["units"] == heads(corpus)["main-2"]["units"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"name": "a/b"}, "no name of a generation"),
        ({"name": "new", "keep": "old"}, "nothing is called 'new' yet"),
        ({"name": "main", "keep": "main"}, "a generation is called 'main' already"),
        ({"keep": "-"}, "no name of a generation"),
    ],
)
def test_names_that_do_not_do(corpus, options, says):
    with pytest.raises(UsageError, match=says):
        again(corpus, **options, **ALIKE)


def test_what_there_is_not(small, corpus, tmp_path):
    with pytest.raises(StoreError, match=r"no generation is called 'none'(.|\n)*main"):
        again(corpus, origin="none")
    with pytest.raises(StoreError, match="no corpus here"):
        again(tmp_path / "nowhere")
    run(tmp_path / "raw", small, stages=())
    with pytest.raises(UsageError, match="ingested but never run"):
        again(tmp_path / "raw")
    with pytest.raises(UsageError, match="has 8 shards, not 16"):
        again(corpus, shards=16)


def test_a_generation_that_was_replaced_meanwhile(small, corpus):
    prepared = reindex.prepare(settings(corpus, **ALIKE))
    run(corpus, small, **{"rank.depth": 7})
    with pytest.raises(StoreError, match="was replaced meanwhile"):
        reindex.run(prepared)
    assert set(heads(corpus)) == {"main"}


# -- failures ---------------------------------------------------------------------------------------------------------


def test_a_failure_moves_no_name_and_the_next_try_goes_on(corpus, monkeypatch):
    before = (corpus / "heads.json").read_bytes()

    def full(*_):
        raise StoreError("no space left")

    with monkeypatch.context() as patched:
        patched.setattr(evaluate, "STAGE", replace(evaluate.STAGE, process=full))
        with pytest.raises(TagloomError, match="no space left"):
            again(corpus, **ALIKE)
    assert (corpus / "heads.json").read_bytes() == before
    assert {unit.partition("/")[0] for unit in made(again(corpus, **ALIKE))} == {"evaluate"}
    assert set(heads(corpus)) == {"main", "main-2"}


def test_after_a_kill_only_what_the_journal_lacks_is_asked(corpus):
    before, storage = (corpus / "heads.json").read_bytes(), Storage(str(corpus))
    with running("--delay", "0.4") as server:
        options = f"extract.options={{base_url: '{server.base_url}', concurrency: 1}}"
        command = [sys.executable, "-m", "jobs.cli", "reindex", "-C", str(corpus), "--workers", "0", "-q"]
        command += ["--set", "extract.extractor=openai", "--set", "extract.model=stub", "--set", options]
        with subprocess.Popen(command) as process:
            while not any(held.entries for held in journal.extractors(storage)):
                assert process.poll() is None
                time.sleep(0.02)
            process.send_signal(signal.SIGKILL)
        (held,) = journal.extractors(storage)
        asked = server.stats()["requests"]
        assert (corpus / "heads.json").read_bytes() == before
        done = again(corpus, **asks(server))
        assert server.stats()["requests"] - asked == len(CASES) - held.entries
    assert done.result.generation.name == "main-2"
    assert {n["status"] for n in done.result.generation.table("notes").to_pylist()} == {"ok"}


# -- inputs and settings ----------------------------------------------------------------------------------------------


def test_inputs_are_not_read_again(small, corpus, tmp_path):
    (small / "a.jsonl").rename(tmp_path / "away.jsonl")
    try:
        done = again(corpus, inputs=[str(tmp_path / "gone.jsonl")], **WIDE)
    finally:
        (tmp_path / "away.jsonl").rename(small / "a.jsonl")
    assert done.result.manifests["ingest"].rows("interactions") == 12


def test_settings_of_another_extractor_do_not_go_on(corpus, tmp_path):
    notes = Store.open(str(corpus)).generation().table("notes")
    pq.write_table(notes, tmp_path / "notes.parquet")
    replay = {"extract.extractor": "replay", "extract.options": {"notes": str(tmp_path / "notes.parquet")}}
    again(corpus, name="told", **replay, **WIDE)
    assert heads(corpus)["told"]["config"]["extract"]["ontology_window"] == 5
    deeper = again(corpus, origin="told", name="deeper", **{"rank.depth": 7})
    assert deeper.result.config.extract.options == replay["extract.options"]
    back = again(corpus, origin="told", **{"extract.extractor": "lexical"})
    assert back.equal == "main", "neither options nor the window of replay are left"
    result = driver.run(configure(corpus, name="told", **{"extract.extractor": "lexical"}))
    assert result.config.extract.options == {}


def test_the_settings_that_differ_are_told(corpus):
    prepared = reindex.prepare(settings(corpus, **WIDE, **{"rank.depth": 7}))
    assert prepared.settings == {"extract.ontology_window": (1, 5), "rank.depth": (100, 7)}


# -- some cases first -------------------------------------------------------------------------------------------------


def test_named_cases_leave_the_parts_of_other_shards(small, corpus, tmp_path):
    done = again(corpus, trial=Trial(("case3", "case5")), **WIDE)
    touched = {shard_of(case, 8) for case in ("case3", "case5")}
    old, new = shard_keys(corpus, "main"), shard_keys(corpus, "main-2")
    assert {shard for shard in old if old[shard] != new[shard]} == touched
    assert done.result.made["extract"] == len(touched)
    mixed = {**WIDE, "extract.cases": ["case3", "case5"], "extract.rest": {"extractor": "lexical"}}
    run(tmp_path / "fresh", small, **mixed)
    assert live(corpus, "main-2") == live(tmp_path / "fresh")
    more = write_lines(tmp_path / "more.jsonl", session("case3", 2, "Miso met a dog.", "How did that go?"))
    grown = driver.run(configure(corpus, more, name="main-2"), append=True)
    assert grown.made["extract"] == 1
    run(tmp_path / "whole", small, more, **mixed)
    assert live(corpus, "main-2") == live(tmp_path / "whole")


def test_a_trial_on_top_of_a_trial(small, corpus, tmp_path):
    again(corpus, trial=Trial(("case3",)), **WIDE)
    done = again(corpus, origin="main-2", trial=Trial(("case5",)), **{"extract.ontology_window": 7})
    assert done.result.made["extract"] == 1
    first = {"extractor": "lexical", "ontology_window": 5, "cases": ["case3"], "rest": {"extractor": "lexical"}}
    nested = {"extract.ontology_window": 7, "extract.cases": ["case5"], "extract.rest": first}
    run(tmp_path / "fresh", small, **nested)
    assert live(corpus, "main-2-2") == live(tmp_path / "fresh")


def test_a_trial_without_another_extractor_tries_nothing(corpus):
    done = again(corpus, trial=Trial(("case3",)))
    assert (done.equal, made(done)) == ("main", {})
    graph = again(corpus, trial=Trial(("case3",)), **ALIKE)
    assert graph.result.config.extract.cases == ()


def test_cases_that_are_not_there(corpus):
    with pytest.raises(UsageError, match=r"no case is called 'case33'(.|\n)*Did you mean 'case3'"):
        again(corpus, trial=Trial(("case3", "case33")), **WIDE)


def test_a_sample_is_drawn_by_hash_and_grows_with_its_share(corpus):
    generation = Store.open(str(corpus)).generation()
    extract = settings(corpus).extract
    draw = {case: xxhash.xxh64_intdigest(case.encode(), SEED) / 2**64 for case in CASES}
    for share in (0.2, 0.5, 0.9):
        expected = tuple(sorted(case for case in CASES if draw[case] < share))
        assert 0 < len(expected) < 12
        assert choose(generation, extract, Trial(sample=share)) == expected
    assert choose(generation, extract, Trial(sample=1.0)) == tuple(sorted(CASES))
    assert choose(generation, extract, Trial(sample=1e-9)) == (min(CASES, key=draw.__getitem__),)
    for share in (0.0, -1.0, 1.5, float("nan")):
        with pytest.raises(UsageError, match="no share"):
            choose(generation, extract, Trial(sample=share))


def test_the_rest_must_be_what_it_was(corpus, tmp_path):
    path = tmp_path / "notes.parquet"
    notes = Store.open(str(corpus)).generation().table("notes")
    pq.write_table(notes, path)
    again(corpus, name="told", **{"extract.extractor": "replay", "extract.options": {"notes": str(path)}})
    pq.write_table(notes.slice(0, 11), path)
    with pytest.raises(UsageError, match="other cases would be made anew as well: configuration changed: extractor"):
        again(corpus, origin="told", trial=Trial(("case3",)), **{"extract.extractor": "lexical"})


# -- engines ----------------------------------------------------------------------------------------------------------


def test_moving_to_an_engine_case_by_case(stub, small, corpus, tmp_path):
    before = stub.stats()["requests"]
    done = again(corpus, trial=Trial(("case3",)), **asks(stub))
    assert stub.stats()["requests"] == before + 1
    assert done.result.made["extract"] == 1
    notes = Store.open(str(corpus)).generation("main-2").table("notes").to_pylist()
    assert {n["case_id"] for n in notes if n["prompt_tokens"]} == {"case3"}
    whole = again(corpus, **asks(stub))
    assert stub.stats()["requests"] == before + 12, "what the trial asked is not asked again"
    run(tmp_path / "fresh", small, **asks(stub))
    assert live(corpus, whole.result.generation.name) == live(tmp_path / "fresh")


def test_another_prompt_makes_extract_and_what_follows(stub, corpus, tmp_path):
    own, text = tmp_path / "mine.md", files("transforms.prompts").joinpath("notes.md").read_text()
    again(corpus, name="asked", **asks(stub))
    own.write_text(text.replace("=== user ===", "Be brief.\n\n=== user ===", 1))
    done = again(corpus, origin="asked", **{"extract.prompt": str(own)})
    assert set(made(done)) == {
        "extract", "graph/taggraph", "index/note", "index/taggraph", "rank/taggraph-basic", "evaluate/questions",
        "evaluate",
    }  # fmt: skip
    own.write_text(text.replace("=== user ===", "Be very brief.\n\n=== user ===", 1))
    tried = again(corpus, origin="asked-2", trial=Trial(("case3",)), **{"extract.temperature": 0.5})
    assert made(tried)["extract"] == 1, "the other cases keep the prompt as it was"
    assert not made(again(corpus, origin="asked-2")), "an edited file counts when it is named again"
    assert "extract" in made(again(corpus, origin="asked-2", **{"extract.prompt": str(own)}))


def test_a_budget_takes_as_many_cases_as_fit(stub, corpus):
    generation = Store.open(str(corpus)).generation()
    extract = settings(corpus, **asks(stub)).extract
    with pytest.raises(
        UsageError, match=r"10 tokens are not enough for any case; the smallest may take [\d,]+"
    ) as caught:
        choose(generation, extract, Trial(budget_tokens=10))
    least = int(caught.value.message.rpartition(" ")[2].replace(",", ""))
    assert len(choose(generation, extract, Trial(budget_tokens=least + 20))) == 1
    few = choose(generation, extract, Trial(budget_tokens=least * 4))
    assert 2 <= len(few) <= 4
    order = sorted(CASES, key=lambda case: xxhash.xxh64_intdigest(case.encode(), SEED))
    assert set(few) == set(order[: len(few)])
    assert choose(generation, extract, Trial(budget_tokens=least * 1000)) == tuple(sorted(CASES))
    done = again(corpus, trial=Trial(budget_tokens=least * 4), **asks(stub))
    assert done.result.config.extract.cases == few
    spent = done.result.manifests["extract"].run
    assert spent["prompt_tokens"] + spent["completion_tokens"] <= least * 4
    assert done.result.config.extract.budget_tokens == least * 4
    assert heads(corpus)["main-2"]["config"]["extract"].get("budget_tokens") is None, "it is for one run"


def test_a_budget_and_a_second_round_need_an_engine(corpus):
    with pytest.raises(UsageError, match="asks no model, so it needs no tokens"):
        again(corpus, trial=Trial(budget_tokens=1000), **WIDE)
    with pytest.raises(UsageError, match="asks no model, so asking again changes nothing"):
        again(corpus, retry_failed=True)


def test_what_failed_is_asked_again_and_nothing_else(stub, tmp_path):
    corpus = tmp_path / "c"
    lines = [session(case, 1, f"My cat called Miso likes {case}.", "A lovely name.") for case in CASES[:5]]
    run(corpus, write_lines(tmp_path / "a.jsonl", *lines[:3]), **asks(stub))
    with running("--context", "10") as tiny:
        driver.run(configure(corpus, write_lines(tmp_path / "b.jsonl", *lines[3:]), **asks(tiny)), append=True)
    status = {n["case_id"]: n["status"] for n in Store.open(str(corpus)).generation().table("notes").to_pylist()}
    assert [case for case in CASES[:5] if status[case] == "failed"] == ["case3", "case4"]
    before = stub.stats()["requests"]
    done = again(corpus, retry_failed=True, **asks(stub))
    assert stub.stats()["requests"] == before + 2
    assert {n["status"] for n in done.result.generation.table("notes").to_pylist()} == {"ok"}
    assert done.result.config.extract.retry_round == 1
    assert again(corpus, origin="main-2", retry_failed=True).equal == "main-2", "nothing is left that failed"
    with pytest.raises(UsageError, match="in all cases"):
        again(corpus, retry_failed=True, trial=Trial(("case3",)))
