"""An extractor of another distribution that fails on chosen cases, for as long as a file says so.

Its notes are those of `lexical`. What it does wrong is in a file beside it and in no key, so a corpus that was made
under faults can be compared with one that was not.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pipelines import extract
from schemas import registry

SOURCE = '''
"""Fails as the file `faults.json` beside it says."""

import json
import os
import time
from pathlib import Path

from transforms.extractors import lexical

NAME, VERSION, Options = "poisoned", 1, lexical.Options
HERE = Path(__file__).parent


class Poisoned(lexical.LexicalExtractor):
    async def extract(self, interactions, ontology_window):
        cases = sorted(set(interactions["case_id"].to_pylist()))
        with (HERE / "tries").open("a") as log:
            log.write(f"{os.getpid()} {' '.join(cases)}\\n")
        if (HERE / "faults.json").exists():
            fault = json.loads((HERE / "faults.json").read_text())
            time.sleep(fault["seconds"])
            if fault["once"] and set(cases) & {*fault["ends"], *fault["raises"]}:
                (HERE / "faults.json").unlink()
            if set(cases) & set(fault["ends"]):
                os._exit(7)
            if set(cases) & set(fault["raises"]):
                raise RuntimeError(f"poison in {cases[0]}")
        return await super().extract(interactions, ontology_window)


def make(options):
    return Poisoned()
'''


class Poison:
    """The distribution, in a folder that goes on PYTHONPATH."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "poison_plugin.py").write_text(SOURCE)
        about = folder / "poison_plugin-1.0.dist-info"
        about.mkdir()
        (about / "METADATA").write_text("Metadata-Version: 2.1\nName: poison-plugin\nVersion: 1.0\n")
        (about / "entry_points.txt").write_text("[tagloom.extractors]\npoisoned = poison_plugin\n")

    def fail(self, *, raises: Sequence[str] = (), ends: Sequence[str] = (), once=False, seconds=0.0) -> None:
        """Raise, or end the process, on the shards of some cases; every shard takes some seconds besides."""
        told = {"raises": [*raises], "ends": [*ends], "once": once, "seconds": seconds}
        (self.folder / "faults.json").write_text(json.dumps(told))

    def heal(self) -> None:
        """Fail no more."""
        (self.folder / "faults.json").unlink(missing_ok=True)

    def tries(self) -> list[tuple[int, list[str]]]:
        """Return (process, cases) of every call so far, and forget them."""
        log = self.folder / "tries"
        lines = [line.split() for line in log.read_text().splitlines()] if log.exists() else []
        log.unlink(missing_ok=True)
        return [(int(pid), cases) for pid, *cases in lines]


@contextmanager
def installed(folder: Path, monkeypatch) -> Iterator[Poison]:
    """Make the extractor known in this process for the length of a block."""
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    _forget()
    yield Poison(folder)
    _forget()


def _forget() -> None:
    registry.theirs.cache_clear()
    extract._extractor.cache_clear()
    sys.modules.pop("poison_plugin", None)
