"""Asks a model about every piece of some cases, in order, and reads what it answers.

Cases run side by side; inside a case the pieces run in windows, and those of one window see the same vocabulary. What
goes wrong with one reply costs one piece: it is asked once more with the fault named, then given up. A text that does
not fit the context is split and its parts are merged.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Coroutine, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from schemas.ids import content_hash, fingerprint
from transforms import prompts
from transforms.engines import EngineError, Reply, Request, RequestRefusedError, RequestTooLongError
from transforms.prompts import Prompt
from transforms.replies import WRAPPED, BadReplyError, parse, told
from transforms.tasks import Asked, Case, Piece, Result
from transforms.vocabulary import Vocabulary

T = TypeVar("T")

VERSION = 1
"""Goes up by one whenever the same replies would make other results, or other requests were sent."""
FEWEST_AT_ONCE = 16
"""Cases that are at work at once, where there are as many."""
BREATH = 64
"""Pieces served without a request after which others get their turn."""
RELEVANT = 20_000
"""Characters of a text by which the vocabulary for it is chosen."""
SMALLEST_PART = 200
"""Characters below which a text is not split again."""
LEAST_ROOM = 64
"""Tokens that a text must have in the context."""
NO_VOCABULARY = "(none yet)"


@dataclass(frozen=True)
class Known:
    """What was kept of a request: a usable reply, or a verdict with its reason; see `Desk.keep`."""

    kind: str
    reply: Reply
    error: str | None


class Desk(Protocol):
    """Who asks the engine and keeps its replies.

    Attributes:
        context: Tokens that prompt and reply may have together.
        slots: Requests that the engine works on at once.
    """

    context: int
    slots: int

    def count(self, text: str) -> int:
        """Return the tokens of a text."""
        ...

    def known(self, key: str) -> Known | None:
        """Return what is known of a request; a reply that could not be used is not known."""
        ...

    async def ask(self, request: Request) -> Reply:
        """Ask the engine.

        Raises:
            RequestTooLongError, RequestRefusedError: The engine says so; a request that kills it is refused.
        """
        ...

    def keep(self, key: str, kind: str, reply: Reply, error: str | None, content: str) -> None:
        """Keep a reply (kind ``reply``), one that cannot be used (``corrupt``), or a verdict: given up (``failed``), or
        too long for the context (``long``); the reply of a verdict has no text.
        """
        ...

    def done(self, result: Result) -> None:
        """Take note that a piece is done."""
        ...


@dataclass(frozen=True)
class Question:
    """What is asked, and how.

    Attributes:
        task: The task or study.
        prompt: Its prompt.
        window: Pieces of a case that share one vocabulary; 0 = none is shown, and order does not matter.
        vocabulary_tokens: Tokens that the vocabulary in a prompt may take (by `estimate`).
        max_tokens: Tokens of a reply at most.
        temperature: Sampling temperature.
    """

    task: Asked
    prompt: Prompt
    window: int
    vocabulary_tokens: int
    max_tokens: int
    temperature: float


def estimate(text: str) -> int:
    """Estimate tokens without a model, so that prompts are the same whichever engine answers: 3 bytes each."""
    return (len(text.encode("utf-8", "replace")) + 2) // 3


def request_key(request: Request) -> str:
    """Return the fingerprint of a request: all that is sent, and how the reply is decoded."""
    return fingerprint([request.messages, request.schema, request.max_tokens, request.temperature])


def content_of(piece: Piece) -> str:
    """Return the hash of what a piece asks about."""
    return content_hash([piece.text, *itertools.chain.from_iterable(sorted(piece.values.items()))])


def cases_at_once(slots: int) -> int:
    """Return how many cases to have at work: enough that a slot never waits, few enough that memory stays bounded."""
    return max(FEWEST_AT_ONCE, 2 * slots)


async def ask_all(cases: Sequence[Case], question: Question, desk: Desk) -> list[list[Result]]:
    """Ask about every piece.

    Returns:
        The results of each case, in the order of its pieces.

    Raises:
        EngineError, StoreError: The engine or the storage cannot be used; what was answered is kept.
    """
    results: list[list[Result]] = [[] for _ in cases]
    waiting = iter(enumerate(cases))
    many = cases_at_once(desk.slots)
    window = question.window or max(1, many // max(1, len(cases)))
    asker = _Asker(question, desk)

    async def work() -> None:
        for number, case in waiting:
            results[number] = await _case(case, question, desk, asker, window)
            await asyncio.sleep(0)

    await _together([work() for _ in range(min(many, len(cases)))])
    return results


async def _together(works: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """Run coroutines side by side; the first error stops all and is raised as itself."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(work) for work in works]
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [task.result() for task in tasks]


async def _case(case: Case, question: Question, desk: Desk, asker: _Asker, window: int) -> list[Result]:
    vocabulary = Vocabulary()
    results: list[Result] = []
    for start in range(0, len(case.pieces), window):
        pieces = case.pieces[start : start + window]
        shown = [asker.excerpt(vocabulary, piece) for piece in pieces]
        if len(pieces) == 1:
            made = [await asker.piece(pieces[0], shown[0])]
        else:
            made = await _together([asker.piece(*pair) for pair in zip(pieces, shown, strict=True)])
        for result in made:
            desk.done(result)
            if result.record is not None and question.window:
                vocabulary.add(question.task.vocabulary(result.record))
        results += made
        if start // window % BREATH == BREATH - 1:
            await asyncio.sleep(0)
    return results


@dataclass(frozen=True, slots=True)
class _Answer:
    """What one part of a piece got: a record, or the reason why there is none."""

    record: Any
    repairs: tuple[str, ...]
    fault: str | None
    prompt_tokens: int
    completion_tokens: int


class _Asker:
    """Asks about pieces, about the same thing once."""

    def __init__(self, question: Question, desk: Desk) -> None:
        self._question = question
        self._desk = desk
        self._under_way: dict[str, asyncio.Event] = {}
        messages = prompts.messages(question.prompt, dict.fromkeys(question.task.PLACEHOLDERS, ""))
        frame = desk.count("\n".join(text for _, text in messages))
        self._room = desk.context - frame - question.max_tokens - min(512, desk.context // 8)
        if self._room < LEAST_ROOM:
            raise EngineError(
                f"a context of {desk.context} tokens has no room for a text besides the prompt of task "
                f"'{question.task.NAME}' ({frame}) and a reply of {question.max_tokens}",
                where="extract",
                remedy="Give the engine a larger context (extract.options), or lower extract.max_tokens.",
            )

    def excerpt(self, vocabulary: Vocabulary, piece: Piece) -> str:
        question = self._question
        if not question.window:
            return ""
        budget = max(0, min(question.vocabulary_tokens, self._room // 2))
        return vocabulary.excerpt(piece.text[:RELEVANT], budget, estimate)

    async def piece(self, piece: Piece, excerpt: str) -> Result:
        """Ask about one piece, in parts where it is too long."""
        content = content_of(piece)
        answers = [a for part in self._parts(piece, excerpt) for a in await self._part(piece, part, excerpt, content)]
        return self._result(answers)

    def _parts(self, piece: Piece, excerpt: str) -> list[str]:
        taken = self._tokens("".join(piece.values.values()) + excerpt, self._room)
        room = max(self._room // 4, self._room - taken)
        if self._tokens(piece.text, room) <= room:
            return [piece.text]
        return split(piece.text, room, self._desk)

    def _tokens(self, text: str, room: int) -> int:
        """Count tokens; a text of few enough bytes fits whatever the tokenizer, which need not be asked then."""
        size = len(text.encode("utf-8", "replace"))
        return size if size <= room // 2 else self._desk.count(text)

    async def _part(self, piece: Piece, text: str, excerpt: str, content: str) -> list[_Answer]:
        values = {**piece.values, "text": text, "vocabulary": excerpt or NO_VOCABULARY}
        messages = prompts.messages(self._question.prompt, values)
        try:
            return [await self._ask(messages, content, splits=len(text) >= SMALLEST_PART)]
        except RequestTooLongError:
            halves = halve(text)
        return [a for half in halves for a in await self._part(piece, half, excerpt, content)]

    async def _ask(self, messages: tuple[tuple[str, str], ...], content: str, *, splits: bool) -> _Answer:
        request = self._request(messages)
        key = request_key(request)
        while (other := self._under_way.get(key)) is not None:  # its reply is for both, lest a resumed run differ
            await other.wait()
        known = self._desk.known(key)
        if known is not None and known.kind == "long":
            raise RequestTooLongError(known.error)
        if known is not None and known.kind == "failed":
            return _Answer(None, (), known.error or "given up before", known.reply.prompt_tokens, 0)
        if known is not None:
            try:
                return self._read(known.reply, known.reply.prompt_tokens)
            except BadReplyError:
                pass  # an earlier version could use it; now it is asked again
        done = self._under_way[key] = asyncio.Event()
        try:
            return await self._fresh(request, key, content, splits)
        finally:
            del self._under_way[key]
            done.set()

    async def _fresh(self, request: Request, key: str, content: str, splits: bool) -> _Answer:
        messages = request.messages
        fault, first = "", 0
        try:
            for attempt in range(2):
                reply = await self._desk.ask(request)
                first = first or reply.prompt_tokens
                # The tokens of a piece are those of its first prompt, so that a fault that passes leaves no trace.
                reply = Reply(
                    reply.text, reply.finish, first, reply.completion_tokens, reply.cached_tokens, reply.queue_seconds
                )
                try:
                    answer = self._read(reply, first)
                except BadReplyError as error:
                    fault = str(error)
                    self._desk.keep(key, "corrupt", reply, fault, content)
                    request = self._request(prompts.again(messages, reply.text, fault))
                else:
                    self._desk.keep(key, "reply", reply, f"asked again: {fault}" if attempt else None, content)
                    return answer
            fault = f"{fault} (twice)"
        except RequestTooLongError as error:
            if splits:
                self._desk.keep(key, "long", Reply("", "", first, 0), str(error), content)
                raise
            fault = f"does not fit the context: {error}"
        except RequestRefusedError as error:
            fault = str(error)
        self._desk.keep(key, "failed", Reply("", "", first, 0), fault, content)
        return _Answer(None, (), fault, first, 0)

    def _request(self, messages: tuple[tuple[str, str], ...]) -> Request:
        question = self._question
        return Request(messages, question.task.SCHEMA, question.max_tokens, question.temperature)

    def _read(self, reply: Reply, prompt_tokens: int) -> _Answer:
        value, repairs = parse(reply.text, reply.finish)
        missing = [name for name in self._question.task.SCHEMA["required"] if name not in value]
        broken = [repair for repair in repairs if repair not in WRAPPED]
        if broken and missing and reply.finish != "length":
            # Broken JSON that lacks fields lost something; where a limit cut it, asking again would not help.
            raise BadReplyError(f"{broken[0]}, and lacks {', '.join(missing)}")
        record, more = self._question.task.read(value)
        return _Answer(record, (*repairs, *more), None, prompt_tokens, reply.completion_tokens)

    def _result(self, answers: Sequence[_Answer]) -> Result:
        task = self._question.task
        spent = sum(a.prompt_tokens for a in answers), sum(a.completion_tokens for a in answers)
        faults = [
            a.fault if len(answers) == 1 else f"part {n} of {len(answers)}: {a.fault}"
            for n, a in enumerate(answers, 1)
            if a.fault is not None
        ]
        records = [a.record for a in answers if a.fault is None]
        if not records:
            return Result(None, "failed", told(faults), *spent)
        record = records[0] if len(records) == 1 else task.merge(records)
        error = told([*faults, *(repair for a in answers for repair in a.repairs)])
        if task.is_empty(record):
            return Result(record, "empty", error or "the reply names nothing", *spent)
        return Result(record, "repaired" if error else "ok", error, *spent)


def split(text: str, room: int, desk: Desk) -> list[str]:
    """Split a text into parts of at most `room` tokens, at ends of lines, sentences or words where there are any."""
    if len(text) < SMALLEST_PART or desk.count(text) <= room:
        return [text]
    wanted = max(SMALLEST_PART // 2, int(len(text) * room / max(1, desk.count(text)) * 0.9))
    return [piece for part in _chunks(text, wanted) for piece in (split(part, room, desk) if part != text else [part])]


def _chunks(text: str, size: int) -> Iterator[str]:
    start = 0
    while len(text) - start > size:
        end = _border(text, start + size // 2, start + size)
        yield text[start:end]
        start = end
    yield text[start:]


def _border(text: str, low: int, high: int) -> int:
    """Return where to cut between two places: after a line, else a sentence, else a word, else at the end."""
    for mark in ("\n", ". ", "。", "? ", "! ", " "):
        found = text.rfind(mark, low, high)
        if found >= 0:
            return found + len(mark)
    return high


def halve(text: str) -> list[str]:
    """Cut a text near its middle."""
    end = _border(text, len(text) // 3, len(text) // 2 + 1)
    return [text[:end], text[end:]]
