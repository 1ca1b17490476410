"""Studies: what a model is asked about questions, rather than about conversations.

Each module of this package whose name has no leading underscore is a study and has the names of
`transforms.tasks.Asked`. What is made of the results is the business of whoever asks.
"""

from __future__ import annotations

import importlib
from pkgutil import iter_modules
from typing import cast

from schemas.errors import UsageError
from schemas.ids import nearest
from transforms.tasks import Asked


def names() -> tuple[str, ...]:
    """Return the names of all studies, in order."""
    return tuple(sorted(m.name for m in iter_modules(__path__) if not m.name.startswith("_")))


def load(name: str) -> Asked:
    """Return a study by name.

    Raises:
        UsageError: There is none.
    """
    if name not in names():
        close = nearest(name, names())
        hint = f"Did you mean '{close}'? " if close else ""
        raise UsageError(f"no study is called '{name}'", remedy=f"{hint}Studies: {', '.join(names())}.")
    return cast("Asked", importlib.import_module(f"{__name__}.{name}"))
