"""Introductions and recommendations as people tell of them, in English: "Ann introduced me to Bob at the Swan".

Each way of telling is a pattern around its verb. Names are runs of capitalised words; "I" is the speaker, where the log
names one; "my sister" is the sister. Pronouns name nobody, and what stays unnamed is not told.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from transforms.extractors import _words

INTRODUCED, RECOMMENDED = "introduced", "recommended"

_WINDOW = 240
"""Characters on each side of a cue that are read."""

_UPPER = "A-ZÀ-ÖØ-ÞĀĂĄĆČĎĐĒĘĚĞĪİŁŃŇŌŐŒŘŚŞŠŢŤŪŮŰŹŻŽȘȚΑ-ΩЀ-Я"
_CAPITAL = rf"[{_UPPER}][\w’'-]*"
_HONORIFIC = r"(?:(?:Dr|Mr|Mrs|Ms|Prof|St)\.?\s)?"
_PARTICLES = r"(?:(?:de|van|von|der|da|del|bin|al|la|di)\s){0,2}"
_PERSON = rf"{_HONORIFIC}{_CAPITAL}(?:\s(?:[{_UPPER}]\.|{_PARTICLES}{_CAPITAL})){{0,4}}"
_SMALL = r"(?:(?:of|the|and|in|to|a|an|for|on|at|with|from|&|de|la|du)\s)"
_TITLE = rf"(?:[{_UPPER}\d][\w’'-]*(?:\s{_SMALL}{{0,2}}[{_UPPER}\d][\w’'-]*){{0,9}}(?:,\s(?:volume|part|book)\s\d+)?)"
_QUOTED = r"\"[^\"\n]{1,80}\"|“[^”\n]{1,80}”"


_NAMES = _words.NAME | _words.MAYBE_NAME


class Telling(NamedTuple):
    """One introduction or recommendation.

    Attributes:
        row: Text that tells of it.
        kind: `INTRODUCED` or `RECOMMENDED`.
        source: Who introduced or recommended.
        target: Who was introduced, or what was recommended.
        place: Where; None where the text does not say.
    """

    row: int
    kind: str
    source: str
    target: str
    place: str | None


def find(texts: pa.Array, speakers: Sequence[Sequence[str]]) -> list[Telling]:
    """Find what texts tell of, in their order, each thing once a text.

    Args:
        texts: Strings.
        speakers: Who spoke in each text; a single name that is no role is whom "I" stands for.
    """
    found: list[Telling] = []
    rows = pc.indices_nonzero(pc.match_substring_regex(texts, _cue())).to_pylist()
    for row, text in zip(rows, texts.take(pa.array(rows, pa.int64())).to_pylist(), strict=True):
        speaker = _speaker(speakers[row])
        told = (Telling(row, *one) for window in _windows(text) for one in _told(window, speaker))
        found += dict.fromkeys(told)
    return found


def _speaker(names: Sequence[str]) -> str | None:
    return names[0] if len(names) == 1 and names[0].lower() not in _words.groups()["role"] else None


def _windows(text: str) -> Iterator[str]:
    """Yield the lines of a text around its cues, none of it twice."""
    end = 0
    for cue in re.finditer(_cue(), text):
        if cue.start() < end:
            continue
        low = max(end, text.rfind("\n", 0, cue.start()) + 1, cue.start() - _WINDOW)
        high = text.find("\n", cue.end())
        end = min(cue.end() + _WINDOW, len(text) if high < 0 else high)
        yield re.sub(r"\s+", " ", text[low:end])


def _told(text: str, speaker: str | None) -> Iterator[tuple[str, str, str, str | None]]:
    taken: list[tuple[int, int]] = []
    for kind, cue, pattern in _patterns():
        for match in pattern.finditer(text) if re.search(cue, text) else ():
            if any(match.start() < end and start < match.end() for start, end in taken):
                continue
            parts = match.groupdict()
            before, source = _parted(parts["run"]) if parts.get("run") else (None, parts["a"])
            who = _person(source, speaker)
            what = _person(parts["b"], speaker) if kind == INTRODUCED else _thing(parts["b"])
            if not who or not what or who == what:
                continue
            taken.append(match.span())
            place = before or (_place(text, match) if kind == INTRODUCED else None)
            yield kind, who, what, place
            third = _person(parts["c"], speaker) if parts.get("c") else None
            if third and third not in (who, what):
                yield kind, who, third, place


@cache
def _patterns() -> tuple[tuple[str, str, re.Pattern[str]], ...]:
    """Return the ways of telling: kind, cue, and the pattern that is tried where the cue stands.

    In a pattern, a is the source, b and c are targets; `run` is a place and the source with no sign between them.
    """
    kin = "|".join(sorted(_words.groups()["relation"]))
    who = rf"(?:(?:[Mm]y|[Oo]ur) (?:\w+ )?(?:{kin})(?:,? {_PERSON})?|{_PERSON}|I)"
    a, b, c = (rf"(?P<{name}>{who})" for name in "abc")
    did = rf"{a}(?:, who[^,.!?]{{1,60}},)?(?: (?:has|had|have|also|just|once|first|finally|then|kindly|really)){{0,3}}"
    thing = rf"(?:the (?:\w+ ){{1,3}}(?=[\"“]))?(?P<b>{_QUOTED}|{_HONORIFIC}{_TITLE})"
    us, told = "(?:me|us)", "(?:urged|told|encouraged|advised|begged)"
    praise = "(?:recommend|suggest)"
    known = "(?:met|got to know|[Ss]hook hands with|(?:became|made) friends with)"
    introduced = (
        (f"introduced {us} to", rf"(?P<run>(?:At|In|Inside|Outside) (?:the )?{_TITLE}) introduced {us} to {b}"),
        (f"introduced {us} to", rf"{did} introduced {us} to {b}(?: and (?:to )?{c})?"),
        ("introduced ", rf"{did} introduced (?:{us} and )?{b}(?: and {us})?(?: to (?:{us}|{c}))?"),
        (f"introduced to {us} by", rf"{b} (?:was|got|were) introduced to {us} by {a}"),
        ("introduced to .{2,60} by", rf"(?:I|we|We) (?:was|got|were) introduced to {b} by {a}"),
        ("(?:brought|got) .{2,80} together", rf"{did} (?:brought|got) (?:{us} and )?{b}(?: and {us})? together"),
        (f"(?:brought|got) {us} together", rf"{did} (?:brought|got) {us} together with {b}"),
        (f"connected {us} with", rf"{did} connected {us} with {b}"),
        (f"put {us} in touch with", rf"{did} put {us} in touch with {b}"),
        (f"set {us} up with", rf"{did} set {us} up with {b}"),
        (f"presented {us} to", rf"{did} presented {us} to {b}"),
        (f"presented .{{2,60}} to {us}", rf"{did} presented {b} to {us}"),
        (f"{us} (?:beside|next to)", rf"{did} (?:seated|sat|placed|put) {us} (?:beside|next to) {b}"),
        (f"{known} .{{2,140}}(?:thanks to|through|via)", rf"{known} {b}[^.!?]{{0,80}}? (?:thanks to|through|via) {a}"),
    )
    recommended = (
        (f"{praise}(?:ed|s)? ", rf"{did} {praise}(?:ed|s)?(?: (?:to )?{us})? {thing}"),
        (f"{praise}ed (?:to {us} )?by", rf"{thing} (?:was|were|came|comes|is)(?: \w+)? {praise}ed(?: to {us})? by {a}"),
        (f"{told} {us} to", rf"{did} {told} {us} to (?:[a-z]+ ){{1,3}}{thing}"),
        ("sw(?:ears|ore) by", rf"{did} sw(?:ears|ore) by {thing}"),
        (f"(?:lent|loaned) {us} ", rf"{did} (?:lent|loaned) {us} (?:(?:a|his|her|their) copy of )?{thing}"),
        ("pressed .{1,6}copy of", rf"{did} pressed (?:a|his|her|their) copy of {thing} (?:into|on)"),
    )
    ways = [(INTRODUCED, *way) for way in introduced] + [(RECOMMENDED, *way) for way in recommended]
    return tuple((kind, cue, re.compile(rf"(?<!\w){way}")) for kind, cue, way in ways)


@cache
def _cue() -> str:
    return "|".join(dict.fromkeys(cue for _, cue, _ in _patterns()))


def _parted(run: str) -> tuple[str | None, str]:
    """Part "At the Copper Lantern Hall Ann Lee" before the given name, or else before the last two words."""
    words = re.sub(r"^\w+ (?:the )?", "", run).split()
    if len(words) < 2:
        return None, run
    tail = range(max(len(words) - 3, 1), len(words) - 1)
    at = next((n for n in tail if _flags(words[n]) & _NAMES), max(len(words) - 2, 1))
    if _flags(words[at]) & (_words.SPOT | _words.PLACE_NOUN):
        at = len(words) - 1
    return " ".join(words[:at]), " ".join(words[at:])


def _flags(word: str) -> int:
    return _words.describe(word.encode())[0]


def _common(word: str) -> bool:
    flags = _flags(word)
    common = flags & (_words.STOP | _words.GENERIC | _words.CALENDAR | _words.UNUSABLE)
    return bool(common) and not flags & _NAMES


def _person(name: str, speaker: str | None) -> str | None:
    if name == "I":
        return speaker
    own = re.match("(?:[Mm]y|[Oo]ur) (.*)", name)
    if own:
        # "My old friend Ann" is Ann, "my sister" the sister.
        found = re.search(_PERSON, own[1])
        return found[0] if found else own[1].rpartition(" ")[2]
    if name.endswith(("'s", "’s")):
        return None  # "Ann's colleague" is not Ann
    words = [word for word in name.split() if not _flags(word.rstrip(".")) & _words.HONORIFIC]
    while words and _common(words[0]):
        words = words[1:]
    return " ".join(words) or None


def _thing(name: str) -> str | None:
    quoted = name[0] in '"“'
    name = re.sub(f"^{_HONORIFIC}", "", name.strip('"“”')).strip(" ,.")
    return name if name and (quoted or not all(_common(word) for word in name.split())) else None


def _place(text: str, match: re.Match[str]) -> str | None:
    """Find where an introduction was made: "at the Swan" after the name, or "At the Swan, " before it all."""
    where = rf"(?:the )?({_TITLE})"
    after = re.match(rf"[^.!?]*?\b(?:at|in|inside|outside) {where}", text[match.end("b") :])
    before = re.search(rf"(?:^|[.!?] )(?:At|In|Inside|Outside) {where},? $", text[: match.start()])
    for found in filter(None, (after, before)):
        if not all(_common(word) or word.isdigit() for word in found[1].split()):
            return found[1]
    return None
