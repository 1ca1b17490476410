"""LoCoMo's observations: facts that its annotators drew from messages, with the messages that they rest on."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl
import pyarrow as pa

from schemas import tables
from schemas.errors import InputError
from transforms.extractors import Filled, lexical
from transforms.extractors._notes import build
from transforms.extractors._replay_files import read_json
from transforms.extractors._replay_rows import concepts_of_facts, counts, frame, labelled, lists, strings
from transforms.reply_fields import line_of

CONCEPTS = 3
"""Concepts of a fact and of an interaction at most."""

_TURN = re.compile(r"D:?\s*(\d{1,9}):(\d{1,9})")
_SEPARATORS = " ;,\t\n"
_WORDS = 5
_PAIRS = {"place": pl.UInt32, "label": pl.String}


@dataclass(frozen=True)
class Observations:
    """Facts of a file, in its order.

    Attributes:
        facts: fact (number in the file), case_id, speaker, text, ids (messages), repaired (evidence strings mended).
        odd: Case -> entries without a text or without a message.
    """

    facts: pl.DataFrame
    odd: Mapping[str, int]

    def by_interaction(self, interactions: pa.Table) -> pl.DataFrame:
        """Return place (row of the interactions), speaker and text, each fact once a place.

        Facts of an interaction are in order of its messages, then of the file.
        """
        placed = self._placed(interactions).select("place", "fact").unique(maintain_order=True)
        return placed.join(self.facts, on="fact", maintain_order="left").select("place", "speaker", "text")

    def _placed(self, interactions: pa.Table) -> pl.DataFrame:
        """Return fact, id and place for each message that a fact names and the case holds, in order of messages."""
        messages = frame(interactions, "case_id", id="message_ids").with_row_index("place")
        messages = messages.explode("id", empty_as_null=False, keep_nulls=False).with_row_index("at")
        named = self.facts.select("fact", "case_id", id="ids").explode("id")
        found = named.join(messages, on=["case_id", "id"], how="inner").sort("at", "fact")
        return found.select("fact", "id", "place")

    def fill(self, interactions: pa.Table) -> Filled:
        """Make facts and concepts.

        Each entry is a fact; those that say the same of the same interactions are one. Concepts of a fact are the
        `what` tags that `lexical` reads in it; an interaction has those of its facts, then those of its own text.

        Counts: facts_taken; facts_unknown, whose messages the case does not hold; facts_repeated; facts_odd, without
        text or message; of facts that were taken, evidence_repaired and evidence_unknown (messages not there).
        """
        cases = frame(interactions, "case_id").unique()
        mine = self.facts.join(cases, on="case_id", how="semi", maintain_order="left")
        placed = self._placed(interactions)
        where = placed.group_by("fact").agg(pl.col("place").unique().sort(), known=pl.len())
        known = mine.join(where, on="fact", how="inner", maintain_order="left").with_columns(
            first=pl.col("place").list.first(),
            same=pl.col("place").cast(pl.List(pl.String)).list.join(","),
            folded=pl.col("text").str.to_lowercase().str.strip_chars_end(" .!"),
        )
        kept = known.unique(["same", "folded"], keep="first", maintain_order=True).sort("first", "fact")
        kept = kept.with_columns(nth=pl.int_range(pl.len()).over("first")).with_row_index("at")
        facts = _facts(kept, interactions)
        pairs = [concepts_of_facts(facts, interactions), _pairs(lexical.extract(interactions)["what"])]
        first = pl.concat(pairs).unique(maintain_order=True)
        first = first.filter(pl.int_range(pl.len()).over("place") < CONCEPTS)
        stats = counts(
            facts_taken=len(kept),
            facts_unknown=len(mine) - len(known),
            facts_repeated=len(known) - len(kept),
            facts_odd=sum(self.odd.get(case, 0) for case in cases["case_id"]),
            evidence_repaired=int(kept["repaired"].sum()),
            evidence_unknown=int((kept["ids"].list.len() - kept["known"]).sum()),
        )
        return Filled({"facts": facts, "concepts": labelled(interactions, first)}, stats)


def _facts(kept: pl.DataFrame, interactions: pa.Table) -> pa.Table:
    """Make the facts table; facts are called ``INTERACTION/fN``, N from 0."""
    names = frame(interactions, "interaction_id")["interaction_id"]
    own = interactions.take(pa.array(kept["first"].to_numpy()))
    ids = kept.select("at", "place").explode("place")
    ids = ids.select("at", id=names.gather(ids["place"]))
    return tables.build(
        "facts",
        {
            "case_id": own["case_id"],
            "fact_id": strings(names.gather(kept["first"]) + "/f" + kept["nth"].cast(pl.String)),
            "text": strings(kept["text"]),
            "interaction_ids": lists(ids, "at", "id", len(kept)),
            "concepts": _concepts(kept["text"], own),
        },
    )


def _concepts(texts: pl.Series, interactions: pa.Table) -> pa.Array:
    """Draw the concepts of texts by the rules of `lexical`; each has the case and time of its interaction."""
    if not len(texts):
        return lists(pl.DataFrame({"place": [], "label": []}, _PAIRS), "place", "label", 0)
    found = lexical.tag_fields(strings(texts).cast(pa.large_string()), interactions)["what"]
    notes = build(interactions, {"what": found}, strings(texts))
    pairs = _pairs(notes["what"]).filter(pl.int_range(pl.len()).over("place") < CONCEPTS)
    return lists(pairs, "place", "label", len(texts))


def _pairs(tags: pa.ChunkedArray) -> pl.DataFrame:
    """Return (place, label) of lists of tags: ``class/yoga`` is the concept ``yoga_class``."""
    found = frame(pa.table({"tags": tags}), "tags").with_row_index("place")
    found = found.explode("tags", empty_as_null=False, keep_nulls=False)
    label = pl.col("tags").str.split("/").list.reverse().list.join("_")
    found = found.select("place", label=label).filter(pl.col("label").str.count_matches("_") < _WORDS)
    return found.unique(maintain_order=True)


def read(uri: str) -> Observations:
    """Read the observations of a LoCoMo file.

    Raises:
        InputError: It cannot be read, or no conversation in it has observations.
    """
    value = read_json(uri)
    odd: Counter[str] = Counter()
    rows = [row for record in (value if isinstance(value, list) else [value]) for row in _facts_of(record, odd)]
    if not rows:
        raise InputError(
            "has no LoCoMo observations",
            where=uri,
            remedy="Give a file with 'sample_id' and 'observation' in each conversation, such as locomo10.json.",
        )
    names = ("case_id", "speaker", "text", "ids", "repaired")
    kinds = (pl.String, pl.String, pl.String, pl.List(pl.String), pl.Int64)
    facts = pl.DataFrame(rows, dict(zip(names, kinds, strict=True)), orient="row")
    return Observations(facts.with_row_index("fact"), odd)


def _facts_of(record: Any, odd: Counter[str]) -> Iterator[tuple[str, str, str, list[str], int]]:
    case = record.get("sample_id") if isinstance(record, dict) else None
    sessions = record.get("observation") if case is not None else None
    for session in sessions.values() if isinstance(sessions, dict) else ():
        for speaker, entries in session.items() if isinstance(session, dict) else ():
            for entry in entries if isinstance(entries, list) else [entries]:
                text, evidence = entry if isinstance(entry, list) and len(entry) == 2 else (None, None)
                line = line_of(text) if isinstance(text, str) else ""
                ids, repaired = _messages(evidence)
                if line and ids:
                    yield str(case), line_of(speaker), line, ids, repaired
                else:
                    odd[str(case)] += 1


def _messages(evidence: Any) -> tuple[list[str], int]:
    """Return the messages that an entry names, and how many of its strings had to be mended."""
    found: dict[str, None] = {}
    repaired = 0
    for written in evidence if isinstance(evidence, list) else [evidence]:
        if not isinstance(written, str):
            continue
        turns = [f"D{int(a)}:{int(b)}" for a, b in _TURN.findall(written)]
        rest = re.split(f"[{_SEPARATORS}]+", _TURN.sub("", written).strip(_SEPARATORS))
        turns += [one for one in rest if one]
        repaired += turns != [written]
        found.update(dict.fromkeys(turns))
    return list(found), repaired
