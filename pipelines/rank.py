"""Stage rank: index, vectors and questions -> runs, on Ray; all missing presets of a shard in one piece of work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict

from indexers import presets
from indexers.batch import RankStats
from indexers.presets import Preset
from indexers.rank import rank_shard
from pipelines.embed import Kept
from pipelines.route import COLUMNS
from pipelines.stage import Inputs, Output, Stage, Unit
from pipelines.wanted import chosen
from schemas.config import RunConfig
from schemas.errors import UsageError
from transforms.tokens import VERSION as TOKENS_VERSION

_SPOKEN = {"index/stem", "index/user", "embed/words"}
"""Units whose readers look at the language: its stems, or its stop words."""


def named(config: RunConfig, name: str) -> Preset:
    """Return one preset: one of the run's, or any other by its name.

    Raises:
        UsageError, ConfigError: It is not known or not valid.
    """
    found = chosen(config)
    base, swept, numbers = name.partition("@")
    if swept and name not in found:
        others = [one for one in found if one.startswith(f"{base}@")]
        raise UsageError(
            f"no preset is called '{name}'",
            where="rank.sweep",
            remedy=f"There are: {', '.join(others)}." if others else f"Run with --preset {base} --sweep {numbers}.",
        )
    return found.get(name) or presets.get(name, config.rank.define)


def with_preset(config: RunConfig, preset: Preset) -> RunConfig:
    """Return the run with this preset alone, so that its units are those that the preset reads."""
    own = {key: value for key, value in preset.described.items() if key != "version"}
    rank = config.rank.model_copy(update={"presets": ("one",), "define": {"one": own}, "sweep": {}})
    return config.model_copy(update={"rank": rank})


def units(config: RunConfig) -> list[Unit]:
    """One unit a preset."""
    return [
        Unit(
            f"rank/{name}",
            {
                "preset": preset.described,
                "rank.depth": config.rank.depth,
                "tokens": TOKENS_VERSION,
                "language": config.index.language if _SPOKEN & set(preset.units) else None,
            },
            ("ingest", "questions", *(unit for unit in preset.units if not unit.startswith("route/"))),
            ("runs",),
            reads_whole=tuple(unit for unit in preset.units if unit.startswith("route/")),
        )
        for name, preset in chosen(config).items()
    ]


def process(inputs: Inputs, wanted: Sequence[Unit]) -> list[Output]:
    """Rank the questions of one shard."""
    names = [unit.name.partition("/")[2] for unit in wanted]
    languages = {unit.config["language"] for unit in wanted} - {None}
    runs, stats = rank_shard(
        [presets.rebuilt(name, unit.config["preset"]) for name, unit in zip(names, wanted, strict=True)],
        inputs.table("ingest", "interactions", COLUMNS),
        inputs.table("questions", "questions"),
        inputs.table,
        int(wanted[0].config["rank.depth"]),
        embedding=Kept(inputs.table),
        language=next(iter(languages), "english"),
    )
    return [Output({"runs": runs[name]}, _counts(stats[name])) for name in names]


def _counts(stats: RankStats) -> Mapping[str, int]:
    return {name: count for name, count in asdict(stats).items() if count}


STAGE = Stage("rank", 2, "ray", units, process, together=True)
