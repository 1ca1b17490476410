"""Starts one Beam worker as a process: what a PROCESS environment and a worker pool call (infra/beam/boot.sh).

A job may bring pure wheels (`beam.extra_packages`). They are unpacked for this worker alone and come before what is
installed, so an environment that has the dependencies runs the code of whoever submitted the job.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

WORKER = ("-P", "-m", "apache_beam.runners.worker.sdk_worker_main")
ALONE = {
    "PYTHONSAFEPATH": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "POLARS_MAX_THREADS": "1",
    "ARROW_NUM_THREADS": "1",
}
"""Environment of a worker: its folder hides no package, and it has one thread an item."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Ask the runner what to do, fetch the code that came with the job, and run a worker until its end."""
    parser = argparse.ArgumentParser(
        prog="boot", description=__doc__, epilog="Example: boot --id=1-1 --provision_endpoint=localhost:50001"
    )
    parser.add_argument("--id", required=True, help="the worker's id")
    parser.add_argument("--provision_endpoint", required=True, metavar="HOST:PORT", help="who tells the rest")
    for name in ("logging_endpoint", "artifact_endpoint", "control_endpoint"):
        parser.add_argument(f"--{name}", metavar="HOST:PORT", help="should provisioning not tell it")
    given, _ = parser.parse_known_args(arguments)
    info = _provision(given.provision_endpoint, given.id)
    environment = {**os.environ, **ALONE, **_told(info, given)}
    artifacts = info.artifact_endpoint.url or given.artifact_endpoint
    if not info.dependencies or not artifacts:
        os.execve(sys.executable, [sys.executable, *WORKER], environment)
    with tempfile.TemporaryDirectory(prefix="tagloom-beam-") as folder:
        found = unpacked(
            _fetched(artifacts, given.id, info.dependencies, Path(folder) / "staged"), Path(folder) / "code"
        )
        places = [str(place) for place in found] + [p for p in [environment.get("PYTHONPATH")] if p]
        if places:
            environment["PYTHONPATH"] = os.pathsep.join(places)
        worker = subprocess.Popen([sys.executable, *WORKER], env=environment)
        signal.signal(signal.SIGTERM, lambda *_: worker.terminate())
        return worker.wait()


def _channel(endpoint: str, worker: str) -> Any:
    import grpc  # type: ignore[import-untyped]
    from apache_beam.runners.worker.worker_id_interceptor import WorkerIdInterceptor

    return grpc.intercept_channel(grpc.insecure_channel(endpoint), WorkerIdInterceptor(worker))


def _provision(endpoint: str, worker: str) -> Any:
    from apache_beam.portability.api import beam_provision_api_pb2, beam_provision_api_pb2_grpc

    stub = beam_provision_api_pb2_grpc.ProvisionServiceStub(_channel(endpoint, worker))
    return stub.GetProvisionInfo(beam_provision_api_pb2.GetProvisionInfoRequest()).info


def _told(info: Any, given: argparse.Namespace) -> Mapping[str, str]:
    """Return what Beam's worker reads from its environment."""
    from apache_beam.portability.api import endpoints_pb2
    from google.protobuf import json_format, text_format  # type: ignore[import-untyped]

    told = {
        "WORKER_ID": given.id,
        "PIPELINE_OPTIONS": json_format.MessageToJson(info.pipeline_options),
        "RUNNER_CAPABILITIES": " ".join(info.runner_capabilities),
    }
    endpoints = {
        "CONTROL": info.control_endpoint.url or given.control_endpoint,
        "LOGGING": info.logging_endpoint.url or given.logging_endpoint,
        "STATUS": info.status_endpoint.url,
    }
    for name, url in endpoints.items():
        if url:
            described = text_format.MessageToString(endpoints_pb2.ApiServiceDescriptor(url=url))
            told[f"{name}_API_SERVICE_DESCRIPTOR"] = described
    return told


def _fetched(endpoint: str, worker: str, dependencies: Sequence[Any], folder: Path) -> list[Path]:
    """Fetch the wheels of a job; other files are for containers, which install them by themselves."""
    from apache_beam.portability.api import beam_artifact_api_pb2, beam_artifact_api_pb2_grpc, beam_runner_api_pb2

    folder.mkdir()
    stub = beam_artifact_api_pb2_grpc.ArtifactRetrievalServiceStub(_channel(endpoint, worker))
    asked = beam_artifact_api_pb2.ResolveArtifactsRequest(artifacts=dependencies)
    fetched = []
    for artifact in stub.ResolveArtifacts(asked).replacements:
        if artifact.role_urn != "beam:artifact:role:staging_to:v1":
            continue
        role = beam_runner_api_pb2.ArtifactStagingToRolePayload.FromString(artifact.role_payload)
        target = folder / PurePosixPath(role.staged_name).name
        if target.suffix != ".whl":
            continue
        with target.open("wb") as handle:
            for chunk in stub.GetArtifact(beam_artifact_api_pb2.GetArtifactRequest(artifact=artifact)):
                handle.write(chunk.data)
        fetched.append(target)
    return fetched


def unpacked(wheels: Sequence[Path], folder: Path) -> list[Path]:
    """Unpack pure wheels, each into a folder of its own, and return the folders.

    Raises:
        ValueError: A wheel is not pure Python: it has to be installed.
    """
    made = []
    for wheel in wheels:
        if not wheel.name.endswith("-none-any.whl"):
            raise ValueError(f"{wheel.name} is no pure wheel; install it in the workers' environment")
        place = folder / wheel.stem
        with zipfile.ZipFile(wheel) as packed:
            packed.extractall(place)
        made.append(place)
    return made


if __name__ == "__main__":
    sys.exit(main())
