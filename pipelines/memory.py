"""A memory of one case: `remember` and `query`, on the same code as the batch pipeline, for that case alone."""

from __future__ import annotations

import io
import time
import uuid
import weakref
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import filelock
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indexers.presets import Preset
from pipelines import ingest_read, query
from pipelines.driver import MEMORY, OWN_FORMAT, continued, starting_point
from pipelines.embed import QUESTIONS
from pipelines.fragment_files import read_fragments, shard_batches, source_manifest
from pipelines.held import Held, make
from pipelines.lock import writing
from pipelines.rank import named, with_preset
from pipelines.sources import Source
from pipelines.stage import Output
from pipelines.storage import Storage
from pipelines.store import Store, refuse_foreign
from pipelines.work import Loop
from schemas.config import RunConfig
from schemas.errors import LockedError, UsageError
from schemas.ids import canonical_json, escape_id, shard_of
from transforms.fragments import FragmentTables, fragments
from transforms.merge import Merged, merge
from transforms.text import clean

SHARDS = 8
"""Shards of a corpus that a memory makes."""


@dataclass(frozen=True)
class Hit:
    """One interaction that was found.

    Attributes:
        rank: From 1.
        score: The preset's score.
        interaction_id: Its id within the case.
        session_id: The conversation that it is part of.
        started_at: When it began (UTC), or None.
        text: What was said.
    """

    rank: int
    score: float
    interaction_id: str
    session_id: str
    started_at: datetime | None
    text: str


class Memory:
    """One case that grows while it is asked.

    What is told goes to a log in the corpus at once. A query builds this case, and no other, from its interactions in
    the corpus and the log; the next `tagloom run` takes the log in like any other input.
    """

    def __init__(self, uri: str, case: str, *, generation: str = "main", wait: float = 10.0) -> None:
        """Open a memory; the corpus is made where there is none.

        Args:
            uri: Corpus, as for `open_corpus`.
            case: The case.
            generation: Generation whose inputs and settings count.
            wait: Seconds to wait while a run holds the corpus.

        Raises:
            StoreError: The corpus cannot be opened or made.
            LockedError: Another process makes it, for longer than `wait`.
            UsageError: The case has no name.
        """
        if not isinstance(case, str) or not case.strip():
            raise UsageError("a memory needs the name of a case, as text", where="case")
        self.case = clean(case)
        self._name = generation
        self._wait = wait
        storage = Storage(uri)
        if storage.exists("corpus.json"):
            self._store = Store.open(uri)
        else:
            refuse_foreign(storage)
            with writing(storage, wait):
                self._store = Store.create(uri, SHARDS)
        self._loop: Loop | None = None
        self._log = f"{MEMORY}{escape_id(case)}.jsonl"
        self._built: tuple[object, Held] | None = None

    def remember(
        self, user: str, assistant: str = "", *, at: datetime | None = None, session: str | None = None
    ) -> None:
        """Add one interaction; it is on storage when this returns.

        Args:
            user: What the user said.
            assistant: What the assistant answered.
            at: When; now by default. A naive time is taken as UTC.
            session: Conversation that it is part of; by default one of its own.

        Raises:
            UsageError: Both texts are empty, or an argument is of the wrong kind.
            StoreError: It cannot be written.
            LockedError: Another process writes to this memory for longer than `wait`.
        """
        said = [clean(_text(text, where)) for text, where in ((user, "user"), (assistant, "assistant"))]
        if not any(text.strip() for text in said):
            raise UsageError("nothing to remember: both texts are empty", where="Memory.remember")
        moment = at or datetime.now(UTC)
        if not isinstance(moment, datetime):
            raise UsageError(f"'{at}' is no datetime", where="at", remedy="Use datetime.fromisoformat(...).")
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        with self._alone():
            deadline = time.monotonic() + self._wait
            while not self._added(session, moment, said):  # an object store has no lock: another process was faster
                if time.monotonic() > deadline:
                    raise self._held_by_another()

    def _added(self, session: str | None, moment: datetime, said: Sequence[str]) -> bool:
        """Add an interaction to the log as it is now; tell whether it still was so."""
        before = self._told()
        lines = before.count(b"\n") + (not before.endswith(b"\n") and bool(before))
        roles = zip(("user", "assistant"), said, strict=True)
        line = canonical_json(
            {
                "case_id": self.case,
                "entry": uuid.uuid4().hex,  # nobody reads it: two processes that add the same do not take it for one
                "session_id": session or f"memory-{lines + 1:06d}",
                "started_at": moment.isoformat(),
                "messages": [
                    {"role": role, "content": text, "id": f"memory-{lines + 1:06d}:{n}"}
                    for n, (role, text) in enumerate(roles)
                    if text
                ],
            }
        )
        gap = b"" if not before or before.endswith(b"\n") else b"\n"
        return self._store.storage.append(self._log, before, gap + line + b"\n")

    def query(self, text: str, k: int = 10, retriever: str = "bm25") -> list[Hit]:
        """Return the best interactions for a question, best first.

        Raises:
            UsageError: There is no such preset.
        """
        config = self._config()
        preset = named(config, retriever)
        held = self._case(config, preset)
        interactions = held.table("ingest", "interactions")
        if not interactions.num_rows:
            return []
        found = query.search(config, preset, interactions, text, held.table, k)
        return [Hit(**row) for row in found.to_pylist()]

    def __len__(self) -> int:
        """Number of interactions."""
        return int(self._merged(self._config()).interactions.num_rows)

    def close(self) -> None:
        """End what an engine holds, where the generation's extractor is one."""
        if self._loop is not None:
            self._loop.close()
            self._loop = None

    def __enter__(self) -> Memory:
        """Return the memory."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def _finish(self, made: Awaitable[Sequence[Output]]) -> Sequence[Output]:
        """Wait for a stage; what it opened stays open for the next question."""
        if self._loop is None:
            self._loop = Loop()
            weakref.finalize(self, self._loop.close)
        return self._loop.run(made)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep other writers of this very log away; runs read the log up to where it ended when they began."""
        folder = self._store.storage.local
        if folder is None:
            yield
            return
        (folder / MEMORY).mkdir(exist_ok=True)
        lock = filelock.FileLock(folder / MEMORY / f".{escape_id(self.case)}.lock", timeout=self._wait)
        try:
            with lock:
                yield
        except filelock.Timeout:
            raise self._held_by_another() from None

    def _held_by_another(self) -> LockedError:
        return LockedError(
            "another process writes to this memory", where=self._store.storage.path(self._log), remedy="Try again."
        )

    def _told(self) -> bytes:
        return self._store.storage.find(self._log) or b""

    def _head(self) -> Mapping[str, Any]:
        return self._store.heads().get(self._name, {})

    def _config(self) -> RunConfig:
        before = starting_point(self._store, self._name)
        return continued(RunConfig.model_validate({"corpus": self._store.storage.uri}), before, True)

    def _merged(self, config: RunConfig) -> Merged:
        found: list[FragmentTables] = []
        storage = self._store.storage
        shard = shard_of(self.case, self._store.shards)
        kept = [
            key
            for key in self._head().get("sources", [])
            if source_manifest(storage, key)["source"]["name"] != self._log
        ]
        for fragment in read_fragments(storage, shard_batches(storage, kept).get(shard, [])):
            found.append(_of_case(fragment, self.case))
        told = self._told()
        log = Source(self._log, self._log, len(told), "", OWN_FORMAT)
        reading = ingest_read.open_source(io.BytesIO(told), log, config.ingest)
        limit = config.ingest.split_mb << 20
        for group in fragments(reading.records, self._log, reading.unit, self._store.shards, limit):
            found.extend(tables for number, tables in group.items() if number == shard)
        return merge(found)

    def _case(self, config: RunConfig, preset: Preset) -> Held:
        """Build what a preset needs of this case, unless it is built and nothing changed since."""
        mark = (self._told(), tuple(self._head().get("sources", [])), config)
        if self._built is None or self._built[0] != mark:
            merged = self._merged(config)
            tables = {("ingest", "interactions"): merged.interactions}
            self._built = (mark, Held(self._store, {}, tables))
        held = self._built[1]
        if held.table("ingest", "interactions").num_rows:
            wanted = [unit for unit in preset.units if unit != QUESTIONS]
            make(with_preset(config, preset), held, wanted, shard_of(self.case, self._store.shards), self._finish)
        return held


def _text(value: object, where: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise UsageError(f"{value!r} is no text", where=where)
    return value


def _of_case(fragment: FragmentTables, case: str) -> FragmentTables:
    """Return what a fragment holds of one case."""
    mine = pc.equal(fragment.sessions["case_id"], case)
    rows = np.repeat(np.asarray(mine), np.asarray(fragment.sessions["rows"]))
    return FragmentTables(
        fragment.sessions.filter(mine),
        fragment.interactions.filter(pa.array(rows)),
        fragment.questions.filter(pc.equal(fragment.questions["case_id"], case)),
        fragment.rejects.slice(0, 0),
    )
