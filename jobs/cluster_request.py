"""What a submission sends: a checked configuration, files, names of variables, the command. Talks to no cluster."""

from __future__ import annotations

import getpass
import ipaddress
import json
import os
import re
import secrets
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from jobs.cluster_package import RUN_FOLDER
from jobs.cluster_places import Travelling, check, placed
from pipelines.ray_session import SINGLE_THREADED
from schemas.config import RunConfig
from schemas.errors import UsageError

RUN_FILE = "run.yaml"
RUN_VARIABLE = "TAGLOOM_RUN"
"""Holds the configuration where no package travels, as an image takes none."""
SUBMISSION_VARIABLE = "TAGLOOM_SUBMISSION_ID"
STOP_SECONDS = 30
"""Seconds that a run has to end in order after SIGTERM; Ray's own default is 3."""
_MOST_IN_VARIABLE = 64_000
"""Bytes of a configuration that may travel as a variable; the system takes some 128,000, quoted twice."""
_RESERVED = re.compile(r"^(RAY_.*|TAGLOOM_RUN|TAGLOOM_SUBMISSION_ID|TAGLOOM_CORPUS|PYTHON.*|PATH|LD_.*)$")
_NAME = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*$")
_EXPANDED = re.compile(r"\$[A-Za-z_{]")
_SIZES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}


@dataclass(frozen=True)
class Wishes:
    """What the command line says of the job, beside the run itself.

    Attributes:
        address: Address of the dashboard.
        append, wait, quiet, verbose: As `tagloom run` takes them.
        shared_disk: Every node sees this machine's paths.
        tunnel: Name of the machine that a loopback address leads to, where that is another one.
        python: Python of the cluster; None goes by the address.
        image: Image that has Tagloom; then no code travels.
        variables: Names of variables to pass through.
        cpus: Cores that the driver reserves; None: none, and it runs on the head node.
        memory: Memory that it reserves, such as ``4GB``.
    """

    address: str
    append: bool = False
    wait: float = 0.0
    quiet: bool = False
    verbose: bool = False
    shared_disk: bool = False
    tunnel: str = ""
    python: str | None = None
    image: str | None = None
    variables: tuple[str, ...] = ()
    cpus: float | None = None
    memory: str | None = None


@dataclass(frozen=True)
class Submission:
    """All that is sent, but for the code.

    Attributes:
        id: Submission id.
        entrypoint: The command, for a shell; no value of the configuration is in it.
        run: The configuration as YAML.
        files: Path below `RUN_FOLDER` -> content; the run file and prompts.
        environment: Variables of the job.
        secret: Names of those whose values are the user's.
        metadata: What the job list shows.
        image: Image to run in; None sends the code.
        cpus, memory: What the driver reserves; memory in bytes.
        notes: What the user should know.
        here: True where a path of this machine or its Python is sent, as the address is this machine's.
    """

    id: str
    entrypoint: str
    run: str
    files: Mapping[str, bytes]
    environment: Mapping[str, str]
    secret: frozenset[str]
    metadata: Mapping[str, str]
    image: str | None
    cpus: float | None
    memory: int | None
    notes: tuple[str, ...]
    here: bool

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data, with what is secret hidden."""
        return {
            "id": self.id,
            "entrypoint": self.entrypoint,
            "image": self.image,
            "driver": {"cpus": self.cpus, "memory": self.memory},
            "environment": {k: "(hidden)" if k in self.secret else v for k, v in sorted(self.environment.items())},
            "metadata": dict(self.metadata),
            "files": {name: len(data) for name, data in sorted(self.files.items())},
            "configuration": yaml.safe_load(self.run),
            "notes": list(self.notes),
        }


def prepare(config: RunConfig, wishes: Wishes, version: str) -> Submission:
    """Check a run as a local one would be, and make what is sent of it.

    Args:
        config: The run.
        wishes: The job.
        version: Version of the Tagloom that is sent.

    Raises:
        UsageError: Something cannot work on a cluster, or is not valid.
        InputError: An input that should be here is not.
    """
    near = is_loopback(wishes.address) and not (wishes.tunnel or wishes.image)
    visible = near or wishes.shared_disk
    check(config, append=wishes.append, visible=visible)
    moved = placed(config, visible=visible, files_travel=wishes.image is None, folder=RUN_FOLDER)
    submission = f"tagloom-{config.name}-{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
    environment = {**SINGLE_THREADED, SUBMISSION_VARIABLE: submission, "RAY_JOB_STOP_WAIT_TIME_S": str(STOP_SECONDS)}
    environment["TAGLOOM_CORPUS"] = ""  # one that the cluster sets would win over the configuration
    run = yaml.safe_dump(moved.settings, allow_unicode=True, sort_keys=False, width=120)
    if wishes.image is not None:
        environment[RUN_VARIABLE] = _as_variable(moved)
    passed = _passed(wishes.variables)
    return Submission(
        id=submission,
        entrypoint=_entrypoint(wishes, wishes.python or (sys.executable if near else "python")),
        run=run,
        files={} if wishes.image is not None else {**moved.files, RUN_FILE: run.encode()},
        environment={**environment, **passed},
        secret=frozenset(passed),
        metadata={"tagloom": version, "corpus": moved.settings["corpus"], "generation": config.name, "user": user()},
        image=wishes.image,
        cpus=wishes.cpus,
        memory=_bytes(wishes.memory),
        notes=(*([f"the address leads to {wishes.tunnel}"] if wishes.tunnel else []), *moved.notes),
        here=near and ((moved.here and not wishes.shared_disk) or wishes.python is None),
    )


def is_loopback(address: str) -> bool:
    """Tell whether an address is one of this machine alone."""
    try:
        host = urlsplit(address).hostname or ""
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def user() -> str:
    """Return the name that submissions are known by; empty where the system has none."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return ""


def _entrypoint(wishes: Wishes, python: str) -> str:
    words = [python, "-m", "jobs.cli", "run", "--config"]
    words.append("/dev/stdin" if wishes.image is not None else f"{RUN_FOLDER}/{RUN_FILE}")
    words += ["--append"] if wishes.append else []
    words += ["--wait", f"{wishes.wait:g}"] if wishes.wait else []
    words += ["--quiet"] if wishes.quiet else []
    words += ["--verbose"] if wishes.verbose else []
    line = "exec " + shlex.join(words)  # no shell stays in between that would not pass a signal on
    # What a variable holds is not read again by the shell.
    return line if wishes.image is None else f"{line} <<TAGLOOM\n${RUN_VARIABLE}\nTAGLOOM\n"


def _as_variable(moved: Travelling) -> str:
    """Write the configuration as JSON, which is YAML; without dollar signs, since Ray expands variables in values."""
    text = json.dumps(moved.settings).replace("$", "\\u0024")
    if len(text) > _MOST_IN_VARIABLE:
        raise UsageError(
            f"the configuration has {len(text):,} bytes; beside an image it may have {_MOST_IN_VARIABLE:,}",
            where="--image",
            remedy="Name folders or globs rather than each input, or leave --image out.",
        )
    return text


def _passed(names: Sequence[str]) -> dict[str, str]:
    """Return the user's variables; no message shows a value."""
    found: dict[str, str] = {}
    for name in names:
        if not _NAME.match(name):
            remedy = "Give the name alone, as in --env OPENAI_API_KEY; the value is taken from your environment."
            raise UsageError("is no name of a variable", where="--env", remedy=remedy)
        if _RESERVED.match(name) or name in SINGLE_THREADED:
            raise UsageError(f"'{name}' is one that Ray, Python or Tagloom sets", where="--env")
        value = os.environ.get(name)
        if value is None:
            raise UsageError(f"'{name}' is not set here", where="--env", remedy=f"export {name}=...")
        if _EXPANDED.search(value):
            raise UsageError(
                f"the value of '{name}' has a dollar sign that Ray would take for a variable",
                where="--env",
                remedy="Give it to the cluster's nodes as a secret of their own.",
            )
        found[name] = value
    return found


def _bytes(text: str | None) -> int | None:
    if text is None:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?)b?", text.strip().lower())
    if match is None:
        raise UsageError(f"'{text}' is no size", where="--driver-memory", remedy="Example: --driver-memory 4GB")
    return int(float(match[1]) * _SIZES[match[2]])


def address_of(given: str | None) -> str:
    """Return the address of a cluster's dashboard: the one given, or that of the environment.

    Raises:
        UsageError: There is none, or it is no address of a dashboard.
    """
    where, text = "--address", given
    for variable in ("RAY_API_SERVER_ADDRESS", "RAY_ADDRESS"):
        if not text:
            where, text = variable, os.environ.get(variable)
    remedy = "Example: --address http://HOST:8265, the address of the dashboard; or set RAY_API_SERVER_ADDRESS."
    if not text:
        raise UsageError("no cluster is named", where="--address", remedy=remedy)
    address = text if "://" in text else f"http://{text}"
    try:
        parts = urlsplit(address)
        sound = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        sound = False
    if not sound or "auto" in (text, parts.hostname):
        raise UsageError(f"'{_bare(text)}' is no address of a dashboard", where=where, remedy=remedy)
    if "@" in parts.netloc:
        raise UsageError("an address holds no user and no password", where=where, remedy="See docs/cluster.md, Access.")
    if parts.query or parts.fragment:
        raise UsageError(f"'{_bare(text)}' is no address of a dashboard", where=where, remedy=remedy)
    return address.rstrip("/")


def _bare(text: str) -> str:
    return re.sub(r"//[^/@]*@", "//(hidden)@", text)


def readable(path: str) -> Path:
    """Return the path of a certificate file or folder that must be there.

    Raises:
        UsageError: It is not.
    """
    found = Path(path)
    if not found.exists():
        raise UsageError("no such file or folder", where=f"--ca {path}")
    return found
