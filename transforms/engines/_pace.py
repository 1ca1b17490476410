"""When requests to an endpoint may be sent, and whose fault failures are. Callers tell the time; no clock is read."""

from __future__ import annotations

import random
from dataclasses import dataclass


class Gate:
    """All requests wait together after an answer that says "too many".

    Where the endpoint names no time, pauses double as long as most answers are of that kind.

    Attributes:
        opens: Time from which requests may be sent.
    """

    def __init__(self) -> None:
        self.opens = 0.0
        self._level = 0
        self._good = self._busy = 0

    def good(self) -> None:
        """Note a usable answer."""
        self._good += 1

    def busy(self, sent: float, now: float, wait: float | None, limit: float) -> None:
        """Note that a request came too soon.

        Args:
            sent: Time when it was sent.
            now: Time of the answer.
            wait: Seconds that the endpoint asks for; None where it names none.
            limit: Seconds to wait at most.
        """
        self._busy += 1
        if wait is None:
            if sent < self.opens:  # it was on its way when the gate closed
                return
            self._level = min(self._level + 1, 7) if self._busy > self._good else 0
            self._good = self._busy = 0
            wait = random.uniform(0.25, 0.5) * 2**self._level
        self.opens = max(self.opens, now + min(wait, limit))


@dataclass(slots=True)
class Strikes:
    """Failures of one request.

    Attributes:
        count: How many there were.
        answers: Usable answers to anybody before the first.
        failures: Failures of anybody before the first.
    """

    count: int = 0
    answers: int = 0
    failures: int = 0

    def pause(self) -> float:
        """Return seconds until the next attempt: full jitter below half a second, one, two, ... thirty."""
        return random.uniform(0, min(30.0, 0.25 * 2 ** min(self.count, 10)))


class Health:
    """How an endpoint fares."""

    def __init__(self) -> None:
        self._answers = self._failures = 0
        self._since: float | None = None

    def good(self) -> None:
        """Note a usable answer."""
        self._answers += 1
        self._since = None

    def bad(self, strikes: Strikes, now: float) -> None:
        """Note a failure, of the request that `strikes` belongs to."""
        if self._since is None:
            self._since = now
        if strikes.count == 0:
            strikes.answers, strikes.failures = self._answers, self._failures
        strikes.count += 1
        self._failures += 1

    def trouble(self, now: float) -> float:
        """Return the seconds since the first failure that no usable answer has followed."""
        return 0.0 if self._since is None else now - self._since

    def alone(self, strikes: Strikes) -> bool:
        """Tell whether the request is to blame: by the others' rate of failure meanwhile, its own are no chance.

        The rate is smoothed after Laplace; the limit is one in a million.
        """
        answers = self._answers - strikes.answers
        failures = self._failures - strikes.failures - strikes.count
        share = (failures + 1) / (answers + failures + 2)
        return bool(strikes.count >= 5 and answers > 0 and share**strikes.count < 1e-6)
