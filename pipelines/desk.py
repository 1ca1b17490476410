"""Where requests meet an engine: engines kept open per process, replies kept in the journal, everything counted."""

from __future__ import annotations

import asyncio
import os
import re
import uuid
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pipelines.journal import Entry, Journal
from schemas.ids import canonical_json, escape_id, fingerprint
from transforms import engines
from transforms.asking import Known
from transforms.engines import Reply, Request, RequestRefusedError
from transforms.engines._supervise import SetAsideError, Supervised
from transforms.tasks import Result

_PART = re.compile(r"part \d+ of \d+: ")


def journal_name(engine: str, identity: Mapping[str, Any]) -> str:
    """Return the name of the journal of an engine with a model: all that its replies depend on but the request."""
    return escape_id(f"{engine}-{fingerprint(identity)[:16]}")


@dataclass(frozen=True)
class Engine:
    """An engine as a worker starts it.

    Attributes:
        name: Its module.
        model: The model.
        options: Its checked options.
        identity: All that its replies depend on but the request.
    """

    name: str
    model: str | None
    options: Mapping[str, Any]
    identity: Mapping[str, Any]

    @property
    def journal(self) -> str:
        """Name of its journal."""
        return journal_name(self.name, self.identity)


class Room:
    """The engines that are open in one event loop of one process, and what they did.

    Attributes:
        counts: ``pieces.STATUS``, ``journal`` (requests served from it), ``corrupt`` (replies that could not be used)
            and ``failed.REASON``; see `snapshot` for what engines add.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._id = f"{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self._open: dict[bytes, asyncio.Future[Supervised]] = {}

    async def engine(self, wanted: Engine) -> Supervised:
        """Return an engine, started on first need.

        Raises:
            EngineError: It cannot be used.
        """
        # With the identity: a file that was replaced under its path is another model.
        key = canonical_json([wanted.name, wanted.model, dict(wanted.options), dict(wanted.identity)])
        if key not in self._open:
            module = engines.load(wanted.name)
            options = engines.options_of(module, wanted.options)
            self._open[key] = asyncio.ensure_future(Supervised.start(lambda: module.start(wanted.model, options)))
        try:
            return await asyncio.shield(self._open[key])
        except Exception:
            self._open.pop(key, None)
            raise

    def snapshot(self) -> dict[str, Any]:
        """Return all counts so far: ``id`` (of this room), own ones, and those of the engines added up."""
        total: defaultdict[str, float] = defaultdict(float, self.counts)
        in_flight = slots = 0
        for future in self._open.values():
            if future.done() and not future.cancelled() and future.exception() is None:
                engine = future.result()
                counters = engine.counters()
                for name, count in counters.items():
                    total[name] += count
                total["slot_seconds"] += counters["wall_seconds"] * engine.slots
                in_flight += engine.in_flight
                slots += engine.slots
        return {"id": self._id, "in_flight": in_flight, "slots": slots, "counts": dict(total)}

    async def close(self) -> None:
        """End all engines."""
        for future in self._open.values():
            if future.done() and not future.cancelled() and future.exception() is None:
                await future.result().close()
            else:
                future.cancel()
        self._open.clear()


_rooms: dict[int, tuple[asyncio.AbstractEventLoop, Room]] = {}


def room() -> Room:
    """Return the room of the running event loop."""
    loop = asyncio.get_running_loop()
    for number, (other, _) in list(_rooms.items()):
        if other.is_closed():
            del _rooms[number]
    return _rooms.setdefault(id(loop), (loop, Room()))[1]


class JournalDesk:
    """Asks an engine and keeps its replies in the journal of one shard."""

    def __init__(self, engine: Supervised, journal: Journal, prompt: str, round_: int, counts: Counter[str]) -> None:
        self.context = engine.context
        self.slots = engine.slots
        self._engine = engine
        self._journal = journal
        self._prompt = prompt
        self._round = round_
        self._counts = counts

    def count(self, text: str) -> int:
        """Return the tokens of a text."""
        return self._engine.count(text)

    def known(self, key: str) -> Known | None:
        """Return what the journal knows of a request."""
        entry = self._journal.find(key, self._round)
        if entry is None:
            return None
        self._counts["journal"] += 1
        reply = Reply(entry.text, entry.finish, entry.prompt_tokens, entry.completion_tokens, entry.cached_tokens)
        return Known(entry.kind, reply, entry.error)

    async def ask(self, request: Request) -> Reply:
        """Ask the engine; a request that it was set aside for counts as refused."""
        try:
            return await self._engine.complete(request)
        except SetAsideError as error:
            raise RequestRefusedError(str(error)) from error

    def keep(self, key: str, kind: str, reply: Reply, error: str | None, content: str) -> None:
        """Write to the journal, durable within seconds.

        Raises:
            StoreError: An earlier write failed.
        """
        if kind == "corrupt":
            self._counts["corrupt"] += 1
        self._journal.add(
            Entry(
                key=key,
                kind=kind,
                text=reply.text,
                finish=reply.finish,
                prompt_tokens=reply.prompt_tokens,
                completion_tokens=reply.completion_tokens,
                cached_tokens=reply.cached_tokens,
                error=error,
                round=self._round,
                content=content,
                prompt=self._prompt,
            )
        )

    def done(self, result: Result) -> None:
        """Count a piece."""
        self._counts[f"pieces.{result.status}"] += 1
        if result.status == "failed":
            self._counts[f"failed.{_kind(result.error or '')}"] += 1


def _kind(error: str) -> str:
    """Return the kind of a failure: its text up to the first detail, without the part of a text that it befell."""
    error = _PART.sub("", error)
    return error.partition(":")[0].partition("(")[0].strip()[:60]
