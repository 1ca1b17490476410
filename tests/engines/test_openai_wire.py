"""The wire format and the pace of the engine ``openai``, without a server."""

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transforms.engines import Reply, Request
from transforms.engines._chat import FORMS, Bodies, Dialect, Fault, adapted, excerpt, read, wait_of
from transforms.engines._pace import Gate, Health, Strikes

SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "required": ["what", "format"],
    "properties": {
        "what": {"type": "array", "maxItems": 3, "items": {"type": "string", "maxLength": 20}},
        "format": {"type": "string", "maxLength": 9},
    },
}
ASKED = Request((("system", "Rules."), ("user", "Text.")), SCHEMA, 50)


def made(request=ASKED, dialect=None, guided=True, **extra):
    return orjson.loads(Bodies("m", guided, extra).make(request, dialect or Dialect()))


def told(status, value, **headers):
    raw = value if isinstance(value, bytes) else orjson.dumps(value)
    return read(status, headers, raw, 1_700_000_000.0, len)


def chat(message, finish="stop", **rest):
    return {"choices": [{"message": message, "finish_reason": finish}], **rest}


def test_a_body_holds_what_was_asked_and_nothing_else():
    assert made(seed=7, chat_template_kwargs={"enable_thinking": False}, top_p=None) == {
        "model": "m",
        "seed": 7,
        "chat_template_kwargs": {"enable_thinking": False},
        "temperature": 0.0,
        "max_tokens": 50,
        "response_format": {"type": "json_schema", "json_schema": {"name": "reply", "strict": True, "schema": SCHEMA}},
        "messages": [{"role": "system", "content": "Rules."}, {"role": "user", "content": "Text."}],
    }
    assert "response_format" not in made(guided=False)
    assert "response_format" not in made(Request(ASKED.messages, None, 50))


def test_one_maker_of_bodies_keeps_schemas_limits_and_dialects_apart():
    bodies = Bodies("m", True, {})
    other = {"type": "object", "properties": {}}
    for schema, tokens, dialect in [(SCHEMA, 5, Dialect()), (other, 5, Dialect()), (other, 6, Dialect(form=2))] * 2:
        body = orjson.loads(bodies.make(Request(ASKED.messages, schema, tokens), dialect))
        assert body["max_tokens"] == tokens
        if dialect.form == 0:
            assert body["response_format"]["json_schema"]["schema"] == schema
        else:
            assert body["response_format"] == {"type": "json_object"}
    for tokens in range(1000):  # more than it keeps
        assert orjson.loads(bodies.make(Request(ASKED.messages, other, tokens), Dialect()))["max_tokens"] == tokens


def test_a_schema_without_bounds_keeps_properties_of_such_names():
    sent = made(dialect=Dialect(form=1))["response_format"]["json_schema"]["schema"]
    assert sent == {
        "type": "object",
        "additionalProperties": False,
        "required": ["what", "format"],
        "properties": {"what": {"type": "array", "items": {"type": "string"}}, "format": {"type": "string"}},
    }


def test_rules_join_the_first_message_where_no_system_role_is_taken():
    body = made(dialect=Dialect(system=False, limit="max_completion_tokens", left_out=frozenset({"temperature"})))
    assert body["messages"] == [{"role": "user", "content": "Rules.\n\nText."}]
    assert body["max_completion_tokens"] == 50
    assert not {"temperature", "max_tokens"} & body.keys()


def test_hostile_text_stays_text():
    text = 'a\ud800b\x00"}],"model":"x"'
    body = made(Request((("user", text),), None, 5))
    assert body["messages"] == [{"role": "user", "content": 'a?b\x00"}],"model":"x"'}]
    assert body["model"] == "m"


@pytest.mark.parametrize(
    ("value", "reply"),
    [
        (
            chat(
                {"content": "{}"},
                usage={"prompt_tokens": 9, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 4}},
            ),
            Reply("{}", "stop", 9, 1, 4),
        ),
        (chat({"content": "abc"}, "length"), Reply("abc", "length", 0, 3)),
        (chat({"content": None}, "content_filter"), Reply("", "content_filter", 0, 0)),
        (chat({"content": "I cannot"}, "content_filter"), Reply("I cannot", "content_filter", 0, 8)),
        (chat({"content": None, "refusal": "I will not."}), Reply("I will not.", "refusal", 0, 11)),
        (chat({"content": "x", "reasoning_content": "hm"}, None), Reply("x", "stop", 0, 1)),
        (chat({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}), Reply("ab", "stop", 0, 2)),
        (
            chat(
                {"content": "x"}, usage={"prompt_tokens": -3, "completion_tokens": "?", "prompt_tokens_details": None}
            ),
            Reply("x", "stop", 0, 0),
        ),
    ],
)
def test_replies(value, reply):
    assert told(200, value) == reply


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"  \n",
        b'{"choices":[{"message":{"content":"{}',
        b"<html>busy</html>",
        b"\xff\xfe",
        [],
        None,
        {},
        {"choices": []},
        {"choices": [{}]},
        {"choices": [{"message": None}]},
        chat({"content": 5}),
        chat({"content": "x"}, "error"),
        chat({"content": [{"type": "text"}]}),
    ],
)
def test_what_is_no_completion_may_pass(value):
    answer = told(200, value)
    assert isinstance(answer, Fault)
    assert (answer.kind, answer.label) == ("passing", "body")


def error(message, **fields):
    return {"error": {"message": message, **fields}}


LONG_OPENAI = error(
    "This model's maximum context length is 4097 tokens. However, your messages resulted in 4294 tokens. Please reduce "
    "the length of the messages.",
    type="invalid_request_error",
    param="messages",
    code="context_length_exceeded",
)
LONG_VLLM = error(
    "'max_tokens' or 'max_completion_tokens' is too large: 9000. This model's maximum context length is 2048 tokens "
    "and your request has 3000 input tokens (9000 > 2048 - 3000).",
    type="BadRequestError",
    code=400,
)
LONG_LLAMA = error(
    "request (4390 tokens) exceeds the available context size (4096 tokens), try increasing it",
    type="exceed_context_size_error",
    code=400,
)
TOO_MANY = error("Rate limit reached for gpt-4o", type="tokens", code="rate_limit_exceeded")
QUOTA = error("You exceeded your current quota", type="insufficient_quota", code="insufficient_quota")
TPM = error(
    "Request too large for gpt-4o in organization org on tokens per min (TPM): Limit 30000, Requested 40000.",
    type="tokens",
    code="rate_limit_exceeded",
)


@pytest.mark.parametrize(
    ("status", "value", "kind"),
    [
        (400, LONG_OPENAI, "long"),
        (400, LONG_VLLM, "long"),
        (400, LONG_LLAMA, "long"),
        (500, error("Context size has been exceeded.", type="server_error", code=500), "long"),
        (413, b"", "long"),
        (429, TPM, "long"),
        (429, TOO_MANY, "busy"),
        (429, b"slow down", "busy"),
        (429, QUOTA, "quota"),
        (402, error("Insufficient Balance"), "quota"),
        (401, error("Incorrect API key provided: sk-abc"), "key"),
        (403, error("Country not supported"), "key"),
        (403, error("The model requires moderation and your input was flagged for violence"), "refused"),
        (404, error("The model `x` does not exist", code="model_not_found"), "model"),
        (404, {"detail": "Not Found"}, "model"),
        (405, b"", "model"),
        (400, error("foo/bar is not a valid model ID"), "model"),
        (307, b"", "model"),
        (500, b"oops", "passing"),
        (503, error("Loading model", type="unavailable_error"), "passing"),
        (529, b"", "passing"),
        (408, b"", "passing"),
        (400, error("max_tokens is too large: 99999. This model supports at most 16384 completion tokens"), "limit"),
        (400, error("'messages' must not be empty"), "refused"),
        (422, {"detail": [{"loc": ["body", "seed"], "msg": "Extra inputs are not permitted"}]}, "refused"),
        (200, error("Rate limited upstream", code=429), "busy"),
        (200, error("Provider returned error"), "passing"),
    ],
)
def test_errors_are_told_apart(status, value, kind):
    answer = told(status, value)
    assert isinstance(answer, Fault)
    assert answer.kind == kind


def test_an_overload_that_names_a_time_slows_all_down():
    assert told(503, b"", **{"Retry-After": "7"}) == Fault("busy", "HTTP 503: ", "503", 7.0)


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({}, None),
        ({"Retry-After": "20"}, 20.0),
        ({"Retry-After": " 1.5 "}, 1.5),
        ({"Retry-After-Ms": "250", "Retry-After": "1"}, 0.25),
        ({"Retry-After": "Tue, 14 Nov 2023 22:13:30 GMT"}, 10.0),
        ({"Retry-After": "Tue, 14 Nov 2023 22:13:30 GMT", "Date": "Tue, 14 Nov 2023 22:13:25 GMT"}, 5.0),
        ({"Retry-After": "Tue, 14 Nov 2023 21:00:00 GMT"}, 0.0),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": "-5"}, None),
        ({"Retry-After": "Tue, 99 Nov 99999 22:13:30 GMT"}, None),
    ],
)
def test_retry_after(headers, wait):
    assert wait_of(headers, 1_700_000_000.0) == wait  # 2023-11-14 22:13:20 UTC


@pytest.mark.parametrize(
    ("reason", "dialect"),
    [
        (
            "Unsupported parameter: 'max_tokens' ... Use 'max_completion_tokens' instead.",
            Dialect(limit="max_completion_tokens"),
        ),
        (
            "'temperature' does not support 0 with this model. (unsupported_value)",
            Dialect(left_out=frozenset({"temperature"})),
        ),
        ("[{'loc': ['body', 'seed'], 'msg': 'Extra inputs are not permitted'}]", Dialect(left_out=frozenset({"seed"}))),
        ("Invalid schema for response_format 'reply': 'maxLength' is not permitted.", Dialect(form=1)),
        ("This response_format type is unavailable now", Dialect(form=1)),
        ("System role not supported", Dialect(system=False)),
        ("'messages' must not be empty", None),
    ],
)
def test_refusals_that_another_way_of_asking_meets(reason, dialect):
    assert adapted(Dialect(), ASKED, True, reason) == dialect


def test_adapting_ends():
    reason = "unsupported: response_format max_tokens max_completion_tokens temperature seed System role json_schema"
    dialect, steps = Dialect(), 0
    while (following := adapted(dialect, ASKED, True, reason)) is not None:
        dialect, steps = following, steps + 1
    assert (steps, FORMS[dialect.form]) == (7, "none")
    assert adapted(dialect, ASKED, True, reason) is None


def test_reasons_are_short_lines_without_keys():
    assert excerpt("a\x1b[31m\nb\x00 sk-proj-12*34 c") == "a [31m b *** c"
    assert excerpt(b"\xffx") == "\ufffdx"
    assert len(excerpt("y" * 10**6)) == 200


def test_a_gate_opens_when_the_endpoint_says():
    gate = Gate()
    gate.busy(sent=99.0, now=100.0, wait=20.0, limit=600.0)
    assert gate.opens == 120.0
    gate.busy(sent=99.5, now=101.0, wait=5.0, limit=600.0)
    assert gate.opens == 120.0
    gate.busy(sent=121.0, now=122.0, wait=9999.0, limit=60.0)
    assert gate.opens == 182.0


def test_pauses_without_a_time_double_while_most_answers_say_too_many():
    gate, now, bounds = Gate(), 0.0, []
    for _ in range(10):
        sent = max(now, gate.opens)
        now = sent + 0.01
        gate.busy(sent, now, None, 1e9)
        before = gate.opens
        gate.busy(sent, now, None, 1e9)  # another one that was under way
        assert gate.opens == before
        bounds.append(gate.opens - now)
    for level, pause in zip([1, 2, 3, 4, 5, 6, 7, 7, 7, 7], bounds, strict=True):
        assert 0.25 * 2**level <= pause <= 0.5 * 2**level
    for _ in range(30):
        gate.good()
    now = gate.opens + 1
    gate.busy(now, now, None, 1e9)
    assert 0.25 <= gate.opens - now <= 0.5


@given(st.lists(st.tuples(st.floats(0, 10), st.floats(0, 10), st.none() | st.floats(0, 1e6), st.floats(0, 600))))
def test_a_gate_never_opens_earlier_than_it_said_nor_later_than_it_may(events):
    gate, now = Gate(), 1000.0
    for ago, later, wait, limit in events:
        before, now = gate.opens, now + later
        gate.busy(now - ago, now, wait, limit)
        assert before <= gate.opens <= max(before, now + limit)


def test_a_request_is_to_blame_only_when_others_fare_well():
    health, mine = Health(), Strikes()
    for n in range(5):
        health.bad(mine, float(n))
    assert not health.alone(mine)  # nobody was answered
    for _ in range(13):
        health.good()
    assert not health.alone(mine)  # (1/15)^5 = 1.3e-6
    health.good()
    assert health.alone(mine)  # (1/16)^5 = 9.5e-7

    health, mine = Health(), Strikes()
    for n in range(19):
        health.bad(mine, float(n))
        health.bad(Strikes(), float(n))
        health.good()
    assert not health.alone(mine)  # (20/40)^19 = 1.9e-6
    health.bad(mine, 20.0)
    assert health.alone(mine)  # (20/40)^20 = 9.5e-7


def test_trouble_lasts_until_a_usable_answer():
    health = Health()
    assert health.trouble(5.0) == 0.0
    health.bad(Strikes(), 10.0)
    health.bad(Strikes(), 15.0)
    assert health.trouble(30.0) == 20.0
    health.good()
    assert health.trouble(40.0) == 0.0


def test_pauses_of_one_request_stay_below_half_a_minute():
    assert all(0 <= Strikes(count).pause() <= min(30.0, 0.25 * 2**count) for count in range(1, 60))
