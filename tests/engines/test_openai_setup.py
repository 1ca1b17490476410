"""The engine ``openai``: endpoints that take less, options, estimates."""

import asyncio
import dataclasses
import subprocess
import sys

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import ConfigError
from tests.engines.asking import ask, asked, endpoint, good, refused, texts
from tests.engines.stub_server import Stub
from transforms import engines
from transforms.engines import Reply, RequestRefusedError, RequestTooLongError, openai
from transforms.engines._chat import Dialect
from transforms.engines._pace import Strikes


@pytest.fixture(autouse=True)
def surroundings(monkeypatch):
    """No key and no address from outside, and no pauses between attempts of one request."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    monkeypatch.setattr(Strikes, "pause", lambda self: 0.0)


# --- what is refused


def test_what_does_not_fit_can_be_split():
    stub = Stub(context=100)
    (outcome,), counters = ask(stub, asked("word " * 90))
    assert isinstance(outcome, RequestTooLongError)
    assert "maximum context length is 100" in str(outcome)
    assert counters == {}


def without(*names):
    """Answer as a server that rejects some fields, or kinds of response format."""
    calls = []

    def answer(call):
        body = orjson.loads(call.body)
        calls.append(body)
        for name in names:
            if name == "max_tokens" and name in body:
                return refused("Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.")
            if name == "temperature" and name in body:
                return refused("Unsupported value: 'temperature' does not support 0.0 with this model.")
            if name == "system" and body["messages"][0]["role"] == "system":
                return refused("System role not supported")
            if name == "maxLength" and b"maxLength" in call.body:
                return refused("Invalid schema for response_format 'reply': 'maxLength' is not permitted.")
            if name == (body.get("response_format") or {}).get("type"):
                return refused(f"'response_format' of type '{name}' is not supported with this model.")
        return good()

    return answer, calls


@pytest.mark.parametrize(
    ("names", "dialect"),
    [
        (["maxLength"], Dialect(form=1)),
        (["json_schema"], Dialect(form=2)),
        (["json_schema", "json_object"], Dialect(form=3)),
        (["max_tokens"], Dialect(limit="max_completion_tokens")),
        (
            ["max_tokens", "temperature", "system", "json_schema"],
            Dialect(2, "max_completion_tokens", frozenset({"temperature"}), False),
        ),
    ],
)
def test_another_way_of_asking_is_found_and_remembered(names, dialect):
    async def run():
        answer, calls = without(*names)
        async with endpoint(answer) as engine:
            await engine.complete(asked())
            tries = len(calls)
            await asyncio.gather(*map(engine.complete, texts(5)))
            return engine._dialect, len(calls) - tries, engine.counters(), tries

    found, later, counters, tries = asyncio.run(run())
    assert found == dialect
    assert later == 5
    assert counters == {"adapted": tries - 1}


def test_those_that_wait_profit_from_what_the_first_found_out():
    answer, calls = without("json_schema")
    outcomes, counters = ask(answer, *texts(20), concurrency=1)
    assert all(isinstance(outcome, Reply) for outcome in outcomes)
    assert counters == {"adapted": 2}
    assert len(calls) == 22


def test_an_older_request_does_not_undo_what_was_found_out():
    async def run():
        late = asyncio.Event()

        def answer(call):
            if b"first" in call.body:
                late.set()
                return dataclasses.replace(good(), delay=0.2)
            return refused("'json_schema' is not supported") if b"json_schema" in call.body else good()

        async with endpoint(answer) as engine:
            first = asyncio.create_task(engine.complete(asked("first")))
            await late.wait()
            await engine.complete(asked("second"))
            found = engine._dialect
            assert not first.done()
            await first
            return found, engine._dialect

    assert asyncio.run(run()) == (Dialect(form=2), Dialect(form=2))


def test_a_refusal_that_no_other_way_of_asking_meets_is_told_as_it_came_and_changes_nothing():
    def answer(call):
        return refused("this text breaks our JSON schema policy") if b"odd" in call.body else good()

    async def run():
        async with endpoint(answer) as engine:
            with pytest.raises(RequestRefusedError, match="breaks our JSON schema policy"):
                await engine.complete(asked("odd"))
            return engine._dialect

    assert asyncio.run(run()) == Dialect()


# --- options, estimates, ends


def test_identity_holds_what_replies_depend_on():
    options = openai.Options(base_url="http://a.example/v1", key_env="K", concurrency=3, timeout=5, patience=6, seed=1)
    assert openai.identity("m", options) == {
        "model": "m",
        "context_tokens": 8192,
        "guided": True,
        "seed": 1,
        "extra_body": {},
    }
    with pytest.raises(ConfigError, match="needs the name of a model"):
        openai.identity(None, options)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"base_url": "http://user:hunter2@host/v1"}, "keys come from the environment"),
        ({"base_url": "https://host/v1?key=hunter2"}, "keys come from the environment"),
        ({"base_url": "host:8000/hunter2"}, "an address looks like"),
        ({"base_url": "ftp://host/hunter2"}, "an address looks like"),
        ({"base_url": "http://ho st/hunter2"}, "an address looks like"),
        ({"base_url": "http://host:99999/hunter2"}, "an address looks like"),
        ({"base_url": "http://host:0/hunter2"}, "an address looks like"),
        ({"extra_body": {"model": "hunter2"}}, "model cannot be set here"),
        ({"key": "hunter2"}, "no option 'key'"),
        ({"concurrency": 0}, "greater than or equal to 1"),
    ],
)
def test_options_that_cannot_be(options, told):
    with pytest.raises(ConfigError, match=told) as caught:
        engines.options_of(engines.load("openai"), options)
    assert "hunter2" not in str(caught.value)


async def _idle():
    return await openai.start("m", openai.Options(base_url="http://127.0.0.1:9/v1"))


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", 0),
        ("abcdefg", 2),
        ("abcdefgh", 3),
        ("12:30", 5),
        ("日本", 3),
        ("\ud800", 2),
        ("in 2023\n", 6),
        ("é", 1),
        ("ABC", 2),
    ],
)
def test_the_estimate_of_tokens(text, tokens):
    engine = asyncio.run(_idle())
    assert engine.count(text) == tokens


@given(st.text(), st.text())
def test_estimates_add_up(first, second):
    count = openai.Chat.count
    assert count(None, first + second) <= count(None, first) + count(None, second)
    assert count(None, first) <= count(None, first + second)


def test_closing_twice_is_no_error():
    async def run():
        engine = await _idle()
        await engine.close()
        await engine.close()

    asyncio.run(run())


def test_the_module_loads_without_aiohttp():
    code = "import sys, transforms.engines.openai; sys.exit('aiohttp' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
