from datetime import UTC, datetime

import pyarrow as pa
import pytest

from transforms.interactions import Rows, add_session, full_text, session_time
from transforms.records import Message, Session

AT = datetime(2024, 1, 1, tzinfo=UTC)
ZERO = 1_704_067_200_000_000


def rows_of(unit, *messages, started_at=None):
    rows = Rows()
    added = add_session(rows, Session("c", "s", list(messages), started_at), unit)
    assert added == len(rows.user_text) == len(rows.started_at) == len(rows.message_counts)
    assert sum(rows.message_counts) == len(rows.message_ids) == len(rows.gold) == len(messages)
    assert sum(rows.speaker_counts) == len(rows.speakers)
    return rows


def test_exchange_opens_at_each_user_message_and_all_others_join():
    rows = rows_of(
        "exchange",
        Message("system", "rules"),
        Message("assistant", "hello"),
        Message("user", "one"),
        Message("assistant", "a"),
        Message("user", "two"),
        Message("user", "three"),
        Message("tool", "result"),
        Message("developer", "d"),
        Message("function", "f"),
        Message("critic", "odd role"),
        Message("assistant", "b"),
    )
    assert rows.user_text == ["", "one", "two", "three"]
    assert rows.assistant_text == ["rules\nhello", "a", "", "result\nd\nf\nodd role\nb"]
    assert rows.message_counts == [2, 2, 1, 6]
    assert rows.speaker_counts == [2, 2, 1, 6]
    assert rows.speakers[:5] == ["system", "assistant", "user", "assistant", "user"]
    assert rows.message_ids[0] == "s:0" and rows.message_ids[-1] == "s:10"


def test_message_unit_keeps_each_message():
    rows = rows_of(
        "message", Message("user", "u"), Message("assistant", "a"), Message("tool", "t"), Message("ann", "x")
    )
    assert rows.user_text == ["u", "", "", "x"]
    assert rows.assistant_text == ["", "a", "t", ""]


@pytest.mark.parametrize("unit", ["exchange", "message"])
def test_names_stand_before_texts(unit):
    rows = rows_of(unit, Message("user", "hi", name="Ann"), Message("assistant", "yo", name="Bot"))
    assert [one for one in rows.user_text if one] == ["Ann: hi"]
    assert [one for one in rows.assistant_text if one] == ["Bot: yo"]
    assert rows.speakers == ["Ann", "Bot"]


def test_texts_are_never_altered():
    text = "  \u6771\u4eac \U0001f600\r\n\ttrailing  "
    rows = rows_of("exchange", Message("user", text), Message("assistant", text))
    assert rows.user_text == [text] and rows.assistant_text == [text]


def test_white_space_messages_stay_in_their_exchange_and_empty_ones_leave_no_line():
    rows = rows_of(
        "exchange", Message("user", " \n"), Message("assistant", "a"), Message("tool", ""), Message("assistant", "b")
    )
    assert rows.user_text == [" \n"]
    assert rows.assistant_text == ["a\nb"]


def test_times_are_the_messages_own_or_else_the_sessions():
    own = datetime(2024, 1, 1, 0, 0, 5, tzinfo=UTC)
    rows = rows_of("message", Message("user", "a"), Message("user", "b", at=own), started_at=AT)
    assert rows.started_at == [ZERO, ZERO + 5_000_000]
    rows = rows_of("exchange", Message("user", "a"), Message("assistant", "b"))
    assert rows.started_at == [None]
    assert session_time(Session("c", "s", [Message("user", "a"), Message("user", "b", at=own)])) == ZERO + 5_000_000


def test_ids_and_gold():
    rows = rows_of("exchange", Message("user", "a", id="x"), Message("assistant", "b", gold=True))
    assert rows.message_ids == ["x", "s:1"]
    assert rows.gold == [False, True]


def test_full_text():
    table = pa.table(
        {
            "user_text": pa.chunked_array([["u", ""], ["u", ""]], pa.large_string()),
            "assistant_text": pa.chunked_array([["a", "a"], ["", ""]], pa.large_string()),
        }
    )
    assert full_text(table).to_pylist() == ["u\na", "a", "u", ""]
    assert full_text(table).type == pa.large_string()
    assert full_text(table.slice(0, 0)).to_pylist() == []
