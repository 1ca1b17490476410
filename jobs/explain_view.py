"""How `tagloom explain` shows an explanation: as text, as JSON, as a drawing."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from indexers.explain import Explanation, Part, Step, shortened
from jobs import console
from jobs.explain_drawing import links_of, shown, svg
from schemas.errors import TagloomError, UsageError

if TYPE_CHECKING:
    from pipelines.explain import Explained
    from pipelines.store import Store

FORMS = ("text", "json", "svg")

_NAME = 48
"""Characters shown of the name of a node."""
_EXCERPT = 300
"""Characters shown of the interaction."""
_REPORTED = 3
"""Parts of an explanation in a report."""
_ROUNDING = 1e-12
"""Share of a score that is not worth telling."""


def explain(
    corpus: str,
    name: str,
    case: str | None,
    text: str | None,
    question_id: str | None,
    interaction: str | None,
    retriever: str,
    rank: int,
    k: int,
    form: str,
    to: str | None,
    *,
    overwrite: bool = False,
) -> None:
    """Explain why an interaction stands where it stands, and show it.

    Args:
        corpus: The corpus.
        name: The generation.
        case: The case; needed when there are several.
        text: The question, or else
        question_id: one of the corpus.
        interaction: The interaction, or else
        retriever: The preset.
        rank: the one of this rank.
        k: Parts shown of an explanation; JSON has all of them.
        form: One of `FORMS`.
        to: File to write; standard output by default.
        overwrite: Replace the file.

    Raises:
        UsageError: An argument is not valid, or names what is not there.
        StoreError: The generation lacks the index that the preset needs, or a part is damaged.
    """
    from pipelines import explain as explaining
    from pipelines.query import only_case
    from pipelines.store import Store

    if form not in FORMS:
        raise UsageError(f"no form is called '{form}'", where="--format", remedy=f"Forms: {', '.join(FORMS)}.")
    if (text is None) == (question_id is None):
        raise UsageError(
            "give a question as text, or one of the corpus with --question-id",
            where="explain",
            remedy="Example: tagloom explain -C ./corpus --case alice 'What did I plan for Lisbon?'",
        )
    target = None if to is None else _free(to, overwrite)
    generation = Store.open(corpus).generation(name)
    told = explaining.explain(
        generation,
        case if case is not None else only_case(generation),
        retriever,
        text=text,
        question_id=question_id,
        interaction=interaction,
        rank=rank,
    )
    made = {"text": document_text, "json": document_json, "svg": document_svg}[form](told, k)
    if target is None:
        console.emit(made)
    else:
        target.write_text(made + "\n", encoding="utf-8", errors="replace")
        console.emit(f"{form} -> {target}")


def for_report(store: Store, most: int) -> Callable[[str, str, str, str], str | None]:
    """Return what explains the first rank of a preset for a question of the corpus, in a report.

    Args:
        store: The corpus.
        most: Explanations that are made, some 20 a second; then there are none.
    """
    from pipelines.explain import Explainer

    by_name: dict[str, Explainer] = {}
    left = most

    def told(generation: str, case: str, question_id: str, retriever: str) -> str | None:
        nonlocal left
        if not left:
            return None
        if generation not in by_name:
            by_name[generation] = Explainer(store.generation(generation))
        try:
            found = by_name[generation].explain(case, retriever, question_id=question_id)
        except TagloomError:  # nothing is retrieved, or the index is gone: the report tells so by itself
            return None
        left -= 1
        return f"{found.interaction_id}: {as_text(shortened(found.explanation, _REPORTED))}"

    return told


def _free(to: str, overwrite: bool) -> Path:
    path = Path(to)
    if "://" in to:
        raise UsageError("is not a local path", where=to, remedy="Write a local file and copy it there.")
    if path.is_dir():
        raise UsageError("is a folder", where=to, remedy="Name a file.")
    if path.exists() and not overwrite:
        raise UsageError("is there already", where=to, remedy="Name another file, or give --overwrite.")
    return path


def document_text(told: Explained, k: int) -> str:
    """Lay out what was asked, and the explanation with `k` parts."""
    lines = [
        f"question     {_cut(told.question, _EXCERPT)}",
        f"interaction  {_cut(told.interaction_id)}: {_cut(told.text, _EXCERPT)}",
        f"{told.retriever}: rank {told.rank or 'none'}, {told.retrieved:,} retrieved, case {_cut(told.case)}",
        "",
        as_text(shortened(told.explanation, k)),
    ]
    return "\n".join(lines)


def document_json(told: Explained, _: int) -> str:
    """Return everything as one JSON document."""
    plain = {field: getattr(told, field) for field in vars(told) if field != "explanation"}
    return json.dumps({**plain, "explanation": as_dict(told.explanation)}, ensure_ascii=False, indent=1)


def document_svg(told: Explained, k: int) -> str:
    """Draw the explanation with `k` parts."""
    title = f"{told.retriever}: why {told.interaction_id} for: {told.question}"
    return svg(shortened(told.explanation, k), told.interaction_id, title)


def as_dict(explanation: Explanation) -> dict[str, Any]:
    """Return an explanation as plain data."""
    return {
        "method": explanation.method,
        "score": explanation.score,
        "remainder": explanation.remainder,
        "graph": explanation.graph or None,
        "remarks": list(explanation.remarks),
        "parts": [_part(part, explanation.score) for part in explanation.parts],
    }


def _part(part: Part, score: float) -> dict[str, Any]:
    return {
        "kind": part.kind,
        "label": part.label,
        "value": part.value,
        "share": part.value / score if score else None,
        "words": list(part.words),
        "facts": dict(part.facts),
        "steps": [_step(step) for step in part.steps],
        "inner": as_dict(part.inner) if part.inner is not None else None,
    }


def _step(step: Step) -> dict[str, Any]:
    return {
        "node": step.node,
        "kind": step.kind,
        "name": step.name,
        "text": step.text,
        "edges": [{"kind": edge.kind, "against": edge.against} for edge in step.edges],
        "value": step.value,
    }


def as_text(explanation: Explanation) -> str:
    """Lay an explanation out for a terminal."""
    return "\n".join(_lines(explanation))


def _lines(explanation: Explanation) -> Iterator[str]:
    score = explanation.score
    yield f"{explanation.method}: {score:.6g}"
    terms = [part for part in explanation.parts if part.kind == "term"]
    if terms:
        yield from _terms(terms, score)
    for part in explanation.parts:
        if part.kind == "term":
            continue
        share = f"{part.value / score:6.1%}" if score else "     -"
        facts = ", ".join(f"{name} {_figure(value)}" for name, value in part.facts)
        yield f"{share}  {part.value:.4g}  {_cut(part.label)}" + (f" ({facts})" if facts else "")
        if part.words or part.steps:
            yield f"        {_way(part, score)}"
        if part.inner is not None:
            # What adds nothing says why in its remarks.
            inner = replace(part.inner, parts=()) if score and not part.inner.score else part.inner
            yield from (f"        {line}" for line in _lines(inner))
    for remark in explanation.remarks:
        yield f"note: {remark}"
    if explanation.parts and abs(explanation.remainder) > _ROUNDING * abs(score):
        yield f"remainder: {explanation.remainder:.1e}"


def _terms(terms: list[Part], score: float) -> Iterator[str]:
    names = list(dict.fromkeys(name for part in terms for name, _ in part.facts))
    rows = []
    for part in terms:
        facts = dict(part.facts)
        rows.append(
            [
                f"{part.value / score:.1%}",
                f"{part.value:.4g}",
                _cut(part.label),
                *(_figure(facts[name]) if name in facts else "" for name in names),
            ]
        )
    yield from console.table(["share", "value", "word", *names], rows, "rrl" + "r" * len(names)).splitlines()


def _way(part: Part, score: float) -> str:
    """Write a path on one line, with the share of the score that goes through it so far."""
    pieces = [" ".join(f'"{_cut(word)}"' for word in part.words)] if part.words else []
    for number, (way, step) in enumerate(links_of(part.steps)):
        name = f"{step.kind} {_cut(shown(step.kind, step.name, step.text))}"
        if step.value is not None and score and step.value > 1.005 * part.value:
            name += f" [{step.value / score:.1%}]"
        pieces.append(f"-{way}-> {name}" if number else f"{'-> ' if pieces else ''}{name}")
    return " ".join(pieces) + (" -> ..." if part.kind == "beginning" else "")


def _figure(value: float | int | str) -> str:
    return value if isinstance(value, str) else f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


def _cut(text: str, limit: int = _NAME) -> str:
    line = " ".join(text[: 4 * limit].split())
    return line if len(line) <= limit else line[: limit - 3].rstrip() + "..."
