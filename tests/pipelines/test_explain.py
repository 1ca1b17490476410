"""`tagloom explain` over a corpus on disk."""

import json
import xml.etree.ElementTree as ET

import pytest

from jobs import explain_view
from pipelines.explain import explain
from pipelines.query import answer
from pipelines.store import Store
from schemas.errors import StoreError, UsageError
from tests.pipelines import corpora
from tests.pipelines.corpora import question, session, write_lines

TEXT = "What is the cat called, and where do we go?"
PRESETS = ["bm25", "bm25-stem", "taggraph-tfidf", "adaptivegraph", "adaptivegraph-undirected"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("explained")
    lines = [
        session("alice", 1, "My cat is called Miso.", "A lovely name.", "We plan a week in Lisbon.", "Take the tram."),
        session("alice", 2, "Miso the cat slept all day.", "As cats do.", "Nothing else.", "Quite."),
        session("bob", 1, "I like <b>tea</b>.", "Me too."),
        {**question("alice", "What is the cat called?", "s1"), "question_id": "q1"},
        {**question("alice", "And where do we go in Lisbon?", "s1"), "question_id": "q2"},
    ]
    corpora.run(folder / "c", write_lines(folder / "a.jsonl", *lines), **{"shards": 2, "rank.presets": PRESETS})
    return str(folder / "c")


@pytest.fixture(scope="module")
def generation(corpus):
    return Store.open(corpus).generation("main")


@pytest.mark.parametrize("retriever", PRESETS)
def test_explains_what_a_query_returns(generation, retriever):
    for hit in answer(generation, "alice", TEXT, retriever, 9).to_pylist():
        told = explain(generation, "alice", retriever, text=TEXT, rank=hit["rank"])
        assert (told.interaction_id, told.rank, told.text) == (hit["interaction_id"], hit["rank"], hit["text"])
        assert told.explanation.score == hit["score"]
        assert abs(told.explanation.remainder) < 1e-8
        again = explain(generation, "alice", retriever, text=TEXT, interaction=hit["interaction_id"])
        assert again == told


def test_explains_what_a_run_holds(generation):
    runs = generation.table("runs").to_pylist()
    own = [row for row in runs if (row["question_id"], row["retriever"]) == ("q2", "adaptivegraph")]
    assert own
    for row in own:
        told = explain(generation, "alice", "adaptivegraph", question_id="q2", rank=row["rank"])
        assert (told.interaction_id, told.explanation.score) == (row["interaction_id"], row["score"])
        assert (told.question_id, told.question, told.retrieved) == ("q2", "And where do we go in Lisbon?", len(own))


def test_nodes_have_names(generation):
    told = explain(generation, "alice", "taggraph-tfidf", text="Lisbon", rank=1)
    steps = told.explanation.parts[0].steps
    assert steps[0].name.endswith("lisbon")
    assert (steps[-1].kind, steps[-1].name) == ("file", told.interaction_id)
    assert steps[-1].text.startswith("We plan a week in Lisbon.")


def test_what_is_not_retrieved_is_explained_too(generation):
    told = explain(generation, "alice", "bm25", text="tram", interaction="s2/1")
    assert (told.rank, told.retrieved, told.explanation.score) == (None, 1, 0)
    assert told.explanation.remarks[1] == "only in other files (how many): tram (1)"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"case": "alise"}, "Did you mean 'alice'?"),
        ({"retriever": "bm52"}, "Did you mean 'bm25'?"),
        ({"retriever": "taggraph-tfidf@depth=1"}, "no preset is called"),
        ({"rank": 99}, "there is no rank 99"),
        ({"rank": 0}, "there is no rank 0"),
        ({"interaction": "s1/7"}, "Did you mean 's1/"),
        ({"interaction": ""}, "has no interaction ''"),
        ({"text": None, "question_id": "q3"}, "Questions of this case: q1, q2"),
        ({"text": None, "question_id": "q1", "case": "bob"}, "This case has none; give a text."),
        ({"text": ""}, "retrieves 0 for this question"),
    ],
)
def test_mistakes(generation, given, says):
    arguments = {"case": "alice", "retriever": "bm25", "text": TEXT, **given}
    case, retriever = arguments.pop("case"), arguments.pop("retriever")
    with pytest.raises(UsageError) as told:
        explain(generation, case, retriever, **arguments)
    assert says in str(told.value)


def test_a_preset_that_was_not_indexed_is_named(corpus, tmp_path):
    alone = write_lines(tmp_path / "b.jsonl", session("bob", 1, "I like tea.", "Me too."))
    corpora.run(tmp_path / "c", alone, stages=[])
    with pytest.raises(StoreError, match="holds no 'index/note'"):
        explain(Store.open(str(tmp_path / "c")).generation("main"), "bob", "bm25", text="tea")


def show(corpus, **given):
    arguments = {
        "corpus": corpus,
        "name": "main",
        "case": "alice",
        "text": TEXT,
        "question_id": None,
        "interaction": None,
        "retriever": "adaptivegraph-undirected",
        "rank": 1,
        "k": 3,
        "form": "text",
        "to": None,
    }
    explain_view.explain(**{**arguments, **given})


def test_shown_as_text_json_and_drawing(corpus, capsys, tmp_path):
    show(corpus)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"question     {TEXT}"
    assert lines[1].startswith("interaction  s")
    assert lines[2].startswith("adaptivegraph-undirected: rank 1, ")
    assert lines[4].startswith("PageRank")
    show(corpus, form="json")
    told = json.loads(capsys.readouterr().out)
    assert set(told) == {
        "case",
        "question_id",
        "question",
        "retriever",
        "interaction_id",
        "rank",
        "retrieved",
        "text",
        "explanation",
    }
    parts = told["explanation"]["parts"]
    assert sum(part["value"] for part in parts) + told["explanation"]["remainder"] == pytest.approx(
        told["explanation"]["score"]
    )
    file = tmp_path / "why.svg"
    show(corpus, form="svg", to=str(file))
    assert capsys.readouterr().out == f"svg -> {file}\n"
    assert ET.fromstring(file.read_text()).get("role") == "img"
    with pytest.raises(UsageError, match="is there already"):
        show(corpus, form="svg", to=str(file))
    show(corpus, form="svg", to=str(file), overwrite=True)


def test_text_of_what_is_not_retrieved(corpus, capsys):
    show(corpus, text="tram", retriever="bm25", interaction="s2/1")
    out = capsys.readouterr().out
    assert "bm25: rank none, 1 retrieved, case alice" in out
    assert "note: no word that counts is in this file" in out


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"form": "png"}, "no form is called 'png'"),
        ({"text": None}, "give a question as text"),
        ({"question_id": "q1"}, "give a question as text"),
        ({"case": None}, "the corpus has 2 cases"),
        ({"to": "."}, "is a folder"),
        ({"to": "s3://x/y.svg"}, "is not a local path"),
        ({"name": "mian"}, "no generation is called 'mian'"),
    ],
)
def test_mistakes_at_the_terminal(corpus, given, says):
    with pytest.raises((UsageError, StoreError)) as told:
        show(corpus, **given)
    assert says in str(told.value)


def test_a_report_has_some_of_them(corpus):
    told = explain_view.for_report(Store.open(corpus), 2)
    first = told("main", "alice", "q1", "bm25")
    assert first.startswith("s")
    assert ": BM25 over the interaction and its note: " in first
    assert told("main", "alice", "q1", "no-such-preset") is None
    assert told("main", "alice", "q2", "adaptivegraph").count("walks along") >= 1
    assert told("main", "alice", "q1", "bm25") is None
