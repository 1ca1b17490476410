"""Why an interaction has the score it has: a score taken apart into what brought it.

An `Explanation` is plain data of one form for every retrieval method: parts whose values sum to the score, but for a
remainder that is told. `terms` explains text scores, `paths` the traversal, `diffusion` PageRank by the paths that
`walks` finds, `blends` what is made of other rankings. A method's own `explain` puts these to use.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Edge:
    """An edge that a step goes along.

    Attributes:
        kind: Kind of the edge.
        against: The step goes from the edge's target to its source.
    """

    kind: str
    against: bool = False


@dataclass(frozen=True)
class Step:
    """One node of a path.

    Attributes:
        node: Number of the node in the graph of its case.
        kind: Kind of the node.
        edges: Edges from the node before, several where parallel ones are gone together; none at the first node.
        value: What goes through the path up to this node adds to the score; None where it is not worked out.
        name: Key of the node, and `text` what to show of it; both empty until `named` filled them in.
        text: See `name`.
    """

    node: int
    kind: str
    edges: tuple[Edge, ...] = ()
    value: float | None = None
    name: str = ""
    text: str = ""


@dataclass(frozen=True)
class Part:
    """One thing that adds to a score.

    Attributes:
        kind: term (a word of the question), tag (a matched tag and its way), content (a text score beside another),
            path (walks with one path), beginning (walks whose paths begin alike), walk (the PageRank of a node),
            vector (a cosine), arm (another ranking), or rest (all that is too small).
        label: What it is, in a few words.
        value: What it adds, in units of the score.
        words: Words of the question that it comes from.
        steps: The path.
        facts: Further figures by name, in the order to show them.
        inner: The part explained itself; the values in there are on a scale of their own.
    """

    kind: str
    label: str
    value: float
    words: tuple[str, ...] = ()
    steps: tuple[Step, ...] = ()
    facts: tuple[tuple[str, float | int | str], ...] = ()
    inner: Explanation | None = None


@dataclass(frozen=True)
class Explanation:
    """A score and what brought it.

    Attributes:
        method: How the score is made, in a few words.
        score: The score, as in a run; 0 where the interaction is not retrieved.
        parts: What it is the sum of, in falling order of value.
        remarks: What else a reader should know: words without effect, and why a score is 0.
        graph: Graph kind that the nodes of paths are numbered in.
    """

    method: str
    score: float
    parts: tuple[Part, ...] = ()
    remarks: tuple[str, ...] = ()
    graph: str = ""

    @property
    def remainder(self) -> float:
        """What the parts lack of the score."""
        return self.score - math.fsum(part.value for part in self.parts)


Names = Callable[[str, int], tuple[str, str]]
"""(graph kind, node) -> its key, and a text to show or ''."""


def named(explanation: Explanation, names: Names) -> Explanation:
    """Return an explanation with the names of all nodes filled in."""

    def step(given: Step) -> Step:
        name, text = names(explanation.graph, given.node)
        return replace(given, name=name, text=text)

    parts = tuple(
        replace(
            part,
            steps=tuple(map(step, part.steps)),
            inner=named(part.inner, names) if part.inner is not None else None,
        )
        for part in explanation.parts
    )
    return replace(explanation, parts=parts)


def shortened(explanation: Explanation, most: int) -> Explanation:
    """Return an explanation with its first `most` parts, and one that stands for all others; inside parts likewise."""
    kept = [part for part in explanation.parts if part.kind != "rest"][:most]
    left = [part for part in explanation.parts if part not in kept]
    if len(left) > 1 or (left and left[0].kind != "rest"):
        left = [Part("rest", f"{len(left):,} more", math.fsum(part.value for part in left))]
    parts = [replace(p, inner=shortened(p.inner, most) if p.inner is not None else None) for p in [*kept, *left]]
    return replace(explanation, parts=tuple(parts))
