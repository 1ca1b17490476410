"""Submitted runs: sending one, its state, following its log, waiting for its end, stopping it."""

from __future__ import annotations

import asyncio
import hashlib
import importlib.metadata
import re
import socket
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from jobs import console
from jobs.cluster_client import LostError, UnknownJobError, connect
from jobs.cluster_package import build_wheel, pack, wheel_version
from jobs.cluster_request import Submission, user
from schemas.errors import ClusterError, TagloomError, UsageError

SUCCEEDED, FAILED, STOPPED = "SUCCEEDED", "FAILED", "STOPPED"
ENDED = (SUCCEEDED, FAILED, STOPPED)
EXIT_STOPPED = 143
PATIENCE = 90.0
"""Seconds that a cluster may not answer while a run is followed or waited for."""
SILENCE = 120.0
"""Seconds without a line after which the connection is made anew; a run tells its progress every minute."""
POLL_SECONDS = 1.0
LOG_TRIES = 5
_NAME_ONE = "'tagloom jobs' lists the runs of all; name one by its id."
_ID = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,199}$")


class DetachedError(TagloomError):
    """The user stopped following; the run goes on."""

    exit_code = 130


class EndedError(DetachedError):
    """The command was told to end by SIGTERM while it followed; the run goes on."""

    exit_code = EXIT_STOPPED


@dataclass(frozen=True)
class Job:
    """A submitted run, as its cluster knows it.

    Attributes:
        id: Submission id.
        state: PENDING, RUNNING, SUCCEEDED, FAILED or STOPPED.
        metadata: What was sent with it.
        started, ended: Seconds since 1970; None where it has not.
        code: Exit code of the command; None where it did not end by itself.
        message: What Ray says of its state.
    """

    id: str
    state: str
    metadata: Mapping[str, str]
    started: float | None
    ended: float | None
    code: int | None
    message: str

    @property
    def over(self) -> bool:
        """True once it has ended."""
        return self.state in ENDED

    @property
    def ours(self) -> bool:
        """True for a run of Tagloom."""
        return "tagloom" in self.metadata or self.id.startswith("tagloom-")

    @property
    def exit_code(self) -> int:
        """The run's own exit code: 0 to 3, 143 when stopped, 128 + N when signal N ended it."""
        if self.state == SUCCEEDED:
            return 0
        if self.state == STOPPED:
            return EXIT_STOPPED
        code = 1 if self.code is None else self.code
        return 128 - code if code < 0 else code or 1

    @property
    def reason(self) -> str:
        """Why it failed, in one line; empty where its own exit code says all."""
        if self.state != FAILED or self.code is not None:
            return ""
        lines = [line.strip() for line in self.message.splitlines() if line.strip()]
        return lines[0][:300] if lines else ""


@dataclass(frozen=True)
class Package:
    """The code of a submission.

    Attributes:
        path: The wheel.
        name: Its file name.
        version: Its version.
        sha256: Of its bytes.
        bytes: Its size.
    """

    path: Path
    name: str
    version: str
    sha256: str
    bytes: int


@dataclass(frozen=True)
class SubmitTo:
    """A cluster, as the user named it.

    Attributes:
        address: Of its dashboard.
        option: What further commands need to reach it: the option, or nothing where the environment names it.
    """

    address: str
    option: str


@contextmanager
def package(given: str | None, *, needed: bool = True) -> Iterator[Package | None]:
    """Make the wheel to send, or take the user's; what was made is removed afterwards.

    Args:
        given: The user's wheel.
        needed: False gives None.

    Raises:
        TagloomError: It cannot be made, or is no wheel of Tagloom.
    """
    if not needed:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="tagloom-wheel-") as folder:
        path = Path(given) if given is not None else build_wheel(Path(folder))
        version = wheel_version(path)
        data = path.read_bytes()
        yield Package(path, path.name, version, hashlib.sha256(data).hexdigest(), len(data))


def running_version() -> str:
    """Return the version of the Tagloom that runs."""
    try:
        return importlib.metadata.version("tagloom")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


class Cluster:
    """A Ray cluster that takes runs."""

    def __init__(self, address: str, ca: str | None = None) -> None:
        """Connect.

        Raises:
            ClusterError: It cannot be reached, refuses, or is too old.
        """
        self.address = address
        self._client = connect(address, ca)

    def submit(self, submission: Submission, code: Package | None) -> None:
        """Send a run.

        Raises:
            ClusterError: The cluster does not take it.
        """
        environment: dict[str, Any] = {"env_vars": dict(submission.environment)}
        with tempfile.TemporaryDirectory(prefix="tagloom-job-") as folder:
            if submission.image is not None:
                environment["image_uri"] = submission.image
            elif code is not None:
                environment["working_dir"] = str(pack(code.path, submission.files, Path(folder) / "tagloom.zip"))
            try:
                self._client.submit_job(
                    entrypoint=submission.entrypoint,
                    submission_id=submission.id,
                    runtime_env=environment,
                    metadata=dict(submission.metadata),
                    entrypoint_num_cpus=submission.cpus,
                    entrypoint_memory=submission.memory,
                )
            except (ValueError, TypeError, RuntimeError) as error:
                raise ClusterError(f"Ray does not take the job: {error}", where=self.address) from error

    def jobs(self, *, every: bool = False) -> list[Job]:
        """Return the runs of Tagloom, or every job, in order of their start."""
        found = [_job(one) for one in self._client.list_jobs() if one.submission_id]
        return sorted((job for job in found if every or job.ours), key=lambda job: (job.started or 0.0, job.id))

    def job(self, name: str) -> Job:
        """Return one.

        Raises:
            ClusterError: The cluster does not know it.
        """
        return _job(self._client.get_job_info(_checked(name)))

    def chosen(self, name: str | None) -> str:
        """Return the id that a user means: the one given, or for ``-`` or none that of the user's latest run.

        Raises:
            ClusterError: There is none.
            UsageError: It is no id, or who the user is, is not known.
        """
        if name not in (None, "-"):
            return _checked(str(name))
        if not user():
            raise UsageError("the system has no name for you, so no run is known as yours", remedy=_NAME_ONE)
        own = [job for job in self.jobs() if job.metadata.get("user", "") == user()]
        if not own:
            raise UnknownJobError(
                f"no run of {user()} is known there",
                where=self.address,
                remedy=_NAME_ONE,
            )
        return own[-1].id

    def stop(self, name: str) -> bool:
        """Ask a run to end; False where it had ended."""
        return bool(self._client.stop_job(_checked(name)))

    def log(self, name: str) -> str:
        """Return what a run has printed so far."""
        return str(self._client.get_job_logs(_checked(name)))

    def wait(self, name: str, timeout: float | None = None) -> Job | None:
        """Wait until a run has ended.

        Args:
            name: Submission id.
            timeout: Seconds; None waits as long as it takes.

        Returns:
            The run; None where the time was up first.

        Raises:
            ClusterError: The cluster does not know it, or has not answered for `PATIENCE` seconds.
        """
        end = None if timeout is None else time.monotonic() + timeout
        lost = _Patience()
        while True:
            with lost.bearing():
                job = self.job(name)
                lost.over()
                if job.over:
                    return job
            if end is not None and time.monotonic() >= end:
                return None
            time.sleep(POLL_SECONDS if end is None else max(0.05, min(POLL_SECONDS, end - time.monotonic())))

    def follow(self, name: str, write: Callable[[str], None]) -> Job:
        """Pass on what a run prints, from its first line, until it has ended.

        A connection that breaks is made anew, and goes on where the last one ended: no line is lost or doubled.

        Args:
            name: Submission id.
            write: Takes text, in pieces that may end anywhere.

        Raises:
            ClusterError: The cluster does not know it, or has not answered for `PATIENCE` seconds.
        """
        seen = 0
        lost = _Patience()

        def passed(text: str) -> None:
            nonlocal seen
            seen += len(text)
            try:
                write(text)
            except OSError as error:  # whoever reads has gone; not to be borne as a connection that broke
                raise _SinkError(error) from error

        try:
            while True:
                pause = POLL_SECONDS
                with lost.bearing():
                    job = self.job(name)
                    lost.over()
                    if job.over:  # the log is whole now, however the connection before ended
                        self._finish(name, seen, passed)
                        return job
                    asyncio.run(_tail(self._client.tail_job_logs(name), seen, passed))
                    pause = 0.2
                time.sleep(pause)
        except _SinkError as gone:
            raise gone.error from None

    def _finish(self, name: str, seen: int, write: Callable[[str], None]) -> None:
        for _ in range(LOG_TRIES):
            try:
                if rest := self.log(name)[seen:]:
                    write(rest)
                return
            except LostError:  # the node that ran the command may be gone, and the log with it
                time.sleep(POLL_SECONDS)
        console.tell("the rest of the log cannot be read: the node that had it does not answer")

    def elsewhere(self) -> str:
        """Return the name of the head's machine where that is not this one; empty where it is, or does not tell.

        A loopback address may be the end of a tunnel.
        """
        try:
            answer = self._client._do_request("GET", "/nodes?view=summary").json()
            nodes = answer["data"]["summary"]
            heads = [str(node["hostname"]) for node in nodes if node["raylet"]["isHeadNode"]]
        except (ClusterError, ValueError, KeyError, TypeError):
            return ""
        return heads[0] if heads and socket.gethostname() not in heads else ""


class _SinkError(Exception):
    """What is passed on cannot be written."""

    def __init__(self, error: OSError) -> None:
        super().__init__(str(error))
        self.error = error


class _Patience:
    """Bears a cluster that does not answer, for a while."""

    def __init__(self) -> None:
        self._since: float | None = None

    def over(self) -> None:
        """Note that it answers."""
        self._since = None

    @contextmanager
    def bearing(self) -> Iterator[None]:
        try:
            yield
        except (LostError, aiohttp.ClientError, OSError, RuntimeError, TimeoutError) as error:
            if isinstance(error, aiohttp.WSServerHandshakeError) and error.status == 404:
                raise UnknownJobError("the job is not known there any more", where="cluster") from error
            now = time.monotonic()
            self._since = now if self._since is None else self._since
            if now - self._since > PATIENCE:
                if isinstance(error, LostError):
                    raise
                raise LostError(
                    f"the log cannot be read: {error}", where="cluster", remedy="'tagloom jobs' tells the run's state."
                ) from error


async def _tail(stream: AsyncGenerator[str, None], skip: int, write: Callable[[str], None]) -> None:
    """Pass on a log from a position, until the cluster ends it or says nothing for long."""
    try:
        while True:
            step = asyncio.ensure_future(anext(stream))
            done, _ = await asyncio.wait({step}, timeout=SILENCE)
            if not done:
                step.cancel()
                await asyncio.wait({step})
                return
            try:
                text = step.result()
            except StopAsyncIteration:
                return
            fresh = text[skip:]
            skip = max(0, skip - len(text))
            if fresh:
                write(fresh)
    finally:
        await stream.aclose()


def _checked(name: str) -> str:
    if not _ID.match(name):
        raise UsageError(f"{name!r} is no id of a job", remedy="'tagloom jobs' lists them.")
    return name


def _job(found: Any) -> Job:
    return Job(
        id=str(found.submission_id),
        state=str(getattr(found.status, "value", found.status)),
        metadata={str(key): str(value) for key, value in (found.metadata or {}).items()},
        started=None if found.start_time is None else found.start_time / 1000,
        ended=None if not found.end_time else found.end_time / 1000,
        code=found.driver_exit_code,
        message=str(found.message or ""),
    )
