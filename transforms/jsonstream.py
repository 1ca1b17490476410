"""JSON read as a stream: elements of a big array, lines, and values that are repaired where they are broken."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Generator, Iterator
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt
import orjson

from transforms.text import clean_tree, decode

LIMIT = 256 << 20
"""Bytes of the largest element or line that is held; a larger one is a fault, not an out-of-memory."""

_BLOCK = 512 << 10
_AFTER_FAULT = 4 << 10
_SAMPLE = 800
_FILLER = b" \t\r\n,"
_QUOTE, _BACKSLASH = 0x22, 0x5C

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


class Piece(NamedTuple):
    """One element or line.

    Attributes:
        offset: Byte at which it begins (elements), or line number from 1 (lines).
        data: Its bytes; only the start of them when `fault` is set.
        fault: Empty, ``truncated`` (the input ended inside), ``too_large`` or ``unclosed`` (the next element began
            before this one ended).
    """

    offset: int
    data: bytes
    fault: str = ""


def array_elements(
    stream: BinaryIO, limit: int = LIMIT, keys: tuple[str, ...] = (), block: int = _BLOCK
) -> Iterator[Piece]:
    """Split a top-level JSON array of objects into elements without parsing them.

    Brackets are found with numpy, string and escape state with cumulative sums, so that the cost is a few passes
    over the bytes. A stream that begins with an object instead of an array is taken as values one after the other
    (a single record, or JSONL). What stands between elements and is neither white space nor a comma comes out as a
    piece of its own.

    Args:
        stream: Binary stream of UTF-8.
        limit: Bytes of the largest element that is held.
        keys: Top-level keys of the elements with which no nested object begins. The first ``{"KEY":`` found makes
            the marker at which splitting starts afresh after a broken element. In valid JSON these bytes never occur
            inside a string, so a marker away from the top level proves that something before it is broken.
        block: Bytes read and scanned at once.

    Yields:
        Pieces in order of offset. An array that is not closed gives a last piece with the fault ``truncated``.
    """
    splitter = _Splitter(limit)
    held, base, ended = b"", 0, False
    while not ended:
        fresh = _read(stream, block)
        ended = len(fresh) < block
        data = held + fresh if held else fresh
        if not splitter.begun:
            data, base, ready = _begin(data, base, splitter, keys, ended)
            if not ready:
                held = data
                continue
        kept = 0 if ended else max(0, len(splitter.marker) - 1)  # a marker may lie across blocks
        stop = max(0, len(data) - kept)
        yield from splitter.feed(data, stop, base)
        held, base = data[stop:], base + stop
    yield from splitter.finish(base)


def _begin(data: bytes, base: int, splitter: _Splitter, keys: tuple[str, ...], ended: bool) -> tuple[bytes, int, bool]:
    body = data.lstrip(b" \t\r\n")
    base += len(data) - len(body)
    found = _first_key(body, keys) if keys else None
    if not ended and (not body or (keys and not found and len(body) < 65536)):
        return body, base, False
    splitter.begun = True
    splitter.marker = found.group() if found else b""
    if body.startswith(b"["):
        splitter.base = splitter.depth = 1
        return body[1:], base + 1, True
    return body, base, True


def _first_key(body: bytes, keys: tuple[str, ...]) -> re.Match[bytes] | None:
    names = "|".join(re.escape(key) for key in keys).encode()
    return re.search(rb'\{\s{0,64}"(?:' + names + rb')"\s{0,64}:', body[:65536])


def _read(stream: BinaryIO, size: int) -> bytes:
    """Read exactly `size` bytes unless the stream ends, so that pieces do not depend on how a pipe delivers."""
    first = stream.read(size)
    if not first or len(first) == size:
        return first or b""
    parts, missing = [first], size - len(first)
    while missing and (part := stream.read(missing)):
        parts.append(part)
        missing -= len(part)
    return b"".join(parts)


class _Splitter:
    """State between blocks: depth, string, escape, and what is held of the current element and gap."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.marker = b""
        self.begun = False
        self.base = self.depth = 0
        self.in_string = self.odd = False
        self.start = -1
        self.parts: list[bytes] = []
        self.size = 0
        self.too_large = False
        self.gap_start = -1
        self.gap = b""

    def feed(self, data: bytes, stop: int, base: int) -> Iterator[Piece]:
        at, width = 0, stop
        while at < stop:
            end = min(stop, at + width)
            marks = self._marks(data, at, end)
            done, fault = yield from self._scan(data, at, end, base, marks)
            if fault:
                yield from self._cut(base + done)
                width = _AFTER_FAULT
            else:
                width *= 2
            at = done

    def _marks(self, data: bytes, at: int, end: int) -> list[int]:
        if not self.marker:
            return []
        marks, last = [], end + len(self.marker) - 1
        found = data.find(self.marker, at, last)
        while found >= 0:
            marks.append(found)
            found = data.find(self.marker, found + 1, last)
        return marks

    def _scan(
        self, data: bytes, at: int, end: int, base: int, marks: list[int]
    ) -> Generator[Piece, None, tuple[int, bool]]:
        """Take one stretch; return how far it went and whether a marker proved a fault there."""
        hits, closing, quote = self._hits(data, at, end)
        turns = np.cumsum(quote, dtype=np.uint8) + np.uint8(self.in_string)
        inside = (turns & 1).astype(bool)
        real = np.flatnonzero(~(quote | inside))
        places, steps = hits[real], np.where(closing[real], -1, 1)
        depth, base_after = self._depths(steps)
        fault = -1
        for mark in marks:
            in_string = bool(inside[n - 1]) if (n := int(np.searchsorted(hits, mark))) else self.in_string
            n = int(np.searchsorted(places, mark))
            level = int(depth[n - 1]) if n else self.depth
            if in_string or level != (int(base_after[n - 1]) if n else self.base):
                fault = mark
                break
        if fault >= 0:
            end = fault
            cut = int(np.searchsorted(places, fault))
            places, steps, depth, base_after = places[:cut], steps[:cut], depth[:cut], base_after[:cut]
        yield from self._emit(data, at, end, base, places, steps, depth, base_after)
        if fault < 0:
            if len(hits):
                self.in_string = bool(inside[-1])
            self.odd = _odd_tail(data, at, end, self.odd)
        return end, fault >= 0

    def _hits(self, data: bytes, at: int, end: int) -> tuple[Ints, Flags, Flags]:
        """Places of brackets and of quotes that no backslash escapes, whether each closes, whether it is a quote."""
        codes = np.frombuffer(data, np.uint8, end - at, at)
        folded = codes | 0x20  # makes [ ] equal to { }
        found = folded == 0x7B
        found |= folded == 0x7D
        found |= codes == _QUOTE
        hits = np.flatnonzero(found)
        kinds = codes[hits]
        quote = kinds == _QUOTE
        escaped = _escaped(codes, hits, quote, self.odd)
        if escaped is not None:
            hits, kinds, quote = hits[~escaped], kinds[~escaped], quote[~escaped]
        return hits + at, (kinds & 2) == 0, quote

    def _depths(self, steps: Ints) -> tuple[Ints, Ints]:
        """Depth after each bracket, and the depth at which elements lie there; closers too many are ignored."""
        depth = np.cumsum(steps) + self.depth
        base = np.full(len(depth), self.base)
        if self.base and len(depth) and depth.min() < 1:
            first = int(np.argmax(depth < 1))
            base[first:] = 0
        # Clamp at zero: every new low below zero lifts what follows.
        return depth - np.minimum(np.minimum.accumulate(depth), 0) if len(depth) else depth, base

    def _emit(
        self, data: bytes, at: int, end: int, base: int, places: Ints, steps: Ints, depth: Ints, bases: Ints
    ) -> Iterator[Piece]:
        before = np.concatenate(([self.depth], depth[:-1])) if len(depth) else depth
        opens = (steps > 0) & (before == bases)
        closes = (steps < 0) & (depth == bases) & (before > depth)
        ends = np.zeros(len(depth), bool)
        if self.base and len(depth) and bases[-1] == 0:
            # The bracket that closes the array itself is no element's end.
            ends[int(np.argmax(bases == 0))] = True
            closes &= ~ends
        stray = (steps < 0) & (before == depth)
        cursor = at
        for event in np.flatnonzero(opens | closes | ends | stray).tolist():
            place = int(places[event])
            if opens[event]:
                yield from self._gap(data[cursor:place], base + cursor, closed=True)
                self.start, cursor = base + place, place
            elif closes[event]:
                self._hold(data[cursor : place + 1])
                yield self._close("too_large" if self.too_large else "")
                cursor = place + 1
            elif ends[event]:
                yield from self._gap(data[cursor:place], base + cursor, closed=True)
                cursor = place + 1
        if self.start >= 0:
            self._hold(data[cursor:end])
        else:
            yield from self._gap(data[cursor:end], base + cursor, closed=False)
        if len(depth):
            self.depth, self.base = int(depth[-1]), int(bases[-1])

    def _hold(self, data: bytes) -> None:
        self.size += len(data)
        if self.too_large:
            return
        self.parts.append(data)
        if self.size > self.limit:
            self.too_large = True
            self.parts = [b"".join(self.parts)[:_SAMPLE]]

    def _close(self, fault: str) -> Piece:
        data = self.parts[0] if len(self.parts) == 1 else b"".join(self.parts)
        piece = Piece(self.start, data[:_SAMPLE] if fault else data, fault)
        self.start, self.parts, self.size, self.too_large = -1, [], 0, False
        return piece

    def _gap(self, data: bytes, offset: int, *, closed: bool) -> Iterator[Piece]:
        if self.gap_start < 0 and data:
            body = data.lstrip(_FILLER)
            if body:
                self.gap_start = offset + len(data) - len(body)
                self.gap = body[:65536]
        elif len(self.gap) < 65536:
            self.gap += data[: 65536 - len(self.gap)]
        if closed and self.gap_start >= 0:
            yield Piece(self.gap_start, self.gap.rstrip(_FILLER))
            self.gap_start, self.gap = -1, b""

    def _cut(self, offset: int) -> Iterator[Piece]:
        """Give up what is held and begin again at a marker."""
        if self.start >= 0:
            yield self._close("unclosed")
        else:
            yield from self._gap(b"", offset, closed=True)
        self.depth, self.in_string, self.odd = self.base, False, False

    def finish(self, offset: int) -> Iterator[Piece]:
        """What is left at the end of the stream."""
        if self.start >= 0:
            yield self._close("truncated")
        elif self.gap_start >= 0:
            yield from self._gap(b"", offset, closed=True)
            if self.base:
                yield Piece(offset, b"", "truncated")
        elif self.base:
            yield Piece(offset, b"", "truncated")


def _escaped(codes: Bytes, hits: Ints, quote: Flags, odd: bool) -> Flags | None:
    """Mark the quotes that stand after an odd run of backslashes; None when there are none."""
    before = codes[hits - 1] == _BACKSLASH  # hit 0 wraps round and is put right below
    before &= quote
    if len(hits) and hits[0] == 0:
        before[0] = False
    which = np.flatnonzero(before)
    runs = np.ones(len(which), np.int64)
    alive, place = np.arange(len(which)), hits[which] - 2
    for _ in range(16):
        if not len(alive):
            break
        more = (place >= 0) & (codes[place] == _BACKSLASH)
        alive, place = alive[more], place[more] - 1
        runs[alive] += 1
    if len(alive):
        other = np.where(codes != _BACKSLASH, np.arange(len(codes)), -1)
        last = np.maximum.accumulate(other)[hits[which[alive]] - 1]
        runs[alive] = hits[which[alive]] - 1 - last
    if odd:
        runs += runs == hits[which]  # the run goes on in the block before
    result = np.zeros(len(hits), bool)
    result[which[runs % 2 == 1]] = True
    if odd and len(hits) and hits[0] == 0 and quote[0]:
        result[0] = True
    return result if result.any() else None


def _odd_tail(data: bytes, at: int, end: int, odd: bool) -> bool:
    """Tell whether a block ends in an odd run of backslashes."""
    if data[end - 1] != _BACKSLASH:
        return False
    run = end - at - len(data[at:end].rstrip(b"\\"))
    return (run + (odd and run == end - at)) % 2 == 1


def lines(stream: BinaryIO, limit: int = LIMIT, block: int = 1 << 20) -> Iterator[Piece]:
    """Split a stream at line feeds; `offset` is the line's number from 1. Blank lines are passed over.

    A last line without a line feed carries no fault: whether it is whole shows when it is parsed.
    """
    number, size = 1, 0
    parts: list[bytes] = []
    while data := stream.read(block):
        at = 0
        while (end := data.find(b"\n", at)) >= 0:
            piece = data[at:end]
            if parts:
                piece = b"".join([*parts, piece])
            size += end - at
            if size > limit:
                yield Piece(number, piece[:_SAMPLE], "too_large")
            elif not piece.isspace() and piece:
                yield Piece(number, piece)
            parts, size, at, number = [], 0, end + 1, number + 1
        size += len(data) - at
        if at < len(data) and size <= limit:
            parts.append(data[at:])
        elif size > limit and parts:
            parts = [b"".join(parts)[:_SAMPLE]]
    rest = b"".join(parts)
    if size > limit:
        yield Piece(number, rest[:_SAMPLE], "too_large")
    elif rest.strip():
        yield Piece(number, rest)


def load(data: bytes, repairs: Counter[str]) -> Any:
    """Parse one JSON value; text that breaks strict parsers is repaired and counted.

    Lone surrogate escapes and NUL characters become U+FFFD, raw control characters inside strings are kept, bytes
    that are not UTF-8 are read as `transforms.text.decode` does, NaN and infinities become null.

    Args:
        data: The bytes of one value.
        repairs: Where repairs are counted: lone_surrogate, nul_character, control_character, bad_utf8, cp1252.

    Raises:
        ValueError: It is not JSON; the message says why.
    """
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        return _load_broken(data, repairs, str(error))
    if b"\\u0000" in data:
        try:
            return clean_tree(value, repairs)
        except RecursionError:
            raise ValueError("nested too deep") from None
    return value


def _load_broken(data: bytes, repairs: Counter[str], why: str) -> Any:
    counted: Counter[str] = Counter()
    text = decode(data, counted)
    try:
        value = json.loads(text, strict=False, parse_constant=lambda _: None)
        value = clean_tree(value, counted)
    except RecursionError:
        raise ValueError("nested too deep") from None
    except ValueError:
        raise ValueError(why) from None
    if not counted:
        counted["lenient_json"] += 1
    repairs.update(counted)
    return value
