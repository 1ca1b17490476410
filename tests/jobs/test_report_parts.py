"""The parts of the report, by values worked out by hand."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.report import browse, charts, figures, hits, page
from jobs.report.costs import costs
from jobs.report.graphs import Hub, graphs
from jobs.report.vocabulary import vocabulary
from pipelines.store import Generation, Manifest, Store
from schemas.tables import build
from tests.transforms.test_compare import OLD, notes

# -- drawings -------------------------------------------------------------------------------------------------------


def test_an_axis_has_round_ticks_around_its_values():
    held = charts.scale([0.402, 0.434, None])
    assert [label for _, label in held.ticks] == ["0.40", "0.41", "0.42", "0.43", "0.44"]
    assert held.share(0.42) == pytest.approx(0.5)
    assert (held.share(-1), held.share(9)) == (0.0, 1.0)
    assert [label for _, label in charts.scale([-0.3, -0.1], zero=True, steps=3).ticks] == [
        "−0.3",
        "−0.2",
        "−0.1",
        "0.0",
    ]
    assert [label for _, label in charts.scale([0, 150_000_000], steps=3).ticks] == ["0", "50M", "100M", "150M"]
    assert [label for _, label in charts.scale([0, 0.5], steps=2).ticks] == ["0.00", "0.25", "0.50"]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.floats(-1e9, 1e9, allow_subnormal=False), max_size=6), st.booleans())
def test_an_axis_holds_every_value(values, zero):
    held = charts.scale(values, zero=zero)
    slack = 1e-9 * max(1.0, *map(abs, [*values, 0.0]))
    assert all(held.low - slack <= value <= held.high + slack for value in [*values, *([0.0] if zero else [])])
    assert 2 <= len(held.ticks) <= 12
    assert held.low < held.high


def test_marks_are_percent_of_the_width_and_labels_skip_where_room_is_short():
    held = charts.scale([-0.2, 0.2], zero=True, steps=4)
    axis = charts.axis(held, zero=True)
    assert [(tick.label, tick.minor) for tick in axis.ticks] == [
        ("−0.2", False),
        ("−0.1", True),
        ("0.0", False),
        ("0.1", True),
        ("0.2", False),
    ]
    assert axis.zero == 50.0
    assert charts.mark(held, 0.1, None, None) == charts.Mark(74.0, None, None)
    assert charts.mark(held, 0.0, -0.2, 0.2) == charts.Mark(50.0, 2.0, 98.0)


def test_lines_lie_where_their_values_are():
    made = charts.lines("MRR", "distractors", [("a", [(0, 0.0, None, None), (10, 1.0, 0.5, 1.0)])], ["a"])
    first, last = made.lines[0].points
    assert (first.x, last.x) == (11.0, 97.0)
    assert (first.y, last.y, last.low) == (212.0, 12.0, 112.0)
    assert made.rows == (("a", ((0.0, None, None), (1.0, 0.5, 1.0))),)
    assert made.zero is None
    below = charts.lines("d", "x", [("a", [(0, -1.0, None, None), (1, 1.0, None, None)])], ["a"])
    assert below.zero == 112.0


def test_of_many_lines_the_highest_are_drawn_and_names_keep_their_style():
    names = [f"p{n}" for n in range(11)]
    series = [(name, [(0.0, n / 10, None, None), (1.0, n / 10, None, None)]) for n, name in enumerate(names)]
    made = charts.lines("t", "x", series, names)
    assert [line.name for line in made.lines] == names[3:]
    assert made.left_out == 3
    assert len({line.style for line in made.lines}) == charts.STYLES
    assert len(made.rows) == 11
    few = charts.lines("t", "x", series[4:6], names)
    assert [line.style for line in few.lines] == [4, 5]


def test_an_axis_over_orders_of_magnitude_is_logarithmic():
    made = charts.lines("s", "size", [("", [(x, 1.0, None, None) for x in (100, 1000, 10_000)])], [""])
    xs = [point.x for point in made.lines[0].points]
    assert xs[1] - xs[0] == pytest.approx(xs[2] - xs[1], abs=0.02)


# -- metrics and sentences ------------------------------------------------------------------------------------------


def judged(means, pairs=(), *, cases=10, metric="mrr"):
    """Metrics of one level: {preset: (mean, low, high)}, and pairs (a, b, difference, low, high, p, p_holm)."""
    cells = {
        ("interaction", "all", metric, name): {"mean": m, "low": low, "high": high, "questions": 40, "cases": cases}
        for name, (m, low, high) in means.items()
    }
    names = ("difference", "low", "high", "p_value", "p_holm")
    made = {
        ("interaction", metric, a, b): {
            **dict(zip(names, rest, strict=True)),
            "metric": metric,
            "effect": 1.5,
            "cases": cases,
        }
        for a, b, *rest in pairs
    }
    return figures.Judged(tuple(means), ("interaction",), (metric,), ("all",), cells, made)


MEANS = {"bm25": (0.4, 0.35, 0.45), "dense": (0.5, 0.45, 0.55)}


@pytest.mark.parametrize(
    ("pair", "ends"),
    [
        (
            ("bm25", "dense", -0.1, -0.15, -0.05, 0.002, 0.002),
            "[0.050, 0.150], which excludes 0; after Holm's correction for 1 preset p is 0.0020.",
        ),
        (
            ("dense", "bm25", 0.1, -0.05, 0.2, 0.3, 0.3),
            "interval [−0.050, 0.200], which includes 0: the two cannot be told apart.",
        ),
        (
            ("dense", "bm25", 0.1, 0.05, 0.15, 0.01, 0.2),
            "after Holm's correction for 1 preset p is 0.2000: it may be chance.",
        ),
    ],
)
def test_the_first_sentence_says_what_is_best_and_whether_its_interval_excludes_0(pair, ends):
    (told,) = figures.sentences(judged(MEANS, [pair]))
    start = "dense has the highest MRR, 0.500 [0.450, 0.550], over 40 questions of 10 cases (interaction level): "
    start += "0.100 above bm25, 95 % interval"
    assert told.startswith(start)
    assert told.endswith(ends)


def test_few_cases_cannot_give_small_p_values_and_that_is_said():
    pairs = [("dense", "bm25", 0.1, 0.05, 0.15, 0.25, 0.25)]
    (told,) = figures.sentences(judged(MEANS, pairs, cases=3))
    assert told.endswith("p is 0.2500, which 3 cases cannot bring below 0.2500.")


def test_ties_and_single_cases_are_told_as_they_are():
    alike = {"bm25": (0.5, None, None), "dense": (0.5, None, None), "rrf": (0.4, None, None)}
    pairs = [("bm25", "rrf", 0.1, None, None, None, None)]
    (told,) = figures.sentences(judged(alike, pairs, cases=1))
    assert told == (
        "bm25 and dense have the highest MRR, 0.500, over 40 questions of 1 case (interaction level): 0.100 above rrf, "
        "the next best. There are too few questions or cases for intervals."
    )
    (alone,) = figures.sentences(judged({"bm25": (0.5, 0.4, 0.6)}))
    assert alone.endswith("(interaction level).")


def test_a_difference_can_be_read_from_both_sides():
    found = judged(MEANS, [("bm25", "dense", -0.1, -0.15, -0.05, 0.01, 0.02)])
    there, back = (found.difference("interaction", "mrr", *names) for names in (("bm25", "dense"), ("dense", "bm25")))
    assert (there.value, there.low, there.high, there.effect, there.verdict) == (-0.1, -0.15, -0.05, 1.5, "below")
    assert (back.value, back.low, back.high, back.effect, back.verdict) == (0.1, 0.05, 0.15, -1.5, "above")
    assert found.difference("interaction", "mrr", "bm25", "bm25") is None
    assert figures.verdict(0.0, 0.1) == "open"


def test_variants_are_found_by_name():
    names = ["bm25", "bm25-raw", "gaama", "gaama-semantic", "gaama-semantic-dampened", "taggraph-basic", "dense"]
    assert figures.variants(names) == {"bm25": ["bm25-raw"], "gaama": ["gaama-semantic", "gaama-semantic-dampened"]}


# -- tags, graphs, costs --------------------------------------------------------------------------------------------


def test_tags_are_counted_by_case_and_reuse():
    made = vocabulary(notes(*(row for row in OLD if row[0] == case)) for case in ("c1", "c2"))
    # c1: ann once, trip/lisbon in two notes (said twice in one of them), tram once; c2 has a note without tags.
    assert made.notes == (("ok", 2), ("empty", 1), ("failed", 1))
    assert {field: rest for field, *rest in made.fields}["what"] == [2, 3, 0.75]
    assert made.distinct == 3
    assert made.top[0] == ("what", "trip/lisbon", 2, 1)
    assert [row[:2] for row in made.reuse[:2]] == [("1", 2), ("2", 1)]
    spread = dict(made.spread)
    assert (spread["distinct tags"][0], spread["distinct tags"][-1]) == (0, 3)
    assert spread["uses of a distinct tag"] == (pytest.approx(4 / 3),) * 5
    assert spread["share of tags used once"] == (pytest.approx(2 / 3),) * 5
    assert vocabulary([]) is None


@pytest.fixture
def store(tmp_path) -> Store:
    return Store.create(str(tmp_path / "c"), 2)


def put(store, unit, parts, run=None) -> None:
    written = tuple(store.write_part(shard, f"{unit.replace('/', '-')}-{shard}", made) for shard, made in parts.items())
    tables = tuple(next(iter(parts.values()), {}))
    store.write_manifest(Manifest(unit, unit.replace("/", "-"), 1, {}, tables, {}, written, run or {}))


def graph_tables(case, edges):
    """A star of six files round a tag, its nodes out of order, and a file without an edge."""
    numbers = [3, 0, 1, 2, 4, 5, 6, 7]
    nodes = build(
        "nodes",
        {
            "case_id": [case] * 8,
            "graph": ["g"] * 8,
            "node_id": numbers,
            "kind": ["tag" if n == 0 else "file" for n in numbers],
            "key": [f"k{n}" for n in numbers],
            "text": ["<b>hub</b>" if n == 0 else None for n in numbers],
            "interaction_id": [None if n == 0 else f"i{n}" for n in numbers],
        },
    )
    made = {
        "case_id": [case] * len(edges),
        "graph": ["g"] * len(edges),
        "source": [a for a, _ in edges],
        "target": [b for _, b in edges],
        "kind": ["tag_file"] * len(edges),
        "weight": [1.0] * len(edges),
        "interaction_id": [None] * len(edges),
    }
    return {"nodes": nodes, "edges": build("edges", made)}


def test_degrees_hubs_and_lonely_files(store):
    star = [(0, n) for n in range(1, 7)]
    put(store, "graph/g", {0: graph_tables("a", star), 1: graph_tables("b", star[:2])})
    (made,) = graphs(Generation(store, "main", {"units": {"graph/g": "graph-g"}}))
    assert (made.graph, made.cases, made.edges) == ("g", 2, (("tag_file", 8, 1.0),))
    files, tags, every = made.nodes
    # Files: six and two of degree 1, one and five of degree 0; tags: degrees 6 and 2.
    assert (files.kind, files.nodes, files.mean, files.median, files.high, files.most, files.isolated) == (
        "file",
        14,
        8 / 14,
        1,
        1,
        1,
        6,
    )
    assert (tags.kind, tags.nodes, tags.mean, tags.median, tags.high, tags.most, tags.isolated) == (
        "tag",
        2,
        4.0,
        2,
        6,
        6,
        0,
    )
    assert (every.kind, every.nodes, every.mean) == ("all", 16, 1.0)
    assert [row[:2] for row in made.spread] == [("0", 6), ("1", 8), ("2", 1), ("3–4", 0), ("5–8", 1)]
    assert [row[3] for row in made.spread] == [6, 8, 0, 0, 0]
    assert made.hubs[:2] == (Hub("a", "tag", "<b>hub</b>", 6), Hub("b", "tag", "<b>hub</b>", 2))
    assert len(made.hubs) == 10
    assert all(hub.degree == 1 for hub in made.hubs[2:])


def test_presets_that_were_ranked_together_are_counted_once(store):
    for unit, seconds, busy in (("rank/a", 7.0, 5.0), ("rank/b", 7.2, 5.0), ("rank/c", 1.0, 0.4)):
        put(store, unit, {}, {"seconds": seconds, "busy_seconds": busy, "made_at": "2026-01-02T03:04:05.6+00:00"})
    engine = {"seconds": 1800, "requests": 4, "prompt_tokens": 3_000_000, "completion_tokens": 1_000_000}
    put(store, "extract", {}, engine)
    units = {name: name.replace("/", "-") for name in ("rank/a", "rank/b", "rank/c", "extract")}
    prices = {"prompt": 0.5, "completion": 2.0, "hour": 4.0}
    made = costs(Generation(store, "main", {"units": units, "config": {"extract": {"prices": prices}}}))
    assert dict(made.stages) == {"extract": 1800.0, "rank": pytest.approx(8.2)}
    extract = next(one for one in made.units if one.unit == "extract")
    assert dict(extract.engine)["prompt tokens"] == 3_000_000
    assert extract.price == pytest.approx(3 * 0.5 + 1 * 2.0 + 0.5 * 4.0)
    assert made.units[1].made_at == "2026-01-02 03:04:05"
    assert made.units[1].price is None


# -- rankings -------------------------------------------------------------------------------------------------------


def interactions(rows):
    """Interactions from (case, id, session, text)."""
    n = len(rows)
    return build(
        "interactions",
        {
            "case_id": [row[0] for row in rows],
            "interaction_id": [row[1] for row in rows],
            "session_id": [row[2] for row in rows],
            "content_hash": ["0" * 32] * n,
            "position": list(range(n)),
            "started_at": [None] * n,
            "started_at_text": [None] * n,
            "user_text": [row[3] for row in rows],
            "assistant_text": [""] * n,
            "speakers": [["user"]] * n,
            "message_ids": [[]] * n,
            "source": ["f"] * n,
            "source_offset": [0] * n,
        },
    )


def questions(rows):
    """Questions from (case, id, gold interactions, gold sessions, expected texts)."""
    n = len(rows)
    return build(
        "questions",
        {
            "case_id": [row[0] for row in rows],
            "question_id": [row[1] for row in rows],
            "question": ["?"] * n,
            "question_type": [""] * n,
            "asked_at": [None] * n,
            "answer": [None] * n,
            "gold_session_ids": [row[3] for row in rows],
            "gold_message_ids": [[]] * n,
            "gold_interaction_ids": [row[2] for row in rows],
            "expected_contains": [row[4] for row in rows],
            "answerable": [True] * n,
        },
    )


def ranking(rows):
    """A run from (case, question, rank, interaction, score)."""
    names = ("case_id", "question_id", "rank", "interaction_id", "score")
    return build("runs", {**dict(zip(names, zip(*rows, strict=True), strict=True)), "retriever": ["p"] * len(rows)})


SAID = interactions(
    [
        ("a", "1", "s", "Miso sleeps"),
        ("a", "2", "s", "MISO eats fish"),
        ("a", "3", "t", "rain"),
        ("b", "1", "s", "miso fish"),
    ]
)
ASKED = questions(
    [
        ("a", "named", ["2", "gone"], ["s"], []),
        ("a", "session", [], ["s"], []),
        ("a", "texts", [], [], ["miso", "fish"]),
        ("a", "nothing", [], [], []),
        ("b", "named", ["1"], [], []),
    ]
)


def test_evidence_is_what_is_named_else_the_session_else_what_holds_the_texts():
    made = hits.Evidence.of(ASKED, SAID)
    assert made.sizes.tolist() == [1, 2, 1, 0, 1]
    rows, counts = made.shown(0, 5, 8)
    assert (rows.tolist(), counts.tolist()) == ([1, 0, 1, 1, 3], [1, 2, 1, 0, 1])
    assert made.shown(1, 2, 1)[0].tolist() == [0]
    every = [("a", q, n + 1, str(n + 1), 1.0) for q in ("named", "session", "texts", "nothing") for n in range(3)]
    found = hits.top(ranking([*every, ("b", "named", 1, "1", 1.0)]), made, 10)
    assert found.mark.tolist() == [2, 1, 0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 1]
    assert found.between(2, 4).mark.tolist() == [0, 1, 0, 0, 0, 0]


def test_results_come_in_order_and_cut():
    made = hits.Evidence.of(ASKED, SAID)
    mixed = [
        ("b", "named", 1, "1", 9.0),
        ("a", "named", 3, "1", 1.0),
        ("a", "named", 1, "3", 3.0),
        ("a", "named", 2, "2", 2.0),
    ]
    found = hits.top(ranking(mixed), made, 2)
    assert (found.counts.tolist(), found.row.tolist(), found.score.tolist()) == (
        [2, 0, 0, 0, 1],
        [2, 1, 3],
        [3.0, 2.0, 9.0],
    )
    assert hits.top(ranking(mixed).slice(0, 0), made, 2).row.tolist() == []


def test_the_first_rank_is_that_of_the_reciprocal_rank():
    rows = [("a", "named", "p", "interaction", "mrr", 1 / 3), ("b", "named", "p", "interaction", "mrr", 0.0)]
    rows += [
        ("a", "named", "q", "interaction", "mrr", 1 / 99),
        ("a", "named", "p", "session", "mrr", 1.0),
        ("a", "named", "p", "interaction", "map", 1.0),
    ]
    names = ("case_id", "question_id", "retriever", "level", "metric", "value")
    table = {
        **dict(zip(names, zip(*rows, strict=True), strict=True)),
        "question_type": [""] * 5,
        "answerable": [True] * 5,
    }
    made = hits.first_ranks(build("question_metrics", table), ASKED, "interaction")
    assert {name: ranks.tolist() for name, ranks in made.items()} == {
        "p": [3, -1, -1, -1, 0],
        "q": [99, -1, -1, -1, -1],
    }


@settings(max_examples=200, deadline=None)
@given(st.lists(st.floats(allow_nan=False, width=32).map(float), min_size=1, max_size=5))
def test_scores_keep_four_digits(values):
    made = browse._digits(np.array(values))
    for value, rounded in zip(values, made, strict=True):
        assert math.isclose(value, rounded, rel_tol=5.01e-4) or value == rounded
        assert len(f"{rounded:e}".partition("e")[0].replace("-", "").rstrip("0").replace(".", "")) <= 7


def test_a_block_ends_with_its_case_unless_that_is_very_large():
    cases = ["a"] * 100 + ["b"] * 100 + ["c"] * 2500
    assert list(browse._slices(cases)) == [(0, 200), (200, 1200), (1200, 2200), (2200, 2700)]
    assert list(browse._slices([])) == []


# -- texts ----------------------------------------------------------------------------------------------------------


def test_characters_that_a_browser_drops_are_written_out():
    assert page.visible("a\x00b\x1b[2Jc\u2028d\u202ee\x9f") == "a\\x00b\\x1b[2Jc\\u2028d\\u202ee\\x9f"
    assert page.visible("tab\tline\nnaïve 日本 \U0001f600\xa0") == "tab\tline\nnaïve 日本 \U0001f600\xa0"


def test_json_in_a_script_element_cannot_end_it():
    made = str(page.script_json(["</script><!--", "&", "\u2028", "é"]))
    assert not set("<>&\u2028") & set(made)
    assert json.loads(made) == ["</script><!--", "&", "\u2028", "é"]
