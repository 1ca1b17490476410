"""What engines did and used up during a run, added up over all workers and their restarts."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from schemas.errors import TagloomError


class BudgetError(TagloomError):
    """The run asked an engine for as many tokens as it may."""


@dataclass
class Spent:
    """Counts of one stage of one run.

    Attributes:
        pieces: Pieces that the missing parts have in all.
        budget: Tokens that the run may ask for; None sets no limit.
        earlier: Tokens that the run asked for before.
        base: Worker -> what it had counted before: one that is kept goes on counting.
    """

    pieces: int = 0
    budget: int | None = None
    earlier: int = 0
    base: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    in_flight: int = 0
    slots: int = 0
    _last: dict[str, Mapping[str, float]] = field(default_factory=dict)
    _total: dict[str, float] = field(default_factory=dict)
    _started: float = field(default_factory=time.monotonic)

    def take(self, snapshots: Iterable[Mapping[str, Any]], *, more: bool = True) -> None:
        """Take the latest counts of some workers; those of a worker that is gone stay in the sum.

        Args:
            snapshots: What the workers counted.
            more: False where nothing is left to ask for.

        Raises:
            BudgetError: The budget is used up, and there is more to ask for.
        """
        self.in_flight = self.slots = 0
        for one in snapshots:
            self._last[one["id"]] = one["counts"]
            self.in_flight += one["in_flight"]
            self.slots += one["slots"]
        total: dict[str, float] = {}
        for worker, counts in self._last.items():
            was = self.base.get(worker, {})
            for name, count in counts.items():
                total[name] = total.get(name, 0.0) + count - was.get(name, 0.0)
        self._total = total  # at once: whoever reads it from another thread must not see counters fall
        asked = self.earlier + self.tokens
        if more and self.budget is not None and asked >= self.budget:
            raise BudgetError(
                f"{asked:,} tokens were asked for; the budget is {self.budget:,}",
                where="extract.budget_tokens",
                remedy="Replies are kept. Raise the budget or choose fewer cases, then run the same command again.",
            )

    @property
    def counted(self) -> dict[str, Mapping[str, float]]:
        """Worker -> all that it has counted, also before this stage."""
        return {**self.base, **self._last}

    @property
    def seconds(self) -> float:
        """Seconds since the stage began."""
        return time.monotonic() - self._started

    def count(self, name: str) -> float:
        """Return one count."""
        return self._total.get(name, 0)

    def group(self, prefix: str) -> dict[str, float]:
        """Return the counts ``PREFIX.NAME`` by name, the largest first."""
        found = {k.partition(".")[2]: v for k, v in self._total.items() if k.startswith(prefix + ".")}
        return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))

    @property
    def tokens(self) -> int:
        """Tokens of prompts and replies."""
        return int(self.count("prompt_tokens") + self.count("completion_tokens"))

    @property
    def done(self) -> int:
        """Pieces done, whatever became of them."""
        return int(sum(self.group("pieces").values()))

    @property
    def occupancy(self) -> float:
        """Share of the engines' slots that were busy, on average, while they were open."""
        room = self.count("slot_seconds")
        return self.count("busy_slot_seconds") / room if room else 0.0

    def facts(self) -> dict[str, Any]:
        """Return plain data for a manifest."""
        whole = ("requests", "prompt_tokens", "completion_tokens", "cached_tokens", "corrupt", "engine_deaths")
        return {
            **{name: int(self.count(name)) for name in whole},
            "from_journal": int(self.count("journal")),
            "queue_seconds": round(self.count("queue_seconds"), 3),
            "occupancy": round(self.occupancy, 4),
            "retried": {name: int(n) for name, n in self.group("retried").items()},
            "failed": {name: int(n) for name, n in self.group("failed").items()},
        }
