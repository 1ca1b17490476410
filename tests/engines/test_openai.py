"""The engine ``openai`` against scripted servers: what it sends, what it tries again, and when it gives up."""

import asyncio
import time

import orjson
import pytest

from schemas.errors import ConfigError
from tests.engines.asking import SCHEMA, ask, asked, endpoint, good, one, refused, texts
from tests.engines.http import Answer, port_of, response, serve
from tests.engines.stub_server import Stub
from transforms.engines import EngineError, Reply, Request, RequestRefusedError, openai
from transforms.engines._pace import Strikes

KEY = "sk-test-6f1d2c"


@pytest.fixture(autouse=True)
def surroundings(monkeypatch):
    """No key and no address from outside, and no pauses between attempts of one request."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    monkeypatch.setattr(Strikes, "pause", lambda self: 0.0)


# --- what is sent and handed on


def test_a_request_goes_out_with_the_key_and_the_reply_comes_back(monkeypatch):
    calls = []
    monkeypatch.setenv("OPENAI_API_KEY", f" {KEY}\n")
    reply = one(lambda call: calls.append(call) or good('{"what":["x"]}', "length"))
    assert (reply.text, reply.finish, reply.completion_tokens) == (
        '{"what":["x"]}',
        "length",
        11,
    )  # 5 letters make 10/7, and there are 9 others
    assert reply.prompt_tokens == 3 + 8  # .5 + 4/3.5 + 1 and .5 + 21/3.5 + 1, each rounded up
    (call,) = calls
    assert (call.method, call.path) == ("POST", "/v1/chat/completions")
    assert call.headers["authorization"] == f"Bearer {KEY}"
    body = orjson.loads(call.body)
    assert (body["model"], body["temperature"], body["max_tokens"]) == ("m", 0.0, 200)
    assert body["messages"][1] == {"role": "user", "content": "Melanie likes painting."}


def test_no_key_no_header():
    calls = []
    one(lambda call: calls.append(call) or good())
    assert "authorization" not in calls[0].headers


def test_the_address_may_come_from_the_environment(monkeypatch):
    async def run():
        server = await serve(lambda call: good("yes"))
        monkeypatch.setenv("OPENAI_BASE_URL", f"http://127.0.0.1:{port_of(server)}/v1")
        engine = await openai.start("m", openai.Options())
        reply = await engine.complete(asked())
        await engine.close()
        server.close()
        return reply

    assert asyncio.run(run()).text == "yes"
    monkeypatch.setenv("OPENAI_BASE_URL", "localhost:8000")
    with pytest.raises(ConfigError, match="OPENAI_BASE_URL: an address looks like"):
        asyncio.run(openai.start("m", openai.Options()))


def test_no_more_requests_are_in_flight_than_allowed():
    stub = Stub(delay=0.02)
    outcomes, _ = ask(stub, *texts(40), concurrency=5)
    assert all(isinstance(outcome, Reply) for outcome in outcomes)
    assert stub.stats()["most_in_flight"] == 5
    assert sum(outcome.queue_seconds > 0.02 for outcome in outcomes) >= 30  # all but the first ten waited two turns


# --- what may pass by itself


@pytest.mark.parametrize(
    ("kind", "labels"),
    [
        ("429", {"429"}),
        ("500", {"500"}),
        ("half", {"body"}),
        ("nothing", {"body", "connection"}),
        ("hang", {"timeout"}),
    ],
)
def test_passing_faults_are_tried_again_and_counted(kind, labels):
    stub = Stub(faults={kind: 1.0})
    outcomes, counters = ask(stub, *texts(12), timeout=0.3 if kind == "hang" else 30)
    assert all(orjson.loads(outcome.text)["what"] for outcome in outcomes)
    assert sum(counters.values()) == 12
    assert counters.keys() == {f"retried.{label}" for label in labels}
    assert stub.stats()["again"] == 12
    assert stub.stats()["wasted"] == 0


def test_garbage_is_handed_on_and_asking_again_with_the_fault_named_gets_the_good_reply():
    stub = Stub(faults={"garbage": 1.0})
    request = asked()
    again = Request((*request.messages, ("assistant", "Sure!"), ("user", "That is no JSON.")), SCHEMA, 200)
    (first, second), counters = ask(stub, request, again)
    assert counters == {}
    quiet, _ = ask(Stub(), request)
    assert first.text != second.text == quiet[0].text


def test_a_body_without_end_is_cut_off():
    bodies = iter([good("x" * (9 << 20)), good("short")])
    (outcome,), counters = ask(lambda call: next(bodies), asked())
    assert (outcome.text, counters) == ("short", {"retried.body": 1})


def test_after_too_many_requests_all_wait_as_long_as_the_endpoint_says():
    arrivals = []

    def answer(call):
        arrivals.append(time.monotonic())
        return response(429, {}, "Retry-After: 0.4") if len(arrivals) == 1 else good()

    outcomes, counters = ask(answer, *texts(6), concurrency=1)
    assert all(isinstance(outcome, Reply) for outcome in outcomes)
    assert counters == {"retried.429": 1}
    assert len(arrivals) == 7
    assert arrivals[1] - arrivals[0] >= 0.4


def test_a_wait_beyond_patience_is_cut_to_it():
    answers = iter([response(429, {}, "Retry-After: 86400")])
    (outcome,), _ = ask(lambda call: next(answers, good("late")), asked(), patience=0.2)
    assert outcome.text == "late"


# --- when it is the request, and when it is the endpoint


def poisoned(call, fault):
    return fault if b"poison" in call.body else good()


@pytest.mark.parametrize("fault", [refused("crash", 500), Answer(b""), response(200, b"{")])
def test_a_request_that_fails_while_others_do_not_is_refused(fault):
    outcomes, counters = ask(lambda call: poisoned(call, fault), asked("poison"), *texts(60), concurrency=4)
    assert isinstance(outcomes[0], RequestRefusedError)
    assert "while others did not" in str(outcomes[0])
    assert all(isinstance(outcome, Reply) for outcome in outcomes[1:])
    assert sum(counters.values()) >= 4


def test_a_poisonous_request_is_refused_even_when_it_is_the_only_one_left():
    calls = []

    def answer(call):
        calls.append(call)
        return poisoned(call, refused("crash", 500))

    (outcome,), _ = ask(answer, asked("poison"))
    assert isinstance(outcome, RequestRefusedError)
    assert sum(b"Reply with the word yes." in call.body for call in calls) == 1


def test_an_endpoint_that_stays_away_stops_the_run():
    with pytest.raises(EngineError) as caught:
        one(lambda call: refused("still loading", 503), patience=0.2)
    text = str(caught.value)
    assert "127.0.0.1" in text
    assert "has given no usable answer for" in text
    assert "still loading" in text
    assert "Finished replies are kept; run the same command again" in text


def test_a_port_where_nobody_listens_stops_the_run():
    async def run():
        server = await serve(lambda call: good())
        port = port_of(server)
        server.close()
        await server.wait_closed()
        engine = await openai.start("m", openai.Options(base_url=f"http://127.0.0.1:{port}/v1", patience=0.2))
        try:
            await engine.complete(asked())
        finally:
            await engine.close()

    with pytest.raises(EngineError, match="ClientConnectorError"):
        asyncio.run(run())


@pytest.mark.parametrize("status", [401, 403])
def test_a_rejected_key_names_the_variable_and_never_the_key(monkeypatch, status):
    monkeypatch.setenv("MY_KEY", KEY)
    calls = []

    def answer(call):
        calls.append(call)
        return refused(f"Incorrect API key provided: {call.headers['authorization']} / {KEY}", status)

    with pytest.raises(EngineError) as caught:
        one(answer, key_env="MY_KEY")
    assert len(calls) == 1
    assert "rejects the key in the environment variable MY_KEY" in str(caught.value)
    assert KEY not in str(caught.value)


def test_a_missing_key_is_told():
    with pytest.raises(EngineError, match="wants a key, and none is in the environment variable OPENAI_API_KEY"):
        one(Stub(key=KEY))


def test_a_key_that_cannot_be_sent_is_not_shown(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-bad\r\nX-Evil: 1")
    with pytest.raises(EngineError) as caught:
        asyncio.run(openai.start("m", openai.Options()))
    assert "OPENAI_API_KEY" in str(caught.value)
    assert "Evil" not in str(caught.value)


def test_no_error_holds_a_key_that_the_endpoint_repeats(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "plainkey123")
    for fault in (refused("plainkey123 is odd"), refused("plainkey123", 402), refused("plainkey123", 404)):
        (outcome,), _ = ask(lambda call, fault=fault: fault, asked())
        assert isinstance(outcome, RequestRefusedError | EngineError)
        assert "plainkey123" not in str(outcome)


def test_an_unknown_model_lists_those_there_are():
    with pytest.raises(EngineError, match=r"does not serve 'm'") as caught:
        one(Stub(models=("llama", "qwen")))
    assert "It has: llama, qwen." in str(caught.value)


def test_a_wrong_path_says_so():
    with pytest.raises(EngineError, match="most end in /v1"):
        one(lambda call: refused("Not Found", 404))


def test_an_exhausted_quota_stops_the_run_at_once():
    calls = []
    with pytest.raises(EngineError, match=r"quota at 127\.0\.0\.1"):
        one(lambda call: calls.append(call) or refused("You exceeded your quota", 429, code="insufficient_quota"))
    assert len(calls) == 1


def test_replies_longer_than_the_model_can_write_name_the_setting():
    with pytest.raises(EngineError, match=r"extract\.max_tokens"):
        one(lambda call: refused("max_tokens is too large: 99. This model supports at most 9 completion tokens"))


def test_a_redirect_does_not_carry_the_key_away(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    elsewhere = []

    async def run():
        other = await serve(lambda call: elsewhere.append(call) or good())
        there = f"Location: http://127.0.0.1:{port_of(other)}/v1/chat/completions"
        async with endpoint(lambda call: response(307, {}, there)) as engine:
            try:
                await engine.complete(asked())
            finally:
                other.close()

    with pytest.raises(EngineError, match="redirects elsewhere"):
        asyncio.run(run())
    assert elsewhere == []
