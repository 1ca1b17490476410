"""Options of Beam's runners: what is checked before anything is submitted, and how it is handed to Beam."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

from schemas.errors import ConfigError, MissingDependencyError, StoreError
from schemas.ids import nearest

LOCAL_RUNNERS = ("FnApiRunner", "DirectRunner")
PORTABLE_RUNNERS = ("PortableRunner", "FlinkRunner", "SparkRunner")
RUNNERS = (*LOCAL_RUNNERS, *PORTABLE_RUNNERS, "DataflowRunner")

REACHABLE_SECONDS = 5.0
"""Seconds in which an endpoint has to answer."""

FOREVER = 30 * 24 * 3600
"""Beam gives a job's messages up after ``job_server_timeout`` seconds, though the job goes on; its default is 60."""

ENVIRONMENTS = ("DOCKER", "PROCESS", "EXTERNAL", "LOOPBACK")
_FILES = ("extra_packages", "files_to_stage", "setup_file", "requirements_file")
_DATAFLOW = {"project": "my-project", "region": "europe-west1", "temp_location": "gs://BUCKET/tmp"}

_CLOSE = 0.9
"""Likeness from which an option that only the other end may know is taken for a slip of the pen."""


def runner_of(beam: Mapping[str, Any]) -> str:
    """Return the name of the runner that ``beam`` settings name."""
    return str(beam.get("runner") or "FnApiRunner")


def in_process(beam: Mapping[str, Any]) -> bool:
    """Tell whether all work happens in the driver's own process."""
    local = runner_of(beam) in LOCAL_RUNNERS
    return local and beam.get("direct_running_mode", "multi_threading") in ("multi_threading", "in_memory")


def check(beam: Mapping[str, Any], private: str | None = None) -> None:
    """Check what can be known about ``beam`` settings before they are used.

    Args:
        beam: The section ``beam``.
        private: URI of the corpus if no other process sees it.

    Raises:
        ConfigError: The runner is not known, an option is not or has no meaning, or something that it needs is missing.
        MissingDependencyError: The runner needs another library.
        StoreError: The workers would not see the corpus.
    """
    runner = runner_of(beam)
    given = {key: value for key, value in beam.items() if key != "runner" and value is not None}
    if runner not in RUNNERS:
        guess = nearest(runner, RUNNERS)
        raise ConfigError(
            f"Beam has no runner '{runner}' that Tagloom runs on",
            where="beam.runner",
            remedy=f"Did you mean '{guess}'?" if guess else f"Runners: {', '.join(RUNNERS)}.",
        )
    if private is not None and not in_process(beam):
        raise StoreError(
            f"workers of {runner} would not see this corpus, which lives in one process",
            where=private,
            remedy="Put it in object storage or a shared folder, or leave beam.runner out.",
        )
    if runner == "DataflowRunner":
        _check_dataflow(given)
    _check_names(runner, given)
    for name in _FILES:
        value = given.get(name, [])
        for path in [value] if isinstance(value, str) else value:
            if "://" not in str(path) and not Path(str(path)).is_file():
                raise ConfigError("no such file", where=f"beam.{name}: {path}", remedy="See docs/runners.md.")
    if runner in PORTABLE_RUNNERS:
        _check_portable(runner, given)


def _check_names(runner: str, given: Mapping[str, Any]) -> None:
    from apache_beam.options.pipeline_options import PipelineOptions

    known = list(PipelineOptions([]).get_all_options())
    for name in given:
        if name in known:
            continue
        guess = nearest(name, known)
        close = guess is not None and SequenceMatcher(None, name, guess).ratio() >= _CLOSE
        if runner in PORTABLE_RUNNERS and not close:
            continue  # the server at the other end may know it
        raise ConfigError(
            f"{runner} has no option '{name}'",
            where=f"beam.{name}",
            remedy=f"Did you mean '{guess}'?" if guess else "See Beam's documentation of pipeline options.",
        )


def _check_dataflow(given: Mapping[str, Any]) -> None:
    for name, example in _DATAFLOW.items():
        if not given.get(name):
            raise ConfigError("DataflowRunner needs it", where=f"beam.{name}", remedy=f"Example: {name}: {example}")
    if not str(given["temp_location"]).startswith("gs://"):
        raise ConfigError("is no gs:// URI", where=f"beam.temp_location: {given['temp_location']}")
    try:
        from apache_beam.runners.dataflow.internal import apiclient  # noqa: F401
    except ImportError as error:
        raise MissingDependencyError(
            "DataflowRunner needs Beam's libraries for Google Cloud",
            where="beam.runner",
            remedy="pip install 'tagloom[gcp]'",
        ) from error


def _check_portable(runner: str, given: Mapping[str, Any]) -> None:
    endpoint = str(given.get("job_endpoint", ""))
    if runner == "PortableRunner" and not endpoint:
        raise ConfigError(
            "PortableRunner needs the address of a job server",
            where="beam.job_endpoint",
            remedy="Example: job_endpoint: localhost:8099",
        )
    if runner == "SparkRunner" and given.get("spark_submit_uber_jar") and not given.get("spark_rest_url"):
        raise ConfigError(
            "spark_submit_uber_jar needs the address of Spark's REST server",
            where="beam.spark_rest_url",
            remedy="Example: spark_rest_url: http://master:6066",
        )
    _check_environment(given)
    if endpoint and endpoint != "embed":
        _reach(endpoint)


def _check_environment(given: Mapping[str, Any]) -> None:
    kind = str(given.get("environment_type", "DOCKER"))
    if not kind.startswith("beam:env:") and kind.upper() not in ENVIRONMENTS:
        raise ConfigError(
            f"no environment is called '{kind}'",
            where="beam.environment_type",
            remedy=f"Environments: {', '.join(ENVIRONMENTS)}.",
        )
    config = given.get("environment_config")
    if kind.upper() == "EXTERNAL" and not config:
        raise ConfigError(
            "EXTERNAL needs the address of a worker pool",
            where="beam.environment_config",
            remedy="Example: environment_config: localhost:50000",
        )
    if kind.upper() != "PROCESS":
        return
    if isinstance(config, str):
        try:
            config = json.loads(config)
        except ValueError:
            config = None
    if not isinstance(config, dict) or not isinstance(config.get("command"), str) or not config["command"]:
        raise ConfigError(
            "PROCESS needs the command that starts a worker",
            where="beam.environment_config",
            remedy="Example: environment_config: {command: /opt/tagloom/boot}",
        )


def _reach(endpoint: str) -> None:
    """Beam would wait for minutes for a server that is not there."""
    match = re.fullmatch(r"\[?([^\[\]/]+?)\]?:(\d{1,5})", endpoint)
    if match is None or int(match[2]) > 65535:
        raise ConfigError("is not HOST:PORT", where=f"beam.job_endpoint: {endpoint}")
    try:
        socket.create_connection((match[1], int(match[2])), REACHABLE_SECONDS).close()
    except OSError as error:
        raise ConfigError(
            f"no job server answers: {error}",
            where=f"beam.job_endpoint: {endpoint}",
            remedy="Start it, or mend the address.",
        ) from error


def flags(beam: Mapping[str, Any], cores: int) -> list[str]:
    """Return the settings as Beam's own command line.

    Lists become repeated options, mappings JSON; ``true`` is the bare option, ``false`` and none leave it out.

    Args:
        beam: The section ``beam``.
        cores: Cores of this machine.
    """
    runner = runner_of(beam)
    given = {key: value for key, value in beam.items() if key != "runner"}
    if runner == "FnApiRunner":
        given = {"direct_running_mode": "multi_threading", "direct_num_workers": min(4, cores)} | given
    if runner in LOCAL_RUNNERS:
        given = {"default_sdk_harness_log_level": "ERROR"} | given
    if runner in PORTABLE_RUNNERS:
        given = {"job_server_timeout": FOREVER} | given
    made: list[str] = []
    for key, value in given.items():
        values: Sequence[Any] = value if isinstance(value, list | tuple) else [value]
        for one in values:
            if one is None or one is False:
                continue
            text = json.dumps(one) if isinstance(one, dict) else str(one)
            made.append(f"--{key}" if one is True else f"--{key}={text}")
    return made


def runner(name: str, options: Any) -> Any:
    """Return what `apache_beam.Pipeline` takes for a runner.

    Both local names mean the same engine. Beam's own choice for DirectRunner would first try to download another one.
    """
    if name not in LOCAL_RUNNERS:
        return name
    from apache_beam.portability.api import beam_provision_api_pb2
    from apache_beam.runners.portability.fn_api_runner import fn_runner
    from apache_beam.runners.portability.portable_runner import JobServiceHandle

    encoded = JobServiceHandle.encode_pipeline_options(options.get_all_options())
    info = beam_provision_api_pb2.ProvisionInfo(pipeline_options=encoded)
    return fn_runner.FnApiRunner(provision_info=fn_runner.ExtendedProvisionInfo(info))
