"""Beam's job server and worker pool as processes, for tests. Run as a program: a job server that can start processes.

Beam's own local server knows no PROCESS environment, which Flink and Spark have. As theirs does, it calls the command
with the worker's id and the address that tells it the rest.
"""

import os
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def _program(command, **more):
    """Start a process in a group of its own, so that the workers that it starts can be ended with it."""
    return subprocess.Popen(command, start_new_session=True, **more)


def _end(process):
    import signal

    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            continue


@contextmanager
def job_server(folder, cwd=None, processes=False):
    """A job server on loopback; gives its HOST:PORT."""
    ports = Path(folder) / "port"
    program = [str(Path(__file__))] if processes else ["-m", "apache_beam.runners.portability.local_job_service_main"]
    with (Path(folder) / "job-server.log").open("wb") as log:
        staging = Path(folder) / "staging"
        process = _program(
            [sys.executable, "-P", *program, "--port_file", str(ports), "--staging_dir", str(staging)],
            cwd=cwd,
            stdout=log,
            stderr=log,
        )
        try:
            yield f"localhost:{_awaited(ports, process)}"
        finally:
            _end(process)


@contextmanager
def worker_pool(folder, executable, **environment):
    """A pool of worker processes on loopback; gives its HOST:PORT."""
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with (Path(folder) / "pool.log").open("wb") as log:
        pool = [sys.executable, "-P", "-m", "apache_beam.runners.worker.worker_pool_main"]
        process = _program(
            [*pool, f"--service_port={port}", f"--container_executable={executable}"],
            env={**os.environ, **environment},
            stdout=log,
            stderr=log,
        )
        try:
            until = time.monotonic() + 60
            while process.poll() is None and time.monotonic() < until:
                with socket.socket() as tried:
                    if tried.connect_ex(("127.0.0.1", port)) == 0:
                        break
                time.sleep(0.1)
            yield f"localhost:{port}"
        finally:
            _end(process)


def _awaited(path, process):
    until = time.monotonic() + 60
    while not path.exists():
        assert process.poll() is None and time.monotonic() < until, "the job server did not start"
        time.sleep(0.05)
    return path.read_text().strip()


def main():
    from apache_beam.portability import common_urns
    from apache_beam.portability.api import beam_runner_api_pb2
    from apache_beam.runners.portability import local_job_service_main
    from apache_beam.runners.portability.fn_api_runner import worker_handlers

    @worker_handlers.WorkerHandler.register_environment(
        common_urns.environments.PROCESS.urn, beam_runner_api_pb2.ProcessPayload
    )
    class ProcessHandler(worker_handlers.GrpcWorkerHandler):
        def __init__(self, payload, state, provision_info, grpc_server):
            super().__init__(state, provision_info, grpc_server)
            self._payload = payload

        def start_worker(self):
            self._process = subprocess.Popen(
                [self._payload.command, f"--id={self.worker_id}", f"--provision_endpoint={self.control_address}"],
                env={**os.environ, **self._payload.env},
            )

        def stop_worker(self):
            self._process.terminate()

    local_job_service_main.run(sys.argv[1:])


if __name__ == "__main__":
    main()
