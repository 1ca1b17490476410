"""What exists already: tables of one's own, LoCoMo's observations, HippoRAG's open triples.

Notes come from a notes table, from the observations, or from the lexical extractor, so that every preset runs. The
tables of further tasks (facts, reflections, entities, triples) are filled with what the given files hold of the
interactions at hand. docs/extractors.md describes the files.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from schemas import tables
from schemas.errors import ConfigError
from schemas.options import FILE
from schemas.uris import secret_in
from transforms.extractors import Filled
from transforms.extractors import _replay_observations as observations
from transforms.extractors import _replay_openie as openie
from transforms.extractors import _replay_rows as rows
from transforms.extractors._replay_files import digest, read_table
from transforms.extractors._replay_notes import none, of_observations, of_table
from transforms.extractors.lexical import VERSION as RULES
from transforms.extractors.lexical import extract

NAME = "replay"
VERSION = 100 * RULES + 3
"""Its tags and concepts come from the rules of `lexical`."""

_TABLES = ("notes", "facts", "concepts", "reflections", "entities", "relations", "triples")
_FILES = (*_TABLES, "observations", "openie")


def _table(name: str) -> Any:
    return _file(f"Rows of the table '{name}', Parquet or JSON lines (path or URI)")


def _file(description: str) -> Any:
    return Field(None, min_length=1, description=description, json_schema_extra=FILE)


class Options(BaseModel):
    """At least one is given."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    notes: str | None = _table("notes")
    facts: str | None = _table("facts")
    concepts: str | None = _table("concepts")
    reflections: str | None = _table("reflections")
    entities: str | None = _table("entities")
    relations: str | None = _table("relations")
    triples: str | None = _table("triples")
    observations: str | None = _file("LoCoMo JSON file: facts, concepts and notes")
    openie: str | None = _file("OpenIE JSON file of HippoRAG: triples and entities")
    notes_from: Literal["lexical", "empty"] | None = Field(
        None, description="Who makes the notes; none takes those of the files, or else lexical"
    )

    @model_validator(mode="after")
    def _sound(self) -> Options:
        if not self.model_dump(exclude_none=True):
            raise ValueError(f"give at least one of {', '.join(_FILES)}")
        for one, other in (
            ("facts", "observations"),
            ("entities", "openie"),
            ("triples", "openie"),
            ("notes", "notes_from"),
        ):
            if getattr(self, one) is not None and getattr(self, other) is not None:
                raise ValueError(f"give either '{one}' or '{other}'")
        return self

    @field_validator(*_FILES)
    @classmethod
    def _absolute(cls, value: str | None) -> str | None:
        """Make a local path mean the same file to workers, whose current directory is another."""
        if value is not None and (fault := secret_in(value)):
            raise ValueError(fault)
        return value if value is None or "://" in value else str(Path(value).absolute())

    def file_hashes(self) -> dict[str, str]:
        """Return the BLAKE2b-128 digest of each file, by option."""
        return {name: digest(uri) for name in _FILES if (uri := getattr(self, name)) is not None}


def tasks(options: Options) -> dict[str, Options]:
    """Return the tasks that the given files fill, each with the options that it depends on.

    Raises:
        ConfigError: There are reflections, but no facts that they rest on.
    """
    source = "notes" if options.notes is not None else "observations" if options.observations is not None else None
    if options.notes_from is not None or source is None:
        offered = {"notes": Options(notes_from=options.notes_from or "lexical")}
    else:
        offered = {"notes": _part(options, source)}
    for task, files in (
        ("facts", ("facts", "concepts", "observations")),
        ("reflections", ("reflections",)),
        ("entities", ("entities", "relations", "openie")),
        ("triples", ("triples", "openie")),
    ):
        if any(getattr(options, name) is not None for name in files):
            offered[task] = _part(options, *files)
    if "reflections" in offered and options.facts is None and options.observations is None:
        raise ConfigError(
            "reflections rest on facts, and none are given",
            where="extract.options.reflections",
            remedy="Give the facts too: extract.options.facts (or observations).",
        )
    return offered


def _part(options: Options, *names: str) -> Options:
    return Options.model_validate({name: getattr(options, name) for name in names})


class Replay:
    """Takes over what the files hold; they are read when it is made."""

    def __init__(self, options: Options) -> None:
        self._notes_from = options.notes_from
        self._own: Mapping[str, pa.Table] = {
            name: read_table(name, uri) for name in _TABLES if (uri := getattr(options, name)) is not None
        }
        self._observed = None if options.observations is None else observations.read(options.observations)
        self._openie = None if options.openie is None else openie.read(options.openie)

    async def extract(self, interactions: pa.Table, ontology_window: int) -> pa.Table:
        """Return the notes; the ontology is not used."""
        if self._notes_from == "empty":
            return none(interactions)
        if self._notes_from is None and "notes" in self._own:
            return of_table(self._own["notes"], interactions)
        if self._notes_from is None and self._observed is not None:
            return of_observations(self._observed, interactions)
        return extract(interactions)

    async def fill(self, task: str, source: pa.Table) -> Filled:
        """Return the tables of a task, with counts of the rows that found no place (docs/extractors.md)."""
        if task == "facts":
            return self._facts(source)
        if task == "reflections":
            return rows.reflections(self._own["reflections"], source)
        if task == "entities":
            return self._entities(source)
        if self._openie is not None:
            return self._openie.fill_triples(source)
        return rows.one_each("triples", self._own["triples"], source)

    def _facts(self, source: pa.Table) -> Filled:
        if self._observed is not None:
            made = self._observed.fill(source)
        elif "facts" in self._own:
            made = rows.facts(self._own["facts"], source)
            told = rows.labelled(source, rows.concepts_of_facts(made.tables["facts"], source))
            made = Filled({**made.tables, "concepts": told}, made.stats)
        else:
            made = Filled({"facts": tables.empty("facts")})
        return _with(made, rows.concepts(self._own["concepts"], source)) if "concepts" in self._own else made

    def _entities(self, source: pa.Table) -> Filled:
        nothing = Filled({"entities": tables.empty("entities"), "relations": tables.empty("relations")})
        made = nothing if self._openie is None else self._openie.fill_entities(source)
        for name in ("entities", "relations"):
            if name in self._own:
                made = _with(made, rows.one_each(name, self._own[name], source))
        return _with(made, rows.with_ends(made.tables["entities"], made.tables["relations"], source))


def _with(made: Filled, more: Filled) -> Filled:
    stats = dict(made.stats)
    for name, count in more.stats.items():
        stats[name] = stats.get(name, 0) + count
    return Filled({**made.tables, **more.tables}, stats)


def make(options: Options) -> Replay:
    """Read the files and make the extractor.

    Raises:
        InputError: A file cannot be read, or is not what its option says.
    """
    return Replay(options)
