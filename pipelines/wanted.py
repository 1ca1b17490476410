"""What the presets of a run need of the stages before rank."""

from __future__ import annotations

from indexers import presets
from indexers.presets import Preset
from schemas.config import RunConfig
from transforms import graphs


def chosen(config: RunConfig) -> dict[str, Preset]:
    """Return the presets of a run.

    Raises:
        UsageError, ConfigError: One is not known or not valid.
    """
    return presets.expand(config.rank.presets, config.rank.define, config.rank.sweep)


def needed(config: RunConfig) -> list[str]:
    """Return the units of the stages index and embed that the presets read, each once, sorted."""
    return sorted({unit for preset in chosen(config).values() for unit in preset.units})


def graph_kinds(config: RunConfig) -> tuple[str, ...]:
    """Return the graph kinds of a run: those that it names, and those that its presets read."""
    known = set(graphs.names())
    read = [unit.partition("/")[2] for unit in needed(config)]
    return tuple(dict.fromkeys([*config.graph.kinds, *(kind for kind in read if kind in known)]))
