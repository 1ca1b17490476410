"""Answers one question in one case from the parts of a generation."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from indexers.presets import Preset
from indexers.rank import rank_shard
from indexers.shard import TableOf
from pipelines import kept_prompts
from pipelines.embed import QUESTIONS, Fresh
from pipelines.rank import named
from pipelines.store import Generation
from schemas.config import RunConfig
from schemas.errors import StoreError, UsageError
from schemas.ids import nearest, shard_of
from schemas.tables import build
from transforms.interactions import full_text


def cases(generation: Generation) -> list[str]:
    """Return all case ids, sorted."""
    found: set[str] = set()
    for part in generation.parts("interactions", ["case_id"]):
        found.update(part["case_id"].unique().to_pylist())
    return sorted(found)


def only_case(generation: Generation) -> str:
    """Return the case of a corpus that has one.

    Raises:
        UsageError: It has none or several.
    """
    found = cases(generation)
    if len(found) == 1:
        return found[0]
    named = ", ".join(found[:10]) + (", ..." if len(found) > 10 else "")
    raise UsageError(f"the corpus has {len(found)} cases", where="--case", remedy=f"Name one: {named}")


def question_table(case: str, text: str) -> pa.Table:
    """Return a `questions` table of one question without gold."""
    return build(
        "questions",
        {
            "case_id": [case],
            "question_id": ["query"],
            "question": [text],
            "question_type": [""],
            "asked_at": [None],
            "answer": [None],
            "gold_session_ids": [[]],
            "gold_message_ids": [[]],
            "gold_interaction_ids": [[]],
            "expected_contains": [[]],
            "answerable": [True],
        },
    )


def answer(generation: Generation, case: str, text: str, retriever: str, k: int) -> pa.Table:
    """Rank the interactions of a case for a question.

    Args:
        generation: Where to look; only the parts of the case's shard are read.
        case: The case.
        text: The question.
        retriever: A preset; its index must be in the generation.
        k: Rows wanted.

    Returns:
        Columns rank, score, interaction_id, session_id, started_at, text; at most `k` rows.

    Raises:
        UsageError: There is no such case or preset.
        StoreError: The generation lacks the index that the preset needs, or a part is damaged.
    """
    asked = ask(generation, case, retriever)
    return search(asked.config, asked.preset, asked.interactions, text, asked.table_of, k)


@dataclass(frozen=True)
class Asked:
    """What it takes to ask one case of a generation.

    Attributes:
        config: The configuration that the generation was made with.
        preset: The preset.
        interactions: The case's rows of `interactions`.
        table_of: Gives the tables of the case's shard.
    """

    config: RunConfig
    preset: Preset
    interactions: pa.Table
    table_of: TableOf


def _check_there(generation: Generation, units: Iterable[str], case: str) -> None:
    """Check that no unit lacks the shard of a case.

    Raises:
        StoreError: One does.
    """
    shard = shard_of(case, generation.store.shards)
    for unit in units:
        manifest = generation.manifest(unit)
        if shard in manifest.aside:
            raise StoreError(
                f"case '{case}' lies in shard {shard}, which '{unit}' lacks: {manifest.aside[shard]}",
                where=generation.store.storage.uri,
                remedy="It was set aside when it failed. Run again: what is missing is made.",
            )


def ask(generation: Generation, case: str, retriever: str) -> Asked:
    """Find what it takes to ask a case; arguments and errors as `answer`."""
    config = settings(generation)
    preset = named(config, retriever)
    wanted = [unit for unit in ("ingest", *preset.units) if unit != QUESTIONS]
    if missing := [unit for unit in wanted if unit not in generation.units]:
        raise StoreError(
            f"generation '{generation.name}' holds no '{missing[0]}'",
            where=generation.store.storage.uri,
            remedy=f"Make it: tagloom run -C {generation.store.storage.uri} --preset {retriever.partition('@')[0]}",
        )
    if generation.head.get("aside"):
        _check_there(generation, wanted, case)
    rows = of_case(generation.case_part("ingest", "interactions", case), case)
    if not rows.num_rows:
        guess = nearest(case, cases(generation))
        raise UsageError(
            f"no case is called '{case}'",
            where=generation.store.storage.uri,
            remedy=f"Did you mean '{guess}'?" if guess else "See them: tagloom export interactions -f csv",
        )

    def table_of(unit: str, table: str) -> pa.Table:
        return generation.case_part(unit, table, case)

    return Asked(config, preset, rows, table_of)


def settings(generation: Generation) -> RunConfig:
    """Return the configuration that a generation was made with."""
    located = kept_prompts.located(generation.store.storage, generation.head["config"])
    return RunConfig.model_validate({**located, "corpus": generation.store.storage.uri})


def search(config: RunConfig, preset: Preset, interactions: pa.Table, text: str, table_of: TableOf, k: int) -> pa.Table:
    """Rank one case's interactions for a question; columns as `answer`."""
    case = interactions["case_id"][0].as_py()
    runs, _ = rank_shard(
        [preset],
        interactions,
        question_table(case, text),
        table_of,
        k,
        embedding=Fresh(config),
        language=config.index.language,
    )
    return shown(runs[preset.name], interactions, k)


def of_case(table: pa.Table, case: str) -> pa.Table:
    """Return the rows of one case."""
    return table.filter(pc.equal(table["case_id"].cast(pa.string()), case))


def shown(runs: pa.Table, interactions: pa.Table, k: int) -> pa.Table:
    """Join a run of one question with what a reader wants to see."""
    top = runs.filter(pc.less_equal(runs["rank"], k))
    at = pc.index_in(top["interaction_id"], value_set=interactions["interaction_id"].combine_chunks())
    found = interactions.take(at)
    return pa.table(
        {
            "rank": top["rank"],
            "score": top["score"],
            "interaction_id": top["interaction_id"],
            "session_id": found["session_id"].cast(pa.string()),
            "started_at": found["started_at"],
            "text": full_text(found),
        }
    )
