"""Errors of Beam workers reach the user typed, whole, and without a traceback, in this process and out of it."""

from pathlib import Path

import pytest

from pipelines import beam_engine
from pipelines.progress import Silent
from schemas.errors import InputError, TagloomError

PROCESSES = {"runner": "DirectRunner", "direct_running_mode": "multi_processing", "direct_num_workers": 2}


def refuse(item):
    raise InputError("is odd", where="a/file.jsonl", remedy="Mend it.")


def fail(item):
    raise ZeroDivisionError("one by\nnought")


@pytest.mark.parametrize("beam", [{}, PROCESSES])
def test_typed_errors_arrive_whole(beam, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).resolve().parents[2]))  # workers find this module
    with pytest.raises(InputError) as caught:
        beam_engine.run_map([1], refuse, beam, "step", Silent(), lambda item: (0, 0))
    assert str(caught.value) == "a/file.jsonl: is odd\n  Mend it."


def test_faults_of_ours_say_so():
    with pytest.raises(TagloomError) as caught:
        beam_engine.run_map([1], fail, {}, "step", Silent(), lambda item: (0, 0))
    assert "ZeroDivisionError: one by" in str(caught.value)
    assert "Traceback" not in str(caught.value)


def test_nothing_to_do_starts_nothing():
    beam_engine.run_map([], fail, {}, "step", Silent(), lambda item: (0, 0))
