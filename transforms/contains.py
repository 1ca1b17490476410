"""Relevance by what a note says, for questions whose evidence is told as texts and not as ids (ATANT)."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from transforms.interactions import full_text

Ints = npt.NDArray[np.int64]
Pairs = tuple[Ints, Ints]
"""Question and row of each pair, in order of both."""


def expecting(questions: pa.Table) -> bool:
    """Tell whether a question names a text that a relevant interaction holds."""
    texts = questions["expected_contains"].combine_chunks().flatten()
    return bool(pc.any(pc.not_equal(texts, "")).as_py())


def holders(questions: pa.Table, interactions: pa.Table) -> tuple[Pairs, Pairs]:
    """Find the interactions of a question's case that hold what it expects.

    Texts are compared in lower case, as Python's ``str.lower`` makes it. An empty text expects nothing. Time grows with
    the expected texts times the text of their case.

    Args:
        questions: Columns case_id and expected_contains.
        interactions: Columns case_id, user_text and assistant_text, of the same cases.

    Returns:
        Pairs of question and interaction row where all expected texts of the question occur (strict), and where any
        does (permissive).
    """
    lists = questions["expected_contains"].combine_chunks()
    asker = np.repeat(np.arange(len(lists)), np.asarray(pc.list_value_length(lists), dtype=np.int64))
    wanted = [text.lower() for text in lists.flatten().to_pylist()]
    cases, case_of_row = _codes(interactions)
    case = np.asarray(pc.index_in(_plain(questions), value_set=cases).fill_null(-1), dtype=np.int64)[asker]
    items = {(question, place, text) for question, place, text in zip(asker, case, wanted, strict=True) if text}
    size = np.bincount(np.array([item[0] for item in items], dtype=np.int64), minlength=len(lists))

    order = np.argsort(case_of_row, kind="stable")
    order = order[np.isin(case_of_row[order], case)]
    bounds = np.searchsorted(case_of_row[order], np.arange(len(cases) + 1))
    said = [text.lower() for text in full_text(interactions.take(pa.array(order))).to_pylist()]
    texts: dict[int, _Texts] = {}
    found: dict[tuple[int, str], Ints] = {}
    keys: list[Ints] = [np.empty(0, np.int64)]
    for question, place, text in items:
        if place < 0:
            continue
        rows = found.get((place, text))
        if rows is None:
            start, end = bounds[place], bounds[place + 1]
            if place not in texts:
                texts[place] = _Texts(said[start:end])
            rows = found[place, text] = order[start:end][texts[place].holding(text)]
        keys.append(question * interactions.num_rows + rows)
    key, times = np.unique(np.concatenate(keys), return_counts=True)
    any_of = np.divmod(key, max(interactions.num_rows, 1))
    whole = times == size[any_of[0]]
    return (any_of[0][whole], any_of[1][whole]), any_of


class _Texts:
    """Texts of a case as one, which is searched several times as fast as each alone."""

    def __init__(self, texts: list[str]) -> None:
        # No stored text holds a NUL (`transforms.text.clean`), so nothing is found across two of them.
        self._whole = "\0".join(texts)
        self._starts = list(accumulate((len(text) + 1 for text in texts), initial=0))

    def holding(self, text: str) -> list[int]:
        """Return the numbers of the texts that hold a text, ascending."""
        numbers = []
        at = -1 if "\0" in text else self._whole.find(text)
        while at >= 0:
            numbers.append(bisect_right(self._starts, at) - 1)
            at = self._whole.find(text, self._starts[numbers[-1] + 1])
        return numbers


def _plain(table: pa.Table) -> pa.Array:
    return table["case_id"].cast(pa.string()).combine_chunks()


def _codes(table: pa.Table) -> tuple[pa.Array, Ints]:
    coded = _plain(table).dictionary_encode()
    return coded.dictionary, np.asarray(coded.indices, dtype=np.int64)
