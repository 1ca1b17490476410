"""Why evidence is missed: tags that do not help, a vocabulary that is not reused, graphs with hubs (TAGGRAPH)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from pipelines.experiments import Asked, PartsOf, Variant
from pipelines.store import Generation
from schemas.options import Section
from transforms.diagnose import PERCENTILES
from transforms.experiments import CASE, Parts, Row, draws, ratio

NAME = "diagnostics"
DOC = "Missed evidence without a helpful tag; size and reuse of the tag vocabulary; degrees of graphs"
VERSION = 1
PRESETS = ()
TWO = False


class Options(Section):
    """What counts as missed."""

    within: int = Field(10, ge=1, le=100_000, description="Rank within which evidence counts as found")


def variants(asked: Asked, generation: Generation) -> list[Variant]:
    """Rank the cases as they are, and look into notes and graphs."""
    graphs = sorted(unit.partition("/")[2] for unit in generation.units if unit.startswith("graph/"))
    return [Variant("whole", {"kind": "same", "within": asked.options.within, "graphs": graphs})]


def results(parts: PartsOf, asked: Asked) -> Iterator[Row]:
    """Yield shares of gold by preset, and figures of vocabularies and graphs over all cases."""
    whole = partial(parts, "whole")
    for preset in asked.presets:
        yield from _missed(whole, preset, asked)
    yield from _vocabulary(whole, asked)
    graphs = sorted({name for part in whole() for name in _of_cases(part)} - {""})
    for graph in graphs:
        for metric in ("nodes", "edges", "isolated_files", *(f"degree_p{p}" for p in PERCENTILES), "degree_max"):
            found = draws(whole(), CASE, metric, [graph])
            row = ratio(f"graph={graph}", "", metric, found.sums[0], found.counts, asked.evaluate)
            yield row._replace(cases=found.cases)


def _missed(whole: Parts, preset: str, asked: Asked) -> Iterator[Row]:
    counted = {
        metric: draws(whole(), "interaction", metric, [preset], asked.evaluate.draw)
        for metric in ("gold", "untagged", "missed", "missed_untagged")
    }
    gold, untagged, missed, both = (one.sums[0] for one in counted.values())
    if not len(gold):
        return
    asked_of, cases = int(counted["gold"].counts.sum()), counted["gold"].cases
    for name, part, of in (
        ("missed of gold", missed, gold),
        ("untagged of missed", both, missed),
        ("untagged of found", untagged - both, gold - missed),
    ):
        variant = f"within {asked.options.within}"
        row = ratio(variant, preset, name, part, of, asked.evaluate)
        yield row._replace(questions=asked_of, cases=cases, level="interaction")


def _vocabulary(whole: Parts, asked: Asked) -> Iterator[Row]:
    counted = {metric: draws(whole(), CASE, metric, [""]) for metric in ("notes", "tag_uses", "tags", "tags_once")}
    notes, uses, tags, once = (one.sums[0] for one in counted.values())
    for name, part, of in (
        ("tags a case", tags, np.ones(len(tags))),
        ("tags a note", uses, notes),
        ("uses a tag", uses, tags),
        ("tags used once", once, tags),
    ):
        yield ratio("vocabulary", "", name, part, of, asked.evaluate)._replace(cases=counted["tags"].cases)


def _of_cases(part: pa.Table) -> list[str]:
    rows = part.filter(pc.equal(part["level"].cast(pa.string()), CASE))
    names: list[str] = rows["retriever"].cast(pa.string()).unique().to_pylist()
    return names
