"""Runs of capitalised words, and what each stands for: a person, a place, a subject or another thing.

What a name stands for is read from its neighbours, and all the mentions of a case are heard together: once a person
"said" something, every mention of that name is a person.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from transforms.extractors import _words as w
from transforms.extractors._notes import Found
from transforms.extractors._scan import Words

_Ints = npt.NDArray[np.int64]
_Bools = npt.NDArray[np.bool_]

_WORDS = 5
# Signs that neighbours give. Two different weak signs of a person are as good as a strong one, if one of them is
# of somebody who acts.
(_PERSON, _WITH, _OWNS, _DOES, _TO_ME, _BY, _MAYBE, _THING, _USED, _PLACE, _IN, _FIELD) = (
    1 << bit for bit in range(12)
)
_ACTS = _DOES | _TO_ME | _MAYBE
_WEAK = (_WITH, _OWNS, _DOES, _TO_ME, _BY, _MAYBE)


class Runs:
    """Runs of capitalised words of a column of texts.

    Attributes:
        starts: int64 array, number of the first word of each run.
        lengths: int64 array, words in each run.
        person, place, field, other: Bool arrays, at most one of them true for each run. `field` are subjects of
            study, languages and the like.
    """

    def __init__(self, text: Words, starts: _Ints, lengths: _Ints) -> None:
        self.text, self.starts, self.lengths = text, starts, lengths
        none = np.zeros(len(starts), dtype=bool)
        self.person, self.place, self.field, self.other = none, none, none, none
        plain = text.vocabulary.plain
        self._heads = plain.take(pa.array(text.word[starts]))
        parts = [self._heads]
        for step in range(1, _WORDS):
            word = text.word[np.minimum(starts + step, max(len(text.word) - 1, 0))]
            parts.append(plain.take(pa.array(word, mask=lengths <= step)))
        self.tags = pc.binary_join_element_wise(*parts, "_", null_handling="skip")

    def found(self, which: _Bools) -> Found:
        """Return the tags of some of the runs."""
        return Found(self.text.row[self.starts[which]], self.tags.filter(pa.array(which)))

    def tokens(self, which: _Bools) -> _Ints:
        """Return the numbers of the words in some of the runs."""
        lengths = self.lengths[which]
        step = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        return np.repeat(self.starts[which], lengths) + step


def find(text: Words, flags: _Ints, case: _Ints, known: _Bools) -> Runs:
    """Find the runs and judge them.

    Args:
        text: The words.
        flags: Flags of each word.
        case: Case of each text.
        known: Words that are names of people who speak in the case.
    """
    maybe = ((flags & w.MAYBE_NAME) != 0) & ~text.opens
    blocked = ((flags & (w.CALENDAR | w.UNUSABLE | w.HONORIFIC)) != 0) | (((flags & w.STOP) != 0) & ~maybe)
    generic = ((flags & (w.GENERIC | w.RELATION | w.ANIMAL)) != 0) & ((flags & (w.GEOGRAPHIC | w.THING_NOUN)) == 0)
    capital = ((flags & w.CAPITAL) != 0) & ~blocked
    # "Painting Mona Lisa" begins with a verb.
    capital &= ~(text.opens & ((flags & (w.GERUND | w.NAME)) == w.GERUND))
    # "Best Buy" is a name, "Great" and "Thanks Ann" are not.
    leads = ~text.opens & capital
    leads[:-1] &= capital[1:] & text.linked[1:] & ~generic[1:]
    leads[-1:] = False
    named = ((flags & w.NAME) != 0) | known
    # "Instructor Michele" is Michele.
    leads[:-1] &= ~(((flags[:-1] & w.RELATION) != 0) & named[1:])
    verb_maybe = text.opens & ((flags & w.MAYBE_NAME) != 0) & ((flags & w.STOP) == 0)
    capital &= ~generic | known | leads | maybe | verb_maybe | named
    inside = capital | _glue(text, flags, capital)
    goes_on = inside & text.linked & ~text.opens
    goes_on[1:] &= inside[:-1]
    # "Lily's Parents" are not called that, "Lily's Cafe" is.
    owned = ((flags[:-1] & w.OWNER) != 0) & (named[:-1] | ((flags[:-1] & w.MAYBE_NAME) != 0))
    goes_on[1:] &= ~owned | ((flags[1:] & w.PLACE_NOUN) != 0)
    begins = inside & ~goes_on
    starts = np.flatnonzero(begins)
    run = np.cumsum(begins) - 1
    lengths = np.bincount(run[inside], minlength=len(starts))
    single = lengths == 1
    # Longer runs are headings, and say nothing about names.
    kept = (lengths <= _WORDS) & ~(single & ((flags[starts] & (w.SHORT | w.ACRONYM)) == w.SHORT))
    runs = Runs(text, starts[kept], lengths[kept])
    _judge(runs, flags, case, known, capital)
    return runs


def _glue(text: Words, flags: _Ints, capital: _Bools) -> _Bools:
    """Mark the small words inside names: "Bank of America", "Lord of the Rings"."""
    small = ((flags & w.GLUE) != 0) & text.linked & ~capital
    glue = np.zeros_like(capital)
    glue[1:-1] = small[1:-1] & capital[:-2] & capital[2:] & text.linked[2:]
    article = ((flags & (w.ARTICLE | w.GLUE)) != 0) & text.linked & ~capital
    pair = small[1:-2] & article[2:-1] & capital[:-3] & capital[3:] & text.linked[3:]
    glue[1:-2] |= pair
    glue[2:-1] |= pair
    return glue


def _judge(runs: Runs, flags: _Ints, case: _Ints, known: _Bools, capital: _Bools) -> None:
    text, starts = runs.text, runs.starts
    if not len(starts):
        return
    ends = starts + runs.lengths - 1
    first, last, single = flags[starts], flags[ends], runs.lengths == 1
    opens = text.opens[starts]
    listed = pc.is_in(runs.tags, pa.array(sorted(w.words("places")))).to_numpy(zero_copy_only=False)
    named = ((first & w.NAME) != 0) | known[starts]
    acronym = (first & w.ACRONYM) != 0
    thing = ~single & ((last & (w.THING_NOUN | w.ACRONYM | w.MIXED)) != 0)
    glued = np.zeros(len(starts), dtype=bool)
    for step in range(1, _WORDS - 1):
        small = (flags[np.minimum(starts + step, len(flags) - 1)] & (w.GLUE | w.CAPITAL)) == w.GLUE
        glued |= (runs.lengths > step) & small
    # "Griffith Park", "University of Porto".
    shaped = ~single & (np.where(glued, first, last) & w.PLACE_NOUN != 0)
    shaped &= ~thing
    signs = _signs(runs, flags, named, listed)
    small, certain = _certain(runs, flags, case, known, capital)
    unsure = (first & w.MAYBE_NAME) != 0
    # "Basketball taught me" says nothing of a person, and "Family and I" nothing where "family" is written, too.
    signs[single & opens & ~named] &= ~_ACTS
    signs[small & ~unsure] &= ~(_PERSON | _ACTS)
    keys, heads = _keys(runs, case)
    together = _together(keys, signs)
    fixed = thing | shaped | ((first & w.LANGUAGE) != 0) | ((first & (w.THING_NOUN | w.MAYBE_NAME)) == w.THING_NOUN)
    # Malaysia is nobody, but Charlotte and Florence may be.
    never = (
        fixed | (listed & ~named & ((first & w.MAYBE_NAME) == 0)) | (single & ((first & (w.PLACE_NOUN | w.SPOT)) != 0))
    )
    never |= acronym | ((first & (w.MIXED | w.THING | w.CONCEPT)) != 0)
    weak = sum(((together & sign) != 0).astype(np.int64) for sign in _WEAK)
    against = (together & (_THING | _USED)) != 0
    told = ((together & _PERSON) != 0) | ((weak >= 2) & ((together & _ACTS) != 0) & ~against)
    told &= ~never
    # Hana Galvan is Hana afterwards, and Hana was her before.
    whole = (named | told) & ~fixed
    follows = single & ~never & ~listed & np.isin(keys, heads[whole & ~single]) & ~((together & _USED) != 0)
    told |= follows | (~single & ~never & np.isin(heads, keys[single & told & ~listed]))
    one, two = _near(text, flags, starts, -1), _near(text, flags, starts, -2)
    placed = ((one & (w.PREPOSITION | w.TO)) != 0) & ((two & w.ABSTRACT) == 0)
    person = (named | told) & ~(listed & (placed | ~(named | ((signs & _PERSON) != 0)))) & ~fixed
    field = ~person & ~listed & ~shaped & ((((first & w.LANGUAGE) != 0) & single) | ((together & _FIELD) != 0))
    located = (together & (_PLACE | _IN)) != 0
    place = ~person & ~field & (listed | shaped | (located & ~against & ~never))
    kept = certain | (told & (~opens | ((signs & _PERSON) != 0)))
    kept |= told & ((first & w.GENERIC) == 0)
    bare = single & ((first & (w.GENERIC | w.STOP | w.GEOGRAPHIC)) != 0) & ~person & ~listed
    kept &= ~bare
    runs.person, runs.place, runs.field = person & kept, place & kept, field & kept
    runs.other = kept & ~person & ~place & ~field


def _keys(runs: Runs, case: _Ints) -> tuple[_Ints, _Ints]:
    """Return a number for each run's case and tag, and one for its case and first word."""
    codes = pa.concat_arrays([runs.tags, runs._heads]).dictionary_encode()
    number = codes.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    base = case[runs.text.row[runs.starts]] * len(codes.dictionary)
    return base + number[: len(base)], base + number[len(base) :]


def _together(keys: _Ints, signs: _Ints) -> _Ints:
    distinct, inverse = np.unique(keys, return_inverse=True)
    gathered = np.zeros(len(distinct), dtype=np.int64)
    np.bitwise_or.at(gathered, inverse, signs)
    return gathered[inverse]


def _near(text: Words, flags: _Ints, at: _Ints, step: int, joined: _Bools | None = None) -> _Ints:
    """Return the flags of the word `step` words from some words, 0 where it is not joined to them."""
    joined = text.linked if joined is None else joined
    count = len(flags)
    reach = np.ones(len(at), dtype=bool)
    for back in range(0, -step) if step < 0 else range(1, step + 1):
        other = at - back if step < 0 else at + back
        reach &= (other >= 0) & (other < count)
        reach &= joined[np.clip(other, 0, count - 1)]
    there = at + step
    reach &= there >= 0
    return np.where(reach, flags[np.clip(there, 0, count - 1)], 0)


def _signs(runs: Runs, flags: _Ints, named: _Bools, listed: _Bools) -> _Ints:
    """Read the neighbours of each run."""
    text, starts = runs.text, runs.starts
    ends = starts + runs.lengths - 1
    one, two, three = (_near(text, flags, starts, -n) for n in (1, 2, 3))
    next1, next2, next3 = (_near(text, flags, ends, n) for n in (1, 2, 3))
    comma = text.comma[starts]
    aside = np.where(comma, flags[starts - 1], 0)
    aside2 = np.where(comma, _near(text, flags, np.maximum(starts - 1, 0), -1), 0)
    after = np.minimum(ends + 1, len(flags) - 1)
    paused = text.comma[after] & (ends + 1 < len(flags))
    then = np.where(paused, flags[after], 0)
    then2 = np.where(paused, _near(text, flags, after, 1), 0)
    words = text.vocabulary.code_texts
    codes = text.vocabulary.plain_codes[text.word]
    said = {name: pc.index(words, name).as_py() for name in ("and", "with", "by", "who", "whose", "i")}
    is_ = {name: codes == code for name, code in said.items()}

    def word(names: tuple[str, ...], at: _Ints, joined: _Bools) -> _Bools:
        inside = (at >= 0) & (at < len(codes)) & joined
        place = np.clip(at, 0, len(codes) - 1)
        found = np.zeros(len(at), dtype=bool)
        for name in names:
            found |= is_[name][place]
        return found & inside

    linked, follows = text.linked[starts], text.linked[after] & (ends + 1 < len(flags))
    owner = (flags[ends] & w.OWNER) != 0
    small = (next1 & w.CAPITAL) == 0
    kin = w.RELATION | w.ANIMAL | w.HONORIFIC
    person = ((one & kin) != 0) | ((one & w.HEARS) != 0) | (((one | aside) & w.GREETING) != 0)
    person |= ((next1 & w.TELLS) != 0) & small & ~owner & ((one & (w.DETERMINER | w.PREPOSITION)) == 0)
    # "Ann's 40th birthday"
    person |= owner & (((next1 | next2) & w.OWNED) != 0)
    person |= ((then & w.POSSESSIVE) != 0) & ((then2 & w.RELATION) != 0)
    person |= ((next1 & w.BE) != 0) & ((next2 & w.POSSESSIVE) != 0) & ((next3 & w.RELATION) != 0)
    person |= ((aside & w.RELATION) != 0) & ((aside2 & w.POSSESSIVE) != 0)
    person |= word(("who", "whose"), ends + 1, follows | paused)
    # "introduced me to Ann"
    person |= ((one & w.TO) != 0) & ((two & w.OBJECT) != 0) & ((three & w.HEARS) != 0)
    # "dinner with Ann"
    company = word(("with",), starts - 1, linked)
    person |= company & ((two & w.SOCIAL) != 0)
    also = word(("and",), ends + 1, follows)
    person |= also & word(("i",), ends + 2, text.linked[np.minimum(ends + 2, len(flags) - 1)])
    given = np.zeros(len(flags) + 1, dtype=bool)
    given[starts] = named
    person |= also & given[np.minimum(ends + 2, len(flags))]
    finish = np.zeros(len(flags) + 1, dtype=bool)
    finish[ends] = named
    person |= word(("and",), starts - 1, linked) & finish[np.maximum(starts - 2, 0)] & (starts >= 2)
    place = ((one & w.INSIDE) != 0) & ((two & w.LIVING) != 0)
    place |= ((one & w.TO) != 0) & ((two & w.MOTION) != 0) & ((next1 & w.TELLS) == 0)
    place |= (one & w.NEARBY) != 0
    nearby = np.zeros(len(flags) + 1, dtype=bool)
    nearby[starts] = listed
    place |= paused & nearby[np.minimum(ends + 1, len(flags))]
    field = ((one & w.PREPOSITION) != 0) & ((two & w.ABSTRACT) != 0) & ((two & w.LIVING) == 0)
    field |= (one & w.STUDY) != 0
    noun = follows & small & ~owner
    noun &= (next1 & (w.STOP | w.GENERIC | w.UNUSABLE | w.CALENDAR | w.TELLS | w.DOES | w.WEAK | w.NUMBER | w.BE)) == 0
    does = ((next1 & w.DOES) != 0) & small & ~owner
    held = ((one & w.DETERMINER) != 0) & ~owner
    signs = np.zeros(len(starts), dtype=np.int64)
    for sign, there in (
        (_PERSON, person),
        (_WITH, company),
        (_OWNS, owner),
        (_DOES, does | (((next1 & w.BE) != 0) & ((next2 & w.GERUND) != 0))),
        (_TO_ME, does & ((next2 & w.OBJECT) != 0)),
        (_BY, word(("by",), starts - 1, linked)),
        (_MAYBE, (flags[starts] & w.MAYBE_NAME) != 0),
        (_THING, noun | held),
        (_USED, (one & w.USING) != 0),
        (_PLACE, place),
        (_IN, ((one & w.INSIDE) != 0) & ~field),
        (_FIELD, field),
    ):
        signs[there] |= sign
    return signs


def _certain(runs: Runs, flags: _Ints, case: _Ints, known: _Bools, capital: _Bools) -> tuple[_Bools, _Bools]:
    """Tell which runs their case writes without a capital, too, and which are names by their capitals alone.

    A single word that opens a sentence is a name where it is listed or capital elsewhere in the case, and one of
    those written small is none.
    """
    text, starts = runs.text, runs.starts
    first, single = flags[starts], runs.lengths == 1
    plain = text.vocabulary.plain_codes
    keys = case[text.row] * len(text.vocabulary.code_texts) + plain[text.word]
    listed = ((first & (w.NAME | w.PLACE | w.ACRONYM)) != 0) | known[starts]
    sure = listed | np.isin(keys[starts], np.unique(keys[capital & ~text.opens]))
    doubtful = np.flatnonzero(single & ~listed)
    asked = np.zeros(len(text.vocabulary.code_texts), dtype=bool)
    asked[plain[text.word[starts[doubtful]]]] = True
    lower = asked[plain][text.word] & ((flags & w.CAPITAL) == 0)
    small = np.zeros(len(starts), dtype=bool)
    small[doubtful] = np.isin(keys[starts[doubtful]], np.unique(keys[lower]))
    return small, ~small & ~(single & text.opens[starts] & ~sure)
