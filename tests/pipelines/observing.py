"""Helpers of the tests that watch a run."""

from dataclasses import replace

from pipelines.progress import Silent
from pipelines.stage import load_stage


class Peeking(Silent):
    """Calls a function whenever something is done, while the run is at work."""

    def __init__(self, peek):
        self.peek = peek

    def advance(self, pieces, rows):
        self.peek()


def poison(monkeypatch, name, shard, error=None):
    """Let a stage fail on a shard, in this process."""

    def load(wanted):
        stage = load_stage(wanted)
        if wanted != name:
            return stage

        def process(inputs, units):
            if any(number == shard for parts in inputs.parts.values() for number, _ in parts):
                raise error or ValueError("this shard is poison")
            return stage.process(inputs, units)

        return replace(stage, process=process)

    monkeypatch.setattr("pipelines.work.load_stage", load)
