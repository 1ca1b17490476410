"""GRAFT's pieces: the draw, the diagnosis, sub-questions without a model, repairs and what they add."""

import numpy as np
import pyarrow as pa
import pytest

from schemas.tables import build, empty
from tests.transforms.test_packing import facts, interactions
from transforms import graft
from transforms.graft import Lack
from transforms.packing import key_of
from transforms.tasks import Result
from transforms.tasks.studies.repairs import EPISODES, Repair


def questions(*rows):
    """Questions of (id, answer, gold interactions, answerable)."""
    count = len(rows)
    return build(
        "questions",
        {
            "case_id": ["ann"] * count,
            "question_id": [row[0] for row in rows],
            "question": ["Where?"] * count,
            "question_type": [""] * count,
            "asked_at": [None] * count,
            "answer": [row[1] for row in rows],
            "gold_session_ids": [[]] * count,
            "gold_message_ids": [[]] * count,
            "gold_interaction_ids": [row[2] for row in rows],
            "expected_contains": [[]] * count,
            "answerable": [row[3] for row in rows],
        },
    )


def test_the_draw_goes_by_the_question_alone():
    table = questions(*[(f"q{n}", None, [], True) for n in range(400)])
    drawn = graft.source(table, 0.5, 7)
    assert 150 < drawn.sum() < 250
    order = np.random.default_rng(0).permutation(400)
    assert (graft.source(table.take(pa.array(order)), 0.5, 7) == drawn[order]).all()
    assert (graft.source(table, 0.5, 8) != drawn).any()
    assert (graft.source(table, 0.7, 7) >= drawn).all()
    assert graft.source(table, 1.0, 7).all() and len(graft.source(table.slice(0, 0), 0.5, 7)) == 0


def test_diagnosis_by_the_gold():
    keys = key_of(interactions(*"abcd"))
    table = questions(
        ("whole", "x", ["i0", "i1"], True),
        ("half", "x", ["i0", "i3"], True),
        ("text", "blue car", [], True),
        ("said", "blue car", [], True),
        ("none", None, [], True),
        ("never", None, ["i3"], False),
        ("gone", "x", ["other"], True),
    )
    packs = ["x"] * 2 + ["a red car", "The Blue car!", "", "", "x"]
    question, shown = np.array([0, 0, 1, 5]), np.array([0, 1, 0, 0])
    found, unknown = graft.lacking(table, keys, packs, question, shown)
    assert found == [Lack(1, (3,)), Lack(2, ())] and unknown == 1


def test_looking_without_a_model():
    assert graft.uncovered("Which marathon did Ann run in Porto?", "Ann: I run.") == "marathon porto"
    assert graft.uncovered("Did Ann run?", "Ann did run") == "ann run"
    assert graft.label("When did Caroline join the support group?") == ("join_support_group",)
    assert graft.label("Who is Bob?") == () and graft.label("") == ()


def test_episodes_are_the_found_ones_with_neighbours_of_the_session():
    session = ["a", "a", "a", "b", "b", "c"]
    assert graft.episodes([1], [], session) == [0, 1, 2]
    assert graft.episodes([3], [5], session) == [3, 4, 5]
    assert graft.episodes([], [], session) == []
    many = graft.episodes(range(0, 60, 2), [59], ["a"] * 60)
    assert len(many) == EPISODES and 59 in many and many == sorted(many)


def test_repairs_without_a_model_are_sentences_of_the_log():
    texts = {4: "Hello there. I signed up for the Porto marathon!\nBye.", 5: "  "}
    made = graft.extracted(Lack(0, (4, 5)), "Which marathon did Ann sign up for?", "Porto", texts, "marathon")
    (one,) = made
    assert one.text == "I signed up for the Porto marathon!" and one.rests == (4,) and one.sought == ("marathon",)
    assert one.concepts == ("marathon_sign",)


def test_repairs_of_a_model_name_what_they_rest_on():
    record = (
        Repair("Ann ran.", ("city_run",), (2, 9)),
        Repair("Known.", (), (1,)),
        Repair("Nowhere.", (), (3,)),
    )
    made = graft.written(Lack(1, ()), Result(record, "ok"), [7, 8], ["Which?"], frozenset(["known."]))
    assert [(one.text, one.rests) for one in made] == [("Ann ran.", (8,))]
    assert graft.written(Lack(1, ()), Result(None, "failed"), [7], [], frozenset()) == []


def repairs():
    table = questions(("q/1", "x", [], True), ("q2", "x", [], True))
    made = [
        graft.Made(0, "One.", ("big_city",), (0, 2), ("s",)),
        graft.Made(0, "Two.", (), (1,), ("s",)),
        graft.Made(1, "Three.", ("big_city", "old_town"), (0,), ("s",)),
    ]
    return graft.table(made, table, ["i0", "i1", "i2"], round=2, mode="batch", model=None, prompt=None)


def test_repairs_carry_their_provenance():
    rows = repairs().to_pylist()
    assert [r["repair_id"] for r in rows] == ["q/1/r2.0", "q/1/r2.1", "q2/r2.0"]
    assert rows[0]["interaction_ids"] == ["i0", "i2"] and rows[0]["question_id"] == "q/1"
    assert rows[2] == {
        "case_id": "ann",
        "repair_id": "q2/r2.0",
        "question_id": "q2",
        "round": 2,
        "mode": "batch",
        "text": "Three.",
        "concepts": ["big_city", "old_town"],
        "interaction_ids": ["i0"],
        "sought": ["s"],
        "model": None,
        "prompt": None,
    }


def test_mending_adds_and_changes_nothing_else():
    own = facts(("Zero.", ["i0"]))
    labels = build(
        "concepts", {"case_id": ["ann"] * 3, "interaction_id": ["i0", "i1", "i2"], "concepts": [["big_city"], [], []]}
    )
    tables = {"facts": own, "concepts": labels, "notes": empty("notes")}
    found = graft.mended(tables, repairs())
    assert found["facts"].slice(0, 1).equals(own) and found["facts"].num_rows == 4
    assert found["concepts"]["concepts"].to_pylist() == [["big_city", "old_town"], [], ["big_city"]]
    assert found["notes"] is tables["notes"]
    assert graft.mended(tables, repairs().slice(0, 0)) == tables
    without = graft.mended({**tables, "concepts": empty("concepts")}, repairs())
    assert without["concepts"].num_rows == 0


@pytest.mark.parametrize("number", [1, 5])
def test_numbering(number):
    assert graft.numbered(["x"] * number).splitlines()[-1] == f"{number}. x"
