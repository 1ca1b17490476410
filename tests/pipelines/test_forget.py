"""Forgetting as a generation of its own, its sweep, its effects, and the command."""

import json
import shutil

import pyarrow.parquet as pq
import pytest

from pipelines import forget
from pipelines.store import Store
from schemas.config import load_config
from schemas.errors import ConfigError, TagloomError, UsageError
from tests.jobs.calls import call
from tests.pipelines import corpora
from tests.pipelines.corpora import live, question, session, tables, write_lines
from transforms.forgetting import accessing

CASES = [f"case{n}" for n in range(4)]
PETS = ("cat", "dog", "newt", "hen", "goat", "crow")
WALK = {"method": "diffusion", "graph": "entity", "text": {"field": "note"}, "edges": {"undirected": True}}
RUN = {"rank.presets": ["bm25", "walk"], "rank.define": {"walk": WALK}, "evaluate.resamples": 100, "shards": 2}
HARD = {"threshold": 0.3, "every": 2, "half_life_days": 1, "half_life_turns": 1}


def lines():
    for case in CASES:
        for n, pet in enumerate(PETS, 1):
            yield session(case, n, f"My {pet} lives in Lisbon with my sister Anna.", "Nice.")
        for n, pet in enumerate(PETS, 1):
            yield question(case, f"Where does the {pet} live?", f"s{n}")


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("forget")
    corpora.run(folder / "c", write_lines(folder / "a.jsonl", *lines()), **RUN)
    return folder


@pytest.fixture
def corpus(built, tmp_path):
    return shutil.copytree(built / "c", tmp_path / "c")


def make(corpus, graph="entity", **given):
    config = load_config(None, [], {"corpus": str(corpus), "compute.workers": 0})
    more = {name: given.pop(name) for name in ("sweep", "origin", "name", "access") if name in given}
    return forget.run(config, graph, given, **more)


def generation(corpus, name):
    return Store.open(str(corpus)).generation(name)


def test_a_generation_with_less_of_one_graph(corpus):
    before = tables(corpus)
    done = make(corpus, **HARD)
    whole, less = done.variants
    assert (whole.generation.name, less.generation.name, done.presets) == ("main", "main-forgotten", ("walk",))
    assert less.nodes < whole.nodes
    assert less.edges < whole.edges
    assert whole.nodes - less.nodes == sum(less.kinds.values()) > 0
    main, new = (generation(corpus, name) for name in ("main", "main-forgotten"))
    touched = {unit for unit in main.units if main.units[unit] != new.units[unit]}
    assert touched == {"graph/entity", "index/entity", "rank/walk", "evaluate/questions", "evaluate"}
    assert {path: tables(corpus)[path] for path in before} == before  # nothing of the old generation has changed
    kinds = new.table("nodes", unit="graph/entity")["kind"].to_pylist()
    assert kinds.count("file") == main.manifest("ingest").rows("interactions")
    assert new.table("interactions") == main.table("interactions")
    gone = new.table("forgotten").to_pylist()
    assert {row["graph"] for row in gone} == {"entity"}
    assert len([row for row in gone if not row["returned"]]) == whole.nodes - less.nodes
    # Made anew it is the same, and no second name is given; what goes on from it forgets likewise.
    assert make(corpus, **HARD).variants[1].kept == ""
    again = corpora.run(corpus, name="main-forgotten", **{"rank.presets": ["bm25"]})
    assert {unit for unit, count in again.made.items() if count} == {"evaluate/questions", "evaluate"}
    assert again.generation.units["graph/entity"] == new.units["graph/entity"]


def test_threshold_0_keeps_every_byte(corpus):
    make(corpus, threshold=0, every=1)
    names = ("tables/nodes", "tables/edges", "tables/merges", "tables/matrices")
    main, new = (
        sorted(digest for path, digest in live(corpus, name).items() if path.startswith(names))
        for name in ("main", "main-forgotten")
    )
    assert main == new


def test_a_sweep_and_its_effects(corpus):
    done = make(corpus, sweep={"threshold": [0, 0.3]}, every=2, half_life_days=1, half_life_turns=1)
    assert [one.generation.name for one in done.variants] == [
        "main",
        "main-forgotten-threshold-0",
        "main-forgotten-threshold-0.3",
    ]
    assert [(one.name, one.x) for one in done.variants] == [("whole", 0), ("threshold=0", 0), ("threshold=0.3", 0.3)]
    rows = done.results.to_pylist()
    assert {row["experiment"] for row in rows} == {"forgetting"}
    sizes = {(row["variant"], row["metric"]): row["value"] for row in rows if not row["level"] and not row["retriever"]}
    assert sizes["whole", "nodes"] == sizes["threshold=0", "nodes"] > sizes["threshold=0.3", "nodes"]
    means = {
        row["variant"]: row["value"]
        for row in rows
        if (row["level"], row["scope"], row["metric"], row["baseline"]) == ("session", "all", "recall@5", None)
    }
    paired = {
        row["variant"]: row
        for row in rows
        if (row["level"], row["metric"], row["baseline"]) == ("session", "recall@5", "whole")
    }
    assert paired["threshold=0"]["value"] == 0
    for variant, row in paired.items():
        assert row["value"] == pytest.approx(means[variant] - means["whole"])
        assert row["low"] <= row["value"] <= row["high"]
        assert (row["retriever"], row["questions"], row["cases"]) == ("walk", 24, 4)


def test_accesses_are_those_of_questions_that_are_not_judged(corpus):
    questions = generation(corpus, "main").table("questions")
    others = int((~accessing(questions["case_id"], questions["question_id"])).sum())
    assert 0 < others < len(questions)
    plain = make(corpus, name="plain", pinned=["unicorn"], **HARD)
    assert any("no node is pinned" in one for one in plain.remarks)
    known = make(corpus, name="known", access="bm25", **HARD)
    assert known.variants[1].nodes > plain.variants[1].nodes
    judged = {row["questions"] for row in known.results.to_pylist() if row["baseline"]}
    assert judged == {others}
    assert any("the other half" in one for one in known.remarks)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"graph": "entiti"}, "Did you mean 'entity'"),
        ({"graph": "triples"}, "has no graph 'triples'"),
        ({"threshold": 2}, "graph.forget.entity.threshold"),
        ({"weights.age": 0.9}, "The weights are 1.55 in all"),
        ({"weights": 3, "weights.age": 0.1}, "'weights' is a value"),
        ({"treshold": 0.2}, "Did you mean 'threshold'"),
        ({"sweep": {"threshold": ["x"]}}, "'threshold=x' is no number"),
        ({"sweep": {"every": list(range(1, 102))}}, "101 variants"),
        ({"access": "bm52"}, "Did you mean 'bm25'"),
        ({"name": "main"}, "goes on from"),
        ({"name": "../x"}, "is no name of a generation"),
        ({"origin": "nope"}, "no generation is called 'nope'"),
    ],
)
def test_what_is_wrong_is_told_before_anything_is_made(built, given, told):
    with pytest.raises(TagloomError, match=told) as error:
        make(built / "c", **given)
    assert error.value.exit_code == 2 or "no generation" in told
    assert set(Store.open(str(built / "c")).heads()) == {"main"}


def test_a_graph_that_has_forgotten_is_no_place_to_start(corpus):
    make(corpus, **HARD)
    with pytest.raises(UsageError, match="has forgotten already"):
        make(corpus, origin="main-forgotten", name="twice")
    with pytest.raises(ConfigError, match=r"graph.kinds has no 'entty'.*") as error:
        corpora.run(corpus, **RUN, **{"graph.forget": {"entty": {}}})
    assert "Did you mean 'entity'?" in str(error.value)


def test_the_command(corpus, tmp_path, capsys):
    base = ["forget", "-C", str(corpus), "--workers", "0", "-q", "--every", "2", "--set", "half_life_days=1"]
    code, out, _ = call(capsys, *base, "--threshold", "0.3", "--pin", "*anna*", "--to", str(tmp_path / "out"))
    assert code == 0
    assert "main-forgotten  threshold=0.3" in out
    assert "difference to the whole graph" in out
    rows = pq.read_table(tmp_path / "out" / "results.parquet")
    assert set(rows["experiment"].to_pylist()) == {"forgetting"}
    code, out, _ = call(capsys, *base, "--sweep", "threshold=0.2,0.3", "--json")
    told = json.loads(out)
    assert [one["variant"] for one in told["generations"]] == ["whole", "threshold=0.2", "threshold=0.3"]
    for wrong in (["--set", "x"], ["--threshold", "1", "--sweep", "threshold=1"], ["--sweep", "threshold"]):
        code, _, err = call(capsys, *base, *wrong)
        assert (code, err.count("\n") <= 3) == (2, True)
    assert call(capsys, "query", "-C", str(corpus), "--name", "main-forgotten", "--case", "case0", "-r", "walk", "cat")
