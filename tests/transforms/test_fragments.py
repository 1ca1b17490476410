import random
from collections import Counter
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from schemas.ids import content_hash, shard_of
from schemas.tables import validate
from transforms.fragments import FRAGMENT_SCHEMAS, fragments
from transforms.merge import merge
from transforms.records import Message, Question, Reject, Session

DAY = datetime(2024, 1, 1, tzinfo=UTC)


def session(key="s", *texts, case="c", day=0, offset=0, gold=(), ids=None):
    roles = ("user", "assistant")
    messages = [
        Message(roles[n % 2], text, gold=n in gold, id=ids[n] if ids else None)
        for n, text in enumerate(texts or ("hi",))
    ]
    when = None if day is None else DAY + timedelta(days=day)
    return Session(case, key, messages, when, None if day is None else f"day {day}", offset)


def question(key="q", *, case="c", text="why?", offset=0, sessions=(), messages=(), **more):
    return Question(
        case, key, text, gold_session_ids=list(sessions), gold_message_ids=list(messages), offset=offset, **more
    )


def merged(*records, source="file", unit="exchange", limit=1 << 20):
    groups = list(fragments(records, source, unit, 1, limit))
    result = merge([group[0] for group in groups])
    validate("interactions", result.interactions)
    validate("questions", result.questions)
    validate("rejects", result.rejects)
    ids = list(
        zip(result.interactions["case_id"].to_pylist(), result.interactions["interaction_id"].to_pylist(), strict=True)
    )
    assert len(set(ids)) == len(ids)
    return result


def column(table, *names):
    found = [table[name].to_pylist() for name in names]
    return found[0] if len(found) == 1 else list(zip(*found, strict=True))


def test_rows_of_one_session():
    result = merged(session("s", "one", "a", "two", "b", offset=7))
    assert result.interactions.to_pylist() == [
        {
            "case_id": "c",
            "session_id": "s",
            "interaction_id": f"s/{n}",
            "content_hash": content_hash([str(1_704_067_200_000_000), "", "user", "assistant", said, answer]),
            "position": n,
            "started_at": DAY,
            "started_at_text": "day 0",
            "user_text": said,
            "assistant_text": answer,
            "speakers": ["user", "assistant"],
            "message_ids": [f"s:{2 * n}", f"s:{2 * n + 1}"],
            "source": "file",
            "source_offset": 0,
        }
        for n, (said, answer) in enumerate([("one", "a"), ("two", "b")])
    ]
    assert not result.repairs


def test_content_hash_does_not_depend_on_case_or_position():
    hashes = column(merged(session("s", "x", case="a"), session("t", "x", case="b")).interactions, "content_hash")
    assert hashes[0] == hashes[1]
    assert column(merged(session("s", "x", day=1)).interactions, "content_hash") != hashes[:1]


def test_order_is_by_case_then_time_then_place_with_unknown_times_last():
    result = merged(
        session("late", case="b", day=3),
        session("none", case="b", day=None),
        session("first", case="b", day=1),
        session("tie2", case="b", day=2, offset=9),
        session("tie1", case="b", day=2, offset=8),
        session("only", case="a", day=9),
    )
    assert column(result.interactions, "case_id", "session_id", "position") == [
        ("a", "only", 0),
        *[("b", name, n) for n, name in enumerate(["first", "tie1", "tie2", "late", "none"])],
    ]


def test_empty_sessions_become_rejects():
    result = merged(session("blank", " \n\t", "\u3000"), Session("c", "none", [], offset=3), session("good", " ", "x"))
    assert column(result.interactions, "session_id") == ["good"]
    assert column(result.rejects, "reason", "source_offset") == [("empty_session", 0), ("no_messages", 3)]


def test_nothing_at_all():
    assert list(fragments([], "file", "exchange", 4, 100)) == []
    result = merge([])
    assert (len(result.interactions), len(result.questions), len(result.rejects)) == (0, 0, 0)
    validate("interactions", result.interactions)


def test_exact_duplicates_are_dropped():
    result = merged(
        session("s", "a", "b", offset=0), session("s", "a", "b", offset=1), session("s", "a", "b", offset=2)
    )
    assert column(result.interactions, "interaction_id", "source_offset") == [("s/0", 0)]
    assert result.repairs == {"duplicate_session": 2}


def test_same_id_on_another_day_is_kept_with_ids_of_its_own():
    result = merged(
        session("s", "b", "y", day=2, gold=(0,), offset=0),
        session("s", "a", "x", day=1, offset=0),
        session("s~2", "c", day=3),
        question(messages=["s:1"], sessions=["s"]),
    )
    assert column(result.interactions, "session_id", "interaction_id", "message_ids", "user_text") == [
        ("s", "s/0", ["s:0", "s:1"], "a"),
        ("s", "s~2/0", ["s:0~2", "s:1~2"], "b"),
        ("s~2", "s~2~2/0", ["s~2:0"], "c"),
    ]
    assert result.repairs == {"repeated_session_id": 1, "repeated_message_id": 2}
    # Evidence by id names the first occurrence, a marked message names itself.
    assert column(result.questions, "gold_message_ids", "gold_interaction_ids", "gold_session_ids") == [
        (["s:1", "s:0~2"], ["s/0", "s~2/0"], ["s"])
    ]


def test_other_content_at_the_same_time_is_kept_too():
    result = merged(session("s", "a", offset=0), session("s", "b", offset=1))
    assert column(result.interactions, "interaction_id", "user_text") == [("s/0", "a"), ("s~2/0", "b")]
    assert result.repairs == {"repeated_session_id": 1, "repeated_message_id": 1}


@pytest.mark.parametrize("unit", ["exchange", "message"])
@pytest.mark.parametrize("texts", [("a",), ("a", "b"), ("a", "b", "c")])
def test_a_log_that_grew_replaces_its_beginning(unit, texts):
    long = ("a", "b", "c", "d", "e")
    grown = [session("s", *long, offset=0), session("s", *texts, offset=1), session("s", "a", "b", "c", "d", offset=2)]
    result = merged(*grown, unit=unit)
    assert column(result.interactions, "source_offset") == [0] * (3 if unit == "exchange" else 5)
    assert result.repairs == {"superseded_session": 2}


def test_an_answer_that_grew_replaces_its_beginning():
    short = Session("c", "s", [Message("user", "u"), Message("assistant", "a")], DAY)
    long = Session("c", "s", [Message("user", "u"), Message("assistant", "a"), Message("tool", "t")], DAY, offset=1)
    result = merged(short, long)
    assert column(result.interactions, "assistant_text") == ["a\nt"]
    other = Session("c", "s", [Message("user", "u"), Message("assistant", "ab"), Message("tool", "t")], DAY, offset=1)
    assert merged(short, other).repairs["superseded_session"] == 0


def test_marks_on_a_dropped_occurrence_count():
    result = merged(session("s", "a", "b", offset=0), session("s", "a", "b", offset=1, gold=(1,)), question())
    assert column(result.questions, "gold_message_ids", "gold_interaction_ids") == [(["s:1"], ["s/0"])]


def test_evidence_is_resolved_and_what_is_missing_is_told_once():
    result = merged(
        session("s", "a", "b", "c", "d"),
        session("t", "e", case="other"),
        question(messages=["s:3", "gone", "s:0", "s:3", "gone", "t:0"], sessions=["s", "nowhere"], offset=5),
    )
    assert column(result.questions, "gold_message_ids", "gold_interaction_ids", "gold_session_ids") == [
        (["s:3", "s:0"], ["s/1", "s/0"], ["s"])
    ]
    assert column(result.rejects, "reason", "source_offset", "sample") == [
        ("evidence_unresolved", 0, "gone"),
        ("evidence_unresolved", 0, "t:0"),
        ("evidence_unresolved", 0, "nowhere"),
    ]


def test_sessions_of_gold_messages_are_gold():
    result = merged(session("s", "a"), session("t", "b", day=1, gold=(0,)), question(sessions=["s"]))
    assert column(result.questions, "gold_session_ids", "gold_message_ids") == [(["s", "t"], ["t:0"])]


def test_questions_without_gold_or_without_a_case_stay():
    result = merged(session("s", "a"), question("q1"), question("q2", case="absent", messages=["m"], answerable=False))
    assert column(result.questions, "case_id", "question_id", "gold_message_ids", "answerable") == [
        ("absent", "q2", [], False),
        ("c", "q1", [], True),
    ]
    assert column(result.rejects, "reason") == ["evidence_unresolved"]


def test_duplicate_questions():
    result = merged(
        question("q", offset=1),
        question("q", offset=2),
        question("q", text="else?", offset=3),
        question("p", offset=4, expected_contains=["x", "x"], answer="7"),
    )
    assert column(result.questions, "question_id", "question", "answer", "expected_contains") == [
        ("q", "why?", None, []),
        ("p", "why?", "7", ["x", "x"]),
    ]
    assert result.repairs == {"duplicate_question": 1}
    assert column(result.rejects, "reason", "source_offset", "sample") == [("duplicate_question", 2, "else?")]


def test_repeated_message_ids_become_unique():
    result = merged(session("s", "a", "b", "c", ids=["m", "m", "m~2"]), question(messages=["m"]))
    assert column(result.interactions, "message_ids") == [["m", "m~2"], ["m~2~2"]]
    assert column(result.questions, "gold_message_ids") == [["m"]]


def test_a_message_of_ten_megabytes():
    text = "\U0001f600 word " * 1_000_000
    result = merged(session("s", text, "ok"), limit=1000)
    assert result.interactions["user_text"][0].as_py() == text


def test_shards_and_limits():
    records = [session(f"s{n}", "x" * 100, case=f"case{n % 7}", offset=n) for n in range(50)]
    groups = list(fragments([*records, Reject("not_json", "bad", "x", 99)], "file", "exchange", 3, 1000))
    assert len(groups) > 5
    for group in groups:
        assert group and list(group) == sorted(group)
        for shard, tables in group.items():
            assert all(shard_of(case, 3) == shard for case in tables.sessions["case_id"].to_pylist())
            for name, schema in FRAGMENT_SCHEMAS.items():
                assert getattr(tables, name).schema == schema
                getattr(tables, name).validate(full=True)
    homes = {shard for group in groups for shard, tables in group.items() if len(tables.rejects)}
    assert homes == {shard_of("file", 3)}


def _messy(rng):
    records = []
    for offset in range(60):
        case = f"c{rng.randrange(4)}"
        texts = [rng.choice("abc") for _ in range(rng.randint(1, 3))]
        records.append(
            session(
                f"s{rng.randrange(3)}",
                *texts,
                case=case,
                day=rng.choice([0, 1, None]),
                offset=offset,
                gold={0} if offset % 9 == 0 else (),
            )
        )
        if offset % 4 == 0:
            records.append(question(f"q{rng.randrange(3)}", case=case, offset=offset, messages=["s0:0", "s1:1", "zz"]))
    return records


@pytest.mark.parametrize("seed", range(4))
def test_result_does_not_depend_on_order_or_split(seed):
    rng = random.Random(seed)
    records = _messy(rng)
    whole = merged(*records)
    pieces, size = [], rng.randint(2, 20)
    # Splits fall between records of different offsets, as byte ranges do.
    by_place = [[r for r in records if r.offset == n] for n in range(60)]
    for at in range(0, 60, size):
        part = [record for place in by_place[at : at + size] for record in place]
        pieces += [group[0] for group in fragments(part, "file", "exchange", 1, rng.choice([1, 300, 10_000]))]
    rng.shuffle(pieces)
    again = merge(pieces)
    for name in ("interactions", "questions", "rejects"):
        assert getattr(again, name).equals(getattr(whole, name))
        assert _bytes(getattr(again, name)) == _bytes(getattr(whole, name))
    assert again.repairs == whole.repairs
    assert whole.repairs["duplicate_session"] and whole.repairs["repeated_session_id"]


def _bytes(table):
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def test_two_copies_of_a_source_give_one():
    records = [session("s", "a", "b", gold=(0,)), question(messages=["s:1"])]
    groups = [g[0] for name in ("a", "b") for g in fragments(records, name, "exchange", 1, 1000)]
    result = merge(groups)
    assert column(result.interactions, "source") == ["a"]
    assert result.repairs == Counter(duplicate_session=1, duplicate_question=1)


def test_one_instant_in_two_spellings_is_one_session():
    first, second = session("s", "a", "b"), session("s", "a", "b", offset=1)
    second.started_at_text = "the same, in other words"
    result = merged(first, second)
    assert len(result.interactions) == 1
    assert result.repairs == {"duplicate_session": 1}


def test_places_are_told_within_the_case_so_that_other_cases_do_not_move_them():
    mine = [session("s1", "a", offset=10), session("s2", "b", offset=30), question("q", offset=50, messages=["zz"])]
    alone = merged(*mine)
    moved = [session("s1", "a", offset=11), session("s2", "b", offset=90), question("q", offset=99, messages=["zz"])]
    other = merged(session("t", "x", case="d", offset=0), *moved)
    assert column(alone.interactions, "source_offset") == [0, 1]
    assert other.interactions.slice(0, 2).to_pylist() == alone.interactions.to_pylist()
    assert other.rejects.to_pylist() == alone.rejects.to_pylist()
