"""Tags and concept labels of replies in normal form."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import zip_longest
from typing import Any

from transforms.reply_fields import strings
from transforms.tags import normalise
from transforms.tokens import tokenize_one

LONGEST = 120
"""Characters of a tag or label as a model may write it."""

_DATE = re.compile(r"(\d{4})[-/](0?[1-9]|1[0-2])(?:[-/](0?[1-9]|[12]\d|3[01]))?(?:[T ]\d.*)?")
_SENTENCE_END = re.compile(r"[.!?。！？][\"'”’)]*$")
_NOTHING = frozenset(("none", "null", "unknown", "unspecified", "not_specified", "not_mentioned", "n_a", "n/a", "na"))
"""What models write in place of an empty list."""

_GENERIC = frozenset(
    f"{kind}_{noun}"
    for kind in ("general", "casual", "daily", "everyday", "personal", "various", "other", "miscellaneous", "user")
    for noun in ("conversation", "discussion", "chat", "talk", "life", "information", "topic", "topics", "question")
) | {"small_talk", "life_events"}


def tags(value: Any, name: str, limit: int, repairs: list[str]) -> list[str]:
    """Return a field as distinct tags in normal form, at most `limit`.

    Dates such as 2023-5-9 become 2023/05/09, without their time of day; a string is split at commas. Sentences are
    dropped and told; so are levels that are sentences, with what is below them, and levels past the fourth.

    Raises:
        transforms.replies.BadReplyError: The field is no list of strings and cannot be made one.
    """
    found: dict[str, None] = {}
    sentences = shortened = 0
    for raw in strings(_listed(value, name, repairs), name, 2 * limit, 4 * LONGEST, repairs):
        date = _DATE.fullmatch(raw)
        tag = normalise("/".join(part.zfill(2) for part in date.groups() if part) if date else raw)
        if tag is None or (raw.count(" ") >= 3 and _SENTENCE_END.search(raw)):
            sentences += any(c.isalnum() for c in raw)
        elif tag not in _NOTHING:
            levels = sum(any(c.isalnum() for c in level) for level in raw.split("/"))
            shortened += not date and levels > tag.count("/") + 1
            found[tag] = None
    if sentences:
        repairs.append(f"{sentences} of '{name}' {'was a sentence' if sentences == 1 else 'were sentences'}")
    if shortened:
        repairs.append(f"{shortened} of '{name}' had levels too long or too many")
    if len(found) > limit:
        repairs.append(f"'{name}' had {len(found)} tags, {limit} are kept")
    return list(found)[:limit]


def concepts(value: Any, name: str, limit: int, repairs: list[str]) -> list[str]:
    """Return a field as distinct concept labels: lower snake_case, two to five words, none of the generic ones.

    Other labels are dropped and told. A label in a script without spaces counts by its characters.

    Raises:
        transforms.replies.BadReplyError: The field is no list of strings and cannot be made one.
    """
    found: dict[str, None] = {}
    odd = 0
    for raw in strings(_listed(value, name, repairs), name, 2 * limit, 4 * LONGEST, repairs):
        label = normalise(raw.replace("/", " "))
        if label in _NOTHING:
            continue
        if label is None or label in _GENERIC or not _words(label):
            odd += 1
        else:
            found[label] = None
    if odd:
        repairs.append(f"{odd} of '{name}' {'was no concept' if odd == 1 else 'were no concepts'} of 2 to 5 words")
    if len(found) > limit:
        repairs.append(f"'{name}' had {len(found)} concepts, {limit} are kept")
    return list(found)[:limit]


def _words(label: str) -> bool:
    words = label.count("_") + 1
    return 2 <= words <= 5 or (words == 1 and not label.isascii() and len(tokenize_one(label)) > 1)


def in_turn(lists: Iterable[Iterable[str]]) -> list[str]:
    """Join lists without repeats: the first of each, then the second of each, and so on."""
    mixed = (item for rank in zip_longest(*lists) for item in rank if item is not None)
    return list(dict.fromkeys(mixed))


def _listed(value: Any, name: str, repairs: list[str]) -> Any:
    """Split a string that should have been a list; anything else stays as it is."""
    if not isinstance(value, str) or not re.search(r"[,;\n]", value):
        return value
    repairs.append(f"'{name}' was no list")
    return re.split(r"[,;\n]+", value)
