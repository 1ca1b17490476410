"""Runs a command and measures its whole process tree: wall time, CPU time, and peak memory by stage."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

PERIOD = 0.1
ROOT = Path(__file__).parents[2]
STAGES = ("ingest", "extract", "graph", "index", "rank", "evaluate")


@dataclass(frozen=True)
class Measured:
    """What a command took.

    Attributes:
        wall: Seconds from start to end.
        cpu: Seconds of all its processes, user and system.
        peak_mb: Largest sum of its processes' own memory: resident, less what is shared or mapped from files.
        peak_mb_by_stage: The same, by the stage that the command's progress named last.
        result: Its standard output, parsed as JSON.
    """

    wall: float
    cpu: float
    peak_mb: float
    peak_mb_by_stage: Mapping[str, float]
    result: Any


class _Watch(threading.Thread):
    """Samples a process tree. CPU of a process that ends between two samples is missed, at most one period of it."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.root = psutil.Process(pid)
        self.stage = "start"
        self.cpu: dict[tuple[int, float], float] = {}
        self.peak: dict[str, float] = {}
        self.total = 0.0
        self.done = threading.Event()

    def run(self) -> None:
        while not self.done.wait(PERIOD):
            try:
                tree = [self.root, *self.root.children(recursive=True)]
            except psutil.Error:
                return
            held = 0
            for process in tree:
                try:
                    times = process.cpu_times()
                    self.cpu[process.pid, process.create_time()] = times.user + times.system
                    memory = process.memory_info()
                    held += memory.rss - memory.shared
                except psutil.Error:
                    continue
            self.total = max(self.total, held / 1e6)
            self.peak[self.stage] = max(self.peak.get(self.stage, 0.0), held / 1e6)


def measure(command: Sequence[str]) -> Measured:
    """Run a command that prints JSON and tells its progress on standard error.

    Raises:
        RuntimeError: It failed; the message holds what it said.
    """
    started = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    assert process.stdout is not None and process.stderr is not None
    watch = _Watch(process.pid)
    watch.start()
    said: list[str] = []

    def listen(lines: Any) -> None:
        for line in lines:
            said.append(line)
            word = line.replace("/", ":").partition(":")[0]
            watch.stage = word if word in STAGES else watch.stage

    ear = threading.Thread(target=listen, args=(process.stderr,), daemon=True)
    ear.start()
    out = process.stdout.read()
    code = process.wait()
    wall = time.perf_counter() - started
    watch.done.set()
    watch.join()
    ear.join()
    if code:
        raise RuntimeError(f"{' '.join(command)} ended with {code}:\n{''.join(said)}")
    return Measured(wall, sum(watch.cpu.values()), watch.total, watch.peak, json.loads(out))
