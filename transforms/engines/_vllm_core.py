"""vLLM's processes: starting them, why one ended, ending them. Loads nothing heavy until a model is loaded."""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

GRACE = 10.0
"""Seconds that a process which was told to end may still take."""
PROCESSES = "VLLM::"
"""How the names of vLLM's processes begin."""
QUIET = {
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",  # the calling process has threads, which a fork would cut off
}
FAULT = re.compile(r"^(?:\w+\.)*(?!EngineDeadError)\w*(?:Error|Exception|Interrupt): (.+)", re.MULTILINE)


class Core:
    """vLLM's engine with its processes, which end when this process does, however that ends.

    Attributes:
        llm: The `AsyncLLM`.
    """

    def __init__(self, offline: bool, arguments: dict[str, Any], cpu_arguments: dict[str, Any]) -> None:
        """Load the model; blocks until it can answer.

        Args:
            offline: Whether nothing may be fetched.
            arguments: Of `AsyncEngineArgs`.
            cpu_arguments: Those that take their place on the CPU build.

        Raises:
            Exception: Of every kind: vLLM, torch and model hubs have no common one.
        """
        for name, value in (QUIET | ({"HF_HUB_OFFLINE": "1"} if offline else {})).items():
            os.environ.setdefault(name, value)
        self._log = _log_file()
        self._log_start = self._log.stat().st_size if self._log and self._log.exists() else 0
        _start_guard()
        before = set(multiprocessing.active_children())
        try:
            self.llm = _load(arguments, cpu_arguments)
        except BaseException as error:
            if fault := self.fault():
                raise RuntimeError(fault) from error
            raise
        self._processes = set(multiprocessing.active_children()) - before

    def fault(self) -> str:
        """Return the message of the first exception that vLLM's processes logged, or nothing.

        Why one of them ended is told nowhere else.
        """
        if self._log is None or not self._log.exists():
            return ""
        with self._log.open("rb") as file:
            file.seek(self._log_start)
            text = file.read(1 << 20).decode("utf-8", "replace")
        found = FAULT.search(text)
        return found.group(1) if found else ""

    def end(self) -> None:
        """End the processes and wait until they have ended; may be called again."""
        self.llm.shutdown()
        for process in self._processes:
            process.join(GRACE)


def _load(arguments: dict[str, Any], cpu_arguments: dict[str, Any]) -> Any:
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.platforms import current_platform
    from vllm.v1.engine.async_llm import AsyncLLM

    if current_platform.is_cpu():
        arguments = arguments | cpu_arguments
    return AsyncLLM.from_engine_args(AsyncEngineArgs(**arguments))


@cache
def _log_file() -> Path | None:
    """Let vLLM log errors alone, and to a file; None where the user has set up its logging."""
    if {"VLLM_LOGGING_LEVEL", "VLLM_LOGGING_CONFIG_PATH", "VLLM_CONFIGURE_LOGGING"} & os.environ.keys():
        return None
    folder = Path(tempfile.mkdtemp(prefix="tagloom-vllm-"))
    path = folder / "errors.log"
    handler = {"class": "logging.FileHandler", "filename": str(path), "encoding": "utf-8", "delay": True}
    logging = {
        "version": 1,
        "disable_existing_loggers": False,
        "handlers": {"file": handler},
        "loggers": {"vllm": {"handlers": ["file"], "level": "ERROR", "propagate": False}},
    }
    config = folder / "logging.json"
    config.write_text(json.dumps(logging), encoding="utf-8")
    os.environ |= {"VLLM_LOGGING_CONFIG_PATH": str(config), "VLLM_LOGGING_LEVEL": "ERROR"}
    return path


@cache
def _start_guard() -> subprocess.Popen[bytes]:
    """Start, once, the process that cleans up when this one is gone."""
    log = _log_file()
    return subprocess.Popen(
        [sys.executable, "-P", str(Path(__file__).with_name("_guard.py")), PROCESSES, *([log.parent] if log else [])],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
