"""What is known about single words: one row of flags, one plain form and one singular form for each."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from transforms.tags import normalise

(
    STOP,
    GENERIC,
    CAPITAL,
    ACRONYM,
    NUMBER,
    NAME,
    PLACE,
    SPOT,
    UNIT,
    PLACE_NOUN,
    CALENDAR,
    WEAK,
    GERUND,
    UNUSABLE,
    HONORIFIC,
    RELATION,
    PREPOSITION,
    MOTION,
    TO,
    GEOGRAPHIC,
    PURPOSE,
    CATENATIVE,
    CAUSE,
    DETERMINER,
    AGO,
    CJK,
    SHORT,
    MODIFIER,
    ABSTRACT,
    LANGUAGE,
    ANIMAL,
    POSSESSIVE,
    MAYBE_NAME,
    FAMILY,
    OWNED,
    PRONOUN,
    OBJECT,
    MODAL,
    BE,
    LINKING,
    LETTING,
    INTENSIFIER,
    ADVERB,
    TELLS,
    HEARS,
    DOES,
    GREETING,
    USING,
    NEARBY,
    INSIDE,
    LIVING,
    STUDY,
    THING_NOUN,
    GLUE,
    ARTICLE,
    OWNER,
    MIXED,
    THING,
    CONCEPT,
    SOCIAL,
) = (1 << bit for bit in range(60))

_GROUPS = {
    CALENDAR: "calendar",
    HONORIFIC: "honorific",
    RELATION: "relation",
    PREPOSITION: "preposition",
    MOTION: "motion",
    TO: "to",
    GEOGRAPHIC: "geographic",
    CATENATIVE: "catenative",
    CAUSE: "cause",
    DETERMINER: "determiner",
    AGO: "ago",
    MODIFIER: "modifier",
    ABSTRACT: "abstract",
    LANGUAGE: "language",
    ANIMAL: "animal",
    POSSESSIVE: "possessive",
    FAMILY: "family",
    OWNED: "owned",
    SOCIAL: "social",
    PRONOUN: "pronoun",
    OBJECT: "object",
    MODAL: "modal",
    BE: "be",
    LINKING: "linking",
    LETTING: "letting",
    INTENSIFIER: "intensifier",
    ADVERB: "adverb",
    TELLS: "tells",
    HEARS: "hears",
    DOES: "does",
    GREETING: "greeting",
    USING: "using",
    NEARBY: "nearby",
    INSIDE: "inside",
    LIVING: "living",
    STUDY: "study",
    THING_NOUN: "thing_noun",
    GLUE: "glue",
    ARTICLE: "article",
}
# What stands before the apostrophe of "I'm", "you're", "it'll", "I'd", "don't", "we've".
_CONTRACTED = {"m": BE, "re": BE, "ll": MODAL, "d": MODAL, "t": MODAL, "ve": MODAL}
_WEAK_ENDS = ("ful", "ous", "ive", "able", "ible", "ical", "less", "ish", "iest", "ize", "ise")
# "DoorDash", "iPhone", "HTML5", but not "McDonald" or "O'Neil".
_MIXED = re.compile(r"[0-9]|^[A-Z]{2,}[a-z]|(?<!^Mc)(?<!^Mac)(?<!^De)(?<!^La)(?<=[a-z])[A-Z]")
_CONCEPT_ENDS = ("tion", "sion", "ment", "ness", "ity", "ism", "ship", "ance", "ence", "ology")
_KEEP_S = ("ss", "us", "is", "ics")
_MAX_BYTES = 48


@cache
def words(name: str) -> frozenset[str]:
    """Return the words of one of the lists in this folder."""
    text = (Path(__file__).parent / f"{name}.txt").read_text(encoding="utf-8")
    return frozenset(w for line in text.splitlines() if not line.startswith("#") for w in line.split())


@cache
def _pairs(name: str) -> dict[str, str]:
    return dict(item.split("=") for item in sorted(words(name)))


def units() -> dict[str, str]:
    """Return the units of measure: as written, and the tag level that stands for each."""
    return _pairs("units")


@cache
def groups() -> dict[str, tuple[str, ...]]:
    """Return the groups of groups.txt, by name."""
    text = (Path(__file__).parent / "groups.txt").read_text(encoding="utf-8")
    found: dict[str, list[str]] = {}
    for word in " ".join(line for line in text.splitlines() if not line.startswith("#")).split():
        if word.endswith(":"):
            found[word[:-1]] = []
        else:
            found[list(found)[-1]].append(word)
    return {name: tuple(members) for name, members in found.items()}


@cache
def verb_forms() -> frozenset[str]:
    """Return the forms of the verbs of verbs.txt, but for base forms that are nouns as well."""
    found: set[str] = set()
    for entry in words("verbs"):
        base, _, past = entry.lstrip("~").rstrip("+").partition("=")
        double = entry.endswith("+") or base.endswith("+")
        base = base.rstrip("+")
        ends_y = base.endswith("y") and base[-2] not in "aeou"
        stem = base + base[-1] if double else base.removesuffix("e")
        if base.endswith("ie"):
            found.add(base[:-2] + "ying")
        else:
            found.add((base if base.endswith(("ee", "ye", "oe")) else stem) + "ing")
        found |= set(past.split(",")) if past else {(base[:-1] + "i" if ends_y else stem) + "ed"}
        if entry.startswith("~"):
            continue
        found.add(base)
        if ends_y:
            found.add(base[:-1] + "ies")
        else:
            found.add(base + ("es" if base.endswith(("s", "x", "z", "ch", "sh", "o")) else "s"))
    return frozenset(found)


@cache
def _lists() -> dict[str, int]:
    """Give each listed word its flags."""
    lists = {
        STOP: words("stopwords"),
        GENERIC: words("generic") | verb_forms(),
        NAME: words("names"),
        MAYBE_NAME: words("unsure_names"),
        THING: words("things"),
        PLACE: frozenset(p for p in words("places") if "_" not in p),
        SPOT: words("spots"),
        PLACE_NOUN: words("place_nouns"),
        PURPOSE: words("purposes"),
        UNIT: frozenset(units()),
        **{flag: frozenset(groups()[name]) for flag, name in _GROUPS.items()},
    }
    flags: dict[str, int] = {}
    for flag, members in lists.items():
        for word in members:
            flags[word] = flags.get(word, 0) | flag
    return flags


def singular(word: str) -> str:
    """Strip a regular English plural; other words stay as they are."""
    irregular = _pairs("irregular").get(word)
    if irregular is not None:
        return irregular
    if len(word) < 4 or not word.endswith("s") or word.endswith(_KEEP_S):
        return word
    if word.endswith("ies"):
        return word[:-3] + "y" if len(word) > 4 else word[:-1]
    if word.endswith(("ches", "shes", "sses", "xes", "zzes")):
        return word[:-2]
    return word[:-1]


@lru_cache(maxsize=1 << 17)
def describe(surface: bytes) -> tuple[int, str, str]:
    """Describe one word.

    Args:
        surface: The word as written, UTF-8.

    Returns:
        Flags, the plain form (one tag level without underscore) and its singular.
    """
    if len(surface) > _MAX_BYTES:
        return UNUSABLE, "", ""
    text = surface.decode("utf-8", "replace").replace("’", "'")
    flags = CAPITAL if text[0].isupper() else 0
    flags |= MIXED if _MIXED.search(text) else 0
    stem, apostrophe, tail = text.rpartition("'")
    if apostrophe and tail.lower() in groups()["contracted"]:
        return UNUSABLE | STOP | _CONTRACTED.get(tail.lower(), 0), "", ""
    if apostrophe and tail.lower() == "s":
        text = stem
        flags |= BE if stem.lower() in words("stopwords") else OWNER
    plain = (normalise(text) or "").replace(",", "")
    if text[:1].isdigit():
        plain = plain.replace("_", "") if "," in text else plain
        number = plain.replace("_", "").isdigit() and len(plain) <= 9
        return flags | STOP | (NUMBER if number else 0), plain, plain
    if not plain or "/" in plain or "_" in plain:
        return UNUSABLE | STOP, "", ""
    if plain in groups()["number"]:
        number_text = str(groups()["number"].index(plain) + 2)
        return flags | STOP | NUMBER, number_text, number_text
    if len(text) <= 3 and text.isupper():
        # "DOM" is not Dom.
        flags |= _lists().get(plain, 0) & ~(NAME | MAYBE_NAME)
    else:
        flags |= _lists().get(plain, 0)
    flags |= _lists().get(singular(plain), 0) & GENERIC
    return flags | _shape(text, plain), plain, singular(plain)


def _shape(text: str, plain: str) -> int:
    flags = 0
    if len(text) > 1 and text.isupper() and len(text) <= 6:
        flags |= ACRONYM
    if "\u3400" <= plain[0] <= "\u9fff" or "\u30a0" <= plain[0] <= "\u30ff":
        return CJK
    if len(plain) < 3:
        flags |= SHORT
    if plain.endswith("ly") and len(plain) > 4 and plain not in groups()["not_adverb"]:
        flags |= GENERIC | ADVERB
    if plain.endswith("ed") and len(plain) > 4 and plain not in groups()["not_participle"]:
        flags |= WEAK
    if plain.endswith(_CONCEPT_ENDS) and len(plain) > 6 and not _lists().get(plain, 0) & (NAME | MAYBE_NAME):
        flags |= CONCEPT
    if plain.endswith(_WEAK_ENDS) and len(plain) > 5 and plain not in groups()["language"]:
        flags |= WEAK
    if plain.endswith("ing") and len(plain) > 5:
        flags |= GERUND
    if len(plain) > 3 and len(set(plain)) <= 2:
        flags |= GENERIC
    return flags


@dataclass(frozen=True)
class Vocabulary:
    """The distinct words of a text, described.

    Attributes:
        flags: int64 array, flags of each word.
        plain: ``string`` array of plain forms.
        lemma: ``string`` array of singular forms.
        plain_codes: int64 array; equal plain forms have equal codes.
        lemma_codes: int64 array; equal singular forms have equal codes.
        code_texts: ``string`` array, the form that a code (of either kind) stands for.
    """

    flags: npt.NDArray[np.int64]
    plain: pa.Array
    lemma: pa.Array
    plain_codes: npt.NDArray[np.int64]
    lemma_codes: npt.NDArray[np.int64]
    code_texts: pa.Array


def vocabulary(surfaces: list[bytes]) -> Vocabulary:
    """Describe distinct words."""
    flags, plain, lemma = zip(*map(describe, surfaces), strict=True) if surfaces else ((), (), ())
    plains, lemmas = pa.array(plain, type=pa.string()), pa.array(lemma, type=pa.string())
    coded = pa.concat_arrays([plains, lemmas]).dictionary_encode()
    codes = coded.indices.to_numpy().astype(np.int64)
    return Vocabulary(
        np.array(flags, dtype=np.int64), plains, lemmas, codes[: len(plains)], codes[len(plains) :], coded.dictionary
    )
