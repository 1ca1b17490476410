"""LongMemEval and LoCoMo: files written for the tests, and the real ones where they are at hand."""

import importlib.util
import io
import json
from datetime import UTC, datetime
from pathlib import Path

import pyarrow.compute as pc
import pytest

from transforms.formats import read_source
from transforms.fragments import fragments
from transforms.interactions import full_text
from transforms.merge import merge
from transforms.records import Question, Reject, Session

DATA = Path(__file__).parents[3] / "shared" / "data"
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="the benchmark files are not beside the repository")


def read(data, format="auto"):
    raw = data if isinstance(data, bytes) else json.dumps(data).encode()
    reading = read_source(io.BytesIO(raw), "file", format, "auto", UTC)
    records = list(reading.records)
    kinds = ([r for r in records if isinstance(r, kind)] for kind in (Session, Question, Reject))
    return *kinds, reading


def build(path, shards=1):
    with path.open("rb") as stream:
        reading = read_source(stream, path.name, "auto", "auto", UTC)
        groups = list(fragments(reading.records, path.name, reading.unit, shards, 16 << 20))
    return [merge([g[s] for g in groups if s in g]) for s in range(shards)], reading.context.repairs


def record(key="q1", **more):
    return {
        "question_id": key,
        "question_type": "multi-session",
        "question": "what?",
        "question_date": "2023/05/30 (Tue) 23:40",
        "answer": "tea",
        "answer_session_ids": ["b"],
        "haystack_dates": ["2023/05/20 (Sat) 10:00", "2023/05/21 (Sun) 10:00"],
        "haystack_session_ids": ["a", "b"],
        "haystack_sessions": [
            [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes"}],
            [
                {"role": "user", "content": "tea", "has_answer": True},
                {"role": "assistant", "content": "ok", "has_answer": False},
            ],
        ],
        **more,
    }


def test_longmemeval_record():
    sessions, questions, rejects, reading = read([record()])
    assert reading.reader.NAME == "longmemeval" and reading.unit == "exchange"
    assert [(s.case_id, s.session_id, s.started_at, s.started_at_text, s.offset) for s in sessions] == [
        ("q1", "a", datetime(2023, 5, 20, 10, tzinfo=UTC), "2023/05/20 (Sat) 10:00", 1),
        ("q1", "b", datetime(2023, 5, 21, 10, tzinfo=UTC), "2023/05/21 (Sun) 10:00", 1),
    ]
    assert [(m.role, m.content, m.gold) for m in sessions[1].messages] == [
        ("user", "tea", True),
        ("assistant", "ok", False),
    ]
    asked = datetime(2023, 5, 30, 23, 40, tzinfo=UTC)
    assert questions == [Question("q1", "q1", "what?", "multi-session", asked, "tea", ["b"], offset=1)]
    assert rejects == [] and reading.context.repairs == {"naive_time": 3}


@pytest.mark.parametrize(("answer", "text"), [(3, "3"), (["a", 2], "a; 2"), (None, None), (True, "true"), ([], "")])
def test_longmemeval_answers(answer, text):
    assert read([record(answer=answer)])[1][0].answer == text


def test_longmemeval_unanswerable():
    assert [q.answerable for q in read([record("x_abs"), record("x")])[1]] == [False, True]


def test_longmemeval_single_record_and_lines():
    for data in (json.dumps(record()).encode(), b"\n".join(json.dumps(record(k)).encode() for k in ("q1", "q2"))):
        sessions, questions, rejects, _ = read(data)
        assert len(sessions) == 2 * len(questions) and questions and not rejects


def test_longmemeval_faults_cost_their_part_only():
    broken = record("q2")
    broken["haystack_sessions"][0].insert(0, "no message")
    del broken["haystack_dates"][1]
    data = [record("q1"), broken, record("q3", question=None), {"question_id": "q4"}, 7, {"x": 1}, record("q5")]
    sessions, questions, rejects, _ = read(data)
    assert [(s.case_id, s.session_id) for s in sessions] == [
        *[("q1", "a"), ("q1", "b"), ("q2", "a"), ("q3", "a"), ("q3", "b"), ("q5", "a"), ("q5", "b")]
    ]
    assert [m.id for m in sessions[2].messages] == ["a:1", "a:2"]
    assert [q.question_id for q in questions] == ["q1", "q2", "q5"]
    assert [r.reason for r in rejects] == [
        *(
            "wrong_type",
            "wrong_type",
            "missing_field",
            "missing_field",
            "missing_field",
            "not_an_object",
            "missing_field",
        )
    ]


def test_longmemeval_broken_and_truncated():
    parts = [json.dumps(record(f"q{n}")).encode() for n in range(4)]
    parts[1] = parts[1].replace(b'"tea"', b'"tea', 1)
    data = b"[" + b",".join(parts)[:-20]
    _, questions, rejects, _ = read(data)
    assert [q.question_id for q in questions] == ["q0", "q2"]
    second = 2 + len(parts[0])
    assert [(r.reason, r.offset) for r in rejects] == [
        ("not_json", second),
        ("truncated", second + len(parts[1]) + len(parts[2]) + 2),
    ]


def test_longmemeval_same_session_id_on_two_dates():
    twice = record(haystack_session_ids=["a", "a"], answer_session_ids=["a"])
    reading = read_source(io.BytesIO(json.dumps([twice]).encode()), "file", "auto", "auto", UTC)
    result = merge([group[0] for group in fragments(reading.records, "file", reading.unit, 1, 1 << 20)])
    assert result.interactions["interaction_id"].to_pylist() == ["a/0", "a~2/0"]
    assert result.questions["gold_interaction_ids"].to_pylist() == [["a~2/0"]]
    assert result.questions["gold_message_ids"].to_pylist() == [["a:0~2"]]
    assert result.repairs == {"repeated_session_id": 1, "repeated_message_id": 2}


def dialogue(*questions, **more):
    turns = [
        {"speaker": "Ann", "dia_id": "D1:1", "text": "look", "blip_caption": "a dog", "img_url": ["u"]},
        {"speaker": "Bob", "dia_id": "D1:2", "text": "nice"},
    ]
    conversation = {
        "speaker_a": "Ann",
        "speaker_b": "Bob",
        "session_10_date_time": "9:00 am on 2 June, 2023",
        "session_10": [{"speaker": "Bob", "dia_id": "D10:1", "text": "late"}],
        "session_2_date_time": "1:56 pm on 8 May, 2023",
        "session_2": turns,
        "session_11_date_time": "9:00 am on 3 June, 2023",
    }
    qa = [{"question": "q?", "answer": "a", "category": 4, **one} for one in questions]
    return {"qa": qa, "conversation": conversation | more, "sample_id": "conv-1"}


def test_locomo_sessions():
    sessions, _, rejects, reading = read([dialogue({"evidence": []})])
    assert reading.reader.NAME == "locomo" and reading.unit == "message"
    assert [(s.session_id, s.started_at) for s in sessions] == [
        ("session_2", datetime(2023, 5, 8, 13, 56, tzinfo=UTC)),
        ("session_10", datetime(2023, 6, 2, 9, tzinfo=UTC)),
    ]
    first = sessions[0].messages[0]
    assert (first.role, first.name, first.id, first.content) == ("user", "Ann", "D1:1", "look\n[a dog]")
    assert not rejects and reading.context.repairs["date_without_session"] == 1


def test_locomo_questions():
    kinds = [{"category": n, "answer": 7 if n == 1 else "a", "evidence": ["D1:1"]} for n in range(1, 6)]
    kinds[4] = {"category": 5, "adversarial_answer": "wrong", "evidence": ["D1:1"]}
    _, questions, _, _ = read([dialogue(*kinds)])
    assert [(q.question_id, q.question_type, q.answer, q.answerable) for q in questions] == [
        ("q0000", "multi-hop", "7", True),
        ("q0001", "temporal", "a", True),
        ("q0002", "open-domain", "a", True),
        ("q0003", "single-hop", "a", True),
        ("q0004", "adversarial", None, False),
    ]


@pytest.mark.parametrize(
    ("evidence", "gold", "repaired", "rejected"),
    [
        (["D1:1", "D1:2"], ["D1:1", "D1:2"], 0, 0),
        (["D8:6; D9:17"], ["D8:6", "D9:17"], 1, 0),
        (["D9:1 D4:4 D4:6"], ["D9:1", "D4:4", "D4:6"], 1, 0),
        (["D30:05"], ["D30:5"], 1, 0),
        (["D:11:26"], ["D11:26"], 1, 0),
        (["D", "D1:1"], ["D1:1"], 0, 1),
        ([7, None, "", "see D1:1"], [], 0, 4),
        (None, [], 0, 0),
        ("D1:1", ["D1:1"], 0, 0),
    ],
)
def test_locomo_evidence(evidence, gold, repaired, rejected):
    _, questions, rejects, reading = read([dialogue({"evidence": evidence})])
    assert questions[0].gold_message_ids == gold
    assert reading.context.repairs["evidence_repaired"] == repaired
    assert [one.reason for one in rejects] == ["evidence_malformed"] * rejected


def test_locomo_faults_cost_their_part_only():
    odd = dialogue({"question": None}, {"category": "odd"}, session_2=["x", {"text": None}], session_10=None)
    sessions, questions, rejects, reading = read(
        [odd, {"sample_id": "b"}, {"sample_id": "c", "conversation": {}}], "locomo"
    )
    assert [(m.id, m.content) for m in sessions[0].messages] == [("session_2:1", "")]
    assert [(q.question_id, q.question_type) for q in questions] == [("q0001", "odd")]
    assert [one.reason for one in rejects] == [
        *("wrong_type", "wrong_type", "missing_field", "missing_field", "missing_field")
    ]
    assert reading.context.repairs["null_content"] == 1


@needs_data
def test_locomo_real_file():
    (result,), repairs = build(DATA / "locomo" / "locomo10.json")
    assert (len(result.interactions), len(result.questions)) == (5882, 1986)
    assert len(result.interactions["case_id"].unique()) == 10
    assert repairs == {"evidence_repaired": 6, "date_without_session": 16, "naive_time": 272}
    assert sorted(result.rejects["reason"].to_pylist()) == [
        "evidence_malformed",
        "evidence_unresolved",
        "evidence_unresolved",
    ]
    assert sorted(result.rejects["detail"].to_pylist())[0].endswith("evidence 'D' names no turn")
    assert not result.repairs and not result.interactions["started_at"].null_count
    types = dict(
        zip(
            *(c.to_pylist() for c in result.questions["question_type"].combine_chunks().value_counts().flatten()),
            strict=True,
        )
    )
    assert types == {"multi-hop": 282, "temporal": 321, "open-domain": 96, "single-hop": 841, "adversarial": 446}
    raw = json.loads((DATA / "locomo" / "locomo10.json").read_bytes())
    shown = full_text(result.interactions).to_pylist()
    said = dict(
        zip(
            zip(
                result.interactions["case_id"].to_pylist(),
                [i[0] for i in result.interactions["message_ids"].to_pylist()],
                strict=True,
            ),
            shown,
            strict=True,
        )
    )
    turn = next(t for t in raw[0]["conversation"]["session_1"] if "blip_caption" in t)
    assert said[raw[0]["sample_id"], turn["dia_id"]] == f"{turn['speaker']}: {turn['text']}\n[{turn['blip_caption']}]"


@needs_data
def test_longmemeval_real_records():
    results, _ = build(DATA / "longmemeval" / "assembled_S_records.json", shards=3)
    raw = json.loads((DATA / "longmemeval" / "assembled_S_records.json").read_bytes())
    wanted = sum(len([m for m in s if m["role"] == "user"]) or 1 for r in raw for s in r["haystack_sessions"] if s)
    leading = sum(
        s[0]["role"] != "user" and any(m["role"] == "user" for m in s) for r in raw for s in r["haystack_sessions"] if s
    )
    assert sum(len(r.interactions) for r in results) == wanted + leading
    assert sum(len(r.questions) for r in results) == len(raw) == 7
    for result in results:
        cases, positions = result.interactions["case_id"].to_pylist(), result.interactions["position"].to_pylist()
        times = result.interactions["started_at"].to_pylist()
        pairs = list(zip(cases, positions, times, strict=True))
        assert pairs == sorted(pairs)
        golds = pc.list_value_length(result.questions["gold_interaction_ids"]).to_pylist()
        assert all(golds)


def test_fuzz():
    spec = importlib.util.spec_from_file_location("fuzz_readers", Path(__file__).with_name("fuzz_readers.py"))
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    told = module.fuzz(300, 5)
    assert told["inputs"] == 300 and told["taken"] > 500 and told["rejected"] > 50
