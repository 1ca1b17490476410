"""Supervision of an engine: it is started again when it dies, and the request that keeps killing it is found out."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from copy import copy
from dataclasses import dataclass
from time import monotonic
from typing import Any

from schemas.errors import FAULT, TagloomError
from transforms.engines import Engine, EngineDiedError, EngineError, Reply, Request

DEATHS = 3
"""Deaths of the engine that one request may be part of."""

BARREN = 10
"""Restarts in a row without a reply after which the engine counts as unusable."""

LONGEST_PAUSE = 60.0
"""Seconds between two restarts at most."""


class SetAsideError(Exception):
    """The request killed the engine three times, the last time while it ran alone."""


@dataclass(frozen=True, slots=True, eq=False)
class _Life:
    """An engine from start to death; `dead` then holds its last words."""

    engine: Engine
    dead: asyncio.Future[str]


class Supervised:
    """An engine that outlives its deaths; an `Engine` itself.

    At most `slots` requests are with the engine at once, the others wait here. When the engine dies, every request
    that was with it is asked again: after its first death among others, after its second one alone, so that a third
    one names the guilty request. All calls must come from one event loop.

    Attributes:
        slots: Requests that the engine works on at once.
        context: Tokens that prompt and reply may have together.
        in_flight: Requests that are with the engine now.
    """

    def __init__(
        self, start: Callable[[], Awaitable[Engine]], engine: Engine, sleep: Callable[[float], Awaitable[Any]]
    ) -> None:
        self.slots = engine.slots
        self.context = engine.context
        self.in_flight = 0
        self._start = start
        self._sleep = sleep
        self._life = self._begin(engine)
        self._ready = True
        self._restarting: asyncio.Task[None] | None = None
        self._barren = 0
        self._fatal: TagloomError | None = None
        self._alone = False
        self._waiting: deque[asyncio.Future[_Life | None]] = deque()
        self._suspects: deque[asyncio.Future[_Life | None]] = deque()
        self._past: Mapping[str, float] = {}
        self._retired = False
        self._own = dict.fromkeys(
            (
                *("requests", "prompt_tokens", "completion_tokens", "cached_tokens"),
                *("engine_deaths", "engine_restarts", "queue_seconds", "busy_slot_seconds", "wall_seconds"),
            ),
            0.0,
        )
        self._seen = monotonic()

    @classmethod
    async def start(
        cls, start: Callable[[], Awaitable[Engine]], *, sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep
    ) -> Supervised:
        """Start an engine.

        Args:
            start: Starts a fresh engine. When a call of it is cancelled, it leaves nothing behind.
            sleep: Waits for that many seconds between restarts.

        Raises:
            EngineError: It cannot be used.
            MissingDependencyError: A library is not installed.
        """
        try:
            return cls(start, await start(), sleep)
        except EngineDiedError as error:
            raise EngineError(f"the engine ended while it started: {error}", where="extract.extractor") from error

    def count(self, text: str) -> int:
        """Return the tokens of a text, as the engine counts them."""
        return self._life.engine.count(text)

    async def complete(self, request: Request) -> Reply:
        """Answer one request, whatever becomes of the engine meanwhile; calls come concurrently.

        Raises:
            SetAsideError: The engine died three times of it.
            EngineError: The engine cannot be used (any more).
            RequestTooLongError, RequestRefusedError: As the engine says.
        """
        deaths = 0
        again = False
        while True:
            life = await self._turn(alone=deaths == DEATHS - 1, again=again)
            again = True
            try:
                if life.dead.done():  # it died between the turn and now: nobody's fault who had not asked yet
                    continue
                reply = await _ask(life, request)
            except EngineDiedError as error:
                self._bury(life, str(error))
                deaths += 1
                if deaths == DEATHS and self._fatal is None:
                    raise SetAsideError(f"killed the engine {DEATHS} times: {life.dead.result()}") from None
            else:
                self._note(reply)
                return reply
            finally:
                self._leave()

    def counters(self) -> Mapping[str, float]:
        """Return the engine's own counters, over all restarts, and those of supervision.

        ``requests`` (those answered), ``prompt_tokens``, ``completion_tokens`` and ``cached_tokens`` of the replies;
        ``engine_deaths``; ``engine_restarts`` (also those that failed); ``queue_seconds`` that requests waited here in
        sum; ``wall_seconds`` since the start; ``busy_slot_seconds``, the integral of `in_flight` over them: divided by
        ``wall_seconds * slots`` it is the occupancy.
        """
        self._tick()
        theirs = self._past if self._retired else _sum(self._past, self._life.engine.counters())
        return {**theirs, **self._own}

    async def close(self) -> None:
        """End the engine; requests that are not answered yet get an EngineError; never raises."""
        self._give_up(EngineError("the engine was closed", where="extract.extractor", remedy=FAULT))
        if not self._life.dead.done():
            self._life.dead.set_result("it was closed")
        if self._restarting is not None:
            self._restarting.cancel()
            await asyncio.wait((self._restarting,))
        await self._life.engine.close()

    def _begin(self, engine: Engine) -> _Life:
        return _Life(engine, asyncio.get_running_loop().create_future())

    async def _turn(self, *, alone: bool, again: bool) -> _Life:
        """Wait until a request may go to the engine, and count it as in flight."""
        asked = monotonic()
        turn: asyncio.Future[_Life | None] = asyncio.get_running_loop().create_future()
        queue = self._suspects if alone else self._waiting
        if again:
            queue.appendleft(turn)
        else:
            queue.append(turn)
        self._admit()
        try:
            life = await turn
        except asyncio.CancelledError:
            if not turn.cancelled() and turn.result() is not None:
                self._leave()
            raise
        finally:
            self._own["queue_seconds"] += monotonic() - asked
        if life is None:
            assert self._fatal is not None
            raise copy(self._fatal)
        return life

    def _admit(self) -> None:
        """Give turns as long as the engine has room: suspects first, each of them alone."""
        if self._fatal is not None:
            for turn in (*self._suspects, *self._waiting):
                if not turn.done():
                    turn.set_result(None)
            self._suspects.clear()
            self._waiting.clear()
        while self._ready and not self._alone:
            for queue in (self._suspects, self._waiting):
                while queue and queue[0].done():  # cancelled
                    queue.popleft()
            queue = self._suspects or self._waiting
            if not queue or self.in_flight >= (1 if self._suspects else self.slots):
                return
            self._alone = bool(self._suspects)
            self._tick()
            self.in_flight += 1
            queue.popleft().set_result(self._life)

    def _leave(self) -> None:
        self._tick()
        self.in_flight -= 1
        self._alone = False
        self._admit()

    def _tick(self) -> None:
        now = monotonic()
        self._own["busy_slot_seconds"] += self.in_flight * (now - self._seen)
        self._own["wall_seconds"] += now - self._seen
        self._seen = now

    def _note(self, reply: Reply) -> None:
        self._barren = 0
        self._own["requests"] += 1
        for name in ("prompt_tokens", "completion_tokens", "cached_tokens"):
            self._own[name] += getattr(reply, name)

    def _bury(self, life: _Life, words: str) -> None:
        """Take note of a death, the first time that it is told, and start the engine again in the background."""
        if life.dead.done():
            return
        life.dead.set_result(words)
        self._own["engine_deaths"] += 1
        self._ready = False
        self._restarting = asyncio.create_task(self._restart(words))

    async def _restart(self, words: str) -> None:
        try:
            await self._life.engine.close()
            self._past = _sum(self._past, self._life.engine.counters())
            self._retired = True
            while True:
                if self._barren == BARREN:
                    raise EngineError(
                        f"the engine ended {BARREN} times without answering: {words}",
                        where="extract.extractor",
                        remedy="See why it ends; what was answered before is kept, and the same command goes on.",
                    )
                if self._barren:
                    await self._sleep(min(LONGEST_PAUSE, 2.0 ** (self._barren - 1)))
                self._barren += 1
                self._own["engine_restarts"] += 1
                try:
                    engine = await self._start()
                except (EngineDiedError, EngineError) as error:  # such as memory that the dead one still holds
                    words = error.message if isinstance(error, EngineError) else str(error)
                else:
                    break
            self._life = self._begin(engine)
            self._retired = False
            self._ready = True
            self._admit()
        except TagloomError as error:
            self._give_up(error)
        except Exception as error:
            self._give_up(EngineError(f"cannot be started again: {error}", where="extract.extractor", remedy=FAULT))

    def _give_up(self, error: TagloomError) -> None:
        """Let every request fail from now on, those that wait included."""
        self._fatal = self._fatal or error
        self._ready = False
        self._admit()


async def _ask(life: _Life, request: Request) -> Reply:
    """Put a request to an engine; its death ends the wait, also where the engine itself leaves the request hanging.

    Raises:
        EngineDiedError: The engine died.
    """
    task = asyncio.ensure_future(life.engine.complete(request))
    try:
        await asyncio.wait((task, life.dead), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise EngineDiedError(life.dead.result())
        if task.cancelled():
            raise EngineDiedError("the engine dropped the request")
        return task.result()
    finally:
        if not task.cancel() and not task.cancelled():
            task.exception()  # so that none is reported as never looked at, where the caller was cancelled


def _sum(a: Mapping[str, float], b: Mapping[str, float]) -> dict[str, float]:
    return {name: a.get(name, 0) + b.get(name, 0) for name in (*a, *b)}
