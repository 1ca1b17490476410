"""The graph of phrases and triples: by hand, by merged phrases, and from tags alone."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.transforms.graph_tools import check, edges_of, embedded, inputs, merges_of, nodes_of, texts_of, unmerged
from transforms import graphs
from transforms.graphs import triples

ROWS = (("u", "i0", {}), ("u", "i1", {}), ("v", "i0", {}))
GIVEN = {
    "triples": [
        ("u", "i0", "Porto", "is in", "Portugal"),
        ("u", "i0", "Porto", "lies on", "Douro"),
        ("u", "i1", "porto", "Is  in", "Portugal"),
        ("u", "i1", "Douro", "is in", "Porto"),
        ("u", "i1", "Porto", "twin of", "PORTO"),
        ("v", "i0", "Porto", "is in", "Portugal"),
    ]
}


def build(*rows, given=None, **options):
    made = inputs(*rows, **(given or {}))
    built = triples.build(made, triples.Options(**options), embedded)
    check(built, made)
    return built


def test_vectors_merge_phrases_and_so_triples():
    given = {"triples": [("u", "i0", "home plan", "is", "ready"), ("u", "i1", "house plan", "is", "ready")]}
    built = build(*ROWS, given=given, merge_cosine=0.9)
    assert merges_of(built) == [
        ("phrase", "house plan", "home plan", "vector"),
        ("triple", "house plan | is | ready", "home plan | is | ready", "vector"),
    ]
    assert ("relation", "home plan", "ready", 2, "i0") in edges_of(built)
    tags = build(("u", "i0", {"what": ["home/plan"]}), ("u", "i1", {"what": ["house/plan"]}), merge_cosine=0.9)
    assert nodes_of(tags, "phrase") == ["home/plan"]


def test_small_case_by_hand():
    built = build(*ROWS, given=GIVEN)
    assert [row for row in nodes_of(built) if row[0] == "u"] == [
        ("u", "file", "i0"),
        ("u", "file", "i1"),
        ("u", "phrase", "Porto"),
        ("u", "phrase", "Portugal"),
        ("u", "phrase", "Douro"),
        ("u", "triple", "Porto | is in | Portugal"),
        ("u", "triple", "Porto | lies on | Douro"),
        ("u", "triple", "Douro | is in | Porto"),
        ("u", "triple", "Porto | twin of | PORTO"),
    ]
    of_u = len([row for row in built.edges.to_pylist() if row["case_id"] == "u"])
    assert edges_of(built)[:of_u] == [
        ("contains", "i0", "Porto", 1, "i0"),
        ("contains", "i0", "Portugal", 1, "i0"),
        ("contains", "i0", "Douro", 1, "i0"),
        ("contains", "i1", "Porto", 1, "i1"),
        ("contains", "i1", "Portugal", 1, "i1"),
        ("contains", "i1", "Douro", 1, "i1"),
        # Stated by two passages; a twin of itself gives no edge.
        ("relation", "Porto", "Portugal", 2, "i0"),
        ("relation", "Porto", "Douro", 1, "i0"),
        ("relation", "Douro", "Porto", 1, "i1"),
        ("source", "Porto | is in | Portugal", "i0", 1, "i0"),
        ("source", "Porto | is in | Portugal", "i1", 1, "i1"),
        ("subject", "Porto | is in | Portugal", "Porto", 1, "i0"),
        ("object", "Porto | is in | Portugal", "Portugal", 1, "i0"),
        ("source", "Porto | lies on | Douro", "i0", 1, "i0"),
        ("subject", "Porto | lies on | Douro", "Porto", 1, "i0"),
        ("object", "Porto | lies on | Douro", "Douro", 1, "i0"),
        ("source", "Douro | is in | Porto", "i1", 1, "i1"),
        ("object", "Douro | is in | Porto", "Porto", 1, "i1"),
        ("subject", "Douro | is in | Porto", "Douro", 1, "i1"),
        ("source", "Porto | twin of | PORTO", "i1", 1, "i1"),
        ("object", "Porto | twin of | PORTO", "Porto", 1, "i1"),
        ("subject", "Porto | twin of | PORTO", "Porto", 1, "i1"),
    ]
    assert texts_of(built, "triple")["Porto | is in | Portugal"] == "Porto is in Portugal"
    assert merges_of(built) == [
        ("phrase", "PORTO", "Porto", "case"),
        ("phrase", "porto", "Porto", "case"),
        ("triple", "porto | Is  in | Portugal", "Porto | is in | Portugal", "case"),
    ]


def test_without_merging_every_form_stays_and_merges_lead_back_to_it():
    apart, merged = build(*ROWS, given=GIVEN, merge="none"), build(*ROWS, given=GIVEN)
    assert apart.merges.num_rows == 0
    for kind in ("phrase", "triple"):
        keys = {(case, key) for case, of, key in nodes_of(apart) if of == kind}
        assert keys == unmerged(merged, kind)
    assert len(nodes_of(apart, "phrase")) == 7  # three spellings of Porto in u


def test_a_triple_is_merged_by_the_laxest_rule_of_its_parts():
    rows = [("u", f"i{n}", {}) for n in range(3)]
    given = {
        "triples": [
            ("u", "i0", "dog", "eats", "colour"),
            ("u", "i0", "dog", "eats", "color"),
            ("u", "i1", "dogs", "eats", "color"),
            ("u", "i1", "dog", "eats ", "color"),
        ]
    }
    assert [row for row in merges_of(build(*rows, given=given)) if row[0] == "triple"] == [
        ("triple", "dog | eats  | color", "dog | eats | color", "exact"),
        ("triple", "dog | eats | colour", "dog | eats | color", "spelling"),
        ("triple", "dogs | eats | color", "dog | eats | color", "plural"),
    ]
    triple = [row for row in build(*rows, given=given).merges.to_pylist() if row["key"].endswith("colour")]
    assert triple[0]["similarity"] == 1 - 1 / 6 or abs(triple[0]["similarity"] - (1 - 1 / 6)) < 1e-6


def test_bars_in_phrases_do_not_make_two_triples_one():
    given = {"triples": [("u", "i0", "a | b", "c", "d"), ("u", "i0", "a", "b | c", "d"), ("u", "i0", "a\\", "b", "d")]}
    keys = nodes_of(build(*ROWS, given=given), "triple")
    assert keys == [r"a \| b | c | d", r"a | b \| c | d", r"a\\ | b | d"]


def test_what_has_no_part_or_no_passage_is_left_out():
    given = {
        "triples": [
            ("u", "i0", "", "is", "b"),
            ("u", "i0", "a", " ", "b"),
            ("u", "i7", "a", "is", "b"),
            ("w", "i0", "a", "is", "b"),
        ]
    }
    built = build(*ROWS, given=given)
    assert {kind for _, kind, _ in nodes_of(built)} == {"file"}
    assert built.edges.num_rows == 0


def test_tags_stand_in_where_the_task_was_not_run():
    built = build(
        ("u", "i0", {"who": ["ann"], "what": ["class/yoga"], "when": ["2024/03/01"], "why": ["less_stress"]}),
        ("u", "i1", {"what": ["class/yoga", "ann"], "extra": ["mile/5"]}),
    )
    assert texts_of(built, "phrase") == {
        "ann": "ann",
        "class/yoga": "yoga class",
        "2024/03/01": "2024-03-01",
        "less_stress": "less stress",
    }
    assert edges_of(built) == [
        ("contains", "i0", "ann", 1, "i0"),
        ("contains", "i0", "class/yoga", 1, "i0"),
        ("contains", "i0", "2024/03/01", 1, "i0"),
        ("contains", "i0", "less_stress", 1, "i0"),
        ("contains", "i1", "ann", 1, "i1"),
        ("contains", "i1", "class/yoga", 1, "i1"),
    ]


def test_the_kind_is_found():
    assert graphs.load("triples").INPUTS == ("interactions", "notes", "triples")


phrase = st.sampled_from(["Ann", "ann", "cats", "cat", "colour", "color", "x|y", "", "日本"])
case = st.lists(st.tuples(st.integers(0, 3), phrase, st.sampled_from(["is", "Is", "a | b"]), phrase), max_size=7)


@settings(deadline=None, max_examples=10)
@given(st.lists(case, min_size=1, max_size=3))
def test_cases_do_not_depend_on_each_other_and_weights_count_statements(cases):
    def made(which, **options):
        rows = [(f"c{c}", f"i{n}", {}) for c in which for n in range(3)]
        found = [(f"c{c}", f"i{n}", *parts) for c in which for n, *parts in cases[c]]
        # One more, so that the table is not empty and tags do not stand in.
        return build(*rows, given={"triples": [*found, ("c", "i0", "a", "is", "b")]}, **options)

    whole = made(range(len(cases)))
    alone = [made([c]) for c in range(len(cases))]
    assert nodes_of(whole) == [row for part in alone for row in nodes_of(part)]
    assert edges_of(whole) == [row for part in alone for row in edges_of(part)]
    assert merges_of(whole) == [row for part in alone for row in merges_of(part)]
    apart = made(range(len(cases)), merge="none")
    told = sum(1 for part in cases for n, one, _, two in part if n < 3 and one and two and one != two)
    assert sum(edge[3] for edge in edges_of(apart, "relation")) == told
