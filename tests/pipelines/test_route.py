import numpy as np
import pyarrow as pa
import pytest

from indexers import presets
from indexers.methods import learned
from indexers.rank import batches
from indexers.shard import open_shard
from pipelines import driver, route
from pipelines.embed import Kept
from pipelines.rank import named
from pipelines.store import Store
from schemas.config import RunConfig
from transforms.synth import write

SMALL = {
    "small": {
        "method": "learned",
        "order": ["text", "words"],
        "arms": {
            "text": {"preset": "bm25-stem", "features": ["best", "rank"]},
            "words": {"preset": "words-coverage", "weight": 0.5, "features": ["own"]},
            "near": {"preset": "bm25-window", "weight": 0, "context": True},
        },
        "training": {"folds": 3},
    }
}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    home = tmp_path_factory.mktemp("route")
    write(str(home / "logs"), size=1200, cases=6, seed=3)
    config = RunConfig(
        corpus=str(home / "corpus"),
        inputs=(str(home / "logs"),),
        shards=4,
        rank={"presets": ("bm25-stem", "small"), "define": SMALL},
        evaluate={"resamples": 200},
        compute={"workers": 0},
    )
    driver.run(config)
    return config, Store.open(config.corpus).generation()


def mark(config):
    return named(config, "small").mark


def test_every_case_is_ranked_by_weights_that_never_saw_it(corpus):
    config, generation = corpus
    rows = generation.table("router", unit=f"route/{mark(config)}").to_pylist()
    asked = generation.table("questions").filter(
        pa.compute.greater(pa.compute.list_value_length(generation.table("questions")["gold_interaction_ids"]), 0)
    )
    with_gold = sorted(set(asked["case_id"].to_pylist()))
    assert [row["fold"] for row in rows] == [0, 1, 2, -1]
    assert sorted(case for row in rows for case in row["cases"]) == with_gold
    counts = {case: asked["case_id"].to_pylist().count(case) for case in with_gold}
    for row in rows:
        assert row["questions"] == sum(counts.values()) - sum(counts[case] for case in row["cases"])
    # And the weights of a fold are those that its other cases give, and no more.
    candidates = generation.table("candidates")
    cases = candidates["case_id"].cast(pa.string())
    others = candidates.filter(pa.compute.invert(pa.compute.is_in(cases, value_set=pa.array(rows[0]["cases"]))))
    alone = route.learn(named(config, "small"), others).to_pylist()
    assert next(row for row in alone if row["fold"] == -1)["weights"] == rows[0]["weights"]


def test_what_it_learned_is_what_it_ranks_by(corpus):
    config, generation = corpus
    preset = named(config, "small")
    case = generation.table("questions")["case_id"][0].as_py()
    questions = generation.case_part("questions", "questions", case)
    questions = questions.filter(pa.compute.equal(questions["case_id"].cast(pa.string()), case))

    def table_of(unit, table):
        return generation.case_part(unit, table, case)

    shard = open_shard(generation.case_part("ingest", "interactions", case), questions, table_of)
    (batch,) = batches(shard, questions, Kept(table_of))
    rows = generation.table("router", unit=f"route/{mark(config)}").to_pylist()
    (row,) = [row for row in rows if case in row["cases"]]
    weights = np.array(row["weights"]).reshape(len(row["features"]), -1)
    seen = learned.gates(preset, batch)
    gates = np.clip((seen - row["middle"]) / row["spread"], -4, 4)
    per = weights[:, 0] + gates @ weights[:, 1:].T
    total = 0
    question = np.repeat(np.arange(len(questions)), len(shard.interactions))
    for number, (name, values) in enumerate(learned.features(preset, batch)):
        assert name == row["features"][number]
        total = total + per[question, number] * values
    found = preset.code.scores(preset, batch, None).values.reshape(len(questions), -1)
    total = total.reshape(len(questions), -1)
    assert found == pytest.approx(total - total.min(axis=1, keepdims=True) + 1e-9, rel=1e-5, abs=1e-6)


def test_it_finds_more_than_its_first_arm(corpus):
    _, generation = corpus
    means = {
        row["retriever"]: row["mean"]
        for row in generation.table("metrics").to_pylist()
        if (row["level"], row["scope"], row["metric"]) == ("interaction", "all", "mrr")
    }
    assert means["small"] > means["bm25-stem"]


def test_without_two_cases_the_arms_own_weights_hold(corpus):
    config, generation = corpus
    preset = named(config, "small")
    candidates = generation.table("candidates")
    one = candidates.filter(pa.compute.equal(candidates["case_id"].cast(pa.string()), candidates["case_id"][0].as_py()))
    assert route.learn(preset, one).num_rows == 0
    names = learned.feature_names(preset)
    given = dict(zip(names, learned.default_weights(preset).tolist(), strict=True))
    assert {name: weight for name, weight in given.items() if weight} == {"text:best": 1.0, "words:own": 0.5}


def test_workers_and_second_runs_change_nothing(corpus, tmp_path):
    config, generation = corpus
    again = driver.run(config)
    assert sum(again.made.values()) == 0
    other = driver.run(config.model_copy(update={"corpus": str(tmp_path / "other"), "shards": 2}))
    one = generation.table("router").to_pylist()
    two = other.generation.table("router").to_pylist()
    assert one == two


def test_context_counts_between_people_alone(corpus):
    config, generation = corpus
    preset = named(config, "small")
    case = generation.table("questions")["case_id"][0].as_py()
    interactions = generation.case_part("ingest", "interactions", case)
    questions = generation.case_part("questions", "questions", case)

    def table_of(unit, table):
        return generation.case_part(unit, table, case)

    def feature(speakers):
        column = pa.array([speakers] * len(interactions), pa.list_(pa.string()))
        place = interactions.column_names.index("speakers")
        shard = open_shard(interactions.set_column(place, "speakers", column), questions, table_of)
        (batch,) = batches(shard, questions, Kept(table_of))
        return dict(learned.features(preset, batch))["near:best"]

    assert feature(["Ann", "Bob"]).any()
    assert not feature(["user", "assistant"]).any()


def test_presets_that_learn_are_found_inside_others():
    define = {**SMALL, "outer": {"method": "fusion", "arms": {"a": {"preset": "small"}, "b": {"preset": "bm25"}}}}
    outer = presets.get("outer", define)
    assert [one.method for one in outer.learning] == ["learned"]
    assert any(unit.startswith("route/") for unit in outer.units)
