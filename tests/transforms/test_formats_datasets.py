"""ATANT, BEAM and multi-hop questions: files written for the tests, and the real ones where they are at hand."""

import io
import json
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest

from transforms.formats import READERS, read_source
from transforms.formats._yaml import LIMIT, documents, load
from transforms.fragments import fragments
from transforms.merge import merge
from transforms.records import Question, Reject, Session

DATA = Path(__file__).parents[3] / "shared" / "data"
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="the benchmark files are not beside the repository")


def read(data, source="file", format="auto"):
    raw = data if isinstance(data, bytes) else data.encode() if isinstance(data, str) else json.dumps(data).encode()
    reading = read_source(io.BytesIO(raw), source, format, "auto", UTC)
    records = list(reading.records)
    kinds = ([r for r in records if isinstance(r, kind)] for kind in (Session, Question, Reject))
    return *kinds, reading


def build(*paths):
    """Read files as a run does, each named by its last three steps."""
    groups = []
    for path in paths:
        with path.open("rb") as stream:
            reading = read_source(stream, "/".join(path.parts[-3:]), "auto", "auto", UTC)
            groups += [g[0] for g in fragments(reading.records, path.name, reading.unit, 1, 16 << 20)]
    return merge(groups)


def said(session):
    return [one.content for one in session.messages]


# -- ATANT ------------------------------------------------------------------------------------------------------------

STORY = """
story_id: LIFE-001
story_name: A new flat
category: life
batches:
  - batch: 1
    time: Monday 9:00 AM
    user_input: |
      I moved to Bern.

      - The flat has 2 rooms.
    expected_stores: [Bern]
  - batch: 2
    time: 9:30
    user_input: "What is the capital of Peru?"   # general knowledge, a trap
questions:
  - question_id: q1
    question: Where do I live?
    expected_contains: [Bern, 2]
  - question: When?
    expected_contains: yes
    category: time
"""


def test_atant_story():
    sessions, questions, rejects, reading = read(STORY)
    assert (reading.reader.NAME, reading.unit, rejects) == ("atant", "exchange", [])
    assert [(s.case_id, s.session_id, said(s), s.started_at, s.started_at_text, s.offset) for s in sessions] == [
        ("LIFE-001", "1", ["I moved to Bern.\n\n- The flat has 2 rooms.\n"], None, "Monday 9:00 AM", 1),
        ("LIFE-001", "2", ["What is the capital of Peru?"], None, "9:30", 1),
    ]
    assert questions == [
        Question("LIFE-001", "q1", "Where do I live?", "life", expected_contains=["Bern", "2"], offset=1),
        # Scalars are what is written: yes is no boolean, 9:30 no number of seconds.
        Question("LIFE-001", "q2", "When?", "time", expected_contains=["yes"], offset=1),
    ]
    assert reading.context.repairs == {"unparsed_time": 2}


def test_atant_batches_keep_the_order_of_the_story():
    reading = read_source(io.BytesIO(STORY.replace("9:00 AM", "9:00 PM").encode()), "file", "auto", "auto", UTC)
    result = merge([g[0] for g in fragments(reading.records, "file", reading.unit, 1, 1 << 20)])
    assert result.interactions["interaction_id"].to_pylist() == ["1/0", "2/0"]
    assert result.questions["expected_contains"].to_pylist() == [["Bern", "2"], ["yes"]]


def story(key, more=""):
    return f"story_id: {key}\nbatches:\n- batch: 1\n  user_input: I am {key}.\n{more}"


def indented(text):
    return "- " + text.rstrip("\n").replace("\n", "\n  ") + "\n"


@pytest.mark.parametrize(
    ("data", "places"),
    [
        ("---\n".join(map(story, "abc")), [1, 5, 10]),
        ("%YAML 1.2\n--- # first\n" + "...\n---\n".join(map(story, "abc")) + "...\n", [2, 8, 14]),
        ("# stories\n\n" + "".join(indented(story(k)) for k in "abc"), [1, 7, 11]),
        ("stories:\n" + "".join(indented(story(k)) for k in "abc"), [1, 1, 1]),
        (
            json.dumps([{"story_id": k, "batches": [{"batch": 1, "user_input": f"I am {k}."}]} for k in "abc"]),
            [1, 1, 1],
        ),
        ("---\n".join(map(story, "abc")) + "--", [1, 5, 10]),
        ("\r\n---\r\n".join(story(k).replace("\n", "\r\n") for k in "abc"), [1, 6, 12]),
    ],
)
def test_atant_files_of_several_stories(data, places):
    sessions, _, rejects, reading = read(data)
    assert [(s.case_id, said(s)) for s in sessions] == [(k, [f"I am {k}."]) for k in "abc"]
    assert ([s.offset for s in sessions], rejects, reading.reader.NAME) == (places, [], "atant")


@pytest.mark.parametrize("frame", [("---\n".join, str), ("".join, indented)])
@pytest.mark.parametrize(
    ("bad", "reason", "detail"),
    [
        ("story_id: b\nbatches: [unclosed\n", "not_yaml", "line"),
        ("story_id: b\nbatches:\n\t- x\n", "not_yaml", "line"),
        ("story_id: b\nbatches: &a\n- user_input: x\nquestions: *a\n", "not_yaml", "alias"),
        ("story_id: b\nbatches: " + "[" * 100 + "]" * 100 + "\n", "not_yaml", "nested too deep"),
        ("story_id: b\nbatches: {[x]: y}\n", "not_yaml", "a key that is no text"),
        ("story_id: b\n", "missing_field", "b: 'batches' is a null, not a list"),
        ("story_id:\nbatches: []\n", "missing_field", "no 'story_id'"),
        ("story_id: b\nbatches: [{time: Monday}]\n", "missing_field", "b, batches 1: no 'user_input'"),
        ("story_id: b\nbatches: [5]\n", "wrong_type", "b, batches 1: a string, not an object"),
        ("story_id: b\nbatches: []\nquestions: [{question: }]\n", "missing_field", "b, questions 1: no text"),
        (
            "story_id: b\nbatches: []\nquestions: [{question: x, expected_contains: [[y]]}]\n",
            "wrong_type",
            "list of texts",
        ),
        ("story_id: [b]\nbatches: []\n", "wrong_type", "'story_id' is a list"),
    ],
)
def test_atant_one_bad_story_costs_itself(frame, bad, reason, detail):
    joined, made = frame
    sessions, _, rejects, _ = read(joined([made(story("a")), made(bad), made(story("c"))]), format="atant")
    assert [s.case_id for s in sessions] == ["a", "c"]
    assert [r.reason for r in rejects] == [reason] and detail in rejects[0].detail
    assert rejects[0].sample.startswith(("story_id", "- story_id", "---"))


def test_yaml_makes_no_objects():
    bad = "story_id: !!python/object/apply:os.system [echo]\nbatches: !!set {a: , b: }\n"
    assert load(bad.encode(), Counter()) == {"story_id": ["echo"], "batches": {"a": None, "b": None}}
    assert load(b'a: "null"\nb: null\nc: ~\nd: ""\ne: 0x1F\nf: 2024-01-01\n<<: x', Counter()) == {
        **{"a": "null", "b": None, "c": None, "d": ""},
        **{"e": "0x1F", "f": "2024-01-01", "<<": "x"},
    }


def test_yaml_bad_characters_are_put_right_and_counted():
    counts = Counter()
    assert load(b"a: x\x00y\x07z", counts) == {"a": "x\ufffdy\ufffdz"}
    assert load("a: caf\u00e9".encode("cp1252"), counts) == {"a": "caf\u00e9"}
    assert counts == {"nul_character": 1, "control_character": 1, "cp1252": 1}


@pytest.mark.parametrize("bomb", [b"[" * LIMIT, b"- " * (LIMIT // 2), b"{a: " * (LIMIT // 4), b"? " * (LIMIT // 2)])
def test_yaml_bombs_end_soon(bomb):
    with pytest.raises(ValueError, match=r"nested too deep|\w"):
        load(bomb[:LIMIT], Counter())


def test_yaml_pieces_are_bounded():
    pieces = list(documents(io.BytesIO(b"a: 1\n---\n" + b"x" * (2 * LIMIT) + b"\n" + b"y\n" * 10 + b"---\nb: 2\n")))
    assert [(p.offset, p.fault, len(p.data) < 1000) for p in pieces] == [
        (1, "", True),
        (2, "too_large", True),
        (14, "", True),
    ]
    _, _, rejects, _ = read(b"story_id: a\nbatches: " + b"x" * LIMIT, format="atant")
    assert [r.reason for r in rejects] == ["unreadable"]


# -- BEAM -------------------------------------------------------------------------------------------------------------


def batch(number, *texts, **more):
    turns = [[{"role": "user" if n % 2 == 0 else "assistant", "id": n, "content": t} for n, t in enumerate(texts)]]
    return {"batch_number": number, "turns": turns, "time_anchor": None, **more}


def test_beam_chat():
    first = batch(1, "Plan it ->-> 1,1", "I will ->->  1,1", "And this -> that", "ok")
    first["turns"][0][0]["time_anchor"] = "March-15-2024"
    first["turns"].append([{"role": "user", "id": 4, "content": "later ->-> 1,N/A", "time_anchor": "April-01-2024"}])
    first["turns"].append([{"role": "assistant", "id": 5, "content": "see ->-> 1,2 there"}])
    sessions, _, rejects, reading = read([first, batch(2, "x ->-> 2,14)")], "logs/100K/3/chat.json")
    assert (reading.reader.NAME, reading.unit, rejects) == ("beam", "exchange", [])
    march, april = datetime(2024, 3, 15, tzinfo=UTC), datetime(2024, 4, 1, tzinfo=UTC)
    assert [(s.case_id, s.session_id, s.started_at, s.started_at_text) for s in sessions] == [
        ("100K-3", "1", march, "March-15-2024"),
        ("100K-3", "2", None, None),
    ]
    assert [(m.id, m.content, m.at) for m in sessions[0].messages] == [
        *(("0", "Plan it", march), ("1", "I will", march), ("2", "And this -> that", march), ("3", "ok", march)),
        *(("4", "later", april), ("5", "see ->-> 1,2 there", april)),
    ]
    assert said(sessions[1]) == ["x"] and reading.context.repairs["plan_mark"] == 4


def test_beam_chat_of_plans():
    chat = [{"plan-1": [batch(1, "a"), batch(2, "b")], "plan-2": None}, {"plan-1": None, "plan-2": [batch(1, "c")]}]
    sessions, _, rejects, reading = read(chat, "10M/1/chat.json")
    assert reading.reader.NAME == "beam" and not rejects
    assert [(s.session_id, said(s)) for s in sessions] == [
        ("plan-1:1", ["a"]),
        ("plan-1:2", ["b"]),
        ("plan-2:1", ["c"]),
    ]


def test_beam_questions():
    asked = {
        "abstention": [{"question": "a?", "ideal_response": "unknown", "source_chat_ids": None}],
        "knowledge_update": [
            {"question": "k?", "answer": 7, "source_chat_ids": {"original_info": [3, 1], "updated_info": 5}},
            {"question": "l?", "ideal_answer": "x", "source_chat_ids": [[2, [9]], 2]},
        ],
        "summarization": [{"question": "s?", "ideal_summary": "all", "source_chat_ids": [1, {}, True, 1.5]}],
        "preference_following": [{"question": "p?", "expected_compliance": "be brief", "source_chat_ids": 4}],
    }
    _, questions, rejects, reading = read(asked, "100K/3/probing_questions/probing_questions.json")
    assert reading.reader.NAME == "beam"
    assert [(q.question_id, q.question_type, q.answer, q.gold_message_ids, q.answerable) for q in questions] == [
        ("abstention-0", "abstention", "unknown", [], False),
        ("knowledge_update-0", "knowledge_update", "7", ["3", "1", "5"], True),
        ("knowledge_update-1", "knowledge_update", "x", ["2", "9"], True),
        ("summarization-0", "summarization", "all", ["1"], True),
        ("preference_following-0", "preference_following", None, ["4"], True),
    ]
    assert {q.case_id for q in questions} == {"100K-3"}
    assert [(r.reason, r.detail) for r in rejects] == [
        ("evidence_malformed", "100K-3, question summarization-0: evidence 'True' is no message id"),
        ("evidence_malformed", "100K-3, question summarization-0: evidence '1.5' is no message id"),
    ]


def test_beam_faults_cost_their_part_only():
    odd = batch(2, "x")
    odd["turns"] = [[7], {"role": "user", "id": 1, "content": None}]
    chat = [batch(1, "a"), odd, {"batch_number": 3}, {"turns": []}, {"plan-1": [5]}, {"other": 5}, {}, batch(9, "z")]
    sessions, _, rejects, _ = read(chat, format="beam")
    assert [(s.case_id, s.session_id, said(s)) for s in sessions] == [
        ("beam", "1", ["a"]),
        ("beam", "2", [""]),
        ("beam", "9", ["z"]),
    ]
    assert Counter(r.reason for r in rejects) == {"wrong_type": 4, "missing_field": 2}
    asked = {"abstention": [5, {"question": None}, {"question": "q?"}], "event_ordering": "none"}
    _, questions, rejects, _ = read(asked, format="beam")
    assert [q.question_id for q in questions] == ["abstention-2"]
    assert [r.reason for r in rejects] == ["wrong_type", "missing_field", "wrong_type"]


def test_beam_broken_chat_goes_on_at_the_next_batch():
    parts = [json.dumps(batch(n, f"text {n}")).encode() for n in range(3)]
    parts[1] = parts[1].replace(b'"text 1"', b'"text 1')
    sessions, _, rejects, _ = read(b"[" + b",".join(parts) + b"]")
    assert [s.session_id for s in sessions] == ["0", "2"] and [r.reason for r in rejects] == ["not_json"]


@needs_data
def test_beam_real_chats():
    folder = DATA / "beam" / "100K"
    chats = sorted(folder.glob("*/chat.json"))
    result = build(*chats, *folder.glob("*/probing_questions.json"))
    raw = {chat.parent.name: json.loads(chat.read_bytes()) for chat in chats}
    messages = sum(len(turn) for chat in raw.values() for one in chat for turn in one["turns"])
    users = sum(m["role"] == "user" for chat in raw.values() for one in chat for turn in one["turns"] for m in turn)
    assert (len(raw), messages) == (15, 3744)
    assert sorted(set(result.interactions["case_id"].to_pylist())) == sorted(f"100K-{key}" for key in raw)
    assert (len(result.interactions), len(result.questions), len(result.rejects)) == (users, 300, 0)
    assert not result.interactions["started_at"].null_count
    unanswerable = [q for q in result.questions.to_pylist() if not q["answerable"]]
    assert {q["question_type"] for q in unanswerable} == {"abstention"} and len(unanswerable) == 30
    asked = [q for q in result.questions.to_pylist() if q["answerable"]]
    # One question's list of evidence is empty in the file.
    assert sum(not q["gold_interaction_ids"] for q in asked) == 1
    texts = [text for name in ("user_text", "assistant_text") for text in result.interactions[name].to_pylist()]
    assert not any(text.rstrip()[-14:].count("->->") for text in texts)


# -- multi-hop --------------------------------------------------------------------------------------------------------

MUSIQUE = {
    "id": "2hop__1_2",
    "paragraphs": [
        {"idx": 0, "title": "Bern", "paragraph_text": "Bern is a city.", "is_supporting": True},
        {"idx": 1, "title": "Peru", "paragraph_text": "Peru is a country.", "is_supporting": False},
        {"idx": 2, "title": "Aare", "paragraph_text": "The Aare flows through Bern.", "is_supporting": True},
    ],
    "question": "What flows through the city?",
    "question_decomposition": [{"id": 1, "question": "?", "answer": "?", "paragraph_support_idx": 0}],
    "answer": "Aare",
    "answer_aliases": ["the Aare"],
    "answerable": True,
}
HOTPOT = {
    "_id": "5a8b",
    "question": "Which one?",
    "answer": "yes",
    "type": "bridge",
    "level": "easy",
    "supporting_facts": [["Aare", 0], ["Bern", 0], ["Aare", 1]],
    "context": [
        ["Bern", ["Bern is", " a city."]],
        ["Peru", ["Peru is", "a country."]],
        ["Aare", ["The Aare flows through Bern."]],
    ],
}
AS_LISTS = {
    **{key: HOTPOT[key] for key in ("question", "answer", "type")},
    "id": "5a8b",
    "supporting_facts": {"title": ["Aare", "Bern"], "sent_id": [0, 1]},
    "context": {"title": [t for t, _ in HOTPOT["context"]], "sentences": [s for _, s in HOTPOT["context"]]},
}
CORPUS = [{"title": p["title"], "text": p["paragraph_text"]} for p in MUSIQUE["paragraphs"]]


@pytest.mark.parametrize(
    ("data", "asked"),
    [
        ([MUSIQUE], ("2hop__1_2", "2hop", "Aare")),
        (json.dumps(MUSIQUE) + "\n", ("2hop__1_2", "2hop", "Aare")),
        ([HOTPOT], ("5a8b", "bridge", "yes")),
        ([AS_LISTS], ("5a8b", "bridge", "yes")),
        (
            [
                {
                    **{"id": 3, "question": "?", "answer": ["a", "b"]},
                    "contexts": [
                        {"title": c["title"], "text": c["text"], "is_supporting": c["title"] != "Peru"} for c in CORPUS
                    ],
                }
            ],
            ("3", "", "a; b"),
        ),
    ],
)
def test_multihop_questions_bring_their_passages(data, asked):
    sessions, questions, rejects, reading = read(data, "data/musique_train.json")
    assert (reading.reader.NAME, reading.unit, rejects) == ("multihop", "message", [])
    assert [said(s) for s in sessions] == [
        *(["Bern\nBern is a city."], ["Peru\nPeru is a country."], ["Aare\nThe Aare flows through Bern."]),
    ]
    assert {s.case_id for s in sessions} == {q.case_id for q in questions} == {"musique_train"}
    (one,) = questions
    assert (one.question_id, one.question_type, one.answer) == asked
    assert one.gold_message_ids == [f"{sessions[0].session_id}:0", f"{sessions[2].session_id}:0"]


def test_multihop_passages_are_one_wherever_they_stand():
    files = {"musique_train.json": [MUSIQUE, {**HOTPOT, "_id": "x"}], "musique_train_corpus.json": CORPUS}
    groups = []
    for name, data in files.items():
        reading = read_source(io.BytesIO(json.dumps(data).encode()), name, "auto", "auto", UTC)
        groups += [g[0] for g in fragments(reading.records, name, reading.unit, 1, 1 << 20)]
    result = merge(groups)
    assert (len(result.interactions), len(result.rejects)) == (3, 0)
    assert result.repairs == {"duplicate_session": 6}
    assert [len(ids) for ids in result.questions["gold_interaction_ids"].to_pylist()] == [2, 2]


@pytest.mark.parametrize(
    ("source", "case"),
    [
        ("musique_train.json", "musique_train"),
        ("a/musique_train_corpus.json", "musique_train"),
        ("musique_ans_v1.0_dev.jsonl.gz", "musique_ans_v1.0_dev"),
        ("2wiki/dev.json", "2wiki-dev"),
        ("data/2wiki/dev_corpus.json", "2wiki-dev"),
        ("dev.json", "dev"),
        ("musique.json~2", "musique~2"),
        ("musique_corpus.json~2", "musique~2"),
        ("_corpus.json", "_corpus.json"),
    ],
)
def test_multihop_cases(source, case):
    sessions, _, _, _ = read(CORPUS, source)
    assert {s.case_id for s in sessions} == {case}


def test_multihop_unanswerable_twins_of_musique():
    twin = {**MUSIQUE, "answerable": False, "paragraphs": MUSIQUE["paragraphs"][:2]}
    _, questions, _, _ = read([MUSIQUE, twin])
    assert [(q.question_id, q.answerable) for q in questions] == [
        ("2hop__1_2", True),
        ("2hop__1_2:unanswerable", False),
    ]


def test_multihop_faults_cost_their_part_only():
    odd = {**MUSIQUE, "id": "b", "paragraphs": [5, {"title": "x"}, {"title": 7, "text": "y"}, MUSIQUE["paragraphs"][0]]}
    data = [odd, {**MUSIQUE, "question": None}, {**MUSIQUE, "id": None}, {"id": "c", "question": "?"}, [], MUSIQUE]
    sessions, questions, rejects, _ = read(data, format="multihop")
    assert len(sessions) == 1 + 3 + 3 + 3 and [q.question_id for q in questions] == ["b", "2hop__1_2"]
    assert [r.reason for r in rejects] == [
        *("wrong_type", "missing_field", "wrong_type"),
        *("missing_field", "missing_field", "missing_field", "not_an_object"),
    ]
    odd = {
        **HOTPOT,
        "context": [["Bern"], *HOTPOT["context"][1:]],
        "supporting_facts": [["Bern", 0], [], 5, ["Aare", 1]],
    }
    _, questions, rejects, _ = read([odd, {**HOTPOT, "supporting_facts": 5}, {**HOTPOT, "context": 5}])
    assert [len(q.gold_message_ids) for q in questions] == [1, 0]
    assert Counter(r.reason for r in rejects) == {"evidence_malformed": 2, "evidence_unresolved": 1, "wrong_type": 2}
    _, _, rejects, _ = read([{"title": "x"}, {"title": "x", "text": 5}, {"text": "kept"}], format="multihop")
    assert [r.reason for r in rejects] == ["missing_field", "wrong_type"]


def test_multihop_passes_over_published_triples():
    docs = {"docs": [{"idx": "a", "passage": "x", "extracted_entities": [], "extracted_triples": [["a", "b", "c"]]}]}
    sessions, questions, rejects, reading = read(docs)
    assert (sessions, questions, rejects, reading.context.repairs) == ([], [], [], {"passed_over": 1})


@needs_data
@pytest.mark.parametrize("names", [("musique_train.json",), ("musique_train.json", "musique_train_corpus.json")])
def test_multihop_real_files(names):
    folder = DATA / "hipporag"
    result = build(*(folder / name for name in names))
    raw = json.loads((folder / "musique_train.json").read_bytes())
    passages = {(p["title"], p["paragraph_text"]) for q in raw for p in q["paragraphs"]}
    assert (len(result.interactions), len(result.questions), len(result.rejects)) == (len(passages), len(raw), 0)
    assert (len(passages), len(raw)) == (1890, 100)
    told = dict(
        zip(
            result.interactions["interaction_id"].to_pylist(), result.interactions["user_text"].to_pylist(), strict=True
        )
    )
    found = {q["question_id"]: {told[i] for i in q["gold_interaction_ids"]} for q in result.questions.to_pylist()}
    wanted = {
        q["id"]: {f"{p['title']}\n{p['paragraph_text']}" for p in q["paragraphs"] if p["is_supporting"]} for q in raw
    }
    assert found == wanted
    doubled = sum(len(q["paragraphs"]) for q in raw) - 1890 + 1890 * (len(names) - 1)
    assert result.repairs == {"duplicate_session": doubled}


# -- all --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("atant", STORY),
        ("atant", indented(story("a"))),
        ("beam", json.dumps([batch(1, '{"messages": [], "role": 1}')], indent=2)),
        ("beam", json.dumps({"abstention": [], "event_ordering": []}, indent=2)),
        ("beam", json.dumps([{"plan-1": []}])),
        ("multihop", json.dumps([MUSIQUE], indent=4)),
        ("multihop", json.dumps(HOTPOT)),
        ("multihop", json.dumps(CORPUS)),
    ],
)
def test_each_is_told_from_all_others(name, data):
    assert [key for key, reader in READERS.items() if reader.sniff(data.encode()[:65536], "x")] == [name]
