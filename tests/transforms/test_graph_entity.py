"""The graph of typed entities: nodes, texts and edges by hand, near-duplicates, tags that stand in."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.transforms.graph_tools import check, edges_of, embedded, inputs, merges_of, nodes_of, texts_of, unmerged
from transforms import graphs
from transforms.graphs import entity

ROWS = (("u", "i0", {}), ("u", "i1", {}), ("u", "i2", {}), ("v", "i0", {}))
GIVEN = {
    "entities": [
        ("u", "i0", "Ann", "person", ["job: nurse", "city: Porto"], "user"),
        ("u", "i0", "hospital shifts", "entity", [], "user"),
        ("u", "i1", "ANN", "entity", ["city: Porto", "pet: cat"], "user"),
        ("u", "i1", "Hospital Shift", "event", ["when: nights"], "user"),
        ("u", "i2", "hospital shifts", "event", [], "assistant"),
        ("u", "i2", "Anne", "person", [], "user"),
        ("v", "i0", "Ann", "fact", [], "user"),
    ],
    "relations": [
        ("u", "i1", "Ann", "Hospital Shift", "works_at", []),
        ("u", "i2", "ANN", "hospital shifts", "works at", []),
        ("u", "i2", "Ann", "the union", "Member / Of!", []),
    ],
}


def build(*rows, given=None, **options):
    made = inputs(*rows, **(given or {}))
    built = entity.build(made, entity.Options(**options), embedded)
    check(built, made)
    return built


def test_small_case_by_hand():
    built = build(*ROWS, given=GIVEN)
    assert nodes_of(built)[:7] == [
        ("u", "file", "i0"),
        ("u", "file", "i1"),
        ("u", "file", "i2"),
        ("u", "entity", "Ann"),
        ("u", "entity", "hospital shifts"),
        ("u", "entity", "Anne"),
        ("u", "entity", "the union"),
    ]
    # "hospital shifts" is an event to two mentions, an entity to one; a relation gives no type.
    assert texts_of(built, "entity") == {
        "Ann": "Ann (fact)",  # of v, which stands last
        "hospital shifts": "hospital shifts (event); when: nights",
        "Anne": "Anne (person)",
        "the union": "the union",
    }
    text = [row["text"] for row in built.nodes.to_pylist() if (row["case_id"], row["key"]) == ("u", "Ann")]
    assert text == ["Ann (person); job: nurse; city: Porto; pet: cat"]
    assert [edge for edge in edges_of(built) if edge[2] != "i0"] == [
        ("mentions", "Ann", "i1", 1, "i1"),
        ("mentions", "Ann", "i2", 1, "i2"),
        ("relation:works_at", "Ann", "hospital shifts", 2, "i1"),
        ("relation:member_of", "Ann", "the union", 1, "i2"),
        ("mentions", "hospital shifts", "i1", 1, "i1"),
        ("mentions", "hospital shifts", "i2", 1, "i2"),
        ("mentions", "Anne", "i2", 1, "i2"),
        ("mentions", "the union", "i2", 1, "i2"),
    ]
    assert merges_of(built) == [
        ("entity", "ANN", "Ann", "case"),
        ("entity", "Hospital Shift", "hospital shifts", "plural"),
    ]


def test_without_merging_every_title_stays_and_merges_lead_back_to_it():
    apart = build(*ROWS, given=GIVEN, merge="none")
    assert apart.merges.num_rows == 0
    keys = {(case, key) for case, kind, key in nodes_of(apart) if kind == "entity"}
    assert ("u", "ANN") in keys
    assert keys == unmerged(build(*ROWS, given=GIVEN), "entity")


def test_vectors_merge_titles_and_no_people():
    given = {
        "entities": [
            ("u", "i0", "home plan", "topic", [], "user"),
            ("u", "i1", "house plan", "topic", ["colour: red"], "user"),
            ("u", "i0", "Ann Home", "person", [], "user"),
            ("u", "i1", "Ann House", "person", [], "user"),
        ]
    }
    built = build(*ROWS, given=given, merge_cosine=0.9)
    assert nodes_of(built, "entity") == ["home plan", "Ann Home", "Ann House"]
    assert texts_of(built, "entity")["home plan"] == "home plan (topic); colour: red"
    assert merges_of(built) == [("entity", "house plan", "home plan", "vector")]
    # So do tags that stand in.
    tags = build(
        ("u", "i0", {"what": ["home/plan"], "who": ["ann_home"]}),
        ("u", "i1", {"what": ["house/plan"], "who": ["ann_house"]}),
        merge_cosine=0.9,
    )
    assert merges_of(tags) == [("entity", "house/plan", "home/plan", "vector")]


def test_relations_alone_make_entities_and_lead_to_no_node_of_their_own():
    given = {
        "relations": [
            ("u", "i0", "tea", "Tea", "is", []),
            ("u", "i0", "tea", "milk", "!!!", []),
            ("u", "i9", "tea", "sugar", "with", []),
            ("u", "i0", " ", "sugar", "with", []),
        ]
    }
    built = build(*ROWS, given=given)
    assert edges_of(built) == [
        ("mentions", "tea", "i0", 1, "i0"),
        ("relation:related", "tea", "milk", 1, "i0"),
        ("mentions", "milk", "i0", 1, "i0"),
    ]
    assert merges_of(built) == [("entity", "Tea", "tea", "case")]


def test_people_are_merged_by_case_and_punctuation_alone():
    titles = [
        "Maria",
        "maria",
        "Marie",
        "Adams",
        "Adam",
        "Ann E. Lee",
        "Anne Lee",
        "dogs",
        "dog",
        "Recipies",
        "recipes",
    ]
    kinds = ["person"] * 7 + ["entity"] * 4
    given = {"entities": [("u", "i0", title, kind, [], "user") for title, kind in zip(titles, kinds, strict=True)]}
    assert merges_of(build(*ROWS, given=given)) == [
        ("entity", "dogs", "dog", "plural"),
        ("entity", "maria", "Maria", "case"),
    ]


def test_attributes_are_bounded_and_distinct():
    many = [f"n{n}: {n % 12}" for n in range(30)]
    given = {"entities": [("u", "i0", "Ann", "entity", ["a: 1", "a: 1", " ", *many], "user")]}
    (text,) = texts_of(build(*ROWS, given=given), "entity").values()
    assert text == "Ann; a: 1; " + "; ".join(many[: entity.ATTRIBUTES - 1])


def test_tags_stand_in_where_the_task_was_not_run():
    tags = {
        "who": ["ann", "user"],
        "what": ["class/yoga"],
        "where": ["portugal/porto"],
        "extra": ["mile/5", "van_gogh"],
    }
    built = build(("u", "i0", {**tags, "when": ["2024/03/01"], "why": ["stress"]}), ("u", "i1", {"who": ["ann"]}))
    assert texts_of(built, "entity") == {
        "ann": "ann (person)",
        "class/yoga": "yoga class (topic)",
        "portugal/porto": "porto portugal (place)",
        "van_gogh": "van gogh (thing)",
    }
    assert edges_of(built) == [
        ("mentions", "ann", "i0", 1, "i0"),
        ("mentions", "ann", "i1", 1, "i1"),
        ("mentions", "class/yoga", "i0", 1, "i0"),
        ("mentions", "portugal/porto", "i0", 1, "i0"),
        ("mentions", "van_gogh", "i0", 1, "i0"),
    ]


def test_the_same_text_again_adds_no_node():
    rows = [("u", f"i{n}", {}) for n in range(4)]
    once = {name: [("u", "i0", *row[2:]) for row in table if row[0] == "u"] for name, table in GIVEN.items()}
    twice = {name: table + [("u", "i3", *row[2:]) for row in table] for name, table in once.items()}
    assert nodes_of(build(*rows, given=once)) == nodes_of(build(*rows, given=twice))


@pytest.mark.parametrize(
    "title", ["<script>", "../../etc/passwd", "a\tb\nc", "x" * 100_000, "\u202e", "日本", "1/2", "|", "{{ }}"]
)
def test_odd_titles(title):
    given = {
        "entities": [("u", "i0", title, title, [title], "user")],
        "relations": [("u", "i0", title, "tea", title, [title])],
    }
    built = build(*ROWS, given=given)
    assert nodes_of(built, "entity") == [title, "tea"]


def test_the_kind_is_found():
    assert graphs.load("entity").INPUTS == ("interactions", "notes", "entities", "relations")


title = st.sampled_from(["Ann", "ann", "cats", "cat", "colour", "color", "x y", "x-y", "C++", "C", "", "日本"])
kind = st.sampled_from(["entity", "person", "event"])
case = st.tuples(
    st.lists(st.tuples(st.integers(0, 3), title, kind), max_size=6),
    st.lists(st.tuples(st.integers(0, 3), title, title, st.sampled_from(["likes", "Likes", "/"])), max_size=4),
)


@settings(deadline=None, max_examples=10)
@given(st.lists(case, min_size=1, max_size=3))
def test_cases_do_not_depend_on_each_other(cases):
    def made(which):
        rows = [(f"c{c}", f"i{n}", {}) for c in which for n in range(3)]
        entities = [(f"c{c}", f"i{n}", one, of, [], "user") for c in which for n, one, of in cases[c][0]]
        relations = [(f"c{c}", f"i{n}", one, two, of, []) for c in which for n, one, two, of in cases[c][1]]
        return build(*rows, given={"entities": entities, "relations": relations})

    whole = made(range(len(cases)))
    alone = [made([c]) for c in range(len(cases))]
    assert nodes_of(whole) == [row for part in alone for row in nodes_of(part)]
    assert edges_of(whole) == [row for part in alone for row in edges_of(part)]
    assert merges_of(whole) == [row for part in alone for row in merges_of(part)]
