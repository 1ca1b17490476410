"""Drives a real headless Chromium over the DevTools protocol through a pipe: no port, no network, no library."""

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)

HAND_OVER = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(end), fcntl.F_DUPFD, 10) for end in sys.argv[1:3]]
os.dup2(ends[0], 3)
os.dup2(ends[1], 4)
os.execvp(sys.argv[3], sys.argv[3:])
"""
"""Chromium reads orders from descriptor 3 and answers on 4; copies come first, as an end may be 3 or 4 already."""


def find() -> str | None:
    """The Chromium to use: TAGLOOM_CHROMIUM, or one on the PATH."""
    named = os.environ.get("TAGLOOM_CHROMIUM")
    return named or next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class Browser:
    """One browser with one page."""

    def __init__(self, program: str, folder: Path) -> None:
        orders, answers = os.pipe(), os.pipe()

        self._log = (folder / "chromium.log").open("wb")
        ends = str(orders[0]), str(answers[1])
        command = [program, *FLAGS, f"--user-data-dir={folder / 'profile'}", "about:blank"]
        self._process = subprocess.Popen(
            [sys.executable, "-c", HAND_OVER, *ends, *command],
            pass_fds=(orders[0], answers[1]),
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
        )
        os.close(orders[0])
        os.close(answers[1])
        self._orders, self._answers = orders[1], answers[0]
        self._buffer = b""
        self._number = 0
        self._session = None
        self.events: list[dict] = []
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **params):
        """Give an order and return its result."""
        self._number += 1
        order = {"id": self._number, "method": method, "params": params}
        if self._session:
            order["sessionId"] = self._session
        data = json.dumps(order).encode() + b"\0"
        while data:
            data = data[os.write(self._orders, data) :]
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer["error"]
                return answer["result"]

    def _read(self, seconds: float = 60.0) -> dict:
        while b"\0" not in self._buffer:
            assert select.select([self._answers], [], [], seconds)[0], "the browser does not answer"
            data = os.read(self._answers, 1 << 20)
            assert data, "the browser has ended"
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\0")
        answer = json.loads(line)
        if "method" in answer:
            self.events.append(answer)
        return answer

    def told(self, *methods: str) -> list[dict]:
        """The events of some kinds so far."""
        return [event["params"] for event in self.events if event["method"] in methods]

    def open(self, path: Path, fragment: str = "", *, width: int = 1200, height: int = 900, dark: bool = False) -> None:
        """Open a local file and wait until it is loaded."""
        self.events.clear()
        self.send("Page.navigate", url="about:blank")
        self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])
        self.send("Page.navigate", url=path.as_uri() + fragment)
        self.wait("document.readyState === 'complete' && location.href !== 'about:blank'")

    def run(self, expression: str):
        """Evaluate an expression (a promise is waited for) and return its value."""
        done = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in done, done["exceptionDetails"]
        return done["result"].get("value")

    def wait(self, expression: str, seconds: float = 30.0):
        """Evaluate an expression until it is true, and return its value."""
        until = time.monotonic() + seconds
        while not (value := self.run(expression)):
            assert time.monotonic() < until, f"never true: {expression}"
            time.sleep(0.02)
        return value

    def screenshot(self, path: Path, *, whole: bool = False) -> None:
        """Write what is seen as PNG."""
        shot = self.send("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))

    def close(self) -> None:
        """End the browser."""
        self._session = None
        self.send("Browser.close")
        self._process.wait(timeout=20)
        os.close(self._orders)
        os.close(self._answers)
        self._log.close()
