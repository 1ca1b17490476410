"""The questions that two generations were asked: metrics of presets, and questions gained and lost.

Compared are the questions that both have and that have gold at the level in both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, cast

import pyarrow as pa
import pyarrow.compute as pc

from schemas import comparison
from schemas.config import EvaluateConfig
from transforms.compare import Figure, joint
from transforms.evaluate import compare_pairs
from transforms.interactions import full_text

if TYPE_CHECKING:
    import polars as pl

JUDGED_COLUMNS = ["case_id", "question_id", "question_type", "answerable", "retriever", "level", "metric", "value"]
RUN_COLUMNS = ["case_id", "question_id", "retriever", "rank", "interaction_id"]
QUESTION_COLUMNS = ["case_id", "question_id", "question", "gold_interaction_ids", "gold_session_ids"]
TEXT_COLUMNS = ["case_id", "interaction_id", "user_text", "assistant_text"]

TEXT = 200
"""Characters kept of an interaction's text."""

_ROW = ["case_id", "question_id", "retriever", "metric"]
_ASKED = ["case_id", "question_id"]
_FILE = ["case_id", "interaction_id"]


def pair(a: pa.Table, b: pa.Table, presets: Sequence[str], level: str, metrics: Sequence[str]) -> pl.DataFrame:
    """Put the values of both sides beside each other.

    Args:
        a: Table `question_metrics` of A, at least `JUDGED_COLUMNS`; one shard or several.
        b: The same shards of B.
        presets: Presets to keep; both have them.
        level: Level to keep.
        metrics: Metrics to keep; both have them.

    Returns:
        Columns case_id, question_id, question_type, answerable, retriever, level, metric, a and b, in A's order.
    """
    import polars as pl

    kept = (pl.col("level") == level) & pl.col("retriever").is_in(presets) & pl.col("metric").is_in(metrics)
    sides = [_frame(side, JUDGED_COLUMNS).filter(kept) for side in (a, b)]
    others = sides[1].select(*_ROW, b="value")
    return sides[0].rename({"value": "a"}).join(others, on=_ROW, how="inner", maintain_order="left")


def count(judged: tuple[pa.Table, pa.Table], pairs: pl.DataFrame, preset: str, level: str) -> tuple[int, int, int]:
    """Return the questions with gold at the level in A, in B and in both (`pairs` is what `pair` returned)."""
    wanted = {"retriever": preset, "level": level, "metric": "mrr"}
    alone = []
    for side in judged:
        kept = [pc.equal(side[name].cast(pa.string()), value) for name, value in wanted.items()]
        alone.append(pc.sum(pc.and_(pc.and_(kept[0], kept[1]), kept[2])).as_py() or 0)
    return alone[0], alone[1], pairs.filter(**wanted).height


def metrics_table(
    pairs: Iterable[pl.DataFrame], presets: Sequence[str], level: str, metrics: Sequence[str], config: EvaluateConfig
) -> pa.Table:
    """Compare each preset with itself on the other side; the presets of one metric are one family of tests.

    Args:
        pairs: What `pair` returned for each shard; all rows of a case lie in one of them.
        presets: Presets, in the order in which they are to be reported.
        level: Level judged.
        metrics: Metrics, in order.
        config: Resamples and seed.

    Returns:
        The table `metrics` of `schemas.comparison`, in order of preset and metric.
    """
    import polars as pl

    def judged() -> Iterator[pa.Table]:
        for shard in pairs:
            both = [shard.with_columns(pl.concat_str(pl.lit(s), "retriever").alias("retriever"), value=s) for s in "ab"]
            yield pl.concat(both).select(JUDGED_COLUMNS).to_arrow()

    wanted = [(f"b{name}", f"a{name}") for name in presets]
    found = {}
    for new, _, metric, mean_b, mean_a, *rest in compare_pairs(judged(), wanted, level, metrics, config):
        found[new[1:], metric] = (new[1:], level, metric, mean_a, mean_b, *rest)
    rows = [found[preset, metric] for preset in presets for metric in metrics if found]
    names = comparison.SCHEMAS["metrics"].names
    columns = zip(*rows, strict=True) if rows else [()] * len(names)
    return comparison.build("metrics", {name: list(c) for name, c in zip(names, columns, strict=True)})


def question_rows(
    pairs: pl.DataFrame,
    questions: pa.Table,
    runs: tuple[pa.Table, pa.Table],
    interactions: tuple[pa.Table, pa.Table],
    level: str,
) -> pa.Table:
    """Tell of each question and preset how far up both sides have its gold, and what they ranked first.

    Args:
        pairs: What `pair` returned for a shard; metric mrr is read.
        questions: Table `questions` of the shard, at least `QUESTION_COLUMNS`.
        runs: (A, B) rows of table `runs` with rank 1, at least `RUN_COLUMNS`.
        interactions: (A, B) tables `interactions`, at least `TEXT_COLUMNS`.
        level: Level judged.

    Returns:
        The table `questions` of `schemas.comparison`, in the order of `pairs`.
    """
    import polars as pl

    gold = "gold_session_ids" if level == "session" else "gold_interaction_ids"
    asked = _frame(questions, QUESTION_COLUMNS).select(*_ASKED, "question", gold_ids=gold)
    own = pl.col("gold_ids").list.first() if level != "session" else pl.lit(None, pl.String)
    rows = pairs.filter(pl.col("metric") == "mrr").drop("metric").rename({"a": "mrr_a", "b": "mrr_b"})
    rows = rows.join(asked, on=_ASKED, how="left", maintain_order="left").with_columns(gold=own)
    for side, run in zip("ab", runs, strict=True):
        best = _frame(run, RUN_COLUMNS).select(*_ASKED, "retriever", pl.col("interaction_id").alias(f"first_{side}"))
        rows = rows.join(best, on=[*_ASKED, "retriever"], how="left", maintain_order="left")
    for side, texts in zip(("a", "b", ""), (*interactions, interactions[0]), strict=True):
        key, name = (f"first_{side}", f"first_{side}_text") if side else ("gold", "gold_text")
        found = _texts(texts, rows.select("case_id", interaction_id=key)).rename({"interaction_id": key, "text": name})
        rows = rows.join(found, on=["case_id", key], how="left", maintain_order="left")
    rank = [
        pl.when(pl.col(f"mrr_{s}") > 0).then((1 / pl.col(f"mrr_{s}")).round()).cast(pl.Int32).alias(f"rank_{s}")
        for s in "ab"
    ]
    rows = rows.with_columns(
        *rank, pl.col("gold_text").fill_null(""), difference=pl.col("mrr_b") - pl.col("mrr_a"), level=pl.lit(level)
    )
    names = comparison.SCHEMAS["questions"].names
    return comparison.build("questions", {name: rows[name].to_arrow() for name in names})


def questions_table(shards: Sequence[pa.Table], presets: Sequence[str]) -> pa.Table:
    """Put the rows of shards in order: by preset as given, most gained first, then by case and question."""
    import polars as pl

    if not shards:
        return comparison.SCHEMAS["questions"].empty_table()
    table = pa.concat_tables(shards).unify_dictionaries()
    keys = _frame(table, ["retriever", "difference", *_ASKED]).with_row_index("row")
    preset = pl.col("retriever").replace_strict(list(presets), list(range(len(presets))))
    order = keys.sort(preset, "difference", *_ASKED, descending=[False, True, False, False])["row"]
    return table.take(order.to_arrow())


def question_figures(questions: pa.Table, metrics: pa.Table) -> Iterator[Figure]:
    """Yield the figures of the sections metrics and questions from those tables."""
    for row in metrics.to_pylist():
        tested = (row["difference"], row["low"], row["high"], row["p_value"], row["p_holm"])
        yield Figure("metrics", row["metric"], row["retriever"], row["mean_a"], row["mean_b"], None, *tested)
    difference = questions["difference"]
    for preset in dict.fromkeys(metrics["retriever"].to_pylist()):
        own = difference.filter(pc.equal(questions["retriever"].cast(pa.string()), preset))
        for name, test in (("gained", pc.greater), ("lost", pc.less), ("same", pc.equal)):
            yield joint("questions", name, preset, pc.sum(test(own, 0.0)).as_py() or 0)


def _frame(table: pa.Table, columns: Sequence[str]) -> pl.DataFrame:
    """Return some columns, plain strings instead of dictionaries."""
    import polars as pl

    kinds = {name: table.schema.field(name).type for name in columns}
    plain = {n: table[n].cast(pa.string()) if pa.types.is_dictionary(k) else table[n] for n, k in kinds.items()}
    return cast("pl.DataFrame", pl.from_arrow(pa.table(plain)))


def _texts(interactions: pa.Table, wanted: pl.DataFrame) -> pl.DataFrame:
    """Return case_id, interaction_id and the start of the text of those interactions that are wanted."""
    import polars as pl

    ids = _frame(interactions, _FILE)
    rows = ids.with_row_index("row").join(wanted.unique(), on=_FILE, how="semi", maintain_order="left")["row"]
    text = pc.utf8_slice_codeunits(full_text(interactions.take(rows.to_arrow())), 0, TEXT)
    return ids[rows].with_columns(text=cast("pl.Series", pl.from_arrow(text)))
