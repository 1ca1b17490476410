"""Notes as Markdown with YAML front matter, one file an interaction."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import yaml

from jobs.export_formats.flat import by_case
from schemas.ids import escape_id
from schemas.tables import NOTE_FIELDS

_FRONT = (
    "case_id",
    "interaction_id",
    "session_id",
    "started_at",
    "speakers",
    *NOTE_FIELDS,
    "summary",
    "status",
    "error",
)
_DUMPER: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


def write_notes(parts: Iterator[pa.Table], target: Path) -> int:
    """Write ``CASE/INTERACTION.md`` under a folder and return the number of files.

    File names are ids made safe (`schemas.ids.escape_id`); the front matter holds the ids themselves, and the body the
    full text as it is.
    """
    files = 0
    for part in parts:
        for case, own in by_case(part):
            folder = target / escape_id(case)
            folder.mkdir(exist_ok=True)
            for row in own.to_pylist():
                path = folder / f"{escape_id(row['interaction_id'])}.md"
                path.write_text(page(row), encoding="utf-8", newline="\n")
                files += 1
    return files


def page(note: dict[str, Any]) -> str:
    """Return front matter and body. No line of the front matter can be taken for its end: values are indented."""
    front = {name: note[name] for name in _FRONT if note[name] is not None}
    text = yaml.dump(front, Dumper=_DUMPER, allow_unicode=True, sort_keys=False, width=1_000_000)
    return f"---\n{text}---\n\n{note['text']}\n"
