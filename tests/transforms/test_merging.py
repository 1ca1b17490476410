"""Near-duplicate names: which are one, by which rule, which of them stays, and which must stay apart."""

from itertools import combinations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.errors import SchemaError
from transforms.extractors._words import words as words_of
from transforms.merging import HUB, RULES, merge
from transforms.wordforms import is_variant, singular, variants


def merged(*forms, count=None, group=None, **options):
    """Return {dropped form: (kept form, rule)}."""
    size = len(forms)
    group = np.zeros(size, np.int64) if group is None else np.array(group, np.int64)
    count = np.ones(size, np.int64) if count is None else np.array(count, np.int64)
    found = merge(group, pa.array(forms, pa.string()), count, **options)
    return {forms[n]: (forms[found.into[n]], RULES[found.rule[n]]) for n in range(size) if found.into[n] != n}


@pytest.mark.parametrize(
    ("forms", "rule"),
    [
        (("Yoga class", "Yoga  class"), "exact"),
        (("ﬁlm", "film"), "exact"),
        (("Tea", "tea"), "case"),
        (("ÉCOLE", "école"), "case"),
        (("yoga_class", "yoga class"), "punctuation"),
        (("yoga/class", "yoga-class"), "punctuation"),
        (("e-mail", "email"), "punctuation"),
        (("ice cream", "icecream"), "punctuation"),
        (("covid-19", "covid 19"), "punctuation"),
        (("Anna's dog", "anna dog"), "punctuation"),
        (("U.S.", "US"), "punctuation"),
        (("The Red Door", "red door"), "punctuation"),
        (("the gym", "gym"), "punctuation"),
        (("日本", "日 本"), "punctuation"),
        (("cats", "cat"), "plural"),
        (("Stories", "story"), "plural"),
        (("glass box", "glass boxes"), "plural"),
        (("spices trade", "spice trade"), "plural"),
        (("movies", "movie"), "plural"),
        (("women", "woman"), "plural"),
        (("colour theory", "color theory"), "spelling"),
        (("receive", "recieve"), "spelling"),
        (("accommodation", "accomodation"), "spelling"),
        (("travelling", "traveling"), "spelling"),
        (("organise", "organize"), "spelling"),
        (("theatre", "theater"), "spelling"),
        (("separate", "seperate"), "spelling"),
        (("málaga", "malaga"), "spelling"),
    ],
)
def test_one_thing_under_two_names(forms, rule):
    (dropped,) = merged(*forms).values()
    assert dropped[1] == rule
    before = RULES[RULES.index(rule) - 1] if RULES.index(rule) else "none"
    assert merged(*forms, level=before) == {}
    assert len(merged(*forms, level=rule)) == 1


@pytest.mark.parametrize(
    "forms",
    [
        ("C", "C++", "C#"),
        ("1.5", "15", "1-5", "1,5", "1/5"),
        ("2021", "2022", "2021s"),
        ("2024-05-01", "2024-05-10", "20240501"),
        ("-5 degrees", "5 degrees"),
        ("size 1 2", "size 12"),
        ("james", "jame"),
        ("news", "new"),
        ("paris", "pari"),
        ("mars", "mar"),
        ("adams", "adam"),
        ("marches", "march"),
        ("The Who", "who"),
        ("house", "horse"),
        ("desert", "dessert"),
        ("hoping", "hopping"),
        ("trail", "trial"),
        ("lighting", "lightning"),
        ("adoption", "adaption"),
        ("painting", "pointing"),
        ("contract", "contact"),
        ("morality", "mortality"),
        ("carton", "cartoon"),
        ("writing", "waiting"),
        ("producers", "produces"),
        ("morning", "mourning"),
        ("fourth", "forth"),
        ("cafe", "café"),
        ("maria", "marie"),
        ("daniel", "danielle"),
        ("Stefano", "Stephano"),
        ("Recieve", "Receive"),
        ("room101", "room102"),
        ("!!!", "???"),
        ("", "the"),
    ],
)
def test_different_things_stay_apart(forms):
    assert merged(*forms) == {}


def test_the_most_frequent_form_stays_then_the_shortest_then_the_first():
    assert merged("Cats", "cat", "CAT", count=[1, 2, 5]) == {"Cats": ("CAT", "plural"), "cat": ("CAT", "case")}
    assert merged("cats", "cat", count=[2, 2]) == {"cats": ("cat", "plural")}
    assert merged("cat", "Cat", "CAT", count=[2, 2, 2]) == {"Cat": ("cat", "case"), "CAT": ("cat", "case")}


def test_the_rule_is_the_surest_that_joins_a_form_and_the_one_that_stays():
    found = merged("Colour-Theories", "color theory", "Color Theory", "colour theories", count=[1, 3, 1, 1])
    assert found["Color Theory"] == ("color theory", "case")
    # A capitalised word is spelt as it is; through its small form it is the other spelling all the same.
    assert found["Colour-Theories"] == ("color theory", "spelling")
    assert found["colour theories"] == ("color theory", "spelling")


def test_similarity_counts_edits_over_letters():
    forms = pa.array(["color theory", "colour theory", "Color theory"])
    found = merge(np.zeros(3, np.int64), forms, np.array([2, 1, 1]))
    assert found.into.tolist() == [0, 0, 0]
    assert found.similarity.tolist() == [1, 1 - 1 / 13, 1]


def test_words_are_spelt_like_their_most_frequent_neighbour_and_chains_do_not_run_on():
    forms = ("organise event", "organize event", "organize trip", "organise trip")
    assert merged(*forms, count=[1, 2, 4, 1]) == {
        "organise event": ("organize event", "spelling"),
        "organise trip": ("organize trip", "spelling"),
    }
    # Each is a spelling of the next, the outer two are two edits apart.
    chain = ("favourite", "favorite", "favorete")
    assert merged(*chain, count=[1, 2, 1]) == {
        "favourite": ("favorite", "spelling"),
        "favorete": ("favorite", "spelling"),
    }
    assert merged(*chain, count=[3, 2, 1]) == {"favorite": ("favourite", "spelling")}


def test_groups_and_names_of_people_stay_apart():
    assert merged("tea", "Tea", group=[0, 1]) == {}
    people = np.ones(4, np.bool_)
    assert merged("adams", "Adam", "Ann E. Lee", "Anne Lee", named=people) == {}
    assert merged("friends", "friend", named=people[:2]) == {}
    assert merged("o'neil", "O’Neil", "oneil", named=people[:3]) == {
        "O’Neil": ("oneil", "punctuation"),
        "o'neil": ("oneil", "punctuation"),
    }


def test_vectors_join_forms_that_share_a_word_and_are_near():
    forms = ("morning run", "run at dawn", "sunset walk", "evening stroll")
    vectors = np.array([[1, 0], [0.96, 0.28], [0, 1], [0, 1]], np.float32)
    found = merge(np.zeros(4, np.int64), pa.array(forms), np.ones(4, np.int64), vectors=vectors, cosine=0.9)
    # The last two are the same vector, but share no word.
    assert found.into.tolist() == [0, 0, 2, 3]
    assert RULES[found.rule[1]] == "vector"
    assert found.similarity[1] == pytest.approx(0.96)
    assert (
        merge(np.zeros(4, np.int64), pa.array(forms), np.ones(4, np.int64), vectors=vectors, cosine=0.97).into[1] == 1
    )


def test_vectors_join_neither_people_nor_numbers():
    def by_vectors(forms, named=None):
        size = len(forms)
        same = np.tile(np.array([[0.6, 0.8]], np.float32), (size, 1))
        found = merge(np.zeros(size, np.int64), pa.array(forms), np.ones(size, np.int64), named=named, vectors=same)
        return [forms[into] for into in found.into]

    assert by_vectors(["trip of 2021", "trip of 2022", "2021 trip"]) == ["2021 trip", "trip of 2022", "2021 trip"]
    assert by_vectors(["5 km run", "run", "5-km run"]) == ["5 km run", "run", "5 km run"]
    assert by_vectors(["ann lee", "ann li"], np.array([True, False])) == ["ann lee", "ann li"]
    # "Ann" is a person; "ann", which is the same but for its capital and comes first, takes nothing in for her.
    assert by_vectors(["ann", "Ann", "ann again"], np.array([False, True, False])) == ["ann", "ann", "ann again"]


def test_cosines_are_exact_in_whatever_order_they_are_added_up():
    rows = np.random.default_rng(3).normal(size=(2, 256))
    rows[1] = rows[0] + 0.3 * rows[1]
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    forms, one = pa.array(["tea time", "tea hour"]), np.ones(2, np.int64)
    orders = [np.random.default_rng(seed).permutation(256) for seed in range(20)]
    found = {merge(0 * one, forms, one, vectors=rows[:, order], cosine=0.9).similarity[1] for order in orders}
    assert len({float(rows[0][order] @ rows[1][order]) for order in orders}) > 1
    (exact,) = found
    assert exact == pytest.approx(rows[0] @ rows[1], abs=1e-7)


def test_a_hub_word_gives_no_pairs_to_compare():
    forms = [f"club {chr(97 + n // 26)}{chr(97 + n % 26)}x" for n in range(HUB + 1)]
    same = np.tile(np.array([[1.0, 0.0]]), (HUB + 1, 1))
    for size, left in ((HUB, 1), (HUB + 1, HUB + 1)):
        found = merge(np.zeros(size, np.int64), pa.array(forms[:size]), np.ones(size, np.int64), vectors=same[:size])
        assert len(set(found.into.tolist())) == left


def test_faults_are_told():
    with pytest.raises(SchemaError, match="twice"):
        merged("a", "a")
    with pytest.raises(SchemaError, match="differ in length"):
        merged("a", "b", count=[1])


def test_nothing_to_merge():
    found = merge(np.zeros(0, np.int64), pa.array([], pa.string()), np.zeros(0, np.int64))
    assert len(found.into) == 0
    assert merged("", " ") == {" ": ("", "exact")}


text = st.text(st.sampled_from("abcerstu -_.'1É日"), max_size=8) | st.sampled_from(
    ["colour", "color", "Colours", "receive", "recieve", "yoga class", "yoga classes", "the gym", "C++", "1.5", "15"]
)


@settings(deadline=None, max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 2), text, st.integers(1, 4)), max_size=14, unique_by=lambda one: one[:2]))
def test_merging_is_a_projection_that_does_not_look_at_other_groups(rows):
    def run(rows):
        group, forms, count = (list(part) for part in zip(*rows, strict=True)) if rows else ([], [], [])
        found = merge(np.array(group, np.int64), pa.array(forms, pa.string()), np.array(count, np.int64))
        return found, [(group[n], forms[n], forms[found.into[n]], found.rule[n]) for n in range(len(rows))]

    found, told = run(rows)
    assert (found.into[found.into] == found.into).all()
    assert ((found.rule < 0) == (found.into == np.arange(len(rows)))).all()
    assert all(rows[n][0] == rows[m][0] for n, m in enumerate(found.into))
    # The kept form is never rarer.
    assert all(rows[n][2] <= rows[m][2] for n, m in enumerate(found.into))
    assert ((found.similarity > 0) & (found.similarity <= 1)).all()
    alone = run([row for row in rows if row[0] == 1])[1]
    assert alone == [one for one in told if one[0] == 1]


words = st.text(st.sampled_from("aeinorst"), min_size=4, max_size=10)


@settings(deadline=None, max_examples=100)
@given(st.lists(words, max_size=12, unique=True))
def test_variants_are_what_comparing_all_pairs_finds(found):
    forms = sorted(
        {*found, *(word[:3] + word[4:] for word in found), *(word[:3] + word[3:5][::-1] + word[5:] for word in found)}
    )
    left, right = variants(forms)
    wanted = [
        (one, two)
        for one, two in combinations(range(len(forms)), 2)
        if is_variant(forms[one], forms[two]) and not {forms[one], forms[two]} & words_of("names")
    ]
    assert list(zip(left.tolist(), right.tolist(), strict=True)) == wanted


@given(words, words)
def test_variants_are_symmetric_and_begin_alike(one, two):
    assert is_variant(one, two) == is_variant(two, one)
    assert not is_variant(one, two) or one[0] == two[0]
    assert not is_variant(one[:4], two[:4])


@given(st.text(st.characters(categories=["Ll"]), min_size=1, max_size=12))
def test_a_singular_is_its_own_or_shorter(word):
    assert len(singular(word)) <= len(word) or singular(word) in ("calf", "fish")
    assert singular(word)[:1] == word[:1] or not word.isascii()


def test_many_words_alike_make_linear_work():
    # Each of 64 words differs from six others in one letter.
    words = ["b" + "".join("ae"[n >> bit & 1] + "n" for bit in range(6)) + "tion" for n in range(64)]
    left, _ = variants(words)
    assert len(left) == 64 * 6 // 2
