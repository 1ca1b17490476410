"""Removes what no kept generation names: parts, fragments, manifests, and files that a kill left half-written.

The journal stays unless asked otherwise: what is in it was paid for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pipelines.journal import ROOT as JOURNAL
from pipelines.lock import writing
from pipelines.storage import is_temporary
from pipelines.store import Store, units_of
from schemas.errors import UsageError

ABANDONED = 86_400.0
"""Age in seconds of an upload in several pieces at which nobody can be at work on it any more."""


@dataclass(frozen=True)
class Swept:
    """What `gc` removed, or would remove.

    Attributes:
        files: Relative paths, in order.
        bytes: Their size in all.
        kept: Files that stay.
        uploads: Uploads in several pieces that were begun `ABANDONED` seconds ago or earlier and never finished (S3).
    """

    files: tuple[str, ...]
    bytes: int
    kept: int
    uploads: int = 0


def live_files(store: Store, heads: Mapping[str, Mapping[str, Any]]) -> set[str]:
    """Return the path of every file that some of these generations needs.

    Raises:
        StoreError: A manifest that a head names is missing or damaged; nothing may be removed then.
    """
    live = {"corpus.json", "heads.json", "lock.json", ".lock"}
    for head in heads.values():
        for unit, mark in units_of(head):
            live.add(store.manifest_path(unit, mark))
            for part in store.read_manifest(unit, mark).parts:
                live.update(store.part_path(table, part.shard, part.key) for table in part.tables)
        for name in head.get("config", {}).get("graph", {}).get("repairs", []):
            live.add(f"repairs/{name}.parquet")
        for key in head.get("sources", []):
            path = f"fragments/{key}/manifest.json"
            live.add(path)
            live.update(f"fragments/{key}/{file}" for file in store.storage.read_json(path)["files"])
    return live


def live_journals(store: Store, heads: Mapping[str, Mapping[str, Any]]) -> set[str]:
    """Return the extractors whose journal some of these generations was made with.

    Raises:
        StoreError: A manifest that a head names is missing or damaged.
    """
    units = {pair for head in heads.values() for pair in units_of(head)}
    return {name for unit, mark in units for name in store.read_manifest(unit, mark).run.get("journal", ())}


def gc(
    store: Store, *, dry_run: bool = False, drop: tuple[str, ...] = (), journal: bool = False, wait: float = 0.0
) -> Swept:
    """Remove files that no generation names.

    Args:
        store: The corpus.
        dry_run: Only tell.
        drop: Generations to forget first.
        journal: Also remove the replies of extractors that no kept generation was made with; those of a run that was
            stopped before its notes were whole are among them.
        wait: Seconds to wait while a run holds the corpus.

    Raises:
        UsageError: A generation to drop does not exist.
        StoreError: A live manifest is damaged.
        LockedError: A run holds the corpus, or took it while this one stood still: what is left then stays.
    """
    with writing(store.storage, wait) as held:
        heads = store.heads()
        if unknown := [name for name in drop if name not in heads]:
            raise UsageError(
                f"no generation is called '{unknown[0]}'",
                where=store.storage.uri,
                remedy=f"Generations here: {', '.join(sorted(heads)) or 'none'}.",
            )
        rest = {name: head for name, head in heads.items() if name not in drop}
        live = live_files(store, rest)
        asked = live_journals(store, rest) if journal else set()
        if drop and not dry_run:
            held.check()
            store.move_heads({}, drop)
        doomed, size, kept = [], 0, 0
        for path, bytes_ in store.storage.walk():
            managed = path.startswith(("tables/", "fragments/", "manifests/", "repairs/", "runs/aside/"))
            beside = path.startswith(("corpus.json.", "heads.json.", "lock.json.", "runs/")) and is_temporary(path)
            reply = path.startswith(f"{JOURNAL}/")
            unasked = reply and (is_temporary(path) or (journal and path.split("/")[2] not in asked))
            if (managed or beside or unasked) and path not in live:
                doomed.append(path)
                size += bytes_
            else:
                kept += 1
        if not dry_run:
            held.check()
            # Manifests go first: one that names removed files would be taken for finished work.
            for path in sorted(doomed, key=lambda name: not name.endswith(".json")):
                held.keep()
                store.storage.remove(path)
            held.keep()
        uploads = store.storage.sweep_uploads(ABANDONED, dry_run=dry_run)
    return Swept(tuple(doomed), size, kept, uploads)
