"""A Beam pipeline at work in a thread of its own, and what is learnt of it there."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Job:
    """A pipeline at work in a thread of its own.

    Attributes:
        result: What the runner gave for it.
        error: What it ended with.
        ended: True where the runner has come back.
        died: True where a worker process on this machine died, which its runner would wait for without end.
        over: Set when either is.
    """

    result: Any = None
    error: BaseException | None = None
    ended: bool = False
    died: bool = False
    over: threading.Event = field(default_factory=threading.Event)

    def failed(self) -> bool:
        """Tell whether the runner itself says that the job failed, as it does when workers die."""
        try:
            return self.died or (self.result is not None and self.result.state == "FAILED")
        except Exception:  # the server is gone
            return False


def work(pipeline: Any, job: Job) -> None:
    """Run a pipeline to its end and keep what came of it."""
    try:
        job.result = pipeline.run()
        job.result.wait_until_finish()
    except BaseException as error:
        job.error = error
    job.ended = True
    job.over.set()


_CONNECTIONS = ("beam_control_read", "read_grpc_client_inputs")
"""Threads of Beam that end with an error when the other side is gone, which is told elsewhere."""


@contextmanager
def told_of_deaths(job: Job) -> Iterator[None]:
    """Learn of worker processes of this machine that die: Beam tells it in a thread that nobody listens to."""
    before = threading.excepthook

    def hook(raised: threading.ExceptHookArgs) -> None:
        if "Worker subprocess exited" in str(raised.exc_value):
            job.error = job.error or raised.exc_value
            job.died = True
            job.over.set()
        elif raised.thread is None or not raised.thread.name.startswith(_CONNECTIONS):
            before(raised)

    threading.excepthook = hook
    try:
        yield
    finally:
        threading.excepthook = before


def quieten() -> None:
    """Keep Beam from printing what its workers raise, which arrives here as an error; unless somebody asked for it."""
    for name in ("apache_beam", "apache_beam.runners"):
        logger = logging.getLogger(name)
        if logger.level == logging.NOTSET:
            logger.setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_not_of_a_job)  # a second time does nothing


def _not_of_a_job(record: logging.LogRecord) -> bool:
    """Tell whether a record is not what a job server says, which Beam hands to the root logger, tracebacks and all."""
    return record.module != "portable_runner" or logging.getLogger().isEnabledFor(logging.INFO)
