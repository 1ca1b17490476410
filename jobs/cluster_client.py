"""Ray's client of the Job Submission API, with time limits, without redirects, and with errors that users can read."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import aiohttp
import requests
from ray.exceptions import AuthenticationError
from ray.job_submission import JobSubmissionClient

from schemas.errors import ClusterError, UsageError

OLDEST_RAY = (2, 50)
"""Of the cluster; the oldest Ray that Tagloom works with."""
CONNECT_SECONDS, ANSWER_SECONDS, UPLOAD_SECONDS = 10.0, 60.0, 600.0
_JOB = re.compile(r"^/api/jobs/([^/]+)(?:/stop|/logs)?$")


class UnknownJobError(ClusterError):
    """The cluster does not know a job."""


class LostError(ClusterError):
    """The cluster does not answer, or answers that it is in trouble; another try may succeed."""


class Client(JobSubmissionClient):  # type: ignore[misc]  # Ray has no types
    """Ray's own client, but for how it asks."""

    def _do_request(self, method: str, endpoint: str, **options: Any) -> requests.Response:
        options.setdefault("timeout", (CONNECT_SECONDS, UPLOAD_SECONDS if method == "PUT" else ANSWER_SECONDS))
        options["allow_redirects"] = False  # a token is for the address that the user named
        try:
            answer: requests.Response = super()._do_request(method, endpoint, **options)
        except AuthenticationError as error:
            raise _refused(self._address, error) from None
        except requests.exceptions.SSLError as error:
            raise ClusterError(
                f"its certificate is not trusted: {_last(error)}",
                where=self._address,
                remedy="Name the file of the authority that signed it: --ca FILE",
            ) from error
        except (requests.exceptions.ConnectionError, requests.exceptions.Timeout) as error:
            raise LostError(
                f"does not answer: {_last(error)}",
                where=self._address,
                remedy="Check --address (the dashboard, port 8265 by default), and that the cluster is up.",
            ) from error
        except requests.exceptions.RequestException as error:
            raise ClusterError(f"cannot be asked: {_last(error)}", where=self._address) from error
        self._judge(answer, method, endpoint)
        return answer

    async def tail_job_logs(self, job_id: str) -> AsyncGenerator[str, None]:
        """Yield what a job prints, from its beginning, as Ray's own client does, but for redirects.

        Raises:
            ClusterError: The cluster sends on to another address.
            RuntimeError: The connection broke.
        """
        watch = aiohttp.TraceConfig()
        watch.on_request_redirect.append(self._sent_on)
        address = f"{self._address}/api/jobs/{job_id}/logs/tail"
        trust = True if self._ssl_context is None else self._ssl_context
        async with (
            aiohttp.ClientSession(cookies=self._cookies, headers=self._headers, trace_configs=[watch]) as session,
            session.ws_connect(address, ssl=trust) as stream,
        ):
            while True:
                message = await stream.receive()
                if message.type == aiohttp.WSMsgType.TEXT:
                    yield message.data
                elif message.type == aiohttp.WSMsgType.ERROR:
                    raise RuntimeError(f"the connection broke: {stream.exception()}")
                elif message.type == aiohttp.WSMsgType.CLOSED:
                    if stream.close_code == aiohttp.WSCloseCode.ABNORMAL_CLOSURE:
                        raise RuntimeError("the connection broke")
                    return

    async def _sent_on(self, *said: Any) -> None:
        """Stop where the answer is a redirect, before anything is asked of the other address."""
        raise self._elsewhere(said[-1].response.headers)

    def _elsewhere(self, headers: Mapping[str, str]) -> ClusterError:
        return ClusterError(
            f"sends on to {headers.get('Location', 'nowhere')!r}",
            where=self._address,
            remedy="Give that address, if you trust it.",
        )

    def _judge(self, answer: requests.Response, method: str, endpoint: str) -> None:
        state = answer.status_code
        if 300 <= state < 400:
            raise self._elsewhere(answer.headers)
        job = _JOB.match(endpoint)
        if state == 404 and job is not None:
            raise UnknownJobError(
                f"no job '{job[1]}' is known there",
                where=self._address,
                remedy="'tagloom jobs' lists those that are. A cluster whose head was replaced has forgotten its jobs; "
                "'tagloom status -C CORPUS' tells what they finished.",
            )
        if endpoint == "/api/version" and (state != 200 or not _is_version(answer)):
            raise ClusterError(
                f"is not the dashboard of a Ray cluster (answer {state})",
                where=self._address,
                remedy="Give the address of the dashboard, such as http://HOST:8265.",
            )
        if state >= 500:
            raise LostError(f"answers with an error: {_last(answer.text)}", where=self._address)
        if state >= 400 and not (method == "GET" and endpoint.startswith("/api/packages/")):
            raise ClusterError(f"refuses: {_last(answer.text)} ({state})", where=self._address)


def connect(address: str, ca: str | None) -> Client:
    """Return a client of a cluster that answers and is recent enough.

    Args:
        address: Of its dashboard, with the scheme.
        ca: File or folder of trusted certificates; None takes the system's.

    Raises:
        ClusterError: There is no such cluster, it refuses, or its Ray is too old.
    """
    for name in ("ray.dashboard.modules.job.sdk", "ray.dashboard.modules.dashboard_sdk", "ray.dashboard.utils"):
        logging.getLogger(name).setLevel(logging.ERROR)
    try:
        with _only(address):
            client = Client(address, headers=_headers(), verify=ca if ca is not None else True)
    except AuthenticationError as error:
        raise _refused(address, error) from None
    ray = str(client._server_ray_version or "")
    if tuple(int(part) for part in re.findall(r"\d+", ray)[:2]) < OLDEST_RAY:
        raise ClusterError(
            f"runs Ray {ray or 'of no known version'}; Tagloom needs {OLDEST_RAY[0]}.{OLDEST_RAY[1]} or newer",
            where=address,
            remedy="Update the cluster's image.",
        )
    return client


@contextmanager
def _only(address: str) -> Iterator[None]:
    """Let Ray's client take the address that it is given: by itself it prefers that of the environment."""
    name = "RAY_API_SERVER_ADDRESS"
    kept = os.environ.get(name)
    os.environ[name] = address
    try:
        yield
    finally:
        os.environ.pop(name, None)
        if kept is not None:
            os.environ[name] = kept


def _headers() -> dict[str, str]:
    """Return what RAY_JOB_HEADERS holds, as Ray's own command does."""
    text = os.environ.get("RAY_JOB_HEADERS")
    if not text:
        return {}
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise UsageError("is no JSON object of texts", where="RAY_JOB_HEADERS")
    return found


def _refused(address: str, error: Exception) -> ClusterError:
    remedy = "Set RAY_AUTH_MODE=token, and the cluster's token as RAY_AUTH_TOKEN or in the file RAY_AUTH_TOKEN_PATH."
    text = str(error)
    if "uthentication failed" in text:
        return ClusterError("the token is not that of the cluster", where=address, remedy=remedy)
    if "uthentication required" in text:
        return ClusterError("the cluster asks for a token, and none was given", where=address, remedy=remedy)
    return ClusterError(f"no token: {_last(error)}", where=address, remedy=remedy)


def _is_version(answer: requests.Response) -> bool:
    try:
        return isinstance(answer.json().get("ray_version"), str)
    except (ValueError, AttributeError):
        return False


def _last(error: object) -> str:
    """Return the last line of an error, which in a traceback is what went wrong, cut to a readable length."""
    if found := re.search(r"\[Errno -?\d+\] ([^'\")\n]+)", str(error)):  # wrapped in what its client was doing
        return found[1].strip()
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = re.sub(r"<[^<>]* object at 0x[0-9a-f]+>:? ?", "", lines[-1]) if lines else "nothing is said"
    return text if len(text) <= 300 else text[:297] + "..."
