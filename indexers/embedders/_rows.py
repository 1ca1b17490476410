"""What embedders share: which texts a model is asked about, and rows of unit length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from indexers.embedders import Purpose
from transforms.text import clean

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Rows = npt.NDArray[np.float32]

LETTERS = 100
"""Characters of a text for each token that a model takes; what lies beyond them is cut off before it is looked at."""


def folder_of(model: str) -> Path | None:
    """Return the folder that a model's name is the path of, or None; a name may be anything."""
    try:
        path = Path(model).expanduser()
        return path if path.is_dir() else None
    except (OSError, ValueError, RuntimeError):  # too long, with a NUL, the home of nobody
        return None


def asked(texts: Sequence[str], prefix: str) -> tuple[Ints, list[str]]:
    """Return the places of the texts that are not blank, and these with the prefix, fit for UTF-8."""
    places = [place for place, text in enumerate(texts) if text and not text.isspace()]
    return np.array(places, np.int64), [prefix + clean(texts[place]) for place in places]


def unit(rows: npt.NDArray[Any]) -> Rows:
    """Scale rows to length 1; one of zeros, or with a value that is not finite, becomes one of zeros."""
    wide = rows.astype(np.float64)
    wide[~np.isfinite(wide).all(axis=1)] = 0.0
    # The largest value goes first, so that squares neither overflow nor vanish.
    peak = np.abs(wide).max(axis=1, initial=0.0, keepdims=True)
    wide /= np.where(peak > 0, peak, 1.0)
    length: Floats = np.sqrt((wide * wide).sum(axis=1, keepdims=True))
    return (wide / np.where(length > 0, length, 1.0)).astype(np.float32)


def spread(rows: Rows, places: Ints, size: int) -> Rows:
    """Return `size` rows: those given at their places, zeros elsewhere."""
    if len(rows) == size:
        return rows
    spread_out = np.zeros((size, rows.shape[1]), np.float32)
    spread_out[places] = rows
    return spread_out


def prefixes(
    query: str | None, document: str | None, prompts: Mapping[str, str], default: str | None
) -> dict[Purpose, str]:
    """Return what goes before texts: what the options say, else the model's prompt by the names that are in use.

    Args:
        query: Option for questions.
        document: Option for documents.
        prompts: The model's prompts by name.
        default: Name of its prompt for everything.
    """

    def own(*names: str) -> str:
        return next((prompts[name] for name in (*names, default) if name is not None and name in prompts), "")

    return {
        "query": own("query") if query is None else query,
        "document": own("document", "passage", "corpus") if document is None else document,
    }
