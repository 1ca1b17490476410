"""Replies that go wrong: what is mended, what is told, what is refused; and nothing else ever comes out."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.transforms.fuzz_replies import GOOD, fuzz
from transforms import replies, reply_fields
from transforms.replies import BadReplyError, parse, refusal, told

NOTE = {"who": ["ana"], "what": ["sport/running"], "summary": "Ana ran."}
TEXT = json.dumps(NOTE)


@pytest.mark.parametrize(
    "text",
    [
        TEXT,
        "\ufeff" + TEXT,
        f"\n\t {TEXT}" + "\n" * 5000,
        f"<think>Shall I write {{}}?\n</think>\n\n{TEXT}",
        f"They want {{a note}}. I write it.</think>{TEXT}",
        json.dumps(NOTE, indent=4),
    ],
)
def test_a_good_reply_needs_no_repair(text):
    assert parse(text, "stop") == (NOTE, [])


@pytest.mark.parametrize(
    ("text", "repairs"),
    [
        (f"Sure! Here is it (as asked):\n{TEXT}\nAnything else?", ["text around the object"]),
        (f"```json\n{TEXT}\n```", ["a code fence around the object"]),
        (f"Here:\n```\n{TEXT}\n```", ["a code fence around the object", "text around the object"]),
        (f"[{TEXT}]", ["the object was inside a list"]),
        (json.dumps(TEXT), ["the object was inside a string"]),
        (TEXT + "}", ["text around the object"]),
        (f'{{"who": []}}\nBetter:\n{TEXT}', ["text around the object"]),
        (str(NOTE), ["broken JSON"]),
        (TEXT.replace('["ana"]', '["ana",]'), ["broken JSON"]),
        (TEXT.replace('["ana"],', '["ana"]'), ["broken JSON"]),
        (TEXT.replace('"who"', "who"), ["broken JSON"]),
        (TEXT[:-1], ["the reply broke off"]),
        (TEXT.replace('"', "“", 1).replace('"', "”", 1), ["broken JSON"]),
    ],
)
def test_what_is_safely_mended_is_told(text, repairs):
    assert parse(text, "stop") == (NOTE, repairs)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "the reply is empty"),
        (" \n\ufeff", "the reply is empty"),
        ("\n" * 9000, "the reply is nothing but white space"),
        ("The user ran.", "no JSON object in the reply"),
        ("<think>Let me see.</think>", "the reply holds thoughts and no answer"),
        ("I'm sorry, but I can't help with that.", "a refusal: I'm sorry, but I can't help with that."),
        ("I cannot extract tags from this content", "a refusal: I cannot extract tags from this content"),
        ("Unfortunately, I’m unable to do so", "a refusal: Unfortunately, I’m unable to do so"),
        ("As an AI language model, I do not tag.", "a refusal: As an AI language model, I do not tag."),
        ("42", "no JSON object in the reply"),
        ('["ana", "sport/running"]', "the reply is a JSON list, not an object"),
        (f"[{TEXT}, {TEXT}]", "the reply is a JSON list, not an object"),
        (f"Here: [{TEXT}, {TEXT}] Done", "the reply is a JSON list, not an object"),
        (f"[{TEXT}, {TEXT}", "the reply is a JSON list, not an object"),
        ('"ana ran"', "the reply is a JSON string, not an object"),
        ("{who cares}", "broken JSON"),
        ("{" * 5000, "broken JSON"),
        ('{"a":' * 3000, "the reply broke off before its first field was whole"),
        ("x" * (1 << 20) + "y", "the reply has 1048577 characters"),
    ],
)
def test_what_cannot_be_used_is_named(text, fault):
    with pytest.raises(BadReplyError) as caught:
        parse(text, "stop")
    assert str(caught.value) == fault


CUT = '{"who": ["ana", "bo"], "what": ["sport/running", "travel/por'


def test_a_cut_reply_keeps_what_was_whole():
    cut = ["the reply was cut at its limit"]
    assert parse(CUT, "length") == ({"who": ["ana", "bo"], "what": ["sport/running"]}, cut)
    assert parse('{"who": ["ana"], "summary": "Ana ra', "length") == ({"who": ["ana"]}, cut)
    assert parse('{"who": ["ana"], "summ', "length") == ({"who": ["ana"]}, cut)
    assert parse('{"who": ["ana"], "n": 12', "length") == ({"who": ["ana"]}, cut)
    assert parse('{"who": ["ana", "bo"', "length") == ({"who": ["ana", "bo"]}, cut)
    assert parse('{"who": ["a\\"b", "c\\', "length") == ({"who": ['a"b']}, cut)
    fenced = parse("```json\n" + CUT, "length")
    assert fenced[1] == ["a code fence around the object", *cut]


def test_a_cut_object_in_a_list_goes_as_a_whole():
    text = '{"facts": [{"text": "Ana ran.", "concepts": ["a_b"]}, {"text": "Bo sat.", "concepts": ["c_d"'
    assert parse(text, "length")[0] == {"facts": [{"text": "Ana ran.", "concepts": ["a_b"]}]}


def test_a_cut_reply_without_anything_whole_is_refused():
    for text in ('{"who": ["an', '{"wh', "{", '{"facts": [{"text": "Ana ran."'):
        with pytest.raises(BadReplyError, match=r"cut at its limit before|no JSON|broken"):
            parse(text, "length")
    with pytest.raises(BadReplyError, match="still thinking"):
        parse("<think>Well, let me see", "length")


def test_endless_white_space_ends_the_reply():
    ran_on = ["the reply ran on in white space"]
    assert parse('{"who": ["ana"],' + "\n" * 4000, "length") == ({"who": ["ana"]}, ran_on)
    assert parse('{"who": ["ana"],' + " " * 4000, "stop") == ({"who": ["ana"]}, ran_on)
    assert parse('{"who": ["ana"]}' + " \n" * 4000, "length") == ({"who": ["ana"]}, [])
    with pytest.raises(BadReplyError, match="white space before its first field"):
        parse('{"who": [' + " " * 4000, "length")


def test_a_repair_invents_and_loses_nothing():
    # json_repair alone would make {'who': ['ana'], 'w': ''} of the first and drop all that follows.
    lossy = '{"who": ["ana"], "w"], "what": ["sport/running", "travel/porto"], "summary": "Ana ran in Porto."}'
    for text in (lossy, '{"text": "Ana"kind": "entity", "role": "user"}', '{"who": "a": "b": "c", d e f g h i j k}'):
        with pytest.raises(BadReplyError, match="broken JSON"):
            parse(text, "stop")


def test_an_object_inside_a_broken_one_is_not_the_reply():
    with pytest.raises(BadReplyError):
        parse('{"nod: [{"title": "Ana"}], "edges": [{"source": "Ana", "kind": "knows", "target": "Bo"}]}', "stop")


def test_odd_characters_in_strings_pass():
    value, repairs = parse('{"who": ["a\tb"], "summary": "x\ny \\ud800 \x00"}', "stop")
    assert (value["who"], repairs) == (["a\tb"], [])
    assert reply_fields.text(value["summary"], "summary", 99, []) == "x y \ufffd \ufffd"


def test_numbers_beyond_bounds():
    assert parse('{"a": NaN, "b": Infinity, "c": 1e999}', "stop")[0] == {"a": None, "b": None, "c": float("inf")}
    assert parse('{"a": ' + "9" * 5000 + "}", "stop") == ({"a": "9" * 5000}, ["broken JSON"])


def test_a_text_about_refusing_is_no_refusal():
    assert not refusal("The user cannot come on Friday.")
    assert not refusal("I ran five miles.")
    assert not refusal("Sorry sight: the garden after the storm.")
    assert refusal("**I'm sorry**, I cannot do that")


def test_told_is_bounded_and_has_no_repeats():
    assert told([]) is None
    assert told(["a", "b", "a"]) == "a; b"
    assert len(told([f"fault {n}" for n in range(200)])) == 300


def test_fields():
    repairs: list[str] = []
    assert reply_fields.fields({"Who ": 1, "x": 2, "y" * 99: 3}, ("who", "what"), repairs) == {"who": 1}
    assert repairs == [f"unknown 'x', '{'y' * 40}'", "no 'what'"]
    repairs = []
    assert reply_fields.fields({"note": {"who": 1}}, ("who",), repairs) == {"who": 1}
    assert repairs == ["the fields were one level too deep"]
    with pytest.raises(BadReplyError, match="none of the fields 'who', 'what' is there"):
        reply_fields.fields({"error": "x", "note": {"a": 1}}, ("who", "what"), [])


def test_strings():
    def read(value, limit=3):
        repairs: list[str] = []
        return reply_fields.strings(value, "who", limit, 10, repairs), repairs

    assert read(["a", " b\n c ", "a", ""]) == (["a", "b c"], [])
    assert read(None) == ([], [])
    assert read("") == ([], [])
    assert read("a") == (["a"], ["'who' was no list"])
    assert read([1, 2.5, {"name": "x"}, None]) == (["1", "2.5", "x"], [])
    assert read([True, [], {}, {"a": 1, "b": 2}, "a"]) == (["a"], ["4 of 'who' were no string"])
    assert read(["a" * 11, "b"]) == (["b"], ["1 of 'who' had more than 10 characters"])
    assert read(["a", "b", "c", "d"]) == (["a", "b", "c"], ["'who' had 4 items, 3 are kept"])
    assert len(read([str(n) for n in range(99)])[0]) == 3
    for odd in (True, 3, {"a": 1}):
        with pytest.raises(BadReplyError, match="'who' is no list of strings"):
            read(odd)


def test_text():
    def read(value, longest=20):
        repairs: list[str] = []
        return reply_fields.text(value, "summary", longest, repairs), repairs

    assert read(" a\n b ") == ("a b", [])
    assert read(None) == ("", [])
    assert read(["a", "b"]) == ("a b", ["'summary' was a list"])
    assert read(7) == ("7", ["'summary' was a number"])
    assert read("one two three four five") == ("one two three four…", ["'summary' was cut to 20 characters"])
    assert read("x" * 30) == ("x" * 19 + "…", ["'summary' was cut to 20 characters"])
    for odd in (True, {}, [1]):
        with pytest.raises(BadReplyError, match="'summary' is no string"):
            read(odd)


def test_mutated_replies():
    counts = fuzz(2000, seed=3)
    assert counts["replies"] == 2000
    assert min(counts["taken"], counts["mended"], counts["refused"]) > 200


def _parsed(text, finish):
    try:
        value, repairs = parse(text, finish)
    except BadReplyError as error:
        assert str(error)
        return None
    assert isinstance(value, dict)
    assert all(isinstance(one, str) and one for one in repairs)
    return value


@settings(max_examples=300, deadline=None)
@given(
    st.text(st.characters() | st.sampled_from("{}[]\":,\\'`\n")), st.sampled_from(["stop", "length", "content_filter"])
)
def test_any_text_gives_an_object_or_a_fault(text, finish):
    _parsed(text, finish)


_LEAF = st.none() | st.booleans() | st.integers() | st.text(max_size=5)


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(st.text(min_size=1, max_size=5), _LEAF | st.lists(_LEAF | st.lists(_LEAF), max_size=3), max_size=4)
)
def test_valid_json_comes_back_as_it_is(value):
    assert parse(json.dumps(value), "stop") == (value, [])


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_a_prefix_never_gives_more_than_the_whole(data):
    value = data.draw(st.sampled_from(list(GOOD.values())))
    text = json.dumps(value)
    found = _parsed(text[: data.draw(st.integers(0, len(text) - 1))], "length")
    for key, item in (found or {}).items():
        assert item == value[key][: len(item)]


def test_broken_replies_cost_little_time(monkeypatch):
    # json_repair takes minutes for these; they never reach it.
    import json_repair

    monkeypatch.setattr(json_repair, "loads", lambda *_, **__: pytest.fail("json_repair was asked"))
    for text in ('{"a" ' * 8000 + "}", "{'" * 50_000 + "}", '{"a": ' + "[" * 9 + "}", '{"a" "' + "x" * 20_000 + '"}'):
        with pytest.raises(BadReplyError):
            parse(text, "stop")


def test_the_version_is_told():
    assert replies.VERSION == 1
