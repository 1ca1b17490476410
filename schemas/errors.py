"""Typed errors. Every one says where the fault lies and what to do about it; none carries a traceback to a user."""

from __future__ import annotations

from schemas.uris import shown

FAULT = "This is a fault in Tagloom; -v shows where it lies. Finished parts stay."
"""Remedy of errors that no user can have caused."""


class TagloomError(Exception):
    """Base of all errors that a user may see; message and place are kept without what URIs in them would give away.

    Args:
        message: What is wrong, with the offending value.
        where: File, URI, configuration key or table (with the place in it) that the fault lies in.
        remedy: What the user can do.
    """

    exit_code = 1

    def __init__(self, message: str, *, where: str = "", remedy: str = "") -> None:
        message = shown(message)
        super().__init__(message)
        self.message = message
        self.where = shown(where)
        self.remedy = remedy

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.message, self.where, self.remedy))

    def __str__(self) -> str:
        text = f"{self.where}: {self.message}" if self.where else self.message
        return f"{text}\n  {self.remedy}" if self.remedy else text


def _rebuild(kind: type[TagloomError], message: str, where: str, remedy: str) -> TagloomError:
    return kind(message, where=where, remedy=remedy)


class UsageError(TagloomError):
    """The command or a configuration value is not valid."""

    exit_code = 2


class ConfigError(UsageError):
    """A run configuration has an unknown key or a value of the wrong kind."""


class InputError(TagloomError):
    """An input file cannot be read at all, or its format is not known."""


class SchemaError(TagloomError):
    """A table does not fit its schema."""


class StoreError(TagloomError):
    """The corpus on storage is missing, damaged or of another format version."""


class LockedError(StoreError):
    """Another run is writing to the corpus."""


class ClusterError(TagloomError):
    """A cluster cannot be reached, refuses what is asked, or does not know a job."""


class MissingDependencyError(TagloomError):
    """An optional library is needed and not installed."""


class TooManyRejectsError(TagloomError):
    """The run finished, but more records were rejected than the configuration allows."""

    exit_code = 3
