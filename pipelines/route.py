"""Stage route: what the router presets of a run have learned, on Ray: candidates by shard, then weights over all.

Two units a preset: ``route/MARK/candidates`` takes the features of the questions' candidates, ``route/MARK`` learns the
weights of each fold. MARK is that of `indexers.presets.Preset.mark`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indexers import presets
from indexers.batch import Batch
from indexers.methods import learned
from indexers.presets import Preset
from indexers.rank import batches, shared_arms
from indexers.scores import Floats, Ints, Scores, best_of, over_max, spread_over
from indexers.shard import open_shard
from pipelines.embed import Kept
from pipelines.stage import Inputs, Output, Stage, Unit
from pipelines.wanted import chosen
from schemas.config import RunConfig
from schemas.tables import build, empty
from transforms.listwise import Lists, Weights, folds, select, train
from transforms.tokens import VERSION as TOKENS_VERSION

COLUMNS = ["case_id", "session_id", "interaction_id", "started_at", "speakers"]
_SEED = 5


def units(config: RunConfig) -> list[Unit]:
    """Return two units for each preset that learns, arms included."""
    found = {one.mark: one for preset in chosen(config).values() for one in preset.learning}
    made = []
    for mark, preset in found.items():
        # What it learns is what it would read.
        reads = [unit for unit in preset.units if unit != f"route/{mark}"]
        settings = {"preset": preset.described, "tokens": TOKENS_VERSION, "language": config.index.language}
        name = f"route/{mark}"
        made.append(
            Unit(
                f"{name}/candidates",
                settings,
                ("ingest", "questions", *(unit for unit in reads if not unit.startswith("route/"))),
                ("candidates",),
                reads_whole=tuple(unit for unit in reads if unit.startswith("route/")),
            )
        )
        made.append(Unit(name, {"preset": preset.described}, (f"{name}/candidates",), ("router",), whole=True))
    return made


def process(inputs: Inputs, wanted: Sequence[Unit]) -> list[Output]:
    """Take the candidates of one shard, or learn from those of all."""
    (unit,) = wanted
    preset = presets.rebuilt(unit.name, unit.config["preset"])
    if unit.whole:
        parts = [shard.table(unit.reads[0], "candidates") for shard in inputs.shards()]
        return [Output({"router": learn(preset, pa.concat_tables(parts) if parts else empty("candidates"))})]
    interactions = inputs.table("ingest", "interactions", COLUMNS)
    questions = inputs.table("questions", "questions")
    questions = questions.filter(pc.greater(pc.list_value_length(questions["gold_interaction_ids"]), 0))
    shard = open_shard(interactions, questions, inputs.table, unit.config["language"])
    arms = shared_arms([preset, *preset.arms.values()])
    made = [candidates(preset, batch) for batch in batches(shard, questions, Kept(inputs.table), arms)]
    return [Output({"candidates": pa.concat_tables([empty("candidates"), *made])})]


def candidates(preset: Preset, batch: Batch) -> pa.Table:
    """Return the table `candidates` of a batch: what the arms put first, what is gold, and a sample of the rest."""
    own: learned.Training = preset.options.training
    offsets, place = spread_over(batch.case, batch.shard.offsets)
    question = np.repeat(np.arange(len(batch.case)), np.diff(offsets))
    prior = np.zeros(int(offsets[-1]))
    for name, arm in preset.arms.items():
        prior += max(preset.options.arms[name].weight, 0.0) * over_max(batch.scores(arm))
    gold = _gold(batch, question, place)
    first = best_of(Scores(offsets, prior), own.candidates) | gold
    kept, stands_for = _sampled(first, question, own.sampled)
    # Without a candidate that is gold there is nothing to learn from a question.
    useful = np.bincount(question[gold], minlength=len(batch.case)) > 0
    kept &= useful[question]
    rows = np.flatnonzero(kept)
    matrix = np.stack([values[rows] for _, values in learned.features(preset, batch)], axis=1).astype(np.float32)
    asked = np.flatnonzero(useful)
    size = np.bincount(question[rows], minlength=len(batch.case))[asked]
    gates = learned.gates(preset, batch)[asked]
    return build(
        "candidates",
        {
            "case_id": batch.questions["case_id"].take(pa.array(asked)),
            "question_id": batch.questions["question_id"].take(pa.array(asked)),
            "gates": _lists(gates.ravel(), np.full(len(asked), gates.shape[1])),
            "features": _lists(matrix.ravel(), size * matrix.shape[1]),
            "relevant": _lists(gold[rows].astype(np.int8), size),
            "corrections": _lists(np.log(stands_for[rows]).astype(np.float32), size),
        },
    )


def _gold(batch: Batch, question: Ints, place: Ints) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    lists = batch.questions["gold_interaction_ids"].combine_chunks()
    owner = np.repeat(np.arange(len(batch.case)), np.asarray(pc.list_value_length(lists)))
    every = pa.concat_arrays([batch.shard.interactions["interaction_id"].combine_chunks(), lists.flatten()])
    code = np.asarray(every.dictionary_encode().indices, np.int64)
    count = len(batch.shard.interactions)
    width = int(code.max(initial=0)) + 1
    return np.isin(question * width + code[:count][place], owner * width + code[count:])


def _sampled(first: np.ndarray, question: Ints, count: int) -> tuple[np.ndarray, Floats]:
    """Keep what comes first and up to `count` others of each question; return also what each stands for."""
    rest = np.flatnonzero(~first)
    # A fixed mixing of the place stands in for chance: the same whatever else is in the batch.
    start = np.searchsorted(question, question[rest])
    draw = ((rest - start).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(_SEED)) >> np.uint64(11)
    order = rest[np.lexsort((draw, question[rest]))]
    rank = np.arange(len(order)) - np.searchsorted(question[order], question[order])
    chosen = order[rank < count]
    kept = first.copy()
    kept[chosen] = True
    left = np.bincount(question[rest], minlength=int(question.max(initial=0)) + 1)
    stands_for = np.ones(len(first))
    stands_for[chosen] = left[question[chosen]] / np.minimum(left[question[chosen]], count)
    return kept, stands_for


def learn(preset: Preset, table: pa.Table) -> pa.Table:
    """Return the table `router`: weights for each fold of cases and for cases that have no gold.

    With fewer than two cases there is nothing to leave out, and no row: the arms' own weights hold.
    """
    own: learned.Training = preset.options.training
    names = learned.feature_names(preset)
    cases = table["case_id"].cast(pa.string()).to_pylist()
    if len(set(cases)) < 2:
        return empty("router")
    # The order of the shards must not matter to sums.
    order = sorted(range(len(table)), key=list(zip(cases, table["question_id"].to_pylist(), strict=True)).__getitem__)
    table, cases = table.take(pa.array(order)), [cases[row] for row in order]
    lists = _of_table(table, len(names))
    prior = own.prior * learned.default_weights(preset)
    number = {case: place for place, case in enumerate(sorted(set(cases)))}
    of = np.array([number[case] for case in cases], np.int64)
    rows = []
    dealt = folds(cases, own.folds)
    for fold, left_out in [*enumerate(dealt), (-1, [])]:
        others = np.flatnonzero(~np.isin(of, [number[case] for case in left_out]))
        found = train(select(lists, others), own.l2, own.l2_gates, prior)
        rows.append((fold, left_out, names, list(learned.GATES), *_plain(found), len(others)))
    columns = ("fold", "cases", "features", "gates", "weights", "middle", "spread", "questions")
    return build("router", {name: [row[i] for row in rows] for i, name in enumerate(columns)})


def _plain(found: Weights) -> tuple[list[float], list[float], list[float]]:
    return found.weights.ravel().tolist(), found.middle.tolist(), found.spread.tolist()


def _of_table(table: pa.Table, width: int) -> Lists:
    flat = {name: table[name].combine_chunks().flatten().to_numpy() for name in ("gates", "features")}
    relevant = table["relevant"].combine_chunks()
    size = np.asarray(pc.list_value_length(relevant), np.int64)
    return Lists(
        np.arange(len(table)),
        flat["gates"].reshape(len(table), -1),
        np.concatenate([[0], np.cumsum(size)]).astype(np.int64),
        flat["features"].reshape(-1, width),
        relevant.flatten().to_numpy().astype(bool),
        table["corrections"].combine_chunks().flatten().to_numpy().astype(np.float64),
    )


def _lists(values: np.ndarray, sizes: Ints) -> pa.ListArray:
    return pa.ListArray.from_arrays(
        pa.array(np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)), pa.array(values)
    )


STAGE = Stage("route", 1, "ray", units, process)
