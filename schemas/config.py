"""The configuration of a run: one pydantic model, from YAML and ``--set`` overrides.

Each stage is fingerprinted by its own section only, so changing `rank` never invalidates `ingest`.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from schemas.errors import ConfigError
from schemas.ids import nearest
from schemas.options import Section

Count = Annotated[int, Field(ge=1, le=1_000_000)]
NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
"""Names of generations."""


class IngestConfig(Section):
    """How logs become interactions."""

    format: str = Field("auto", description="Input format, or 'auto' to look at the content")
    unit: Literal["auto", "exchange", "message"] = Field(
        "auto",
        description="Retrieval unit; 'auto' takes the format's own: message for dialogues, else exchange",
    )
    timezone: str = Field("UTC", description="Time zone of times that name none (IANA name)")
    encoding: str = Field("auto", description="Text encoding of inputs; 'auto' knows UTF-8, BOMs, UTF-16 and cp1252")
    max_reject_share: float = Field(
        0.05,
        ge=0,
        le=1,
        description="Share of rejected records (evidence ids aside) above which the run ends with code 3",
    )
    split_mb: int = Field(64, ge=1, le=1024, description="Text held at once while reading, in MB")


class PricesConfig(Section):
    """What an engine costs, for plans and reports; in any one currency. Never part of a fingerprint."""

    prompt: float | None = Field(None, ge=0, description="Price of a million prompt tokens")
    completion: float | None = Field(None, ge=0, description="Price of a million completion tokens")
    hour: float | None = Field(None, ge=0, description="Price of an hour of the machines that extract")


class ExtractConfig(Section):
    """Which extractor makes notes, or which engine is asked what."""

    extractor: str = Field(
        "lexical",
        description="Extractor (lexical, replay, spacy), or an engine that asks a model (openai, vllm, llamacpp)",
    )
    model: str | None = Field(None, min_length=1, description="The engine's model: a name, a folder or a GGUF file")
    tasks: tuple[str, ...] = Field(
        ("notes",),
        min_length=1,
        description="What to ask an engine for: notes, facts, reflections, entities, triples; other extractors do all "
        "that their options allow",
    )
    prompt: str | tuple[str, ...] | None = Field(
        None, description="Own prompt file or files, each of which names its task; none takes Tagloom's prompts"
    )
    ontology_window: int = Field(
        1, ge=0, description="Interactions of a case that may share one ontology snapshot; 0 = no ontology"
    )
    ontology_tokens: int = Field(400, ge=0, le=100_000, description="Tokens that the ontology in a prompt may take")
    temperature: float = Field(0.0, ge=0, le=2, description="Sampling temperature; 0 takes the likeliest token")
    max_tokens: int | None = Field(
        None, ge=16, le=100_000, description="Tokens of a reply at most; none takes each task's own limit"
    )
    options: dict[str, Any] = Field(default_factory=dict, description="The extractor's or engine's own options")
    workers: Annotated[int, Field(ge=1, le=4096)] | Literal["auto"] = Field(
        "auto",
        description="Replicas of the engine; auto takes one, or as many as the GPUs, or a cluster, have room for",
    )
    python: str | None = Field(
        None, min_length=1, description="Python of the environment that has the engine, where it is another one"
    )
    budget_tokens: int | None = Field(
        None, ge=1, description="Tokens (prompts and replies) that one run may ask an engine for; then it stops"
    )
    retry_round: int = Field(0, ge=0, description="Raise it to ask again about what failed in earlier rounds")
    prices: PricesConfig = PricesConfig()  # type: ignore[call-arg]
    cases: tuple[str, ...] = Field((), description="Cases that this extractor is for; none = all")
    rest: ExtractConfig | None = Field(None, description="Extractor of the other cases, where 'cases' names some")


class ForgetWeights(Section):
    """Shares of what makes a node important; at most 1 in all."""

    age: float = Field(0.35, ge=0, le=1, description="Share of the days since it was told of")
    access: float = Field(0.25, ge=0, le=1, description="Share of how often it was retrieved")
    degree: float = Field(0.20, ge=0, le=1, description="Share of its edges")
    turns: float = Field(0.20, ge=0, le=1, description="Share of the interactions since it was told of")

    @model_validator(mode="after")
    def _at_most_one(self) -> ForgetWeights:
        if (total := self.age + self.access + self.degree + self.turns) > 1 + 1e-9:
            raise PydanticCustomError(
                "weights", "The weights are {total} in all; 1 is the most", {"total": f"{total:g}"}
            )
        return self


class AccessConfig(Section):
    """Rankings that tell what was retrieved; 'tagloom forget --access' writes this section."""

    unit: str = Field(..., pattern=r"^rank/.", description="Unit of the rankings, such as rank/bm25")
    runs: str = Field(..., pattern=r"^[0-9a-f]{32}$", description="Fingerprint of its manifest")
    depth: int = Field(10, ge=1, le=100_000, description="Ranks that count as retrieved")


class ForgetConfig(Section):
    """What is forgotten of a graph; see docs/forgetting.md."""

    threshold: float = Field(0.10, ge=0, le=1, description="Nodes of less importance are forgotten")
    every: Count = Field(400, description="Interactions of a case between two rounds of forgetting")
    half_life_days: float = Field(90, gt=0, description="Days in which the share of age halves")
    half_life_turns: float = Field(1000, gt=0, description="Interactions in which the share of turns halves")
    weights: ForgetWeights = ForgetWeights()  # type: ignore[call-arg]
    pinned_kinds: tuple[str, ...] = Field((), description="Node kinds that are never forgotten")
    pinned: tuple[str, ...] = Field((), description="Keys of nodes that are never forgotten; * and ? stand for any")
    access: AccessConfig | None = Field(None, description="What was retrieved; none: nothing")


class GraphConfig(Section):
    """Which graphs are built over the notes."""

    kinds: tuple[str, ...] = Field(
        ("taggraph",), min_length=1, description="Graph kinds by name; those that presets need are built as well"
    )
    options: dict[str, dict[str, Any]] = Field(default_factory=dict, description="Options by graph kind")
    forget: dict[str, ForgetConfig] = Field(default_factory=dict, description="What is forgotten, by graph kind")
    repairs: tuple[str, ...] = Field((), description="Repairs that facts and concepts gain; 'tagloom graft' sets them")


class IndexConfig(Section):
    """How text is indexed."""

    tokenizer: Literal["words"] = Field("words", description="'words': lower-cased runs of word characters")
    language: str = Field("english", description="Language of the stems, where a preset compares stems")


class EmbedConfig(Section):
    """What makes vectors, where a preset needs them."""

    embedder: str = Field(
        "wordllama", description="wordllama (offline), sentence_transformers, onnx, or openai (an endpoint)"
    )
    model: str | None = Field(None, min_length=1, description="The embedder's model: a name or a folder")
    options: dict[str, Any] = Field(default_factory=dict, description="The embedder's own options")
    dtype: Literal["float16", "float32"] = Field("float16", description="Precision that vectors are kept in")


class RankConfig(Section):
    """Which presets rank the questions."""

    presets: tuple[str, ...] = Field(
        (
            "bm25",
            "bm25-raw",
            "taggraph-basic",
            "taggraph-stopwords",
            "taggraph-tfidf",
            "adaptivegraph",
        ),
        min_length=1,
        description="Presets by name ('tagloom doctor' lists them)",
    )
    depth: int = Field(100, ge=1, le=100_000, description="Interactions kept of each ranking")
    define: dict[str, dict[str, Any]] = Field(
        default_factory=dict, description="Own presets by name; see docs/presets.md"
    )
    sweep: dict[str, list[Any]] = Field(
        default_factory=dict, description="Values to try for a number of the presets, such as diffusion.alpha"
    )


class EvaluateConfig(Section):
    """How rankings are judged."""

    resamples: int = Field(10_000, ge=100, le=1_000_000, description="Bootstrap resamples and sign flips")
    seed: int = Field(7, ge=0, description="Seed of the resampling")
    draw: Literal["auto", "case", "question"] = Field(
        "auto", description="What the bootstrap draws; auto takes cases, or questions where there is one case alone"
    )
    baselines: tuple[str, ...] = Field(
        ("bm25", "bm25-raw", "bm25-stem", "dense", "adaptivegraph", "gaama"),
        description="Presets that all others are compared with, where they are run; else the first one is",
    )
    ks: tuple[Count, ...] = Field((1, 3, 5, 10, 20), min_length=1, description="Cut-offs of recall and hit")


class ComputeConfig(Section):
    """Where Ray stages run. Never part of a fingerprint."""

    workers: Annotated[int, Field(ge=0, le=4096)] | Literal["auto"] = Field(
        "auto",
        description="Ray workers; 0 runs in this process without Ray; auto takes every core (of the cluster, also as "
        "it grows), and no Ray for small work",
    )
    address: str | None = Field(None, description="Address of a running Ray cluster; none starts a local one")
    memory_gb: float | None = Field(
        None, gt=0, le=65_536, description="GB of memory that Ray keeps for each worker; none keeps none aside"
    )
    cpu_nodes: dict[str, str] = Field(
        default_factory=dict,
        description="Labels of the nodes for work without GPU; none avoids nodes with GPUs where there are others",
    )
    gpu_nodes: dict[str, str] = Field(
        default_factory=dict, description="Labels of the nodes for engines on GPUs; none takes any with GPUs"
    )
    metrics: str | None = Field(None, description="HOST:PORT where Prometheus metrics are served while a run works")
    traces: str | None = Field(None, description="Address of an OpenTelemetry collector (OTLP over HTTP) for spans")


class RunConfig(Section):
    """One run, whole."""

    corpus: str = Field(..., min_length=1, description="Corpus URI: a folder, s3://, gs://, memory://, ...")
    inputs: tuple[str, ...] = Field((), description="Input files, folders or globs (any fsspec URI)")
    questions: tuple[str, ...] = Field((), description="Question files of the 'tagloom' format")
    name: str = Field("main", pattern=NAME_PATTERN, description="Name of the generation")
    shards: Count | Literal["auto"] = Field("auto", description="Shards of a new corpus; auto goes by input size")
    ingest: IngestConfig = IngestConfig()  # type: ignore[call-arg]
    extract: ExtractConfig = ExtractConfig()  # type: ignore[call-arg]
    graph: GraphConfig = GraphConfig()  # type: ignore[call-arg]
    index: IndexConfig = IndexConfig()  # type: ignore[call-arg]
    embed: EmbedConfig = EmbedConfig()  # type: ignore[call-arg]
    rank: RankConfig = RankConfig()  # type: ignore[call-arg]
    evaluate: EvaluateConfig = EvaluateConfig()  # type: ignore[call-arg]
    compute: ComputeConfig = ComputeConfig()  # type: ignore[call-arg]
    beam: dict[str, Any] = Field(default_factory=dict, description="Beam pipeline options; 'runner' names the runner")


_STARTS_ANEW = {"beam": "runner", "extract": "extractor"}
"""Section -> the key that a file states all of it anew with: other options are one runner's or extractor's own."""


def load_config(
    path: str | Sequence[str] | None, overrides: Iterable[str] = (), base: Mapping[str, Any] | None = None
) -> RunConfig:
    """Read a run configuration.

    Args:
        path: YAML file or files, or None. Later files win over earlier ones, key by key in every section; one that
            names a runner or an extractor states that section anew.
        overrides: ``a.b=value`` settings, applied last; values are read as YAML.
        base: Values that the command line gave; they win over the file and lose to `overrides`.

    Raises:
        ConfigError: The file is unreadable or not YAML, a key is unknown, or a value is of the wrong kind.
    """
    import yaml

    paths = [path] if isinstance(path, str) else list(path or [])
    data: dict[str, Any] = {}
    for one in paths:
        data = _laid_over(data, _read(one))
    base = copy.deepcopy(dict(base or {}))
    for key, value in base.items():
        _assign(data, key, value)
    for item in overrides:
        key, sign, text = item.partition("=")
        if not sign or not key.strip():
            raise ConfigError(f"'{item}' is not KEY=VALUE", where="--set", remedy="Example: --set rank.depth=50")
        try:
            value = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise ConfigError(f"value of '{key}' is not valid YAML: {error}", where="--set") from error
        _assign(data, key.strip(), value)
    try:
        return RunConfig.model_validate(data)
    except ValidationError as error:
        raise _explain(error, ", ".join(paths) or "configuration") from None


def _read(path: str) -> dict[str, Any]:
    import yaml

    try:
        loaded = yaml.safe_load(Path(path).read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"cannot be read: {error}", where=path) from error
    except yaml.YAMLError as error:
        raise ConfigError(f"is not valid YAML: {error}", where=path) from error
    if loaded is not None and not isinstance(loaded, dict):
        raise ConfigError(f"holds a {type(loaded).__name__}, not settings", where=path)
    return dict(loaded or {})


def _laid_over(below: dict[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings of one file under those of a later one, section by section."""
    made = dict(below)
    for key, value in above.items():
        old = made.get(key)
        made[key] = value
        if isinstance(old, dict) and isinstance(value, dict) and _STARTS_ANEW.get(key) not in value:
            made[key] = {**old, **value}
    return made


def _assign(data: dict[str, Any], key: str, value: Any) -> None:
    parts = key.split(".")
    for part in parts[:-1]:
        child = data.get(part)
        if child is None:
            child = data[part] = {}
        elif not isinstance(child, dict):
            raise ConfigError(f"'{part}' in '{key}' is a value, not a section", where="--set")
        data = child
    data[parts[-1]] = value


def _explain(error: ValidationError, where: str) -> ConfigError:
    lines: list[str] = []
    remedies: list[str] = []
    for fault in error.errors():
        key = _key(fault["loc"])
        if fault["type"] == "extra_forbidden":
            choices = _keys_beside(fault["loc"])
            guess = nearest(str(fault["loc"][-1]), choices)
            lines.append(f"unknown key '{key}'")
            prefix = key.rpartition(".")[0]
            if guess:
                remedies.append(f"Did you mean '{prefix + '.' if prefix else ''}{guess}'?")
            else:
                remedies.append(f"Known keys there: {', '.join(choices)}.")
        elif fault["type"] == "missing":
            lines.append(f"'{key}' is not set")
            remedies.append(f"Set '{key}' in the file or with --set {key}=...")
        else:
            start = f"'{key}' = {fault['input']!r}: "
            if lines and lines[-1].startswith(start):  # each member of a union says why it does not take the value
                lines[-1] += f", or {fault['msg'][:1].lower()}{fault['msg'][1:]}"
            else:
                lines.append(start + fault["msg"])
    return ConfigError("; ".join(lines), where=where, remedy=" ".join(remedies))


def _key(loc: tuple[int | str, ...]) -> str:
    """Return the setting that a fault lies in, without the names that pydantic gives to members of unions."""
    model: Any = RunConfig
    kept: list[str] = []
    for part in loc:
        inside = isinstance(model, type) and issubclass(model, BaseModel)
        if inside or isinstance(part, int):
            kept.append(str(part))
        field = model.model_fields.get(str(part)) if inside else None
        model = field.annotation if field is not None else None
    return ".".join(kept)


def _keys_beside(loc: tuple[int | str, ...]) -> list[str]:
    model: type[BaseModel] = RunConfig
    for part in loc[:-1]:
        kind = model.model_fields[str(part)].annotation
        if not (isinstance(kind, type) and issubclass(kind, BaseModel)):
            return []
        model = kind
    return list(model.model_fields)
