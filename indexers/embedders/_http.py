"""Requests for embeddings over HTTP: batches, attempts, and texts that the endpoint does not take."""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any, Protocol
from urllib.parse import urlsplit

import numpy as np
import orjson

from indexers.embedders import EmbedderError
from indexers.embedders._rows import Floats
from transforms.engines._chat import Fault, excerpt, read
from transforms.engines._endpoint import bounded, session
from transforms.engines._pace import Gate, Health, Strikes

WORD = "word"
"""A text that every endpoint takes which takes any."""

BODY_LIMIT = 256 << 20
"""Bytes of an answer at most."""

_LETTERS = 100_000  # characters of one request at most, unless a single text has more
_SHORT = 200  # characters that are never too many for a model
_TOO_LONG = re.compile(r"too large to process|exceeds? n_ctx|must have less than \d+ tokens", re.IGNORECASE)
_KEPT = "Finished parts are kept; run the same command again"

_Row = Floats | None


class Limits(Protocol):
    """What of the options the client looks at."""

    key_env: str
    batch: int
    concurrency: int
    timeout: float
    patience: float


class Client:
    """An endpoint.

    Attributes:
        counts: ``tokens`` (as the endpoint tells), ``shortened`` and ``refused`` (texts), ``retried.REASON``.
        width: Dimensions of its vectors; 0 before the first answer.
    """

    def __init__(self, base: str, key: str, fields: Mapping[str, Any], limits: Limits) -> None:
        self.counts: Counter[str] = Counter()
        self.width = 0
        self._base, self._key, self._fields, self._limits = base, key, dict(fields), limits
        self._host = urlsplit(base).netloc
        self._gate, self._health = Gate(), Health()
        self._free = asyncio.Semaphore(limits.concurrency)
        self._probe = self._body([WORD])
        self._open: Any = None

    async def vectors(self, texts: list[str]) -> Floats:
        """Return (texts, dimensions) vectors of texts that are not empty; zeros for one that the endpoint refuses.

        Raises:
            EmbedderError: It cannot be used at all.
        """
        tasks = [asyncio.ensure_future(self._batch(batch)) for batch in _batches(texts, self._limits.batch)]
        try:
            done = await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
        blank = np.zeros(self.width)
        rows = [blank if row is None else row for rows in done for row in rows]
        return np.stack(rows) if rows else np.zeros((0, self.width))

    async def close(self) -> None:
        """End the connections."""
        if self._open is not None:
            await self._open.close()

    async def _batch(self, texts: list[str]) -> list[_Row]:
        """Return vectors; what keeps a batch from being taken is found by halving."""
        answer = await self._ask(texts)
        if not isinstance(answer, Fault):
            return answer
        if len(texts) > 1:
            middle = len(texts) // 2
            return [*await self._batch(texts[:middle]), *await self._batch(texts[middle:])]
        # A reason in other words than those known may still be the length.
        text = texts[0]
        while len(text) > _SHORT:
            text = text[: max(_SHORT, len(text) // 2)]
            shorter = await self._ask([text])
            if not isinstance(shorter, Fault):
                self.counts["shortened"] += 1
                return shorter
        await self._refused(texts, answer)
        return [None]

    async def _refused(self, texts: list[str], fault: Fault) -> None:
        """Count a refused text.

        Raises:
            EmbedderError: The endpoint refuses any text.
        """
        if not self.width and (texts == [WORD] or isinstance(await self._ask([WORD]), Fault)):
            raise EmbedderError(
                f"{self._host} refuses every request ({self._clean(fault.reason)})",
                where="embed.options",
                remedy="Check the model and the options: dimensions, extra_body.",
            )
        self.counts["refused"] += 1

    async def _ask(self, texts: list[str]) -> list[_Row] | Fault:
        """Return vectors, or why these texts are not taken."""
        body, strikes = self._body(texts), Strikes()
        while True:
            async with self._free:
                while (left := self._gate.opens - time.monotonic()) > 0:
                    await asyncio.sleep(left + random.uniform(0, min(0.1 * left, 1.0)))
                sent = time.monotonic()
                answer = await self._post(body, len(texts))
            if not isinstance(answer, Fault) or answer.kind in ("long", "refused"):
                self._health.good()
                self._gate.good()
                return answer
            if answer.kind not in ("busy", "passing"):
                raise await self._unusable(answer)
            if await self._failed(body, answer, strikes, sent):
                return Fault("refused", answer.reason)

    def _body(self, texts: list[str]) -> bytes:
        return bytes(orjson.dumps({**self._fields, "input": texts}))

    async def _post(self, body: bytes, size: int) -> list[_Row] | Fault:
        import aiohttp

        if self._open is None:
            self._open = session(self._key, self._limits.concurrency, self._limits.timeout)
        try:
            async with self._open.post(f"{self._base}/embeddings", data=body, allow_redirects=False) as response:
                raw = await bounded(response, BODY_LIMIT)
                if raw is None:
                    return Fault("passing", f"an answer of more than {BODY_LIMIT >> 20} MB", "body")
                if response.status == 501:
                    return Fault("model", f"HTTP 501: {excerpt(raw)}")
                if response.status >= 400 and _TOO_LONG.search(excerpt(raw, 2000)):
                    return Fault("long", f"HTTP {response.status}: {excerpt(raw)}")
                if not 200 <= response.status < 300:
                    fault = read(response.status, response.headers, raw, time.time(), len)
                    return fault if isinstance(fault, Fault) else Fault("passing", "no embeddings", "body")
        except TimeoutError:
            return Fault("passing", f"no answer within {self._limits.timeout:g} s", "timeout")
        except aiohttp.ClientConnectorCertificateError as error:
            raise EmbedderError(
                f"{self._host} shows a certificate that cannot be trusted: {self._clean(str(error))}",
                where="embed.options.base_url",
                remedy="Check the address; SSL_CERT_FILE can name a file of further certificates.",
            ) from None
        except (aiohttp.ClientError, OSError) as error:
            return Fault("passing", f"{type(error).__name__}: {error}", "connection")
        return self._rows(raw, size)

    def _rows(self, raw: bytes, size: int) -> list[_Row] | Fault:
        """Return the vectors of an answer in order of the texts."""
        try:
            value = orjson.loads(raw)
            data = value["data"]
            found = {int(item.get("index", place)): item["embedding"] for place, item in enumerate(data)}
            rows = [np.array(found[place], np.float64) for place in range(size)]
            if len(data) != size or not all(row.ndim == 1 and row.size for row in rows):
                raise TypeError
        except (ValueError, TypeError, KeyError, AttributeError):
            return Fault("passing", f"no embeddings: {excerpt(raw)}" if raw.strip() else "an empty body", "body")
        widths = {len(row) for row in rows} | ({self.width} if self.width else set())
        if len(widths) > 1:
            raise EmbedderError(
                f"{self._host} gives vectors of {' and of '.join(map(str, sorted(widths)))} dimensions",
                where="embed.options.base_url",
                remedy="Its model has changed; start anew when it stays the same.",
            )
        self.width = widths.pop()
        usage = value.get("usage")
        told = usage.get("prompt_tokens") if isinstance(usage, dict) else None
        if isinstance(told, int) and told > 0:
            self.counts["tokens"] += told
        if broken := sum(not np.isfinite(row).all() for row in rows):
            self.counts["refused"] += broken
        return list(rows)

    async def _failed(self, body: bytes, fault: Fault, strikes: Strikes, sent: float) -> bool:
        """Wait until the request may be sent again; tell instead if it alone fails.

        Raises:
            EmbedderError: Nothing was usable for as long as the options allow.
        """
        patience, now = self._limits.patience, time.monotonic()
        self._health.bad(strikes, now)
        # A batch that fails may be the only one under way; whether the endpoint lives, another request tells.
        doubtful = fault.kind == "passing" and strikes.count >= 3 and body != self._probe
        if doubtful and not isinstance(await self._post(self._probe, 1), Fault):
            self._health.good()
        if self._health.alone(strikes):
            return True
        trouble = self._health.trouble(now)
        if trouble >= patience:
            raise EmbedderError(
                f"{self._host} has given no usable answer for {trouble:.0f} s; the last was: "
                + self._clean(fault.reason),
                where="embed.options.base_url",
                remedy=f"{_KEPT} when it answers again.",
            )
        self.counts[f"retried.{fault.label}"] += 1
        if fault.kind == "busy":
            self._gate.busy(sent, now, fault.wait, patience - trouble)
        else:
            await asyncio.sleep(min(strikes.pause(), patience - trouble))
        return False

    def _clean(self, reason: str) -> str:
        return excerpt(reason.replace(self._key, "***") if self._key else reason, 300)

    async def _unusable(self, fault: Fault) -> EmbedderError:
        told, model = self._clean(fault.reason), self._fields["model"]
        if fault.kind == "key":
            env = self._limits.key_env
            state = "rejects the key in" if self._key else "wants a key, and none is in"
            return EmbedderError(
                f"{self._host} {state} the environment variable {env} ({told})",
                where="embed.options.key_env",
                remedy=f"Set {env} to a key that may use '{model}'. {_KEPT}.",
            )
        if fault.kind == "quota":
            return EmbedderError(
                f"the quota at {self._host} is used up ({told})",
                where="embed.options.base_url",
                remedy=f"{_KEPT} when there is more.",
            )
        return EmbedderError(
            f"{self._host} has no embeddings of '{model}' at {urlsplit(self._base).path or '/'} ({told})",
            where="embed.model",
            remedy="Check the address (most end in /v1) and the name; the endpoint's /models lists what it has.",
        )


def _batches(texts: list[str], most: int) -> list[list[str]]:
    """Cut texts into requests of at most `most` texts and, unless one alone has more, `_LETTERS` characters."""
    batches: list[list[str]] = []
    letters = 0
    for text in texts:
        if not batches or len(batches[-1]) == most or letters + len(text) > _LETTERS:
            batches.append([])
            letters = 0
        batches[-1].append(text)
        letters += len(text)
    return batches
