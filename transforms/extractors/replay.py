"""Notes that exist already: a notes table, or LoCoMo's own observations.

With ``notes``, rows of a Parquet notes table are taken over by case_id and interaction_id. With ``observations``,
each fact that LoCoMo's annotators drew from a message becomes part of that message's note: its text is the summary,
its speaker is `who`, and the lexical extractor's fields are read from the fact's text.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from schemas import tables
from schemas.errors import InputError, TagloomError
from transforms.extractors._notes import Found, build, join, summarise
from transforms.extractors.lexical import VERSION as RULES
from transforms.extractors.lexical import tag_fields

NAME = "replay"
VERSION = 100 * RULES + 2
"""Its fields come from the rules of `lexical`."""

_NO_ENTRY = "the replayed file has no entry for this interaction"


class Options(BaseModel):
    """Exactly one of the two is given."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    notes: str | None = Field(None, min_length=1, description="Parquet file of the table 'notes' (path or URI)")
    observations: str | None = Field(None, min_length=1, description="LoCoMo JSON file (path or URI)")

    @model_validator(mode="after")
    def _one(self) -> Options:
        if (self.notes is None) == (self.observations is None):
            raise ValueError("give either 'notes' or 'observations'")
        return self

    @field_validator("notes", "observations")
    @classmethod
    def _absolute(cls, value: str | None) -> str | None:
        """Make a local path mean the same file to workers, whose current directory is another."""
        return value if value is None or "://" in value else str(Path(value).absolute())

    def file_hashes(self) -> dict[str, str]:
        """Return the BLAKE2b-128 digest of the file, by option."""
        option = "notes" if self.notes is not None else "observations"
        digest = hashlib.blake2b(digest_size=16)
        uri = self.notes or self.observations or ""
        try:
            with fsspec.open(uri, "rb") as stream:
                while block := stream.read(1 << 20):
                    digest.update(block)
        except (OSError, ValueError, ImportError) as error:
            raise _unreadable(uri, error) from error
        return {option: digest.hexdigest()}


def _unreadable(uri: str, error: Exception) -> TagloomError:
    return InputError(
        f"cannot be read: {error}", where=uri, remedy="Check the path in extract.options and the access to it."
    )


class NotesReplay:
    """Takes over the rows of a notes table."""

    def __init__(self, notes: pa.Table) -> None:
        self._notes = notes
        self._places = {key: i for i, key in enumerate(_keys(notes))}

    async def extract(self, interactions: pa.Table, ontology_window: int) -> pa.Table:
        """Return the replayed notes; the ontology is not used."""
        places = pa.array([self._places.get(key) for key in _keys(interactions)], type=pa.int64())
        blank = build(
            interactions, {}, pa.array([""] * interactions.num_rows, type=pa.string()), _errors(interactions.num_rows)
        )
        found = self._notes.take(places)
        columns = {}
        for name in blank.column_names:
            if name in ("case_id", "interaction_id"):
                columns[name] = blank[name]
                continue
            plain = [
                c.cast(c.type.value_type) if pa.types.is_dictionary(c.type) else c for c in (found[name], blank[name])
            ]
            columns[name] = pc.if_else(pc.is_valid(places), *plain)
        return tables.build("notes", columns)


def _keys(table: pa.Table) -> list[tuple[str, str]]:
    cases = table["case_id"].cast(pa.string()).to_pylist()
    return list(zip(cases, table["interaction_id"].to_pylist(), strict=True))


def _errors(count: int) -> pa.Array:
    return pa.array([_NO_ENTRY] * count, type=pa.string())


class ObservationReplay:
    """Makes notes of LoCoMo's observations."""

    def __init__(self, facts: Mapping[tuple[str, str], list[tuple[str, str]]]) -> None:
        self._facts = facts

    async def extract(self, interactions: pa.Table, ontology_window: int) -> pa.Table:
        """Return notes of the facts about each interaction's messages; the ontology is not used."""
        cases = interactions["case_id"].cast(pa.string()).to_pylist()
        texts, rows, speakers = [], [], []
        for row, (case, messages) in enumerate(zip(cases, interactions["message_ids"].to_pylist(), strict=True)):
            facts = [fact for message in messages for fact in self._facts.get((case, message), ())]
            texts.append(" ".join(dict.fromkeys(text for _, text in facts)))
            rows += [row] * len(facts)
            speakers += [speaker for speaker, _ in facts]
        source = pa.array(texts, type=pa.large_string())
        fields = tag_fields(source, interactions)
        told = np.array([bool(text) for text in texts], dtype=bool)
        # Who took part is known of every message; without a fact that alone makes no note.
        fields = {f: _only(found, told) for f, found in fields.items()}
        names = Found(np.array(rows, dtype=np.int64), pa.array(speakers, type=pa.string()))
        fields["who"] = join(names, fields["who"])
        return build(interactions, fields, summarise(source), _errors(interactions.num_rows))


def _only(found: Found, wanted: np.ndarray[Any, np.dtype[np.bool_]]) -> Found:
    kept = wanted[found.rows]
    return Found(found.rows[kept], found.tags.filter(pa.array(kept)))


def make(options: Options) -> NotesReplay | ObservationReplay:
    """Read the file and make the extractor.

    Raises:
        InputError: The file cannot be read, or is not what the option says.
    """
    if options.notes is not None:
        return NotesReplay(_read_notes(options.notes))
    return ObservationReplay(_read_observations(options.observations or ""))


def _read_notes(uri: str) -> pa.Table:
    try:
        with fsspec.open(uri, "rb") as stream:
            table = pq.read_table(stream)
        missing = [name for name in tables.schema("notes").names if name not in table.column_names]
        if missing:
            raise InputError(f"is no notes table: it lacks {', '.join(missing)}", where=uri)
        return tables.build("notes", {name: table[name] for name in tables.schema("notes").names})
    except (OSError, ValueError, ImportError, pa.ArrowException) as error:
        raise _unreadable(uri, error) from error
    except TagloomError as error:
        raise InputError(error.message, where=uri, remedy="Give a Parquet file of the table 'notes'.") from error


def _read_observations(uri: str) -> dict[tuple[str, str], list[tuple[str, str]]]:
    try:
        with fsspec.open(uri, "rb") as stream:
            cases = orjson.loads(stream.read())
    except (OSError, ValueError, ImportError) as error:
        raise _unreadable(uri, error) from error
    facts: dict[tuple[str, str], list[tuple[str, str]]] = {}
    try:
        for case in cases:
            for session in case["observation"].values():
                for speaker, entries in session.items():
                    for text, evidence in entries:
                        for message in evidence if isinstance(evidence, list) else [evidence]:
                            facts.setdefault((case["sample_id"], str(message)), []).append((speaker, str(text)))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"has no LoCoMo observations ({type(error).__name__}: {error})",
            where=uri,
            remedy="Give a file with 'sample_id' and 'observation' in each conversation, such as locomo10.json.",
        ) from error
    return facts
