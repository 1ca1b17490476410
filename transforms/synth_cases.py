"""Synthetic conversation logs with planted questions, from a seed.

Every case is the log of one user: small talk with an assistant, and between it chains of events. A introduces B to
the user at a venue; B introduces C at another one and recommends a book; C recommends a book. Multi-hop questions name
one end of a chain and ask for the other; beyond the first hop, the evidence shares no content word with the question.
With the logs comes the truth that they tell: who and what each interaction names, who introduced and recommended what.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import numpy as np

from transforms import synth_words as words
from transforms.records import Message, Question, Session

CHAPTER = 2_000
"""Interactions that are held at once; people and chains stay within one chapter of a case."""

_PER_CHAIN = 100
_PEOPLE = 4
_ASKED = 8
_DRAWS = 8
_EPOCH = datetime(2014, 1, 6, 7, tzinfo=UTC)

KINDS = {"p": "person", "w": "place", "x": "thing"}
"""Slot of a mention -> kind of what it names."""

_SLOT = re.compile(r"\{(\w)\}")
_Banks = dict[str, tuple[str, ...]]
_Frame = tuple[str, str]


class Event(NamedTuple):
    """Something that a question can ask for: who does what, where, with which word, and the message that tells it."""

    who: str
    what: str
    venue: str
    cue: str
    text: str
    place: int


class Truth(NamedTuple):
    """What one interaction tells of the world, as the generator knows it.

    Attributes:
        interaction_id: Id that the interaction has where a user's message and its answer are one (unit ``exchange``).
        entities: (full name, kind) of the people, places and things that it names, in order, each once.
        relations: (source, target, kind, venue or "") of the event that it tells, if any.
    """

    case_id: str
    interaction_id: str
    entities: tuple[tuple[str, str], ...]
    relations: tuple[tuple[str, str, str, str], ...]


Record = Session | Question | Truth


def _raw(*key: int) -> np.random.PCG64:
    # Raw output of the bit generator is the only stream that numpy promises never to change.
    return np.random.PCG64(np.random.SeedSequence(key))


def _shuffled(items: Sequence[str], bits: np.random.PCG64) -> list[str]:
    order = np.argsort(bits.random_raw(len(items)), kind="stable")
    return [items[n] for n in order.tolist()]


def _frame(text: str) -> _Frame:
    text = text.strip()
    return _SLOT.sub("%s", text.replace("%", "%%")), "".join(_SLOT.findall(text))


def _makers() -> tuple[str, ...]:
    """Return 4,000 invented makers' names."""
    return tuple(
        (h + m + t).capitalize() for t in words.MAKER_ENDS for m in words.MAKER_MIDDLES for h in words.MAKER_STARTS
    )


_USER = tuple(_frame(text) for text in words.USER_FRAMES)
_ASSISTANT = tuple(_frame(text) for text in words.ASSISTANT_FRAMES)
_MENTION = tuple(_frame(text) for text in words.MENTION_FRAMES)
_MAKERS = _makers()
_TOPICS: tuple[_Banks, ...] = tuple(
    {**words.COMMON, **topic, "m": topic["n"][::-1], "b": topic["a"][::-1], "g": _MAKERS, "h": _MAKERS[::-1]}
    for topic in words.TOPICS
)


def _sentence(frames: tuple[_Frame, ...], banks: _Banks, bits: int) -> tuple[str, list[tuple[str, str]]]:
    """Return a sentence, and (slot, word) of each slot."""
    bits, number = divmod(bits, len(frames))
    text, slots = frames[number]
    chosen = []
    for slot in slots:
        bank = banks[slot]
        bits, number = divmod(bits, len(bank))
        chosen.append((slot, bank[number]))
    made = text % tuple(word for _, word in chosen)
    return made[0].upper() + made[1:], chosen


class Case:
    """One case: its names, its calendar, and its chapters.

    Args:
        seed: Seed of the corpus.
        number: Number of the case in the corpus.
        size: Its interactions.
    """

    def __init__(self, seed: int, number: int, size: int) -> None:
        self.key = (seed, number, size)
        self.size = size
        self.case_id = f"user-{number:06d}"
        bits = _raw(*self.key)
        self.first = _shuffled(words.FIRST_NAMES, bits)
        self.last = _shuffled(words.LAST_NAMES, bits)
        self.venues = (_shuffled(words.VENUE_FIRST, bits), _shuffled(words.VENUE_SECOND, bits))
        self.titles = (_shuffled(words.TITLE_FIRST, bits), _shuffled(words.TITLE_SECOND, bits))
        self.start = _EPOCH + timedelta(days=int(bits.random_raw() % 700))
        self.seconds = int(min(3_650, max(60, size * 1.5)) * 86_400)
        self.sessions = 0
        self.questions = 0

    def records(self) -> Iterator[Record]:
        """Yield the sessions of each chapter, each with the truth of its interactions, then its questions."""
        for first in range(0, self.size, CHAPTER):
            yield from self._chapter(first, min(CHAPTER, self.size - first))

    def _chapter(self, first: int, size: int) -> Iterator[Record]:
        bits = _raw(*self.key, first + 1)
        chains = 0 if size < 4 else max(1, size // _PER_CHAIN)
        # No two chapters of a case share a name.
        name = first // CHAPTER * _PEOPLE * CHAPTER // _PER_CHAIN
        people = [self._person(name + n) for n in range(_PEOPLE * max(chains, 1))]
        venues = [self._venue(name + n) for n in range(2 * max(chains, 1))]
        books = [self._book(name + n) for n in range(2 * max(chains, 1))]
        draws = bits.random_raw(size * _DRAWS).tolist()
        plots = [
            _plot(people[_PEOPLE * n :][:3], venues[2 * n : 2 * n + 2], books[2 * n : 2 * n + 2], bits)
            for n in range(chains)
        ]
        told = _places(plots, size, bits)
        known = (*people, *(person.split()[0] for person in people))
        names = {"p": known, "w": tuple(venues), "x": tuple(books)}
        topics = tuple({**banks, **names} for banks in _TOPICS)
        full = {person.split()[0]: person for person in people}
        at: list[tuple[str, str, datetime]] = []
        done = 0
        while done < size:
            length = min(3 + draws[done * _DRAWS] % 7, size - done)
            session_id = f"s{self.sessions:07d}"
            self.sessions += 1
            late = (draws[done * _DRAWS] >> 8) % (self.seconds // self.size)
            moment = self.start + timedelta(seconds=self.seconds * (first + done) // self.size + late)
            messages = []
            truths = []
            for place in range(done, done + length):
                user, assistant, mentions = _exchange(draws, place, topics, told.get(place))
                own = f"{session_id}:{2 * (place - done)}"
                messages.append(Message("user", user, None, None, own))
                messages.append(Message("assistant", assistant, None, None, f"{session_id}:{2 * (place - done) + 1}"))
                at.append((session_id, own, moment))
                named = [(full.get(word, word), KINDS[slot]) for slot, word in mentions if slot in KINDS]
                truths.append(_truth(self.case_id, f"{session_id}/{place - done}", told.get(place), named))
            yield Session(self.case_id, session_id, messages, moment)
            yield from (truth for truth in truths if truth.entities)
            done += length
        for n, chain in enumerate(plots[:_ASKED]):
            for asked in _questions(chain, people[_PEOPLE * n + 3], at, bits):
                yield self._question(*asked, at)

    def _question(
        self, kind: str, text: str, answer: str | None, gold: list[Event], at: list[tuple[str, str, datetime]]
    ) -> Question:
        self.questions += 1
        places = sorted(event.place for event in gold)
        return Question(
            self.case_id,
            f"q{self.questions:06d}",
            text,
            kind,
            self.start + timedelta(seconds=self.seconds, days=1),
            answer,
            list(dict.fromkeys(at[place][0] for place in places)),
            [at[place][1] for place in places],
            answerable=bool(gold),
        )

    def _person(self, number: int) -> str:
        first, last = _pair(number, self.first, self.last)
        again = number // (len(self.first) * len(self.last))
        return f"{first} {chr(64 + again)}. {last}" if again else f"{first} {last}"

    def _venue(self, number: int) -> str:
        kind = words.VENUE_KINDS[number % len(words.VENUE_KINDS)]
        return " ".join((*_pair(number, *self.venues), kind)) + _again(number, self.venues, " {}")

    def _book(self, number: int) -> str:
        return "The " + " ".join(_pair(number, *self.titles)) + _again(number, self.titles, ", volume {}")


def _pair(number: int, first: Sequence[str], second: Sequence[str]) -> tuple[str, str]:
    # Distinct numbers below len(first) * len(second) give distinct pairs, near ones differ in both words.
    return first[number % len(first)], second[(number + number // len(first)) % len(second)]


def _again(number: int, banks: tuple[Sequence[str], Sequence[str]], form: str) -> str:
    time = number // (len(banks[0]) * len(banks[1])) + 1
    return form.format(time) if time > 1 else ""


def _plot(people: list[str], venues: list[str], books: list[str], bits: np.random.PCG64) -> list[Event]:
    """Return the four events of a chain in order of time: two introductions, two recommendations."""
    a, b, c = people
    chosen = [int(n) for n in bits.random_raw(4)]

    def introduction(who: str, what: str, venue: str, draw: int) -> Event:
        cue, text = words.INTRODUCED[draw % len(words.INTRODUCED)]
        return Event(who, what, venue, cue, text.format(a=who, b=what, v=venue), 0)

    def recommendation(who: str, book: str, draw: int) -> Event:
        cue, text = words.RECOMMENDED[draw % len(words.RECOMMENDED)]
        return Event(who, book, "", cue, text.format(a=who, x=book), 0)

    return [
        introduction(a, b, venues[0], chosen[0]),
        introduction(b, c, venues[1], chosen[1]),
        recommendation(b, books[0], chosen[2]),
        recommendation(c, books[1], chosen[3]),
    ]


def _places(plots: list[list[Event]], size: int, bits: np.random.PCG64) -> dict[int, Event]:
    """Give every event a place of its own in the chapter: the n-th of each chain lies in the n-th quarter."""
    told: dict[int, Event] = {}
    quarter = size // 4
    for plot in plots:
        for n, event in enumerate(plot):
            offset = int(bits.random_raw() % quarter)
            while n * quarter + offset in told:
                offset = (offset + 1) % quarter
            plot[n] = told[n * quarter + offset] = event._replace(place=n * quarter + offset)
    return told


def _exchange(
    draws: list[int], place: int, topics: tuple[_Banks, ...], event: Event | None
) -> tuple[str, str, list[tuple[str, str]]]:
    """Return what user and assistant say, and (slot, word) of what the user's second sentence mentions."""
    at = place * _DRAWS
    pick = draws[at + 1]
    pick, number = divmod(pick, len(topics))
    banks = topics[number]
    user = [_sentence(_USER, banks, draws[at + 2])[0]]
    mentions: list[tuple[str, str]] = []
    pick, number = divmod(pick, 10)
    if event is not None:
        user.insert(number % 2, event.text)
    elif number < 4:
        text, mentions = _sentence(_MENTION, banks, draws[at + 3])
        user.append(text)
    elif number < 8:
        user.append(_sentence(_USER, banks, draws[at + 3])[0])
    assistant = [_sentence(_ASSISTANT, banks, draws[at + 4])[0]]
    for n in range(pick % 3):
        assistant.append(_sentence(_ASSISTANT, banks, draws[at + 5 + n])[0])
    return " ".join(user), " ".join(assistant), mentions


def _truth(case_id: str, interaction_id: str, event: Event | None, named: list[tuple[str, str]]) -> Truth:
    if event is None:
        return Truth(case_id, interaction_id, tuple(dict.fromkeys(named)), ())
    if event.venue:
        named = [(event.who, "person"), (event.what, "person"), (event.venue, "place")]
        relation = (event.who, event.what, "introduced", event.venue)
    else:
        named = [(event.who, "person"), (event.what, "thing")]
        relation = (event.who, event.what, "recommended", "")
    return Truth(case_id, interaction_id, tuple(named), (relation,))


def _questions(
    chain: list[Event], stranger: str, at: list[tuple[str, str, datetime]], bits: np.random.PCG64
) -> Iterator[tuple[str, str, str | None, list[Event]]]:
    """Yield type, text, answer and evidence of the questions of one chain."""
    one, two, near, far = chain
    draw = int(bits.random_raw())
    met = "was introduced to" if "introduced" not in (one.cue, two.cue) else "met"
    told = "recommended" if "recommended" not in (near.cue, far.cue) else "suggested"
    yield (
        "single-hop",
        f"Where did I get acquainted with {one.what} through {one.who}?",
        one.venue,
        [one],
    )
    if draw % 8:
        text = f"{one.who} took me to the {one.venue}. Through the person I {met} there I {met} another one."
        yield "multi-hop-recommendation", f"{text} Which book was {told} by the latter?", far.what, [one, two, far]
    else:
        text = f"Which book was {told} by the person I {met} through {one.who} in the {one.venue}?"
        yield "multi-hop-recommendation", text, near.what, [one, near]
    if draw // 8 % 8:
        text = f"Who made me meet the person through whom I {met} the one that {told} {far.what}?"
        yield "multi-hop-introduction", text, one.who, [one, two, far]
    else:
        yield (
            "multi-hop-introduction",
            f"In which place had I {met} the one that {told} {far.what}?",
            two.venue,
            [two, far],
        )
    if draw // 64 % 2:
        text, month = f"In which month was {far.what} {told} by {far.who}?", at[far.place][2].strftime("%B %Y")
        yield "temporal", text, month, [far]
    else:
        either, other = (near, far) if draw // 128 % 2 else (far, near)
        text = f"Which book was {told} earlier, {either.what} or {other.what}?"
        yield "temporal", text, near.what, [near, far]
    yield "unanswerable", f"Where did I get acquainted with {stranger} through {one.who}?", None, []
