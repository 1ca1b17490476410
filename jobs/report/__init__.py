"""`tagloom report`: generations of a corpus as one self-contained HTML file (docs/report.md)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup

from jobs.report import browse, page
from jobs.report.chapters import Chapter, chapter
from jobs.report.vocabulary import QUANTILES
from pipelines.store import Store
from schemas.errors import UsageError

SECTIONS = (
    ("presets", "Presets"),
    ("types", "Types"),
    ("differences", "Differences"),
    ("variants", "Ablations"),
    ("experiments", "Experiments"),
    ("tags", "Tags"),
    ("graphs", "Graphs"),
    ("costs", "Time and cost"),
)
"""Anchor and name of each section of a generation."""


@dataclass(frozen=True)
class Report:
    """What was written.

    Attributes:
        target: The file.
        bytes: Its size.
        generations: Names of the generations in it.
        presets: Rankings that can be browsed.
        questions: Questions that can be browsed.
    """

    target: Path
    bytes: int
    generations: tuple[str, ...]
    presets: int
    questions: int


def write_report(
    corpus_uri: str,
    generations: Sequence[str],
    to: str,
    overwrite: bool,
    explain: browse.Explain | None = None,
) -> Report:
    """Write a report. The same corpus gives the same bytes; one shard is in memory at a time.

    Args:
        corpus_uri: The corpus.
        generations: Names of generations; without any, `main`.
        to: Local HTML file; it is written aside and renamed at the end.
        overwrite: Replace a file that is there.
        explain: Tells why a preset ranked as it did for one question; what it returns is shown as text.

    Raises:
        UsageError: The target is taken or not a local file.
        StoreError: There is no such corpus or generation, or a part is damaged.
    """
    target = _target(to, overwrite)
    store = Store.open(corpus_uri)
    found = [store.generation(name) for name in dict.fromkeys(generations or ("main",))]
    chapters = [chapter(generation) for generation in found]
    collections = browse.collections(found, {one.name: one.level for one in chapters})
    aside = target.with_name(f".{target.name}.writing")
    try:
        with aside.open("w", encoding="utf-8", newline="\n") as file:
            for piece in page.stream(_variables(store, chapters, collections, explain)):
                file.write(piece)
        aside.replace(target)
    finally:
        aside.unlink(missing_ok=True)
    return Report(
        target,
        target.stat().st_size,
        tuple(generation.name for generation in found),
        sum(len(one.rankings) for one in collections),
        sum(len(one.index.case) for one in collections),
    )


def _variables(
    store: Store, chapters: Sequence[Chapter], collections: Sequence[browse.Collection], explain: browse.Explain | None
) -> dict[str, Any]:
    return {
        "title": store.storage.uri.rstrip("/").rpartition("/")[2] or "corpus",
        "chapters": chapters,
        "sections": SECTIONS,
        "quantiles": [word for word, _ in QUANTILES],
        "longest": max((seconds for one in chapters for _, seconds in one.costs.stages), default=0.0),
        "excerpts": sorted({one.excerpt for one in collections}),
        "results": browse.TOP,
        "browsable": sum(one.questions for one in collections),
        "data": lambda: _data(chapters, collections, explain),
    }


def _data(
    chapters: Sequence[Chapter], collections: Sequence[browse.Collection], explain: browse.Explain | None
) -> Iterator[tuple[str, Markup]]:
    """Yield (id, content) of every data element; the last one says what there is."""
    told = []
    for number, one in enumerate(collections):
        for block, packed in enumerate(browse.blocks(one, explain)):
            yield f"block-{number}-{block}", Markup(packed)
        yield f"index-{number}", Markup(browse.index(one))
        told.append(
            {
                "name": one.name,
                "presets": [ranking.name for ranking in one.rankings],
                "level": one.level,
                "chosen": _chosen(chapters, one),
            }
        )
    yield "collections", page.script_json(told)


def _chosen(chapters: Sequence[Chapter], collection: browse.Collection) -> list[int]:
    """Return the two rankings that the reader sees first: the baseline of the first generation and its best preset."""
    own = next(one for one in chapters if one.name == collection.generations[0].name)
    names = [ranking.preset for ranking in collection.rankings]
    wanted = [own.differences[0].baseline, *(row.name for row in own.presets[0].rows)] if own.differences else names
    found = [names.index(name) for name in dict.fromkeys(wanted) if name in names]
    return [*found, *found, 0, 0][:2]


def _target(to: str, overwrite: bool) -> Path:
    if "://" in to:
        raise UsageError("is not a local path", where=to, remedy="Write to a local path and copy it there.")
    path = Path(to).absolute()
    if path.is_dir():
        raise UsageError("is a folder", where=str(path), remedy="Name a file, such as report.html.")
    if path.suffix.lower() not in (".html", ".htm"):
        raise UsageError("is not named as an HTML file", where=str(path), remedy=f"Name it {path.name}.html.")
    if path.exists() and path.stat().st_size and not overwrite:
        raise UsageError("is there already", where=str(path), remedy="Name another file, or give --overwrite.")
    path.parent.mkdir(parents=True, exist_ok=True)
    return path
