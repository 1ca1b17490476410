"""Replies of models: the JSON object in one, and its fields in the wanted types.

What differs from the wanted form is mended only where that is safe, and told; everything else is a `BadReplyError`.
A repair of broken JSON is safe when no JSON syntax is left in keys and strings, and when it has no word that the reply
had not, and nearly all that it had. A reply that was cut keeps what was whole: an unfinished element of a list, or an
unfinished field, is dropped.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

VERSION = 1
"""Goes up by one whenever the same reply would be read in another way."""

_BLANK = " \t\r\n\f\v\x00\ufeff\u200b\u00a0"
_LONGEST = 1 << 20
_LONGEST_BROKEN = 1 << 14
_MOST_BRACKETS = 100
_DEEPEST = 8
_WHITE_SPACE = 200
_TRIES = 64
_LOST_SHARE = 0.1
_TOLD = 300

_BEGIN = re.compile(r"""\{\s*(?:["'}“]|\w{1,40}\s*:)|\[\s*\{""")
_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*(?P<shut>"|\\?\Z)|[{}\[\],:]', re.DOTALL)
_FENCE = re.compile(r"```[\w-]*")
_THOUGHT = re.compile(r"\s*<(think|thinking|thought|reasoning)>.*?</\1>", re.DOTALL | re.IGNORECASE)
_THOUGHT_ENDS = re.compile(r"</(?:think|thinking|thought|reasoning)>", re.IGNORECASE)
_THOUGHT_BEGINS = re.compile(r"\s*<(?:think|thinking|thought|reasoning)>", re.IGNORECASE)
_GOES_ON = re.compile(r"[\]}\s]*[,:\"]")
_INSIDE = re.compile(r'(?:[\[{,]|"\s*:)\s*\Z')
_SYNTAX = re.compile(r'"\s*[:,\]}]|[\[{:,]\s*"|\A\s*[:,]')
_NAME = re.compile(r"\w[\w .-]{0,39}")
_WORD = re.compile(r"[^\W_]+")
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|[nrtbf])")
_CONSTANTS = frozenset(("true", "false", "null", "none", "nan", "infinity"))
_REFUSAL = re.compile(
    r"(?:\W*(?:sorry|unfortunately|i apologi[sz]e)\b[^.!{]{0,120}?)?\W*(?:but )?"
    r"(?:i(?:'m| am) (?:sorry|unable|not able|not allowed|not comfortable)"
    r"|i (?:can(?:'t|not| not)|could not|couldn't|won't|will not|must decline|am not able|apologi[sz]e)"
    r"|as an ai\b|(?:this|your) (?:request|content|conversation) (?:violates|goes against)"
    r"|i(?:'m| am) just an ai)",
    re.IGNORECASE,
)


_A_LIST = "the reply is a JSON list, not an object"
_IN_STRING, _IN_LIST = "the object was inside a string", "the object was inside a list"
_IN_FENCE, _IN_TEXT = "a code fence around the object", "text around the object"
WRAPPED = frozenset((_IN_STRING, _IN_LIST, _IN_FENCE, _IN_TEXT))
"""What `parse` tells of an object that was whole in itself."""


class BadReplyError(Exception):
    """A reply that cannot be used. Its text is a short phrase, fit for the model and for a note's `error`."""


def parse(text: str, finish: str) -> tuple[dict[str, Any], list[str]]:
    """Find the JSON object of a reply.

    White space, a byte order mark and thoughts in ``<think>`` are passed over. Of several objects the largest counts.

    Args:
        text: The reply, anything.
        finish: How it ended; ``length`` where it was cut.

    Returns:
        The object, and what had to be mended (phrases).

    Raises:
        BadReplyError: There is no object that is whole or can safely be made so.
    """
    body = text.strip(_BLANK)
    if not body:
        endless = len(text) >= _WHITE_SPACE
        raise BadReplyError("the reply is nothing but white space" if endless else "the reply is empty")
    if len(body) > _LONGEST:
        raise BadReplyError(f"the reply has {len(body)} characters")
    value = _load(body)
    if value is None:
        body = _after_thoughts(body, finish)
        value = _load(body)
    repairs: list[str] = []
    if isinstance(value, str) and "{" in value:
        repairs.append(_IN_STRING)
        value = _load(value.strip(_BLANK))
    if isinstance(value, list) and len(value) == 1:
        repairs.append(_IN_LIST)
        value = value[0]
    if isinstance(value, dict):
        return value, repairs
    if value is not None:
        raise BadReplyError(f"the reply is a JSON {_kind(value)}, not an object")
    ran_on = len(text) - len(text.rstrip(_BLANK)) >= _WHITE_SPACE
    return _found(body, finish, ran_on)


def refusal(text: str) -> bool:
    """Tell whether a text begins like a refusal."""
    return _REFUSAL.match(text[:400].replace("’", "'").strip('"*_# \t\r\n')) is not None


def told(repairs: Sequence[str]) -> str | None:
    """Join repairs for a table's `error`; 300 characters at most, None without any."""
    return "; ".join(dict.fromkeys(repairs))[:_TOLD] or None


def _load(text: str) -> Any:
    """Parse JSON; None where it is none (or null). Control characters in strings pass."""
    if text[:1] not in ("{", "[", '"'):
        return None
    try:
        return json.loads(text, strict=False, parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        return None


def _after_thoughts(body: str, finish: str) -> str:
    thought = _THOUGHT.match(body)
    if thought is not None:
        body = body[thought.end() :]
    elif _THOUGHT_BEGINS.match(body):
        if finish == "length":
            raise BadReplyError("the reply was cut while the model was still thinking")
    elif body[0] not in "{[`":  # some chat templates write the first tag themselves
        body = _THOUGHT_ENDS.split(body)[-1]
    body = body.strip(_BLANK)
    if not body:
        raise BadReplyError("the reply holds thoughts and no answer")
    return body


def _found(body: str, finish: str, ran_on: bool) -> tuple[dict[str, Any], list[str]]:
    """Find the object in text that is not JSON as a whole."""
    whole: list[tuple[int, int, dict[str, Any]]] = []
    broken: list[tuple[int, int]] = []
    decoder = json.JSONDecoder(strict=False, parse_constant=lambda _: None)
    listed = False
    at = 0
    for _ in range(_TRIES):
        begin = _BEGIN.search(body, at)
        if begin is None:
            break
        start = begin.start()
        try:
            value, at = decoder.raw_decode(body, start)
        except (ValueError, RecursionError):
            if body[start] == "[":  # a broken list, perhaps around the one object
                at = start = begin.end() - 1
                end = _end(body, start)
                if end is not None and body[end:].lstrip(_BLANK).startswith(","):
                    raise BadReplyError(_A_LIST) from None
                continue
            end = _end(body, start)
            if end is None or _GOES_ON.match(body, end):
                broken.append((start, len(body)))
                break
            broken.append((start, end))
            at = end
            continue
        # A bracket too many closed it early, or it lies inside an object whose quotes do not pair.
        if _GOES_ON.match(body, at) or (broken and _INSIDE.search(body[:start])):
            broken.append((min(start, *(one for one, _ in broken)) if broken else start, len(body)))
            break
        if isinstance(value, list):
            listed = listed or len(value) > 1
            value = value[0] if len(value) == 1 else None
        if isinstance(value, dict) and value:
            whole.append((start, at, value))
    if whole:
        start, end_at, value = max(whole, key=lambda one: one[1] - one[0])
        return value, _around(body, start, end_at)
    if not broken:
        if refusal(body) or finish == "content_filter":
            raise BadReplyError(f"a refusal: {' '.join(body[:240].split())[:80]}")
        if listed or body.startswith("["):
            raise BadReplyError(_A_LIST)
        raise BadReplyError("no JSON object in the reply" if "{" not in body else "broken JSON")
    start, stop = max(broken, key=lambda one: one[1] - one[0])
    value, how = _mend(body[start:stop].rstrip(_BLANK), finish, ran_on)
    return value, [*_around(body, start, stop), how]


def _around(body: str, start: int, end: int) -> list[str]:
    before, after = body[:start], body[end:]
    fenced = _FENCE.search(before) or "```" in after
    prose = (_FENCE.sub("", before) + after.replace("```", "")).strip(_BLANK + "[]")
    return [_IN_FENCE] * bool(fenced) + [_IN_TEXT] * bool(prose)


def _end(text: str, start: int) -> int | None:
    """Return where the brackets that open at `start` are closed again."""
    depth = 0
    for token in _TOKEN.finditer(text, start):
        if token[0] in ("{", "["):
            depth += 1
        elif token[0] in ("}", "]"):
            depth -= 1
            if depth <= 0:
                return token.end()
    return None


def _depth(text: str) -> int:
    depths = accumulate((one in "{[") - (one in "}]") for one in re.findall(r"[{}\[\]]", text))
    return max(depths, default=0)


def _mend(text: str, finish: str, ran_on: bool) -> tuple[dict[str, Any], str]:
    """Make an object of broken or cut JSON."""
    if _end(text, 0) is None and (finish == "length" or ran_on or text[-1] not in "}]"):
        how = "ran on in white space" if ran_on else "was cut at its limit" if finish == "length" else "broke off"
        closed = _closed(text)
        if closed is None:
            raise BadReplyError(f"the reply {how} before its first field was whole")
        value = _load(closed) or _repaired(closed)
        if not value:
            raise BadReplyError(f"the reply {how}, and is broken JSON before that")
        return value, f"the reply {how}"
    value = _repaired(text)
    if value is None:
        raise BadReplyError("broken JSON")
    return value, "broken JSON"


def _closed(text: str) -> str | None:
    """Close cut JSON after the last value that is whole; objects in lists count as one value."""
    stack: list[str] = []
    value_next: list[bool] = []
    best: tuple[int, str] | None = None
    for token in _TOKEN.finditer(text):
        mark = token[0]
        if mark in ("{", "["):
            stack.append(mark)
            value_next.append(mark == "[")
            continue
        if not stack or (mark[0] == '"' and token["shut"] != '"'):
            break
        place = token.end()
        if mark == ":":
            value_next[-1] = True
            continue
        if mark == ",":
            place = token.start()
            whole = value_next[-1] and text[:place].rstrip()[-1:] not in ("[", ":", ",")
            value_next[-1] = stack[-1] == "["
        elif mark in ("}", "]"):
            stack.pop()
            value_next.pop()
            whole = True
        else:
            whole = value_next[-1]
        if whole and "[{" not in "".join(stack):
            best = place, "".join("}" if one == "{" else "]" for one in reversed(stack))
    return None if best is None or best[0] == 0 else text[: best[0]] + best[1]


def _repaired(text: str) -> dict[str, Any] | None:
    """Return what json_repair makes of broken JSON, where that is safe."""
    import json_repair

    # Its time grows with the square of the brackets and more.
    if len(text) > _LONGEST_BROKEN or text.count("{") + text.count("[") > _MOST_BRACKETS or _depth(text) > _DEEPEST:
        return None
    try:
        value = json_repair.loads(text, skip_json_loads=True)
    except (ValueError, RecursionError, IndexError, TypeError, KeyError, AttributeError):
        return None
    if not isinstance(value, dict) or not value:
        return None
    keys, texts = _parts(value)
    if not all(map(_NAME.fullmatch, keys)) or any(_SYNTAX.search(one) for one in texts):
        return None
    had, has = _words(_ESCAPE.sub(_unescaped, text)), _words(" ".join(keys + texts))
    safe = not has - had and (had - has).total() <= _LOST_SHARE * had.total()
    return value if safe else None


def _words(text: str) -> Counter[str]:
    return Counter(word for word in _WORD.findall(text.lower()) if word not in _CONSTANTS)


def _unescaped(match: re.Match[str]) -> str:
    return chr(int(match[1], 16)) if match[1] else " "


def _parts(value: Any) -> tuple[list[str], list[str]]:
    """Return the keys and the plain values of an object, those inside others among them, as strings."""
    keys: list[str] = []
    texts: list[str] = []
    left = [value]
    while left:
        one = left.pop()
        if isinstance(one, dict):
            keys += map(str, one)
            left += one.values()
        elif isinstance(one, list):
            left += one
        else:
            texts.append(str(one))
    return keys, texts


def _kind(value: Any) -> str:
    names = {str: "string", list: "list", dict: "object", bool: "boolean", type(None): "null"}
    return names.get(type(value), "number")
