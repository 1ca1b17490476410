"""Engines: language models behind one asynchronous interface.

Each module of this package whose name has no leading underscore is an engine and has the names of `Module`. Third
parties add theirs as an entry point of the group ``tagloom.engines`` that names a module. An engine only answers
requests; what is asked, what a reply means and where replies are kept is no concern of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from pydantic import BaseModel

from schemas.errors import MissingDependencyError, TagloomError
from schemas.options import checked
from schemas.registry import Registry


@dataclass(frozen=True, slots=True)
class Request:
    """One request.

    Attributes:
        messages: (role, text), the constant part first so that prefix caches serve it.
        schema: JSON schema that the reply must follow, where the engine can guide decoding; None asks for free text.
        max_tokens: Tokens of the reply at most.
        temperature: 0 takes the likeliest token each time.
    """

    messages: tuple[tuple[str, str], ...]
    schema: Mapping[str, Any] | None
    max_tokens: int
    temperature: float = 0.0


@dataclass(frozen=True, slots=True)
class Reply:
    """One reply.

    Attributes:
        text: What the model wrote.
        finish: ``stop``, or ``length`` where the reply was cut at `max_tokens`, or what else the engine calls it.
        prompt_tokens: Tokens of the prompt.
        completion_tokens: Tokens of the reply.
        cached_tokens: Tokens of the prompt that a prefix cache served, where the engine tells.
        queue_seconds: Time that the request waited before the engine took it up, where the engine tells.
    """

    text: str
    finish: str
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0
    queue_seconds: float = 0.0


class RequestTooLongError(Exception):
    """Prompt and reply do not fit into the context; the text can be split."""


class RequestRefusedError(Exception):
    """The engine will not answer this one request, whatever is done; others may be answered."""


class EngineDiedError(Exception):
    """The engine's process ended or answers nothing any more; it may be started again."""


class EngineError(TagloomError):
    """The engine cannot be used at all: no such model, a rejected key, an endpoint that stays away."""


class Engine(Protocol):
    """A model that answers.

    Attributes:
        slots: Requests that it works on at once when it is full.
        context: Tokens that prompt and reply may have together.
    """

    slots: int
    context: int

    def count(self, text: str) -> int:
        """Return the tokens of a text, or an estimate that is not too low for usual text."""
        ...

    async def complete(self, request: Request) -> Reply:
        """Answer one request; calls come concurrently.

        Raises:
            RequestTooLongError, RequestRefusedError, EngineDiedError, EngineError: As their names say. Whatever may
                pass by itself (busy, timeouts, half replies) an engine tries again on its own.
        """
        ...

    def counters(self) -> Mapping[str, float]:
        """Return what the engine counted since it started: ``retried.REASON`` (attempts that failed and were made
        again) and whatever else it knows. Counts only ever grow.
        """
        ...

    async def close(self) -> None:
        """End it and free what it holds; never raises."""
        ...


@dataclass(frozen=True)
class Resources:
    """What one replica of an engine needs of Ray.

    Attributes:
        slots: Requests that it works on at once when it is full; tells how many cases to have at hand.
        cpus: Cores.
        gpus: GPUs; fractions share one.
    """

    slots: int
    cpus: float = 1.0
    gpus: float = 0.0


class Module(Protocol):
    """What an engine's module has at its top level.

    Attributes:
        NAME: Name of the engine.
        VERSION: Goes up by one whenever the same request would be put to the model in another way.
        Options: Frozen pydantic model of the options, which forbids unknown ones.
    """

    NAME: str
    VERSION: int
    Options: type[BaseModel]

    def identity(self, model: str | None, options: Any) -> dict[str, Any]:
        """Return plain data that replies depend on: the model (hashes of local files, not their paths) and those
        options that change what is answered, never endpoints, limits or patience.

        Raises:
            ConfigError: The model is missing or cannot be found.
        """
        ...

    def located(self, model: str | None) -> str | None:
        """Return the model as a worker finds it that runs in another folder: paths made absolute."""
        ...

    def resources(self, options: Any) -> Resources:
        """Return what one replica needs."""
        ...

    async def start(self, model: str | None, options: Any) -> Engine:
        """Load the model, or connect.

        Raises:
            EngineError: It cannot be used.
            MissingDependencyError: A library is not installed.
        """
        ...


ENGINES: Registry[Module] = Registry(__name__, "engine", "Engines", "extract.extractor", "tagloom.engines")
names, load = ENGINES.names, ENGINES.load


def options_of(module: Module, options: Mapping[str, Any]) -> BaseModel:
    """Check an engine's options.

    Raises:
        ConfigError: An option is unknown, missing or of the wrong kind.
    """
    return checked(module.Options, options, owner=module.NAME, where="extract.options")


def missing_library(name: str, error: ModuleNotFoundError, install: str) -> MissingDependencyError:
    """Return the error that tells how to install what an engine needs."""
    return MissingDependencyError(
        f"engine '{name}' needs the module '{error.name}', which is not installed",
        where="extract.extractor",
        remedy=f"Run: {install}",
    )
