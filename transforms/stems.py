"""Stems of tokens, without stop words: what the postings of the field ``stem`` count."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from schemas.errors import ConfigError
from schemas.ids import nearest
from transforms.tokens import Tokens

VERSION = 1
"""Raised whenever the same tokens give other stems."""

_ENGLISH = """
a about above after again against ain all also am an and any are aren as at be because been before being below between
both but by can cannot could couldn d did didn do does doesn doing don down during each else ever few for from further
had hadn has hasn have haven having he hence her here hers herself him himself his how i if in into is isn it its itself
just ll m ma may me might mightn more most must mustn my myself needn no nor not now o of off on once only or other
ought our ours ourselves out over own re s same shall shan she should shouldn so some such t than that the their theirs
them themselves then there these they this those through to too under until up upon us ve very was wasn we were weren
what when where which while who whom whose why will with won would wouldn y you your yours yourself yourselves
"""
STOP_WORDS = {"english": frozenset(_ENGLISH.split())}
"""By language, words that say nothing about what a text is about; other languages have none."""


def check_language(language: str) -> None:
    """Check the name of a language.

    Raises:
        ConfigError: There is no stemmer of that name.
    """
    import Stemmer

    known = Stemmer.algorithms()
    if language not in known:
        guess = nearest(language, known)
        raise ConfigError(
            f"there is no stemmer for '{language}'",
            where="index.language",
            remedy=f"Did you mean '{guess}'?" if guess else f"Languages: {', '.join(known)}.",
        )


def stem_terms(terms: pa.Array, language: str = "english") -> pa.Array:
    """Return the stem of each term by Snowball's algorithm (Porter 2001); null for a stop word."""
    import Stemmer

    words = terms.to_pylist()
    dropped = STOP_WORDS.get(language, frozenset())
    stems = Stemmer.Stemmer(language).stemWords(words)
    return pa.array([None if word in dropped else stem for word, stem in zip(words, stems, strict=True)], pa.string())


def stemmed(tokens: Tokens, language: str = "english") -> Tokens:
    """Return the stems of tokens in place of them, stop words left out."""
    coded = stem_terms(tokens.terms, language).dictionary_encode()
    number = coded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int32)
    ids = number[tokens.ids]
    kept = np.concatenate([[0], np.cumsum(ids >= 0)])
    return Tokens(ids[ids >= 0], kept[tokens.offsets].astype(np.int64), coded.dictionary.cast(pa.string()))
