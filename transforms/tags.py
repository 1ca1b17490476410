"""Tags: slash paths of lower snake_case levels, such as ``career/software_engineering``.

A tag has one to `MAX_LEVELS` levels. A level has at most `MAX_WORDS` words and `MAX_CHARACTERS` characters; a
longer one is a sentence, and neither it nor the levels below it belong in a tag.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

MAX_LEVELS = 4
MAX_WORDS = 6
MAX_CHARACTERS = 64

_PLAIN = re.compile(r"[a-z0-9]+(?:_[a-z0-9]+){0,5}(?:/[a-z0-9]+(?:_[a-z0-9]+){0,5}){0,3}")
_APOSTROPHES = str.maketrans("’‘ʼ`", "''''")
_POSSESSIVE = re.compile(r"'s(?![^\W_])")


def normalise(tag: str) -> str | None:
    """Give a tag its normal form.

    Compatibility forms are unified (NFKC), letters lowered, possessive ``'s`` and apostrophes dropped, and every
    run of other characters than letters, marks and digits of any script becomes one underscore. Empty levels
    vanish; levels past the fourth, and everything from a sentence-like level on, are cut off.

    Args:
        tag: Any text.

    Returns:
        The normal form, which is its own normal form; None when nothing is left.
    """
    if len(tag) <= MAX_CHARACTERS and _PLAIN.fullmatch(tag):
        return tag
    return _normalise(tag)


@lru_cache(maxsize=1 << 16)
def _normalise(tag: str) -> str | None:
    levels: list[str] = []
    for part in _fold(tag).split("/"):
        level = _level(part)
        if not level:
            continue
        if len(level) > MAX_CHARACTERS or level.count("_") >= MAX_WORDS or len(levels) == MAX_LEVELS:
            break
        levels.append(level)
    return "/".join(levels) or None


def _fold(text: str) -> str:
    # Lowering can leave NFKC and NFKC can give new capitals, so both are repeated until nothing moves.
    for _ in range(4):
        folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).lower())
        if folded == text:
            break
        text = folded
    return text


def _level(part: str) -> str:
    part = _POSSESSIVE.sub("", part.translate(_APOSTROPHES)).replace("'", "")
    if not part.isascii():
        part = "".join(c if c.isalnum() or unicodedata.category(c)[0] in "LNM" else " " for c in part)
        # A mark with no letter before it would combine with the slash or underscore once the tag is folded again.
        words = [w.lstrip("".join(c for c in w if unicodedata.category(c)[0] == "M")) for w in part.split()]
        return "_".join(w for w in words if w)
    return "_".join(re.findall(r"[a-z0-9]+", part))


def normalise_all(tags: Sequence[str | None] | pa.Array | pa.ChunkedArray) -> pa.Array:
    """Give many tags their normal form; the work is done once for each distinct tag.

    Args:
        tags: Strings (any Arrow string type, dictionary-encoded or not, or a sequence); nulls stay null.

    Returns:
        A ``string`` array of the same length, null where nothing is left of a tag.
    """
    values = tags if isinstance(tags, pa.Array | pa.ChunkedArray) else pa.array(tags, type=pa.string())
    if isinstance(values, pa.ChunkedArray):
        values = pa.concat_arrays(values.chunks) if values.num_chunks else pa.array([], type=pa.string())
    if not pa.types.is_dictionary(values.type):
        values = values.dictionary_encode()
    forms = [None if tag is None else normalise(tag) for tag in values.dictionary.to_pylist()]
    return pa.array(forms, type=pa.string()).take(values.indices)


def prefixes(tags: Sequence[str] | pa.Array | pa.ChunkedArray) -> pa.Array:
    """List the ontology of tags: every prefix of every tag, the tags themselves among them.

    Args:
        tags: Tags in normal form.

    Returns:
        The distinct prefixes as a ``string`` array, in byte order (a parent comes before its children).
    """
    values = tags if isinstance(tags, pa.Array | pa.ChunkedArray) else pa.array(tags, type=pa.string())
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    level = pc.unique(values.cast(pa.string())).drop_null()
    found = [level]
    for _ in range(1, MAX_LEVELS):
        deeper = level.filter(pc.match_substring(level, "/"))
        level = pc.unique(pc.replace_substring_regex(deeper, "/[^/]*$", ""))
        found.append(level)
    distinct = pc.unique(pa.concat_arrays(found))
    return distinct.take(pc.sort_indices(distinct))
