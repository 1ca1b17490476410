"""A small HTTP/1.1 server on asyncio's protocols: quick enough that what is measured against it is not the server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus

import orjson


@dataclass(frozen=True, slots=True)
class Call:
    """One request; header names are lower case."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Answer:
    """One response.

    Attributes:
        raw: Bytes to send; none closes the connection without a word.
        delay: Seconds before they are sent; None never answers.
        close: Close the connection after them.
    """

    raw: bytes
    delay: float | None = 0.0
    close: bool = False


def response(status: int, value: object, *headers: str, delay: float = 0.0) -> Answer:
    """Make an answer of a JSON value, or of bytes as they are."""
    body = value if isinstance(value, bytes) else orjson.dumps(value)
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", "Content-Type: application/json", *headers]
    head = "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""])
    return Answer(head.encode("latin-1") + body, delay)


class _Connection(asyncio.Protocol):
    def __init__(self, answer: Callable[[Call], Answer]) -> None:
        self.answer = answer
        self.loop = asyncio.get_running_loop()
        self.buffer = b""
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport) -> None:
        self.transport = transport

    def connection_lost(self, exc) -> None:
        self.transport = None

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        head, gap, rest = self.buffer.partition(b"\r\n\r\n")
        if not gap:
            return
        start, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        length = int(headers.get("content-length", 0))
        if len(rest) < length:
            return
        self.buffer = rest[length:]
        method, path, _ = start.split(" ", 2)
        answer = self.answer(Call(method, path, headers, rest[:length]))
        if answer.delay:
            self.loop.call_later(answer.delay, self._send, answer)
        elif answer.delay is not None:
            self._send(answer)

    def _send(self, answer: Answer) -> None:
        if self.transport is not None:
            if answer.raw:
                self.transport.write(answer.raw)
            if answer.close or not answer.raw:
                self.transport.close()


async def serve(answer: Callable[[Call], Answer], port: int = 0) -> asyncio.Server:
    """Serve on the loopback address; port 0 takes a free one."""
    loop = asyncio.get_running_loop()
    return await loop.create_server(lambda: _Connection(answer), "127.0.0.1", port, backlog=1024)


def port_of(server: asyncio.Server) -> int:
    """Return the port that a server listens on."""
    return server.sockets[0].getsockname()[1]
