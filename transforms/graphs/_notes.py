"""Tags of notes that stand in where a task was not run: what a builder knows of people, places and things."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.extractors import _words
from transforms.graphs._built import Bools, Ints, codes, listed, visible

PEOPLE = ("person", "people", "human", "speaker", "user")
"""Types whose titles are names of people; these are merged by case and punctuation only."""

_ROLES = frozenset(_words.groups()["role"])
_CONCEPT_WORDS = 5


@dataclass(frozen=True)
class Mentions:
    """Things as interactions mention them.

    Attributes:
        row: (mentions,) interaction.
        title: (mentions,) what it is called.
        kind: (mentions,) its type; null where nothing tells.
    """

    row: Ints
    title: pa.Array
    kind: pa.Array

    @property
    def people(self) -> Bools:
        """Which mentions are of people."""
        of: Bools = pc.is_in(self.kind, pa.array(PEOPLE)).to_numpy(zero_copy_only=False)
        return of


def mentions(notes: pa.Table, fields: Mapping[str, str]) -> Mentions:
    """Return the tags in some fields of notes, in order of interaction and of field.

    Roles in `who` (``user``) and quantities in `extra` (``mile/5``) name nothing.

    Args:
        notes: Table `notes`.
        fields: Field -> type of what its tags name.
    """
    parts = [listed(notes[field]) for field in fields]
    tags = pa.concat_arrays([tags for tags, _ in parts])
    row = np.concatenate([row for _, row in parts])
    field = np.repeat(np.arange(len(parts)), [len(row) for _, row in parts])
    distinct = tags.dictionary_encode().dictionary.to_pylist()
    code = codes(tags)
    kept = visible(tags)
    for name, bars in (("who", _ROLES.__contains__), ("extra", _counts)):
        if name in fields and len(code):
            barred = np.array([bars(tag) for tag in distinct])
            kept &= ~(barred[code] & (field == list(fields).index(name)))
    chosen = np.flatnonzero(kept)
    chosen = chosen[np.lexsort((field[chosen], row[chosen]))]
    kinds = pa.array(list(fields.values()), pa.string()).take(pa.array(field[chosen]))
    return Mentions(row[chosen], tags.take(pa.array(chosen)), kinds)


def _counts(tag: str) -> bool:
    levels = tag.split("/")
    return len(levels) > 1 and levels[-1].replace("_", "").isdigit() and not levels[0].isdigit()


def label(tag: str, words: int = 2) -> str:
    """Return what a tag is about: its last level, with the levels above it behind, up to a number of words.

    The levels of a path grow special: ``class/yoga`` is ``yoga_class``, ``career/software_engineering`` is
    ``software_engineering``, ``tea`` stays.
    """
    parts: list[str] = []
    count = 0
    for level in filter(None, reversed(tag.split("/"))):
        size = level.count("_") + 1
        if count >= words or (parts and count + size > _CONCEPT_WORDS):
            break
        parts.append(level)
        count += size
    return "_".join(parts)


def titles(tags: pa.Array) -> pa.Array:
    """Return tags as text to show and to embed: ``yoga class``, or ``2023-05-07``."""
    coded = tags.dictionary_encode()
    return pa.array([_title(tag) for tag in coded.dictionary.to_pylist()], pa.string()).take(coded.indices)


def _title(tag: str) -> str:
    levels = tag.split("/")
    text = "-".join(levels) if all(level.isdigit() for level in levels) else label(tag) or tag
    return text.replace("_", " ")
