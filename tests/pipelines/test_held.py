"""Units made in memory are the parts that a run makes."""

import pytest

from pipelines.held import Held, make
from pipelines.store import Store
from schemas.config import RunConfig
from schemas.errors import UsageError
from tests.pipelines.corpora import configure, question, session, write_lines
from tests.pipelines.corpora import run as run_all

PRESETS = ["blend-stem", "openclaw", "adaptivegraph", "gaama", "entity-2hop"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("held")
    path = write_lines(
        folder / "a.jsonl",
        session("x", 1, "My cat Miso met Anna in Lisbon.", "Lovely!", "Anna introduced me to Bob.", "Who is he?"),
        session("x", 2, "Bob recommended a book.", "Which one?"),
        session("y", 1, "", "hello"),
        question("x", "Who introduced Bob?", "s1"),
        question("y", "", "s1"),
    )
    settings = {"rank.presets": PRESETS, "shards": 1}
    run_all(folder / "c", path, **settings)
    return Store.open(str(folder / "c")), configure(folder / "c", path, **settings)


def test_units_equal_the_parts_of_a_run(corpus):
    store, config = corpus
    generation = store.generation("main")
    held = Held(store, {}, {
        ("ingest", "interactions"): generation.table("interactions"),
        ("questions", "questions"): generation.table("questions"),
    })  # fmt: skip
    wanted = [unit for unit in generation.units if unit.partition("/")[0] in ("graph", "index", "embed", "rank")]
    assert {"index/stem", "index/chunk", "embed/chunks", "embed/concept", "graph/entity", "rank/gaama"} <= set(wanted)
    make(config, held, wanted, 0)
    compared = 0
    for unit in wanted:
        for table in generation.manifest(unit).parts[0].tables:
            assert held.table(unit, table).to_pylist() == generation.table(table, unit=unit).to_pylist(), (unit, table)
            compared += 1
    assert compared > len(wanted)


def test_only_what_is_wanted_is_made(corpus):
    store, config = corpus
    interactions = store.generation("main").table("interactions")
    held = Held(store, {}, {("ingest", "interactions"): interactions})
    make(config, held, ["index/stem"], 0)
    assert {unit for unit, _ in held.tables} == {"ingest", "index/raw", "index/stem"}
    before = held.table("index/stem", "postings")
    make(config, held, ["index/stem"], 0)
    assert held.table("index/stem", "postings") is before


def test_what_is_not_there(corpus):
    store, config = corpus
    held = Held(store, {}, {("ingest", "interactions"): store.generation("main").table("interactions")})
    with pytest.raises(UsageError, match="the configuration has no 'index/nowhere'"):
        make(config, held, ["index/nowhere"], 0)
    other = RunConfig.model_validate({"corpus": "memory://x", "rank": {"presets": ["bm25"]}})
    with pytest.raises(UsageError, match="the configuration has no 'embed/interactions'"):
        make(other, held, ["embed/interactions"], 0)
    # A unit that was never made has no rows; one that was made has the tables that it has.
    assert held.table("extract", "facts").num_rows == 0
    with pytest.raises(KeyError):
        held.table("ingest", "notes")
    assert held.table("ingest", "interactions", ["case_id"]).column_names == ["case_id"]
