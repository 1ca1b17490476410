import numpy as np
import pytest

from indexers import presets, vectors
from tests.indexers.test_rank import CASES, QUESTIONS, make, rows


@pytest.mark.parametrize("top", [1, 3, 100])
def test_the_nearest_are_the_first_of_all(top):
    held = make(CASES, QUESTIONS)
    define = {"few": {"base": "dense", "top": top}}
    preset = presets.get("few", define)
    from indexers import rank
    from pipelines.embed import Kept

    found, _ = rank.rank_shard(
        [preset, presets.get("dense")],
        held.table("ingest", "interactions"),
        held.table("questions", "questions"),
        held.table,
        100,
        embedding=Kept(held.table),
    )
    whole = [row for row in rows(found["dense"]) if row[2] <= top]
    assert rows(found["few"]) == whole
    scores = {row["interaction_id"]: row["score"] for row in found["dense"].to_pylist() if row["question_id"] == "q1"}
    few = {row["interaction_id"]: row["score"] for row in found["few"].to_pylist() if row["question_id"] == "q1"}
    assert few == pytest.approx({name: scores[name] for name in few}, abs=1e-6)


def test_nearest_agrees_with_a_product():
    rng = np.random.default_rng(2)
    some = rng.normal(size=(50, 8)).astype(np.float32)
    some /= np.linalg.norm(some, axis=1, keepdims=True)
    found, near = vectors.nearest(some[:3], some, 5)
    product = some[:3] @ some.T
    assert (found == np.argsort(-product, axis=1, kind="stable")[:, :5]).all()
    assert near == pytest.approx(-np.sort(-product, axis=1)[:, :5], abs=1e-6)
