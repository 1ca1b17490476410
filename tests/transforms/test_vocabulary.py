"""The excerpt of a case's vocabulary: what fits, what serves the text best, always the same."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from transforms.vocabulary import Vocabulary


def words(text):
    """Count tokens as words and line ends, so that budgets can be worked out by hand."""
    return len(text.replace("/", " ").replace("_", " ").split()) + text.count("\n")


def made(*terms):
    vocabulary = Vocabulary()
    vocabulary.add(terms)
    return vocabulary


def test_nothing_to_show():
    assert Vocabulary().excerpt("running", 100, words) == ""
    assert made("sport/running").excerpt("running", 0, words) == ""
    assert made("sport/running").excerpt("running", 1, words) == ""
    assert made("", " \n ").excerpt("running", 100, words) == ""
    assert len(made("", "a", "a", "b")) == 2


def test_all_terms_in_order_where_there_is_room():
    assert made("b/x", "a_y", "Ana", "b/a").excerpt("", 100, words) == "Ana\na_y\nb/a\nb/x"


def test_terms_that_share_rarer_tokens_come_first():
    vocabulary = made("sport/running", "sport/tennis", "sport/chess", "music/piano")
    # A term costs two words and a line end, so that two of them fit into 6.
    assert vocabulary.excerpt("A sport: chess", 3, words) == "sport/chess"
    assert vocabulary.excerpt("A sport: chess", 6, words) == "sport/chess\nsport/tennis"
    assert vocabulary.excerpt("The piano", 3, words) == "music/piano"


def test_two_shared_tokens_weigh_more_than_one():
    vocabulary = made("travel/porto", "travel/lisbon", "food/porto")
    assert vocabulary.excerpt("Travel to Porto", 3, words) == "travel/porto"


def test_plurals_and_capitals_are_the_same_token():
    vocabulary = made("pet/cats", "pet/dog", "glass/boss")
    assert vocabulary.excerpt("My CAT", 3, words) == "pet/cats"
    assert vocabulary.excerpt("two dogs", 3, words) == "pet/dog"
    assert vocabulary.excerpt("gla", 3, words) == "glass/boss"  # no match: the latest


def test_text_without_spaces_finds_terms():
    vocabulary = made("旅行/東京", "sport/running", "food/tea")
    assert vocabulary.excerpt("昨日東京に行った", 2, words) == ""  # a line end counts, too
    assert vocabulary.excerpt("昨日東京に行った", 3, words) == "旅行/東京"


def test_the_most_used_come_next_and_then_the_latest():
    vocabulary = made("a", "b", "c", "d", "b")
    assert vocabulary.excerpt("", 2, words) == "b"
    assert vocabulary.excerpt("", 4, words) == "b\nd"
    assert vocabulary.excerpt("", 6, words) == "b\nc\nd"
    vocabulary.add(["a"])
    assert vocabulary.excerpt("", 2, words) == "a"
    assert vocabulary.excerpt("c", 4, words) == "a\nc"


def test_a_long_term_leaves_room_to_shorter_ones():
    vocabulary = made("tea", "milk", "a b c d e f g h")
    assert vocabulary.excerpt("", 4, words) == "milk\ntea"


def test_terms_are_cut_and_take_one_line():
    text = made("x\ny\tz", "w" * 500).excerpt("", 100, words)
    assert text == "w" * 120 + "\nx y z"


def test_a_count_that_does_not_add_up_is_kept():
    def count(text):
        return len(text) if "\n" in text.strip() else 1

    vocabulary = made(*(f"term_{n}" for n in range(50)))
    text = vocabulary.excerpt("", 100, count)
    assert 0 < count(text) <= 100


def test_another_count_is_asked_anew():
    vocabulary = made("a b c", "d")
    assert vocabulary.excerpt("", 2, words) == "d"
    assert vocabulary.excerpt("", 2, lambda text: 1) == "a b c\nd"


def test_few_counts_are_asked_however_many_terms_there_are():
    asked = []

    def count(text):
        asked.append(text)
        return words(text)

    rng = random.Random(5)
    vocabulary = made(*(f"topic_{rng.randrange(40)}/thing_{n}" for n in range(5000)))
    text = " ".join(f"topic {n} thing {7 * n}" for n in range(100))
    first = vocabulary.excerpt(text, 400, count)
    assert words(first) <= 400
    assert words(first) > 380
    assert len(asked) < 120
    asked.clear()
    assert vocabulary.excerpt(text, 400, count) == first
    assert len(asked) < 4


TERMS = st.lists(st.text("ab /_Zé漢1", max_size=6), max_size=30)


@settings(max_examples=150, deadline=None)
@given(st.lists(TERMS, max_size=4), st.text("ab /_Zé漢1", max_size=20), st.integers(0, 60))
def test_the_excerpt_is_bounded_sorted_and_the_same_again(batches, text, budget):
    vocabulary, other = Vocabulary(), Vocabulary()
    for batch in batches:
        vocabulary.add(batch)
    other.add(term for batch in batches for term in batch)
    excerpt = vocabulary.excerpt(text, budget, words)
    assert excerpt == other.excerpt(text, budget, words) == vocabulary.excerpt(text, budget, words)
    lines = excerpt.split("\n") if excerpt else []
    known = {" ".join(term.split()) for batch in batches for term in batch}
    assert lines == sorted(set(lines))
    assert set(lines) <= known
    assert words(excerpt) <= budget
    if budget >= sum(words(term) + 1 for term in known):
        assert set(lines) == known - {""}
