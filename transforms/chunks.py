"""Pieces of interactions, as OpenClaw cuts its files: whole lines up to a size, with some overlap."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from transforms.interactions import full_text

VERSION = 1
"""Raised whenever the same text gives other chunks."""

SIZE = 1600
OVERLAP = 320


def chunks(interactions: pa.Table) -> pa.Table:
    """Cut interactions into chunks.

    Args:
        interactions: case_id, interaction_id, user_text, assistant_text.

    Returns:
        Columns case_id, interaction_id, number (of the chunk within its interaction), text; at least one row an
        interaction, in the same order.
    """
    texts = full_text(interactions)
    rows: list[int] = []
    numbers: list[int] = []
    pieces: list[str] = []
    for row, text in enumerate(texts.to_pylist()):
        for number, piece in enumerate(cut(text) if len(text) > SIZE else [text]):
            rows.append(row)
            numbers.append(number)
            pieces.append(piece)
    place = pa.array(np.array(rows, np.int64))
    return pa.table(
        {
            "case_id": interactions["case_id"].take(place),
            "interaction_id": interactions["interaction_id"].take(place),
            "number": pa.array(numbers, pa.int32()),
            "text": pa.array(pieces, pa.large_string()),
        }
    )


def cut(text: str, size: int = SIZE, overlap: int = OVERLAP) -> list[str]:
    """Cut one text into chunks of at most `size` characters of whole lines; a longer line is split.

    The next chunk begins with the last lines of the one before it, as many as fit `overlap` characters. Newlines count.
    """
    lines = [line[i : i + size] for line in text.split("\n") for i in range(0, max(len(line), 1), size)]
    found: list[str] = []
    held: list[str] = []
    length = 0
    for line in lines:
        if held and length + len(line) + 1 > size:
            found.append("\n".join(held))
            kept: list[str] = []
            room = overlap
            for earlier in reversed(held):
                room -= len(earlier) + 1
                if room < 0:
                    break
                kept.append(earlier)
            held = kept[::-1]
            length = sum(len(one) + 1 for one in held)
            # What is carried over never pushes a line out of its own chunk.
            while held and length + len(line) + 1 > size:
                length -= len(held.pop(0)) + 1
        held.append(line)
        length += len(line) + 1
    return [*found, "\n".join(held)]
