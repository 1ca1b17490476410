"""`tagloom.open_corpus`, `tagloom.Memory`, `tagloom.run`."""

from datetime import UTC, datetime

import polars as pl
import pyarrow as pa
import pytest

import tagloom
from schemas.errors import StoreError, UsageError
from tests.pipelines.corpora import live, run, session, tables, write_lines


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("front")
    lines = [session(f"case{n}", 1, f"My cat number {n} is called Miso.", "A lovely name.") for n in range(4)]
    source = write_lines(folder / "a.jsonl", *lines)
    run(folder / "c", source)
    return folder / "c"


def test_open_corpus_gives_tables_and_answers(corpus):
    found = tagloom.open_corpus(str(corpus))
    assert found.cases == ["case0", "case1", "case2", "case3"]
    assert "interactions" in found.tables
    assert isinstance(found.table("interactions"), pa.Table)
    texts = found.table("interactions", columns=["interaction_id", "text"])
    assert texts["text"][2].as_py() == "My cat number 2 is called Miso.\nA lovely name."
    frame = found.table("notes", form="polars", columns=["case_id", "what"])
    assert isinstance(frame, pl.DataFrame)
    assert frame.shape == (4, 2)
    (hit,) = found.query("case2", "what is the cat called", retriever="bm25-raw", k=3)
    assert (hit.rank, hit.interaction_id, hit.session_id) == (1, "s1/0", "s1")
    assert hit.started_at == datetime(2024, 1, 1, 10, tzinfo=UTC)
    assert hit.text == "My cat number 2 is called Miso.\nA lovely name."
    with pytest.raises(UsageError):
        found.table("notes", form="pandas")
    with pytest.raises(StoreError, match="no corpus here"):
        tagloom.open_corpus(str(corpus.parent))


@pytest.mark.parametrize("retriever", ["bm25", "bm25-raw", "taggraph-tfidf", "adaptivegraph"])
def test_memory_remembers_and_answers_at_once(tmp_path, retriever):
    memory = tagloom.Memory(str(tmp_path / "m"), case="me")
    assert memory.query("anything") == []
    memory.remember("I adopted a cat called Miso from the Lisbon shelter.", "Lovely!", at=datetime(2024, 5, 1))
    memory.remember("My sister Anna moved to Porto in March.", "How is she?", at=datetime(2024, 5, 2, tzinfo=UTC))
    memory.remember("I started learning the cello.", "Great.", at=datetime(2024, 5, 3))
    assert len(memory) == 3
    hits = memory.query("Where did Anna move to?", k=2, retriever=retriever)
    assert hits[0].text.startswith("My sister Anna")
    memory.remember("I saw a green parrot in the garden.", at=datetime(2024, 5, 4))
    again = memory.query("Where was the parrot?", k=4, retriever=retriever)
    assert again[0].text == "I saw a green parrot in the garden."


def test_a_memory_is_there_for_the_next_process_and_the_next_run(corpus, tmp_path):
    memory = tagloom.Memory(str(corpus), case="case1")
    before = tables(corpus)
    memory.remember("Miso met a parrot called Rio.", "Fun!", at=datetime(2024, 2, 1))
    other = tagloom.Memory(str(corpus), case="case1")
    found = other.query("parrot")
    assert [hit.text for hit in found] == ["Miso met a parrot called Rio.\nFun!"]
    assert {hit.session_id for hit in other.query("Miso")} == {"s1", "memory-000001"}
    assert tables(corpus) == before  # no part of any case was built for it
    result = run(corpus)
    assert result.made["extract"] == 1
    assert tagloom.open_corpus(str(corpus)).query("case1", "parrot")[0].interaction_id == "memory-000001/0"
    assert [hit.text for hit in tagloom.Memory(str(corpus), case="case1").query("parrot")] == [found[0].text]
    assert set(run(corpus).made.values()) == {0}


def test_a_memory_equals_a_run_over_the_same_sessions(tmp_path):
    memory = tagloom.Memory(str(tmp_path / "m"), case="me")
    for day, text in enumerate(("I adopted a cat.", "The cat is called Miso.", "I sold my bike to Anna."), start=1):
        memory.remember(text, "Noted.", at=datetime(2024, 5, day))
    asked = {p: memory.query("Who has my bike?", retriever=p) for p in ("bm25", "adaptivegraph")}
    run(tmp_path / "m")
    for preset, hits in asked.items():
        assert tagloom.open_corpus(str(tmp_path / "m")).query("me", "Who has my bike?", retriever=preset) == hits
    assert live(tmp_path / "m")


def test_hostile_cases_and_texts(tmp_path):
    memory = tagloom.Memory(str(tmp_path / "m"), case="../../etc/passwd")
    memory.remember('line\u2028one\n{"case_id": "x", "question": "y"}\x00', "<|im_end|>")
    assert len(memory) == 1
    (log,) = (tmp_path / "m" / "memory").glob("*.jsonl")
    assert log.name.startswith("______etc_passwd.")
    with pytest.raises(UsageError, match="nothing to remember"):
        memory.remember(" ", "")
    with pytest.raises(UsageError, match="needs the name"):
        tagloom.Memory(str(tmp_path / "m"), case="")


@pytest.mark.parametrize("case", ["名前", "_bob", "@ann", "/x"])
def test_memories_of_every_name_reach_a_run(tmp_path, case):
    tagloom.Memory(str(tmp_path / "m"), case=case).remember("I live in Bern \ud800.", "Noted.")
    result = run(tmp_path / "m")
    assert result.manifests["ingest"].rows("interactions") == 1
    assert tagloom.open_corpus(str(tmp_path / "m")).cases == [case]


@pytest.mark.parametrize(("arguments", "says"), [
    ({"user": 5}, "5 is no text"),
    ({"user": "x", "at": "2024-05-01"}, "is no datetime"),
    ({"user": None, "assistant": None}, "both texts are empty"),
])  # fmt: skip
def test_wrong_arguments_are_usage_errors(tmp_path, arguments, says):
    with pytest.raises(UsageError, match=says):
        tagloom.Memory(str(tmp_path / "m"), case="me").remember(**arguments)
    with pytest.raises(UsageError, match="as text"):
        tagloom.Memory(str(tmp_path / "m"), case=5)


def test_a_line_that_a_kill_cut_does_not_spoil_the_next(tmp_path):
    memory = tagloom.Memory(str(tmp_path / "m"), case="me")
    memory.remember("I adopted a cat.")
    (log,) = (tmp_path / "m" / "memory").glob("*.jsonl")
    log.write_bytes(log.read_bytes() + b'{"case_id": "me", "sess')
    memory.remember("I adopted a dog.")
    assert sorted(hit.text for hit in memory.query("adopted", retriever="bm25-raw")) == [
        "I adopted a cat.",
        "I adopted a dog.",
    ]


def test_run_from_python(tmp_path):
    source = write_lines(tmp_path / "a.jsonl", session("a", 1, "I have a cat.", "Good."))
    settings = {"compute": {"workers": 0}, "rank": {"presets": ["bm25"]}}
    result = tagloom.run({"inputs": [str(source)], **settings}, corpus=str(tmp_path / "c"))
    assert result.manifests["ingest"].rows("interactions") == 1
