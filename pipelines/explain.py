"""Explains why an interaction stands where it stands in the answer to one question."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indexers.batch import Batch
from indexers.explain import Explanation, named
from indexers.explain.blends import of_question, rank_of, scores_of
from indexers.presets import Preset
from indexers.scores import Floats
from indexers.shard import Shard, open_shard
from pipelines.embed import Fresh, Kept
from pipelines.query import Asked, ask, of_case, question_table
from pipelines.store import Generation
from schemas.errors import UsageError
from schemas.ids import nearest
from transforms.interactions import full_text

_EXCERPT = 200
"""Characters of an interaction's text that its nodes carry."""


@dataclass(frozen=True)
class Explained:
    """The explanation of one interaction's place in one answer.

    Attributes:
        case: The case.
        question_id: The question, where it is one of the corpus.
        question: Its text.
        retriever: The preset.
        interaction_id: The interaction.
        rank: Its rank, from 1; None where it is not retrieved.
        retrieved: Interactions that are.
        text: The interaction's text.
        explanation: Why.
    """

    case: str
    question_id: str | None
    question: str
    retriever: str
    interaction_id: str
    rank: int | None
    retrieved: int
    text: str
    explanation: Explanation


def explain(
    generation: Generation,
    case: str,
    retriever: str,
    *,
    text: str | None = None,
    question_id: str | None = None,
    interaction: str | None = None,
    rank: int = 1,
) -> Explained:
    """Explain one interaction's place in the answer to a question.

    Args:
        generation: Where to look; only the parts of the case's shard are read.
        case: The case.
        retriever: A preset; its index must be in the generation.
        text: The question, or else
        question_id: one of the corpus.
        interaction: The interaction, or else
        rank: the one of this rank, from 1.

    Raises:
        UsageError: There is no such case, preset, question, interaction or rank.
        StoreError: The generation lacks the index that the preset needs, or a part is damaged.
    """
    return Explainer(generation).explain(
        case, retriever, text=text, question_id=question_id, interaction=interaction, rank=rank
    )


class Explainer:
    """Explains many places in answers; what was read of the last case stays."""

    def __init__(self, generation: Generation) -> None:
        """Read from a generation."""
        self._generation = generation
        self._case: _Case | None = None

    def explain(
        self,
        case: str,
        retriever: str,
        *,
        text: str | None = None,
        question_id: str | None = None,
        interaction: str | None = None,
        rank: int = 1,
    ) -> Explained:
        """Explain one place; arguments and errors as the function `explain`."""
        if self._case is None or self._case.name != case:
            self._case = _Case(self._generation, case)
        here = self._case
        preset = here.preset(retriever)
        batch = here.batch(text or "", question_id)
        values = of_question(scores_of(preset, batch), 0)
        document = _place(batch.shard.interactions, values, interaction, rank, retriever)
        row = batch.shard.interactions.slice(document, 1)
        return Explained(
            case,
            question_id,
            batch.questions["question"][0].as_py(),
            retriever,
            row["interaction_id"][0].as_py(),
            rank_of(values, document),
            int(np.count_nonzero(values)),
            full_text(row)[0].as_py(),
            named(preset.code.explain(preset, batch, 0, document), here.names),
        )


class _Case:
    """What was read of one case."""

    def __init__(self, generation: Generation, name: str) -> None:
        self.name = name
        self._generation = generation
        self._asked: dict[str, Asked] = {}
        self._nodes: dict[str, pa.Table] = {}
        self._shard: Shard | None = None
        self._batch: tuple[tuple[str, str | None], Batch] | None = None

    def preset(self, retriever: str) -> Preset:
        if retriever not in self._asked:
            self._asked[retriever] = ask(self._generation, self.name, retriever)
        return self._asked[retriever].preset

    def batch(self, text: str, question_id: str | None) -> Batch:
        """Return a question, once a preset has been named; what presets share stays with it."""
        if self._batch is None or self._batch[0] != (text, question_id):
            self._batch = (text, question_id), self._one(text, question_id)
        return self._batch[1]

    def _one(self, text: str, question_id: str | None) -> Batch:
        asked = next(iter(self._asked.values()))
        questions = question_table(self.name, text)
        if question_id is not None:
            questions = _stored(self._generation, self.name, question_id)

        def stored(unit: str, table: str) -> pa.Table:
            return self._generation.case_part(unit, table, self.name)

        embedding = Fresh(asked.config) if question_id is None else Kept(stored)
        if self._shard is None:
            self._shard = open_shard(asked.interactions, questions, asked.table_of, asked.config.index.language)
        return Batch(self._shard, questions, np.zeros(1, np.int64), embedding)

    def names(self, kind: str, node: int) -> tuple[str, str]:
        """Return the key of a node, and its text where it has one."""
        if kind not in self._nodes:
            self._nodes[kind] = of_case(self._generation.case_part(f"graph/{kind}", "nodes", self.name), self.name)
        (one,) = self._nodes[kind].slice(node, 1).to_pylist()
        if one["interaction_id"] is None:
            return one["key"], one["text"] or ""
        interactions = next(iter(self._asked.values())).interactions
        row = pc.index(interactions["interaction_id"], one["interaction_id"]).as_py()
        return one["interaction_id"], full_text(interactions.slice(row, 1))[0].as_py()[:_EXCERPT]


def _stored(generation: Generation, case: str, question_id: str) -> pa.Table:
    """Return a question of the corpus, one row."""
    own = of_case(generation.case_part("questions", "questions", case), case)
    found = own.filter(pc.equal(own["question_id"], question_id))
    if found.num_rows:
        return found.slice(0, 1)
    ids = own["question_id"].to_pylist()
    guess = nearest(question_id, ids)
    more = ", ..." if len(ids) > 10 else ""
    known = f"Questions of this case: {', '.join(ids[:10])}{more}" if ids else "This case has none; give a text."
    raise UsageError(
        f"case '{case}' has no question '{question_id}'",
        where="--question-id",
        remedy=f"Did you mean '{guess}'?" if guess else known,
    )


def _place(interactions: pa.Table, values: Floats, interaction: str | None, rank: int, retriever: str) -> int:
    """Return the position of the interaction that is named, or of that which has the rank."""
    if interaction is not None:
        place = pc.index(interactions["interaction_id"], interaction).as_py()
        if place < 0:
            guess = nearest(interaction, interactions["interaction_id"].to_pylist())
            raise UsageError(
                f"the case has no interaction '{interaction}'",
                where="--interaction",
                remedy=f"Did you mean '{guess}'?" if guess else "See them: tagloom query, tagloom export interactions",
            )
        return int(place)
    retrieved = int(np.count_nonzero(values))
    if not 1 <= rank <= retrieved:
        raise UsageError(
            f"there is no rank {rank}: '{retriever}' retrieves {retrieved:,} for this question",
            where="--rank",
            remedy="Name one with --interaction to see why it is not retrieved.",
        )
    # As `indexers.scores.ranked` orders them.
    order = np.argsort(-values, kind="stable")
    return int(order[values[order] != 0][rank - 1])
