"""TREC run and qrels files, for trec_eval, ir-measures and their kin."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from jobs.export_formats.joins import units
from pipelines.store import Generation
from schemas.ids import escape_id

_UNSAFE = re.compile(r"[\s%\x00-\x1f\x7f-\xa0]")
_COLON = re.compile(r"[\s%:\x00-\x1f\x7f-\xa0]")


def write_runs(generation: Generation, target: Path) -> int:
    """Write ``PRESET.run`` for each preset under a folder and return the lines.

    Lines are ``CASE:QUESTION Q0 INTERACTION RANK SCORE PRESET``. The score is 1/rank: TREC tools sort by score, read it
    as a 32-bit float and break ties their own way, so only a strictly falling score keeps the order. Rows past
    `rank.depth`, which serve session metrics, are left out.
    """
    lines = 0
    for unit in units(generation, "runs"):
        depth = generation.manifest(unit).config.get("rank.depth")
        columns = ["case_id", "question_id", "retriever", "rank", "interaction_id"]
        for part in generation.parts("runs", columns, unit):
            for preset in pc.unique(part.column("retriever").cast(pa.string())).to_pylist():
                rows = part.filter(pc.equal(part.column("retriever").cast(pa.string()), preset))
                if depth is not None:
                    rows = rows.filter(pc.less_equal(rows.column("rank"), depth))
                ranks = rows.column("rank").combine_chunks().dictionary_encode()
                scores = pa.array([f"{1 / rank:.9g}" for rank in ranks.dictionary.to_pylist()], pa.string())
                made = pc.binary_join_element_wise(
                    _query(rows),
                    "Q0",
                    _encoded(rows.column("interaction_id"), _UNSAFE),
                    rows.column("rank").cast(pa.string()).combine_chunks(),
                    scores.take(ranks.indices),
                    _UNSAFE.sub(_percent, preset),
                    " ",
                )
                with (target / f"{escape_id(preset)}.run").open("a", encoding="utf-8", newline="\n") as out:
                    out.writelines(f"{line}\n" for line in made.to_pylist())
                lines += len(made)
    return lines


def write_qrels(parts: Iterator[pa.Table], target: Path) -> int:
    """Write ``CASE:QUESTION 0 INTERACTION 1`` for each gold interaction and return the lines."""
    lines = 0
    with target.open("w", encoding="utf-8", newline="\n") as out:
        for part in parts:
            made = pc.binary_join_element_wise(
                _query(part),
                "0",
                _encoded(part.column("interaction_id"), _UNSAFE),
                part.column("relevance").cast(pa.string()).combine_chunks(),
                " ",
            )
            out.writelines(f"{line}\n" for line in made.to_pylist())
            lines += len(made)
    return lines


def _query(rows: pa.Table) -> Any:
    case, question = _encoded(rows.column("case_id"), _COLON), _encoded(rows.column("question_id"), _UNSAFE)
    return pc.binary_join_element_wise(case, question, ":")


def _encoded(column: Any, unsafe: re.Pattern[str]) -> Any:
    """Percent-encode what would end a field: white space, control characters and the percent sign itself."""
    ids = column.cast(pa.string()).combine_chunks().dictionary_encode()
    safe = [unsafe.sub(_percent, text) for text in ids.dictionary.to_pylist()]
    return pa.array(safe, pa.string()).take(ids.indices)


def _percent(match: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in match[0].encode())
