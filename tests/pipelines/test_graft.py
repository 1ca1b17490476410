"""Repairs of a memory: from which questions, what they add, what is held out, and how they go."""

import asyncio

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from pipelines import grafting
from pipelines.gc import gc
from pipelines.graft import HELD_OUT, ON, Grafting, Study, process, units
from pipelines.held import Held
from pipelines.query import settings
from pipelines.store import Store
from schemas.config import load_config
from schemas.errors import ConfigError, StoreError
from schemas.tables import build
from tests.engines.stub_server import running
from tests.pipelines.corpora import live, run, session, write_lines
from transforms import graft
from transforms.packing import key_of

PRESETS = ["bm25-raw", "gaama"]
SMALL = 60
"""Words of a pack: few enough that many questions lack some evidence."""


@pytest.fixture(scope="module")
def stub():
    with running() as server:
        yield server


@pytest.fixture(scope="module")
def corpus(logs, tmp_path_factory):
    path = tmp_path_factory.mktemp("graft") / "corpus"
    run(path, logs, **{"rank.presets": PRESETS})
    return path


def config(corpus, server=None, **more):
    base = {"corpus": str(corpus), "compute.workers": 0}
    if server is not None:
        base |= {
            "extract.extractor": "openai",
            "extract.model": "stub",
            "extract.options": {"base_url": server.base_url, "patience": 20.0},
        }
    return load_config(None, [], {**base, **more})


def repaired(corpus, server=None, name=None, more=(), **own):
    return grafting.run(config(corpus, server, **dict(more)), Grafting(preset="gaama", words=SMALL, **own), name=name)


@pytest.fixture(scope="module")
def batch(corpus):
    """The corpus, repaired from the gold without a model; and what its generation was before."""
    before = live(corpus)
    return repaired(corpus), before


def questions_of(generation):
    return generation.table("questions")


def test_repairs_are_made_from_the_drawn_half_and_rest_on_its_gold(batch):
    done, _ = batch
    table = questions_of(done.before)
    drawn = graft.source(table, 0.5, 7)
    by_key = dict(zip(key_of(table, "question_id").to_pylist(), table.to_pylist(), strict=True))
    used = set(key_of(table.filter(pa.array(drawn)), "question_id").to_pylist())
    texts = {
        key: row["user_text"] + "\n" + row["assistant_text"]
        for key, row in zip(
            key_of(done.before.table("interactions")).to_pylist(),
            done.before.table("interactions").to_pylist(),
            strict=True,
        )
    }
    rows = done.repairs.to_pylist()
    assert rows and done.counts["repairs"] == len(rows) and done.counts["lacking"] >= done.counts["repaired"] > 0
    for one in rows:
        key = f"{one['case_id']}\x00{one['question_id']}"
        assert key in used
        assert set(one["interaction_ids"]) <= set(by_key[key]["gold_interaction_ids"])
        (rests,) = one["interaction_ids"]
        assert one["text"] in " ".join(texts[f"{one['case_id']}\x00{rests}"].split())
        assert (one["mode"], one["round"], one["model"], one["prompt"]) == ("batch", 1, None, None)
    there = done.generation.table("repairs").to_pylist()
    assert sorted(there, key=lambda r: (r["case_id"], r["repair_id"])) == sorted(
        rows, key=lambda r: (r["case_id"], r["repair_id"])
    )


def test_nothing_is_extracted_again_and_the_old_generation_stays(batch, corpus):
    done, before = batch
    assert live(corpus) == before
    old, new = done.before.units, done.generation.units
    for unit in ("ingest", "questions", "extract", "index/raw", "graph/taggraph", "rank/bm25-raw"):
        assert old[unit] == new[unit], unit
    for unit in ("graph/concept", "rank/gaama"):
        assert old[unit] != new[unit], unit
    facts = done.generation.table("nodes", unit="graph/concept")
    kinds = facts.filter(pc.equal(facts["kind"].cast(pa.string()), "fact"))
    assert kinds.num_rows == len(set(key_of(done.repairs, "repair_id").to_pylist()))


def test_what_is_held_out_is_told_apart(batch):
    done, _ = batch
    table = questions_of(done.before)
    judged = done.before.table("question_metrics")
    judged = judged.filter(pc.equal(judged["level"].cast(pa.string()), "interaction"))
    scored = set(key_of(judged, "question_id").to_pylist())
    drawn = graft.source(table, 0.5, 7).tolist()
    expected = {ON: 0, HELD_OUT: 0}
    for key, used in zip(key_of(table, "question_id").to_pylist(), drawn, strict=True):
        expected[ON if used else HELD_OUT] += key in scored
    rows = [r for r in done.results.to_pylist() if r["level"] == "interaction" and r["scope"] == "all"]
    for half, count in expected.items():
        own = [r for r in rows if r["variant"] == half and r["metric"] == "mrr"]
        assert {r["questions"] for r in own} == {count} and count
        assert {(r["retriever"], r["baseline"]) for r in own} == {
            (name, other) for name in PRESETS for other in (None, "unrepaired")
        }
    same = [r for r in rows if r["retriever"] == "bm25-raw" and r["baseline"] and r["metric"] == "recall@10"]
    assert [r["value"] for r in same] == [0.0, 0.0], "a ranking that reads no repairs gains nothing"


def made_in_memory(generation, change):
    """The repairs of one shard, with the questions changed before anything is done."""
    study = Study.model_validate(
        {
            "corpus": "unused",
            "grafting": {"preset": "gaama", "words": SMALL},
            "held": tuple(generation.units),
            "asking": False,
            "round": 1,
        }
    )
    (unit,) = units(study)
    tables = {
        ("ingest", "interactions"): generation.table("interactions"),
        ("questions", "questions"): change(questions_of(generation)),
        ("rank/gaama", "runs"): generation.table("runs", unit="rank/gaama"),
    }
    (made,) = asyncio.run(process(Held(generation.store, {}, tables), (unit,)))
    return made.tables["repairs"]


def test_the_held_out_questions_leave_no_trace_in_repairs(batch):
    done, _ = batch
    plain = made_in_memory(done.before, lambda table: table)
    assert plain.num_rows == done.repairs.num_rows

    def spoiled(which):
        def change(table):
            hit = pa.array(graft.source(table, 0.5, 7) == which)
            columns = {name: table[name] for name in table.schema.names}
            columns["answer"] = pc.if_else(hit, "leak", table["answer"])
            columns["question"] = pc.if_else(hit, "Leak?", table["question"])
            gold = table["gold_interaction_ids"].to_pylist()
            columns["gold_interaction_ids"] = [
                [] if own else ids for own, ids in zip(hit.to_pylist(), gold, strict=True)
            ]
            return build("questions", columns)

        return change

    assert made_in_memory(done.before, spoiled(which=False)).equals(plain)
    assert not made_in_memory(done.before, spoiled(which=True)).equals(plain)


def test_a_second_round_with_another_draw_holds_out_no_question_that_has_repairs(batch, corpus):
    done, _ = batch
    again = repaired(corpus, name="second", seed=8, more={"name": done.generation.name})
    assert settings(again.generation).graph.repairs[0] == settings(done.generation).graph.repairs[0]
    assert set(again.repairs["round"].to_pylist()) <= {2}
    table, judged = questions_of(done.before), done.before.table("question_metrics")
    judged = judged.filter(pc.equal(judged["level"].cast(pa.string()), "interaction"))
    first = set(key_of(done.repairs, "question_id").to_pylist())
    drawn = set(key_of(table.filter(pa.array(graft.source(table, 0.5, 8))), "question_id").to_pylist())
    expected = set(key_of(judged, "question_id").to_pylist()) - drawn - first
    row = next(
        r
        for r in again.results.to_pylist()
        if (r["variant"], r["level"], r["scope"], r["metric"]) == (HELD_OUT, "interaction", "all", "mrr")
    )
    assert row["questions"] == len(expected) and first - drawn


def test_a_model_writes_repairs_and_is_asked_nothing_twice(stub, corpus):
    done = repaired(corpus, stub, name="written", mode="online")
    rows = done.repairs.to_pylist()
    assert rows and {r["mode"] for r in rows} == {"online"} and all(r["model"] and r["prompt"] for r in rows)
    there = set(key_of(done.before.table("interactions")).to_pylist())
    assert all(f"{r['case_id']}\x00{i}" in there for r in rows for i in r["interaction_ids"])
    assert done.counts["questions"] == int(graft.source(questions_of(done.before), 0.5, 7).sum())
    before = stub.stats()["requests"]
    again = repaired(corpus, stub, name="written", mode="online")
    assert stub.stats()["requests"] == before and again.generation.units == done.generation.units
    assert again.repairs.equals(done.repairs)
    batch = repaired(corpus, stub, name="helped")
    assert batch.counts["repairs"] and stub.stats()["requests"] > before


def test_repairs_stay_when_logs_come_and_go_with_their_generation(logs, tmp_path):
    path = tmp_path / "c"
    run(path, logs, **{"rank.presets": PRESETS})
    before = live(path)
    done = repaired(path)
    store = Store.open(str(path))
    run(
        path,
        write_lines(tmp_path / "b.jsonl", session("zoe", 1, "I sold my car.", "Oh.")),
        append=True,
        name="main-graft",
    )
    assert store.generation("main-graft").table("repairs").num_rows == done.repairs.num_rows
    assert list((path / "repairs").glob("*.parquet"))
    gc(store)
    assert list((path / "repairs").glob("*.parquet"))
    gc(store, drop=("main-graft",))
    assert not list((path / "repairs").glob("*.parquet")) and live(path) == before


def test_what_is_wrong_is_told(corpus, logs, tmp_path):
    with pytest.raises(ConfigError, match="online mode asks a judge"):
        repaired(corpus, mode="online")
    with pytest.raises(StoreError, match="no ranking by 'dense'"):
        grafting.run(config(corpus), Grafting(preset="dense"))
    with pytest.raises(StoreError, match="the corpus has no repairs 'nothere'"):
        run(tmp_path / "c", logs, **{"graph.repairs": ["nothere"], "rank.presets": ["bm25-raw"]})
    whole = grafting.run(config(corpus), Grafting(preset="bm25-raw", words=100_000, tokens=100_000), name="whole")
    assert whole.counts["lacking"] >= 0
