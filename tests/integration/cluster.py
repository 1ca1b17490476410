"""A Ray cluster of several nodes on this machine, each in processes of its own that a test can kill."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

HOST = "127.0.0.1"
STORE_BYTES = 128 << 20
PATIENCE = 120.0
STARTS = 3


@dataclass
class Node:
    """One node.

    Attributes:
        process: What `ray start --block` runs as; it leads a process group of its own.
        log: File with what it printed.
        name: What Ray calls the node (`NodeName` of `ray.nodes()`).
    """

    process: subprocess.Popen
    log: Path
    name: str

    @property
    def pid(self) -> int:
        """The process id of `ray start`."""
        return self.process.pid

    def processes(self) -> list[psutil.Process]:
        """Return the node's processes as they are now, its workers among them."""
        with suppress(psutil.NoSuchProcess):
            top = psutil.Process(self.pid)
            return [top, *top.children(recursive=True)]
        return []

    def kill(self) -> None:
        """End every process of the node with SIGKILL, as when its machine goes away."""
        everything = self.processes()
        with suppress(ProcessLookupError, PermissionError):
            if self.process.poll() is None:
                os.killpg(self.pid, signal.SIGKILL)
        for process in everything:  # Ray gives some of them groups of their own
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self.process.wait(PATIENCE)
        psutil.wait_procs([one for one in everything if one.pid != self.pid], timeout=PATIENCE)


@dataclass
class Cluster:
    """A running cluster.

    Attributes:
        address: Host and port of the control store (GCS), for `compute.address`.
        dashboard: Address of the dashboard, which has the job API.
        environment: Variables for processes that talk to the cluster, the secret among them.
        folder: Where Ray keeps its sessions.
        head: The head node.
        nodes: The other nodes.
    """

    address: str
    dashboard: str
    environment: Mapping[str, str]
    folder: Path
    head: Node | None = None
    nodes: list[Node] = field(default_factory=list)

    def add_node(self, cpus: int = 1, gpus: int = 0, labels: Mapping[str, str] | None = None) -> Node:
        """Start another node and wait until the cluster knows it."""
        options = [f"--address={self.address}"]
        if labels:
            options.append(f"--labels={','.join(f'{key}={value}' for key, value in labels.items())}")
        name = f"node-{len(self.nodes) + 1}"
        node = _start(self.folder, name, self.environment, cpus, gpus, options, lambda: name in self.alive())
        self.nodes.append(node)
        return node

    def kill_head(self) -> None:
        """Kill the head node; what it knew is gone."""
        assert self.head is not None
        self.head.kill()

    def alive(self) -> set[str]:
        """Return the names of the nodes that the cluster believes alive."""
        found = self.get("/nodes?view=summary")
        summary = found.get("data", {}).get("summary", []) if isinstance(found, dict) else []
        alive = set()
        for one in summary:
            raylet = one.get("raylet", {})
            if raylet.get("state") == "ALIVE":
                alive.add(raylet.get("nodeName", ""))
        return alive

    def get(self, path: str) -> object:
        """Return what the dashboard answers to a request, read as JSON; None where it does not answer."""
        token = self.environment["RAY_AUTH_TOKEN"]
        request = urllib.request.Request(self.dashboard + path, headers={"Authorization": f"Bearer {token}"})
        with suppress(OSError, ValueError), urllib.request.urlopen(request, timeout=10) as answer:
            return json.loads(answer.read())
        return None

    def close(self) -> None:
        """Kill what is left."""
        for node in (*self.nodes, self.head):
            if node is not None:
                node.kill()


@contextmanager
def cluster(
    head_cpus: int = 1,
    *,
    head_gpus: int = 0,
    labels: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Cluster]:
    """Run a cluster that has a head node alone; `add_node` gives it more.

    Args:
        head_cpus: CPUs that the head node declares.
        head_gpus: GPUs that it declares.
        labels: Labels of the head node.
        environment: Further variables of its processes.
    """
    # Sockets lie below this folder, and their paths may have some hundred characters only.
    folder = Path(tempfile.mkdtemp(prefix="tr", dir="/tmp"))
    port, dashboard = _ports(2)
    own = {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
        **(environment or {}),
    }
    options = [
        "--head",
        f"--port={port}",
        f"--temp-dir={folder}",
        "--include-dashboard=true",
        f"--dashboard-host={HOST}",
        f"--dashboard-port={dashboard}",
        f"--ray-client-server-port={_ports(1)[0]}",
    ]
    if labels:
        options.append(f"--labels={','.join(f'{key}={value}' for key, value in labels.items())}")
    made = Cluster(f"{HOST}:{port}", f"http://{HOST}:{dashboard}", own, folder)
    try:
        made.head = _start(folder, "head", own, head_cpus, head_gpus, options, lambda: "head" in made.alive())
        yield made
    finally:
        made.close()
        shutil.rmtree(folder, ignore_errors=True)


def _start(*given: Any) -> Node:
    """Start a node; a busy machine may take longer than the half minute that Ray gives itself."""
    for _ in range(STARTS - 1):
        with suppress(RuntimeError):
            return _started(*given)
    return _started(*given)


def _started(
    folder: Path,
    name: str,
    environment: Mapping[str, str],
    cpus: int,
    gpus: int,
    options: list[str],
    up: Callable[[], bool],
) -> Node:
    listen, metrics = _ports(2)
    ray = str(Path(sys.executable).with_name("ray"))
    command = [
        *(ray, "start", *options, "--block", "--disable-usage-stats", f"--node-name={name}"),
        *(f"--node-ip-address={HOST}", f"--num-cpus={cpus}", f"--num-gpus={gpus}"),
        *(f"--object-store-memory={STORE_BYTES}", f"--dashboard-agent-listen-port={listen}"),
        f"--metrics-export-port={metrics}",
    ]
    log = folder / f"{name}.log"
    with log.open("wb") as sink:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            cwd=folder,
            env={**os.environ, **environment},
        )
    node = Node(process, log, name)
    _until(up, node)
    return node


def _until(holds: Callable[[], bool], node: Node) -> None:
    end = time.monotonic() + PATIENCE
    while not holds():
        if node.process.poll() is not None or time.monotonic() > end:
            node.kill()
            raise RuntimeError(f"{node.name} did not start:\n{node.log.read_text(errors='replace')[-4000:]}")
        time.sleep(0.2)


def _ports(count: int) -> list[int]:
    held = [socket.socket() for _ in range(count)]
    try:
        for one in held:
            one.bind((HOST, 0))
        return [one.getsockname()[1] for one in held]
    finally:
        for one in held:
            one.close()
