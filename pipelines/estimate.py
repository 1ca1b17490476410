"""What an engine will be asked, before it is asked: requests, tokens, time and money, all estimated.

The rules. Texts have three quarters of the tokens that an engine without a tokenizer counts (all of them, at the upper
end): measured on SmolLM2, whose vocabulary is small. A prompt is its template, its text, and half of
`extract.ontology_tokens` (all of them, at the upper end). A reply has as many tokens as the last ones of this task had,
or a third of its limit (the limit, at the upper end). Time goes by the tokens a second that an engine last reached.
What the journal knows of a text, asked about in the same way, is not asked again. Of many shards some are read and the
sum is scaled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa

from pipelines import journal
from pipelines.extract import NOTES, asked_by, engine_of, is_engine, variants
from pipelines.storage import Storage
from pipelines.store import Generation
from schemas.config import ExtractConfig, PricesConfig
from schemas.errors import StoreError
from transforms import prompts, tasks
from transforms.asking import content_of
from transforms.engines._estimate import tokens as counted

OF_COUNT = 0.75
"""Tokens of a text by those that `transforms.engines` counts without a tokenizer."""
SAMPLED = 16
"""Shards read at most for one unit."""
BYTES_AN_INTERACTION = 1000
BYTES_A_TOKEN = 3.5
"""Of input that was not read yet."""
INTERACTIONS_A_GROUP = 10
GROUP_TOKENS = 600
"""A task over what another one has yet to make asks once for so many interactions, with so much text."""

Read = Callable[[str, str, int], pa.Table | None]
"""Reads a table of a unit in one shard; None where it is not made yet."""


class Load(NamedTuple):
    """What is asked for: requests, those that the journal answers instead, tokens of prompts and of replies, and the
    upper end of all tokens.
    """

    requests: float = 0
    answered: float = 0
    prompt_tokens: float = 0
    completion_tokens: float = 0
    most_tokens: float = 0


def summed(loads: Iterable[Load], factor: float = 1.0) -> Load:
    """Add loads up and scale the sum."""
    return Load(*(factor * sum(column) for column in zip(Load(), *loads, strict=True)))


@dataclass(frozen=True)
class Rate:
    """What an engine did in an extract unit that was made.

    Attributes:
        seconds: Time by token of prompts and replies.
        reply_tokens: Mean tokens of a reply.
    """

    unit: str
    model: str
    seconds: float
    reply_tokens: float


@dataclass(frozen=True)
class Asked:
    """What one unit asks one engine for; see `Load`.

    Attributes:
        seconds: Time; None where no rate was measured.
        measured: The model that was measured.
        price: Cost at `extract.prices`; None where there are none, or one needs a time that is not known.
    """

    unit: str
    engine: str
    model: str
    requests: int
    answered: int
    prompt_tokens: int
    completion_tokens: int
    most_tokens: int
    seconds: float | None
    measured: str
    price: float | None


@dataclass(frozen=True)
class Rule:
    """How one extractor asks for one task.

    Attributes:
        extract: The extractor's settings.
        rest: True for the extractor of all cases that no other is for.
        task: The task.
        asked_by: Hash of what its requests depend on, besides the engine and the texts.
        journal: Where its replies are kept.
        fixed: Tokens of the prompt's template, as counted.
        vocabulary: Tokens that the vocabulary may take.
        reply: Tokens of a reply.
        limit: Tokens of a reply at most.
    """

    extract: ExtractConfig
    rest: bool
    task: tasks.Task
    asked_by: str
    journal: str
    fixed: int
    vocabulary: int
    reply: float
    limit: int

    def load(self, requests: int, tokens: int, answered: int = 0) -> Load:
        """Return the load of requests whose texts have so many tokens in all, as counted."""
        tokens += requests * self.fixed
        return Load(
            requests,
            answered,
            tokens * OF_COUNT + requests * self.vocabulary / 2,
            requests * self.reply,
            tokens + requests * (self.vocabulary + self.limit),
        )

    def groups(self, interactions: int) -> Load:
        """Return the load of a task over what another one has yet to make of so many interactions."""
        count = -(-interactions // INTERACTIONS_A_GROUP)
        return self.load(count, count * GROUP_TOKENS)


def rates(generations: Iterable[Generation]) -> list[Rate]:
    """Return what engines did in the extract units of some generations, the latest first."""
    found: list[tuple[str, Rate]] = []
    for generation in generations:
        for unit in generation.units:
            if unit.partition("/")[0] != "extract":
                continue
            try:
                run = generation.manifest(unit).run
            except StoreError:
                continue
            requests, replies = float(run.get("requests") or 0), float(run.get("completion_tokens") or 0)
            tokens, seconds = float(run.get("prompt_tokens") or 0) + replies, float(run.get("seconds") or 0)
            if requests and tokens:
                rate = Rate(unit, str(run.get("model") or ""), seconds / tokens, replies / requests)
                found.append((str(run.get("made_at", "")), rate))
    return [rate for _, rate in sorted(found, key=lambda pair: pair[0], reverse=True)]


def rules(extract: ExtractConfig, unit: str, known: Sequence[Rate] = ()) -> list[Rule]:
    """Return the rules of a unit; an extractor that asks no engine for its task has none.

    Args:
        extract: The section.
        unit: ``extract`` or ``extract/TASK``.
        known: What engines did before, the latest first.
    """
    name = unit.partition("/")[2] or NOTES
    every = list(variants(extract))
    found = []
    for one in every:
        if not is_engine(one) or name not in one.tasks:
            continue
        task, prompt = tasks.load(name), prompts.chosen(one.tasks, one.prompt)[name]
        frame = prompts.messages(prompt, dict.fromkeys(task.PLACEHOLDERS, ""))
        limit = one.max_tokens or task.REPLY_TOKENS
        like = [rate for rate in known if rate.unit == unit]
        like = [rate for rate in like if rate.model == (one.model or "")] or like
        found.append(
            Rule(
                extract=one,
                rest=one is every[-1],
                task=task,
                asked_by=asked_by(one, name),
                journal=engine_of(one).journal,
                fixed=sum(counted(text) for _, text in frame),
                vocabulary=one.ontology_tokens if one.ontology_window and "vocabulary" in task.PLACEHOLDERS else 0,
                reply=min(limit, like[0].reply_tokens) if like else limit / 3,
                limit=limit,
            )
        )
    return found


def by_case(
    found: Sequence[Rule], extract: ExtractConfig, shard: int, read: Read, storage: Storage | None = None
) -> Iterator[tuple[Rule, str, Load]]:
    """Yield what each case of a shard asks for.

    Args:
        found: Rules of one unit.
        extract: The section.
        shard: The shard.
        read: Reads tables.
        storage: Where the journal lies; None leaves it out of account.
    """
    owner = owners(extract)
    known: dict[str, frozenset[str]] = {}
    for case, pieces in _pieces(found[0].task, shard, read):
        rule = next((rule for rule in found if rule.extract is owner(case)), None)
        if rule is None:
            continue
        if isinstance(pieces, int):
            yield rule, case, rule.groups(pieces)
            continue
        if storage is not None and rule.journal not in known:
            known[rule.journal] = _answered(storage, rule, shard)
        there = known.get(rule.journal, frozenset())
        left = [piece for piece in pieces if not there or content_of(piece) not in there]
        tokens = sum(counted(text) for piece in left for text in (piece.text, *piece.values.values()))
        yield rule, case, rule.load(len(left), tokens, len(pieces) - len(left))


def owners(extract: ExtractConfig) -> Callable[[str], ExtractConfig]:
    """Return the function that gives the extractor of a case."""
    every = list(variants(extract))
    chosen = {case: one for one in reversed(every) for case in one.cases}
    return lambda case: chosen.get(case, every[-1])


def _pieces(task: tasks.Task, shard: int, read: Read) -> list[tuple[str, Sequence[tasks.Piece] | int]]:
    """Return the pieces of each case, or its interactions where the task reads what is yet to be made."""
    source = read(*task.READS, shard)
    if source is not None:
        return [(case.case_id, case.pieces) for case in task.cases(source)]
    interactions = read("ingest", "interactions", shard)
    if interactions is None:
        return []
    counts = interactions["case_id"].cast(pa.string()).value_counts().to_pylist()
    return [(row["values"], row["counts"]) for row in counts]


def _answered(storage: Storage, rule: Rule, shard: int) -> frozenset[str]:
    """Return the contents that the journal answers."""
    table = journal.known(storage, rule.journal, shard)
    rows = zip(*(table[name].to_pylist() for name in ("content", "prompt", "kind", "round")), strict=True)
    return frozenset(
        content
        for content, prompt, kind, number in rows
        if prompt == rule.asked_by and (kind != "failed" or number >= rule.extract.retry_round)
    )


def of_unit(
    extract: ExtractConfig,
    unit: str,
    missing: Sequence[int],
    read: Read,
    *,
    storage: Storage | None = None,
    known: Sequence[Rate] = (),
    unread: int = 0,
) -> list[Asked]:
    """Estimate one unit.

    Args:
        extract: The section.
        unit: ``extract`` or ``extract/TASK``.
        missing: Shards whose parts must be made.
        read: Reads tables.
        storage: Where the journal lies.
        known: What engines did before, the latest first.
        unread: Bytes of input that was not read yet; what they ask for is rough.
    """
    found = rules(extract, unit, known)
    loads: dict[int, list[Load]] = {id(rule): [] for rule in found}
    shards = missing if len(missing) <= SAMPLED else [missing[n * len(missing) // SAMPLED] for n in range(SAMPLED)]
    for shard in shards if found else ():
        for rule, _, load in by_case(found, extract, shard, read, storage):
            loads[id(rule)].append(load)
    made = []
    for rule in found:
        load = summed(loads[id(rule)], len(missing) / max(1, len(shards)))
        if unread and rule.rest:
            load = summed([load, _unread(rule, unread)])
        made.append(_asked(unit, rule, load, known))
    return made


def _unread(rule: Rule, size: int) -> Load:
    count = -(-size // BYTES_AN_INTERACTION)
    return rule.load(count, round(size / BYTES_A_TOKEN)) if rule.task.READS[0] == "ingest" else rule.groups(count)


def _asked(unit: str, rule: Rule, load: Load, known: Sequence[Rate]) -> Asked:
    one, model = rule.extract, rule.extract.model or ""
    timed = [rate for rate in known if rate.seconds]
    same = [rate for rate in timed if rate.model == model] or timed
    like = [rate for rate in same if rate.unit == unit] or same
    seconds = (load.prompt_tokens + load.completion_tokens) * like[0].seconds if like else None
    seconds = seconds if load.requests else 0.0
    return Asked(
        unit=unit,
        engine=one.extractor,
        model=model,
        requests=round(load.requests),
        answered=round(load.answered),
        prompt_tokens=round(load.prompt_tokens),
        completion_tokens=round(load.completion_tokens),
        most_tokens=round(load.most_tokens),
        seconds=seconds,
        measured=like[0].model if like else "",
        price=price(one.prices, load.prompt_tokens, load.completion_tokens, seconds),
    )


def price(prices: PricesConfig, prompt_tokens: float, completion_tokens: float, seconds: float | None) -> float | None:
    """Return what tokens and time cost, or None where no price is given or one needs a time that is not known."""
    if prices.prompt is None and prices.completion is None and prices.hour is None:
        return None
    if prices.hour is not None and seconds is None:
        return None
    tokens = prompt_tokens * (prices.prompt or 0.0) + completion_tokens * (prices.completion or 0.0)
    return tokens / 1e6 + (seconds or 0.0) / 3600 * (prices.hour or 0.0)


def total(asked: Sequence[Asked]) -> dict[str, Any]:
    """Add up by column; a sum of which a part is not known is None."""

    def column(name: str) -> Any:
        values = [getattr(one, name) for one in asked]
        return None if None in values else sum(values)

    return {name: column(name) for name in (*Load._fields, "seconds", "price")}
