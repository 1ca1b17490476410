"""Words of many texts at once, found on the bytes of the column.

A word is a run of letters, digits and marks of any script, with single apostrophes inside it and with ``.`` or
``,`` between digits. Scripts without spaces give overlapping pairs of characters (Han) or whole runs (Katakana);
Hiragana, mostly grammar, gives none.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from transforms.extractors._words import HONORIFIC, Vocabulary, vocabulary

_Bytes = npt.NDArray[np.uint8]
_Ints = npt.NDArray[np.int64]
_Bools = npt.NDArray[np.bool_]

_LETTER, _HAN, _KATAKANA, _HIRAGANA = 1, 2, 3, 4
_ENDS = b".!?\n:"


def _byte_classes() -> _Bytes:
    table = np.zeros(256, dtype=np.uint8)
    for low, high in ((0x30, 0x39), (0x41, 0x5A), (0x61, 0x7A), (0x80, 0xFF)):
        table[low : high + 1] = _LETTER
    return table


_CLASSES = _byte_classes()
_IS_END = np.isin(np.arange(256), np.frombuffer(_ENDS, dtype=np.uint8))
_IS_DIGIT = np.isin(np.arange(256), np.frombuffer(b"0123456789", dtype=np.uint8))


@dataclass(frozen=True)
class Words:
    """The words of a column of texts, in order. All arrays but the vocabulary's have one value a word.

    Attributes:
        row: Row that the word is in.
        word: Number of the word in the vocabulary.
        linked: Whether one space or hyphen alone parts it from the word before.
        comma: Whether a comma and a space part it from the word before.
        opens: Whether it begins a sentence, a line or a row.
        dollar: Whether a dollar sign stands before it.
        percent: Whether a percent sign stands after it.
        vocabulary: The distinct words.
    """

    row: _Ints
    word: _Ints
    linked: _Bools
    comma: _Bools
    opens: _Bools
    dollar: _Bools
    percent: _Bools
    vocabulary: Vocabulary


def scan(texts: pa.Array) -> Words:
    """Find the words of texts.

    Args:
        texts: ``large_string`` array without nulls.
    """
    # A line end parts each text from the next, so that no word and no sentence runs over the border.
    ended = pc.binary_join_element_wise(texts, pa.scalar("", texts.type), pa.scalar("\n", texts.type))
    _, offset_buffer, data = ended.buffers()
    offsets = np.frombuffer(offset_buffer, dtype=np.int64)[ended.offset : ended.offset + len(ended) + 1]
    buffer = np.zeros(int(offsets[-1] - offsets[0]) + 8, dtype=np.uint8)
    buffer[4:-4] = np.frombuffer(data, dtype=np.uint8)[offsets[0] : offsets[-1]]
    borders = offsets - offsets[0] + 4
    classes = _classify(buffer)
    change = np.flatnonzero(classes[1:] != classes[:-1]) + 1
    kind = classes[change]
    starts, kinds = change[kind != 0], kind[kind != 0]
    ends = change[classes[change - 1] != 0]
    if buffer.max(initial=0) >= 0xE3:
        starts, ends = _split_scripts(starts, ends, kinds)
    codes, surfaces = _encode(buffer, starts, ends)
    gap_start = np.empty_like(starts)
    gap_start[:1] = 0
    gap_start[1:] = ends[:-1]
    between = buffer[gap_start]
    linked = (starts - gap_start == 1) & ((between == 0x20) | (between == 0x2D))
    # A line end may stand there instead of the space, and part two texts.
    spaced = (starts - gap_start == 2) & (buffer[gap_start + 1] == 0x20)
    comma = spaced & (between == 0x2C)
    closed = np.cumsum(_IS_END[buffer], dtype=np.int32)
    opens = closed[starts] != closed[gap_start - 1]
    # Overlapping pairs of characters start before the pair before them ends.
    opens &= starts >= gap_start
    if len(opens):
        opens[0] = True
    described = vocabulary(surfaces)
    titled = np.zeros(len(starts), dtype=bool)
    titled[1:] = ((described.flags[codes] & HONORIFIC) != 0)[:-1]
    # "Mrs. Patel" is one name; its full stop ends no sentence.
    titled &= spaced & (between == 0x2E)
    linked |= titled
    opens &= ~titled
    row = np.repeat(np.arange(len(texts), dtype=np.int64), np.diff(np.searchsorted(starts, borders)))
    return Words(row, codes, linked, comma, opens, buffer[starts - 1] == 0x24, buffer[ends] == 0x25, described)


def before(values: _Ints, joined: _Bools, steps: int = 1) -> _Ints:
    """Return the flags of the word so many joined words before, 0 where there is none.

    Args:
        values: Flags of each word.
        joined: Whether each word is joined to the one before it.
        steps: How far to look back.
    """
    out = np.zeros_like(values)
    out[steps:] = values[:-steps]
    reach = joined.copy()
    for step in range(1, steps):
        reach[step:] &= joined[:-step]
    return np.where(reach, out, 0)


def after(values: _Ints, joined: _Bools, steps: int = 1) -> _Ints:
    """Return the flags of the word so many joined words after, 0 where there is none; see `before`."""
    out = np.zeros_like(values)
    out[:-steps] = values[steps:]
    reach = np.zeros_like(joined)
    reach[:-steps] = joined[steps:]
    for step in range(1, steps):
        reach[:-step] &= joined[step:]
    return np.where(reach, out, 0)


def _classify(buffer: _Bytes) -> _Bytes:
    classes = _CLASSES[buffer]
    if buffer.max(initial=0) >= 0x80:
        _classify_wide(buffer, classes)
    inner = np.flatnonzero(buffer == 0x27)
    classes[inner[(classes[inner - 1] == _LETTER) & (classes[inner + 1] == _LETTER)]] = _LETTER
    for mark in (0x2E, 0x2C):
        inner = np.flatnonzero(buffer == mark)
        classes[inner[_IS_DIGIT[buffer[inner - 1]] & _IS_DIGIT[buffer[inner + 1]]]] = _LETTER
    return classes


def _classify_wide(buffer: _Bytes, classes: _Bytes) -> None:
    lead = np.flatnonzero(buffer >= 0xC2)
    first, second = buffer[lead], buffer[lead + 1]
    han = ((first == 0xE3) & (second >= 0x90)) | ((first >= 0xE4) & (first <= 0xE9))
    kana = (first == 0xE3) & (second >= 0x81) & (second <= 0x83)
    katakana = kana & ((second == 0x83) | ((second == 0x82) & (buffer[lead + 2] >= 0xA0)))
    three = (
        ((first == 0xE2) & (second < 0xB0))
        | ((first == 0xE3) & (second == 0x80))
        | ((first == 0xEF) & np.isin(second, (0xB8, 0xBB, 0xBC, 0xBD, 0xBF)))
    )
    for where, width, kind in (
        (first == 0xC2, 2, 0),
        (three, 3, 0),
        ((first == 0xF0) & (second == 0x9F), 4, 0),
        (han, 3, _HAN),
        (kana & ~katakana, 3, _HIRAGANA),
        (katakana, 3, _KATAKANA),
    ):
        at = lead[where]
        for step in range(width):
            classes[at + step] = kind
    quote = lead[(first == 0xE2) & (second == 0x80) & (buffer[lead + 2] == 0x99)]
    quote = quote[(classes[quote - 1] == _LETTER) & (classes[quote + 3] == _LETTER)]
    for step in range(3):
        classes[quote + step] = _LETTER


def _split_scripts(starts: _Ints, ends: _Ints, kinds: _Bytes) -> tuple[_Ints, _Ints]:
    pairs = np.where(kinds == _HAN, np.maximum((ends - starts) // 3 - 1, 1), 1)
    pairs[kinds == _HIRAGANA] = 0
    step = np.arange(int(pairs.sum())) - np.repeat(np.cumsum(pairs) - pairs, pairs)
    firsts = np.repeat(starts, pairs) + 3 * step
    lasts = np.repeat(ends, pairs)
    return firsts, np.where(np.repeat(kinds == _HAN, pairs), np.minimum(firsts + 6, lasts), lasts)


def _encode(buffer: _Bytes, starts: _Ints, ends: _Ints) -> tuple[_Ints, list[bytes]]:
    lengths = ends - starts
    offsets = np.zeros(len(starts) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    # Each byte of the packed words comes from its own place plus the bytes skipped before its word.
    packed = buffer[np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], lengths)]
    words = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(starts), [None, pa.py_buffer(offsets), pa.py_buffer(packed)]
    ).dictionary_encode()
    return words.indices.to_numpy(zero_copy_only=False).astype(np.int64), words.dictionary.to_pylist()
