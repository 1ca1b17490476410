"""GAAMA's graph: every node and edge of small cases by hand, what stands in for concepts, what is left out."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.errors import ConfigError, SchemaError
from schemas.tables import NOTE_FIELDS
from tests.transforms.graph_tools import check, edges_of, embedded, inputs, merges_of, nodes_of, texts_of, unmerged
from transforms import graphs
from transforms.graphs import concept


def build(*rows, given=None, **options):
    made = inputs(*rows, **(given or {}))
    built = concept.build(made, concept.Options(**options), embedded)
    check(built, made)
    return built


ROWS = (
    ("u", "i0", {"session": "s0"}),
    ("u", "i1", {"session": "s0"}),
    ("u", "i2", {"session": "s1"}),
    ("v", "i0", {"session": "s0"}),
)
GIVEN = {
    "facts": [
        ("u", "f0", "Ann plays the violin.", ["i0", "i1"], ["violin_practice", "home_town"]),
        ("u", "f1", "Ann moved to Porto.", ["i2"], ["Home towns"]),
        ("v", "f0", "Bob has a dog.", ["i0"], []),
    ],
    "reflections": [("u", "r0", "Music matters to Ann.", ["f0", "f1"], ["i0", "i1", "i2"], [])],
    "concepts": [
        ("u", "i0", ["violin_practice"]),
        ("u", "i1", ["violin_practice", "concert_nerves"]),
        ("u", "i2", ["home_towns", "home_town"]),
        ("v", "i0", ["pet_dog"]),
    ],
}


def test_small_case_by_hand():
    built = build(*ROWS, given=GIVEN)
    assert nodes_of(built) == [
        ("u", "file", "i0"),
        ("u", "file", "i1"),
        ("u", "file", "i2"),
        ("u", "fact", "f0"),
        ("u", "fact", "f1"),
        ("u", "reflection", "r0"),
        ("u", "concept", "violin_practice"),
        ("u", "concept", "concert_nerves"),
        ("u", "concept", "home_town"),
        ("v", "file", "i0"),
        ("v", "fact", "f0"),
        ("v", "concept", "pet_dog"),
    ]
    assert edges_of(built) == [
        ("next", "i0", "i1", 1, "i1"),
        ("has_concept", "i0", "violin_practice", 1, "i0"),
        ("next", "i1", "i2", 1, "i2"),
        ("has_concept", "i1", "violin_practice", 1, "i1"),
        ("has_concept", "i1", "concert_nerves", 1, "i1"),
        ("has_concept", "i2", "home_town", 1, "i2"),
        ("derived_from", "f0", "i0", 1, "i0"),
        ("derived_from", "f0", "i1", 1, "i1"),
        ("about_concept", "f0", "violin_practice", 1, "i0"),
        ("about_concept", "f0", "home_town", 1, "i0"),
        ("derived_from", "f1", "i2", 1, "i2"),
        ("about_concept", "f1", "home_town", 1, "i2"),
        ("derived_from_fact", "r0", "f0", 1, "i0"),
        ("derived_from_fact", "r0", "f1", 1, "i2"),
        ("has_concept", "i0", "pet_dog", 1, "i0"),
        ("derived_from", "f0", "i0", 1, "i0"),
    ]
    assert texts_of(built, "fact")["f1"] == "Ann moved to Porto."
    assert texts_of(built, "reflection") == {"r0": "Music matters to Ann."}
    assert texts_of(built, "concept")["concert_nerves"] == "concert nerves"
    # home_town twice, the other two forms once each.
    assert merges_of(built) == [
        ("concept", "Home towns", "home_town", "plural"),
        ("concept", "home_towns", "home_town", "plural"),
    ]


def test_without_merging_every_form_stays_and_merges_lead_back_to_it():
    apart = build(*ROWS, given=GIVEN, merge="none")
    assert apart.merges.num_rows == 0
    assert {"home_town", "home_towns", "Home towns"} <= set(nodes_of(apart, "concept"))
    keys = {(case, key) for case, kind, key in nodes_of(apart) if kind == "concept"}
    assert keys == unmerged(build(*ROWS, given=GIVEN), "concept")


def test_vectors_merge_what_spelling_leaves():
    given = {"concepts": [("u", "i0", ["home_plans"]), ("u", "i1", ["house/plan", "home_plan"]), ("u", "i2", ["home"])]}
    assert nodes_of(build(*ROWS, given=given), "concept") == ["home_plan", "house/plan", "home"]
    built = build(*ROWS, given=given, merge_cosine=0.9)
    assert nodes_of(built, "concept") == ["home_plan", "home"]
    assert merges_of(built) == [
        ("concept", "home_plans", "home_plan", "plural"),
        ("concept", "house/plan", "home_plan", "vector"),
    ]
    assert [(s, t) for _, s, t, _, _ in edges_of(built, "has_concept")] == [
        ("i0", "home_plan"),
        ("i1", "home_plan"),
        ("i2", "home"),
    ]
    # Vectors alone: the plural, which the hand-made vectors tell apart, stays.
    alone = build(*ROWS, given=given, merge="none", merge_cosine=0.9)
    assert merges_of(alone) == [("concept", "house/plan", "home_plan", "vector")]
    # Another case has nothing to do with it.
    apart = {"concepts": [("u", "i0", ["home_plan"]), ("v", "i0", ["house_plan"])]}
    assert merges_of(build(*ROWS, given=apart, merge_cosine=0.9)) == []


def test_vectors_that_nobody_gives_are_missed():
    made = inputs(*ROWS, **GIVEN)
    assert merges_of(concept.build(made, concept.Options()))
    with pytest.raises(SchemaError, match="needs vectors"):
        concept.build(made, concept.Options(merge_cosine=0.9))


def test_next_can_stay_within_sessions():
    built = build(*ROWS, next_across_sessions=False)
    assert edges_of(built) == [("next", "i0", "i1", 1, "i1")]


def test_labels_of_stand_ins():
    built = build(
        ("u", "i0", {"what": ["career/software_engineering", "class/yoga", "tea", "trip/lake/como"]}),
        ("u", "i1", {"what": ["tea"], "who": ["anna_lee", "bob"]}),
        ("u", "i2", {"what": ["anna_lee", "bob", "bob/visit", "milk", "a/b/c_d_e_f_g_h"]}),
        ("u", "i3", {}),
    )
    assert [(s, t) for _, s, t, _, _ in edges_of(built, "has_concept")] == [
        # Three at most, labels of several words first.
        ("i0", "software_engineering"),
        ("i0", "yoga_class"),
        ("i0", "como_lake"),
        ("i1", "tea"),
        ("i2", "visit_bob"),
        ("i2", "c_d_e_f_g_h"),
        ("i2", "milk"),
    ]


def test_a_single_word_of_many_files_is_no_concept():
    rows = [("u", f"i{n:02}", {"what": ["time", f"thing_{n}"] if n < 11 else ["rare"]}) for n in range(40)]
    assert "time" not in nodes_of(build(*rows), "concept")
    assert "time" in nodes_of(build(*rows[1:]), "concept")  # in ten files, not in more
    # 29 of 40 files have it, but in another case it is in two only.
    built = build(*rows, ("v", "i0", {"what": ["rare"]}), ("v", "i1", {"what": ["rare"]}))
    assert [case for case, kind, key in nodes_of(built) if key == "rare"] == ["v"]


def test_what_leads_nowhere_is_left_out():
    built = build(
        *ROWS,
        given={
            "facts": [
                ("u", "f0", "", ["i9", "i1"], ["", " ", "a_b"]),
                ("u", "f0", "the same id again", ["i0"], []),
                ("w", "f0", "of a case that is not here", ["i0"], ["a_b"]),
                ("v", "f7", "from nothing", [], []),
            ],
            "reflections": [("u", "r0", "rests on nothing", ["f7", "f0"], [], [])],
            "concepts": [("u", "i9", ["a_b"]), ("w", "i0", ["a_b"]), ("v", "i0", [""])],
        },
    )
    assert [row for row in nodes_of(built) if row[1] != "file"] == [
        ("u", "fact", "f0"),
        ("u", "reflection", "r0"),
        ("u", "concept", "a_b"),
        ("v", "fact", "f7"),
    ]
    assert edges_of(built, "derived_from", "about_concept", "has_concept", "derived_from_fact") == [
        ("derived_from", "f0", "i1", 1, "i1"),
        ("about_concept", "f0", "a_b", 1, "i1"),
        ("derived_from_fact", "r0", "f0", 1, "i1"),
    ]


def test_nothing_at_all_and_nothing_but_files():
    built = build()
    assert built.nodes.num_rows == built.edges.num_rows == built.merges.num_rows == 0
    assert nodes_of(build(("u", "i0", {}))) == [("u", "file", "i0")]


def test_facts_in_another_order_of_cases():
    swapped = {**GIVEN, "facts": [GIVEN["facts"][2], *GIVEN["facts"][:2]]}
    assert build(*ROWS, given=swapped).nodes.equals(build(*ROWS, given=GIVEN).nodes)


def test_notes_of_other_rows_are_refused():
    made = inputs(*ROWS)
    made["notes"] = made["notes"].slice(1)
    with pytest.raises(SchemaError, match="not the same rows"):
        concept.build(made, concept.Options())
    scattered = inputs(ROWS[0], ROWS[3], ROWS[1])
    with pytest.raises(SchemaError, match="stand together"):
        concept.build(scattered, concept.Options())


def test_the_kind_is_found_and_its_options_are_checked():
    kind = graphs.load("concept")
    assert kind.NAME == "concept"
    assert graphs.parse_options(kind, {"merge": "case"}).merge == "case"
    with pytest.raises(ConfigError, match="merge"):
        graphs.parse_options(kind, {"merge": "maybe"})


tag = st.sampled_from(
    ["a", "b", "a/b", "cats", "cat", "class/yoga", "classes/yoga", "", "/", "x" * 300, "日本/東京", "1/2"]
)
case = st.lists(st.dictionaries(st.sampled_from(NOTE_FIELDS), st.lists(tag, max_size=4), max_size=3), max_size=5)


@settings(deadline=None, max_examples=10)
@given(st.lists(case, min_size=1, max_size=3))
def test_cases_do_not_depend_on_each_other(cases):
    rows = [[(f"c{c}", f"i{n}", note) for n, note in enumerate(rows)] for c, rows in enumerate(cases)]
    whole = build(*(row for part in rows for row in part))
    alone = [build(*part) for part in rows]
    assert nodes_of(whole) == [row for part in alone for row in nodes_of(part)]
    assert edges_of(whole) == [row for part in alone for row in edges_of(part)]
    assert merges_of(whole) == [row for part in alone for row in merges_of(part)]
