"""Packs: what goes in, in which order, under caps and budgets; worked out by hand, and invariants."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.tables import build, empty
from transforms import packing
from transforms.asking import estimate
from transforms.packing import CUT, EPISODE, FACT, Limits, by_rank, by_score, choose, cut, memory, pack


def interactions(*texts, case="ann", ids=None):
    count = len(texts)
    return build(
        "interactions",
        {
            "case_id": [case] * count,
            "session_id": ["s0"] * count,
            "interaction_id": ids or [f"i{n}" for n in range(count)],
            "content_hash": ["0"] * count,
            "position": list(range(count)),
            "started_at": pa.array([86_400_000_000 * n for n in range(count)], pa.timestamp("us", tz="UTC")),
            "started_at_text": [None] * count,
            "user_text": list(texts),
            "assistant_text": [""] * count,
            "speakers": [["Ann"]] * count,
            "message_ids": [[f"m{n}"] for n in range(count)],
            "source": ["x"] * count,
            "source_offset": [0] * count,
        },
    )


def facts(*rows, case="ann"):
    """Facts of (text, interactions)."""
    return build(
        "facts",
        {
            "case_id": [case] * len(rows),
            "fact_id": [f"f{n}" for n in range(len(rows))],
            "text": [text for text, _ in rows],
            "interaction_ids": [list(ids) for _, ids in rows],
            "concepts": [[] for _ in rows],
        },
    )


def reflections(*rows):
    names = ["case_id", "fact_id", "text", "interaction_ids", "concepts"]
    table = facts(*rows).select(names).rename_columns(["case_id", "reflection_id", *names[2:]])
    return build("reflections", {**{n: table[n] for n in table.schema.names}, "fact_ids": [[] for _ in rows]})


def one(rows, ranks, held, *, derived=True, **limits):
    limits = Limits(**{"tokens": 10_000, **limits})
    question = np.zeros(len(rows), np.int64)
    found = by_rank(question, np.array(rows), np.array(ranks), held, derived=derived)
    return pack(found, held, 1, limits)


def test_episodes_stand_in_order_of_time_and_facts_in_order_of_rank():
    held = memory(
        interactions("Ann: cat", "Ann: dog", "Ann: cow"),
        facts(("Ann has a cow.", ["i2"]), ("Ann has a cat.", ["i0"]), ("Bob has a fox.", ["gone"])),
        reflections(("Ann likes animals.", ["i0", "i2"])),
    )
    made = one([2, 0], [1, 2], held)
    assert made.texts == (
        "Facts:\n- Ann has a cow.\n- Ann has a cat.\n\n"
        "Reflections:\n- Ann likes animals.\n\n"
        "Conversations, in order of time:\n"
        "[1970-01-01T00:00Z (Thursday)] Ann: cat\n[1970-01-03T00:00Z (Saturday)] Ann: cow",
    )


def test_top_k_is_a_pack_of_interactions_alone():
    held = memory(interactions("Ann: cat", "Ann: dog"), facts(("Ann has a cat.", ["i0"])), empty("reflections"))
    made = one([0, 1], [2, 1], held, derived=False, facts=0, reflections=0, episodes=1)
    assert made.texts[0].splitlines()[1:] == ["[1970-01-02T00:00Z (Friday)] Ann: dog"]


def test_what_says_the_same_is_shown_once():
    held = memory(
        interactions("Ann: cat", "Ann: dog"),
        facts(("Ann has a cat.", ["i0", "i1"]), (" ann HAS a cat. ", ["i1"])),
        reflections(("Ann has a cat.", ["i0"])),
    )
    assert one([0, 1], [1, 2], held).texts[0].count("cat.") == 1


def test_equal_ids_of_two_cases_stay_apart():
    both = pa.concat_tables([interactions("Ann: cat"), interactions("Bob: dog", case="bob")]).unify_dictionaries()
    held = memory(both, facts(("Bob has a dog.", ["i0"]), case="bob"), empty("reflections"))
    assert "Facts" not in one([0], [1], held).texts[0]
    assert "Facts" in one([1], [1], held).texts[0]


def test_caps_hold_kind_by_kind():
    held = memory(interactions(*"abcd"), facts(*[(f"fact {n}", ["i0"]) for n in range(5)]), empty("reflections"))
    made = one([0, 1, 2, 3], [1, 2, 3, 4], held, facts=2, episodes=3)
    assert (held.kind[made.item] == FACT).sum() == 2
    assert (held.kind[made.item] == EPISODE).sum() == 3
    assert one([0], [1], held, facts=0, episodes=0).texts == ("",)


def test_the_first_that_does_not_fit_ends_the_pack():
    # Words: 3 + 3 + 4 are 10; the second would make it 13, and the third is not asked.
    question, kind = np.zeros(3, np.int64), np.full(3, EPISODE)
    sizes = [np.array([7, 6, 1])]
    assert choose(question, kind, sizes, [10], (9, 9, 9)).tolist() == [True, False, False]
    assert choose(question, kind, sizes, [13], (9, 9, 9)).tolist() == [True, True, False]
    assert choose(question, kind, sizes, [14], (9, 9, 9)).tolist() == [True, True, True]
    # An item above its kind's cap takes no room.
    assert choose(question, np.array([0, 0, 2]), sizes, [8], (1, 9, 9)).tolist() == [True, False, True]


def test_words_and_tokens_both_hold():
    held = memory(interactions("one two three", "four five"), empty("facts"), empty("reflections"))
    lines = held.lines.to_pylist()
    words = [len(line.split()) for line in lines]
    assert one([0, 1], [1, 2], held, words=sum(words)).texts[0].endswith(f"{lines[0]}\n{lines[1]}")
    assert one([0, 1], [1, 2], held, words=sum(words) - 1).texts[0].endswith(lines[0])
    room = sum((len(line) + 3) // 3 for line in lines)
    assert one([0, 1], [1, 2], held, tokens=room).texts[0].endswith(lines[1])
    assert one([0, 1], [1, 2], held, tokens=room - 1).texts[0].endswith(lines[0])


def test_an_item_that_is_too_large_by_itself_is_cut_and_marked():
    held = memory(interactions("word " * 100, "small"), empty("facts"), empty("reflections"))
    text = one([0, 1], [1, 2], held, words=10).texts[0].splitlines()[1]
    assert text.endswith(CUT) and len(text.removesuffix(CUT).split()) == 10
    text = one([0, 1], [1, 2], held, tokens=40).texts[0].splitlines()[1]
    assert text.endswith(CUT) and estimate(text) <= 40


def test_letters_of_scripts_without_spaces_are_words():
    assert packing._words(pa.array(["昨日は映画を見た ok", "two words", ""])).tolist() == [9, 2, 0]
    assert cut("昨日は映画", Limits(100, 3)) == "昨日は" + CUT


def test_nodes_by_score():
    held = memory(interactions("Ann: cat", "Ann: dog"), facts(("x", ["i0"]), ("y", ["i1"])), empty("reflections"))
    found = by_score(np.array([0, 0, 0, 1]), np.array([0, 3, 1, 2]), np.array([0.1, 0.9, 0.9, 0.5]), held)
    assert found.item.tolist() == [1, 3, 0, 2] and found.question.tolist() == [0, 0, 0, 1]


def test_nothing_at_all():
    held = memory(empty("interactions"), empty("facts"), empty("reflections"))
    none = np.zeros(0, np.int64)
    assert pack(by_rank(none, none, none, held, derived=True), held, 2, Limits(100)).texts == ("", "")


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(1, 9), st.integers(1, 9)), max_size=40),
    st.integers(1, 30),
    st.integers(1, 30),
    st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(0, 5)),
)
def test_choosing_agrees_with_a_walk(rows, words, tokens, caps):
    rows = sorted(rows, key=lambda row: row[0])
    question, kind, size, other = (np.array([row[n] for row in rows], np.int64) for n in range(4))
    expected = []
    state = {}
    for q, k, a, b in rows:
        used = state.setdefault(q, [0, 0, [0, 0, 0], False])
        used[2][k] += 1
        if used[2][k] > caps[k] or used[3]:
            expected.append(False)
            continue
        used[0], used[1] = used[0] + a, used[1] + b
        used[3] = used[0] > words or used[1] > tokens
        expected.append(not used[3])
    assert choose(question, kind, [size, other], [words, tokens], caps).tolist() == expected


@pytest.mark.parametrize("limit", [1, 2, 5, 50])
def test_a_cut_text_is_within_its_budget(limit):
    text = "Über den Wolken <|im_start|> muss die Freiheit\nwohl grenzenlos sein " * 5
    made = cut(text, Limits(max(16, limit * 4), limit))
    assert made == text or made.endswith(CUT)
    assert len(made.removesuffix(CUT).split()) <= limit
