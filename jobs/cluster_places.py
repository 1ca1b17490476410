"""Where the things of a submitted run lie: what travels, what every node must see, and what cannot work."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from schemas.config import RunConfig
from schemas.errors import InputError, UsageError

_SECRET = re.compile(r"key$|token$|secret|password|passwd|credential|authorization|headers", re.IGNORECASE)
_USER = re.compile(r"://[^/@]*:[^/@]*@")
_SHARE = "Put it on object storage (s3://, gs://, abfs://), or give --shared-disk where every node sees the same path."


@dataclass
class Travelling:
    """A configuration as a cluster reads it.

    Attributes:
        settings: The settings, as plain data.
        files: Path below the run's folder -> content.
        notes: What was changed.
        here: True where a path of this machine is among the settings.
    """

    settings: dict[str, Any]
    files: dict[str, bytes] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    here: bool = False


def check(config: RunConfig, *, append: bool, visible: bool) -> None:
    """Find what a local run would refuse before it starts.

    What lies on object storage is looked at by the job alone: this machine may have no access to it.

    Args:
        config: The run.
        append: As `tagloom run` takes it.
        visible: This machine's paths are the cluster's.

    Raises:
        TagloomError: Something is wrong.
    """
    from pipelines import driver, planner
    from pipelines.storage import Storage
    from pipelines.store import Store

    named = [*config.inputs, *config.questions]
    for uri in (config.corpus, *named):
        if re.search(r"(^|::)memory:", uri):
            raise UsageError(
                "no other process sees what lies in memory", where=uri, remedy="Name a place on object storage."
            )
    goes_on = append or not named
    if not visible or not is_local(config.corpus):
        if not goes_on:
            planner.all_units(config)
        return
    for uri in named:
        if is_local(uri) and not _there(_bare(uri)):
            raise InputError("no such file or folder", where=uri, remedy="Check the path.")
    storage = Storage(config.corpus)
    if not storage.exists("corpus.json"):
        if not named:
            raise InputError("no corpus here and no input given", where=config.corpus, remedy="Name input files.")
        planner.all_units(config)
        return
    store = Store.open(config.corpus)
    if config.shards not in ("auto", store.shards):
        driver.open_store(config, ())  # refuses, and says why
    planner.all_units(driver.continued(config, driver.starting_point(store, config.name), append))


def is_local(uri: str) -> bool:
    """Tell whether a path or URI is on a machine's own disk."""
    last = uri.rpartition("::")[2]
    return "://" not in last or last.startswith(("file://", "local://"))


def placed(config: RunConfig, *, visible: bool, files_travel: bool, folder: str) -> Travelling:
    """Return the configuration for processes elsewhere: absolute paths, prompts that travel, no secret.

    Args:
        config: The run.
        visible: This machine's paths are the cluster's.
        files_travel: Files can be sent.
        folder: Folder that they will lie in, relative to the job's.

    Raises:
        UsageError: A path that the cluster cannot see, or a secret, is among the settings.
    """
    made = Travelling(config.model_dump(mode="json", exclude_unset=True))
    settings = made.settings

    def place(uri: str, where: str) -> str:
        if not is_local(uri) or uri.startswith("file:///"):
            made.here |= is_local(uri)
            if is_local(uri) and not visible:
                raise UsageError("a cluster elsewhere does not see this machine's disk", where=uri, remedy=_SHARE)
            return uri
        if not visible:
            raise UsageError("a cluster elsewhere does not see this machine's disk", where=uri, remedy=_SHARE)
        made.here = True
        return _absolute(uri)

    def local_option(value: str, where: str) -> str:
        """Treat an option that may be a file; a name of a model, or a path of the nodes, stays as it is."""
        if not is_local(value) or not re.search(r"[/.]", value) or not _there(_bare(value)):
            return value
        return place(value, where)

    def prompt(path: str, where: str) -> str:
        if not is_local(path):
            return path
        if not files_travel and visible:
            return place(path, where)
        if not files_travel:
            remedy = "Put it on object storage, or leave --image out: then it travels with the run."
            raise UsageError("a prompt file cannot travel beside an image", where=path, remedy=remedy)
        try:
            name = Path(_bare(path)).name
            name.encode("utf-8")
            kept = f"prompts/{len(made.files)}/{name}"
            made.files[kept] = Path(_bare(path)).read_bytes()
        except (OSError, UnicodeError, ValueError) as error:
            raise UsageError(f"cannot be read: {error}", where=repr(path), remedy=f"Check {where}.") from error
        return f"{folder}/{kept}"

    settings["corpus"] = place(config.corpus, "corpus")
    for key in ("inputs", "questions"):
        if key in settings:
            settings[key] = [place(uri, key) for uri in settings[key]]
    section = settings.get("extract")
    where = "extract"
    while section:
        if section.get("prompt"):
            section["prompt"] = _each(section["prompt"], prompt, f"{where}.prompt")
        for key in ("model", "python", "options"):
            if section.get(key):
                section[key] = _each(section[key], local_option, f"{where}.{key}")
        section, where = section.get("rest"), f"{where}.rest"
    for name in ("embed", "graph", "beam"):
        if settings.get(name):
            settings[name] = _each(settings[name], local_option, name)
    if settings.get("compute", {}).pop("address", None):
        made.notes.append("compute.address is left out: the job runs on the cluster that it is sent to")
    for name, value in settings.items():
        _refuse_secrets(value, name, options=name in ("extract", "embed", "beam"))
    return made


def _each(value: Any, change: Callable[[str, str], str], where: str) -> Any:
    if isinstance(value, str):
        return change(value, where)
    if isinstance(value, Mapping):
        return {key: _each(inner, change, f"{where}.{key}") for key, inner in value.items()}
    if isinstance(value, list):
        return [_each(inner, change, where) for inner in value]
    return value


def _refuse_secrets(value: Any, where: str, *, options: bool) -> None:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            name = f"{where}.{key}"
            if options and inner and not isinstance(inner, bool | int | float) and _SECRET.search(str(key)):
                raise UsageError(
                    "a secret would lie open in the job's files",
                    where=name,
                    remedy="Name the variable that holds it (such as key_env), and pass that on: --env NAME",
                )
            _refuse_secrets(inner, name, options=options)
    elif isinstance(value, list):
        for inner in value:
            _refuse_secrets(inner, where, options=options)
    elif isinstance(value, str) and _USER.search(value):
        raise UsageError("an address holds no user and no password", where=where, remedy="Pass them on: --env NAME")


def _bare(path: str) -> str:
    return path.removeprefix("file://").removeprefix("local://")


def _absolute(path: str) -> str:
    whole = os.path.abspath(os.path.expanduser(_bare(path)))  # noqa: PTH100, PTH111  (globs are no paths)
    return whole + ("/" if path.endswith("/") and whole != "/" else "")


def _there(path: str) -> bool:
    whole = os.path.expanduser(path)  # noqa: PTH111
    found = glob.iglob(whole, recursive=True)  # noqa: PTH207  (any part may be a pattern)
    return Path(whole).exists() or (any(mark in whole for mark in "*?[") and next(found, None) is not None)
