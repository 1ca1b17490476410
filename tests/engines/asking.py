"""Ways to put requests to the engine ``openai`` and to script the server that answers."""

import asyncio
import contextlib

from tests.engines.http import port_of, response, serve
from transforms.engines import Request, openai

SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "required": ["what", "mood"],
    "properties": {
        "what": {"type": "array", "minItems": 1, "maxItems": 3, "items": {"type": "string", "maxLength": 20}},
        "mood": {"enum": ["good", "bad"]},
    },
}


def asked(text="Melanie likes painting.", schema=SCHEMA):
    return Request((("system", "Rules."), ("user", text)), schema, 200)


def good(text="{}", finish="stop"):
    return response(200, {"choices": [{"message": {"content": text}, "finish_reason": finish}]})


def refused(message, status=400, **fields):
    return response(status, {"error": {"message": message, **fields}})


@contextlib.asynccontextmanager
async def endpoint(answer, **options):
    """Serve with a function from calls to answers; give an engine that asks there."""
    server = await serve(answer)
    engine = await openai.start("m", openai.Options(base_url=f"http://127.0.0.1:{port_of(server)}/v1/", **options))
    try:
        yield engine
    finally:
        await engine.close()
        server.close()


def ask(answer, *requests, **options):
    """Put requests to a scripted server at once; return outcomes (replies or errors) and the counters."""

    async def run():
        async with endpoint(answer, **options) as engine:
            outcomes = await asyncio.gather(*map(engine.complete, requests), return_exceptions=True)
            return outcomes, engine.counters()

    return asyncio.run(run())


def one(answer, **options):
    """Put one request; return the reply, or raise."""
    (outcome,), _ = ask(answer, asked(), **options)
    if isinstance(outcome, BaseException):
        raise outcome
    return outcome


def texts(n):
    return [asked(f"Number {i}: Caroline went hiking near the lake.") for i in range(n)]
