import gzip
import importlib.metadata
import io
import json
import re
import sys
import types
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
import zstandard

from schemas.errors import InputError
from transforms import formats
from transforms.formats import READERS, decompress, detect, named, read_source, readers
from transforms.records import Question, Reject, Session

TAGLOOM = b'{"case_id":"c","session_id":"s","messages":[{"role":"user","content":"hi"}]}\n'
LONGMEM = b'[{"question_id":"q1","question":"?","haystack_dates":[],"haystack_session_ids":[],"haystack_sessions":[]}]'
LOCOMO = b'[\n  {"qa": [{"question":"?","evidence":[]}], "conversation": {}, "sample_id": "x"}]'


def read(data, format="auto", timezone=UTC, encoding="auto"):
    reading = read_source(io.BytesIO(data), "file", format, "auto", timezone, encoding)
    return list(reading.records), reading


def sessions(data, **options):
    records, reading = read(data, "tagloom", **options)
    return (
        [one for one in records if isinstance(one, Session)],
        [r for r in records if isinstance(r, Reject)],
        reading.context.repairs,
    )


def line(*messages, **more):
    return json.dumps({"case_id": "c", "session_id": "s", "messages": list(messages), **more}).encode() + b"\n"


def test_formats_are_found_by_listing_modules():
    folder = Path(formats.__file__).parent
    assert len(READERS) == len([path for path in folder.glob("[a-z]*.py") if path.stem != "__init__"])
    units = {name: reader.UNIT for name, reader in READERS.items()}
    assert units["locomo"] == units["multihop"] == "message"
    assert units["tagloom"] == units["beam"] == units["openai_messages"] == "exchange"


@pytest.mark.parametrize(("head", "name"), [(TAGLOOM, "tagloom"), (LONGMEM, "longmemeval"), (LOCOMO, "locomo")])
def test_detect(head, name):
    assert name == detect(head, "x").NAME
    assert name == detect(b"\n\n " + head, "x").NAME


def test_a_text_that_quotes_another_format_misleads_nobody():
    quoted = line({"role": "user", "content": '{"haystack_sessions": [], "dia_id": "x", "question": 1}'})
    assert detect(quoted, "x").NAME == "tagloom"


def test_detect_names_the_file_and_the_known_formats():
    with pytest.raises(InputError, match=r"^logs/a\.csv: is of no known format \(known: .*locomo.*tagloom") as caught:
        detect(b"id,text\n1,hello\n", "logs/a.csv")
    assert "--format" in caught.value.remedy


def test_ambiguous_files_are_refused(monkeypatch):
    twin = types.SimpleNamespace(NAME="twin", UNIT="exchange", sniff=lambda head, name: True, read=None)
    monkeypatch.setattr(formats, "readers", lambda: {**READERS, "twin": twin})
    with pytest.raises(InputError, match="fits more than one format: tagloom, twin"):
        detect(TAGLOOM, "x")


def test_third_party_formats_by_entry_point(monkeypatch):
    module = types.ModuleType("their_format")
    module.NAME, module.UNIT, module.sniff, module.read = "theirs", "message", lambda h, n: False, lambda s, c: iter(())
    monkeypatch.setitem(sys.modules, "their_format", module)
    entry = importlib.metadata.EntryPoint("theirs", "their_format", formats.GROUP)
    monkeypatch.setattr(formats, "entry_points", lambda group: [entry])
    readers.cache_clear()
    try:
        assert named("theirs") is module
        module.NAME = "locomo"
        readers.cache_clear()
        with pytest.raises(InputError, match="two formats are called 'locomo'"):
            readers()
        broken = importlib.metadata.EntryPoint("broken", "no_such_module_here", formats.GROUP)
        monkeypatch.setattr(formats, "entry_points", lambda group: [broken])
        readers.cache_clear()
        with pytest.raises(InputError, match="'broken' does not load"):
            readers()
    finally:
        readers.cache_clear()


def test_unknown_names_suggest_the_nearest():
    with pytest.raises(InputError, match="Did you mean 'locomo'"):
        named("locom")


BLANK = (b"", b" \n\t\r\n", b"\xef\xbb\xbf", gzip.compress(b"", mtime=0), zstandard.compress(b" "))


@pytest.mark.parametrize("data", BLANK)
@pytest.mark.parametrize("format", ["auto", *READERS])
def test_blank_files_hold_no_records(data, format):
    assert read(data, format)[0] == []


@pytest.mark.parametrize("data", [b"[]", b" [\n]\n"])
def test_an_empty_array_holds_no_records(data):
    assert read(data)[0] == []


@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstandard.compress])
def test_compression_is_known_by_content(pack):
    data = TAGLOOM * 40_000
    packed = pack(data[:1000]) + pack(data[1000:])  # several members or frames
    assert decompress(io.BytesIO(packed), "odd.txt").read() == data


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress])
def test_cut_and_damaged_compression_is_a_reject(pack):
    lines = b"".join(line({"role": "user", "content": f"{n * 2654435761 % 2**32}"}) for n in range(20_000))
    packed = pack(lines)
    records, _ = read(packed[: len(packed) // 2], "tagloom")
    assert len(records) > 1000
    assert records[-1].reason == "truncated"
    damaged = packed[:5000] + bytes(200) + packed[5200:]
    records, _ = read(damaged, "tagloom")
    assert [one for one in records if isinstance(one, Reject)][-1].reason in ("unreadable", "truncated", "not_json")


def test_storage_errors_are_not_swallowed():
    class Broken(io.BytesIO):
        def read(self, size=-1):
            if self.tell() > 100:
                raise OSError("connection reset")
            return super().read(64 if size is None or size < 0 else min(size, 64))

    with pytest.raises(OSError, match="connection reset"):
        list(read_source(Broken(TAGLOOM * 1000), "file", "tagloom", "auto", UTC).records)


@pytest.mark.parametrize("codec", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"])
@pytest.mark.parametrize("data", [TAGLOOM, LONGMEM, LOCOMO])
def test_unicode_encodings(codec, data):
    plain, _ = read(data)
    records, reading = read(data.decode().encode(codec))
    assert records == plain and len(records) > 0
    assert reading.context.repairs["transcoded_source"] == 1


def test_legacy_encoding():
    text = "caf\u00e9 \u201cquoted\u201d"
    data = json.dumps(
        {"case_id": "c", "session_id": "s", "messages": [{"role": "user", "content": text}]}, ensure_ascii=False
    )
    found, _, repairs = sessions(data.encode("cp1252"))
    assert found[0].messages[0].content == text and repairs["cp1252"] == 1
    found, _, repairs = sessions(data.encode("cp1252"), encoding="cp1252")
    assert found[0].messages[0].content == text and repairs["transcoded_source"] == 1
    found, _, _ = sessions(data.replace("\u201c", "").replace("\u201d", "").encode("latin-1"), encoding="latin-1")
    assert found[0].messages[0].content == "caf\u00e9 quoted"


@pytest.mark.parametrize("encoding", ["no-such", "base64", "hex", "", "rot13", "\x00"])
def test_unknown_encodings(encoding):
    with pytest.raises(InputError, match="text encoding"):
        read(TAGLOOM, encoding=encoding)


@pytest.mark.parametrize(
    ("message", "content", "counts"),
    [
        ({"content": None}, "", {"null_content": 1}),
        ({}, "", {"null_content": 1}),
        ({"content": "None"}, "None", {}),
        ({"content": "\U0001f600 \u6771\u4eac"}, "\U0001f600 \u6771\u4eac", {}),
        (
            {"content": [{"type": "text", "text": "a"}, "b", {"type": "image_url", "image_url": {}}]},
            "a\nb\n[image_url]",
            {"list_content": 1},
        ),
        ({"content": []}, "", {"list_content": 1}),
        ({"content": {"type": "text", "text": "a"}}, "a", {"list_content": 1}),
        (
            {"content": None, "tool_calls": [{"function": {"name": "search"}}, {"name": "open"}, 3]},
            "[tool_call: search]\n[tool_call: open]\n[tool_call: unknown]",
            {"tool_call": 1},
        ),
        ({"content": "", "function_call": {"name": "f"}}, "[tool_call: f]", {"tool_call": 1}),
        ({"content": "x", "tool_calls": [{"function": {"name": "search"}}]}, "x", {}),
        ({"content": 3.5}, "3.5", {"non_text_content": 1}),
        ({"content": True}, "true", {"non_text_content": 1}),
        ({"content": "a\x00b"}, "a\ufffdb", {"nul_character": 1}),
        ({"content": "\ud83d!"}, "\ufffd!", {"lone_surrogate": 1}),
    ],
)
def test_contents(message, content, counts):
    found, rejects, repairs = sessions(line({"role": "user", **message}))
    assert [one.content for one in found[0].messages] == [content]
    assert (rejects, dict(repairs)) == ([], counts)


def test_roles_names_ids_and_times():
    messages = [
        {"role": "System", "content": "a"},
        {"role": "critic", "content": "b", "name": " Ann ", "id": 7, "at": "2024-01-01T00:00:00+01:00"},
        {"content": "c", "name": "", "id": ""},
    ]
    found, _, repairs = sessions(line(*messages, started_at="1 March 2024"), timezone=ZoneInfo("Asia/Tokyo"))
    one = found[0]
    assert [(m.role, m.name, m.id) for m in one.messages] == [
        ("system", None, None),
        ("critic", "Ann", "7"),
        ("user", None, None),
    ]
    assert one.messages[1].at == datetime(2023, 12, 31, 23, tzinfo=UTC)
    assert (one.started_at, one.started_at_text) == (datetime(2024, 2, 29, 15, tzinfo=UTC), "1 March 2024")
    assert repairs == {"missing_role": 1, "free_text_time": 1, "naive_time": 1}


def test_a_time_that_cannot_be_read_is_kept_as_text():
    found, _, repairs = sessions(line({"role": "user", "content": "x"}, started_at="last Tuesday"))
    assert (found[0].started_at, found[0].started_at_text, repairs) == (None, "last Tuesday", {"unparsed_time": 1})


def test_ten_megabytes_in_one_message():
    text = "word " * 2_000_000
    found, _, _ = sessions(line({"role": "user", "content": text}))
    assert found[0].messages[0].content == text


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"not json", "not_json"),
        (b'{"case_id":"c"', "not_json"),
        (b"[1]", "not_an_object"),
        (b"null", "not_an_object"),
        (b'{"session_id":"s","messages":[]}', "missing_field"),
        (b'{"case_id":"","session_id":"s","messages":[]}', "missing_field"),
        (b'{"case_id":true,"session_id":"s","messages":[]}', "wrong_type"),
        (b'{"case_id":"c","session_id":"s"}', "missing_field"),
        (b'{"case_id":"c","session_id":"s","messages":{}}', "wrong_type"),
        (b'{"case_id":"c","question_id":"q","question":7}', "wrong_type"),
        (b'{"case_id":"c","question_id":"q","question":" "}', "wrong_type"),
        (b'{"case_id":"c","question":"?"}', "missing_field"),
        (b'{"case_id":"c","question_id":"q","question":"?","answerable":"yes"}', "wrong_type"),
        (b'{"case_id":"c","question_id":"q","question":"?","gold_message_ids":[{}]}', "wrong_type"),
        (b'{"case_id":"c","question_id":"q","question":"?","answer":{"a":1}}', "wrong_type"),
    ],
)
def test_bad_lines_are_rejected_and_the_others_go_on(data, reason):
    records, _ = read(TAGLOOM + b"\n" + data + b"\n" + TAGLOOM, "tagloom")
    assert [type(one) for one in records] == [Session, Reject, Session]
    assert (records[1].reason, records[1].offset, records[2].offset) == (reason, 3, 4)
    assert records[1].sample == data.decode() and records[1].detail


def test_a_bad_message_costs_itself_only():
    found, rejects, _ = sessions(line({"role": "user", "content": "a"}, "what", {"role": "user", "content": "b"}))
    assert [(m.content, m.id) for m in found[0].messages] == [("a", None), ("b", "s:2")]
    assert [(one.reason, one.offset) for one in rejects] == [("wrong_type", 1)]


def test_question_lines():
    asked = {
        "case_id": 5, "question_id": "q", "question": "who?", "type": "t", "asked_at": "2024-01-01T00:00Z", "answer": 3,
        "gold_session_ids": "s", "gold_message_ids": ["m", 4], "expected_contains": ["x"], "answerable": False,
    }  # fmt: skip
    records, _ = read(json.dumps(asked).encode())
    assert records == [
        Question("5", "q", "who?", "t", datetime(2024, 1, 1, tzinfo=UTC), "3", ["s"], ["m", "4"], ["x"], False, 1)
    ]
    records, _ = read(b'{"case_id":"c","question_id":"q","question":"who?"}')
    assert records == [Question("c", "q", "who?", offset=1)]


def test_the_documented_examples_are_read():
    page = (Path(__file__).parents[2] / "docs" / "formats.md").read_text(encoding="utf-8")
    examples = re.findall(r"```json\n(.*?)\n```", page, re.DOTALL)
    records, reading = read("\n".join(examples).encode())
    assert [type(one) for one in records] == [Session, Question]
    assert reading.context.repairs == {"naive_time": 1}
