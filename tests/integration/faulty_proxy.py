"""A small proxy in front of an object store that counts requests, and answers some of them with faults."""

import asyncio
import threading
from collections import Counter
from contextlib import contextmanager

import aiohttp
from aiohttp import web
from yarl import URL

HOST = "127.0.0.1"
ANSWERS = {
    "slow": (503, "SlowDown"),
    "busy": (429, "TooManyRequests"),
    "broken": (500, "InternalError"),
    "denied": (403, "AccessDenied"),
}
FAULT = "<Error><Code>{}</Code><Message>says the test</Message></Error>"
NOTHING = (
    '<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><KeyCount>0</KeyCount>'
    "<IsTruncated>false</IsTruncated></ListBucketResult>"
)


class Proxy:
    """The proxy, while it runs.

    Attributes:
        faults: Which fault the next request meets, if any: called with its number (from 0), method and path. ``slow``
            answers 503 SlowDown, ``busy`` 429, ``broken`` 500, ``reset`` ends the connection before the store has
            seen the request, ``lost`` after it has done what was asked, ``cut`` in the middle of the answer; ``denied``
            answers 403, ``blind`` lists nothing.
        seen: (method, path with query) of every request, in order.
        met: How often each fault was met.
    """

    def __init__(self, target):
        self.target = target.rstrip("/")
        self.seen = []
        self.url = ""
        self._alone = asyncio.Lock()
        self.begin()

    def begin(self):
        """Forget what was, and pass everything on."""
        self.faults = lambda number, method, path: None
        self.seen.clear()
        self.met = Counter()
        self.down = False

    def counts(self):
        """Return how many requests of each kind there were; listings are apart from other GETs."""
        return Counter("LIST" if "list-type=" in path else method for method, path in self.seen)

    async def _handle(self, request):
        number = len(self.seen)
        path = request.raw_path
        self.seen.append((request.method, path))
        fault = "reset" if self.down else self.faults(number, request.method, path)
        if fault:
            self.met[fault] += 1
        if fault == "reset":
            request.transport.abort()
            return web.Response()
        if fault in ANSWERS:
            status, code = ANSWERS[fault]
            text = "" if request.method == "HEAD" else FAULT.format(code)
            return web.Response(status=status, text=text, content_type="application/xml")
        if fault == "blind":
            return web.Response(text=NOTHING, content_type="application/xml")
        headers = {k: v for k, v in request.headers.items() if k.lower() not in ("transfer-encoding", "expect")}
        body = await request.read()
        headers["Content-Length"] = str(len(body))
        url = URL(self.target + path, encoded=True)  # escapes in the path are the store's business
        # One after the other: the store of the tests does not look and write in one step, as a real one does.
        async with (
            self._alone,
            self.session.request(request.method, url, headers=headers, data=body, allow_redirects=False) as answer,
        ):
            data = await answer.read()
        if fault == "lost":
            request.transport.abort()
            return web.Response()
        kept = {k: v for k, v in answer.headers.items() if k.lower() not in ("transfer-encoding", "connection")}
        response = web.StreamResponse(status=answer.status, headers=kept)
        if request.method != "HEAD":
            response.content_length = len(data)
        await response.prepare(request)
        if request.method != "HEAD":
            await response.write(data[: len(data) // 2] if fault == "cut" else data)
            if fault == "cut":
                request.transport.abort()
                return response
        await response.write_eof()
        return response

    async def _serve(self, started, stop):
        async with aiohttp.ClientSession(auto_decompress=False) as self.session:
            app = web.Application(client_max_size=1 << 30)
            app.router.add_route("*", "/{path:.*}", self._handle)
            runner = web.AppRunner(app)
            await runner.setup()
            site = web.TCPSite(runner, HOST, 0)
            await site.start()
            self.url = "http://{}:{}".format(*runner.addresses[0])
            started.set()
            await stop.wait()
            await runner.cleanup()


@contextmanager
def proxied(target):
    """Run a proxy in front of a URL, in a thread of its own."""
    proxy = Proxy(target)
    started = threading.Event()
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    def serve():
        loop.run_until_complete(proxy._serve(started, stop))
        left = asyncio.all_tasks(loop)  # of connections that were ended
        for task in left:
            task.cancel()
        if left:
            loop.run_until_complete(asyncio.wait(left))

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    assert started.wait(10)
    try:
        yield proxy
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)
        loop.close()
