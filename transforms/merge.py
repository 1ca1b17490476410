"""Fragments of one shard put together: sorted, freed of duplicates, ids made unique, evidence resolved.

The result depends on what the sources hold alone, not on the order of the fragments nor on how the input was split.
Work on every row or message is columnar; Python loops only over repeated sessions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from schemas.tables import build, empty
from transforms.fragments import FRAGMENT_SCHEMAS, FragmentTables

Ints = npt.NDArray[np.int64]

_STRINGS = FRAGMENT_SCHEMAS["interactions"].field("message_ids").type
_PLACE = ["source", "offset", "order"]


@dataclass(frozen=True)
class Merged:
    """One shard, final: tables of `schemas.tables`, and counts of what was repaired.

    Counts: duplicate_session, superseded_session, repeated_session_id, repeated_message_id, duplicate_question.
    """

    interactions: pa.Table
    questions: pa.Table
    rejects: pa.Table
    repairs: Counter[str]


@dataclass(frozen=True)
class _Messages:
    """Every message that was kept (columns row, case, session, id, final, gold), and golds of dropped sessions."""

    table: pl.DataFrame
    dropped_gold: pl.DataFrame  # case_id, id


def merge(fragments: Sequence[FragmentTables]) -> Merged:
    """Make the final tables of one shard.

    Cases are in order of their id; sessions of a case in order of time (unknown times last), then of source and
    place. An exact duplicate of a session is dropped. Of two occurrences that began at the same time, one of which
    begins with all messages of the other, the longer replaces the shorter. Other occurrences of a session id are kept
    and numbered: ``SESSION~2/0`` is the first interaction of the second. Message ids that repeat in a case gain
    ``~2``, ``~3``; evidence names the first. Evidence that a case does not hold becomes a reject and leaves the
    question.

    Args:
        fragments: All fragments of the shard, in any order.

    Returns:
        Tables and repairs; equal input gives equal tables.
    """
    repairs: Counter[str] = Counter()
    sessions = _frame([one.sessions for one in fragments], "sessions")
    rows = _concat([one.interactions for one in fragments], "interactions")
    sessions = _placed(sessions.with_columns(first=pl.col("rows").cum_sum() - pl.col("rows")))
    sessions = sessions.sort("case_id", "started_at", *_PLACE, nulls_last=True)
    kept, dropped = _choose(sessions, rows, repairs)
    interactions, messages = _interactions(kept, dropped, rows, repairs)
    asked = _frame([one.questions for one in fragments], "questions")
    questions, rejects = _questions(_placed(asked), kept, messages, repairs)
    found = [one.rejects for one in fragments if len(one.rejects)]
    return Merged(interactions, questions, _sorted_rejects([*found, rejects]), repairs)


def _placed(frame: pl.DataFrame) -> pl.DataFrame:
    """Number records within their case and source, so that what happens to other cases moves no number."""
    within = pl.struct("offset", "order").rank("ordinal").over("case_id", "source") - 1
    return frame.with_columns(offset=within.cast(pl.Int64), order=pl.lit(0, pl.Int32))


def _frame(tables: list[pa.Table], name: str) -> pl.DataFrame:
    frame = pl.from_arrow(_concat(tables, name))
    assert isinstance(frame, pl.DataFrame)
    return frame


def _concat(tables: list[pa.Table], name: str) -> pa.Table:
    filled = [table for table in tables if len(table)]
    return pa.concat_tables(filled).combine_chunks() if filled else FRAGMENT_SCHEMAS[name].empty_table()


def _nth(*keys: str) -> pl.Expr:
    """Number of a row among the rows with its keys, from 0."""
    return pl.int_range(pl.len()).over(*keys)


def _choose(sessions: pl.DataFrame, rows: pa.Table, repairs: Counter[str]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Split the sorted sessions into those that stay and those that others stand for."""
    again = sessions.select(_nth("case_id", "session_id", "signature") > 0).to_series()
    if again.any():
        repairs["duplicate_session"] += int(again.sum())
    left = sessions.filter(~again)
    shorter = _superseded(left, rows)
    if shorter.any():
        repairs["superseded_session"] += int(shorter.sum())
    kept = left.filter(~shorter)
    dropped = pl.concat([sessions.filter(again), left.filter(shorter)])
    repeated = int(kept.select((_nth("case_id", "session_id") > 0).sum()).item())
    if repeated:
        repairs["repeated_session_id"] += repeated
    return kept, dropped


def _superseded(sessions: pl.DataFrame, rows: pa.Table) -> pl.Series:
    """Mark sessions that are the beginning of another of the same id and time (a log exported again)."""
    mask = np.zeros(len(sessions), bool)
    keys = ["case_id", "session_id", "started_at"]
    several = sessions.with_row_index("index").filter(pl.len().over(keys) > 1).select(*keys, "index", "first", "rows")
    if len(several):
        first, count = several["first"].to_numpy().astype(np.int64), several["rows"].to_numpy()
        ends = _column(rows, "message_ids").offsets.to_numpy()
        opening = pl.Series("opening", pl.from_arrow(_column(rows, "user_text").take(pa.array(first))), pl.String)
        keys.append("opening")  # only sessions with the same opening are compared one by one
        several = several.with_columns(opening.hash(7), messages=ends[first + count] - ends[first])
        several = several.filter(pl.len().over(keys) > 1).sort(*keys, "messages", "index")
        texts = _Texts(rows)
        for _, group in groupby(several.select(*keys, "index", "first", "rows").iter_rows(), key=lambda r: r[:4]):
            members = [row[4:] for row in group]
            for number, (index, begin, size) in enumerate(members):
                mask[index] = any(texts.begins(begin, size, f, n) for _, f, n in members[number + 1 :])
    return pl.Series(mask)


class _Texts:
    """Row columns held ready for comparing sessions."""

    def __init__(self, rows: pa.Table) -> None:
        self.hashes = _column(rows, "content_hash")
        self.times = _column(rows, "started_at")
        self.user, self.assistant = _column(rows, "user_text"), _column(rows, "assistant_text")
        ids = _column(rows, "message_ids")
        self.ends, self.ids = ids.offsets.to_numpy(), ids.values

    def begins(self, short: int, rows: int, long: int, others: int) -> bool:
        """Tell whether the session at row `short` is where the session at row `long` begins."""
        whole = rows - 1
        if rows > others or not self.hashes.slice(short, whole).equals(self.hashes.slice(long, whole)):
            return False
        a, b = int(self.ends[short]), int(self.ends[long])
        size = int(self.ends[short + rows]) - a
        if size >= int(self.ends[long + others]) - b or not self.ids.slice(a, size).equals(self.ids.slice(b, size)):
            return False
        short, long = short + whole, long + whole
        if self.hashes[short] == self.hashes[long]:
            return True
        if self.times[short] != self.times[long] or self.user[short] != self.user[long]:
            return False
        text = self.assistant[short].as_py()
        return not text or str(self.assistant[long].as_py()).startswith(text + "\n")


def _column(table: pa.Table, name: str) -> pa.Array:
    column = table[name]
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _interactions(
    kept: pl.DataFrame, dropped: pl.DataFrame, rows: pa.Table, repairs: Counter[str]
) -> tuple[pa.Table, _Messages]:
    counts = kept["rows"].to_numpy().astype(np.int64)
    begin = np.cumsum(counts) - counts
    of_row = np.repeat(np.arange(len(kept)), counts)
    ordinal = np.arange(len(of_row)) - begin[of_row]
    chosen = kept["first"].to_numpy().astype(np.int64)[of_row] + ordinal
    gold_dropped = _dropped_gold(dropped, rows)
    if len(chosen) != len(rows) or not np.array_equal(chosen, np.arange(len(rows))):
        rows = rows.take(pa.array(chosen))
    case = kept["case_id"].rle_id().to_numpy().astype(np.int64)
    case_of_row = case[of_row]
    case_begin = np.searchsorted(case_of_row, np.arange(case[-1] + 1 if len(case) else 0))
    labels, _ = _unique(case, kept["session_id"])
    names = pc.binary_join_element_wise(
        _strings(labels).take(pa.array(of_row)), pa.array(ordinal).cast(pa.string()), "/"
    )
    ids = _column(rows, "message_ids")
    message_ids = pl.Series("id", pl.from_arrow(ids.flatten()), pl.String)
    of_message = np.repeat(np.arange(len(rows)), np.diff(ids.offsets.to_numpy()))
    final, renamed = _unique(case_of_row[of_message], message_ids)
    if renamed:
        repairs["repeated_message_id"] += renamed
        ids = pa.ListArray.from_arrays(ids.offsets, _strings(final), type=_STRINGS)
    places = pa.array(of_row)

    def named(column: str) -> pa.Array:
        return _strings(kept[column]).dictionary_encode().take(places)

    table = build(
        "interactions",
        {
            "case_id": named("case_id"),
            "session_id": named("session_id"),
            "interaction_id": names,
            "content_hash": rows["content_hash"],
            "position": np.arange(len(rows)) - case_begin[case_of_row],
            "started_at": rows["started_at"],
            "started_at_text": _strings(kept["started_at_text"]).take(places),
            "user_text": rows["user_text"],
            "assistant_text": rows["assistant_text"],
            "speakers": rows["speakers"],
            "message_ids": ids,
            "source": named("source"),
            "source_offset": kept["offset"].to_arrow().take(places),
        },
    )
    messages = pl.DataFrame(
        {
            "row": of_message,
            "case": case_of_row[of_message],
            "id": message_ids,
            "final": final,
            "gold": pl.Series(pl.from_arrow(_column(rows, "gold").flatten()), dtype=pl.Boolean),
        }
    ).with_columns(
        interaction_id=pl.Series("interaction_id", pl.from_arrow(names), pl.String).gather(of_message),
        session_id=kept["session_id"].gather(of_row[of_message]),
    )
    return table, _Messages(messages, gold_dropped)


def _dropped_gold(dropped: pl.DataFrame, rows: pa.Table) -> pl.DataFrame:
    if len(dropped) and pc.any(_column(rows, "gold").flatten()).as_py():
        counts = dropped["rows"].to_numpy().astype(np.int64)
        of_row = np.repeat(np.arange(len(dropped)), counts)
        ordinal = np.arange(len(of_row)) - (np.cumsum(counts) - counts)[of_row]
        taken = rows.select(["message_ids", "gold"]).take(
            pa.array(dropped["first"].to_numpy().astype(np.int64)[of_row] + ordinal)
        )
        frame = pl.from_arrow(taken)
        assert isinstance(frame, pl.DataFrame)
        frame = frame.with_columns(case_id=dropped["case_id"].gather(of_row)).explode("message_ids", "gold")
        return frame.filter("gold").select("case_id", id="message_ids").unique(maintain_order=True)
    return pl.DataFrame(schema={"case_id": pl.String, "id": pl.String})


def _unique(case: Ints, ids: pl.Series) -> tuple[pl.Series, int]:
    """Make ids unique within their case: the second of a kind gains ``~2``, and so on; also count the renamed."""
    keys = ids.hash(7).to_numpy() ^ (case.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15))
    renamed = 0
    frame = pl.DataFrame({"case": case, "id": ids})
    if pl.Series(keys).n_unique() == len(keys):
        return ids, 0
    while True:
        again = frame.select(_nth("case", "id")).to_series()
        count = int((again > 0).sum())
        if not count:
            return frame["id"], renamed
        renamed = renamed or count
        frame = frame.with_columns(
            id=pl.when(again > 0).then(pl.col("id") + "~" + (again + 1).cast(pl.String)).otherwise(pl.col("id"))
        )


def _questions(
    questions: pl.DataFrame, kept: pl.DataFrame, messages: _Messages, repairs: Counter[str]
) -> tuple[pa.Table, pa.Table]:
    questions = questions.sort("case_id", *_PLACE)
    again = questions.select(_nth("case_id", "question_id", "signature") > 0).to_series()
    if again.any():
        repairs["duplicate_question"] += int(again.sum())
    questions = questions.filter(~again)
    clash = questions.select(_nth("case_id", "question_id") > 0).to_series()
    rejects = [_rejects(questions.filter(clash), "duplicate_question", _CLASH, pl.col("question"))]
    questions = questions.filter(~clash).with_row_index("index")
    cases = kept.select("case_id", case=pl.col("case_id").rle_id().cast(pl.Int64)).unique(maintain_order=True)
    questions = questions.join(cases, on="case_id", how="left", maintain_order="left")

    wanted = _exploded(questions, "gold_message_ids")
    flagged = pl.concat(
        [
            messages.table.filter("gold").select("case", id="final", first=pl.lit(True)),
            messages.dropped_gold.join(cases, on="case_id").select("case", "id", first=pl.lit(False)),
        ]
    )
    known = messages.table.unique(["case", "id"], keep="first", maintain_order=True)
    lookup = pl.concat([known, messages.table.filter(pl.col("id") != pl.col("final")).with_columns(id="final")])
    lookup = lookup.unique(["case", "id"], keep="first", maintain_order=True)
    exact = messages.table.select("case", "final", "row", "interaction_id", "session_id")
    named = wanted.join(lookup, on=["case", "id"], how="left", maintain_order="left")
    lost = named.filter(pl.col("final").is_null())
    by_name = lookup.select("case", "id", "final", "row", "interaction_id", "session_id")
    marked = pl.concat(
        [
            flagged.filter("first").join(
                exact.with_columns(id="final"), on=["case", "id"], how="inner", maintain_order="left"
            ),
            flagged.filter(~pl.col("first")).join(by_name, on=["case", "id"], how="inner", maintain_order="left"),
        ],
        how="diagonal",
    )
    marked = questions.select("index", "case").join(marked, on="case", how="inner").sort("index", "row", "final")
    gold = pl.concat(
        [frame.select("index", "final", "interaction_id", "session_id") for frame in (named, marked)]
    ).filter(pl.col("final").is_not_null())
    gold = gold.sort("index", maintain_order=True)

    sessions = _exploded(questions, "gold_session_ids")
    held = kept.select("case_id", id="session_id").unique().join(cases, on="case_id").select("case", "id", held=True)
    sessions = sessions.join(held, on=["case", "id"], how="left", maintain_order="left")
    absent = sessions.filter(pl.col("held").is_null())
    gold_sessions = pl.concat(
        [
            sessions.filter(pl.col("held").is_not_null()).select("index", "id"),
            gold.select("index", id="session_id"),
        ]
    ).sort("index", maintain_order=True)
    for missing, kind in ((lost, "message"), (absent, "session")):
        told = missing.unique(["index", "id"], keep="first", maintain_order=True)
        told = told.select("index", "id").join(questions, on="index", maintain_order="left")
        rejects.append(_rejects(told, "evidence_unresolved", _lost(kind), pl.col("id")))
    if not len(questions):
        return empty("questions"), pa.concat_tables(rejects)
    size = len(questions)
    table = build(
        "questions",
        {
            **{
                name: _strings(questions[name])
                for name in ("case_id", "question_id", "question", "question_type", "answer")
            },
            "asked_at": questions["asked_at"].to_arrow(),
            "answerable": questions["answerable"].to_arrow(),
            "expected_contains": _lists(_exploded(questions, "expected_contains"), "id", size, distinct=False),
            "gold_session_ids": _lists(gold_sessions, "id", size),
            "gold_message_ids": _lists(gold, "final", size),
            "gold_interaction_ids": _lists(gold, "interaction_id", size),
        },
    )
    return table, pa.concat_tables(rejects)


_CLASH = pl.format("question '{}' of case '{}' was there before, with other content", "question_id", "case_id")


def _lost(kind: str) -> pl.Expr:
    text = f"question '{{}}' of case '{{}}' names {kind} '{{}}', which the case does not hold"
    return pl.format(text, "question_id", "case_id", "id")


def _exploded(questions: pl.DataFrame, column: str) -> pl.DataFrame:
    frame = questions.select("index", "case", id=column).filter(pl.col("id").list.len() > 0)
    return frame.explode("id")


def _lists(frame: pl.DataFrame, column: str, size: int, *, distinct: bool = True) -> pa.Array:
    """Gather one list a question out of rows in order of `index`."""
    if distinct:
        frame = frame.unique(["index", column], keep="first", maintain_order=True)
    counts = np.bincount(frame["index"].to_numpy(), minlength=size)
    offsets = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), _strings(frame[column]), type=_STRINGS)


def _strings(series: pl.Series) -> pa.Array:
    array = series.to_arrow(compat_level=pl.CompatLevel.oldest()).cast(pa.string())
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def _rejects(frame: pl.DataFrame, reason: str, detail: pl.Expr, sample: pl.Expr) -> pa.Table:
    if not len(frame):
        return empty("rejects")
    made = frame.select("source", "offset", detail=detail, sample=sample.str.slice(0, 200))
    return build(
        "rejects",
        {
            "source": _strings(made["source"]),
            "source_offset": made["offset"].to_arrow(),
            "reason": [reason] * len(made),
            "detail": _strings(made["detail"]),
            "sample": _strings(made["sample"]),
        },
    )


def _sorted_rejects(tables: list[pa.Table]) -> pa.Table:
    table = pa.concat_tables([table for table in tables if len(table)] or [empty("rejects")]).unify_dictionaries()
    plain = {name: table[name] for name in table.schema.names}
    for name in ("source", "reason"):
        plain[name] = plain[name].cast(pa.string())
    order = [(name, "ascending") for name in ("source", "source_offset", "reason", "detail", "sample")]
    return build("rejects", dict(zip(plain, pa.table(plain).sort_by(order).combine_chunks().columns, strict=True)))
