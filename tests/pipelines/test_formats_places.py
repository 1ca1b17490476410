"""Files whose names say nothing, and stories without evidence by id, from input to metrics."""

import json
from datetime import UTC

import fsspec
import pytest

from pipelines.sources import find_sources
from pipelines.store import Store
from tests.pipelines.corpora import run
from transforms.formats import place, read_source
from transforms.metrics import GOLD_LEVELS


@pytest.mark.parametrize(
    ("path", "end"),
    [
        ("/data/beam/100K/3/chat.json", "100K/3/chat.json"),
        ("/data/beam/100K/3/probing_questions.json", "100K/3/probing_questions.json"),
        ("/100K/3/probing_questions/probing_questions.json.gz", "100K/3/probing_questions/probing_questions.json.gz"),
        ("3/chat_trunecated.json", "3/chat_trunecated.json"),
        ("chat.json", "chat.json"),
        ("/data/wechat.json", ""),
        ("/data/2wiki/dev.json", "2wiki/dev.json"),
        ("/data/2wiki/dev_corpus.json.zst", "2wiki/dev_corpus.json.zst"),
        ("/data/2wiki/mydev.json", ""),
        ("/data/logs.jsonl", ""),
    ],
)
def test_places(path, end):
    assert place(path) == end


@pytest.fixture
def chats(tmp_path):
    """BEAM's layout: two sizes with a chat 1 each."""
    for size in ("100K", "500K"):
        folder = tmp_path / "beam" / size / "1"
        (folder / "probing_questions").mkdir(parents=True)
        turns = [
            [
                {"role": "user", "id": 0, "content": f"I live in {size}."},
                {"role": "assistant", "id": 1, "content": "ok"},
            ]
        ]
        (folder / "chat.json").write_text(json.dumps([{"batch_number": 1, "turns": turns}]))
        asked = {"information_extraction": [{"question": "Where do I live?", "answer": size, "source_chat_ids": [0]}]}
        (folder / "probing_questions" / "probing_questions.json").write_text(json.dumps(asked))
    return tmp_path / "beam"


@pytest.mark.parametrize(
    "inputs",
    [
        [""],
        ["100K", "500K"],
        ["100K/1", "500K/1"],
        ["*/*/*.json", "*/*/*/*.json"],
        ["100K/1/chat.json", "500K/1/chat.json", "*/1/probing_questions/*"],
    ],
)
def test_beam_cases_are_the_same_however_files_are_named(chats, inputs):
    found = find_sources([str(chats / one) if one else str(chats) for one in inputs])
    assert len(found) == 4 and all("100K/1/" in one.name or "500K/1/" in one.name for one in found)
    cases = set()
    for one in found:
        with fsspec.open(one.uri) as stream:
            cases |= {record.case_id for record in read_source(stream, one.name, "auto", "auto", UTC).records}
    assert cases == {"100K-1", "500K-1"}


def test_names_on_other_storage():
    fs = fsspec.filesystem("memory")
    fs.pipe("/places/100K/1/chat.json", b"[]")
    try:
        (one,) = find_sources(["memory://places/100K/1/chat.json"])
        assert one.name == "100K/1/chat.json"
    finally:
        fs.rm("/places", recursive=True)


STORIES = """
story_id: a
batches:
- {batch: 1, time: Monday 9:00 AM, user_input: My cat Miso moved to Bern with me.}
- {batch: 2, time: Tuesday 8:00 PM, user_input: The tram to work takes an hour.}
- {batch: 3, time: Friday 8:00 PM, user_input: My cat likes the new flat.}
questions:
- {question_id: q1, question: Where does my cat live?, expected_contains: [miso, bern]}
- {question_id: q2, question: How long is the way to work?, expected_contains: [hour, parrot]}
---
story_id: b
batches:
- {batch: 1, user_input: I bought a red bicycle.}
questions:
- {question_id: q1, question: What colour is my bicycle?, expected_contains: red}
"""


def test_stories_and_chats_from_input_to_metrics(tmp_path, chats):
    (tmp_path / "stories.yaml").write_text(STORIES)
    run(tmp_path / "corpus", tmp_path / "stories.yaml", chats, **{"rank.presets": ["bm25-raw"]})
    generation = Store.open(str(tmp_path / "corpus")).generation("main")
    # Chat and questions of a folder meet in one case.
    asked = [q for q in generation.table("questions").to_pylist() if q["gold_interaction_ids"]]
    assert sorted((q["case_id"], q["answer"], *q["gold_interaction_ids"]) for q in asked) == [
        *(("100K-1", "100K", "1/0"), ("500K-1", "500K", "1/0")),
    ]
    # Stories are judged by the texts that they expect, and by nothing else.
    judged = [r for r in generation.table("question_metrics").to_pylist() if r["metric"] == "recall@10"]
    assert {(r["case_id"], r["question_id"], r["level"]) for r in judged if r["case_id"] in "ab"} == {
        *(("a", "q1", "contains"), ("a", "q1", "contains_any"), ("a", "q2", "contains_any")),
        *(("b", "q1", "contains"), ("b", "q1", "contains_any")),
    }
    assert all(r["value"] == 1.0 for r in judged)
    sizes = {
        r["level"]: (r["questions"], r["cases"]) for r in generation.table("metrics").to_pylist() if r["scope"] == "all"
    }
    assert sizes == dict.fromkeys(GOLD_LEVELS, (2, 2)) | {"contains": (2, 2), "contains_any": (3, 2)}
