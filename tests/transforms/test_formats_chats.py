"""ShareGPT, OpenAI messages, WildChat and LMSYS-Chat-1M: samples written for the tests, as JSON and as Parquet."""

import gzip
import io
import json
import random
from collections import Counter
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from schemas.errors import InputError
from transforms.formats import READERS, read_source
from transforms.records import REJECT_REASONS, Reject, Session


def read(data, source="logs.jsonl", format="auto"):
    raw = data if isinstance(data, bytes) else data.encode() if isinstance(data, str) else json.dumps(data).encode()
    reading = read_source(io.BytesIO(raw), source, format, "auto", UTC)
    records = list(reading.records)
    assert all(isinstance(r, Session | Reject) for r in records)
    return [r for r in records if isinstance(r, Session)], [r for r in records if isinstance(r, Reject)], reading


def lines(*records):
    return "".join(json.dumps(one) + "\n" for one in records)


def said(session):
    return [(one.role, one.content) for one in session.messages]


# -- ShareGPT ---------------------------------------------------------------------------------------------------------


def shared(*turns, **more):
    return {"conversations": [{"from": speaker, "value": text} for speaker, text in turns], **more}


TALK = shared(("human", "hi"), ("gpt", "hello"), id="abc_0")


@pytest.mark.parametrize(
    ("data", "offset"),
    [([TALK], 1), (lines(TALK), 1), (json.dumps(TALK, indent=2), 0), (json.dumps([TALK], indent=2), 4)],
)
def test_sharegpt_shapes(data, offset):
    (session,), rejects, reading = read(data, "a/talks.json.gz")
    assert (reading.reader.NAME, reading.unit, rejects) == ("sharegpt", "exchange", [])
    assert (session.case_id, session.session_id, session.offset) == ("a/talks", "abc_0", offset)
    assert said(session) == [("user", "hi"), ("assistant", "hello")]


def test_sharegpt_speakers():
    turns = [
        *(("system", "s"), ("Human", "h"), ("gpt", "g"), ("chatgpt", "c"), ("bing", "b"), ("bard", "d"), ("user", "u")),
        *(
            ("assistant", "a"),
            ("tool", "t"),
            ("observation", "o"),
            ("function_call", "f"),
            ("critic", "x"),
            (None, "n"),
        ),
    ]
    (session,), _, reading = read([shared(*turns, system="be kind")])
    assert [one.role for one in session.messages] == [
        *("system", "system", "user", "assistant", "assistant", "assistant", "assistant", "user"),
        *("assistant", "tool", "tool", "assistant", "critic", "user"),
    ]
    assert session.messages[0].content == "be kind" and reading.context.repairs == {"missing_role": 1}


def test_sharegpt_quirks():
    cut = shared(("gpt", "... goes on"), ("human", "more"), id="abc_7")  # a long talk cut in parts
    mixed = {"id": "m", "conversations": [{"role": "user", "content": "a"}, {"from": "gpt", "value": None}]}
    html = shared(("human", "<p>x</p>"), ("gpt", ""), id="h")
    sessions, rejects, reading = read([cut, mixed, html, shared(id="e")])
    assert [said(s) for s in sessions] == [
        [("assistant", "... goes on"), ("user", "more")],
        [("user", "a"), ("assistant", "")],
        [("user", "<p>x</p>"), ("assistant", "")],
        [],
    ]
    assert not rejects and reading.context.repairs == {"null_content": 1}


def test_ids_that_are_missing_are_made_of_what_was_said():
    one, two = shared(("human", "a"), ("gpt", "b")), shared(("human", "ab"), ("gpt", ""))
    first = [s.session_id for s in read([one, two])[0]]
    assert first == [s.session_id for s in reversed(read(lines(two, one), "other")[0])]
    assert len(set(first)) == 2 and all(len(key) == 16 for key in first)


def test_sharegpt_faults_cost_their_part_only():
    broken = json.dumps(TALK)[:-9]
    data = "\n".join([json.dumps(TALK), broken, "[]", '{"id": "x"}', '{"conversations": 5}', json.dumps(TALK)])
    sessions, rejects, _ = read(data)
    assert [s.offset for s in sessions] == [1, 6]
    assert [(r.reason, r.offset) for r in rejects] == [
        *(("not_json", 2), ("not_an_object", 3), ("missing_field", 4), ("wrong_type", 5)),
    ]
    sessions, rejects, _ = read([shared(("human", "a")) | {"conversations": [5, {"from": "human", "value": "b"}]}])
    assert said(sessions[0]) == [("user", "b")] and [r.reason for r in rejects] == ["wrong_type"]
    array = f"[{json.dumps(TALK)},{broken},{json.dumps(TALK)}]"
    sessions, rejects, _ = read(array)
    assert len(sessions) == 2 and [r.reason for r in rejects] == ["not_json"]


def test_a_broken_first_line_hides_no_format():
    sessions, rejects, reading = read("oops\n" + lines(TALK))
    assert (reading.reader.NAME, len(sessions), [r.reason for r in rejects]) == ("sharegpt", 1, ["not_json"])


# -- OpenAI -----------------------------------------------------------------------------------------------------------

CALL = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Bern"}'}}


@pytest.mark.parametrize(
    ("message", "role", "content"),
    [
        ({"role": "developer", "content": "be brief"}, "developer", "be brief"),
        ({"role": "assistant", "content": None, "tool_calls": [CALL]}, "assistant", "[tool_call: weather]"),
        ({"role": "assistant", "tool_calls": [CALL, CALL]}, "assistant", "[tool_call: weather]\n[tool_call: weather]"),
        ({"role": "assistant", "content": "Let me see.", "tool_calls": [CALL]}, "assistant", "Let me see."),
        (
            {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
            "assistant",
            "[tool_call: f]",
        ),
        ({"role": "tool", "tool_call_id": "call_1", "content": "12 C"}, "tool", "12 C"),
        ({"role": "function", "name": "f", "content": "{}"}, "function", "{}"),
        ({"role": "assistant", "content": None, "refusal": "I cannot."}, "assistant", "I cannot."),
        ({"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}, "assistant", "No."),
        ({"role": "assistant", "content": None, "audio": {"id": "a", "transcript": "Yes."}}, "assistant", "Yes."),
        (
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "What is it?"},
                    {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
                    {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
                ],
            },
            "user",
            "What is it?\n[image_url]\n[input_audio]",
        ),
        ({"role": "user", "content": ""}, "user", ""),
        ({"role": "user"}, "user", ""),
    ],
)
def test_openai_message(message, role, content):
    (session,), rejects, reading = read(lines({"messages": [message]}))
    assert (reading.reader.NAME, reading.unit, rejects) == ("openai_messages", "exchange", [])
    assert said(session) == [(role, content)] and session.messages[0].name == message.get("name")


@pytest.mark.parametrize(
    ("more", "case"),
    [
        ({}, "logs"),
        ({"user": "ann"}, "ann"),
        ({"user_id": 7}, "7"),
        ({"metadata": {"user": "bob"}}, "bob"),
        ({"metadata": {"user_id": "bob"}, "user": "ann"}, "ann"),
        ({"metadata": {"case_id": "c"}}, "c"),
        ({"user": ""}, "logs"),
        ({"user": {"id": 1}, "metadata": "x"}, "logs"),
    ],
)
def test_whose_conversation_it_is(more, case):
    for record in ({"messages": [{"role": "user", "content": "a"}], **more}, {**TALK, **more}):
        (session,), _, _ = read(lines(record))
        assert session.case_id == case


def test_openai_ids_and_times():
    message = {"role": "user", "content": "a"}
    records = [
        {"id": "chat-1", "created": 1700000000, "messages": [message]},
        {"metadata": {"conversation_id": "chat-2"}, "created_at": "2024-05-01T10:00:00Z", "messages": [message]},
        {"timestamp": "yesterday", "messages": [{**message, "id": "m1", "at": "2024-05-01T10:00:00Z"}]},
    ]
    sessions, _, _ = read(records)
    assert [s.session_id for s in sessions[:2]] == ["chat-1", "chat-2"]
    assert [(s.started_at, s.started_at_text) for s in sessions] == [
        (datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC), None),
        (datetime(2024, 5, 1, 10, tzinfo=UTC), "2024-05-01T10:00:00Z"),
        (None, "yesterday"),
    ]
    one = sessions[2].messages[0]
    assert (one.id, one.at) == ("m1", datetime(2024, 5, 1, 10, tzinfo=UTC))


def test_openai_array_with_a_broken_element():
    parts = [json.dumps({"messages": [{"role": "user", "content": f"text {n}"}]}) for n in range(3)]
    parts[1] = parts[1].replace('1"', "1")
    sessions, rejects, _ = read("[" + ", ".join(parts) + "]")
    assert [said(s)[0][1] for s in sessions] == ["text 0", "text 2"] and [r.reason for r in rejects] == ["not_json"]


# -- rows -------------------------------------------------------------------------------------------------------------

T0, T1 = datetime(2023, 4, 9, 0, 2, 53, tzinfo=UTC), datetime(2023, 4, 9, 0, 5, tzinfo=UTC)


def turn(role, content, at=None, ip="ip1"):
    told = {"role": role, "content": content, "timestamp": at, "hashed_ip": ip}
    return {**told, "turn_identifier": 5, "toxic": True, "redacted": False}


def row(key, *turns, ip="ip1"):
    told = {"conversation_hash": key, "model": "gpt-4", "timestamp": T1, "conversation": list(turns), "turn": 1}
    return {**told, "toxic": False, "redacted": True, "hashed_ip": ip, "header": {"user-agent": "x"}}


WILD = [
    row("h1", turn("user", "hi"), turn("assistant", None, T0)),
    row("h2", turn("user", "NAME_1?\0", ip=None), ip=None),
    row("h3"),
]
LMSYS = [
    {
        "conversation_id": key, "model": "vicuna", "turn": 1, "language": "English", "redacted": False,
        "conversation": [{"role": "user", "content": text}, {"role": "assistant", "content": "ok"}],
        "openai_moderation": [{"flagged": False, "categories": {"hate": False}}],
    }
    for key, text in (("c1", "hi"), ("c2", "caf\u00e9"))
]  # fmt: skip


def parquet(rows, schema=None, **options):
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, schema), sink, **options)
    return sink.getvalue()


def as_lines(rows):
    return "".join(json.dumps(row, default=lambda at: at.isoformat()) + "\n" for row in rows)


@pytest.mark.parametrize("pack", [parquet, as_lines, lambda rows: f"[{','.join(as_lines(rows).splitlines())}]"])
def test_wildchat(pack):
    sessions, rejects, reading = read(pack(WILD))
    assert (reading.reader.NAME, reading.unit, rejects) == ("wildchat", "exchange", [])
    assert [(s.case_id, s.session_id, said(s)) for s in sessions] == [
        ("ip1", "h1", [("user", "hi"), ("assistant", "")]),
        ("h2", "h2", [("user", "NAME_1?\ufffd")]),
        ("ip1", "h3", []),
    ]
    # Answers are timed, questions are not; a conversation without such times has its row's.
    assert [(one.at, s.started_at) for s in sessions for one in s.messages] == [(T0, None), (T0, None), (None, T1)]
    repairs = reading.context.repairs
    assert (
        repairs["null_content"] == 1
        and repairs["nul_character"] == 1
        and not set(repairs) - {"null_content", "nul_character"}
    )


def test_wildchat_before_there_were_addresses():
    old = [{"conversation_id": "x1", "timestamp": T0, "conversation": [{"role": "user", "content": "a", "turn": 1}]}]
    for data in (parquet(old), as_lines(old)):
        (session,), _, reading = read(data)
        assert (reading.reader.NAME, session.case_id, session.session_id, session.started_at) == (
            "wildchat",
            "x1",
            "x1",
            T0,
        )


@pytest.mark.parametrize("pack", [parquet, as_lines])
def test_lmsys(pack):
    sessions, rejects, reading = read(pack(LMSYS))
    assert (reading.reader.NAME, reading.unit, rejects) == ("lmsys", "exchange", [])
    assert [(s.case_id, s.session_id, said(s)[0]) for s in sessions] == [
        *(("c1", "c1", ("user", "hi")), ("c2", "c2", ("user", "caf\u00e9"))),
    ]


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(pa.struct([("content", pa.large_string()), ("role", pa.dictionary(pa.int32(), pa.string()))])),
        pa.large_list(pa.struct([("role", pa.string()), ("extra", pa.list_(pa.string())), ("content", pa.string())])),
    ],
)
def test_parquet_of_other_layouts(kind):
    rows = [
        *LMSYS,
        {"conversation_id": "c3", "conversation": None},
        {"conversation_id": "c4", "conversation": [None]},
    ] * 200
    schema = pa.schema([("conversation", kind), ("conversation_id", pa.string())])
    sessions, rejects, _ = read(parquet(rows, schema, row_group_size=300), source="x.bin")
    assert len(sessions) == 800 and sessions[0].session_id == sessions[796].session_id == "c1"
    assert said(sessions[797])[0] == ("user", "caf\u00e9") and said(sessions[798]) == []
    assert said(sessions[799]) == [("user", "")] and not rejects
    assert [s.offset for s in sessions] == list(range(800))


def test_parquet_times_of_every_unit():
    for unit in ("s", "ms", "us", "ns"):
        for zone in ("UTC", "Europe/Paris", None):
            schema = pa.schema(
                [
                    ("conversation_hash", pa.string()),
                    ("timestamp", pa.timestamp(unit, zone)),
                    ("conversation", pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))),
                ]
            )
            rows = [{"conversation_hash": "h", "timestamp": T0, "conversation": [{"role": "user", "content": "a"}]}]
            (session,), _, reading = read(parquet(rows, schema))
            assert session.started_at == T0 and reading.context.repairs["naive_time"] == (zone is None)


def test_parquet_times_that_are_none():
    times = pa.array([2**62, -(2**62), None], pa.timestamp("us", "UTC")).cast(pa.timestamp("us", "No/Such_Zone"))
    chat = pa.array([[{"role": "user", "content": "a"}]] * 3)
    sink = io.BytesIO()
    table = pa.table({"conversation_hash": list("abc"), "timestamp": times, "conversation": chat})
    pq.write_table(table, sink)
    sessions, rejects, _ = read(sink.getvalue())
    assert [s.started_at for s in sessions] == [None] * 3 and not rejects


def test_parquet_text_that_is_not_utf8():
    bad = pa.StringArray.from_buffers(1, pa.array([0, 4], pa.int32()).buffers()[1], pa.py_buffer(b"caf\xe9"))
    items = pa.StructArray.from_arrays([pa.array(["user"]), bad], ["role", "content"])
    table = pa.table(
        {"conversation_id": ["c"], "conversation": pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), items)}
    )
    sink = io.BytesIO()
    pq.write_table(table, sink, store_schema=False)
    (session,), rejects, reading = read(sink.getvalue())
    assert said(session) == [("user", "caf\u00e9")] and not rejects and reading.context.repairs["cp1252"] == 1


def test_parquet_that_is_compressed_cut_or_of_no_use():
    data = parquet(WILD)
    assert len(read(gzip.compress(data))[0]) == 3
    for damaged in (data[: len(data) // 2], data[:4], data[:-4] + b"XXXX"):
        sessions, rejects, _ = read(damaged)
        assert not sessions and [(r.reason, r.detail) for r in rejects] == [
            ("unreadable", "a Parquet file that is damaged or cut")
        ]
    sessions, rejects, _ = read(gzip.compress(data)[:-20])
    assert not sessions and {r.reason for r in rejects} == {"unreadable", "truncated"}
    sessions, rejects, _ = read(data, format="tagloom")
    assert [(r.reason, r.detail) for r in rejects] == [
        ("unreadable", "a Parquet file, which cannot be read as tagloom")
    ]
    sessions, rejects, _ = read(parquet([{"text": "x"}]), format="wildchat")
    assert [r.reason for r in rejects] == ["missing_field"] and "no column 'conversation'" in rejects[0].detail
    with pytest.raises(InputError, match=r"^logs\.jsonl: is of no known format"):
        read(parquet([{"text": "x"}]))


def test_parquet_damage_costs_one_row_group():
    rows = [{**LMSYS[0], "conversation_id": f"c{n}", "model": str(random.Random(n).random())} for n in range(90)]
    data = bytearray(parquet(rows, row_group_size=30, compression="zstd"))
    column = pq.ParquetFile(io.BytesIO(bytes(data))).metadata.row_group(1).column(0)
    at = column.dictionary_page_offset or column.data_page_offset
    data[at : at + column.total_compressed_size] = b"\xff" * column.total_compressed_size
    sessions, rejects, _ = read(bytes(data))
    assert [s.session_id for s in sessions] == [f"c{n}" for n in (*range(30), *range(60, 90))]
    assert [r.reason for r in rejects] == ["unreadable"] and "row group 1" in rejects[0].detail


def parquet_fuzz(count, seed):
    """Change bytes of Parquet files, most in place so that offsets stay, and cut some."""
    rng = random.Random(seed)
    whole = {"wildchat": parquet(WILD * 40, row_group_size=20), "lmsys": parquet(LMSYS * 40, compression="none")}
    told = Counter()
    for number in range(count):
        name = sorted(whole)[number % 2]
        data = bytearray(whole[name])
        for _ in range(rng.randint(1, 4)):
            at, size = rng.randrange(4, len(data)), rng.randint(1, 4)
            data[at : at + size] = bytes(rng.randrange(256) for _ in range(size if rng.random() < 0.8 else 2))
        if rng.random() < 0.2:
            del data[rng.randrange(4, len(data)) :]
        sessions, rejects, _ = read(bytes(data), format=name)
        assert sessions or rejects
        assert {r.reason for r in rejects} <= set(REJECT_REASONS)
        told["taken"] += len(sessions)
        told["rejected"] += len(rejects)
    return told


def test_parquet_fuzz():
    told = parquet_fuzz(100, 3)
    assert told["taken"] > 1000 and told["rejected"] > 50


# -- all --------------------------------------------------------------------------------------------------------------

QUOTE = (
    '{"case_id": 1, "messages": [], "question": "?", "conversation": [], "mapping": {}, "story_id": 1, "batches": []}'
)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("sharegpt", lines(shared(("human", QUOTE), ("gpt", "x")))),
        ("sharegpt", json.dumps([shared(("human", "x" * 70_000), id="a")])),
        ("openai_messages", lines({"messages": [{"role": "user", "content": QUOTE}], "metadata": {"case_id": "c"}})),
        ("openai_messages", json.dumps([{"messages": [{"role": "user", "content": "x"}]}], indent=1)),
        ("wildchat", parquet(WILD)),
        ("wildchat", as_lines(WILD)),
        ("lmsys", parquet(LMSYS)),
        ("lmsys", as_lines(LMSYS)),
        ("tagloom", lines({"case_id": "c", "session_id": "s", "messages": [{"role": "user", "content": QUOTE}]})),
    ],
)
def test_each_is_told_from_all_others(name, data):
    raw = data if isinstance(data, bytes) else data.encode()
    assert name == read(raw)[2].reader.NAME
    if not raw.startswith(b"PAR1"):
        assert [key for key, reader in READERS.items() if reader.sniff(raw[:65536], "x")] == [name]


@pytest.mark.parametrize(
    "data",
    [
        json.dumps([{"batch": 1, "time_anchor": "March-15-2024", "messages": [{"role": "user", "content": "x"}]}]),
        json.dumps({"name": "Ann", "type": "personal_chat", "messages": [{"id": 1, "from": "Ann", "text": "x"}]}),
    ],
)
def test_other_files_with_messages_are_not_taken_for_logs(data):
    assert not READERS["openai_messages"].sniff(data.encode(), "x")
