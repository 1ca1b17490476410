"""The reader study: what a reader is asked, and how its replies are marked without a model.

Answers are compared as in SQuAD (Rajpurkar et al. 2016): in small letters, without punctuation, articles and extra
white space. A question that the history does not answer is answered rightly by saying so.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from schemas import tables
from transforms.replies import told
from transforms.tasks import Case, Piece, Result
from transforms.tasks.studies._shared import shut
from transforms.tasks.studies.answer import Answer

VERSION = 1
"""Goes up by one whenever the same packs would be asked about, or the same replies marked, in another way."""

_ARTICLE = re.compile(r"\b(?:a|an|the)\b")
_MARKS = re.compile(r"[^\w\s]|_")
_ABSTAINS = re.compile(
    r"(?:i (?:do not|dont) know|unknown|unanswerable"
    r"|not (?:mentioned|specified|stated|given|known|available|provided)"
    r"|cannot be (?:determined|answered|known)|can ?not (?:tell|say|determine)"
    r"|(?:there is )?no (?:information|answer|mention|record)\b.*"
    r"|(?:the )?(?:memory|conversation|information provided|context) (?:does not|doesnt|do not|is not|isnt)\b.*)"
)


def normalised(text: str) -> str:
    """Return an answer in the form in which answers are compared; one of articles or marks alone keeps its text."""
    plain = " ".join(text.lower().split())
    return " ".join(_ARTICLE.sub(" ", _MARKS.sub("", plain)).split()) or plain


def token_f1(reply: str, gold: str) -> float:
    """Return the harmonic mean of precision and recall over the words that two answers share, in [0, 1]."""
    one, other = normalised(reply).split(), normalised(gold).split()
    if not one or not other:
        return float(one == other)
    shared = sum((Counter(one) & Counter(other)).values())
    return 2 * shared / (len(one) + len(other))


def contains(reply: str, gold: str) -> bool:
    """Tell whether a reply holds the gold answer, as whole words in a row."""
    wanted = normalised(gold)
    return bool(wanted) and f" {wanted} " in f" {normalised(reply)} "


def abstains(answer: Answer) -> bool:
    """Tell whether a reader says that it cannot tell, by its flag or in so many words."""
    return not answer.found or _ABSTAINS.fullmatch(normalised(answer.text)) is not None


@dataclass(frozen=True)
class Asked:
    """A question as it is asked.

    Attributes:
        case_id: Its case.
        question_id: Its id.
        text: The question.
        when: When it was asked; empty where that is not known.
        gold: The gold answer; None without one.
        answerable: False where the history has no answer.
        pack: What the reader sees.
    """

    case_id: str
    question_id: str
    text: str
    when: str
    gold: str | None
    answerable: bool
    pack: str


def asked(questions: pa.Table, packs: Sequence[str]) -> list[Asked]:
    """Put questions and their packs together.

    Args:
        questions: Rows of table `questions`.
        packs: (rows,) their packs.
    """
    columns = questions.select(["case_id", "question_id", "question", "answer", "answerable"]).to_pylist()
    times = questions["asked_at"].cast(pa.string()).to_pylist()
    return [
        Asked(
            one["case_id"],
            one["question_id"],
            one["question"],
            (at or "")[:16].replace(" ", "T"),
            one["answer"],
            one["answerable"],
            pack,
        )
        for one, at, pack in zip(columns, times, packs, strict=True)
    ]


def reading(questions: Sequence[Asked]) -> list[Case]:
    """Return what to ask a reader, case by case."""
    return pieces(questions, [(shut(one.pack), {"question": shut(one.text), "when": one.when}) for one in questions])


def judging(questions: Sequence[Asked], replies: Sequence[str]) -> list[Case]:
    """Return what to ask a judge about replies, case by case."""
    values = [{"question": shut(one.text), "gold": shut(one.gold or "")} for one in questions]
    return pieces(questions, [(shut(reply), own) for reply, own in zip(replies, values, strict=True)])


def pieces(questions: Sequence[Asked], asked: Sequence[tuple[str, Mapping[str, str]]]) -> list[Case]:
    """Return what to ask about questions, case by case.

    Args:
        questions: The questions.
        asked: (questions,) text and values of the prompt's other placeholders.
    """
    found: dict[str, list[Piece]] = {}
    for row, (one, (text, values)) in enumerate(zip(questions, asked, strict=True)):
        found.setdefault(one.case_id, []).append(Piece(one.question_id, text, values, (row,)))
    return [Case(case_id, of_case) for case_id, of_case in found.items()]


def in_rows(cases: Sequence[Case], results: Sequence[Sequence[Result]]) -> list[Result]:
    """Return results in the order of the questions that the cases were made of."""
    pairs: Iterator[tuple[Piece, Result]] = (
        pair for case, own in zip(cases, results, strict=True) for pair in zip(case.pieces, own, strict=True)
    )
    return [result for _, result in sorted(pairs, key=lambda pair: pair[0].rows)]


def to_judge(questions: Sequence[Asked], results: Sequence[Result]) -> list[int]:
    """Return the rows that a judge is asked about: replies to answerable questions with a gold answer that answer."""
    return [
        row
        for row, (one, result) in enumerate(zip(questions, results, strict=True))
        if one.answerable and one.gold is not None and result.record is not None and not abstains(result.record)
    ]


def answers(
    questions: Sequence[Asked],
    results: Sequence[Result],
    retriever: str,
    verdicts: Mapping[int, Result] | None,
) -> pa.Table:
    """Mark replies and make the table `answers`.

    A reply that failed, or that abstains from an answerable question, is wrong; abstaining from one without an answer
    is right. A judge's verdict that could not be read is null, with its reason in `judge_error`.

    Args:
        questions: The questions.
        results: What the reader replied, question by question.
        retriever: The preset that ranked.
        verdicts: Row -> what a judge said; None where none was asked.
    """
    columns: dict[str, list[object]] = {name: [] for name in tables.schema("answers").names}
    for row, (one, result) in enumerate(zip(questions, results, strict=True)):
        record: Answer | None = result.record
        silent = record is not None and abstains(record)
        f1, held = _marks(one, record, silent=silent)
        verdict = None if verdicts is None else verdicts.get(row)
        judged = None if verdict is None else verdict.record
        if verdicts is not None and verdict is None and held is not None:
            judged = held if not one.answerable else False  # nothing to read: abstained or failed
        values: dict[str, object] = {
            "case_id": one.case_id,
            "question_id": one.question_id,
            "retriever": retriever,
            "reply": record.text if record is not None else "",
            "status": result.status,
            "error": None if result.error is None else told([result.error]),
            "f1": f1,
            "contains": held,
            "abstained": silent,
            "judged": judged,
            "judge_error": None if verdict is None or verdict.record is not None else told([verdict.error or "?"]),
            "prompt_tokens": result.prompt_tokens,
            "completion_tokens": result.completion_tokens,
        }
        for name, value in values.items():
            columns[name].append(value)
    return tables.build("answers", columns)


def _marks(one: Asked, record: Answer | None, *, silent: bool) -> tuple[float | None, bool | None]:
    """Return token F1 and containment; None of both where there is nothing to compare with."""
    if not one.answerable:
        return float(silent), silent
    if one.gold is None:
        return None, None
    if record is None or silent:
        return 0.0, False
    return token_f1(record.text, one.gold), contains(record.text, one.gold)
