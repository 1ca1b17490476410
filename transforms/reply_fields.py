"""Fields of a reply's JSON object in the wanted types.

What is obvious is mended and told in a list of repairs (phrases); what is not is a `BadReplyError`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from transforms.replies import BadReplyError
from transforms.text import clean


def fields(value: Mapping[str, Any], known: Sequence[str], repairs: list[str]) -> dict[str, Any]:
    """Return the known fields of an object; others are dropped and told, as are those that are missing.

    Raises:
        BadReplyError: It has none of them.
    """
    found = _known(value, known)
    if not found and len(value) == 1:
        inner = next(iter(value.values()))
        if isinstance(inner, dict) and (found := _known(inner, known)):
            repairs.append("the fields were one level too deep")
            value = inner
    if not found:
        raise BadReplyError(f"none of the fields {_listed(known)} is there")
    unknown = [key for key in value if _key(key) not in known]
    if unknown:
        repairs.append(f"unknown {_listed(sorted(map(_key, unknown))[:3])}{' ...' if len(unknown) > 3 else ''}")
    missing = [name for name in known if name not in found]
    if missing:
        repairs.append(f"no {_listed(missing)}")
    return found


def _known(value: Mapping[str, Any], known: Sequence[str]) -> dict[str, Any]:
    found = {_key(key): item for key, item in reversed(list(value.items()))}
    return {name: found[name] for name in known if name in found}


def _key(key: Any) -> str:
    return clean(" ".join(str(key).split())[:40]).lower()


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)


def text(value: Any, name: str, longest: int, repairs: list[str]) -> str:
    """Return a field as one line of text, cut at a word where it has more than `longest` characters.

    Raises:
        BadReplyError: It is no text and cannot be made one.
    """
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        if value:
            repairs.append(f"'{name}' was a list")
        value = " ".join(value)
    elif value is None:
        value = ""
    elif isinstance(value, int | float) and not isinstance(value, bool):
        repairs.append(f"'{name}' was a number")
        value = str(value)
    if not isinstance(value, str):
        raise BadReplyError(f"'{name}' is no string")
    line = line_of(value)
    if len(line) <= longest:
        return line
    repairs.append(f"'{name}' was cut to {longest} characters")
    head = line[:longest]
    shorter = head[: longest - 1].rpartition(" ")[0].rstrip(" ,;:-")
    return (shorter if len(shorter) > longest // 2 else head[: longest - 1]) + "…"


def line_of(value: str) -> str:
    """Return a text with its white space collapsed and what cannot be stored replaced."""
    return " ".join(clean(value).split())


def items(value: Any, name: str, limit: int, repairs: list[str], wanted: str = "strings") -> list[Any]:
    """Return a field as a list of at most `limit` items; a single item becomes a list of one.

    Raises:
        BadReplyError: It is a number or a boolean, or an object where strings are wanted.
    """
    if value is None or value == "":
        return []
    single = str if wanted == "strings" else dict
    if isinstance(value, single):
        repairs.append(f"'{name}' was no list")
        value = [value]
    if not isinstance(value, list):
        raise BadReplyError(f"'{name}' is no list of {wanted}")
    if len(value) > limit:
        repairs.append(f"'{name}' had {len(value)} items, {limit} are kept")
    return value[:limit]


def strings(value: Any, name: str, limit: int, longest: int, repairs: list[str]) -> list[str]:
    """Return a field as a list of distinct lines, at most `limit` of at most `longest` characters; empty ones go.

    Numbers become strings, an object with one string in it that string; other items are dropped and told.

    Raises:
        BadReplyError: The field is no list of strings and cannot be made one.
    """
    found: list[str] = []
    odd = long = 0
    for item in items(value, name, 4 * limit, repairs):
        if isinstance(item, dict) and len(item) == 1:
            item = next(iter(item.values()))  # noqa: PLW2901
        if isinstance(item, int | float) and not isinstance(item, bool):
            item = str(item)  # noqa: PLW2901
        if not isinstance(item, str):
            odd += item is not None
            continue
        line = line_of(item)
        if len(line) > longest:
            long += 1
        elif line and line not in found:
            found.append(line)
    if odd:
        repairs.append(f"{odd} of '{name}' {'was' if odd == 1 else 'were'} no string")
    if long:
        repairs.append(f"{long} of '{name}' had more than {longest} characters")
    if len(found) > limit:
        repairs.append(f"'{name}' had {len(found)} items, {limit} are kept")
    return found[:limit]
