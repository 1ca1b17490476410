"""Interactions that a question points at: by the name of who speaks there, or by the time that it names."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from indexers.batch import Batch, RankStats
from indexers.csr import Bools
from indexers.explain import Explanation, Part
from indexers.explain.blends import of_question, scores_of
from indexers.presets import Preset
from indexers.scores import Floats, Ints, Scores, spread_over
from schemas.options import Section
from transforms.named_times import named_times, times_ago
from transforms.tokens import tokenize

NAME = "mention"
VERSION = 1

_TOLD = {
    "speaker": "whether the question names who speaks",
    "other": "how many others, who speak elsewhere in the case, the question names",
    "ago": "how near the interaction is to the time that the question names from when it was asked",
    "time": "how well the interaction's time fits the one that the question names",
}


class Options(Section):
    """What is pointed at."""

    score: Literal["speaker", "other", "time", "ago"] = Field(
        "speaker",
        description="speaker: 1 where the question names who speaks; other: how many other speakers of the case it "
        "names; time: 1 in the month named (more precisely with a day), .3 in the year named; ago: how near to the "
        "time named from when it was asked",
    )
    days: float = Field(4.0, gt=0, description="Distance in days at which a named day has lost 63 % of its half (time)")


def units(options: Options) -> tuple[str, ...]:
    """Return the units read: interactions alone."""
    return ()


def scores(preset: Preset, batch: Batch, stats: RankStats) -> Scores:
    """Score interactions by what the question points at."""
    own: Options = preset.options
    offsets, place = spread_over(batch.case, batch.shard.offsets)
    question = np.repeat(np.arange(len(batch.case)), np.diff(offsets))
    if own.score == "ago":
        return Scores(offsets, _ago(batch, question, place))
    if own.score == "time":
        return Scores(offsets, _times(own, batch, question, place))
    named, owned = batch.once(("speakers",), lambda: _speakers(batch, question, place))
    return Scores(offsets, owned if own.score == "speaker" else np.maximum(named[question] - owned, 0.0))


def _speakers(batch: Batch, question: Ints, place: Ints) -> tuple[Floats, Floats]:
    """Return how many speakers of its case each question names, and for each document whether its own is one."""
    shard = batch.shard
    speakers = shard.interactions["speakers"].combine_chunks()
    sizes = np.asarray(pc.fill_null(pc.list_value_length(speakers), 0), np.int64)
    heads = pa.array(np.cumsum(sizes) - sizes, mask=sizes == 0)
    first = pc.fill_null(speakers.flatten().take(heads), "")
    coded = first.dictionary_encode()
    code = np.asarray(coded.indices, np.int64)
    names = tokenize(coded.dictionary)
    texts = tokenize(batch.questions["question"].combine_chunks())
    known = np.asarray(pc.fill_null(pc.index_in(texts.terms, value_set=names.terms), -1), np.int64)
    words = len(names.terms) + 1
    said = np.unique(np.repeat(np.arange(len(batch.case)), np.diff(texts.offsets)) * words + known[texts.ids] + 1)
    # A speaker is named where the question has a word of the name; the words are few.
    holder = np.repeat(np.arange(len(coded.dictionary)), np.diff(names.offsets))
    pairs: list[Ints] = []
    for one, word in zip(holder.tolist(), names.ids.tolist(), strict=True):
        pairs.append(said[said % words == word + 1] // words * len(coded.dictionary) + one)
    named = np.unique(np.concatenate(pairs)) if pairs else np.zeros(0, np.int64)
    owned = np.isin(question * len(coded.dictionary) + code[place], named)
    # Of the named, those that speak in the question's own case.
    case = np.repeat(np.arange(len(shard.cases)), np.diff(shard.offsets))
    there = np.unique(case * len(coded.dictionary) + code)
    asked, speaker = named // max(len(coded.dictionary), 1), named % max(len(coded.dictionary), 1)
    here: Bools = np.isin(batch.case[asked] * len(coded.dictionary) + speaker, there)
    return np.bincount(asked[here], minlength=len(batch.case)).astype(np.float64), owned.astype(np.float64)


def _times(own: Options, batch: Batch, question: Ints, place: Ints) -> Floats:
    times = batch.once(("named times",), lambda: named_times(batch.questions["question"]))
    began = batch.shard.interactions["started_at"].combine_chunks()
    year, month = (np.asarray(pc.fill_null(of(began), 0), np.int64)[place] for of in (pc.year, pc.month))
    day = np.asarray(pc.fill_null(pc.cast(pc.cast(began, pa.timestamp("s", "UTC")), pa.int64()), 0))[place] // 86_400
    wanted_year, wanted_month, wanted_day = (part[question] for part in (times.year, times.month, times.day))
    fits = (year > 0) & ((wanted_year == 0) | (wanted_year == year)) & ((wanted_month == 0) | (wanted_month == month))
    fits &= (wanted_year > 0) | (wanted_month > 0)
    value = np.where(wanted_month > 0, 1.0, 0.3)
    exact = (wanted_day > 0) & (wanted_month > 0)
    whole = np.where(wanted_year > 0, wanted_year, year)
    months = (whole - 1970) * 12 + np.maximum(wanted_month, 1) - 1
    start = months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
    distance = np.abs(day - start - np.minimum(np.maximum(wanted_day, 1), 31) + 1)
    value = np.where(exact, 0.5 + 0.5 * np.exp(-distance / own.days), value)
    return np.where(fits, value, 0.0)


def _ago(batch: Batch, question: Ints, place: Ints) -> Floats:
    """Fall off like a bell from the days named, by the days that they may be off."""
    named = batch.once(("ago",), lambda: times_ago(batch.questions["question"], batch.questions["asked_at"]))
    asked, began = (_days(column) for column in (batch.questions["asked_at"], batch.shard.interactions["started_at"]))
    passed = asked[question] - began[place]
    outside = np.maximum(np.maximum(named.low[question] - passed, passed - named.high[question]), 0.0)
    return np.nan_to_num(np.exp(-0.5 * (outside / named.blur[question]) ** 2))


def _days(column: pa.ChunkedArray) -> Floats:
    seconds = pc.cast(pc.cast(column.combine_chunks(), pa.timestamp("s", "UTC"), safe=False), pa.int64())
    days: Floats = np.floor(np.asarray(pc.cast(seconds, pa.float64()).fill_null(np.nan), np.float64) / 86_400)
    return days


def explain(preset: Preset, batch: Batch, question: int, document: int) -> Explanation:
    """Tell the score as a whole."""
    own: Options = preset.options
    score = float(of_question(scores_of(preset, batch), question)[document])
    if not score:
        return Explanation(_TOLD[own.score], 0.0, (), ("nothing in the question points there",))
    return Explanation(_TOLD[own.score], score, (Part("cue", own.score, score),))
