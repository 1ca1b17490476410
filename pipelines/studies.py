"""Studies: what is found out about a finished generation by asking an engine, and hung on it beside its own units."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

from pipelines.desk import Engine, JournalDesk, room
from pipelines.execute import Execution
from pipelines.extract import engine_of, is_engine
from pipelines.journal import Journal, write_identity
from pipelines.lock import Held
from pipelines.planner import part_keys
from pipelines.progress import Progress, Silent
from pipelines.stage import Inputs
from pipelines.store import Generation, Manifest
from schemas.config import ExtractConfig, RunConfig
from schemas.errors import ConfigError, StoreError
from schemas.ids import fingerprint, shard_of
from transforms import asking, engines, prompts, replies
from transforms.asking import Question, ask_all
from transforms.engines import EngineError
from transforms.prompts import Prompt
from transforms.tasks import Case, Result, asked


@dataclass(frozen=True)
class Ask:
    """One thing that an engine is asked in a study.

    Attributes:
        name: Name of the study's module.
        engine: The engine.
        prompt: The prompt.
        max_tokens: Tokens of a reply at most.
        temperature: Sampling temperature.
        round: Raised to ask again about what failed.
    """

    name: str
    engine: Engine
    prompt: Prompt
    max_tokens: int
    temperature: float
    round: int

    @property
    def described(self) -> dict[str, object]:
        """All that the replies depend on but the texts; for keys."""
        return {
            "study": [self.name, asked(self.name).VERSION],
            "engine": {"name": self.engine.name, "identity": dict(self.engine.identity)},
            "prompt": self.prompt.hash,
            "versions": [asking.VERSION, prompts.VERSION, replies.VERSION],
            "max_tokens": self.max_tokens,
            "temperature": self.temperature,
            "round": self.round,
        }


def ask_of(name: str, extract: ExtractConfig, own: Mapping[str, Prompt]) -> Ask:
    """Return what is asked in a study.

    Args:
        name: Name of the study's module.
        extract: Names the engine, its model and options, as for extraction.
        own: Prompts given, by study.

    Raises:
        ConfigError, UsageError: There is no such engine, or a setting is not valid.
    """
    if not is_engine(extract):
        raise ConfigError(
            f"'{extract.extractor}' is no engine that could be asked",
            where="--engine",
            remedy=f"Name one: {', '.join(engines.names())}.",
        )
    study = asked(name)
    prompt = own[name] if name in own else prompts.load(name)
    most = extract.max_tokens or study.REPLY_TOKENS
    return Ask(name, engine_of(extract), prompt, most, extract.temperature, extract.retry_round)


def as_runtime(asks: Iterable[Ask]) -> dict[str, object]:
    """Return plain data for `Unit.runtime`; `from_runtime` reads it."""
    found = list(asks)
    return {
        "asks": {one.name: asdict(one) for one in found},
        "journals": list(dict.fromkeys(one.engine.journal for one in found)),
    }


def from_runtime(runtime: Mapping[str, object]) -> dict[str, Ask]:
    """Return what is asked, by name of the study."""
    told: Mapping[str, Mapping[str, object]] = runtime["asks"]  # type: ignore[assignment]
    return {
        name: Ask(**{**one, "engine": Engine(**one["engine"]), "prompt": Prompt(**one["prompt"])})  # type: ignore[arg-type]
        for name, one in told.items()
    }


async def ask(inputs: Inputs, one: Ask, cases: Sequence[Case], room_for: int = 0) -> list[list[Result]]:
    """Ask an engine about all pieces of some cases of one shard; what was asked before comes from the journal.

    Args:
        inputs: Tells the corpus.
        one: What is asked.
        cases: The pieces.
        room_for: Tokens that a piece's text may have; an engine with less room is refused, as pieces must not be cut.

    Raises:
        EngineError: The engine cannot be used, or its context is too small.
    """
    if not cases:
        return []
    here, storage = room(), inputs.store.storage
    write_identity(storage, one.engine.journal, dict(one.engine.identity))
    journal = Journal(storage, one.engine.journal, shard_of(cases[0].case_id, inputs.store.shards))
    await journal.load()
    engine = await here.engine(one.engine)
    frame = engine.count(one.prompt.system + one.prompt.user) + one.max_tokens
    if room_for and engine.context < frame + room_for:
        raise EngineError(
            f"a context of {engine.context} tokens has no room for {room_for} tokens of memory besides the prompt and "
            f"the reply ({frame})",
            where=f"study '{one.name}'",
            remedy="Lower --tokens for all presets, or give the engine a larger context (extract.options).",
        )
    question = Question(asked(one.name), one.prompt, 0, 0, one.max_tokens, one.temperature)
    desk = JournalDesk(engine, journal, fingerprint(one.described), one.round, here.counts)
    try:
        results = await ask_all(cases, question, desk)
    except BaseException:
        await journal.flush()
        raise
    await journal.finish()
    return results


def execution(config: RunConfig, generation: Generation, progress: Progress | None) -> Execution:
    """Return a run whose units read those of a finished generation; the caller holds the lock."""
    found = Execution(generation.store, config, generation, progress or Silent())
    for unit in generation.units:
        manifest = generation.manifest(unit)
        found.manifests[unit] = manifest
        found.upstream[unit] = part_keys(manifest.parts)
    return found


def hang(generation: Generation, name: str, manifests: Iterable[Manifest], held: Held) -> Generation:
    """Hang finished units on a generation under the name of an experiment, in place of those of that name.

    Raises:
        StoreError: The generation was replaced meanwhile.
    """
    store = generation.store
    if store.heads().get(generation.name) != generation.head:
        raise StoreError(
            f"generation '{generation.name}' was replaced meanwhile",
            where=store.storage.uri,
            remedy="Run the same command again: it goes on from what is there now.",
        )
    own = {manifest.unit: manifest.fingerprint for manifest in manifests}
    head = {**generation.head, "experiments": {**generation.head.get("experiments", {}), name: own}}
    held.check()
    store.move_heads({generation.name: head})
    return Generation(store, generation.name, head)
