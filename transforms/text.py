"""Text made safe to store, and message contents of every shape made text. Nothing else about a text is changed."""

from __future__ import annotations

import codecs
import io
import re
from collections import Counter
from typing import Any, BinaryIO

from schemas.errors import InputError

_SURROGATE = re.compile("[\ud800-\udfff]")
_MARK = "\ufffd"
_BLOCK = 1 << 20
_BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


def clean(text: str, repairs: Counter[str] | None = None) -> str:
    """Replace NUL characters and lone surrogates by U+FFFD; other text is returned as it is.

    Args:
        text: Any string.
        repairs: Where nul_character and lone_surrogate are counted, once a string.
    """
    if "\x00" in text:
        text = text.replace("\x00", _MARK)
        if repairs is not None:
            repairs["nul_character"] += 1
    if not text.isascii() and _SURROGATE.search(text):
        text = _SURROGATE.sub(_MARK, text)
        if repairs is not None:
            repairs["lone_surrogate"] += 1
    return text


def clean_tree(value: Any, repairs: Counter[str]) -> Any:
    """Apply `clean` to every string, keys included, of a parsed JSON value.

    Raises:
        RecursionError: It is nested too deep.
    """
    if isinstance(value, str):
        return clean(value, repairs)
    if isinstance(value, list):
        return [clean_tree(item, repairs) for item in value]
    if isinstance(value, dict):
        return {clean(key, repairs): clean_tree(item, repairs) for key, item in value.items()}
    return value


def decode(data: bytes, repairs: Counter[str]) -> str:
    """Decode bytes that should be UTF-8.

    Bytes that are not are read as cp1252 when no other UTF-8 sequence stands among them (a legacy file), else each
    bad byte becomes U+FFFD (a damaged file). Counted as cp1252 or bad_utf8.
    """
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        pass
    try:
        # Lone surrogates written as three bytes (CESU-8) are caught by `clean` afterwards.
        return data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        pass
    text = data.decode("utf-8", "replace")
    if all(char == _MARK for char in re.findall(r"[^\x00-\x7f]", text)):
        repairs["cp1252"] += 1
        return data.decode("cp1252", "replace")
    repairs["bad_utf8"] += 1
    return text


def text_stream(stream: BinaryIO, encoding: str = "auto") -> tuple[BinaryIO, str]:
    """Make a stream of bytes one of UTF-8 without a byte order mark.

    Args:
        stream: Decompressed bytes, at their beginning.
        encoding: A Python codec name, or ``auto``: byte order marks are followed, UTF-16 without one is known by its
            zero bytes, and everything else passes through (`decode` deals with legacy bytes record by record).

    Returns:
        The stream, and the name of the encoding it was in: ``utf-8`` when nothing was done.

    Raises:
        InputError: Python knows no such text encoding.
    """
    buffered = io.BufferedReader(stream, _BLOCK) if isinstance(stream, io.RawIOBase) else stream
    head = buffered.read(4096)
    rest = _Chained(head, buffered)
    name = encoding.lower().replace("_", "-")
    if name == "auto":
        name = _guess(head)
    if name in ("utf-8", "utf8"):
        name = "utf-8-sig" if head.startswith(codecs.BOM_UTF8) else "utf-8"
    if name == "utf-8":
        return io.BufferedReader(rest, _BLOCK), name
    try:
        b"  ".decode(name, "replace")  # refuses codecs that are not of text, such as base64
        decoder = codecs.getincrementaldecoder(name)("replace")
    except (LookupError, ValueError):
        raise InputError(
            f"'{encoding}' is not a text encoding",
            where="ingest.encoding",
            remedy="Use auto, utf-8, utf-16, cp1252, latin-1 or another name that Python knows.",
        ) from None
    return io.BufferedReader(_Transcoded(rest, decoder), _BLOCK), name


def _guess(head: bytes) -> str:
    for mark, name in _BOMS:
        if head.startswith(mark):
            return name
    even, odd = head[0::2].count(0), head[1::2].count(0)
    if len(head) >= 4 and max(even, odd) > len(head) // 6 and min(even, odd) * 8 < max(even, odd):
        return "utf-16-le" if odd > even else "utf-16-be"
    return "utf-8"


class _Chained(io.RawIOBase):
    """A stream with its head put back."""

    def __init__(self, head: bytes, rest: BinaryIO) -> None:
        self._head, self._rest = head, rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        head, self._head = self._head[: len(buffer)], self._head[len(buffer) :]
        data = head + self._rest.read(len(buffer) - len(head)) if len(head) < len(buffer) else head
        buffer[: len(data)] = data
        return len(data)


class _Transcoded(io.RawIOBase):
    """UTF-8 bytes of a stream in another encoding; what does not decode becomes U+FFFD."""

    def __init__(self, stream: io.RawIOBase, decoder: codecs.IncrementalDecoder) -> None:
        self._stream, self._decoder = io.BufferedReader(stream, _BLOCK), decoder
        self._ready, self._ended = memoryview(b""), False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready and not self._ended:
            data = self._stream.read(_BLOCK)
            self._ended = not data
            text = self._decoder.decode(data, final=self._ended)
            self._ready = memoryview(text.encode("utf-8", "replace"))
        size = min(len(buffer), len(self._ready))
        buffer[:size] = self._ready[:size]
        self._ready = self._ready[size:]
        return size


def content_text(content: Any, message: dict[str, Any], repairs: Counter[str]) -> str:
    """Give the text of a message's content, whatever its shape.

    A string stays as it is. A list of parts gives their texts joined by line feeds, parts without text as ``[type]``.
    Null gives an empty text, never the word None. A message whose content is empty and that calls tools gives
    ``[tool_call: NAME]`` lines. Numbers and booleans are written as JSON does.

    Args:
        content: The content as parsed from JSON.
        message: The message that it is part of, for its tool calls.
        repairs: Where null_content, list_content, tool_call and non_text_content are counted.
    """
    if isinstance(content, str):
        text = content
    elif content is None:
        text = ""
    elif isinstance(content, list):
        repairs["list_content"] += 1
        text = "\n".join(part for part in map(_part, content) if part)
    elif isinstance(content, dict):
        repairs["list_content"] += 1
        text = _part(content)
    else:
        repairs["non_text_content"] += 1
        text = scalar_text(content)
    if not text and (calls := _calls(message)):
        repairs["tool_call"] += 1
        return "\n".join(f"[tool_call: {name}]" for name in calls)
    if content is None:
        repairs["null_content"] += 1
    return text


def scalar_text(value: Any) -> str:
    """Write a number or a boolean as text; strings stay, everything else gives an empty text."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else ""


def _part(part: Any) -> str:
    if not isinstance(part, dict):
        return scalar_text(part)
    text = part.get("text")
    if isinstance(text, dict):
        text = text.get("value")
    if isinstance(text, str):
        return text
    kind = part.get("type")
    return f"[{kind}]" if isinstance(kind, str) and kind else "[part]"


def _calls(message: dict[str, Any]) -> list[str]:
    calls = message.get("tool_calls")
    found = list(calls) if isinstance(calls, list) else []
    if isinstance(message.get("function_call"), dict):
        found.append({"function": message["function_call"]})
    names = []
    for call in found:
        inner = call.get("function") if isinstance(call, dict) else None
        name = (inner if isinstance(inner, dict) else call if isinstance(call, dict) else {}).get("name")
        names.append(name if isinstance(name, str) and name else "unknown")
    return names
