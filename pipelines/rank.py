"""Stage rank: index and questions -> runs, on Ray; all missing presets of a shard in one piece of work."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict

import pyarrow as pa

from indexers import presets
from indexers.rank import RankStats, rank_shard
from pipelines.stage import Inputs, Output, Stage, Unit
from schemas.config import RunConfig
from schemas.tables import empty
from transforms.tokens import VERSION as TOKENS_VERSION

TableOf = Callable[[str, str], pa.Table]
"""(unit, table) -> the table."""


def units(config: RunConfig) -> list[Unit]:
    """One unit a preset."""
    found = []
    for name in presets.expand(config.rank.presets):
        preset = presets.get(name)
        settings = {key: value for key, value in asdict(preset).items() if key in presets.FIELDS[preset.method]}
        settings = {key: list(value) if isinstance(value, tuple) else value for key, value in settings.items()}
        reads = ("ingest", "questions", *index_units(preset))
        found.append(
            Unit(
                f"rank/{name}",
                {**settings, "rank.depth": config.rank.depth, "tokens": TOKENS_VERSION},
                reads,
                ("runs",),
            )
        )
    return found


def index_units(preset: presets.Preset) -> tuple[str, ...]:
    """Return the index units that a preset reads; the last one's vocabulary holds the terms of all.

    The vocabulary of ``index/note`` begins with that of ``index/raw``, and a graph's with that of ``index/note``, so
    term ids agree.
    """
    text = {"raw": ("index/raw",), "note": ("index/note",)}[preset.field]
    if preset.method == "bm25":
        return text
    return (*text, *(() if text == ("index/note",) else ("index/note",)), f"index/{preset.graph}")


def index_tables(unit: str) -> tuple[str, ...]:
    """Return the tables of an index unit."""
    text = ("vocabulary", "postings")
    return text if unit in ("index/raw", "index/note") else (*text, "matrices")


def rank(
    wanted: Sequence[presets.Preset], interactions: pa.Table, questions: pa.Table, table_of: TableOf, depth: int
) -> tuple[dict[str, pa.Table], dict[str, RankStats]]:
    """Rank questions with presets; those over one graph, and those over none, share their work.

    Args:
        wanted: Presets.
        interactions: case_id, session_id and interaction_id of the questions' cases.
        questions: Table `questions`.
        table_of: Gives the tables of index units.
        depth: Interactions kept of each ranking.

    Returns:
        Preset name -> `runs`, and preset name -> counts.
    """
    runs: dict[str, pa.Table] = {}
    stats: dict[str, RankStats] = {}
    groups: dict[str, list[presets.Preset]] = {}
    graphs = [p.graph for p in wanted if p.method != "bm25"]
    for preset in wanted:
        home = preset.graph if preset.method != "bm25" else next(iter(graphs), "")
        groups.setdefault(home, []).append(preset)
    for members in groups.values():
        read = sorted({unit for p in members for unit in index_units(p)}, key=_breadth)
        tables = {
            "interactions": interactions,
            "questions": questions,
            "postings": pa.concat_tables([table_of(unit, "postings") for unit in read]).unify_dictionaries(),
            "vocabulary": table_of(read[-1], "vocabulary"),
            "matrices": table_of(read[-1], "matrices") if "matrices" in index_tables(read[-1]) else empty("matrices"),
        }
        made, counts = rank_shard([p.name for p in members], tables, depth)
        runs |= made
        stats |= counts
    return runs, stats


def _breadth(unit: str) -> int:
    return {"index/raw": 0, "index/note": 1}.get(unit, 2)


def process(inputs: Inputs, wanted: Sequence[Unit]) -> list[Output]:
    """Rank the questions of one shard."""
    names = [unit.name.partition("/")[2] for unit in wanted]
    runs, stats = rank(
        [presets.get(name) for name in names],
        inputs.table("ingest", "interactions", ["case_id", "session_id", "interaction_id"]),
        inputs.table("questions", "questions"),
        inputs.table,
        int(wanted[0].config["rank.depth"]),
    )
    return [Output({"runs": runs[name]}, _counts(stats[name])) for name in names]


def _counts(stats: RankStats) -> Mapping[str, int]:
    return {name: count for name, count in asdict(stats).items() if count}


STAGE = Stage("rank", 1, "ray", units, process, together=True)
