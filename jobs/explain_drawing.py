"""An explanation as a drawing: question words, seeds, nodes between, and the interaction, from left to right.

The SVG stands alone and inside HTML alike: no script, no style sheet, no ids, no links. Nothing is told by colour: the
wider a line, the more of the score goes along it, and every box says what it is.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import pairwise

from indexers.explain import Explanation, Part, Step

MOST_PARTS = 8
"""Parts that are drawn of one explanation; of one inside another, half as many."""

_LEAST = 0.01
_WIDTH, _HEIGHT = 156, 40
_ACROSS, _DOWN = 112, 18
_MARGIN, _HEAD = 12, 26
_LETTERS, _LONGEST = 21, 300
_ILLEGAL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_CORNERS = {"word": 20, "question": 20, "tag": 8, "topic": 8, "ontology": 8}
_WAY = ""
_DASHES = {"topic": "8 3", "ontology": "2 2", "rest": "2 4"}

_Key = tuple[str, ...]


@dataclass
class _Box:
    kind: str
    name: str
    column: int = 0
    row: int = 0


@dataclass
class _Line:
    share: float = 0.0
    names: dict[str, None] = field(default_factory=dict)
    dashed: bool = False


class _Picture:
    def __init__(self) -> None:
        self.boxes: dict[_Key, _Box] = {}
        self.lines: dict[tuple[_Key, _Key], _Line] = {}

    def box(self, key: _Key, kind: str, name: str, column: int) -> None:
        self.boxes.setdefault(key, _Box(kind, name, column))

    def line(self, source: _Key, target: _Key, share: float, name: str = "", *, dashed: bool = False) -> None:
        line = self.lines.setdefault((source, target), _Line(dashed=dashed))
        line.share += share
        if name:
            line.names[name] = None

    def add(self, explanation: Explanation, end: _Key, scale: float, most: int, inside: _Key) -> int:
        """Add the parts of an explanation, which lead to the box `end`; `scale` makes shares of their values.

        Returns:
            The first column that is free for `end`.
        """
        free = 1
        worth = [part for part in explanation.parts if _worth(part, explanation.score, scale)]
        for part in worth[:most]:
            key = (*inside, part.kind, part.label)
            if part.inner is not None and part.inner.parts:
                # Values inside are on a scale of their own: they share what the part has.
                own = part.value * scale / part.inner.score if part.inner.score else 0.0
                column = self.add(part.inner, key, own, max(most // 2, 1), key)
                self.box(key, part.kind, part.label, column)
                self.line(key, end, part.value * scale)
            else:
                column = self._chain(part, explanation.graph, end, part.value * scale, key)
            free = max(free, column + 1)
        left = worth[most:]
        share = sum(part.value for part in left) * scale
        if left and (share >= _LEAST or not explanation.score):
            key = (*inside, "rest")
            self.box(key, "rest", f"{len(left):,} more", max(free - 1, 1))
            self.line(key, end, share, dashed=True)
            free = max(free, 2)
        return free

    def _chain(self, part: Part, graph: str, end: _Key, share: float, key: _Key) -> int:
        """Add the words and the path of a part, and return the last column that they take."""
        begins: list[_Key] = [("word", word) for word in part.words]
        for word in begins:
            self.box(word, "word", word[1], 0)
        whole = part.kind == "beginning" or not part.value
        links = links_of(part.steps)
        names = [name for name, _ in links]
        steps = [step for _, step in (links if whole else links[:-1])]
        before = begins
        if not steps and (part.steps or not begins):
            # What begins in the interaction itself, and what no word stands behind.
            kind, name = ("seed", "the interaction itself") if part.kind == "path" else (part.kind, part.label)
            self.box(key, kind, name, 1)
            before = [key]
            for word in begins:
                self.line(word, key, share)
        for column, (step, name) in enumerate(zip(steps, names, strict=False), 1):
            spot = (graph, str(step.node))
            self.box(spot, step.kind, shown(step.kind, step.name, step.text), column)
            for source in before:
                self.line(source, spot, share, name)
            before = [spot]
        if part.value:
            open_ = part.kind == "beginning"
            for source in before:
                self.line(source, end, share, "" if open_ else names[-1] if names else "", dashed=open_)
        return max(len(steps), 1 if before is not begins else 0)


def _worth(part: Part, score: float, scale: float) -> bool:
    """Tell whether a part is drawn: what adds nothing to a score is not, nor is a rest below 1 %."""
    if not score:
        return True
    return abs(part.value * scale) >= _LEAST if part.kind == "rest" else part.value != 0


def svg(explanation: Explanation, interaction: str, title: str) -> str:
    """Draw an explanation.

    Args:
        explanation: What to draw; its nodes have names.
        interaction: Name of the interaction.
        title: What the drawing shows, for those who cannot see it.

    Returns:
        An ``svg`` element; the same explanation gives the same text.
    """
    picture = _Picture()
    end = ("interaction",)
    last = picture.add(explanation, end, 1 / explanation.score if explanation.score else 0.0, MOST_PARTS, ())
    picture.box(end, "interaction", interaction, last)
    routes = _routes(picture)
    _place(picture, routes.values())
    return "".join(_written(picture, routes, title))


def shown(kind: str, name: str, text: str) -> str:
    """Return what to call a node: a file by its id, others by their text, where they have one."""
    return name if kind == "file" or not text else text


def links_of(steps: Sequence[Step]) -> list[tuple[str, Step]]:
    """Return the nodes of a path, each with what to call the way to it; a run of like steps counts as one."""
    found: list[tuple[str, Step]] = []
    times = 1
    for number, step in enumerate(steps):
        times = times + 1 if number > 1 and step.edges == steps[number - 1].edges else 1
        kinds = dict.fromkeys(edge.kind for edge in step.edges)
        onward = {edge.kind for edge in step.edges if not edge.against}
        name = "/".join(kind if kind in onward else f"{kind} backwards" for kind in kinds)
        if times > 1:
            found.pop()
            name = f"{name} x{times}"
        found.append((name, step))
    return found


def _routes(picture: _Picture) -> dict[tuple[_Key, _Key], list[_Key]]:
    """Return the places that each line passes: a line over several columns gets a place of its own in each."""
    routes = {}
    for source, target in picture.lines:
        between = range(picture.boxes[source].column + 1, picture.boxes[target].column)
        ways = [(*source, "", *target, str(column)) for column in between]
        for way, column in zip(ways, between, strict=True):
            picture.boxes[way] = _Box(_WAY, "", column)
        routes[source, target] = [source, *ways, target]
    return routes


def _place(picture: _Picture, routes: Iterable[list[_Key]]) -> None:
    """Give rows to boxes: each near what leads to it, and in the order of the parts where that decides nothing."""
    columns: dict[int, list[_Key]] = {}
    for key, box in picture.boxes.items():
        columns.setdefault(box.column, []).append(key)
    leading: dict[_Key, list[_Box]] = {}
    for route in routes:
        for source, target in pairwise(route):
            leading.setdefault(target, []).append(picture.boxes[source])
    for number in sorted(columns):

        def near(key: _Key, number: int = number) -> tuple[bool, float]:
            rows = [box.row for box in leading.get(key, ()) if box.column < number]
            return picture.boxes[key].kind == "rest", sum(rows) / len(rows) if rows else 0.0

        for row, key in enumerate(sorted(columns[number], key=near)):
            picture.boxes[key].row = row


def _written(picture: _Picture, routes: Mapping[tuple[_Key, _Key], list[_Key]], title: str) -> Iterator[str]:
    boxes = picture.boxes
    last = max(box.column for box in boxes.values())
    tallest = max(sum(1 for b in boxes.values() if b.column == box.column) for box in boxes.values())
    width = 2 * _MARGIN + (last + 1) * _WIDTH + last * _ACROSS
    height = 2 * _MARGIN + _HEAD + tallest * (_HEIGHT + _DOWN)

    def corner(box: _Box) -> tuple[float, float]:
        own = sum(1 for b in boxes.values() if b.column == box.column)
        top = _MARGIN + _HEAD + (tallest - own) * (_HEIGHT + _DOWN) / 2
        return _MARGIN + box.column * (_WIDTH + _ACROSS), top + box.row * (_HEIGHT + _DOWN)

    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" font-family="sans-serif" font-size="12" fill="#111"><title>{_text(title)}</title>'
        f'<rect width="{width}" height="{height}" fill="#fff"/>'
    )
    heads = {0: "question words", 1: "seeds", 2: "nodes between", last: "interaction"}
    for column, head in heads.items():
        if any(box.column == column for box in boxes.values()):
            yield f'<text x="{_MARGIN + column * (_WIDTH + _ACROSS)}" y="{_MARGIN + 12}" fill="#555">{head}</text>'
    labels: list[str] = []
    for ends, line in picture.lines.items():
        yield from _curve([corner(boxes[key]) for key in routes[ends]], line, labels)
    for box in boxes.values():
        if box.kind == _WAY:
            continue
        x, y = corner(box)
        dash = f' stroke-dasharray="{_DASHES[box.kind]}"' if box.kind in _DASHES else ""
        thick = 2.5 if box.kind in ("interaction", "file") else 1.2
        yield (
            f"<g><title>{_text(f'{box.kind}: {box.name}')}</title>"
            f'<rect x="{x}" y="{y:g}" width="{_WIDTH}" height="{_HEIGHT}" rx="{_CORNERS.get(box.kind, 0)}" fill="#fff" '
            f'stroke="#111" stroke-width="{thick}"{dash}/>'
            f'<text x="{x + 10}" y="{y + 16:g}" font-size="10" fill="#555">{_text(_cut(box.kind))}</text>'
            f'<text x="{x + 10}" y="{y + 31:g}">{_text(_cut(box.name))}</text></g>'
        )
    yield from labels
    yield "</svg>"


def _curve(corners: Sequence[tuple[float, float]], line: _Line, labels: list[str]) -> Iterator[str]:
    """Draw a line along the corners of boxes, and keep its label for later, so that it lies over all lines."""
    half = _HEIGHT / 2
    onward = corners[-1][0] > corners[0][0]
    drawn, x0, y0 = [], corners[0][0] + _WIDTH, corners[0][1] + half
    drawn.append(f"M{x0:g} {y0:g}")
    middle = (0.0, 0.0)
    for number, (x, y) in enumerate(corners[1:]):
        x1, y1 = x + (0 if onward else _WIDTH), y + half
        out = (x1 - x0) / 2 if onward else _ACROSS * 0.7
        back = x1 - out if onward else x1 + out
        drawn.append(f"C{x0 + out:g} {y0:g} {back:g} {y1:g} {x1:g} {y1:g}")
        if not number:
            middle = ((x0 + 3 * (x0 + out) + 3 * back + x1) / 8, (y0 + y1) / 2)
        x0, y0 = x1, y1
        if number < len(corners) - 2:
            x0 += _WIDTH
            drawn.append(f"H{x0:g}")
    width = 1 + 7 * min(max(line.share, 0.0), 1.0)
    dash = ' stroke-dasharray="5 4"' if line.dashed or not line.share else ""
    yield f'<path d="{"".join(drawn)}" fill="none" stroke="#777" stroke-width="{width:.2f}"{dash}/>'
    yield f'<path d="M{x0:g} {y0:g}l{-7 if onward else 7} -4v8z" fill="#777"/>'
    words = [*map(_cut, line.names), *([f"{line.share:.1%}"] if line.share else [])]
    for number, word in enumerate(words):
        height = middle[1] - 5 * len(words) + 9 + 11 * number
        labels.append(
            f'<text x="{middle[0]:g}" y="{height:g}" font-size="10" text-anchor="middle" stroke="#fff" '
            f'stroke-width="3" paint-order="stroke">{_text(word)}</text>'
        )


def _cut(text: str) -> str:
    """Return the start of a text that fits into a box, on one line."""
    line = " ".join(text[: 4 * _LETTERS].split())
    width = 0
    for place, letter in enumerate(line):
        width += 2 if unicodedata.east_asian_width(letter) in "WF" else 1
        if width > _LETTERS:
            return line[: max(place - 1, 1)] + "…"
    return line


def _text(text: str) -> str:
    """Escape a text; characters that XML cannot hold are replaced."""
    return escape(_ILLEGAL.sub("\ufffd", text[:_LONGEST]))
