"""Words that are one word written in two ways: singular and plural, and spellings one edit apart.

Both rules are for English and both are cautious: what two words mean is not known here, so pairs of real words that
differ by one letter must be told apart by the shape of the difference alone.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from transforms.extractors import _words

SHORTEST, LONGEST = 5, 32
"""Letters of the words whose spelling is compared."""

_VOWELS = ({"a", "e"}, {"e", "i"})
_ENDING = re.compile(r"(?:ing|ed|e?s)$")
_SUFFIXES = ("ing", "ings", "ed", "er", "ers", "est", "y", "le", "ly", "or", "ors")

_SINGULARS = """
arkansas arms ashes barracks brass brussels chaos charles christmas cosmos customs ethos gas glasses goggles goods guts
hives james jeans jones kansas kudos lucas marches mars mays means mumps naples nicholas odds ourselves pants perhaps
premises pyjamas remains riches shorts spectacles spirits summons sweepstakes thanks themselves thomas tights
tropics wages wales woods works yes yours
"""
_PAIRS = """
angel/angle barely/barley carter/crater carv/crav casual/causal compil/compli complaint/compliant
complement/compliment confidant/confident desert/dessert discreet/discrete expandable/expendable expansive/expensive
farm/fram finish/finnish fir/fri haarlem/harlem marital/martial median/medina minuet/minute perfect/prefect
perform/preform poring/pouring provence/province retir/retri sacred/scared salted/slated scor/scour sedation/sedition
sign/sing silver/sliver stationary/stationery striping/stripping timber/timbre trail/trial united/untied
withdraw/withdrew
"""
_NOT_PLURAL = frozenset(_SINGULARS.split())
"""Words in s that are no plural, or whose plural means something else."""

_APART = tuple(tuple(pair.split("/")) for pair in _PAIRS.split())
"""Beginnings of pairs of words of their own that the rules below would take for one."""

_BEGINNINGS = tuple(beginning for pair in _APART for beginning in pair)
_COLOUR = re.compile(r"r(?:s|ed|ing|ite|ites|able|ful|less|hood|ly|y|er|ers|ist|ists)?")

Ints = npt.NDArray[np.int64]


def singular(word: str) -> str:
    """Strip a regular English plural from a word in lower case.

    Words that only look like one (``news``, ``james``, ``paris``), surnames made from given names (``williams``) and
    words with digits stay as they are.
    """
    if not word.isalpha() or word in _NOT_PLURAL or word[:-1] in _words.words("names"):
        return word
    if word.endswith("oes") and len(word) > 5 and not word.endswith(("shoes", "canoes")):
        return word[:-2]
    return _words.singular(word)


def variants(words: Sequence[str]) -> tuple[Ints, Ints]:
    """Find the pairs of distinct words that are spellings of each other (`is_variant`).

    Words are compared where they agree in all letters but one, which a table of words with one letter left out shows:
    a word of n letters stands in n places, and no two words are compared that share none.

    Returns:
        Numbers of the two words of each pair, the lower one first, in ascending order.
    """
    blocks: dict[str, list[int]] = {}
    plain = [_plain(word) for word in words]
    for number, word in enumerate(plain):
        if word:
            for key in {word, *(word[:at] + word[at + 1 :] for at in range(1, len(word)))}:
                blocks.setdefault(key, []).append(number)
    pairs = {
        (one, two)
        for block in blocks.values()
        if len(block) > 1
        for place, one in enumerate(block)
        for two in block[place + 1 :]
    }
    found = sorted(pair for pair in pairs if _differ(words, plain, *pair))
    table = np.array(found, np.int64).reshape(-1, 2)
    return table[:, 0], table[:, 1]


def _differ(words: Sequence[str], plain: Sequence[str], one: int, two: int) -> bool:
    names = _words.words("names")
    if words[one] in names or words[two] in names:
        return False
    return plain[one] == plain[two] or is_variant(plain[one], plain[two])


def _plain(word: str) -> str:
    """Return a word without accents; an empty one where its spelling is not compared."""
    if not SHORTEST <= len(word) <= LONGEST:
        return ""
    if not word.isascii():
        parts = unicodedata.normalize("NFD", word)
        word = "".join(c for c in parts if unicodedata.category(c) != "Mn")
    return word if word.isascii() and word.isalpha() and len(word) >= SHORTEST else ""


def is_variant(one: str, two: str) -> bool:
    """Tell whether two words of small ASCII letters are one word, spelt in two ways.

    They begin with the same letter and are one edit apart, of these kinds (letters of the shorter word):

    - from 5 letters: ``-ise``/``-ize``, ``-yse``/``-yze``, ``-our``/``-or``, ``-re``/``-er``, ``-nce``/``-nse``;
    - from 6: two neighbours swapped; a consonant doubled (before an ending such as ``-ing`` from 8: ``hoping`` is not
      ``hopping``); ``ae``/``e`` and ``oe``/``e``;
    - from 8, an ending such as ``-ing`` not counted: a for e or e for i, not at the end.

    Known pairs of different words (``lighting``, ``lightning``) are not.
    """
    if len(one) > len(two):
        one, two = two, one
    size = len(one)
    if size < SHORTEST or len(two) - size > 1 or one[0] != two[0]:
        return False
    return _one_edit(one, two, size) and not _apart(one, two)


def _one_edit(one: str, two: str, size: int) -> bool:
    at = next((n for n in range(size) if one[n] != two[n]), size)
    if len(two) > size:
        return one[at:] == two[at + 1 :] and _left_out(two, at, size)
    if one[at + 1 :] == two[at + 1 :]:
        return at < size - 1 and _replaced(one, two, at, size)
    if one[at : at + 2] != two[at : at + 2][::-1] or one[at + 2 :] != two[at + 2 :]:
        return False
    return size >= 6 if at < size - 2 else {one[-2:], two[-2:]} == {"re", "er"}


def _apart(one: str, two: str) -> bool:
    return one.startswith(_BEGINNINGS) and any(
        (one.startswith(left) and two.startswith(right)) or (two.startswith(left) and one.startswith(right))
        for left, right in _APART
    )


def _replaced(one: str, two: str, at: int, size: int) -> bool:
    letters = {one[at], two[at]}
    if letters == {"s", "z"}:
        return one[at - 1] in "iy" and one[at + 1] in "eia"
    if letters == {"s", "c"}:
        return one[at - 1] == "n" and one[at + 1 :] in ("e", "es")
    return letters in _VOWELS and _stem(one) >= 8


def _left_out(longer: str, at: int, size: int) -> bool:
    letter, before, rest = longer[at], longer[at - 1], longer[at + 1 :]
    if letter == before and letter not in "aeiou":
        return (size >= 8 or rest not in _SUFFIXES) and size >= 6 and bool(rest or letter == "l")
    if before + letter == "ou":
        return bool(_COLOUR.fullmatch(rest))
    return letter in "ao" and rest.startswith("e") and size >= 6


def _stem(word: str) -> int:
    return len(_ENDING.sub("", word))
