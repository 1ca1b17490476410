"""The terms of one case so far (tags, concept labels, titles of entities), and those that fit into a prompt."""

from __future__ import annotations

import math
import re
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator

from transforms.tokens import tokenize_one

_ASCII = re.compile(r"[a-z0-9]+")
_LONGEST_TERM = 120
_LONGEST_TEXT = 1 << 15
_CLOCK_BITS = 48
_LOOKED_AT = 256
"""Postings read for one excerpt, those of the rarest tokens first; or one for each token of the budget, if more."""


class Vocabulary:
    """Terms with how often and how lately they were used, found by the tokens that they share with a text."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._terms: list[str] = []
        # Uses of each term, and below them the time of the last one: larger is better, no two are equal.
        self._standing: list[int] = []
        self._postings: dict[str, list[int]] = {}
        # Terms by number of uses, the latest last; the counts that occur are kept sorted.
        self._by_uses: dict[int, dict[int, None]] = {}
        self._counts: list[int] = []
        self._clock = 0
        self._costs: list[int | None] = []
        self._counter: Callable[[str], int] | None = None

    def __len__(self) -> int:
        return len(self._terms)

    def add(self, terms: Iterable[str]) -> None:
        """Count one use of each term; white space in them is collapsed, and what passes 120 characters is cut off."""
        for raw in terms:
            term = " ".join(raw[: 4 * _LONGEST_TERM].split())[:_LONGEST_TERM].rstrip()
            if not term:
                continue
            number = self._numbers.get(term)
            if number is None:
                number = self._numbers[term] = len(self._terms)
                self._terms.append(term)
                self._standing.append(0)
                self._costs.append(None)
                for token in _tokens(term):
                    self._postings.setdefault(token, []).append(number)
            self._use(number)

    def _use(self, number: int) -> None:
        uses = self._standing[number] >> _CLOCK_BITS
        if uses:
            del self._by_uses[uses][number]
            if not self._by_uses[uses]:
                del self._by_uses[uses]
                del self._counts[bisect_left(self._counts, uses)]
        uses += 1
        if uses not in self._by_uses:
            self._by_uses[uses] = {}
            insort(self._counts, uses)
        self._by_uses[uses][number] = None
        self._clock += 1
        self._standing[number] = (uses << _CLOCK_BITS) + self._clock

    def excerpt(self, text: str, budget: int, count: Callable[[str], int]) -> str:
        """Return the terms that serve a text best, one a line, in order of code points.

        Terms that share tokens with the text come first: each shared token weighs ln(1 + terms / terms that have it).
        Then come those used most often, and among these the latest.

        Args:
            text: What the prompt is about.
            budget: Tokens that the excerpt may take.
            count: Returns the tokens of a string. It is asked once for each term that is considered, and then about
                the excerpt as a whole.

        Returns:
            The excerpt, of at most `budget` tokens; empty where nothing fits.
        """
        if budget <= 0 or not self._terms:
            return ""
        if count != self._counter:
            self._counter, self._costs = count, [None] * len(self._terms)
        chosen: list[int] = []
        spent = 0
        misfits = 0
        for number in self._ranked(text, max(budget, _LOOKED_AT)):
            cost = self._costs[number]
            if cost is None:
                cost = self._costs[number] = max(count(self._terms[number] + "\n"), 1)
            if spent + cost <= budget:
                chosen.append(number)
                spent += cost
            else:
                misfits += 1
            if spent == budget or misfits == 8:  # by then what is left of the budget is small change
                break
        # Tokens of the parts need not add up to those of the whole.
        while chosen:
            shown = "\n".join(sorted(self._terms[number] for number in chosen))
            size = count(shown)
            if size <= budget:
                return shown
            del chosen[min(len(chosen) - 1, len(chosen) * budget // size) :]
        return ""

    def _ranked(self, text: str, room: int) -> Iterator[int]:
        scores = self._scores(text, room)
        standing = [self._standing[number] for number in scores]
        for _, _, number in sorted(zip(scores.values(), standing, scores, strict=True), reverse=True):
            yield number
        for uses in reversed(self._counts):
            for number in reversed(self._by_uses[uses]):
                if number not in scores:
                    yield number

    def _scores(self, text: str, room: int) -> dict[int, float]:
        found = [(token, self._postings[token]) for token in _tokens(text[:_LONGEST_TEXT]) if token in self._postings]
        found.sort(key=lambda one: len(one[1]))  # stable: equally rare tokens stay in order of the text
        scores: dict[int, float] = {}
        known = scores.get
        for _, numbers in found:
            weight = math.log1p(len(self._terms) / len(numbers))
            for number in numbers[-room:]:
                scores[number] = known(number, 0.0) + weight
            room -= len(numbers)
            if room <= 0:
                break
        return scores


def _tokens(text: str) -> list[str]:
    """Return the distinct tokens of a text, plurals without their ending, in order of appearance."""
    found = _ASCII.findall(text.lower()) if text.isascii() else tokenize_one(text.replace("_", " "))
    distinct = dict.fromkeys(found)
    return list(dict.fromkeys(t[:-1] if t[-1] == "s" and len(t) > 3 and t[-2] != "s" else t for t in distinct))
