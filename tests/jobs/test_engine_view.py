"""What is told of an engine while it works."""

import pytest

from jobs.console import engine_line
from pipelines.spent import BudgetError, Spent


def snapshot(name, **counts):
    return {"id": name, "in_flight": 3, "slots": 4, "counts": {k.replace("__", "."): v for k, v in counts.items()}}


def test_counts_of_workers_that_are_gone_stay_in_the_sum():
    spent = Spent(pieces=10)
    spent.take([snapshot("a", requests=2, pieces__ok=2), snapshot("b", requests=1, pieces__failed=1)])
    spent.take([snapshot("b", requests=4, pieces__failed=2, failed__refusal=2)])
    assert (spent.count("requests"), spent.done, spent.in_flight, spent.slots) == (6, 4, 3, 4)
    assert spent.group("failed") == {"refusal": 2}


def test_a_line_tells_work_failures_and_time_left():
    spent = Spent(pieces=10)
    spent.take(
        [snapshot("a", requests=5, prompt_tokens=100, cached_tokens=25, pieces__ok=5, retried__429=2, journal=1)]
    )
    line = engine_line(spent)
    assert line.startswith("5 of 10 pieces; ")
    assert "3 of 4 slots busy; 25% of prompts from cache; 1 from the journal; tried again: 429 2; " in line
    assert line.endswith(" left")
    assert engine_line(Spent()).startswith("0 pieces; ")


def test_a_budget_is_tokens_of_prompts_and_replies():
    spent = Spent(budget=10)
    spent.take([snapshot("a", prompt_tokens=6, completion_tokens=3)])
    with pytest.raises(BudgetError, match="10 tokens"):
        spent.take([snapshot("a", prompt_tokens=6, completion_tokens=4)])
