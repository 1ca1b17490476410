"""Engine `llamacpp`: GGUF models through llama.cpp, in a process of their own on the same machine."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import re
import signal
import sys
from collections.abc import Mapping
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from time import monotonic
from typing import Annotated, Any, Literal

import orjson
import xxhash
from pydantic import BaseModel, ConfigDict, Field

from schemas.errors import ConfigError
from transforms.engines import (
    EngineDiedError,
    EngineError,
    Reply,
    Request,
    RequestRefusedError,
    RequestTooLongError,
    Resources,
    missing_library,
)
from transforms.engines._estimate import tokens

NAME = "llamacpp"
VERSION = 1

HOST = Path(__file__).with_name("_llamacpp_host.py")
LOADING = 0
"""Number of the answer that tells that the model is loaded."""
LOAD_SECONDS = 3600.0
LONGEST_FRAME = 1 << 28
LAST_SECONDS = 5.0
"""Seconds that the child has to end after its last frame."""
WORDS = 4096
"""Bytes kept of what the child prints."""
_STAMP = re.compile(r"\d+(\.\d+){3} [DIWE] ")
_PART = re.compile(r"(.+)-\d{5}-of-(\d{5})\.gguf")


class Options(BaseModel):
    """Options of the engine."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    parallel: int = Field(4, ge=1, le=256, description="Requests worked on at once")
    context_tokens: int = Field(
        4096, ge=256, le=10_000_000, description="Tokens of prompt and reply together; at most what the model can"
    )
    threads: int | None = Field(None, ge=1, le=1024, description="Threads; none takes every core that may be used")
    gpu_layers: Annotated[int, Field(ge=0, le=10_000)] | Literal["auto"] = Field(
        "auto", description="Layers on the GPU, where there is one; auto takes as many as fit"
    )
    gpus: float = Field(0.0, ge=0, le=64, description="GPUs that Ray sets aside for one replica")
    seed: int = Field(0, ge=0, lt=2**32 - 1, description="Seed where the temperature is above 0")
    timeout: float = Field(600.0, gt=0, description="Seconds without any token after which it counts as stuck")


def identity(model: str | None, options: Options) -> dict[str, Any]:
    """Return the hash of the model's content, and the options that change replies.

    Raises:
        ConfigError: There is no such model.
    """
    parts = tuple((str(p), (s := p.stat()).st_size, s.st_mtime_ns) for p in _files(model))
    return {"model": _content_hash(parts), "context_tokens": options.context_tokens, "seed": options.seed}


def located(model: str | None) -> str | None:
    """Return the absolute path of the file."""
    return None if model is None else str(Path(model).expanduser().absolute())


def resources(options: Options) -> Resources:
    """Return what one replica needs; without `threads` it uses all cores and asks Ray for one."""
    return Resources(options.parallel, cpus=float(options.threads or 1), gpus=options.gpus)


async def start(model: str | None, options: Options) -> LlamaCpp:
    """Load a model.

    Raises:
        ConfigError: There is no such model.
        EngineError: It cannot be loaded.
        MissingDependencyError: xllamacpp is not installed.
    """
    path = _files(model)[0]
    if find_spec("xllamacpp") is None:
        error = ModuleNotFoundError("xllamacpp", name="xllamacpp")
        raise missing_library(NAME, error, "pip install 'tagloom[llamacpp]'")
    # -P and the parent's own path: libraries are found where the parent finds them, never where the script lies.
    path_of_libraries = os.pathsep.join(p for p in sys.path if p)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", str(HOST)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path_of_libraries, "GGML_NO_BACKTRACE": "1"},
    )
    engine = LlamaCpp(process, options)
    try:
        await engine.load(path)
    except EngineDiedError as error:
        await engine.close()
        raise EngineError(
            f"'{model}' cannot be loaded: {error}",
            where="extract.model",
            remedy="Check that the file is whole. Where memory is short, take a smaller model or lower "
            "extract.options.parallel or context_tokens.",
        ) from None
    except BaseException:
        await engine.close()
        raise
    return engine


class LlamaCpp:
    """A model in a child process; see transforms.engines.Engine."""

    def __init__(self, process: asyncio.subprocess.Process, options: Options) -> None:
        self.slots = options.parallel
        self.context = options.context_tokens
        self._process, self._options = process, options
        self._numbers = itertools.count(1)
        self._pending: dict[int, asyncio.Future[int | Reply | Exception]] = {}
        self._moved = monotonic()
        self._dead = ""
        self._words = bytearray()
        self._listening = asyncio.create_task(self._listen())
        self._overhearing = asyncio.create_task(self._overhear())

    async def load(self, path: Path) -> None:
        """Load the model.

        Raises:
            EngineDiedError: It cannot be loaded.
        """
        options = self._options
        load = {
            "model": str(path),
            "parallel": options.parallel,
            "context": options.context_tokens,
            "threads": options.threads or _cores(),
            "gpu_layers": None if options.gpu_layers == "auto" else options.gpu_layers,
            "parent": os.getpid(),
        }
        self.context = await self._ask(LOADING, load)

    def count(self, text: str) -> int:
        """Return an estimate; llama.cpp's own tokenizer is in the child."""
        return tokens(text)

    async def complete(self, request: Request) -> Reply:
        """Answer one request."""
        number = next(self._numbers)
        message = {
            "id": number,
            "messages": request.messages,
            "schema": request.schema,
            "max_tokens": request.max_tokens,
            "temperature": request.temperature,
            "seed": self._options.seed,
        }
        reply: Reply = await self._ask(number, message)
        if reply.finish == "length" and reply.completion_tokens < request.max_tokens:
            raise RequestTooLongError(f"the context of {self.context} tokens was full before the reply was done")
        return reply

    def counters(self) -> Mapping[str, float]:
        """Return nothing: llama.cpp tells of no more than its replies do."""
        return {}

    async def close(self) -> None:
        """End the child."""
        self._kill()
        await asyncio.wait((self._listening,))

    async def _ask(self, number: int, message: dict[str, Any]) -> Any:
        if self._dead:
            raise EngineDiedError(self._dead)
        if not self._pending:
            self._moved = monotonic()
        answer = self._pending[number] = asyncio.get_running_loop().create_future()
        try:
            self._send(message)
            outcome = await answer
        except asyncio.CancelledError:
            self._send({"cancel": number})
            raise
        finally:
            self._pending.pop(number, None)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def _send(self, message: dict[str, Any]) -> None:
        try:
            raw = orjson.dumps(message)
        except TypeError:  # lone surrogates
            texts = [(role, text.encode("utf-8", "replace").decode()) for role, text in message["messages"]]
            raw = orjson.dumps({**message, "messages": texts})
        assert self._process.stdin is not None
        self._process.stdin.write(len(raw).to_bytes(4, "big") + raw)

    async def _listen(self) -> None:
        """Hand answers to those who wait for them until the child ends, stands still or sends garbage."""
        why = ""
        try:
            while True:
                frame = asyncio.ensure_future(self._frame())
                patience = LOAD_SECONDS if LOADING in self._pending else self._options.timeout
                while not (await asyncio.wait((frame,), timeout=patience))[0]:
                    if self._pending and monotonic() - self._moved >= patience:
                        frame.cancel()
                        raise TimeoutError
                self._take(frame.result())
        except TimeoutError:
            why = f"gave no sign of life for {patience:g} s"
        except (asyncio.IncompleteReadError, OSError):
            with contextlib.suppress(TimeoutError):  # it is at its end, which tells why
                await asyncio.wait_for(self._process.wait(), LAST_SECONDS)
        except Exception:
            why = "sent garbage"
        finally:
            self._kill()
            await self._process.wait()
            await self._overhearing
            self._dead = self._last_words(why)
            for answer in self._pending.values():
                if not answer.done():
                    answer.set_result(EngineDiedError(self._dead))

    async def _frame(self) -> Any:
        pipe = self._process.stdout
        assert pipe is not None
        size = int.from_bytes(await pipe.readexactly(4), "big")
        if size > LONGEST_FRAME:
            raise ValueError
        return orjson.loads(await pipe.readexactly(size))

    def _take(self, told: dict[str, Any]) -> None:
        self._moved = monotonic()
        if told:
            outcome = _outcome(told)
            self._words.clear()  # what was said before tells nothing about a later end
            answer = self._pending.pop(told["id"], None)
            if answer is not None and not answer.done():
                answer.set_result(outcome)

    async def _overhear(self) -> None:
        """Keep the end of what the child prints."""
        pipe = self._process.stderr
        assert pipe is not None
        while heard := await pipe.read(WORDS):
            self._words += heard
            del self._words[:-WORDS]

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    def _last_words(self, why: str) -> str:
        code = self._process.returncode or 0
        if not why:
            why = f"ended by signal {-code} ({signal.strsignal(-code)})" if code < 0 else f"ended with code {code}"
        printed = self._words.decode("utf-8", "replace").splitlines()
        plain = ("".join(c if c.isprintable() else " " for c in _STAMP.sub("", line)) for line in printed)
        lines = [" ".join(line.split()) for line in plain]
        said = " | ".join([line for line in lines if line][-3:])[-500:]
        return f"llama.cpp {why}" + (f": {said}" if said else "")


def _outcome(told: dict[str, Any]) -> int | Reply | Exception:
    """Return what a frame means: the context, a reply or a fault."""
    if told["id"] == LOADING:
        return int(told["context"])
    if "fault" in told:
        kind = {"long": RequestTooLongError, "refused": RequestRefusedError}.get(told["fault"], EngineDiedError)
        return kind(str(told["message"]))
    numbers = (int(told[name]) for name in ("prompt_tokens", "completion_tokens", "cached_tokens"))
    return Reply(str(told["text"]), str(told["finish"]), *numbers)


def _files(model: str | None) -> list[Path]:
    """Return the file of a model, or its parts in order where it is split.

    Raises:
        ConfigError: There is none.
    """
    example = "Example: --set extract.model=models/qwen3-4b-instruct-q4_k_m.gguf"
    if model is None:
        raise ConfigError(f"engine '{NAME}' needs a GGUF file", where="extract.model", remedy=example)
    path = Path(model).expanduser().absolute()
    part = _PART.fullmatch(path.name)
    found = [path]
    if part:
        total = int(part[2])
        found = [path.with_name(f"{part[1]}-{i + 1:05d}-of-{total:05d}.gguf") for i in range(total)]
    for file in found:
        try:
            with file.open("rb") as opened:
                head = opened.read(4)
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or str(error)
            raise ConfigError(f"'{file}' cannot be read: {why}", where="extract.model", remedy=example) from error
        if head != b"GGUF":
            raise ConfigError(
                f"'{file}' is not a GGUF file",
                where="extract.model",
                remedy="llama.cpp reads GGUF only; most models are published in it too, or convert yours.",
            )
    return found


@lru_cache(maxsize=16)
def _content_hash(files: tuple[tuple[str, int, int], ...]) -> str:
    """Return the xxh3-128 of the contents of files, each given with its size and time of change."""
    digest = xxhash.xxh3_128()
    for path, _, _ in files:
        with Path(path).open("rb") as file:
            while chunk := file.read(1 << 22):
                digest.update(chunk)
    return digest.hexdigest()


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
