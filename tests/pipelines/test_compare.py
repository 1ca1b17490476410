import pyarrow.parquet as pq
import pytest

from pipelines.compare import compare
from pipelines.store import Store
from schemas.errors import StoreError, UsageError
from schemas.tables import NOTE_FIELDS, build
from tests.pipelines import corpora
from tests.pipelines.corpora import question, session, write_lines

TABLES = ("summary", "tags", "metrics", "questions")
TOPICS = ("sailing", "pottery", "chess", "bread", "tulips")


def run(corpus, *inputs, presets=("bm25",), **settings):
    return corpora.run(corpus, *inputs, **{"shards": 3, "rank.presets": list(presets), **settings})


def lines(*, messages=True):
    for n, topic in enumerate(TOPICS):
        case = f"case{n}"
        yield session(case, 1, f"I went to Lisbon with Anna for {topic}.", "Nice!", "The weather was grey.", "Oh.")
        yield session(case, 2, f"My {topic} teacher is called Bob.", "Great!")
        for text, gold in ((f"Who teaches {topic}?", "s2"), ("Where did I go with Anna?", "s1")):
            yield {**question(case, text, gold), "gold_message_ids": [f"{gold}:0"] if messages else []}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Generations main (lexical) and other: the notes of case0 gone, one note of case1 failed, a tag more in case2."""
    folder = tmp_path_factory.mktemp("compare")
    where = folder / "corpus"
    run(where, write_lines(folder / "a.jsonl", *lines()), presets=("bm25", "bm25-raw", "adaptivegraph"))
    notes = Store.open(str(where)).generation("main").table("notes")
    rows = notes.to_pylist()
    for row in rows:
        if row["case_id"] == "case0" or (row["case_id"], row["interaction_id"]) == ("case1", "s1/0"):
            row.update({name: [] for name in NOTE_FIELDS}, summary="", error="gone")
            row["status"] = "empty" if row["case_id"] == "case0" else "failed"
        if (row["case_id"], row["interaction_id"]) == ("case2", "s1/0"):
            row["extra"] = ["zebra"]
    columns = {name: [row[name] for row in rows] for name in notes.column_names}
    pq.write_table(build("notes", columns), folder / "notes.parquet")
    replay = {"extract.extractor": "replay", "extract.options.notes": str(folder / "notes.parquet")}
    run(where, name="other", presets=("adaptivegraph", "bm25"), **replay)
    return where


def opened(corpus):
    return Store.open(str(corpus))


def figure(compared, section, name, scope=""):
    for row in compared.summary.to_pylist():
        if (row["section"], row["name"], row["scope"]) == (section, name, scope):
            return row
    raise AssertionError(f"no figure {section} {name} {scope}")


def test_two_extractors_side_by_side(corpus):
    found = compare(opened(corpus), "main", "other")
    assert (found.a.extractor, found.b.extractor) == ("lexical", "replay")
    assert (found.cases, found.level, found.remarks) == (None, "interaction", ())
    assert figure(found, "interactions", "cases")["both"] == 5
    assert figure(found, "interactions", "interactions")["both"] == 15
    assert [figure(found, "notes", "notes", status)["b"] for status in ("ok", "empty", "failed")] == [11, 3, 1]
    assert figure(found, "agreement", "interactions")["both"] == 14
    assert figure(found, "agreement", "recall", "extra")["both"] is None
    assert figure(found, "agreement", "precision", "extra")["both"] == 0.0
    assert found.tags.to_pylist()[0] | {"difference": 1, "uses_b": 1} == {
        "field": "extra",
        "tag": "zebra",
        "uses_a": 0,
        "uses_b": 1,
        "difference": 1,
        "cases_a": 0,
        "cases_b": 1,
    }
    # Without tags, the three interactions of case0 have topics of their own.
    assert figure(found, "graph", "nodes:tag", "taggraph")["difference"] < 0
    assert figure(found, "graph", "nodes:file", "taggraph")["difference"] == 0
    assert figure(found, "cost", "seconds")["a"] > 0
    assert figure(found, "cost", "requests")["a"] is None
    # Presets in the order of A, those that both have.
    assert list(dict.fromkeys(found.metrics["retriever"].to_pylist())) == ["bm25", "adaptivegraph"]
    assert figure(found, "questions", "questions")["both"] == 10


def test_metrics_are_those_of_the_generations(corpus):
    store = opened(corpus)
    found = {(row["retriever"], row["metric"]): row for row in compare(store, "main", "other").metrics.to_pylist()}
    for side, name in (("mean_a", "main"), ("mean_b", "other")):
        for row in store.generation(name).table("metrics").to_pylist():
            if (row["level"], row["scope"]) == ("interaction", "all") and (row["retriever"], row["metric"]) in found:
                assert found[row["retriever"], row["metric"]][side] == pytest.approx(row["mean"])
    assert len(found) == 8


def test_questions_name_gold_and_what_came_first(corpus):
    found = compare(opened(corpus), "main", "other", presets=["bm25"])
    rows = {(row["case_id"], row["question"]): row for row in found.questions.to_pylist()}
    row = rows["case3", "Who teaches bread?"]
    assert (row["gold_ids"], row["gold_text"]) == (["s2/0"], "My bread teacher is called Bob.\nGreat!")
    assert (row["rank_a"], row["first_a"], row["first_a_text"]) == (1, "s2/0", row["gold_text"])
    assert set(found.questions["retriever"].to_pylist()) == {"bm25"}
    assert found.metrics.num_rows == 4


def test_a_generation_and_itself(corpus):
    found = compare(opened(corpus), "other", "other")
    assert {row["difference"] for row in found.summary.to_pylist()} == {0.0, None}
    assert set(found.tags["difference"].to_pylist()) == set(found.questions["difference"].to_pylist()) == {0}
    assert set(found.metrics["p_holm"].to_pylist()) == {1.0}
    assert figure(found, "agreement", "jaccard_mean")["both"] == 1.0


def test_same_input_same_tables(corpus):
    one, two = (compare(opened(corpus), "main", "other") for _ in range(2))
    assert all(getattr(one, name).equals(getattr(two, name)) for name in TABLES)


def test_the_other_way_round(corpus):
    there, back = compare(opened(corpus), "main", "other"), compare(opened(corpus), "other", "main")
    for section, name, scope in (
        ("tags", "gini_mean", ""),
        ("graph", "degree_mean", "taggraph"),
        ("graph", "edges:tag_topic", "taggraph"),
        ("metrics", "mrr", "adaptivegraph"),
        ("cost", "seconds", ""),
    ):
        one, two = figure(there, section, name, scope), figure(back, section, name, scope)
        assert (one["a"], one["b"], one["difference"]) == (two["b"], two["a"], -two["difference"])
    for name in ("gained", "lost", "same"):
        mirrored = {"gained": "lost", "lost": "gained"}.get(name, name)
        for preset in ("bm25", "adaptivegraph"):
            mine = figure(there, "questions", name, preset)["both"]
            assert mine == figure(back, "questions", mirrored, preset)["both"]


def test_some_cases_only(corpus):
    found = compare(opened(corpus), "main", "other", cases=["case1", "case4"])
    assert found.cases == ("case1", "case4")
    assert figure(found, "interactions", "interactions")["both"] == 6
    assert figure(found, "notes", "notes", "failed")["b"] == 1
    assert figure(found, "graph", "nodes:file", "taggraph")["a"] == 6
    assert {row["case_id"] for row in found.questions.to_pylist()} == {"case1", "case4"}
    assert set(found.metrics["cases"].to_pylist()) == {2}
    alone = compare(opened(corpus), "main", "other", cases=["case3"])
    assert set(alone.metrics["cases"].to_pylist()) == {1}
    assert figure(alone, "agreement", "jaccard_mean")["both"] == 1.0


def test_an_extractor_for_some_cases_is_compared_on_these(corpus, tmp_path):
    store = opened(corpus)
    heads = store.heads()
    head = heads["other"]
    nested = {"extractor": "replay", "cases": ["case2"], "rest": {"extractor": "lexical"}}
    extract = {"extractor": "openai", "model": "m", "cases": ["case1"], "rest": nested}
    store.storage.write_json(
        "heads.json", {**heads, "tried": {**head, "config": {**head["config"], "extract": extract}}}
    )
    found = compare(store, "main", "tried")
    assert found.cases == ("case1", "case2")
    assert "compared are only the cases that an extractor is set for: 2 " in found.remarks[0]
    assert found.b.extractor == "openai m for 1 cases, else replay for 1 cases, else lexical"
    assert compare(store, "main", "tried", all_cases=True).cases is None
    assert compare(store, "tried", "main", cases=["case0"]).cases == ("case0",)


@pytest.mark.parametrize(
    ("chosen", "says"),
    [
        ({"cases": ["case7"]}, "no case is called 'case7'\n  Did you mean 'case"),
        ({"cases": ["case1"], "all_cases": True}, "Leave --all-cases out"),
        ({"presets": ["bm52"]}, "Did you mean 'bm25'? In both: bm25, adaptivegraph."),
        ({"presets": ["bm25-raw"]}, "preset 'bm25-raw' is not in both generations"),
    ],
)
def test_what_is_not_there_is_refused(corpus, chosen, says):
    with pytest.raises(UsageError) as fault:
        compare(opened(corpus), "main", "other", **chosen)
    assert says in str(fault.value)


def test_generations_that_are_not_there_or_not_run(corpus, tmp_path):
    with pytest.raises(StoreError, match="no generation is called 'mian'"):
        compare(opened(corpus), "main", "mian")
    where = tmp_path / "c"
    file = write_lines(tmp_path / "a.jsonl", *lines())
    run(where, file, name="raw", stages=())
    run(where, file, name="noted", stages=("extract",))
    run(where, file, name="whole")
    with pytest.raises(StoreError, match="generation 'raw' holds no 'extract'"):
        compare(opened(where), "whole", "raw")
    found = compare(opened(where), "noted", "whole")
    assert found.remarks == ("rankings are not compared: generation 'noted' has not been evaluated",)
    assert (found.level, found.metrics.num_rows, found.questions.num_rows) == ("", 0, 0)
    assert figure(found, "graph", "nodes", "taggraph")["a"] is None
    assert figure(found, "graph", "nodes", "taggraph")["b"] > 0
    assert figure(found, "agreement", "jaccard_mean")["both"] == 1.0


def test_logs_that_are_in_one_generation_alone(corpus, tmp_path):
    where = tmp_path / "c"
    run(where, write_lines(tmp_path / "a.jsonl", *lines(messages=False)))
    more = write_lines(tmp_path / "b.jsonl", session("case9", 1, "My tulips bloom.", "Lovely."))
    run(where, more, append=True, name="more", **{"rank.depth": 50})
    found = compare(opened(where), "main", "more")
    interactions = figure(found, "interactions", "interactions")
    assert (interactions["a"], interactions["b"], interactions["both"]) == (15, 16, 15)
    assert found.remarks == (
        "the rankings were cut at different depths: 100 and 50",
        "the interactions are not the same on both sides",
    )
    assert figure(found, "questions", "questions")["both"] == 10
    assert found.level == "session"
    assert found.questions.to_pylist()[0]["gold_ids"] in (["s1"], ["s2"])


def test_without_questions_and_without_interactions(tmp_path):
    where = tmp_path / "c"
    run(where, write_lines(tmp_path / "a.jsonl", session("c", 1, "Hello there.", "Hi.")))
    found = compare(opened(where), "main", "main")
    assert found.remarks == ("rankings are not compared: there are no questions with gold on both sides",)
    assert figure(found, "interactions", "interactions")["both"] == 1
    nothing = tmp_path / "e"
    run(nothing, write_lines(tmp_path / "e.jsonl", session("c", 1)))
    empty = compare(opened(nothing), "main", "main")
    assert figure(empty, "interactions", "interactions")["both"] == 0
    assert empty.tags.num_rows == 0
