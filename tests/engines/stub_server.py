"""An OpenAI-compatible server without a model, which fails as asked: ``python -m tests.engines.stub_server --help``.

A good reply is a function of the JSON schema and of the last user message before any assistant's message, so that a
request that names a fault of an earlier reply gets what the first should have got. A fault strikes a body only when it
comes for the first time, and garbage never strikes a request that holds an assistant's message: whoever asks again
succeeds.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import re
import subprocess
import sys
import time
import urllib.request
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import orjson
import xxhash

from tests.engines.http import Answer, Call, port_of, response, serve

FAULTS = ("429", "500", "half", "garbage", "nothing", "hang")
"""What can go wrong; ``nothing`` closes the connection or sends an empty body, ``hang`` never answers."""

GARBAGE = ("Sure! Here is what I found in the text.", "", "[]", '{"wh', "I cannot help with that.", " \n" * 40)
"""Replies that nobody can use: nothing of them can be repaired into something that looks like a reply."""

_WORD = re.compile(r"[a-z]{4,}")
_LIST = {"type": "array", "items": {"type": "string"}, "maxItems": 3}
_NOTE = {
    "type": "object",
    "properties": dict.fromkeys(("who", "what", "when", "where", "why"), _LIST) | {"summary": {"type": "string"}},
}


class _Words:
    """Words of a text, in an order that depends on all of it."""

    def __init__(self, text: str) -> None:
        self.words = list(dict.fromkeys(_WORD.findall(text[-1000:].lower()))) or ["nothing"]
        self.at = self.digest = xxhash.xxh3_64_intdigest(text.encode("utf-8", "replace"))

    def draw(self) -> int:
        self.at = (self.at * 6364136223846793005 + 1442695040888963407) & (1 << 64) - 1
        return self.at >> 33

    def take(self, pool: int = 1 << 30) -> str:
        return self.words[self.draw() % min(pool, len(self.words))]

    def sentence(self, limit: int) -> str:
        text = " ".join(self.take() for _ in range(8))[: limit - 1].rstrip()
        return text.capitalize() + "."


def fill(schema: Mapping[str, Any], words: _Words, inside: str = "") -> Any:
    """Return a value that follows a JSON schema, made of the words of a text; `inside` tells of its parent."""
    if "const" in schema:
        return schema["const"]
    if schema.get("enum"):
        return schema["enum"][words.draw() % min(3, len(schema["enum"]))]
    kind = schema.get("type")
    if kind is None and (choice := schema.get("anyOf") or schema.get("oneOf")):
        return fill(choice[0], words, inside)
    if isinstance(kind, list):
        kind = kind[0]
    if kind == "object" or (kind is None and "properties" in schema):
        inside = "item" if inside == "array" else "object"
        return {
            name: fill(child, words, "concepts" if name == "concepts" else inside)
            for name, child in schema.get("properties", {}).items()
        }
    if kind == "array":
        size = max(schema.get("minItems", 0), min(schema.get("maxItems", 3), 1 + words.draw() % 3))
        within = "concept" if inside == "concepts" else "array"
        made = [fill(schema.get("items", {"type": "string"}), words, within) for _ in range(size)]
        return [value for i, value in enumerate(made) if value not in made[:i]] if size > 1 else made
    if kind in ("integer", "number"):
        low = schema.get("minimum", 1)
        return min(low + words.draw() % 3, schema.get("maximum", low + 2))
    if kind == "boolean":
        return bool(words.digest & 1)
    if kind == "null":
        return None
    limit = schema.get("maxLength", 400)
    if inside == "array":
        return words.take()[:limit]
    if inside == "concept":  # GAAMA's concepts have two words or more
        return f"{words.take()}_{words.take()}"[:limit]
    if inside == "item" and limit <= 150:  # names in lists of objects come from few words, so that they meet
        return words.take(4)[:limit]
    return words.sentence(limit)


def good_text(messages: list[dict[str, Any]], response_format: Mapping[str, Any] | None) -> str:
    """Return the reply to a chat as JSON text; without a schema it is a 5W note."""
    schema = ((response_format or {}).get("json_schema") or {}).get("schema") or _NOTE
    text = ""
    for message in messages:
        if message["role"] == "user":
            text = message["content"]
        elif message["role"] == "assistant" and text:
            break
    return orjson.dumps(fill(schema, _Words(text))).decode()


@dataclass
class Stub:
    """The server's state and rules.

    Attributes:
        delay: Seconds before an answer.
        faults: Kind -> probability.
        seed: Seed of the faults.
        key: Key that requests must carry; none takes any.
        models: Models that it has; none takes any name.
        context: Words that prompt and reply may have together; 0 = no limit.
        retry_after: Value of the header of that name in answers 429.
        log: File that gets one JSON line per request.
    """

    delay: float = 0.0
    faults: Mapping[str, float] = field(default_factory=dict)
    seed: int = 0
    key: str | None = None
    models: tuple[str, ...] = ()
    context: int = 0
    retry_after: str | None = None
    log: IO[bytes] | None = None

    def __post_init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.seen: dict[int, int] = {}
        self.served: set[int] = set()
        self.prefixes: set[int] = set()
        self.flying: deque[float] = deque()

    def __call__(self, call: Call) -> Answer:
        """Answer one request."""
        if call.path == "/stats":
            return response(200, self.stats())
        if self.key is not None and call.headers.get("authorization") != f"Bearer {self.key}":
            self.counts["unauthorised"] += 1
            return _error(
                401, f"Incorrect API key provided: {call.headers.get('authorization', '')[7:]}", "invalid_api_key"
            )
        if call.path == "/v1/models":
            return response(
                200, {"object": "list", "data": [{"id": m, "object": "model"} for m in self.models or ("stub",)]}
            )
        if call.path != "/v1/chat/completions" or call.method != "POST":
            return _error(404, f"Unknown request URL: {call.method} {call.path}", "unknown_url")
        return self._complete(call.body)

    def stats(self) -> dict[str, Any]:
        """Return what was counted: `again` = bodies that came again, `wasted` = those that had a good reply already."""
        return {
            "requests": self.counts["requests"],
            "bodies": len(self.seen),
            "again": self.counts["requests"] - len(self.seen),
            "wasted": self.counts["wasted"],
            "good": self.counts["good"],
            "unauthorised": self.counts["unauthorised"],
            "faults": {kind: self.counts[kind] for kind in FAULTS},
            "most_in_flight": self.counts["most_in_flight"],
        }

    def _complete(self, body: bytes) -> Answer:
        try:
            asked = orjson.loads(body)
            messages = asked["messages"]
            length = sum(len(m["content"].split()) for m in messages)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            return _error(400, f"We could not parse the body of your request: {error}", "invalid_request")
        if self.models and asked.get("model") not in self.models:
            return _error(404, f"The model `{asked.get('model')}` does not exist", "model_not_found")
        allowed = asked.get("max_completion_tokens") or asked.get("max_tokens") or 1 << 30
        if self.context and length + min(allowed, self.context) > self.context:
            return _error(
                400,
                f"This model's maximum context length is {self.context} tokens. However, you requested "
                f"{length + allowed} tokens ({length} in the messages, {allowed} in the completion).",
                "context_length_exceeded",
            )
        digest = xxhash.xxh3_64_intdigest(body)
        attempt = self.seen[digest] = self.seen.get(digest, 0) + 1
        kind = self._fault(digest, attempt, messages)
        self._count(digest, attempt, kind)
        if kind == "429":
            headers = [f"Retry-After: {self.retry_after}"] if self.retry_after is not None else []
            return _error(429, "Rate limit reached", "rate_limit_exceeded", *headers, delay=self.delay)
        if kind == "500":
            return _error(500, "The server had an error while processing your request", None, delay=self.delay)
        if kind == "nothing":
            return Answer(b"", self.delay) if digest & 1 else response(200, b"", delay=self.delay)
        if kind == "hang":
            return Answer(b"", None)
        text = good_text(messages, asked.get("response_format"))
        if kind == "garbage":
            text = GARBAGE[digest % len(GARBAGE)]
        whole = self._completion(asked, messages, text, length, allowed)
        if kind == "half":
            return Answer(whole.raw[: -len(whole.raw) // 3], self.delay, close=True)
        return whole

    def _completion(self, asked: Any, messages: Any, text: str, length: int, allowed: int) -> Answer:
        finish, tokens = "stop", len(text) // 4 + 1
        if tokens > allowed:
            finish, tokens, text = "length", allowed, text[: allowed * 4]
        first = messages[0]["content"]
        prefix = xxhash.xxh3_64_intdigest(first.encode("utf-8", "replace"))
        cached = len(first.split()) if prefix in self.prefixes and len(messages) > 1 else 0
        self.prefixes.add(prefix)
        value = {
            "id": "stub",
            "object": "chat.completion",
            "model": asked.get("model"),
            "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": finish}],
            "usage": {
                "prompt_tokens": length,
                "completion_tokens": tokens,
                "total_tokens": length + tokens,
                "prompt_tokens_details": {"cached_tokens": cached},
            },
        }
        return response(200, value, delay=self.delay)

    def _fault(self, digest: int, attempt: int, messages: Any) -> str | None:
        if attempt > 1 or not self.faults:
            return None
        draw = xxhash.xxh3_64_intdigest(digest.to_bytes(8, "little"), seed=self.seed) / 2**64
        for kind, share in self.faults.items():
            if draw < share:
                return None if kind == "garbage" and any(m["role"] == "assistant" for m in messages) else kind
            draw -= share
        return None

    def _count(self, digest: int, attempt: int, kind: str | None) -> None:
        self.counts["requests"] += 1
        self.counts[kind or "good"] += 1
        if kind is None:
            self.counts["wasted"] += digest in self.served
            self.served.add(digest)
        now = time.monotonic()
        self.flying.append(now + self.delay)
        while self.flying[0] < now:
            self.flying.popleft()
        self.counts["most_in_flight"] = max(self.counts["most_in_flight"], len(self.flying))
        if self.log:
            line = {"time": now, "body": f"{digest:016x}", "attempt": attempt, "answer": kind or "good"}
            self.log.write(orjson.dumps(line) + b"\n")
            self.log.flush()


def _error(status: int, message: str, code: str | None, *headers: str, delay: float = 0.0) -> Answer:
    return response(status, {"error": {"message": message, "type": "stub_error", "code": code}}, *headers, delay=delay)


@dataclass(frozen=True)
class Running:
    """A stub server in a process of its own."""

    port: int
    process: subprocess.Popen[str]

    @property
    def base_url(self) -> str:
        """Address for the option of that name."""
        return f"http://127.0.0.1:{self.port}/v1"

    def stats(self) -> dict[str, Any]:
        """Return what it counted."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/stats", timeout=30) as reply:
            return orjson.loads(reply.read())


@contextlib.contextmanager
def running(*arguments: str, port: int = 0) -> Iterator[Running]:
    """Start a stub server with arguments of its command line, and end it."""
    root = Path(__file__).resolve().parents[2]
    command = [sys.executable, "-m", "tests.engines.stub_server", "--port", str(port), *arguments]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line.startswith("listening "):
            raise RuntimeError(f"the stub server did not start: {line!r}")
        yield Running(int(line.split()[1]), process)
    finally:
        process.terminate()
        process.wait(30)
        if process.stdout:
            process.stdout.close()


def _share(text: str) -> tuple[str, float]:
    kind, _, share = text.partition(":")
    if kind not in FAULTS:
        raise argparse.ArgumentTypeError(f"'{kind}' is none of {', '.join(FAULTS)}")
    return kind, float(share)


async def _serve(arguments: argparse.Namespace) -> None:
    with contextlib.ExitStack() as stack:
        log = stack.enter_context(arguments.log.open("ab")) if arguments.log else None
        stub = Stub(
            arguments.delay,
            dict(arguments.fault),
            arguments.seed,
            arguments.key,
            tuple(arguments.model),
            arguments.context,
            arguments.retry_after,
            log,
        )
        server = await serve(stub, arguments.port)
        print(f"listening {port_of(server)}", flush=True)
        await server.serve_forever()


def main() -> None:
    """Run the server until it is ended."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one; it is printed as 'listening PORT'")
    parser.add_argument("--delay", type=float, default=0.0, help="seconds before an answer")
    parser.add_argument(
        "--fault", type=_share, action="append", default=[], metavar="KIND:SHARE", help=", ".join(FAULTS)
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the faults")
    parser.add_argument("--key", help="key that requests must carry")
    parser.add_argument("--model", action="append", default=[], help="model that it has; none takes any name")
    parser.add_argument("--context", type=int, default=0, help="words that prompt and reply may have; 0 = no limit")
    parser.add_argument("--retry-after", help="header Retry-After of answers 429")
    parser.add_argument("--log", type=Path, help="file that gets one JSON line per request")
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(parser.parse_args()))


if __name__ == "__main__":
    main()
