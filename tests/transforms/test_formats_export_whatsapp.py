"""WhatsApp exports: one small sample for every quirk that they are known for."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.transforms.exports import ANDROID, read, said
from transforms.formats import whatsapp


def when(line, *before):
    """The local time of the last line's message."""
    text = "\n".join([*before, line])
    sessions, _, _ = read(text, format="whatsapp")
    return sessions[-1].messages[-1].at.replace(tzinfo=None)


SHAPES = [
    "15/01/2024, 21:05 - Ann: hi",
    "15/01/24 21:05 - Ann: hi",
    "15/1/24, 9:05 PM - Ann: hi",
    "15/1/24, 9:05\u202fPM - Ann: hi",
    "15/1/2024 9:05\u00a0p.\u00a0m. - Ann: hi",
    "15/1/24, 9:05 pm - Ann: hi",
    "1/15/24, 9:05\u202fPM - Ann: hi",
    "15.01.24, 21:05 - Ann: hi",
    "15.1.2024 klo 21.05 - Ann: hi",
    "15/01/2024 \u00e0 21:05 - Ann: hi",
    "15-01-2024 21:05 - Ann: hi",
    "2024-01-15, 21:05 - Ann: hi",
    "2024-01-15, 9:05 p.m. - Ann: hi",
    "2024/1/15 21:05 - Ann: hi",
    "2024. 01. 15. 21:05 - Ann: hi",
    "[15/01/2024, 21:05:00] Ann: hi",
    "[15/01/2024 21:05:00] Ann: hi",
    "[1/15/24, 9:05:00\u202fPM] Ann: hi",
    "\u200e[15.01.24, 21:05:00] Ann: \u200ehi",
    "[2024/1/15 \u4e0b\u53489:05:00] Ann: hi",
    "[2024/1/15, \uc624\ud6c4 9:05:00] Ann: hi",
    "1/15/24, 9:05:00 PM: Ann: hi",
    "\u0661\u0665/\u0660\u0661/\u0662\u0660\u0662\u0664, \u0662\u0661:\u0660\u0665 - Ann: hi",
]


@pytest.mark.parametrize("line", SHAPES)
def test_shapes_of_lines(line):
    (session,), rejects, reading = read(line + "\r\n")
    assert reading.reader.NAME == "whatsapp" and reading.unit == "message" and not rejects
    assert [(m.role, m.name, m.content, m.at) for m in session.messages] == [
        ("user", "Ann", "hi", datetime(2024, 1, 15, 21, 5, tzinfo=UTC))
    ]
    assert reading.context.repairs == {"naive_time": 1}


@pytest.mark.parametrize(
    ("written", "hour"),
    [("12:05 AM", 0), ("12:05 PM", 12), ("1:05 am", 1), ("11:05 PM", 23), ("24:05", 0), ("00:05", 0), ("13:05 PM", 13)],
)
def test_hours(written, hour):
    assert when(f"2024-01-15, {written} - Ann: hi") == datetime(2024, 1, 15, hour, 5)


def test_lines_that_begin_no_message():
    for line in ("15/01/2024 - Ann: hi", "15/01/2024, 21:05 Ann", "[15/01/2024, 21:05:00 - Ann: hi", "1/2/3: Ann", "x"):
        _, rejects, _ = read(line, format="whatsapp")
        assert [(one.reason, one.detail) for one in rejects] == [
            ("missing_field", "no line begins with a date and a time")
        ]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        # A number above 12 anywhere in the file tells the order of all dates.
        (["02/03/24, 10:00 - A: x", "13/03/24, 10:00 - A: x"], (2024, 3, 2)),
        (["02/03/24, 10:00 - A: x", "03/13/24, 10:00 - A: x"], (2024, 2, 3)),
        (["2/3/24, 10:00 AM - A: x", "13/3/24, 10:00 AM - A: x"], (2024, 3, 2)),
        # Else time goes forward: day first would go from March back to January.
        (["01/03/24, 10:00 - A: x", "02/01/24, 10:00 - A: x"], (2024, 1, 3)),
        (["1/3/24, 10:00 AM - A: x", "2/3/24, 10:00 AM - A: x", "1/4/24, 10:00 AM - A: x"], (2024, 3, 1)),
        # Else dates that look American have the month first, all others the day.
        (["2/3/24, 10:00 AM - A: x"], (2024, 2, 3)),
        (["2/3/24, 10:00 am - A: x"], (2024, 3, 2)),
        (["02/03/24, 10:00 AM - A: x"], (2024, 3, 2)),
        (["2/3/24, 10:00 - A: x"], (2024, 3, 2)),
        (["2.3.24, 10:00 AM - A: x"], (2024, 3, 2)),
    ],
)
def test_the_order_of_day_and_month(lines, expected):
    sessions, _, _ = read("\n".join(lines))
    found = {(m.at.year, m.at.month, m.at.day) for one in sessions for m in one.messages}
    assert expected in found


def test_a_date_that_only_the_other_order_fits():
    lines = ["13/02/24, 10:00 - A: x", "14/02/24, 10:00 - A: x", "02/15/24, 10:00 - A: x", "02/30/24, 10:00 - A: no"]
    sessions, _, reading = read("\n".join(lines))
    assert [one.session_id for one in sessions] == ["2024-02-13T1000", "2024-02-14T1000", "2024-02-15T1000"]
    assert reading.context.repairs["swapped_date"] == 1
    assert sessions[-1].messages[-1].content == "x\n02/30/24, 10:00 - A: no"


def test_messages_of_several_lines_keep_blank_ones():
    text = (
        "15/01/24, 21:05 - Ann: one\n\n  two: 2\r\n[15/01/24, 22:00:00] Bob: quoted\n\n15/01/24, 21:06 - Bob:\nthree\n"
    )
    (session,), _, _ = read(text)
    assert [(m.name, m.content) for m in session.messages] == [
        ("Ann", "one\n\n  two: 2\n[15/01/24, 22:00:00] Bob: quoted"),
        ("Bob", "\nthree"),
    ]


def test_lines_without_a_sender_are_the_services():
    lines = [
        "Messages and calls are end-to-end encrypted.",
        "Ann created group \u201cTrip: Rome\u201d",
        'Ann changed the subject from "A" to "B: C"',
        "Ann changed this group's icon",
        "+44 7700 900123 joined using this group's invite link",
        "Your security code with Ann: B changed.",
        "Ann wrote \u201cit is: a quote",
    ]
    (session,), _, reading = read("".join(f"15/01/24, 21:05 - {line}\n" for line in lines))
    assert said(session) == [("system", line) for line in lines]
    assert {m.name for m in session.messages} == {None} and reading.context.repairs["system_line"] == len(lines)


def test_on_iphones_the_service_speaks_under_a_name():
    lines = [
        "Trip: \u200eMessages and calls are end-to-end encrypted.",
        "Ann: \u200eAnn created this group",
        "Ann: \u200eYou added Bob",
        "Ann: Bob added sugar",
        "Ann: \u200e<attached: 00000012-left.jpg>",
    ]
    (session,), _, reading = read("".join(f"[15/01/24, 21:05:00] {line}\n" for line in lines))
    assert [(m.role, m.name, m.content) for m in session.messages] == [
        ("system", None, "Messages and calls are end-to-end encrypted."),
        ("system", None, "Ann created this group"),
        ("system", None, "You added Bob"),
        ("user", "Ann", "Bob added sugar"),
        ("user", "Ann", "[file: 00000012-left.jpg]"),
    ]
    assert reading.context.repairs["system_line"] == 3


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("Ann Lee", "Ann Lee"),
        ("+44 7700 900123", "+44 7700 900123"),
        ("\u202a+44\u00a07700\u00a0900123\u202c", "+44 7700 900123"),
        ("~\u202fAnn", "Ann"),
        ("~ Ann", "Ann"),
        ('Ann "Annie" Lee', 'Ann "Annie" Lee'),
        ("\u6771\u4eac \U0001f600", "\u6771\u4eac \U0001f600"),
        ("<b>Ann</b>/../x", "<b>Ann</b>/../x"),
    ],
)
def test_names(written, name):
    (session,), _, _ = read(f"15/01/24, 21:05 - {written}: hi: you\n")
    assert [(m.name, m.content) for m in session.messages] == [(name, "hi: you")]


def test_a_name_with_a_colon_is_known_by_its_repetition():
    lines = ["Dr: Ann: hi", "Bob: note: x", "Dr: Ann: a: b", "Bob: y: z", "Dr: Ann: ", "Bob: y: w"]
    (session,), _, _ = read("".join(f"15/01/24, 21:05 - {line}\n" for line in lines))
    assert [(m.name, m.content) for m in session.messages] == [
        *[("Dr: Ann", "hi"), ("Bob", "note: x"), ("Dr: Ann", "a: b"), ("Bob", "y: z"), ("Dr: Ann", ""), ("Bob", "y: w")]
    ]


MARKS = [
    ("<Media omitted>", "[media]", "media_omitted"),
    ("\u200eimage omitted", "[image]", "media_omitted"),
    ("video omitted", "[video]", "media_omitted"),
    ("look \u200esticker omitted", "look [sticker]", "media_omitted"),
    ("Plan.pdf \u2022 \u200e2 pages \u200edocument omitted", "Plan.pdf \u2022 2 pages [document]", "media_omitted"),
    ("the image omitted", "the image omitted", None),
    ("IMG-1.jpg (file attached)\na cat", "[file: IMG-1.jpg]\na cat", "media_omitted"),
    ("\u200eIMG-1.jpg (file attached)", "[file: IMG-1.jpg]", "media_omitted"),
    ("a cat \u200e<attached: 01-PHOTO.jpg>", "a cat [file: 01-PHOTO.jpg]", "media_omitted"),
    ("better \u200e<This message was edited>", "better", "edited_message"),
    ("better <This message was edited>", "better", "edited_message"),
    ("This message was deleted", "[deleted]", "deleted_message"),
    ("\u200eThis message was deleted.", "[deleted]", "deleted_message"),
    ("You deleted this message", "[deleted]", "deleted_message"),
    ("\u200eThis message was deleted by admin Bob.", "[deleted]", "deleted_message"),
    ("This message was deleted, was it?", "This message was deleted, was it?", None),
    ("ask @\u2068Bob\u2069", "ask @Bob", None),
    ("<script>alert(1)</script>", "<script>alert(1)</script>", None),
]


@pytest.mark.parametrize(("written", "shown", "count"), MARKS)
def test_marks_in_texts(written, shown, count):
    (session,), _, reading = read(f"15/01/24, 21:05 - Ann: {written}\n")
    assert said(session) == [("user", shown)]
    assert reading.context.repairs == {"naive_time": 1, **({count: 1} if count else {})}


def test_a_silence_of_six_hours_begins_a_session():
    hours = ["10:00", "15:59", "21:59", "22:00"]
    sessions, _, _ = read("".join(f"15/01/24, {hour} - Ann: {hour}\n" for hour in hours), "logs/Chat with Bob.txt")
    assert [[m.content for m in one.messages] for one in sessions] == [hours[:2], hours[2:]]
    assert [(one.case_id, one.session_id, one.offset) for one in sessions] == [
        ("logs/Chat with Bob", "2024-01-15T1000", 1),
        ("logs/Chat with Bob", "2024-01-15T2159", 3),
    ]
    assert sessions[1].started_at == datetime(2024, 1, 15, 21, 59, tzinfo=UTC)


def test_a_clock_that_was_put_back_begins_a_session_too():
    sessions, _, _ = read("15/01/24, 22:00 - Ann: a\n15/01/24, 10:00 - Ann: b\n15/01/24, 09:00 - Ann: c\n")
    assert [len(one.messages) for one in sessions] == [1, 2]


def test_times_are_in_the_zone_of_the_run():
    (first, _), _, _ = read(ANDROID + "02/01/2024, 10:00 - Ann: x\n", timezone=ZoneInfo("Europe/Berlin"))
    assert first.session_id == "2023-12-31T2105" and first.started_at == datetime(2023, 12, 31, 20, 5, tzinfo=UTC)


@pytest.mark.parametrize(("source", "case"), [("Ann/_chat.txt", "Ann"), ("_chat.txt", "_chat"), ("a/b.txt.gz", "a/b")])
def test_the_name_of_the_case(source, case):
    assert read(ANDROID, source)[0][0].case_id == case


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "cp1252"])
def test_encodings(encoding):
    text = ANDROID.replace("hello", "caf\u00e9")
    (session,), rejects, _ = read(text.encode(encoding))
    assert session.messages[1].content == "caf\u00e9" and not rejects


def test_a_file_that_was_cut_at_its_beginning():
    text = "end of a message\nand more\n" + ANDROID + "\n31/12/2024, 99:99 - Ann: no time"
    sessions, rejects, reading = read(text)
    assert reading.reader.NAME == "whatsapp"
    assert [(one.reason, one.offset, one.sample) for one in rejects] == [("missing_field", 1, "end of a message")]
    assert sessions[0].offset == 3
    assert sessions[-1].messages[-1].content.endswith("\n\n31/12/2024, 99:99 - Ann: no time")


def test_a_message_larger_than_is_held_is_a_reject(monkeypatch):
    monkeypatch.setattr(whatsapp, "LIMIT", 100)
    text = "15/01/24, 21:05 - Ann: a\n" + "x" * 60 + "\n" + "y" * 60 + "\nz\n15/01/24, 21:06 - Ann: b\n"
    (session,), rejects, _ = read(text)
    assert said(session) == [("user", "b")] and [(one.reason, one.offset) for one in rejects] == [("unreadable", 1)]


def test_other_files_are_no_chats():
    for text in ('[{"ts": "15/01/24, 21:05 - Ann: hi"}]', "a,b\n1,2\n", "- 15/01/24, 21:05 - Ann: hi", "# 1\n\ntext"):
        assert not whatsapp.sniff(text.encode(), "x.txt")


lines = st.lists(
    st.tuples(
        st.integers(0, 40), st.sampled_from(["Ann", "Bob"]), st.text(st.characters(exclude_categories=["C", "Z"]))
    ),
    min_size=1,
)


@given(lines)
def test_every_message_comes_out_once_and_in_order(made):
    at = datetime(2020, 1, 13)
    text, expected = "", []
    for gap, name, content in made:
        at += timedelta(minutes=30 * gap)
        text += f"{at:%d/%m/%Y, %H:%M} - {name}: .{content}.\n"
        expected.append((name, f".{content}.", at))
    sessions, rejects, _ = read(text)
    found = [(m.name, m.content, m.at.replace(tzinfo=None)) for one in sessions for m in one.messages]
    assert found == expected and not rejects
    cuts = sum(gap >= 12 for gap, _, _ in made[1:])
    assert len(sessions) == cuts + 1
