"""Checks the options of what a configuration names: extractors, engines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from schemas.errors import ConfigError
from schemas.ids import nearest


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
