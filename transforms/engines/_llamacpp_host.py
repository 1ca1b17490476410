"""The process that holds the model of the engine `llamacpp`, so that a crash of llama.cpp ends nothing else.

It is run by its path and imports nothing of ours. Frames go both ways over standard input and output: 4 bytes of
length (big-endian), then JSON. In: first the `Load`, then requests (``id``, ``messages``, ``schema``, ``max_tokens``,
``temperature``, ``seed``) and ``{"cancel": id}``. Out: ``id`` 0 with ``context`` when the model is loaded; for each
request that was not cancelled its ``id`` with ``text``, ``finish``, ``prompt_tokens``, ``completion_tokens`` and
``cached_tokens``, or with ``fault`` (``long``, ``refused`` or ``engine``) and ``message``; in between ``{}`` as a sign
of life. It ends when its input ends.
"""

from __future__ import annotations

import ctypes
import os
import re
import secrets
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, BinaryIO, TypedDict

import orjson
import xllamacpp

HEAD = 4
SIGN_SECONDS = 0.5
"""Seconds between signs of life at least."""

_COMPACT = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
_FAULTS = {"exceed_context_size_error": "long", "invalid_request_error": "refused"}


class Load(TypedDict):
    """What to load, and how; `context` is what one request may have, `gpu_layers` None leaves them to llama.cpp."""

    model: str
    parallel: int
    context: int
    threads: int
    gpu_layers: int | None
    parent: int


class Line:
    """The frames to the parent; any thread may send."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._last = 0.0

    def send(self, message: dict[str, Any]) -> None:
        """Send one frame."""
        raw = orjson.dumps(message)
        with self._lock:
            self._last = time.monotonic()
            self._file.write(len(raw).to_bytes(HEAD, "big") + raw)
            self._file.flush()

    def alive(self) -> None:
        """Send a sign of life, unless something went out just now."""
        if time.monotonic() - self._last > SIGN_SECONDS:
            self.send({})


def receive(file: BinaryIO) -> Any:
    """Return the next frame, or None at the end."""
    head = file.read(HEAD)
    if len(head) < HEAD:
        return None
    raw = file.read(int.from_bytes(head, "big"))
    return orjson.loads(raw)


class Host:
    """The model, and the requests that it works on."""

    def __init__(self, load: Load, line: Line) -> None:
        params = xllamacpp.CommonParams()
        params.model.path = load["model"]
        params.n_parallel = load["parallel"]
        params.n_ctx = load["context"] * load["parallel"]
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = load["threads"]
        if load["gpu_layers"] is not None:
            params.n_gpu_layers = load["gpu_layers"]
        params.verbosity = 1
        params.warmup = False
        params.cache_ram_mib = 0  # slots keep the constant part of prompts; more would be gigabytes for little
        params.api_keys = [secrets.token_hex(16)]  # it listens on loopback, whether wanted or not
        params.endpoint_slots = params.ui = False
        self._server = xllamacpp.Server(params)
        self._line = line
        self._grammars: dict[bytes, str | None] = {}
        self.cancelled: set[int] = set()

    def context(self, asked: int) -> int:
        """Return the tokens that a request may have: no more than the model was trained for, whatever was asked for."""
        told = self._server.handle_completions({"prompt": [1] * (2 * asked + 1024), "max_tokens": 1})
        return int(told.get("error", told).get("n_ctx", asked))

    def answer(self, request: dict[str, Any]) -> None:
        """Answer one request."""
        number = request["id"]
        if number not in self.cancelled:
            schema = request["schema"]
            key = orjson.dumps(schema)
            grammar = self._grammar(key, schema) if schema is not None else None
            told = self._ask(request, grammar)
            if grammar is not None and told.get("fault") == "refused" and "grammar" in told["message"]:
                self._grammars[key] = None
                told = self._ask(request, None)
            if number not in self.cancelled:
                self._line.send({"id": number, **told})
        self.cancelled.discard(number)

    def _ask(self, request: dict[str, Any], grammar: str | None) -> dict[str, Any]:
        number = request["id"]
        body = {
            "messages": [{"role": role, "content": text} for role, text in request["messages"]],
            "max_tokens": request["max_tokens"],
            "temperature": request["temperature"],
            "seed": request["seed"],
            "cache_prompt": True,
            "chat_template_kwargs": {"enable_thinking": False},
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if grammar is not None:
            body["grammar"] = grammar
        texts: list[str] = []
        last: dict[str, Any] = {}

        def take(raw: bytes) -> bool:
            """Take a piece of the reply; True ends it."""
            piece = orjson.loads(raw)
            for choice in piece.get("choices", ()):
                texts.append(choice["delta"].get("content") or "")
                last["finish"] = choice["finish_reason"] or last.get("finish")
            last.update({name: piece[name] for name in ("usage", "error") if name in piece})
            self._line.alive()
            return number in self.cancelled

        try:
            self._server.handle_chat_completions(orjson.dumps(body), take)
        except Exception as error:  # the chat template does not take these messages
            return {"fault": "refused", "message": str(error)}
        if "error" in last:
            kind = _FAULTS.get(last["error"].get("type"), "engine")
            return {"fault": kind, "message": str(last["error"].get("message"))}
        if "usage" not in last:
            return {"fault": "engine", "message": "half a reply"}
        usage = last["usage"]
        return {
            "text": "".join(texts),
            "finish": last["finish"],
            "prompt_tokens": usage["prompt_tokens"],
            "completion_tokens": usage["completion_tokens"],
            "cached_tokens": usage.get("prompt_tokens_details", {}).get("cached_tokens", 0),
        }

    def _grammar(self, key: bytes, schema: dict[str, Any]) -> str | None:
        """Return the grammar of a schema, without free white space; None where there is none.

        Builds with llguidance heed ``x-guidance``; the grammars of others have a rule for white space.
        """
        if key not in self._grammars:
            try:
                grammar = xllamacpp.json_schema_to_grammar(orjson.dumps({**schema, "x-guidance": _COMPACT}).decode())
                self._grammars[key] = re.sub(r"(?m)^space ::= .*$", 'space ::= " "?', grammar)
            except Exception:
                self._grammars[key] = None
        return self._grammars[key]


def end_with(parent: int) -> None:
    """End this process when its parent ends, even while llama.cpp is stuck."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
        if os.getppid() != parent:
            os._exit(1)


def main() -> None:
    """Load the model and answer until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    # What llama.cpp prints goes to the standard error, away from the frames.
    line = Line(os.fdopen(os.dup(1), "wb"))
    os.dup2(2, 1)
    file = os.fdopen(os.dup(0), "rb")
    load: Load | None = receive(file)
    if load is None:
        return
    end_with(load["parent"])
    try:
        host = Host(load, line)
    except RuntimeError:
        sys.exit(1)  # llama.cpp has told why
    line.send({"id": 0, "context": host.context(load["context"])})
    pool = ThreadPoolExecutor(load["parallel"])
    while (message := receive(file)) is not None:
        if "cancel" in message:
            host.cancelled.add(message["cancel"])
        else:
            pool.submit(host.answer, message)
    os._exit(0)  # without the long goodbye of llama.cpp


if __name__ == "__main__":
    main()
