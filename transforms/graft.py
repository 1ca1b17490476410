"""GRAFT: what a memory lacks to answer a question, where to look for it, and the facts to add (arXiv 2603.27910).

Repairs are rows of table `repairs`, each with the question that it was made for. They never change what is there:
`mended` puts them beside the facts and concepts that graphs are built from.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from schemas.tables import build, schema
from transforms.packing import key_of, listed_keys
from transforms.reading import contains
from transforms.stems import STOP_WORDS
from transforms.tags import normalise
from transforms.tasks import Result
from transforms.tasks.studies.repairs import EPISODES
from transforms.tokens import tokenize_one

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]

VERSION = 1
"""Goes up by one whenever the same questions, packs and replies would make other repairs."""
NEIGHBOURS = 1
"""Interactions of the same session read again on each side of one that was found."""
FOUND = 3
"""Interactions that each sub-question may bring."""

_SENTENCE = re.compile(r"(?<=[.!?。！？])\s+|\n+")
_LONGEST = 300
_LABEL_WORDS = 4


def source(questions: pa.Table, share: float, seed: int) -> Bools:
    """Tell which questions repairs may be made from; the others are held out.

    The draw hashes case and question, so it does not depend on the other questions, nor on their order.

    Args:
        questions: Columns case_id and question_id.
        share: Share to draw, in [0, 1].
        seed: Seed of the draw.
    """
    keys = key_of(questions, "question_id").to_pylist()
    drawn = np.array([xxhash.xxh64_intdigest(key.encode("utf-8"), seed) for key in keys], np.float64)
    return drawn < share * 2.0**64


@dataclass(frozen=True)
class Lack:
    """A question that its pack does not answer.

    Attributes:
        row: Row of the question.
        missing: Rows of the gold interactions that are not in the pack, ascending; empty where the gold is not known.
    """

    row: int
    missing: tuple[int, ...]


def lacking(
    questions: pa.Table, keys: pa.Array, packs: Sequence[str], question: Ints, shown: Ints
) -> tuple[list[Lack], int]:
    """Diagnose by the gold: which answerable questions have packs without some gold interaction, or without the answer.

    Args:
        questions: Rows of table `questions`.
        keys: (interactions,) `packing.key_of` of the interactions.
        packs: (questions,) what a reader sees.
        question: (pairs,) row of the question.
        shown: (pairs,) row of an interaction that its pack has.

    Returns:
        What is lacking, in order of the questions, and the number of questions that cannot be diagnosed: answerable,
        but neither with gold interactions nor with an answer.
    """
    owners, gold = listed_keys(questions, "gold_interaction_ids")
    row = np.asarray(pc.index_in(gold, value_set=keys).fill_null(-1), dtype=np.int64)
    owners, row = owners[row >= 0], row[row >= 0]
    width = len(keys) + 1
    there = np.isin(owners * width + row, question * width + shown)
    missing: dict[int, list[int]] = {}
    for one, at in zip(owners[~there].tolist(), row[~there].tolist(), strict=True):
        missing.setdefault(one, []).append(at)
    with_gold = set(owners.tolist())
    found, unknown = [], 0
    columns = zip(questions["answer"].to_pylist(), questions["answerable"].to_pylist(), packs, strict=True)
    for number, (answer, answerable, pack) in enumerate(columns):
        if not answerable:
            continue
        if number in with_gold:
            if number in missing:
                found.append(Lack(number, tuple(sorted(set(missing[number])))))
        elif answer is None:
            unknown += 1
        elif not contains(pack, answer):
            found.append(Lack(number, ()))
    return found, unknown


def content_words(text: str) -> list[str]:
    """Return the words of a text that are no stop words, each once, in order."""
    return [word for word in dict.fromkeys(tokenize_one(text)) if word not in STOP_WORDS["english"]]


def uncovered(question: str, pack: str) -> str:
    """Return what to look for without a model: the question's words that its pack lacks, or all where it lacks none."""
    known = set(tokenize_one(pack))
    words = content_words(question)
    return " ".join([word for word in words if word not in known] or words)


def episodes(found: Iterable[int], gold: Iterable[int], session: Sequence[object]) -> list[int]:
    """Return the interactions to read again: gold, then found, then their neighbours; in order of time.

    Args:
        found: Rows that sub-questions brought, the best first.
        gold: Rows of missing gold interactions.
        session: (interactions,) session of each row.
    """
    first = list(dict.fromkeys([*gold, *found]))
    near = (
        row + step
        for row in first
        for step in (*range(-NEIGHBOURS, 0), *range(1, NEIGHBOURS + 1))
        if 0 <= row + step < len(session) and session[row + step] == session[row]
    )
    return sorted(list(dict.fromkeys([*first, *near]))[:EPISODES])


def numbered(lines: Sequence[str]) -> str:
    """Return episodes as a model sees them, numbered from 1."""
    return "\n".join(f"{number}. {line}" for number, line in enumerate(lines, 1))


@dataclass(frozen=True)
class Made:
    """A fact to add for one question.

    Attributes:
        row: Row of the question.
        text: The fact.
        concepts: Its concepts.
        rests: Rows of the interactions that it rests on.
        sought: What was looked for.
    """

    row: int
    text: str
    concepts: tuple[str, ...]
    rests: tuple[int, ...]
    sought: tuple[str, ...]


def extracted(lack: Lack, question: str, answer: str | None, texts: Mapping[int, str], sought: str) -> list[Made]:
    """Make repairs without a model: of each missing gold interaction, the sentence nearest to question and answer.

    The concept that joins them is made of the question's own words, names aside; nothing is claimed that the log does
    not say.

    Args:
        lack: What is missing.
        question: The question.
        answer: Its answer.
        texts: Row -> text of the missing interactions.
        sought: What was looked for.
    """
    wanted = set(content_words(f"{question} {answer or ''}"))
    concepts = label(question)
    made = []
    for row in lack.missing[:EPISODES]:
        sentences = [part for part in _SENTENCE.split(texts[row].strip()) if part.strip()]
        if not sentences:
            continue
        shared = [len(wanted & set(tokenize_one(sentence))) for sentence in sentences]
        best = " ".join(sentences[shared.index(max(shared))].split())
        made.append(Made(lack.row, best[:_LONGEST], concepts, (row,), (sought,)))
    return made


def label(question: str) -> tuple[str, ...]:
    """Return a concept of 2 to 4 of a question's words, names and numbers aside; none where it has fewer."""
    names = {word.lower() for word in re.findall(r"(?<=\s)[^\W\d_]+", question) if word[:1].isupper()}
    words = [w for w in content_words(question) if w not in names and w.isalpha() and len(w) > 2][:_LABEL_WORDS]
    made = normalise("_".join(words)) if len(words) > 1 else None
    return () if made is None else (made,)


def written(
    lack: Lack, result: Result, shown: Sequence[int], sought: Sequence[str], known: frozenset[str]
) -> list[Made]:
    """Return the repairs that a model wrote for a question; facts that are known already are left out.

    Args:
        lack: The question.
        result: What the study `repairs` gave.
        shown: Rows of the interactions that it was shown, as numbered.
        sought: The sub-questions.
        known: Facts of the case, in small letters.
    """
    found = []
    for one in result.record or ():
        rests = tuple(sorted({shown[number - 1] for number in one.episodes if number <= len(shown)}))
        if rests and one.text.casefold() not in known:
            found.append(Made(lack.row, one.text, one.concepts, rests, tuple(sought)))
    return found


def table(
    made: Sequence[Made],
    questions: pa.Table,
    ids: Sequence[str],
    *,
    round: int,
    mode: str,
    model: str | None,
    prompt: str | None,
) -> pa.Table:
    """Make the table `repairs`; the ids of facts are ``QUESTION/rROUND.N``, N from 0.

    Args:
        made: Repairs in order of the questions.
        questions: Rows of table `questions`.
        ids: (interactions,) their ids.
        round: Round of repair.
        mode: ``batch`` or ``online``.
        model: What wrote them.
        prompt: Hash of the prompt.
    """
    cases, names = questions["case_id"].to_pylist(), questions["question_id"].to_pylist()
    count: dict[int, int] = {}
    rows = []
    for one in made:
        number = count[one.row] = count.get(one.row, -1) + 1
        fact = f"{names[one.row]}/r{round}.{number}"
        rests = [ids[row] for row in one.rests]
        own = (fact, names[one.row], round, mode, one.text, list(one.concepts), rests, list(one.sought), model, prompt)
        rows.append((cases[one.row], *own))
    columns = schema("repairs").names
    return build("repairs", {name: [row[place] for row in rows] for place, name in enumerate(columns)})


def facts_of(repairs: pa.Table) -> pa.Table:
    """Return repairs as rows of table `facts`."""
    columns = {"case_id": "case_id", "fact_id": "repair_id", "text": "text"}
    same = {name: repairs[other] for name, other in columns.items()}
    return build("facts", {**same, "interaction_ids": repairs["interaction_ids"], "concepts": repairs["concepts"]})


def mended(tables: Mapping[str, pa.Table], repairs: pa.Table) -> dict[str, pa.Table]:
    """Return the tables that a graph is built from with repairs in them.

    Facts gain rows. The concepts of an interaction gain those of the repairs that rest on it, after its own; a table of
    concepts without rows (no task made it) gains none, as graphs then go by the notes.

    Args:
        tables: Tables by name; those that repairs do not add to stay as they are.
        repairs: Table `repairs` of the same cases.
    """
    found = dict(tables)
    if not repairs.num_rows:
        return found
    if "facts" in found:
        found["facts"] = pa.concat_tables([found["facts"], facts_of(repairs)]).unify_dictionaries()
    if "concepts" in found and found["concepts"].num_rows:
        found["concepts"] = _with_concepts(found["concepts"], repairs)
    return found


def _with_concepts(concepts: pa.Table, repairs: pa.Table) -> pa.Table:
    place = {key: row for row, key in enumerate(key_of(concepts).to_pylist())}
    added: dict[int, list[str]] = {}
    columns = repairs.select(["case_id", "interaction_ids", "concepts"]).to_pylist()
    for one in columns:
        for interaction in one["interaction_ids"]:
            row = place.get(f"{one['case_id']}\x00{interaction}")
            if row is not None:
                added.setdefault(row, []).extend(one["concepts"])
    own = concepts["concepts"].to_pylist()
    for row, labels in added.items():
        own[row] = list(dict.fromkeys([*own[row], *labels]))
    return build("concepts", {**{name: concepts[name] for name in ("case_id", "interaction_id")}, "concepts": own})
