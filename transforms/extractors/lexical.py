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
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel, ConfigDict

from schemas import tables
from transforms import dates
from transforms.extractors import _runs
from transforms.extractors import _words as w
from transforms.extractors._keys import key_phrases
from transforms.extractors._notes import Found, build, join, summarise
from transforms.extractors._scan import Words, after, before, scan
from transforms.tags import normalise, normalise_all

NAME = "lexical"
VERSION = 2

_CHUNK_BYTES = 2 << 20
_QUOTED = r'"[A-Z0-9][^"\n]{1,60}"|“[A-Z0-9][^”\n]{1,60}”'
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
    for last, end in zip(starts[1:], [*starts[2:], None], strict=True):
        if end is None or sizes[end] - sizes[first] > _CHUNK_BYTES:
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


def prose(texts: pa.Array) -> pa.Array:
    """Take fenced code out of texts: its words are no topics."""
    if not pc.any(pc.match_substring(texts, "```")).as_py():
        return texts
    return pc.replace_substring_regex(texts, "(?s)```.*?(```|$)", "\n")


def _extract_chunk(interactions: pa.Table) -> pa.Table:
    texts = prose(source_texts(interactions).combine_chunks())
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
    runs = _runs.find(text, flags, case, known)
    spots = _spots(text, flags)
    kin = ((flags & w.RELATION) != 0) & ((before(flags, text.linked) & w.POSSESSIVE) != 0)
    kin |= ((flags & (w.FAMILY | w.CAPITAL)) == (w.FAMILY | w.CAPITAL)) & (
        ~text.opens | ((after(flags, text.linked) & (w.TELLS | w.DOES | w.BE)) != 0)
    )
    # "my friend sarah", "to boston"
    one = before(flags, text.linked)
    small = (flags & (w.CAPITAL | w.STOP | w.GENERIC)) == 0
    named_small = small & ((flags & w.NAME) != 0) & ((one & (w.RELATION | w.HONORIFIC)) != 0)
    towns = small & ((flags & w.PLACE) != 0) & ((one & (w.PREPOSITION | w.TO)) != 0)
    placed = spots | towns | kin | named_small
    # "My friend Ann" is Ann, and so is "my friend, Dr. Ann".
    named = np.zeros(len(flags) + 2, dtype=bool)
    named[runs.starts[runs.person]] = True
    titled = (after(flags, text.linked) & w.HONORIFIC) != 0
    named[:-2] |= named_small
    kin &= ~(named[1:-1] | (titled & named[2:]))
    placed[runs.tokens(runs.person | runs.place)] = True
    dated = dates.resolve(texts, interactions["started_at"])
    capital = np.zeros(len(flags), dtype=bool)
    capital[runs.tokens(runs.other)] = True
    return {
        "who": join(speakers, runs.found(runs.person), _said(text, named_small), _said(text, kin, lemma=True)),
        "what": key_phrases(text, flags, case, placed, capital),
        "when": Found(dated.rows, dated.tags),
        "where": join(runs.found(runs.place), _said(text, towns), _said(text, spots, lemma=True)),
        "why": _reasons(text, np.where(placed, flags | w.NAME, flags)),
        "extra": join(_quoted(texts), runs.found(runs.other), _quantities(text, flags)),
    }


def _said(text: Words, which: _Bools, *, lemma: bool = False) -> Found:
    """Return some of the words as tags, as they are or in the singular."""
    at = np.flatnonzero(which)
    form = text.vocabulary.lemma if lemma else text.vocabulary.plain
    return Found(text.row[at], form.take(pa.array(text.word[at])))


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


def _spots(text: Words, flags: _Ints) -> _Bools:
    """Mark common nouns that are places here: "at the beach", "to a local park"."""
    one, two, three = (before(flags, text.linked, n) for n in (1, 2, 3))
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
    purpose &= (before(flags, text.linked) & (w.STOP | w.CATENATIVE | w.GENERIC | w.UNUSABLE)) == 0
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


def quantities(texts: pa.Array) -> Found:
    """Find numbers with what they count, as ``mile/5``, in ``large_string`` texts without nulls."""
    text = scan(texts)
    return _quantities(text, text.vocabulary.flags[text.word])


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
    # "June 25 deadline"
    counts &= (before(flags, text.linked) & w.CALENDAR) == 0
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
    import polars as pl  # a plan loads this module and needs no polars

    series: Any = pl.Series("quoted", pl.from_arrow(texts))
    found = pl.DataFrame({"quoted": series.str.extract_all(_QUOTED)}).with_row_index("row")
    found = found.filter(pl.col("quoted").list.len() > 0).explode("quoted", keep_nulls=False, empty_as_null=False)
    tags = normalise_all(found["quoted"].to_arrow().cast(pa.string()))
    common = pa.array(sorted(w.words("stopwords") | w.words("generic")))
    kept = pc.invert(pc.is_in(tags, common)).to_numpy(zero_copy_only=False)
    titles = pc.replace_substring_regex(tags.filter(pa.array(kept)), "^(the|an?)_", "")
    return Found(found["row"].cast(pl.Int64).to_numpy()[kept], titles)
