"""What holds for all exports: each is known by its content, alone; mutated ones are read without losing anything."""

import gzip
import json

import pytest

from tests.transforms.exports import (
    ANDROID,
    SLACK,
    claude_conversation,
    claude_message,
    conversation,
    node,
    read,
)
from tests.transforms.fuzz_exports import FORMATS, fuzz
from transforms.formats import READERS
from transforms.formats._head import first_keys

SAMPLES = {
    "chatgpt": json.dumps([conversation(node("r", None), node("u", "r", "hi"))]),
    "claude": json.dumps([claude_conversation(claude_message("m", "hi"))]),
    "slack": json.dumps(SLACK),
    "whatsapp": ANDROID,
    "tagloom": '{"case_id":"c","session_id":"s","messages":[{"role":"user","content":"hi"}]}\n',
    "longmemeval": '[{"question_id":"q","haystack_dates":[],"haystack_session_ids":[],"haystack_sessions":[]}]',
    "locomo": '[{"qa": [{"question":"?","evidence":[]}], "conversation": {}, "sample_id": "x"}]',
    "sharegpt": '[{"id": "s", "conversations": [{"from": "human", "value": "hi"}]}]',
    "openai_messages": '{"messages": [{"role": "user", "content": "hi"}]}\n',
}


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("file", ["x", "conversations.json", "general/2024-01-01.json", "users.json", "_chat.txt"])
def test_every_sample_is_of_one_format_whatever_its_file_is_called(name, file):
    head = SAMPLES[name].encode()
    assert [reader.NAME for reader in READERS.values() if reader.sniff(head, file)] == [name]


@pytest.mark.parametrize("name", FORMATS)
def test_layout_and_compression_do_not_matter(name):
    plain = SAMPLES[name]
    spread = plain if name == "whatsapp" else json.dumps(json.loads(plain), indent=2)
    alone = plain if name == "whatsapp" else json.dumps(json.loads(plain)[0])
    wanted = [[m.content for m in one.messages] for one in read(plain)[0]]
    for data in (
        "\n\n " * (name != "whatsapp") + spread,
        b"\xef\xbb\xbf" + spread.encode(),
        gzip.compress(plain.encode()),
    ):
        sessions, rejects, reading = read(data)
        assert name == reading.reader.NAME and not rejects
        assert [[m.content for m in one.messages] for one in sessions] == wanted
    assert name == read(alone)[2].reader.NAME


@pytest.mark.parametrize("name", FORMATS)
def test_texts_that_quote_other_formats_mislead_nobody(name):
    quoted = " ".join(SAMPLES[other].replace("\n", " ") for other in SAMPLES if other != name)
    data = {
        "chatgpt": [conversation(node("u", None, quoted), title=quoted)],
        "claude": [claude_conversation(claude_message("m", quoted), name=quoted)],
        "slack": [{**SLACK[0], "text": quoted}],
        "whatsapp": f"15/01/24, 21:05 - Ann: {quoted}\n",
    }[name]
    sessions, rejects, reading = read(data)
    assert name == reading.reader.NAME and len(sessions) == 1 and not rejects


@pytest.mark.parametrize(
    ("head", "keys"),
    [
        (b'[{"a": {"b": 1}, "c": ["d", {"e": 2}], "f": "g"}, {"h": 1}]', {"a", "c", "f"}),
        (b' {"a" : "{\\"b\\": 1", "c\\\\": 1} {"d": 2}', {"a", "c\\\\"}),
        (b'[{"a": "cut \\" {[ ', {"a"}),
        (b'[{"a": "cut \\', {"a"}),
        (b'[{"a": 1, "b', {"a"}),
        (b'["a", {"b": 1}]', set()),
        (b'"a": 1', set()),
        (b"", set()),
    ],
)  # fmt: skip
def test_the_keys_of_the_first_object(head, keys):
    assert first_keys(head) == keys


def test_a_head_of_quotes_takes_no_time():
    assert first_keys(b'[{"a": "' + b'\\"' * 400_000) == {"a"}


def test_fuzz():
    told = fuzz(300, 7)
    assert told["inputs"] == 300 and told["taken"] > 800 and told["rejected"] > 80
