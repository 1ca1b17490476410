"""Checks the options of what a configuration names: extractors, engines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError

from schemas.errors import ConfigError
from schemas.ids import nearest

FILE: dict[str, JsonValue] = {"path": True}
"""What a field whose values are paths or URIs of files says as its ``json_schema_extra``."""


def files_among(model: type[BaseModel]) -> frozenset[str]:
    """Return the names of the options that are paths or URIs of files: those that say `FILE`."""
    extras = {name: field.json_schema_extra for name, field in model.model_fields.items()}
    return frozenset(name for name, extra in extras.items() if isinstance(extra, dict) and extra.get("path") is True)


class Section(BaseModel):
    """Settings that belong together; unknown ones are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False)


def checked(model: type[BaseModel], options: Mapping[str, Any], *, owner: str, where: str) -> BaseModel:
    """Return options as a model of them.

    Args:
        model: Pydantic model that forbids unknown options.
        options: What the configuration says.
        owner: Name of what has the options.
        where: Their place in the configuration.

    Raises:
        ConfigError: An option is unknown, missing or of the wrong kind.
    """
    try:
        return model.model_validate(dict(options))
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        place = where + (f".{key}" if key else "")
        known = list(model.model_fields)
        if first["type"] != "extra_forbidden":
            raise ConfigError(first["msg"], where=place, remedy=f"Options: {', '.join(known)}.") from error
        close = nearest(key, known)
        hint = f"Did you mean '{close}'? " if close else ""
        listed = f"Options: {', '.join(known)}." if known else f"'{owner}' has no options."
        raise ConfigError(f"'{owner}' has no option '{key}'", where=place, remedy=hint + listed) from error
