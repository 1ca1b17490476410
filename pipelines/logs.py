"""Log records that know which run, stage and shard they are about; as JSON where ``TAGLOOM_LOGS=json`` asks for it."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any

from pipelines.tally import moment
from schemas.errors import UsageError

VARIABLE = "TAGLOOM_LOGS"
FORMATS = ("text", "json")
IDS = ("run", "generation", "stage", "shard")
OWN = ("schemas", "transforms", "indexers", "pipelines", "jobs")
"""Packages whose records are shown from INFO on."""

_here: ContextVar[Mapping[str, Any]] = ContextVar("tagloom_ids", default=MappingProxyType({}))
_process: dict[str, Any] = {}
"""What threads without ids of their own take: those that libraries start know of no run."""
_last: dict[str, Any] = {}


def as_json() -> bool:
    """Tell whether lines are JSON.

    Raises:
        UsageError: The variable names no format.
    """
    named = os.environ.get(VARIABLE) or "text"
    if named not in FORMATS:
        raise UsageError(f"'{named}' is no format of logs", where=VARIABLE, remedy=f"Formats: {', '.join(FORMATS)}.")
    return named == "json"


@contextmanager
def about(*, whole_process: bool = False, **named: Any) -> Iterator[None]:
    """Mark what is logged within a block, in this thread or task.

    Args:
        whole_process: Mark also what threads log that know nothing of the block; `last` remembers the ids.
        named: Any of `IDS`.
    """
    token = _here.set({**_here.get(), **named})
    before = dict(_process)
    if whole_process:
        _process.update(named)
    try:
        yield
    finally:
        if whole_process:
            _last.clear()
            _last.update(ids())
            _process.clear()
            _process.update(before)
        _here.reset(token)


def mark(**named: Any) -> None:
    """Mark what is logged from now on, until the block of `about` around it ends."""
    _here.set({**_here.get(), **named})


def ids() -> dict[str, Any]:
    """Return what records of this moment are about, in the order of `IDS`."""
    found = {**_process, **_here.get()}
    return {name: found[name] for name in IDS if found.get(name) not in (None, "")}


def last() -> dict[str, Any]:
    """Return the ids of the block that marked the whole process last: what ends with an error is told after it."""
    return dict(_last)


def line(message: str, level: str, **more: Any) -> str:
    """Return one JSON object, on one line."""
    told = {"time": moment(time.time()), "level": level, **ids(), **more, "message": message}
    return json.dumps(told, default=str)  # escapes all that could drive a terminal


class JsonFormatter(logging.Formatter):
    """Writes a record as one JSON object on one line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        more: dict[str, Any] = {"logger": record.name}
        if record.exc_info:
            more["trace"] = self.formatException(record.exc_info)
        return line(record.getMessage(), record.levelname.lower(), **more)


def carried() -> dict[str, Any]:
    """Return what a worker process needs so that its records fit those of this one."""
    return {"ids": {name: value for name, value in ids().items() if name in ("run", "generation")}, "json": as_json()}


def take(carried: Mapping[str, Any]) -> None:
    """Let the records of this worker process tell of the run, as JSON on standard error where the driver's are."""
    _process.update(carried["ids"])
    if carried["json"]:
        os.environ[VARIABLE] = "json"
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(JsonFormatter())
        logging.getLogger().handlers[:] = [handler]
        for name in OWN:
            logging.getLogger(name).setLevel(logging.INFO)
