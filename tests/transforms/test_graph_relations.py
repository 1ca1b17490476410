"""The graph of who and what interactions share: three sources, one shape; what texts tell; bridges in time."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.transforms.graph_tools import check, edges_of, embedded, inputs, merges_of, nodes_of, texts_of, unmerged
from transforms import graphs, synth_words
from transforms.graphs import relations
from transforms.graphs._tellings import Telling, find


def build(*rows, given=None, **options):
    made = inputs(*rows, **(given or {}))
    built = relations.build(made, relations.Options(**options), embedded)
    check(built, made)
    return built


def told(text, *speakers):
    """Return (kind, source, target, place) of what a text tells."""
    return [one[1:] for one in find(pa.array([text]), [speakers or ("user", "assistant")])]


GIVEN = {
    "entities": [
        ("u", "i0", "Ann Lee", "person", [], "user"),
        ("u", "i0", "Bob", "person", [], "user"),
        ("u", "i0", "Copper Hall", "venue", [], "user"),
        ("u", "i1", "Bob", "person", [], "user"),
        ("u", "i1", "The Glass Tide", "book", [], "user"),
        ("u", "i2", "copper hall", "place", [], "user"),
        ("u", "i2", "Ann likes tea", "fact", [], "user"),
    ],
    "relations": [
        ("u", "i0", "Ann Lee", "Bob", "introduced", ["time: noon", "Venue: Copper Hall"]),
        ("u", "i1", "The Glass Tide", "Bob", "recommended_by", []),
        ("u", "i2", "Bob", "ann lee", "works_with", []),
    ],
}
ROWS = (("u", "i0", {}), ("u", "i1", {"day": 2}), ("u", "i2", {"day": 25}))


def test_a_ground_truth_by_hand():
    built = build(*ROWS, given=GIVEN)
    assert [row[1:] for row in nodes_of(built)] == [
        ("file", "i0"),
        ("file", "i1"),
        ("file", "i2"),
        ("person", "Ann Lee"),
        ("person", "Bob"),
        ("place", "Copper Hall"),
        ("thing", "The Glass Tide"),
    ]
    assert edges_of(built) == [
        ("bridge_time", "i0", "i1", 1, "i1"),
        ("bridge_venue", "i0", "i2", 1, "i2"),
        ("mentions_person", "i0", "Ann Lee", 1, "i0"),
        ("tells", "i0", "Ann Lee", 1, "i0"),
        ("mentions_person", "i0", "Bob", 1, "i0"),
        ("tells", "i0", "Bob", 1, "i0"),
        ("mentions_place", "i0", "Copper Hall", 1, "i0"),
        ("tells", "i0", "Copper Hall", 1, "i0"),
        ("mentions_person", "i1", "Bob", 1, "i1"),
        ("tells", "i1", "Bob", 1, "i1"),
        ("mentions_thing", "i1", "The Glass Tide", 1, "i1"),
        ("tells", "i1", "The Glass Tide", 1, "i1"),
        ("mentions_place", "i2", "Copper Hall", 1, "i2"),
        ("introduced", "Ann Lee", "Bob", 1, "i0"),
        ("introduced_at", "Bob", "Copper Hall", 1, "i0"),
        ("recommended", "Bob", "The Glass Tide", 1, "i1"),
    ]
    assert merges_of(built) == [("place", "copper hall", "Copper Hall", "case")]
    assert set(texts_of(built, "person")) == {"Ann Lee", "Bob"}


def test_vectors_merge_places_and_things_and_no_people():
    pairs = [("i0", "Ann Home", "person"), ("i1", "Ann House", "person"), ("i0", "home bar", "place")]
    pairs += [("i1", "house bar", "place"), ("i0", "home sign", "thing"), ("i1", "house sign", "thing")]
    given = {"entities": [("u", at, title, kind, [], "user") for at, title, kind in pairs]}
    built = build(*ROWS, given=given, merge_cosine=0.9)
    assert merges_of(built) == [
        ("place", "house bar", "home bar", "vector"),
        ("thing", "house sign", "home sign", "vector"),
    ]
    assert nodes_of(built, "person") == ["Ann Home", "Ann House"]
    assert ("bridge_venue", "i0", "i1", 1, "i1") in edges_of(built)
    made = inputs(*ROWS, **given)
    exact = graphs.load("oracle").build(made, relations.Options(merge_cosine=0.9), embedded)
    assert merges_of(exact) == merges_of(built)


def test_notes_and_what_users_say_give_the_same_graph():
    rows = (
        ("u", "i0", {"text": "Ann Lee introduced me to Bob at the Copper Hall.", "who": ["ann_lee", "bob"]}),
        ("u", "i1", {"text": "Bob recommended The Glass Tide to me.", "extra": ["glass_tide", "mile/5"], "day": 2}),
        ("u", "i2", {"text": "Back in the hall.", "where": ["copper_hall"], "day": 25}),
    )
    built = build(*rows)
    assert texts_of(built, "person") == {"ann_lee": "ann lee", "bob": "bob"}

    def shape(one):
        names = {"ann_lee": "Ann Lee", "bob": "Bob", "copper_hall": "Copper Hall", "glass_tide": "The Glass Tide"}
        return [(kind, names.get(a, a), names.get(b, b), *rest) for kind, a, b, *rest in edges_of(one)]

    assert shape(built) == shape(build(*ROWS, given=GIVEN))


def test_without_merging_every_name_stays_and_merges_lead_back_to_it():
    apart = build(*ROWS, given=GIVEN, merge="none")
    assert apart.merges.num_rows == 0
    for kind in relations.KINDS:
        keys = {(case, key) for case, of, key in nodes_of(apart) if of == kind}
        assert keys == unmerged(build(*ROWS, given=GIVEN), kind)


@pytest.mark.parametrize(
    ("kind", "edge"),
    [
        ("introduced", ("introduced", "Ann", "Bob")),
        ("introduced_to", ("introduced", "Ann", "Bob")),
        ("was introduced by", ("introduced", "Bob", "Ann")),
        ("met_through", ("introduced", "Bob", "Ann")),
        ("recommended", ("recommended", "Ann", "Bob")),
        ("suggested_by", ("recommended", "Bob", "Ann")),
        ("Recommends", ("recommended", "Ann", "Bob")),
        ("knows", None),
        ("", None),
    ],
)
def test_kinds_of_relations(kind, edge):
    given = {
        "entities": [("u", "i0", name, "person", [], "user") for name in ("Ann", "Bob")],
        "relations": [("u", "i0", "Ann", "Bob", kind, [])],
    }
    found = [one[:3] for one in edges_of(build(*ROWS, given=given), "introduced", "recommended")]
    assert found == ([] if edge is None else [edge])


def test_an_entity_without_a_type_is_what_the_notes_call_it():
    rows = (("u", "i0", {"who": ["ann"], "where": ["porto"]}), ("u", "i1", {}))
    given = {
        "entities": [("u", "i1", name, "entity", [], "user") for name in ("Ann", "Porto", "violin", "Cara", "Dan")]
    }
    given["entities"].append(("u", "i0", "moving house", "event", [], "user"))
    given["relations"] = [("u", "i1", "Cara", "Dan", "introduced", []), ("u", "i1", "violin", "Ann", "introduced", [])]
    built = build(*rows, given=given)
    # The violin is a thing by default; its part in an introduction makes it a person, as it does Cara and Dan.
    assert nodes_of(built, "person") == ["Ann", "violin", "Cara", "Dan"]
    assert nodes_of(built, "place") == ["Porto"]
    assert nodes_of(built, "thing") == []
    given["entities"].append(("u", "i0", "Violin", "thing", [], "user"))
    built = build(*rows, given=given)
    assert nodes_of(built, "thing") == ["violin"]
    assert [edge[1:3] for edge in edges_of(built, "introduced")] == [("Cara", "Dan")]


def test_bridges_are_short_in_time_and_a_hub_makes_none():
    rows = [("u", f"i{n}", {"where": ["porto"], "day": day}) for n, day in enumerate([0, 30, 61, None, 61])]
    pairs = [edge[1:3] for edge in edges_of(build(*rows), "bridge_venue")]
    assert pairs == [("i0", "i1"), ("i2", "i4")]
    assert [edge[1:3] for edge in edges_of(build(*rows, bridge_days=31), "bridge_venue")] == [
        ("i0", "i1"),
        ("i1", "i2"),
        ("i2", "i4"),
    ]
    assert edges_of(build(*rows, hub_files=4), "bridge_venue") == pairs_of(rows, 4)
    assert edges_of(build(*rows, hub_files=3), "bridge_venue") == []


def pairs_of(rows, most):
    """Edges of the same rows without a cap; a file without a time does not count."""
    assert sum(row[2]["day"] is not None for row in rows) == most
    return edges_of(build(*rows), "bridge_venue")


def test_bridges_are_linear_in_the_files_of_a_place():
    rows = [("u", f"i{n:03}", {"where": ["porto", "lisbon"], "day": n}) for n in range(100)]
    found = edges_of(build(*rows), "bridge_venue")
    assert len(found) == 99
    assert {edge[3] for edge in found} == {2}  # both places


def test_a_speaker_says_i():
    rows = (("u", "i0", {"text": "Mel: I recommended The Glass Tide to her.", "speakers": ["Mel"], "who": ["mel"]}),)
    assert [edge[:3] for edge in edges_of(build(*rows), "recommended")] == [("recommended", "mel", "glass_tide")]


def test_nothing_at_all():
    built = build()
    assert built.nodes.num_rows == built.edges.num_rows == 0
    assert nodes_of(build(("u", "i0", {"text": "Ann introduced me to"}))) == [("u", "file", "i0")]


def test_the_kind_is_found_and_has_few_kinds_of_edges():
    assert graphs.load("relations").NAME == "relations"


@pytest.mark.parametrize(
    ("text", "source", "target", "place"),
    [
        ("Ann introduced me to Bob at the Copper Hall.", "Ann", "Bob", "Copper Hall"),
        ("Yesterday Ann Lee finally introduced us to Dr. Bob de Vries.", "Ann Lee", "Bob de Vries", None),
        ("At the Copper Hall, Ann introduced me to Bob.", "Ann", "Bob", "Copper Hall"),
        ("At the Copper Hall Ann Lee introduced me to Bob.", "Ann Lee", "Bob", "Copper Hall"),
        ("My old friend Ann introduced Bob to me in March.", "Ann", "Bob", None),
        ("My sister introduced me to Bob.", "sister", "Bob", None),
        ("I was introduced to Bob by Ann, in Porto.", "Ann", "Bob", "Porto"),
        ("Bob was introduced to me by Ann.", "Ann", "Bob", None),
        ("Ann brought Bob and me together at the Copper Hall.", "Ann", "Bob", "Copper Hall"),
        ("Ann put me in touch with Bob.", "Ann", "Bob", None),
        ("Ann, whom I met last year, set me up with Bob.", "Ann", "Bob", None),
        ("I met Bob through Ann.", "Ann", "Bob", None),
        ("We became friends with Bob at the Copper Hall, all thanks to Ann.", "Ann", "Bob", "Copper Hall"),
        ("Ann presented Bob to me over drinks.", "Ann", "Bob", None),
        ("Ann seated me beside Bob.", "Ann", "Bob", None),
        ("Mo de Vries introduced me to Bob.", "Mo de Vries", "Bob", None),
        ("Émile introduced me to Łukasz.", "Émile", "Łukasz", None),
    ],
)
def test_introductions_in_english(text, source, target, place):
    assert told(text) == [("introduced", source, target, place)]


@pytest.mark.parametrize(
    ("text", "source", "target"),
    [
        ("Ann recommended The Glass Tide to me.", "Ann", "The Glass Tide"),
        ('My colleague Ann, who is 25, suggested the film "quiet days".', "Ann", "quiet days"),
        ("The Tide of the North was warmly recommended by Ann.", "Ann", "The Tide of the North"),
        ("Ann told me to go and watch Tide.", "Ann", "Tide"),
        ("Ann urged me to pick up Glass Tide, volume 2.", "Ann", "Glass Tide, volume 2"),
        ("Ann swears by Duolingo, so I try it.", "Ann", "Duolingo"),
        ("Ann lent me her copy of Glass Tide and wants it back.", "Ann", "Glass Tide"),
        ("Ann pressed a copy of Glass Tide into my hands.", "Ann", "Glass Tide"),
        ("Ann recommended Dr. Bob for my knee.", "Ann", "Bob"),
    ],
)
def test_recommendations_in_english(text, source, target):
    assert told(text) == [("recommended", source, target, None)]


@pytest.mark.parametrize(
    "text",
    [
        "She introduced me to Bob.",
        "He recommended it to me.",
        "I recommended Glass Tide.",  # the log does not say who I is
        "Those games introduced me to painting.",
        "Ann's colleague was introduced.",
        "Ann's introduced me to nobody.",
        "Thanks for the recommendation, Ann!",
        "I recommend exercising.",
        "Can you recommend Glass Tide?",
        "I met Bob. All thanks to Ann.",
        "Ann introduced me to Ann.",
        "On Monday. Introduced me to Bob.",
        "introduced me to",
        "",
    ],
)
def test_what_names_nobody_is_not_told(text):
    assert told(text) == []


def test_two_are_introduced_at_once_and_a_thing_is_told_once():
    assert told("Ann introduced me to Bob and Cara.") == [
        ("introduced", "Ann", "Bob", None),
        ("introduced", "Ann", "Cara", None),
    ]
    assert told("Ann introduced Bob to Cara.")[1] == ("introduced", "Ann", "Cara", None)
    assert told("Ann introduced me to Bob. Ann introduced me to Bob.") == [("introduced", "Ann", "Bob", None)]
    assert find(pa.array(["x", "Ann introduced me to Bob"]), [[], []]) == [Telling(1, "introduced", "Ann", "Bob", None)]
    assert told("Mel: I introduced Bob to Cara.", "Mel")[0] == ("introduced", "Mel", "Bob", None)


def test_every_frame_of_the_synthetic_corpus_is_understood():
    for _, frame in synth_words.INTRODUCED:
        text = frame.format(a="Petra Novak", b="Olaf Costa", v="Amber Otter Hall")
        assert told(text) == [("introduced", "Petra Novak", "Olaf Costa", "Amber Otter Hall")]
    for _, frame in synth_words.RECOMMENDED:
        assert told(frame.format(a="Petra Novak", x="The Salt Empire")) == [
            ("recommended", "Petra Novak", "The Salt Empire", None)
        ]


WORDS = (
    *("Ann", "Bob", "I", "me", "introduced", "recommended", "to", "by", "met", "through", "at the", "Copper Hall"),
    *("\n", ".", '"', "“", "The", "was", "suggested", "my sister", "'s", "日本", "\x01", "and"),
)


@settings(deadline=None, max_examples=100)
@given(st.lists(st.sampled_from(WORDS), max_size=14))
def test_any_words_are_read_without_fault(words):
    for one in find(pa.array([" ".join(words)], pa.large_string()), [["Mel"]]):
        assert one.source and one.target and one.source != one.target


word = st.sampled_from(["ann", "bob", "porto", "tea", "cats", "cat", "user", "1/2", "日本", ""])
note = st.fixed_dictionaries(
    {
        "who": st.lists(word, max_size=3),
        "where": st.lists(word, max_size=2),
        "extra": st.lists(word, max_size=2),
        "day": st.none() | st.integers(0, 60),
        "text": st.sampled_from(["", "Ann introduced me to Bob in Porto.", "Bob recommended Tea.", "Ann met Bob."]),
    }
)


@settings(deadline=None, max_examples=8)
@given(st.lists(st.lists(note, max_size=4), min_size=1, max_size=3))
def test_cases_do_not_depend_on_each_other(cases):
    rows = [[(f"c{c}", f"i{n}", one) for n, one in enumerate(part)] for c, part in enumerate(cases)]
    whole = build(*(row for part in rows for row in part))
    alone = [build(*part) for part in rows]
    assert nodes_of(whole) == [row for part in alone for row in nodes_of(part)]
    assert edges_of(whole) == [row for part in alone for row in edges_of(part)]
    assert merges_of(whole) == [row for part in alone for row in merges_of(part)]
