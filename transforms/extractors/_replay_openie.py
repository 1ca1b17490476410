"""Open information extraction as HippoRAG keeps it: entities and triples of passages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import polars as pl
import pyarrow as pa

from schemas import tables
from schemas.errors import InputError
from transforms.extractors import Filled
from transforms.extractors._replay_files import read_json
from transforms.extractors._replay_rows import counts, frame, strings
from transforms.interactions import full_text
from transforms.reply_fields import line_of

_TRIPLE = ("subject", "predicate", "object")
_DOCS = {"passage": pl.String, "odd_triples": pl.Int64, "odd_entities": pl.Int64}


@dataclass(frozen=True)
class OpenIE:
    """Entities and triples of a file, in its order.

    Attributes:
        docs: doc (number in the file), passage (white space collapsed), odd_triples, odd_entities (not as wanted).
        triples: doc, subject, predicate, object.
        entities: doc, title.
    """

    docs: pl.DataFrame
    triples: pl.DataFrame
    entities: pl.DataFrame

    def fill_triples(self, interactions: pa.Table) -> Filled:
        """Make the triples of the interactions whose text is a passage of the file, each once an interaction.

        Counts: docs_taken; triples_odd, which are not three phrases; triples_repeated.
        """
        docs = self._placed(interactions)
        found, repeated = self._rows(docs, self.triples, list(_TRIPLE))
        own = interactions.take(pa.array(found["place"].to_numpy()))
        columns = {"case_id": own["case_id"], "interaction_id": own["interaction_id"]}
        made = tables.build("triples", {**columns, **{part: strings(found[part]) for part in _TRIPLE}})
        return Filled({"triples": made}, self._counts(docs, "triples", repeated))

    def fill_entities(self, interactions: pa.Table) -> Filled:
        """Make the entities of those interactions, and no relations.

        Counts: docs_taken; entities_odd, which are no phrases; entities_repeated.
        """
        docs = self._placed(interactions)
        found, repeated = self._rows(docs, self.entities, ["title"])
        own = interactions.take(pa.array(found["place"].to_numpy()))
        made = tables.build(
            "entities",
            {
                "case_id": own["case_id"],
                "interaction_id": own["interaction_id"],
                "title": strings(found["title"]),
                "kind": ["entity"] * len(found),
                "attributes": [[]] * len(found),
                "role": ["user"] * len(found),
            },
        )
        stats = self._counts(docs, "entities", repeated)
        return Filled({"entities": made, "relations": tables.empty("relations")}, stats)

    def _placed(self, interactions: pa.Table) -> pl.DataFrame:
        """Return place (row of the interactions), doc and what is odd of it."""
        texts = frame(pa.table({"text": full_text(interactions)}), "text").with_row_index("place")
        texts = texts.select("place", passage=_collapsed("text"))
        return texts.join(self.docs, on="passage", how="inner", maintain_order="left_right")

    def _rows(self, docs: pl.DataFrame, given: pl.DataFrame, parts: list[str]) -> tuple[pl.DataFrame, int]:
        found = docs.select("place", "doc").join(given, on="doc", how="inner", maintain_order="left_right")
        folded = [pl.col(part).str.to_lowercase().alias(f"{part}_folded") for part in parts]
        kept = found.with_columns(folded).unique(
            ["place", *(f"{part}_folded" for part in parts)], keep="first", maintain_order=True
        )
        return kept, len(found) - len(kept)

    def _counts(self, docs: pl.DataFrame, what: str, repeated: int) -> dict[str, int]:
        used = docs.unique("doc")
        odd = int(used[f"odd_{what}"].sum())
        return counts(docs_taken=len(used), **{f"{what}_odd": odd, f"{what}_repeated": repeated})


def _collapsed(name: str) -> pl.Expr:
    return pl.col(name).str.replace_all(r"\s+", " ").str.strip_chars()


def read(uri: str) -> OpenIE:
    """Read a file of the shape ``{"docs": [{"passage", "extracted_entities", "extracted_triples"}]}``.

    The passage is the title, a line feed and the text; a doc without one has these as ``title`` and ``text``. A doc
    that is no object, or has no passage, can belong to no interaction and is passed over.

    Raises:
        InputError: It cannot be read, or has no doc with a passage.
    """
    value = read_json(uri)
    docs = value.get("docs") if isinstance(value, dict) else None
    rows: list[tuple[str, int, int]] = []
    triples: list[tuple[int, str, str, str]] = []
    entities: list[tuple[int, str]] = []
    for doc in docs if isinstance(docs, list) else ():
        passage = _passage(doc)
        if not passage:
            continue
        odd_triples = odd_entities = 0
        for given in _listed(doc.get("extracted_triples")):
            phrases = _phrases(given) if isinstance(given, list) else []
            if len(phrases) == 3 and all(phrases):
                triples.append((len(rows), phrases[0], phrases[1], phrases[2]))
            else:
                odd_triples += 1
        for title in _phrases(_listed(doc.get("extracted_entities"))):
            if title:
                entities.append((len(rows), title))
            else:
                odd_entities += 1
        rows.append((passage, odd_triples, odd_entities))
    if not rows:
        raise InputError(
            "has no passages with extracted triples",
            where=uri,
            remedy="Give a file of HippoRAG's, with 'docs' that have 'passage', 'extracted_entities' and "
            "'extracted_triples'.",
        )
    number = {"doc": pl.UInt32}
    return OpenIE(
        pl.DataFrame(rows, _DOCS, orient="row").with_row_index("doc").with_columns(_collapsed("passage")),
        pl.DataFrame(triples, {**number, **dict.fromkeys(_TRIPLE, pl.String)}, orient="row"),
        pl.DataFrame(entities, {**number, "title": pl.String}, orient="row"),
    )


def _passage(doc: Any) -> str:
    if not isinstance(doc, dict):
        return ""
    passage = doc.get("passage")
    if isinstance(passage, str) and passage.strip():
        return passage
    parts = [part for part in (doc.get("title"), doc.get("text")) if isinstance(part, str)]
    return "\n".join(parts) if len(parts) == 2 else ""


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _phrases(values: list[Any]) -> list[str]:
    """Return phrases as lines; what is no text becomes an empty one."""
    return [line_of(value) if isinstance(value, str) else "" for value in values]
