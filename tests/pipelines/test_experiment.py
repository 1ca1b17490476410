"""Experiments on small corpora: they measure what a run measures, go on where they were, and hang on the generation."""

import shutil

import pytest

from pipelines import driver
from pipelines.experimenting import Wanted, run
from pipelines.gc import gc
from pipelines.store import Store
from schemas.errors import ConfigError, StoreError, UsageError
from tests.pipelines import corpora
from tests.pipelines.corpora import configure, question, session, write_lines

PRESETS = ("bm25", "adaptivegraph", "bm25-raw")


@pytest.fixture(scope="module")
def corpus(logs, tmp_path_factory):
    where = tmp_path_factory.mktemp("experiment") / "corpus"
    corpora.run(where, logs, shards=4, **{"rank.presets": list(PRESETS), "evaluate.resamples": 200})
    return str(where)


def ask(corpus, name, *chosen, generation="main", baseline=None, other=None, **options):
    return run(corpus, generation, Wanted(name, chosen, baseline, options, other), workers=0)


def values(done, **wanted):
    """(retriever, metric) -> value."""
    rows = [row for row in done.results.to_pylist() if all(row[name] == value for name, value in wanted.items())]
    return {(row["retriever"], row["metric"]): row["value"] for row in rows}


def measured(corpus, level="interaction", generation="main"):
    """The same, of the run's own metrics."""
    return {
        (row["retriever"], row["metric"]): row["mean"]
        for row in Store.open(corpus).generation(generation).table("metrics").to_pylist()
        if (row["level"], row["scope"]) == (level, "all")
    }


def assert_alike(found, expected):
    assert found
    assert {name: expected[name] for name in found} == pytest.approx(found)


def test_an_ablation_measures_what_a_run_measures(corpus):
    done = ask(corpus, "ablation", *PRESETS, baseline="adaptivegraph")
    means = values(done, variant="whole", level="interaction", scope="all", baseline=None)
    assert_alike(means, measured(corpus))
    differences = values(done, baseline="adaptivegraph", level="session")
    own = measured(corpus, "session")
    assert {name for name, _ in differences} == {"bm25", "bm25-raw"}
    assert_alike(differences, {(p, m): own[p, m] - own["adaptivegraph", m] for p, m in differences})
    assert values(done, metric="sessions") == {("", "sessions"): pytest.approx(sum_of_sessions(corpus))}


def sum_of_sessions(corpus):
    generation = Store.open(corpus).generation()
    interactions, questions = generation.table("interactions"), generation.table("questions")
    sessions: dict = {}
    for case, one in zip(*(interactions[n].to_pylist() for n in ("case_id", "session_id")), strict=True):
        sessions.setdefault(case, set()).add(one)
    asked = [len(sessions[case]) for case in questions["case_id"].to_pylist()]
    return sum(asked) / len(asked)


def test_ablation_takes_its_own_group_by_default(corpus):
    done = ask(corpus, "ablation")
    assert done.asked.baseline == "adaptivegraph"
    assert len(done.asked.presets) == 8


def test_all_sessions_as_distractors_are_the_case_itself(corpus):
    """Stores made in memory give, with all sessions in them, exactly what the indexed corpus gives."""
    done = ask(corpus, "distractors", *PRESETS, counts=[0, 1, 1000])
    found = values(done, variant="distractors=1000", level="interaction", scope="all", baseline=None)
    assert_alike(found, measured(corpus))
    sizes = [values(done, variant=f"distractors={n}", metric="sessions")["", "sessions"] for n in (0, 1, 1000)]
    assert sizes[0] < sizes[1] < sizes[2]
    assert sizes[1] <= sizes[0] + 1  # a case may have no other session
    alone = values(done, variant="distractors=0", level="session", scope="all", baseline=None, metric="mrr")
    assert alone["bm25-raw", "mrr"] == pytest.approx(1.0)
    assert {row["x"] for row in done.results.to_pylist()} == {0.0, 1.0, 1000.0}


def test_a_second_run_does_nothing_and_says_the_same(corpus):
    first = ask(corpus, "distractors", "bm25", counts=[1])
    again = ask(corpus, "distractors", "bm25", counts=[1])
    assert sum(first.made.values()) > 0 == sum(again.made.values())
    assert again.results.equals(first.results)
    turned = [ask(corpus, "distractors", *names, counts=[0]) for names in (("bm25", "bm25-raw"), ("bm25-raw", "bm25"))]
    assert turned[1].made["experiment/distractors/distractors=0"] == 0  # whatever their order, parts are the same
    assert turned[1].asked.baseline == "bm25-raw"
    more = ask(corpus, "distractors", "bm25", counts=[1, 2])
    assert more.made["experiment/distractors/distractors=1"] == 0
    assert more.made["experiment/distractors/distractors=2"] > 0


def test_pooling_one_case_changes_nothing(corpus):
    case = Store.open(corpus).generation().table("interactions")["case_id"][0].as_py()
    done = ask(corpus, "pooled", *PRESETS, cases=[case])
    means = {name: values(done, variant=name, scope="all", level="message") for name in ("per-case", "pooled")}
    changes = values(done, baseline="per-case", level="message")
    assert means["per-case"]
    assert set(changes.values()) == {0.0}
    assert values(done, variant="pooled", metric="sessions") == values(done, variant="per-case", metric="sessions")


def test_a_pool_holds_all_and_is_no_easier(corpus):
    done = ask(corpus, "pooled", "bm25")
    held = Store.open(corpus).generation().manifest("ingest").rows("interactions")
    assert values(done, variant="pooled", metric="interactions") == {("", "interactions"): held}
    assert values(done, baseline="per-case", level="interaction")["bm25", "recall@10"] <= 0
    two = ask(corpus, "pooled", "bm25", sample=2)
    assert values(two, variant="pooled", metric="sessions")["", "sessions"] < 100
    assert {row["cases"] for row in two.results.to_pylist() if row["scope"] == "all"} == {2}


def test_store_sizes_end_at_the_whole(corpus):
    done = ask(corpus, "store-size", "bm25", "bm25-raw", shares=[0.5], bins=2)
    assert_alike(values(done, variant="share=1", level="interaction", scope="all", baseline=None), measured(corpus))
    places = {row["variant"]: row["x"] for row in done.results.to_pylist()}
    assert places["share=0.5"] < places["share=1"]
    groups = [name for name in places if name.startswith("interactions=")]
    assert groups
    asked = {row["variant"]: row["questions"] for row in done.results.to_pylist() if row["metric"] == "sessions"}
    questions = Store.open(corpus).generation().manifest("questions").rows("questions")
    assert sum(asked[name] for name in groups) == questions


def test_diagnostics_and_strictness(corpus):
    done = ask(corpus, "diagnostics", "bm25", "bm25-raw", within=3)
    rows = {(row["variant"], row["retriever"], row["metric"]): row for row in done.results.to_pylist()}
    missed = rows["within 3", "bm25", "missed of gold"]
    assert 0 <= missed["low"] <= missed["value"] <= missed["high"] <= 1
    generation = Store.open(corpus).generation()
    nodes = generation.table("nodes")
    cases = len(set(nodes["case_id"].to_pylist()))
    assert rows["graph=taggraph", "", "nodes"]["value"] == pytest.approx(nodes.num_rows / cases)
    assert rows["vocabulary", "", "tags a case"]["value"] > 1
    strict = ask(corpus, "strictness", "bm25", "bm25-raw")
    assert "interaction ~ session" in strict.results["variant"].to_pylist()


def test_experiments_hang_on_the_generation_and_not_in_its_tables(corpus):
    ask(corpus, "ablation", "bm25", "bm25-raw")
    generation = Store.open(corpus).generation()
    assert generation.tables()["question_metrics"] == ["evaluate/questions"]
    assert "experiment/ablation" in generation.tables()["results"]
    assert not any("/ablation" in path for path in gc(Store.open(corpus), dry_run=True).files)
    before = ask(corpus, "ablation", "bm25", "bm25-raw").results
    gc(Store.open(corpus))
    again = ask(corpus, "ablation", "bm25", "bm25-raw")
    assert sum(again.made.values()) == 0
    assert again.results.equals(before)


@pytest.fixture(scope="module")
def little(tmp_path_factory):
    """Three small cases; generation `other` is the same with another option of the graph."""
    folder = tmp_path_factory.mktemp("little")
    lines = []
    for n in range(3):
        lines.append(session(f"c{n}", 1, "My pottery teacher is called Bob.", "Great!", "It rains.", "Oh."))
        lines.append(session(f"c{n}", 2, "I went to Lisbon.", "Nice!"))
        lines.append(question(f"c{n}", "Who teaches pottery?", "s1"))
    own = {"rank.presets": ["bm25", "bm25-raw"], "evaluate.resamples": 200}
    corpora.run(folder / "corpus", write_lines(folder / "a.jsonl", *lines), shards=1, **own)
    driver.run(configure(folder / "corpus", name="other", **{**own, "graph.options.taggraph.max_neighbours": 4}))
    return str(folder / "corpus")


@pytest.mark.slow
def test_experiments_of_what_is_gone_do_not_stay(little, tmp_path):
    corpus = tmp_path / "corpus"
    shutil.copytree(little, corpus)
    ask(str(corpus), "ablation", "bm25", "bm25-raw")
    driver.run(configure(corpus, **{"rank.presets": ["bm25", "bm25-raw"]}))
    assert "experiment/ablation" in Store.open(str(corpus)).generation().units
    more = write_lines(tmp_path / "b.jsonl", session("c0", 3, "Something new.", "Indeed."))
    driver.run(configure(corpus, more, **{"rank.presets": ["bm25", "bm25-raw"]}), append=True)
    assert "experiment/ablation" not in Store.open(str(corpus)).generation().units


def test_two_generations_and_two_corpora(corpus, little):
    done = ask(little, "extraction", other="other")
    assert set(values(done, baseline="main").values()) == {0.0}
    own = measured(little, "session")
    assert_alike(values(done, variant="main", level="session", scope="all", baseline=None), own)
    moved = ask(little, "transfer", "bm25", "bm25-raw", baseline="bm25-raw", other=corpus)
    here, there = (m["bm25", "mrr"] - m["bm25-raw", "mrr"] for m in (own, measured(corpus, "session")))
    rows = [r for r in moved.results.to_pylist() if (r["level"], r["metric"]) == ("session", "mrr")]
    assert [row["value"] for row in rows] == pytest.approx([here, there, there - here])


@pytest.mark.parametrize(
    ("name", "settings", "kind", "says"),
    [
        ("ablatoin", {}, UsageError, "Did you mean 'ablation'"),
        ("ablation", {"x": 1}, ConfigError, "'ablation' has no options"),
        ("distractors", {"counts": [-1]}, ConfigError, "greater than or equal to 0"),
        ("pooled", {"cases": ["nobody"]}, UsageError, "no case is called 'nobody'"),
        ("extraction", {}, UsageError, "compares with another generation"),
    ],
)
def test_what_cannot_be_asked_is_told(corpus, name, settings, kind, says):
    with pytest.raises(kind) as told:
        ask(corpus, name, "bm25", **settings)
    assert says in str(told.value)


def test_what_is_missing_is_told(corpus, little, tmp_path):
    with pytest.raises(StoreError, match=r"(?s)holds no 'index/concept', which preset 'gaama' reads.*--preset gaama"):
        ask(corpus, "ablation", "bm25", "gaama")
    with pytest.raises(StoreError, match="has not ranked 'dense'"):
        ask(corpus, "transfer", "dense", other=little)
    with pytest.raises(UsageError, match="is none of the presets compared"):
        ask(corpus, "ablation", "bm25", baseline="bm26")
    with pytest.raises(UsageError, match="neither a generation of this corpus nor a corpus"):
        ask(corpus, "transfer", "bm25", other=str(tmp_path / "nowhere"))
    with pytest.raises(UsageError, match="with itself"):
        ask(corpus, "transfer", "bm25", other="main")
    with pytest.raises(UsageError, match="is about one generation"):
        ask(corpus, "ablation", "bm25", other="main")
    with pytest.raises(UsageError, match="no preset is called"):
        ask(corpus, "ablation", "bm52")
    lines = [session("c", 1, "Hello.", "Hi.")]
    corpora.run(tmp_path / "q", write_lines(tmp_path / "q.jsonl", *lines), stages=())
    with pytest.raises(UsageError, match="has no questions"):
        ask(str(tmp_path / "q"), "ablation", "bm25")
    lines.append(question("c", "What?"))
    corpora.run(tmp_path / "r", write_lines(tmp_path / "r.jsonl", *lines), stages=())
    with pytest.raises(UsageError, match="none of its 1 questions names evidence"):
        ask(str(tmp_path / "r"), "ablation", "bm25")
