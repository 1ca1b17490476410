"""Prompt files, kept in the corpus, so that a generation can be gone on from when a file is gone or was edited."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

from pipelines.storage import Storage
from schemas.config import RunConfig
from schemas.errors import ConfigError
from schemas.ids import escape_id

FOLDER = "prompts"
_HERE = "corpus:"
"""Stands for the corpus in settings that a generation keeps, so that a corpus can be moved."""


def keep(storage: Storage, config: RunConfig) -> RunConfig:
    """Copy the prompt files of a run into its corpus, and return the settings with the copies in their place.

    Raises:
        ConfigError: A file cannot be read.
    """

    def kept(path: str) -> str:
        if path.startswith(_base(storage)):
            return path
        text = _read(path)
        stem = path.rstrip("/").rpartition("/")[2].rpartition(".")[0] or "prompt"
        name = f"{FOLDER}/{escape_id(stem)}-{hashlib.sha256(text).hexdigest()[:12]}.md"
        if not storage.exists(name):
            storage.write(name, text, durable=True)
        return f"{storage.absolute}/{name}"

    data = config.model_dump(exclude_unset=True)
    if "extract" not in data:
        return config
    return RunConfig.model_validate({**data, "extract": _mapped(data["extract"], kept)})


def portable(storage: Storage, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings for a generation to keep: its prompts named by their place in the corpus."""
    base = f"{storage.absolute}/"
    return _changed(settings, lambda path: _HERE + path.removeprefix(base) if path.startswith(_base(storage)) else path)


def located(storage: Storage, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a generation with prompts named by where the corpus is now."""
    return _changed(
        settings, lambda path: f"{storage.absolute}/{path.removeprefix(_HERE)}" if path.startswith(_HERE) else path
    )


def _base(storage: Storage) -> str:
    return f"{storage.absolute}/{FOLDER}/"


def _changed(settings: Mapping[str, Any], name: Callable[[str], str]) -> dict[str, Any]:
    return {**settings, **({"extract": _mapped(settings["extract"], name)} if "extract" in settings else {})}


def _mapped(extract: Mapping[str, Any], name: Callable[[str], str]) -> dict[str, Any]:
    """Return the settings of an extractor, and of those of the rest, with other names for its prompts."""
    found = dict(extract)
    given = found.get("prompt")
    if isinstance(given, str):
        found["prompt"] = name(given)
    elif given:
        found["prompt"] = [name(one) for one in given]
    if found.get("rest"):
        found["rest"] = _mapped(found["rest"], name)
    return found


def _read(path: str) -> bytes:
    import fsspec

    try:
        with fsspec.open(path, "rb") as stream:
            return bytes(stream.read())
    except (OSError, ValueError, ImportError) as error:
        raise ConfigError(f"cannot be read: {error}", where=path, remedy="Check extract.prompt.") from error
