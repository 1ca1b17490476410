"""Key phrases: the few short topics of each text, weighed by counts within its case."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from transforms.extractors import _words as w
from transforms.extractors._notes import LIMITS, Found
from transforms.extractors._scan import Words, after, before

_Ints = npt.NDArray[np.int64]
_Bools = npt.NDArray[np.bool_]
_Floats = npt.NDArray[np.float64]


def key_phrases(text: Words, flags: _Ints, case: _Ints, placed: _Bools, capital: _Bools) -> Found:
    """Choose the topics of each text: nouns, and noun phrases as ``head/modifier`` (``class/yoga``).

    A word weighs (1 + ln tf) ln(1 + N/df), the N interactions of its case counted, and twice that when more than one
    of them holds it: a tag serves by being shared. Gerunds weigh less, and words that look like adjectives or
    participles count only within phrases. A phrase takes the place of its words.

    Args:
        text: The words.
        flags: Flags of each word.
        case: Case of each text.
        placed: Words that belong to names and places.
        capital: Words inside other capitalised runs, which stand in `extra` and here only within phrases.

    Returns:
        Tags, the weightiest first.
    """
    barred = w.STOP | w.GENERIC | w.UNUSABLE | w.CALENDAR | w.NAME | w.NUMBER | w.HONORIFIC
    acronym = ((flags & (w.ACRONYM | w.SHORT)) == w.ACRONYM) & ((flags & w.CAPITAL) != 0)
    verb = _verbs(text, flags)
    content = ~verb & ((flags & barred) == 0) & (((flags & w.SHORT) == 0) | acronym) & ~placed
    # "5 miles" are no topic.
    content &= ((flags & w.UNIT) == 0) | ((before(flags, text.linked) & w.NUMBER) == 0)
    lemmas = text.vocabulary.lemma_codes
    size = len(text.vocabulary.code_texts)
    sizes = np.bincount(case) if len(case) else np.zeros(1, dtype=np.int64)
    compound = ((flags & w.MODIFIER) != 0) & ((flags & w.CAPITAL) == 0)
    pair = _pairs(text, flags, content, compound)
    # Both words of one name are no topic besides.
    pair[1:] &= ~(capital[1:] & capital[:-1])
    second = np.flatnonzero(pair)
    row2 = text.row[second]
    mod, head = lemmas[text.word[second - 1]], lemmas[text.word[second]]
    covered = pair.copy()
    covered[second - 1] = True
    at = np.flatnonzero(content | covered)
    lemma = lemmas[text.word[at]]
    key, first, tf = _group(text.row[at] * size + lemma)
    row, word = key // size, key % size
    df = _document_frequency(case[row] * size + word)
    weight = _weight(tf, df, sizes[case[row]]) * _shape_weight(flags[at[first]])
    _, first2, tf2 = _group_pairs(row2, mod, head, size)
    df2 = _pair_frequency(case[row2[first2]], mod[first2], head[first2], size)
    parts = (
        _look_up(key, weight, row2[first2] * size + mod[first2]),
        _look_up(key, weight, row2[first2] * size + head[first2]),
    )
    weight2 = (parts[0] + parts[1]) * 0.6 * np.where(df2 > 1, 1.5, 1.0) * (1 + 0.2 * np.log(tf2))
    hidden = np.unique(text.row[at][covered[at]] * size + lemma[covered[at]])
    free = ~np.isin(key, hidden) & ~capital[at[first]] & ((flags[at[first]] & w.WEAK) == 0)
    code_texts = text.vocabulary.code_texts
    unigrams = code_texts.take(pa.array(word[free]))
    phrases = pc.binary_join_element_wise(
        code_texts.take(pa.array(head[first2])), code_texts.take(pa.array(mod[first2])), "/"
    )
    rows = np.concatenate([row2[first2], row[free]])
    position = np.concatenate([second[first2], at[first][free]])
    # Whole numbers, so that no rounding of a vectorised logarithm can decide between two orders.
    score = np.rint(np.concatenate([weight2, weight[free]]) * 4096).astype(np.int64)
    order = np.lexsort((position, -score, rows))
    rank = np.arange(len(order)) - np.searchsorted(rows[order], rows[order])
    order = order[rank < LIMITS["what"]]
    return Found(rows[order], pa.concat_arrays([phrases, unigrams.cast(phrases.type)]).take(pa.array(order)))


def _pairs(text: Words, flags: _Ints, content: _Bools, compound: _Bools) -> _Bools:
    """Mark the second word of each two-word noun phrase; of overlapping ones the last in a row of words stays."""
    plain_head = content & ((flags & (w.WEAK | w.GERUND | w.CJK)) == 0)
    ends_ed = (flags & (w.WEAK | w.CJK)) != 0
    pair = plain_head & text.linked & ~text.opens
    # "a painting class", but "of accessing audiobooks"
    doing = ((flags & w.GERUND) != 0) & ((before(flags, text.linked) & (w.DETERMINER | w.TO)) == 0)
    pair[1:] &= (content[:-1] & ~ends_ed[:-1] & ~doing[:-1]) | compound[:-1]
    pair[:1] = False
    # In "lgbtq support group" the last two words are the phrase's core: of neighbours, every second from the end.
    number = np.arange(len(pair))
    following = np.where(pair, len(pair), number)
    stop = np.minimum.accumulate(following[::-1])[::-1]
    kept: _Bools = pair & ((stop - number) % 2 == 1)
    same = text.vocabulary.lemma_codes[text.word]
    kept[1:] &= same[1:] != same[:-1]
    return kept


def _verbs(text: Words, flags: _Ints) -> _Bools:
    """Mark words that their neighbours show to be verbs or predicates: "I submit", "to submit my", "so tense"."""
    one, two = before(flags, text.linked), before(flags, text.linked, 2)
    next1 = after(flags, text.linked)
    verb = (one & (w.PRONOUN | w.MODAL)) != 0
    verb |= ((one & w.ADVERB) != 0) & ((two & (w.PRONOUN | w.MODAL)) != 0)
    verb |= ((one & w.RELATION) != 0) & ((two & w.POSSESSIVE) != 0)
    verb |= ((one & w.OBJECT) != 0) & ((two & w.LETTING) != 0)
    phrase = (next1 & (w.DETERMINER | w.POSSESSIVE | w.OBJECT)) != 0
    wish = ((two & w.CATENATIVE) != 0) & ((two & w.MOTION) == 0)
    verb |= ((one & w.TO) != 0) & ((two & w.STUDY) == 0) & (wish | phrase)
    verb |= phrase & (text.opens | ((flags & w.GERUND) != 0))
    bare = np.append(~text.linked[1:], True)[: len(flags)]
    bare |= (next1 & (w.STOP | w.GENERIC | w.UNUSABLE | w.CAPITAL)) != 0
    said = ((one & (w.BE | w.LINKING | w.INTENSIFIER)) != 0) | (
        ((one & w.ADVERB) != 0) & ((two & (w.BE | w.LINKING)) != 0)
    )
    codes = text.vocabulary
    plural = (codes.plain_codes != codes.lemma_codes)[text.word]
    marked: _Bools = verb | (said & bare & ~plural & ((flags & w.GERUND) == 0))
    return marked


def _group(keys: _Ints) -> tuple[_Ints, _Ints, _Ints]:
    """Return distinct keys, the first place of each, and how often each comes up."""
    distinct, first, counts = np.unique(keys, return_index=True, return_counts=True)
    return distinct, first, counts


def _group_pairs(row: _Ints, mod: _Ints, head: _Ints, size: int) -> tuple[_Ints, _Ints, _Ints]:
    _, phrase = np.unique(mod * size + head, return_inverse=True)
    return _group(row * (len(phrase) + 1) + phrase)


def _document_frequency(keys: _Ints) -> _Ints:
    _, inverse, counts = np.unique(keys, return_inverse=True, return_counts=True)
    frequency: _Ints = counts[inverse]
    return frequency


def _pair_frequency(case: _Ints, mod: _Ints, head: _Ints, size: int) -> _Ints:
    _, phrase = np.unique(mod * size + head, return_inverse=True)
    return _document_frequency(case * (len(phrase) + 1) + phrase)


def _weight(tf: _Ints, df: _Ints, documents: _Ints) -> _Floats:
    weight: _Floats = (1 + np.log(tf)) * np.log1p(documents / df) * np.where(df > 1, 2.0, 1.0)
    return weight


def _shape_weight(flags: _Ints) -> _Floats:
    weight = np.where((flags & w.WEAK) != 0, 0.4, np.where((flags & w.GERUND) != 0, 0.7, 1.0))
    shaped: _Floats = np.where((flags & w.SPOT) != 0, 0.8, weight)
    return shaped


def _look_up(keys: _Ints, values: _Floats, wanted: _Ints) -> _Floats:
    found: _Floats = values[np.searchsorted(keys, wanted)] if len(keys) else np.zeros(len(wanted))
    return found
