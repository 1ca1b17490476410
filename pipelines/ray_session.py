"""Ray for the length of a run."""

from __future__ import annotations

import importlib
import logging
import math
import os
import queue
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from pipelines import crew, ray_nodes
from pipelines.crew import Crew
from pipelines.ray_head import READY
from pipelines.stage import Needs
from schemas.config import ComputeConfig
from schemas.errors import TagloomError

log = logging.getLogger(__name__)

STARTS = 2
"""Times that a local Ray is started before it counts as impossible."""
HASTY_SECONDS = 2.0
"""How long a run that is told to end waits for Ray's end."""
STOP_SECONDS = 0.1
"""How often the start of a local Ray looks whether nobody wants it any more."""
PACKAGES = ("schemas", "transforms", "indexers", "pipelines", "jobs")
SINGLE_THREADED = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "POLARS_MAX_THREADS": "1",
    "ARROW_NUM_THREADS": "1",
    "PYTHONSAFEPATH": "1",
}
"""Environment of workers: one busy process a core, so no library may start threads of its own."""


SUBMISSION = "TAGLOOM_SUBMISSION_ID"
"""Environment variable that is set in a job that was submitted to a cluster: its Ray is there, with the code."""


def worker_count(compute: ComputeConfig, private: bool) -> int | None:
    """Return how many workers to use; None means as many as the cluster has room for.

    0 means this process, the only choice for storage that no other can see.
    """
    if private:
        return 0
    if compute.workers != "auto":
        return compute.workers
    return None if joins(compute) else os.cpu_count() or 1


def joins(compute: ComputeConfig) -> bool:
    """Tell whether a run joins a Ray that somebody else runs, rather than start one."""
    return bool(compute.address or os.environ.get(SUBMISSION))


class RaySession:
    """Starts or joins Ray when told to, in the background, and ends what it started.

    A local Ray takes seconds to start, which a run spends on ingest.
    """

    def __init__(self, compute: ComputeConfig, private: bool, needs: Needs | None = None) -> None:
        """Start nothing yet.

        Args:
            compute: Where to run.
            private: True where the corpus is storage that other processes cannot see.
            needs: What replicas of an engine will need besides the workers.
        """
        self._compute = compute
        self._needs = needs
        self._count = worker_count(compute, private)
        self._ready = threading.Event()
        self._stop = threading.Event()
        self._failed: BaseException | None = None
        self._workers: Crew | None = None
        self._thread: threading.Thread | None = None

    @property
    def started(self) -> bool:
        """True once Ray was told to start."""
        return self._thread is not None

    def start(self) -> None:
        """Begin to start Ray, unless that was done or no workers are wanted."""
        if self._thread is None and self._count != 0:
            self._thread = threading.Thread(target=self._live, daemon=True, name="tagloom-ray")
            self._thread.start()

    def workers(self) -> Crew | None:
        """Return the workers once Ray can be used; None without Ray.

        Raises:
            TagloomError: Ray cannot be started or reached.
        """
        self._connect()
        if self._workers is None and self._count != 0:
            self._workers = self._ordinary()
        return self._workers

    def _ordinary(self) -> Crew:
        needs, joined = crew.ordinary(self._compute), joins(self._compute)
        if needs.memory and not joined and not ray_nodes.room(needs, self._compute).places:
            raise TagloomError(
                f"no worker that keeps {self._compute.memory_gb:g} GB of memory fits here",
                where="compute.memory_gb",
                remedy="Set less, or name a cluster that has it (compute.address).",
            )
        return crew.workers(self._count, self._compute, joined=joined)

    def replicas(self, needs: Needs) -> Crew | None:
        """Return new workers for a stage with needs of its own, for the caller to end; None without Ray.

        Raises:
            TagloomError: Ray cannot be started or reached, or has not what is needed.
        """
        self._connect()
        if self._count == 0:
            return None
        import ray

        joined = joins(self._compute)
        gpus = ray.cluster_resources().get("GPU", 0.0)
        if needs.gpus > gpus and not joined:
            raise TagloomError(
                f"a replica of the engine needs {needs.gpus:g} GPU, and there are {gpus:g} here",
                where="extract.options",
                remedy="Name a cluster that has them (compute.address), or an engine that runs on the CPU.",
            )
        if not needs.gpus:
            needs = replace(needs, memory=crew.memory_of(self._compute))
        automatic = None if joined or needs.gpus else 1
        return crew.replicas(needs, needs.replicas or automatic, self._compute, joined=joined)

    def _connect(self) -> None:
        self.start()
        if self._count != 0:
            self._ready.wait()
        if self._failed is not None:
            raise self._failed

    def close(self, patience: float | None = None) -> None:
        """End Ray, where this session started it.

        Args:
            patience: Seconds to wait for that; Ray's processes end with this one in any case.
        """
        self._stop.set()
        if self._thread is not None:
            self._thread.join(patience)

    def __enter__(self) -> RaySession:
        """Return the session."""
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Close it; who pressed Ctrl-C or sent SIGTERM does not want to wait."""
        told = kind is not None and issubclass(kind, KeyboardInterrupt | SystemExit)
        self.close(HASTY_SECONDS if told else None)

    def _live(self) -> None:
        try:
            cores = 0 if self._needs is None else math.ceil(self._needs.cpus * (self._needs.replicas or 1))
            with connected(self._compute, (self._count or 0) + cores, self._stop):
                if self._needs is None:  # else they would take the memory that an engine needs
                    self._workers = self._ordinary()
                self._ready.set()
                self._stop.wait()
                if self._workers is not None:
                    self._workers.end()
        except BaseException as error:
            self._failed = error
        finally:
            self._ready.set()


@contextmanager
def connected(compute: ComputeConfig, workers: int, stop: threading.Event | None = None) -> Iterator[None]:
    """Start or join Ray for the length of a block; one that is connected already is used and left.

    Workers get a copy of Tagloom's packages, on one thread each. In a job that was submitted to a cluster the job has
    brought both.

    Args:
        compute: Where to run.
        workers: Cores of a local Ray.
        stop: Once it is set, nobody waits for a local Ray that still starts.

    Raises:
        TagloomError: Ray cannot be started or reached, or was told to stop before.
    """
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    submitted = bool(os.environ.get(SUBMISSION))
    with ExitStack() as stack:
        if submitted:
            address = "auto"
        elif compute.address:
            _check_reachable(compute.address)
            address = compute.address
        elif "ray" in sys.modules and sys.modules["ray"].is_initialized():
            address = ""
        else:
            address = stack.enter_context(_head(workers, stop or threading.Event()))
        # Its signal handler would print a stack and abort the process three seconds after SIGTERM.
        os.environ.setdefault("RAY_DISABLE_FAILURE_SIGNAL_HANDLER", "1")
        import ray

        logging.getLogger("ray").setLevel(logging.ERROR)  # importing it has set its own level
        if ray.is_initialized():
            yield
            return
        with nullcontext() if submitted else _code() as folder:
            own = {"working_dir": folder, "env_vars": SINGLE_THREADED}
            try:
                ray.init(
                    address=address,
                    log_to_driver=False,
                    logging_level="error",
                    configure_logging=False,
                    runtime_env=None if submitted else own,
                )
            except Exception as error:  # Ray raises errors of many kinds here, bare ones among them
                raise _unreachable(compute.address, error) from error
        stack.callback(ray.shutdown)
        yield


@cache
def _secret() -> str:
    """Return one secret for this process: Ray reads it once and keeps it."""
    return secrets.token_hex(32)


@contextmanager
def _head(workers: int, stop: threading.Event) -> Iterator[str]:
    """Run a local Ray in a process of its own; yields its address."""
    # Whoever connects must know a secret that only this process and its children have.
    secret = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": _secret()}
    kept = {name: os.environ.get(name) for name in secret}
    os.environ.update(secret)
    _reread()
    process = None
    try:
        process, address = _started([sys.executable, "-m", "pipelines.ray_head", str(workers)], stop)
        yield address
    finally:
        if process is not None:
            _end(process)
        for name, value in kept.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
        _reread()


def _reread() -> None:
    """Let Ray look anew who may connect: it does so once a process, and somebody may have used it before."""
    if "ray" in sys.modules:
        with suppress(ImportError, AttributeError):  # no public function does it
            inside: Any = importlib.import_module("ray._raylet")
            inside.Config.initialize("")
            inside.AuthenticationTokenLoader.instance().reset_cache()


def _started(command: Sequence[str], stop: threading.Event) -> tuple[subprocess.Popen[str], str]:
    """Start Ray's process and wait for its address; once more where it ends: on a busy machine Ray gives up early.

    Raises:
        TagloomError: It ended again, or it was told to stop.
    """
    pipe = subprocess.PIPE
    environment = {**os.environ, "PYTHONSAFEPATH": "1"}
    reason = ""
    for _ in range(STARTS):
        process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=environment)
        assert process.stdout is not None and process.stderr is not None
        told: list[str] = []
        reader = threading.Thread(target=told.extend, args=(process.stderr,), daemon=True, name="tagloom-ray-log")
        reader.start()
        try:
            line = _address(process.stdout, stop)
        except BaseException:
            process.terminate()  # it may be far from reading its standard input
            _end(process)
            raise
        if line is not None:
            return process, line
        reader.join(5.0)
        _end(process)
        reason = "".join(told[-1:]).strip() or "its process ended"
        log.info("Ray did not start: %s", reason)
    raise _unreachable(None, RuntimeError(reason))


def _address(output: Iterable[str], stop: threading.Event) -> str | None:
    """Return the address that Ray's process tells; None where it ends before.

    Raises:
        TagloomError: It was told to stop.
    """
    told: queue.SimpleQueue[str | None] = queue.SimpleQueue()

    def read() -> None:
        told.put(next((line.removeprefix(READY).strip() for line in output if line.startswith(READY)), None))

    threading.Thread(target=read, daemon=True, name="tagloom-ray-start").start()
    while not stop.is_set():
        with suppress(queue.Empty):
            return told.get(timeout=STOP_SECONDS)
    raise _unreachable(None, RuntimeError("the run ends"))


def _end(process: subprocess.Popen[str]) -> None:
    """Let Ray's process end, which it does when its standard input does."""
    assert process.stdin is not None and process.stdout is not None
    with suppress(OSError):
        process.stdin.close()
    try:
        process.wait(20.0)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    process.stdout.close()


@contextmanager
def _code() -> Iterator[str]:
    """Lay out a copy of Tagloom's packages alone, which Ray carries to its workers.

    Workers then take the code from the job. Otherwise they would look in the user's current directory, where a
    folder called ``schemas`` or ``jobs`` may be something else.
    """
    root = Path(__file__).resolve().parent.parent
    with tempfile.TemporaryDirectory(prefix="tagloom-code-") as folder:
        for package in PACKAGES:
            shutil.copytree(root / package, Path(folder) / package, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(root / "tagloom.py", folder)
        yield folder


def _unreachable(address: str | None, error: Exception) -> TagloomError:
    return TagloomError(
        f"Ray cannot be started or reached: {error}",
        where=address or "local Ray",
        remedy="Check compute.address, or run without Ray: --workers 0",
    )


def _check_reachable(address: str) -> None:
    """Try the address first: Ray ends the whole process where nothing answers."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not (host and port.isdigit()):
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=5).close()
    except OSError as error:
        raise _unreachable(address, error) from error
