"""Engine ``openai``: any endpoint that speaks OpenAI's chat completions, over HTTP.

Retries follow Brooker, "Exponential Backoff And Jitter" (AWS Architecture Blog, 2015): full jitter.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import orjson
from pydantic import BaseModel, ConfigDict, Field, field_validator

from schemas.errors import ConfigError
from transforms.engines import (
    EngineError,
    Reply,
    Request,
    RequestRefusedError,
    RequestTooLongError,
    Resources,
    missing_library,
)
from transforms.engines._chat import Bodies, Dialect, Fault, adapted, excerpt, read
from transforms.engines._endpoint import PUBLIC, Address, base_of, bounded, key_of, session
from transforms.engines._estimate import tokens
from transforms.engines._pace import Gate, Health, Strikes

NAME = "openai"
VERSION = 1

BODY_LIMIT = 8 << 20
"""Bytes of an answer at most."""

_PROBE_SECONDS = 5.0
_KEPT = "Finished replies are kept; run the same command again"
_OURS = {
    *("model", "messages", "temperature", "seed", "max_tokens", "max_completion_tokens"),
    *("response_format", "stream", "stream_options", "n"),
}


class Options(BaseModel):
    """Options of the engine ``openai``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    base_url: Address | None = Field(
        None, description=f"Address before /chat/completions; none takes OPENAI_BASE_URL, else {PUBLIC}"
    )
    key_env: str = Field(
        "OPENAI_API_KEY", pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", description="Environment variable that holds the key"
    )
    concurrency: int = Field(64, ge=1, le=4096, description="Requests in flight at most")
    timeout: float = Field(120, gt=0, le=86_400, description="Seconds that one attempt may take")
    patience: float = Field(
        600, gt=0, le=604_800, description="Seconds without any usable answer to anybody until the run stops"
    )
    context_tokens: int = Field(8192, ge=256, le=10_000_000, description="Tokens of prompt and reply together")
    guided: bool = Field(True, description="Send JSON schemas, as far as the endpoint takes them")
    seed: int | None = Field(None, description="Seed of sampling, sent along")
    extra_body: dict[str, Any] = Field(
        default_factory=dict, description="Further fields of each request, such as chat_template_kwargs"
    )

    @field_validator("extra_body")
    @classmethod
    def _fields(cls, value: dict[str, Any]) -> dict[str, Any]:
        if taken := sorted(_OURS & value.keys()):
            raise ValueError(f"{', '.join(taken)} cannot be set here")
        return value


def identity(model: str | None, options: Options) -> dict[str, Any]:
    """Return what replies depend on.

    Raises:
        ConfigError: No model is named.
    """
    return {
        "model": _named(model),
        "context_tokens": options.context_tokens,
        "guided": options.guided,
        "seed": options.seed,
        "extra_body": options.extra_body,
    }


def located(model: str | None) -> str | None:
    """Return the model's name, which is the same everywhere."""
    return model


def resources(options: Options) -> Resources:
    """Return what one replica needs: it waits more than it works."""
    return Resources(options.concurrency, cpus=0.5)


async def start(model: str | None, options: Options) -> Chat:
    """Make a session; nothing is sent yet.

    Raises:
        ConfigError: No model is named, or the address in the environment is not valid.
        EngineError: The key cannot be sent.
        MissingDependencyError: aiohttp is not installed.
    """
    try:
        import aiohttp  # noqa: F401
    except ModuleNotFoundError as error:
        raise missing_library(NAME, error, "pip install aiohttp") from error
    name, base = _named(model), base_of(options.base_url)
    key = key_of(options.key_env, EngineError)
    return Chat(session(key, options.concurrency, options.timeout), base, key, name, options)


def _named(model: str | None) -> str:
    if model is None:
        raise ConfigError(
            "engine 'openai' needs the name of a model",
            where="extract.model",
            remedy="Example: --set extract.model=gpt-4o-mini, or the name that the endpoint's /v1/models gives.",
        )
    return model


class Chat:
    """An endpoint; see transforms.engines.Engine."""

    def __init__(self, session: Any, base: str, key: str, model: str, options: Options) -> None:
        self.slots = options.concurrency
        self.context = options.context_tokens
        self._session, self._base, self._key, self._model, self._options = session, base, key, model, options
        self._host, self._url = urlsplit(base).netloc, f"{base}/chat/completions"
        extra = options.extra_body | ({} if options.seed is None else {"seed": options.seed})
        self._bodies = Bodies(model, options.guided, extra)
        self._dialect = Dialect()
        self._free = asyncio.Semaphore(options.concurrency)
        self._gate, self._health = Gate(), Health()
        self._probe: asyncio.Task[bool] | None = None
        self._probed = 0.0
        self._counts: Counter[str] = Counter()

    def count(self, text: str) -> int:
        """Return an estimate of the tokens of a text."""
        return tokens(text)

    async def complete(self, request: Request) -> Reply:
        """Answer one request."""
        strikes, queued = Strikes(), 0.0
        while True:
            entered = time.monotonic()
            async with self._free:
                while (left := self._gate.opens - time.monotonic()) > 0:
                    await asyncio.sleep(left + random.uniform(0, min(0.1 * left, 1.0)))
                sent = time.monotonic()
                queued += sent - entered
                answer = await self._put(request)
            if isinstance(answer, Reply):
                self._usable()
                prompt = answer.prompt_tokens or sum(self.count(text) for _, text in request.messages)
                return replace(answer, prompt_tokens=prompt, queue_seconds=queued)
            if answer.kind in ("busy", "passing"):
                await self._failed(answer, strikes, sent)
                continue
            if answer.kind == "long":
                self._usable()
                raise RequestTooLongError(self._clean(answer.reason))
            if answer.kind == "refused":
                self._usable()
                raise RequestRefusedError(self._clean(answer.reason))
            raise await self._unusable(answer)

    def counters(self) -> Mapping[str, float]:
        """Return ``retried.REASON``, and ``adapted``: requests that were put in another way after a refusal."""
        return dict(self._counts)

    async def close(self) -> None:
        """End the session."""
        if self._probe is not None:
            self._probe.cancel()
        await self._session.close()

    async def _put(self, request: Request) -> Reply | Fault:
        """Put a request in the way that the endpoint is known to take, else in others; what works is remembered."""
        dialect, complaint = self._dialect, None
        while True:
            answer = await self._post(self._bodies.make(request, dialect))
            if isinstance(answer, Reply) and complaint:
                self._dialect = dialect
            if isinstance(answer, Reply) or answer.kind != "refused":
                return answer
            complaint = complaint or answer
            other = adapted(dialect, request, self._options.guided, answer.reason)
            if other is None:
                return complaint
            self._counts["adapted"] += 1
            dialect = other

    async def _post(self, body: bytes) -> Reply | Fault:
        import aiohttp

        try:
            async with self._session.post(self._url, data=body, allow_redirects=False) as response:
                raw = await bounded(response, BODY_LIMIT)
                if raw is None:
                    return Fault("passing", f"an answer of more than {BODY_LIMIT >> 20} MB", "body")
                return read(response.status, response.headers, raw, time.time(), self.count)
        except TimeoutError:
            return Fault("passing", f"no answer within {self._options.timeout:g} s", "timeout")
        except aiohttp.ClientConnectorCertificateError as error:
            raise EngineError(
                f"{self._host} shows a certificate that cannot be trusted: {self._clean(str(error))}",
                where="extract.options.base_url",
                remedy="Check the address; SSL_CERT_FILE can name a file of further certificates.",
            ) from None
        except aiohttp.ClientPayloadError as error:
            return Fault("passing", f"half an answer: {error}", "body")
        except (aiohttp.ClientError, OSError) as error:
            return Fault("passing", f"{type(error).__name__}: {error}", "connection")

    def _usable(self) -> None:
        self._health.good()
        self._gate.good()

    async def _failed(self, fault: Fault, strikes: Strikes, sent: float) -> None:
        """Wait until the request may be sent again.

        Raises:
            RequestRefusedError: It fails alone.
            EngineError: Nothing was usable for as long as the options allow.
        """
        patience, now = self._options.patience, time.monotonic()
        self._health.bad(strikes, now)
        if self._health.alone(strikes):
            raise RequestRefusedError(f"failed {strikes.count} times while others did not: {self._clean(fault.reason)}")
        trouble = self._health.trouble(now)
        doubtful = trouble >= patience or (fault.kind == "passing" and strikes.count >= 3)
        if doubtful and not await self._alive() and trouble >= patience:
            last = self._clean(fault.reason)
            raise EngineError(
                f"{self._host} has given no usable answer for {trouble:.0f} s; the last was: {last}",
                where="extract.options.base_url",
                remedy=f"{_KEPT} when it answers again.",
            )
        self._counts[f"retried.{fault.label}"] += 1
        left = max(0.0, patience - self._health.trouble(now))
        if fault.kind == "busy":
            self._gate.busy(sent, now, fault.wait, left)
        else:
            await asyncio.sleep(min(strikes.pause(), left))

    async def _alive(self) -> bool:
        """Tell whether the endpoint answers a small request: a long one that fails may be the only one under way."""
        if self._probe is None or (self._probe.done() and time.monotonic() - self._probed >= _PROBE_SECONDS):
            self._probe = asyncio.create_task(self._ask())
        return await asyncio.shield(self._probe)

    async def _ask(self) -> bool:
        request = Request((("user", "Reply with the word yes."),), None, 16)
        try:
            answer = await self._post(self._bodies.make(request, self._dialect))
        except EngineError:
            return False
        finally:
            self._probed = time.monotonic()
        if isinstance(answer, Reply):
            self._usable()
            return True
        self._health.bad(Strikes(), self._probed)
        return False

    def _clean(self, reason: str) -> str:
        return excerpt(reason.replace(self._key, "***") if self._key else reason, 300)

    async def _unusable(self, fault: Fault) -> EngineError:
        where, told = "extract.options.base_url", self._clean(fault.reason)
        if fault.kind == "key":
            env = self._options.key_env
            state = "rejects the key in" if self._key else "wants a key, and none is in"
            return EngineError(
                f"{self._host} {state} the environment variable {env} ({told})",
                where="extract.options.key_env",
                remedy=f"Set {env} to a key that may use '{self._model}'. {_KEPT}.",
            )
        if fault.kind == "quota":
            return EngineError(
                f"the quota at {self._host} is used up ({told})", where=where, remedy=f"{_KEPT} when there is more."
            )
        if fault.kind == "limit":
            return EngineError(
                f"'{self._model}' cannot write replies that long ({told})",
                where="extract.max_tokens",
                remedy=f"Lower it. {_KEPT}.",
            )
        models = await self._models()
        if models:
            listed = ", ".join(models[:20]) + (", ..." if len(models) > 20 else "")
            return EngineError(
                f"{self._host} does not serve '{self._model}' ({told})",
                where="extract.model",
                remedy=f"It has: {listed}.",
            )
        return EngineError(
            f"{self._host} has no chat completions of '{self._model}' at {urlsplit(self._base).path or '/'} ({told})",
            where=where,
            remedy="Check the address (most end in /v1) and the model's name.",
        )

    async def _models(self) -> list[str]:
        import aiohttp

        try:
            async with self._session.get(f"{self._base}/models", allow_redirects=False) as response:
                raw = await bounded(response, BODY_LIMIT)
                return [excerpt(str(item["id"])) for item in orjson.loads(raw or b"{}")["data"]]
        except (aiohttp.ClientError, OSError, ValueError, KeyError, TypeError):
            return []
