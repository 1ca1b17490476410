"""Near-duplicate names of one thing made one: concepts, entities, phrases.

Forms are compared by normal forms that grow coarser from rule to rule: equal ones meet by a key, and no two are
compared only because they might be alike. All of it is per group (a case): cases do not depend on each other.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import scipy

from schemas.errors import SchemaError
from transforms.wordforms import singular, variants

RULES = ("exact", "case", "punctuation", "plural", "spelling", "vector")
"""Why two forms are one, the surest rule first.

- ``exact``: they are the same but for white space and compatibility forms (NFKC).
- ``case``: and but for capitals.
- ``punctuation``: and but for punctuation, possessive 's, a leading article and, without digits, spaces ("e-mail" is
  "email"). Symbols count (C, C++ and C# are three), and so does what stands between digits or is a number's sign.
- ``plural``: and but for regular plurals (`transforms.wordforms.singular`).
- ``spelling``: and but for the spelling of words in small letters (`transforms.wordforms.is_variant`).
- ``vector``: they share a word and all their numbers, and their vectors are near.
"""

Level = Literal["none", "exact", "case", "punctuation", "plural", "spelling"]
"""The last rule by which forms are merged."""

HUB = 64
"""A word in more forms of a group than this gives no pair of forms to compare by vectors."""

_PAIRS = 1 << 13
_SCALE = 2.0**26
_SPACES = r"[\s\p{Z}\x{1c}-\x{1f}\x{85}]+"
_BREAKS = r"[^\p{L}\p{M}\p{N}\p{S}#@%&']+"
_ARTICLE = r"^(?i:the|an?) (\S+ .*)$|^the (\S+)$"
_MARKED_NUMBER = r"\p{N} ?[-−–.,:;/\\'+*×^=~]+ ?\p{N}|(?:^|[ _])[-−–+.,]\p{N}"

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Merged:
    """What became of forms.

    Attributes:
        into: (forms,) number of the form that stands for it; its own where it stays.
        rule: (forms,) index into `RULES` of the surest rule by which it and that form are one; -1 where it stays.
        similarity: (forms,) of the two normal forms, in [0, 1]: by spelling, 1 less the edits over the letters of the
            longer one; by vector, the cosine; else 1.
    """

    into: Ints
    rule: Ints
    similarity: Floats


@dataclass(frozen=True)
class _Forms:
    """Forms and their words. F forms, D distinct ones among them, W words of these, V distinct words in the singular.

    Attributes:
        group: (F,) group of each form.
        code: (F,) distinct form that each is.
        count: (F,) how often it occurs.
        named: (F,) forms that name people.
        exact: (D,) normal form of that rule.
        case: (D,) likewise.
        starts: (D + 1,) where the words of each distinct form begin; one that stays as it is has none.
        small: (W,) words in small letters.
        word: (W,) the same in the singular, as an index into `singles`.
        capital: (W,) whether the word has a capital.
        singles: (V,) words in the singular.
        spaced: (D,) forms with digits; their words stay apart.
    """

    group: Ints
    code: Ints
    count: Ints
    named: Bools
    exact: pa.Array
    case: pa.Array
    starts: Ints
    small: pa.Array
    word: Ints
    capital: Bools
    singles: pa.Array
    spaced: Bools


def merge(
    group: Ints,
    forms: pa.Array,
    count: Ints,
    level: Level = "spelling",
    *,
    named: Bools | None = None,
    vectors: npt.NDArray[np.floating] | None = None,
    cosine: float = 0.95,
) -> Merged:
    """Find which forms are one, and which of them stays: the most frequent, then the shortest, then the first.

    Args:
        group: (forms,) forms of different groups are never one.
        forms: (forms,) strings, none twice in a group.
        count: (forms,) how often each occurs.
        level: The last rule that counts.
        named: (forms,) forms that name people: no plurals, no spellings, no vectors, and spaces count ("Adams" is
            not Adam, "Marie" not Maria, "Ann E. Lee" not Anne Lee).
        vectors: (forms, d) unit vectors, for the rule `vector`; a row of zeros is near nothing.
        cosine: Least cosine of forms that are one by it.

    Raises:
        SchemaError: A group has a form twice, or the arrays differ in length.
    """
    size = len(forms)
    named = np.zeros(size, np.bool_) if named is None else named
    if {len(group), len(count), len(named), size if vectors is None else len(vectors)} != {size}:
        raise SchemaError("forms, groups, counts and vectors differ in length", where="merge")
    table = _read(group, forms, count, named)
    rank = preference(forms, count)
    label = np.arange(size)
    labels = []
    respelt = np.zeros(size, np.int64)
    every = np.ones(size, np.bool_)
    for rule in RULES[:-1]:
        if level != "none" and RULES.index(rule) <= RULES.index(level):
            key, respelt = _key(table, rule)
            label = _joined(label, group, key, every if rule in RULES[:3] else ~named)
        labels.append(label)
    if vectors is not None:
        # Multiples of 2**-26 have sums of products that are exact, in whatever order a machine adds them up.
        vectors = np.rint(vectors.astype(np.float64) * _SCALE) / _SCALE
        label = _near(table, label, rank, vectors, cosine)
    labels.append(label)

    into = survivors(label, rank)
    rule_of = np.full(size, -1, np.int64)
    for number in reversed(range(len(RULES))):
        rule_of[(into != np.arange(size)) & (labels[number] == labels[number][into])] = number
    similarity = np.ones(size)
    spelt = np.flatnonzero(rule_of == RULES.index("spelling"))
    letters = pc.utf8_length(table.case).to_numpy(zero_copy_only=False)[table.code]
    edits = np.maximum(respelt[spelt] + respelt[into[spelt]], 1)
    similarity[spelt] = 1 - edits / np.maximum(letters[spelt], letters[into[spelt]])
    if vectors is not None:
        near = np.flatnonzero(rule_of == RULES.index("vector"))
        similarity[near] = np.clip(_cosines(vectors, near, into[near]), 0, 1)
    return Merged(into, rule_of, similarity)


def preference(forms: pa.Array, count: Ints) -> Ints:
    """Rank forms as keys, from 0: the most frequent first, then the shortest, then the first."""
    rank = np.empty(len(forms), np.int64)
    length = pc.utf8_length(forms).to_numpy(zero_copy_only=False)
    rank[np.lexsort((np.arange(len(forms)), length, -count))] = np.arange(len(forms))
    return rank


def survivors(label: Ints, rank: Ints) -> Ints:
    """Return, for each form, the best of those with its label (labels are below the number of forms)."""
    best = np.full(len(label), len(label), np.int64)
    np.minimum.at(best, label, rank)
    return np.argsort(rank)[best[label]]


def folded(strings: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return the normal forms of the rules `exact` and `case`."""
    exact = pc.utf8_normalize(strings, form="NFKC")
    exact = pc.utf8_trim_whitespace(pc.replace_substring_regex(exact, _SPACES, " "))
    return exact, pc.utf8_lower(exact)


def _read(group: Ints, forms: pa.Array, count: Ints, named: Bools) -> _Forms:
    coded = forms.cast(pa.string()).dictionary_encode()
    code = _codes(coded)
    if len(np.unique(group * (len(coded.dictionary) + 1) + code)) < len(code):
        raise SchemaError("a group has a form twice", where="merge")
    exact, case = folded(coded.dictionary)
    plain = pc.replace_substring_regex(pc.replace_substring_regex(exact, "[’ʼ`]", "'"), _BREAKS, " ")
    plain = pc.replace_substring(pc.replace_substring_regex(plain, "'[sS]( |'|$)", r"\1"), "'", "")
    plain = pc.replace_substring_regex(pc.utf8_trim_whitespace(plain), _ARTICLE, r"\1\2")
    plain = pc.if_else(pc.match_substring_regex(exact, _MARKED_NUMBER), "", plain)
    words = pc.split_pattern(plain, " ")
    flat = words.flatten()
    kept = pc.not_equal(flat, "").to_numpy(zero_copy_only=False)
    starts = np.concatenate([[0], np.cumsum(kept)])[words.offsets.to_numpy().astype(np.int64)]
    flat = flat.filter(pa.array(kept))
    small = pc.utf8_lower(flat)
    lowered = small.dictionary_encode()
    single = pa.array([singular(word) for word in lowered.dictionary.to_pylist()], pa.string()).dictionary_encode()
    return _Forms(
        group,
        code,
        count,
        named,
        exact,
        case,
        starts,
        small,
        _codes(single)[_codes(lowered)],
        pc.not_equal(flat, small).to_numpy(zero_copy_only=False),
        single.dictionary,
        pc.match_substring_regex(exact, r"\p{N}").to_numpy(zero_copy_only=False),
    )


def _codes(coded: pa.DictionaryArray) -> Ints:
    codes: Ints = coded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return codes


def _key(table: _Forms, rule: str) -> tuple[Ints, Ints]:
    """Return (forms,) numbers, equal where normal forms are, and how many words of each form were spelt anew."""
    respelt = np.zeros(len(table.code), np.int64)
    if rule in ("exact", "case"):
        return _codes((table.exact if rule == "exact" else table.case).dictionary_encode())[table.code], respelt
    if rule == "punctuation":
        apart = _lines(table.starts, table.small, np.ones_like(table.spaced), table.case)
        together = _lines(table.starts, table.small, table.spaced, table.case)
        codes = _codes(pa.concat_arrays([together, apart]).dictionary_encode())
        return codes[table.code + np.where(table.named, len(table.spaced), 0)], respelt
    lines = _lines(table.starts, table.singles.take(pa.array(table.word)), table.spaced, table.case)
    if rule == "plural":
        return _codes(lines.dictionary_encode())[table.code], respelt
    word, owner, anew = _spelt(table)
    respelt = np.bincount(owner[anew], minlength=len(table.code))
    changed = np.flatnonzero(respelt)
    if not len(changed):
        return _codes(lines.dictionary_encode())[table.code], respelt
    mine = np.isin(owner, changed)
    starts = np.searchsorted(owner[mine], np.append(changed, len(table.code)))
    code = table.code[changed]
    new = _lines(starts, table.singles.take(pa.array(word[mine])), table.spaced[code], table.case.take(pa.array(code)))
    codes = _codes(pa.concat_arrays([lines, new]).dictionary_encode())
    key = codes[table.code]
    key[changed] = codes[len(lines) :]
    return key, respelt


def _lines(starts: Ints, words: pa.Array, spaced: Bools, bare: pa.Array) -> pa.Array:
    """Join words to lines, with spaces where they stay; a line without words is its `bare` form."""
    lists = pa.ListArray.from_arrays(pa.array(starts.astype(np.int32)), words)
    lines = pc.binary_join(lists, " ")
    lines = pc.if_else(pa.array(spaced), lines, pc.replace_substring(lines, " ", ""))
    return pc.if_else(pc.equal(lines, ""), bare, lines)


def _words_of(table: _Forms) -> tuple[Ints, Ints]:
    """Return the places of the words of every form, and the form of each."""
    length = np.diff(table.starts)[table.code]
    owner = np.repeat(np.arange(len(table.code)), length)
    first = np.cumsum(length) - length
    return np.arange(len(owner)) - first[owner] + table.starts[table.code][owner], owner


def _spelt(table: _Forms) -> tuple[Ints, Ints, Bools]:
    """Choose one spelling for the words of each group that are spelt in several ways: the most frequent.

    Returns:
        Word, form and whether the word was replaced, for each word of every form.
    """
    place, owner = _words_of(table)
    word = table.word[place]
    free = ~table.capital[place] & ~table.named[owner]
    used = np.unique(word[free])
    left, right = (used[side] for side in variants(table.singles.take(pa.array(used)).to_pylist()))
    span = len(table.singles) + 1
    held, inverse = np.unique(table.group[owner[free]] * span + word[free], return_inverse=True)
    count = np.bincount(inverse.reshape(-1), table.count[owner[free]], minlength=len(held))
    # The places in `held` of the groups that hold each pair's left word, and of its right word in the same group.
    order = np.argsort(held % span, kind="stable")
    by_word = (held % span)[order]
    low, high = np.searchsorted(by_word, left), np.searchsorted(by_word, left, side="right")
    pair = np.repeat(np.arange(len(left)), high - low)
    one = order[np.arange(len(pair)) - np.repeat(np.cumsum(high - low) - (high - low), high - low) + low[pair]]
    wanted = held[one] // span * span + right[pair]
    two = np.searchsorted(held, wanted)
    both = held[np.minimum(two, len(held) - 1)] == wanted if len(held) else np.zeros(0, np.bool_)
    chosen = held.copy()
    letters = pc.utf8_length(table.singles).to_numpy(zero_copy_only=False)
    rank = np.empty(len(held), np.int64)
    rank[np.lexsort((held, letters[held % span], -count))] = np.arange(len(held))
    for worse, better in _stars(one[both], two[both], rank):
        chosen[worse] = held[better]
    new = word.copy()
    new[free] = chosen[inverse.reshape(-1)] % span
    return new, owner, new != word


def _stars(one: Ints, two: Ints, rank: Ints) -> Iterable[tuple[int, int]]:
    """Choose, of pairs of alike things, which is dropped for which: each for a better one that stays itself.

    No thing is dropped for one that it is not alike, so that a chain of small differences merges no more than its
    neighbours.
    """
    swap = rank[one] > rank[two]
    better, worse = np.where(swap, two, one), np.where(swap, one, two)
    order = np.lexsort((rank[worse], rank[better]))
    dropped: set[int] = set()
    for kept, gone in zip(better[order].tolist(), worse[order].tolist(), strict=True):
        if kept not in dropped and gone not in dropped:
            dropped.add(gone)
            yield gone, kept


def _joined(label: Ints, group: Ints, key: Ints, active: Bools) -> Ints:
    """Give one label to forms of a group that have the same label or the same key (forms that are `active` only)."""
    chosen = np.flatnonzero(active)
    _, meeting = np.unique(group[chosen] * (int(key.max(initial=0)) + 1) + key[chosen], return_inverse=True)
    return _components(label, label[chosen], len(label) + meeting.reshape(-1))


def _components(label: Ints, one: Ints, two: Ints) -> Ints:
    """Join the labels that pairs connect, through other numbers or not."""
    size = int(max(label.max(initial=-1), one.max(initial=-1), two.max(initial=-1))) + 1
    links = scipy.sparse.coo_array((np.ones(len(one), np.int8), (one, two)), shape=(size, size))
    _, component = scipy.sparse.csgraph.connected_components(links, directed=False)
    _, joined = np.unique(component[label], return_inverse=True)
    labels: Ints = joined.reshape(-1).astype(np.int64)
    return labels


def _near(table: _Forms, label: Ints, rank: Ints, vectors: Floats, cosine: float) -> Ints:
    """Join labels whose best forms share their numbers and a word that is no hub, and whose vectors are near.

    Vectors see little of a number, and none of a person: what differs in numbers, and labels that name people, stay.
    """
    numbers = _codes(
        pc.utf8_trim_whitespace(pc.replace_substring_regex(table.exact, r"\P{N}+", " ")).dictionary_encode()
    )
    number = numbers[table.code]
    _, first = np.unique(label[np.argsort(rank)], return_index=True)
    best = np.argsort(rank)[first]
    place, owner = _words_of(table)
    mine = np.isin(owner, best) & ~np.isin(label, label[table.named])[owner]
    key = np.unique(
        np.stack([table.group[owner[mine]] * (len(table.singles) + 1) + table.word[place[mine]], owner[mine]]), axis=1
    )
    block, form = key
    ends = np.searchsorted(block, block, side="right")
    sizes = ends - np.searchsorted(block, block)
    follow = np.where(sizes <= HUB, ends - np.arange(len(block)) - 1, 0)
    total = np.concatenate([[0], np.cumsum(follow)])
    near: list[Ints] = []
    low = 0
    while low < len(block):
        high = max(low + 1, int(np.searchsorted(total, total[low] + _PAIRS, side="right")) - 1)
        entry = np.repeat(np.arange(low, high), follow[low:high])
        other = np.arange(len(entry)) - (total[entry] - total[low]) + entry + 1
        one, two = form[entry], form[other]
        same = number[one] == number[two]
        one, two = one[same], two[same]
        alike = _cosines(vectors, one, two) >= cosine
        near.append(np.stack([one[alike], two[alike]]))
        low = high
    one, two = np.unique(np.concatenate([np.zeros((2, 0), np.int64), *near], axis=1), axis=1)
    links = np.array(list(_stars(one, two, rank)), np.int64).reshape(-1, 2)
    return _components(label, label[links[:, 0]], label[links[:, 1]])


def _cosines(vectors: Floats, one: Ints, two: Ints) -> Floats:
    cosines: Floats = np.einsum("ij,ij->i", vectors[one], vectors[two])
    return cosines
