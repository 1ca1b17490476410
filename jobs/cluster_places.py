"""Where the things of a submitted run lie: what travels, what every node must see, and what cannot work."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from schemas.config import RunConfig
from schemas.errors import InputError, TagloomError, UsageError
from schemas.options import files_among
from schemas.registry import Registry
from schemas.uris import secret_in

_SECRET = re.compile(r"key$|token$|secret|password|passwd|credential|authorization|headers", re.IGNORECASE)
_USER = re.compile(r"://[^/@]*:[^/@]*@")
_BEAM_FILE = re.compile(r"(^|_)(file|files|location|jar|jars|path|dir|package|packages|cache|files_to_stage)$")
"""Names of Beam's options that are files or folders."""
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
    from indexers.embedders import EMBEDDERS
    from transforms.engines import ENGINES
    from transforms.extractors import EXTRACTORS
    from transforms.graphs import KINDS

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

    def local_file(value: str, where: str) -> str:
        """Treat an option that is a file; a path of the nodes stays as it is."""
        return place(value, where) if is_local(value) and _present(_bare(value)) else value

    def maybe_file(value: str, where: str) -> str:
        """Treat a setting that may be a file, or a name, such as that of a model."""
        return local_file(value, where) if re.search(r"[/.]", value) else value

    def options(given: Mapping[str, Any], files: Collection[str], where: str) -> dict[str, Any]:
        return {
            key: _each(value, local_file, f"{where}.{key}") if key in files else value for key, value in given.items()
        }

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
        for key in ("model", "python"):
            if section.get(key):
                section[key] = maybe_file(section[key], f"{where}.{key}")
        if given := section.get("options"):
            files = _files(section.get("extractor"), EXTRACTORS, ENGINES)
            section["options"] = options(given, files, f"{where}.options")
        section, where = section.get("rest"), f"{where}.rest"
    embed = settings.get("embed", {})
    if embed.get("model"):
        embed["model"] = maybe_file(embed["model"], "embed.model")
    if given := embed.get("options"):
        embed["options"] = options(given, _files(embed.get("embedder"), EMBEDDERS), "embed.options")
    kinds = settings.get("graph", {}).get("options", {})
    for kind, given in kinds.items():
        kinds[kind] = options(given, _files(kind, KINDS), f"graph.options.{kind}")
    for key, value in settings.get("beam", {}).items():
        if _BEAM_FILE.search(key):
            settings["beam"][key] = _each(value, maybe_file, f"beam.{key}")
    if settings.get("compute", {}).pop("address", None):
        made.notes.append("compute.address is left out: the job runs on the cluster that it is sent to")
    for name, value in settings.items():
        _refuse_secrets(value, name, options=name in ("extract", "embed", "beam"))
    return made


def _files(name: str | None, *registries: Registry[Any]) -> frozenset[str]:
    """Return the options of a plug-in that are files; without its name, as in a run that goes on, those of all."""
    found: frozenset[str] = frozenset()
    for registry in registries:
        for known in registry.names():
            if name in (None, known):
                try:
                    found |= files_among(registry.load(known).Options)
                except (ImportError, TagloomError, AttributeError):  # what is wrong with it, its own check tells
                    continue
    return found


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
    elif isinstance(value, str) and (fault := secret_in(value)):
        raise UsageError(
            fault, where=where, remedy="Give it by the usual means of the store, or pass it on: --env NAME"
        )
    elif isinstance(value, str) and _USER.search(value):
        raise UsageError("an address holds no user and no password", where=where, remedy="Pass them on: --env NAME")


def _bare(path: str) -> str:
    return path.removeprefix("file://").removeprefix("local://")


def _absolute(path: str) -> str:
    whole = os.path.abspath(os.path.expanduser(_bare(path)))  # noqa: PTH100, PTH111  (globs are no paths)
    return whole + ("/" if path.endswith("/") and whole != "/" else "")


def _there(path: str) -> bool:
    """Tell whether an input is there; it may be a pattern."""
    whole = os.path.expanduser(path)  # noqa: PTH111
    found = glob.iglob(whole, recursive=True)  # noqa: PTH207  (any part may be a pattern)
    return _present(path) or (any(mark in whole for mark in "*?[") and next(found, None) is not None)


def _present(path: str) -> bool:
    try:
        return Path(os.path.expanduser(path)).exists()  # noqa: PTH111
    except (OSError, ValueError):  # too long, or no name of a file
        return False
