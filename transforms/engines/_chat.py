"""The wire format of OpenAI-compatible chat completions: bodies of requests, and what an answer means.

Pure functions; endpoints differ in what they accept, and a `Dialect` says what is known of one. The texts that tell
errors apart are those of OpenAI, Azure, vLLM, llama.cpp, DeepSeek and OpenRouter.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from typing import Any, Literal

import orjson

from transforms.engines import Reply, Request

Kind = Literal["busy", "passing", "quota", "key", "model", "limit", "long", "refused"]

FORMS = ("json_schema", "json_schema without bounds", "json_object", "none")
"""Ways to ask for JSON, best first."""

_BOUNDS = frozenset({"minLength", "maxLength", "pattern", "format", "minItems", "maxItems", "minimum", "maximum"})
_TOO_LONG = re.compile(
    r"context[ _-]?(length|size|window)|maximum context|context_length_exceeded|exceed_context|"
    r"(prompt|input|request|messages?)\b.{0,40}\b(is|are) too long|reduce the length|too many (input )?tokens|"
    r"longer than the (maximum )?model|max_model_len|string_above_max_length",
    re.IGNORECASE,
)
_LIMIT = re.compile(
    r"max(imum)?_(completion_|output_)?tokens.{0,20}too large|supports at most \d+ completion", re.IGNORECASE
)
_FORMAT = re.compile(
    r"response_format|json[_ ]?schema|json_object|structured|guided|grammar|\bschema\b|\bjson\b", re.IGNORECASE
)
_UNKNOWN = re.compile(
    r"unsupported|not support|unrecogni[sz]ed|unknown|not permitted|extra|does not support|not allowed|invalid",
    re.IGNORECASE,
)
_NO_MODEL = re.compile(
    r"model_not_found|not a valid model|model\b.{0,80}\b(does not exist|not found|not exist)", re.IGNORECASE
)
_SYSTEM = re.compile(r"system role|developer instruction|roles must alternate", re.IGNORECASE)
_FLAGGED = re.compile(r"moderation|flagged", re.IGNORECASE)
_SECRET = re.compile(r"\b(sk-|Bearer +)[^\s\"',;]+")


@dataclass(frozen=True, slots=True)
class Fault:
    """An answer that is no reply.

    Attributes:
        kind: busy (all must slow down), passing (may pass by itself), quota, key, model, limit (`max_tokens` is above
            what the model can), long (does not fit into the context), refused.
        reason: Short text for people.
        label: Name for the counters: a status, or timeout, connection, body.
        wait: Seconds that the endpoint asks to wait, where it does.
    """

    kind: Kind
    reason: str
    label: str = ""
    wait: float | None = None


@dataclass(frozen=True, slots=True)
class Dialect:
    """What an endpoint is known to accept.

    Attributes:
        form: One of FORMS, by its place.
        limit: Name of the field for the tokens of a reply.
        left_out: Fields that it rejects.
        system: Whether it takes messages of the role system.
    """

    form: int = 0
    limit: str = "max_tokens"
    left_out: frozenset[str] = frozenset()
    system: bool = True


class Bodies:
    """Makes bodies of requests; the parts that stay the same are encoded once.

    Args:
        model: Name of the model.
        guided: Whether to send schemas.
        extra: Further fields; those whose value is None are left out.
    """

    def __init__(self, model: str, guided: bool, extra: Mapping[str, Any]) -> None:
        self._fixed = {"model": model, **{key: value for key, value in extra.items() if value is not None}}
        self._guided = guided
        self._heads: dict[tuple[Any, ...], tuple[Any, bytes]] = {}

    def make(self, request: Request, dialect: Dialect) -> bytes:
        """Return the body of a request."""
        key = (id(request.schema), request.max_tokens, request.temperature, dialect)
        held = self._heads.get(key)
        if held is None:
            if len(self._heads) >= 256:
                self._heads.clear()
            # the schema is held, so that no other gets its id
            held = self._heads[key] = (request.schema, self._head(request, dialect))
        return held[1] + _encode(_messages(request.messages, dialect.system)) + b"}"

    def _head(self, request: Request, dialect: Dialect) -> bytes:
        fields = {**self._fixed, "temperature": request.temperature, dialect.limit: request.max_tokens}
        if request.schema is not None and self._guided:
            fields |= _format(request.schema, dialect.form)
        kept = {key: value for key, value in fields.items() if key not in dialect.left_out}
        return _encode(kept)[:-1] + b',"messages":'


def _messages(messages: tuple[tuple[str, str], ...], system: bool) -> list[dict[str, str]]:
    if not system and len(messages) > 1 and messages[0][0] == "system":
        (_, rules), (role, text), *rest = messages
        messages = ((role, f"{rules}\n\n{text}"), *rest)
    return [{"role": role, "content": text} for role, text in messages]


def _format(schema: Mapping[str, Any], form: int) -> dict[str, Any]:
    if FORMS[form] == "none":
        return {}
    if FORMS[form] == "json_object":
        return {"response_format": {"type": "json_object"}}
    sent = dict(schema) if form == 0 else _unbounded(schema)
    return {
        "response_format": {"type": "json_schema", "json_schema": {"name": "reply", "strict": True, "schema": sent}}
    }


def _unbounded(schema: Any, names: bool = False) -> Any:
    """Return a schema without bounds; with `names` the keys are names of properties."""
    if isinstance(schema, list):
        return [_unbounded(value) for value in schema]
    if not isinstance(schema, Mapping):
        return schema
    return {
        key: _unbounded(value, key == "properties" and not names)
        for key, value in schema.items()
        if names or key not in _BOUNDS
    }


def _encode(value: Any) -> bytes:
    try:
        return bytes(orjson.dumps(value))
    except TypeError:  # lone surrogates, which no server takes
        return bytes(orjson.dumps(_sound(value)))


def _sound(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, list):
        return [_sound(item) for item in value]
    if isinstance(value, Mapping):
        return {_sound(key): _sound(item) for key, item in value.items()}
    return value


def adapted(dialect: Dialect, request: Request, guided: bool, reason: str) -> Dialect | None:
    """Return the dialect to try after an endpoint refused a request with `reason`; None when none is left."""
    unknown = _UNKNOWN.search(reason) is not None
    if dialect.limit == "max_tokens" and "max_tokens" in reason and ("max_completion_tokens" in reason or unknown):
        return replace(dialect, limit="max_completion_tokens")
    for name in ("temperature", "seed"):
        if unknown and name in reason and name not in dialect.left_out:
            return replace(dialect, left_out=dialect.left_out | {name})
    if dialect.system and _SYSTEM.search(reason):
        return replace(dialect, system=False)
    if guided and request.schema is not None and dialect.form < len(FORMS) - 1 and _FORMAT.search(reason):
        return replace(dialect, form=dialect.form + 1)
    return None


def read(status: int, headers: Mapping[str, str], raw: bytes, now: float, count: Callable[[str], int]) -> Reply | Fault:
    """Tell what an answer means.

    Args:
        status: HTTP status.
        headers: Headers, whose names need not be of one case if the mapping does not care.
        raw: Whole body.
        now: Time of day, seconds since 1970; dates in headers are relative to it.
        count: Estimates tokens where the endpoint tells none. The prompt's are then 0.
    """
    if 200 <= status < 300:
        return _reply(raw, headers, now, count)
    if 300 <= status < 400:
        return Fault("model", f"HTTP {status}: redirects elsewhere", str(status))
    return _error(status, headers, _value(raw), raw, now)


def _value(raw: bytes) -> Any:
    try:
        return orjson.loads(raw)
    except ValueError:
        return None


def _reply(raw: bytes, headers: Mapping[str, str], now: float, count: Callable[[str], int]) -> Reply | Fault:
    value = _value(raw)
    if isinstance(value, dict) and value.get("error") and not value.get("choices"):
        code = value["error"].get("code") if isinstance(value["error"], dict) else None
        return _error(code if isinstance(code, int) and code >= 400 else 500, headers, value, raw, now)
    try:
        choice = value["choices"][0]
        message = choice["message"]
        text, refusal = message.get("content"), message.get("refusal")
        if isinstance(text, list):
            text = "".join(part["text"] for part in text if part.get("type") == "text")
        finish = choice.get("finish_reason") or "stop"
        if not isinstance(finish, str) or not isinstance(text, str | None) or finish in ("error", "abort"):
            raise TypeError
    except (KeyError, IndexError, TypeError, AttributeError):
        return Fault("passing", f"no chat completion: {excerpt(raw)}" if raw.strip() else "an empty body", "body")
    if not text and isinstance(refusal, str) and refusal:
        text, finish = refusal, "refusal"
    usage = value.get("usage") if isinstance(value.get("usage"), dict) else {}
    details = usage.get("prompt_tokens_details")
    told = usage.get("completion_tokens")
    return Reply(
        text or "",
        finish,
        _whole(usage.get("prompt_tokens")),
        _whole(told) if told is not None else count(text or ""),
        _whole(details.get("cached_tokens")) if isinstance(details, dict) else 0,
    )


def _whole(value: Any) -> int:
    return value if isinstance(value, int) and value >= 0 else 0


def _error(status: int, headers: Mapping[str, str], value: Any, raw: bytes, now: float) -> Fault:
    error = value.get("error", value) if isinstance(value, dict) else value
    fields = error if isinstance(error, dict) else {}
    message = fields.get("message") or fields.get("detail") or (error if isinstance(error, str) else "") or excerpt(raw)
    tags = [str(fields[name]) for name in ("code", "type", "param") if fields.get(name)]
    text = excerpt(" ".join([str(message), *(f"({tag})" for tag in tags if tag not in str(message))]), 2000)
    reason = f"HTTP {status}: {text}"
    label = str(status)
    if status == 401:
        return Fault("key", f"HTTP {status}", label)
    if status == 403 and not _FLAGGED.search(text):
        return Fault("key", reason, label)
    if status == 402 or "insufficient_quota" in tags:
        return Fault("quota", reason, label)
    if status == 429 and "Request too large" not in text:
        return Fault("busy", reason, label, wait_of(headers, now))
    if status in (413, 429) or _TOO_LONG.search(text):
        return Fault("long", reason, label)
    if status >= 500 or status in (408, 409, 425):
        wait = wait_of(headers, now)
        return Fault("passing" if wait is None else "busy", reason, label, wait)
    if status in (404, 405) or _NO_MODEL.search(text):
        return Fault("model", reason, label)
    if _LIMIT.search(text):
        return Fault("limit", reason, label)
    return Fault("refused", reason, label)


def wait_of(headers: Mapping[str, str], now: float) -> float | None:
    """Return the seconds that Retry-After asks for (a number, or a date in the endpoint's own time), or None."""
    try:
        if (milliseconds := headers.get("Retry-After-Ms")) is not None:
            return max(0.0, float(milliseconds) / 1000)
        if (told := headers.get("Retry-After")) is None:
            return None
        if told.strip().replace(".", "", 1).isdigit():
            return float(told)
        here = headers.get("Date")
        start = parsedate_to_datetime(here).timestamp() if here else now
        return max(0.0, parsedate_to_datetime(told).timestamp() - start)
    except (ValueError, TypeError, OverflowError):
        return None


def excerpt(text: str | bytes, limit: int = 200) -> str:
    """Return the start of a text on one line, without control characters and without what looks like a key."""
    if isinstance(text, bytes):
        text = text[: limit * 4].decode("utf-8", "replace")
    line = " ".join("".join(c if c.isprintable() else " " for c in text[: limit * 4]).split())
    line = _SECRET.sub("***", line)
    return line if len(line) <= limit else line[: limit - 1] + "…"
