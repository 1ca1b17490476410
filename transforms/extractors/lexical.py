"""The embedded extractor: no model, no network, the same notes everywhere.

Names, places, key phrases, dates, reasons and quantities are read from the user's words with word lists, capitals
and counts within the case. Notes of a case depend on that case alone. docs/extractors.md says how each field is
found.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel, ConfigDict

from schemas import tables
from transforms import dates
from transforms.extractors import _words as w
from transforms.extractors._keys import key_phrases
from transforms.extractors._notes import Found, build, join, summarise
from transforms.extractors._scan import Words, scan
from transforms.tags import normalise, normalise_all

NAME = "lexical"
VERSION = 1

_CHUNK_BYTES = 2 << 20
_QUOTED = r'"[A-Z0-9][^"\n]{1,60}"|“[A-Z0-9][^”\n]{1,60}”'
_RUN_WORDS = 4
_REASON_WORDS = 10

_Ints = npt.NDArray[np.int64]
_Bools = npt.NDArray[np.bool_]


class Options(BaseModel):
    """The lexical extractor has no options."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class LexicalExtractor:
    """See the module."""

    async def extract(self, interactions: pa.Table, ontology_window: int) -> pa.Table:
        """Make notes of whole cases; the ontology is not used."""
        return extract(interactions)


def make(options: Options) -> LexicalExtractor:
    """Make the extractor."""
    return LexicalExtractor()


def extract(interactions: pa.Table) -> pa.Table:
    """Make the notes of an interactions table of whole cases.

    Args:
        interactions: Table of the schema `interactions`, cases one after another.

    Returns:
        Table of the schema `notes`, same rows, same order.
    """
    pieces = [_extract_chunk(chunk) for chunk in _chunks(interactions)]
    return pa.concat_tables(pieces) if pieces else tables.empty("notes")


def _chunks(interactions: pa.Table) -> Iterator[pa.Table]:
    """Split between cases, so that the arrays of one chunk stay in the processor's cache."""
    if not interactions.num_rows:
        return
    starts = np.append(_case_starts(interactions), interactions.num_rows)
    sizes = np.zeros(interactions.num_rows + 1, dtype=np.int64)
    np.cumsum(pc.binary_length(source_texts(interactions)).to_numpy(), out=sizes[1:])
    first = 0
    for last, after in zip(starts[1:], [*starts[2:], None], strict=True):
        if after is None or sizes[after] - sizes[first] > _CHUNK_BYTES:
            yield interactions.slice(first, last - first)
            first = last


def _case_starts(interactions: pa.Table) -> _Ints:
    cases = interactions["case_id"].cast(pa.string()).combine_chunks()
    return np.flatnonzero(np.append(True, pc.not_equal(cases[1:], cases[:-1]).to_numpy(zero_copy_only=False)))


def source_texts(interactions: pa.Table) -> pa.ChunkedArray:
    """Return what notes are made of: the user's text, or else the assistant's where the user said nothing."""
    user = interactions["user_text"]
    return pc.if_else(_spoken(user), user, interactions["assistant_text"])


def _spoken(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.greater(pc.utf8_length(pc.utf8_trim_whitespace(texts)), 0)


def _extract_chunk(interactions: pa.Table) -> pa.Table:
    texts = source_texts(interactions).combine_chunks()
    fields = tag_fields(texts, interactions)
    spoken = _spoken(interactions["user_text"]).to_numpy()
    for field in ("who", "when", "where", "why"):
        kept = spoken[fields[field].rows]
        fields[field] = Found(fields[field].rows[kept], fields[field].tags.filter(pa.array(kept)))
    return build(interactions, fields, summarise(texts))


def tag_fields(texts: pa.Array, interactions: pa.Table) -> dict[str, Found]:
    """Find the tags of texts.

    Args:
        texts: ``large_string`` array, one text an interaction.
        interactions: Whole cases; gives each text its case, time and speakers.

    Returns:
        Tags of each field.
    """
    starts = _case_starts(interactions)
    case = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, interactions.num_rows)))
    text = scan(texts)
    flags = text.vocabulary.flags[text.word]
    speakers, known = _speakers(interactions, case, text)
    runs = _Runs.find(text, flags, case, known)
    spots = _spots(text, flags)
    kin = ((flags & w.RELATION) != 0) & ((_before(flags, text.linked) & w.POSSESSIVE) != 0)
    # "My friend Ann" is Ann.
    named = np.zeros(len(flags) + 1, dtype=bool)
    named[runs.starts[runs.person]] = True
    kin &= ~named[1:]
    placed = spots | kin
    placed[runs.tokens(runs.person | runs.place)] = True
    dated = dates.resolve(texts, interactions["started_at"])
    capital = np.zeros(len(flags), dtype=bool)
    capital[runs.tokens(runs.other)] = True
    return {
        "who": join(speakers, runs.found(runs.person), _lemmas(text, np.flatnonzero(kin))),
        "what": key_phrases(text, flags, case, placed, capital),
        "when": Found(dated.rows, dated.tags),
        "where": join(runs.found(runs.place), _lemmas(text, np.flatnonzero(spots))),
        "why": _reasons(text, flags),
        "extra": join(_quoted(texts), runs.found(runs.other), _quantities(text, flags)),
    }


def _lemmas(text: Words, at: _Ints) -> Found:
    return Found(text.row[at], text.vocabulary.lemma.take(pa.array(text.word[at])))


def _before(flags: _Ints, linked: _Bools, steps: int = 1) -> _Ints:
    """Return the flags of the word so many linked words before, 0 where there is none."""
    out = np.zeros_like(flags)
    out[steps:] = flags[:-steps]
    reach = linked.copy()
    for step in range(1, steps):
        reach[step:] &= linked[:-step]
    return np.where(reach, out, 0)


def _speakers(interactions: pa.Table, case: _Ints, text: Words) -> tuple[Found, _Bools]:
    """Give the names of who spoke, and which words are names of people who speak in the case."""
    column = interactions["speakers"].combine_chunks()
    rows = pc.list_parent_indices(column).to_numpy().astype(np.int64)
    names = column.flatten().dictionary_encode()
    forms = [normalise(name) for name in names.dictionary.to_pylist()]
    personal = [f if f is not None and f.split("_")[0] not in w.groups()["role"] else None for f in forms]
    tags = pa.array(personal, type=pa.string()).take(names.indices)
    kept = pc.is_valid(tags).to_numpy(zero_copy_only=False)
    found = Found(rows[kept], tags.drop_null())
    codes = {t: c for c, t in enumerate(text.vocabulary.code_texts.to_pylist())} if kept.any() else {}
    parts = sorted(
        {
            (int(case[row]), part)
            for row, name in zip(found.rows.tolist(), found.tags.to_pylist(), strict=True)
            for part in name.split("_")
        }
    )
    keys = [at * len(codes) + codes[part] for at, part in parts if part in codes]
    short = [
        at * len(codes) + codes[part[:length]]
        for at, part in parts
        for length in range(3, len(part))
        if part[:length] in codes
    ]
    mine = case[text.row] * max(len(codes), 1) + text.vocabulary.plain_codes[text.word]
    known = np.isin(mine, np.array(keys, dtype=np.int64))
    # "Mel" is Melanie, but at the start of a sentence "Car" need not be Caroline.
    return found, known | (np.isin(mine, np.array(short, dtype=np.int64)) & ~text.opens)


class _Runs:
    """Runs of capitalised words, and what each stands for."""

    def __init__(self, text: Words, starts: _Ints, lengths: _Ints) -> None:
        self.text, self.starts, self.lengths = text, starts, lengths
        none = np.zeros(len(starts), dtype=bool)
        self.person, self.place, self.other = none, none, none
        plain = text.vocabulary.plain
        parts = [plain.take(pa.array(text.word[starts]))]
        for step in range(1, _RUN_WORDS):
            word = text.word[np.minimum(starts + step, max(len(text.word) - 1, 0))]
            parts.append(plain.take(pa.array(word, mask=lengths <= step)))
        self.tags = pc.binary_join_element_wise(*parts, "_", null_handling="skip")

    @classmethod
    def find(cls, text: Words, flags: _Ints, case: _Ints, known: _Bools) -> _Runs:
        """Find the runs; `known` marks words that are names of speakers."""
        blocked = (flags & (w.STOP | w.CALENDAR | w.UNUSABLE | w.HONORIFIC)) != 0
        generic = ((flags & (w.GENERIC | w.RELATION | w.ANIMAL)) != 0) & ((flags & w.GEOGRAPHIC) == 0)
        capital = ((flags & w.CAPITAL) != 0) & ~blocked
        # "Best Buy" is a name, "Great" and "Thanks Ann" are not.
        leads = ~text.opens & capital
        leads[:-1] &= capital[1:] & text.linked[1:] & ~generic[1:]
        leads[-1:] = False
        capital &= ~generic | known | leads
        goes_on = capital & text.linked & ~text.opens
        goes_on[1:] &= capital[:-1]
        starts = np.flatnonzero(capital & ~goes_on)
        run = np.cumsum(capital & ~goes_on) - 1
        lengths = np.bincount(run[capital], minlength=len(starts))
        single = lengths == 1
        opens = text.opens[starts]
        first = flags[starts]
        sure = ((first & (w.NAME | w.PLACE | w.ACRONYM)) != 0) | known[starts]
        keys = case[text.row] * len(text.vocabulary.code_texts) + text.vocabulary.plain_codes[text.word]
        sure |= np.isin(keys[starts], np.unique(keys[capital & ~text.opens]))
        sure &= ((first & w.SHORT) == 0) | ((first & w.ACRONYM) != 0)
        alone_generic = single & ((first & w.GENERIC) != 0) & ~known[starts]
        # Longer runs are headings, and say nothing about names.
        kept = (lengths <= _RUN_WORDS) & ~(single & opens & ~sure) & ~alone_generic
        doubtful = single & ((first & (w.NAME | w.PLACE | w.ACRONYM)) == 0) & ~known[starts]
        kept[doubtful] &= ~_written_small(text, flags, keys, starts[doubtful])
        kept &= ~(single & ((first & (w.SHORT | w.ACRONYM)) == w.SHORT))
        runs = cls(text, starts[kept], lengths[kept])
        runs._judge(flags, known)
        return runs

    def _judge(self, flags: _Ints, known: _Bools) -> None:
        first, last = flags[self.starts], flags[self.starts + self.lengths - 1]
        one = _before(flags, self.text.linked)[self.starts]
        two = _before(flags, self.text.linked, 2)[self.starts]
        listed = pc.is_in(self.tags, pa.array(sorted(w.words("places")))).to_numpy(zero_copy_only=False)
        named = ((first & w.NAME) != 0) | known[self.starts]
        shaped = ((last & w.PLACE_NOUN) != 0) & (self.lengths > 1)
        acronym = (first & w.ACRONYM) != 0
        near = ((one & w.PREPOSITION) != 0) & ((two & w.ABSTRACT) == 0) & ((first & w.LANGUAGE) == 0)
        near |= ((one & w.DETERMINER) != 0) & ((two & w.PREPOSITION) != 0) & shaped
        bound = ((one & w.TO) != 0) & ((two & w.MOTION) != 0)
        located = near | ((one & w.TO) != 0)
        introduced = ((one & (w.HONORIFIC | w.RELATION | w.ANIMAL)) != 0) & ~listed & ~shaped & ~acronym
        introduced &= (first & (w.PLACE_NOUN | w.LANGUAGE | w.ABSTRACT)) == 0
        self.person = (named | introduced) & ~(listed & (located | ~named)) & ~shaped
        self.place = ~self.person & (listed | shaped | ((near | bound) & ~acronym))
        self.other = ~self.person & ~self.place

    def found(self, which: _Bools) -> Found:
        """Return the tags of some of the runs."""
        return Found(self.text.row[self.starts[which]], self.tags.filter(pa.array(which)))

    def tokens(self, which: _Bools) -> _Ints:
        """Return the numbers of the words in some of the runs."""
        lengths = self.lengths[which]
        step = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        return np.repeat(self.starts[which], lengths) + step


def _written_small(text: Words, flags: _Ints, keys: _Ints, at: _Ints) -> _Bools:
    """Tell of capitalised words whether their case writes them without a capital, too: then they are no names."""
    asked = np.zeros(len(text.vocabulary.code_texts), dtype=bool)
    asked[text.vocabulary.plain_codes[text.word[at]]] = True
    small = asked[text.vocabulary.plain_codes][text.word] & ((flags & w.CAPITAL) == 0)
    written: _Bools = np.isin(keys[at], np.unique(keys[small]))
    return written


def _spots(text: Words, flags: _Ints) -> _Bools:
    """Mark common nouns that are places here: "at the beach", "to a local park"."""
    one, two, three = (_before(flags, text.linked, n) for n in (1, 2, 3))
    leads = w.PREPOSITION | w.TO
    placed = ((one & w.DETERMINER) != 0) & ((two & leads) != 0)
    placed |= ((two & w.DETERMINER) != 0) & ((three & leads) != 0) & ((one & w.STOP) == 0)
    spots: _Bools = placed & ((flags & w.SPOT) != 0) & ((flags & w.CAPITAL) == 0)
    spots[:-1] &= ~(text.linked[1:] & ((flags[1:] & w.SPOT) != 0))
    return spots


def _reasons(text: Words, flags: _Ints) -> Found:
    """Reduce "because ...", "so that ...", "in order to ...", "due to ..." and "to help ..." to content words."""
    count = len(flags)
    plain = text.vocabulary.code_texts
    codes = text.vocabulary.plain_codes[text.word]
    one = {name: pc.index(plain, name).as_py() for name in ("so", "that", "order", "due", "to", "thanks")}
    second = text.linked & ~text.opens
    is_to = codes == one["to"]
    after = np.zeros(count, dtype=bool)
    for lead, follow in (("so", "that"), ("order", "to"), ("due", "to"), ("thanks", "to")):
        pair = second & (codes == one[follow])
        pair[1:] &= codes[:-1] == one[lead]
        pair[:1] = False
        after |= pair
    after |= (flags & w.CAUSE) != 0
    purpose = second & is_to
    purpose[:-1] &= text.linked[1:] & ((flags[1:] & w.PURPOSE) != 0)
    purpose[-1:] = False
    before = _before(flags, text.linked)
    purpose &= (before & (w.STOP | w.CATENATIVE | w.GENERIC | w.UNUSABLE)) == 0
    at = np.flatnonzero(after | purpose)
    if not len(at):
        return Found(np.empty(0, dtype=np.int64), pa.array([], type=pa.string()))
    reach = at[:, None] + np.arange(1, _REASON_WORDS + 1)
    inside = reach < count
    reach = np.minimum(reach, count - 1)
    inside &= np.cumsum(text.opens[reach], axis=1) == 0
    found = flags[reach]
    content = inside & ((found & (w.STOP | w.UNUSABLE | w.CALENDAR | w.NUMBER | w.NAME | w.CJK)) == 0)
    content &= ((found & w.GENERIC) == 0) | ((found & w.PURPOSE) != 0)
    # The reason is the first cluster of content words; past a gap of three words another thought begins.
    place = np.where(content, np.arange(_REASON_WORDS), -1)
    last = np.maximum.accumulate(place, axis=1)
    gap = np.arange(_REASON_WORDS) - np.concatenate([np.full((len(at), 1), -1), last[:, :-1]], axis=1) - 1
    content &= np.cumsum((gap >= 3) & (last >= 0) & (np.roll(last, 1, axis=1) >= 0), axis=1) == 0
    content &= np.cumsum(content, axis=1) <= 3
    kept = (content & ((found & w.PURPOSE) == 0)).any(axis=1)
    words, chosen = text.word[reach[kept]], content[kept]
    rank = np.argsort(~chosen, axis=1, kind="stable")[:, :3]
    parts = [
        text.vocabulary.lemma.take(
            pa.array(
                np.take_along_axis(words, rank, axis=1)[:, i], mask=~np.take_along_axis(chosen, rank, axis=1)[:, i]
            )
        )
        for i in range(3)
    ]
    return Found(text.row[at[kept]], pc.binary_join_element_wise(*parts, "_", null_handling="skip"))


def _quantities(text: Words, flags: _Ints) -> Found:
    """Find numbers with what they count, as ``mile/5``; the unit groups them."""
    vocabulary = text.vocabulary
    number = (flags & w.NUMBER) != 0
    follows = np.full_like(flags, w.STOP)
    follows[:-1] = np.where(text.linked[1:] & ~text.opens[1:], flags[1:], w.STOP)
    later = np.zeros_like(flags)
    later[:-2] = np.where(text.linked[2:], flags[2:], 0)
    blocked = w.STOP | w.GENERIC | w.CAPITAL | w.CALENDAR | w.UNUSABLE | w.CJK | w.WEAK | w.SHORT
    counts = number & ((follows & blocked) == 0)
    measures = number & ((follows & w.UNIT) != 0) & ((follows & w.CAPITAL) == 0) & ((later & w.AGO) == 0)
    plain = vocabulary.plain
    # A year counts nothing: "2021 report".
    years = pc.match_substring_regex(plain, "^(19|20)[0-9]{2}$").to_numpy(zero_copy_only=False)[text.word]
    money = number & text.dollar
    share = number & text.percent
    at = np.flatnonzero(money | share | ((counts | measures) & ~years))
    if not len(at):
        return Found(np.empty(0, dtype=np.int64), pa.array([], type=pa.string()))
    after = pa.array(text.word[np.minimum(at + 1, len(text.word) - 1)])
    named = w.units()
    counted = zip(plain.take(after).to_pylist(), vocabulary.lemma.take(after).to_pylist(), strict=True)
    unit = pa.array([named.get(word, lemma) for word, lemma in counted], type=pa.string())
    unit = pc.if_else(pa.array(share[at]), "percent", unit)
    unit = pc.if_else(pa.array(money[at]), "dollar", unit)
    return Found(text.row[at], pc.binary_join_element_wise(unit, plain.take(pa.array(text.word[at])), "/"))


def _quoted(texts: pa.Array) -> Found:
    series: Any = pl.Series("quoted", pl.from_arrow(texts))
    found = pl.DataFrame({"quoted": series.str.extract_all(_QUOTED)}).with_row_index("row")
    found = found.filter(pl.col("quoted").list.len() > 0).explode("quoted", keep_nulls=False, empty_as_null=False)
    tags = normalise_all(found["quoted"].to_arrow().cast(pa.string()))
    common = pa.array(sorted(w.words("stopwords") | w.words("generic")))
    kept = pc.invert(pc.is_in(tags, common)).to_numpy(zero_copy_only=False)
    titles = pc.replace_substring_regex(tags.filter(pa.array(kept)), "^(the|an?)_", "")
    return Found(found["row"].cast(pl.Int64).to_numpy()[kept], titles)
