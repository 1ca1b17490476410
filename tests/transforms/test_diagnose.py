"""Diagnostics worked out by hand."""

from schemas.tables import NOTE_FIELDS, build
from tests.transforms.test_derive import interactions, questions
from transforms.diagnose import degree_figures, missed_gold, tag_figures

ROWS = [("a", "s1", 0, 1, "one"), ("a", "s1", 1, 1, "two"), ("b", "s1", 0, 1, "three")]


def notes(*tags):
    columns = {name: [[]] * len(tags) for name in NOTE_FIELDS}
    columns["what"] = [list(t) for t in tags]
    return build(
        "notes",
        {
            "case_id": [r[0] for r in ROWS],
            "interaction_id": [f"{r[1]}/{r[2]}" for r in ROWS],
            **columns,
            "summary": [""] * len(tags),
            "status": ["ok"] * len(tags),
            "error": [None] * len(tags),
            "prompt_tokens": [0] * len(tags),
            "completion_tokens": [0] * len(tags),
        },
    )


def figures(table):
    return {
        (row["case_id"], row["question_id"], row["retriever"], row["metric"]): row["value"] for row in table.to_pylist()
    }


def test_missed_evidence_without_a_tag_that_the_question_names():
    asked = questions(
        [("a", "q", [], ["s1/0", "s1/1"], [], []), ("b", "q", [], ["s1/0"], [], []), ("b", "none", [], [], [], [])]
    )
    asked = asked.set_column(2, asked.schema.field(2), [["Is the garden_gate open?", "Who has a DOG?", "x"]])
    run = build(
        "runs",
        {
            "case_id": ["a", "a", "b"],
            "question_id": ["q", "q", "q"],
            "retriever": ["p"] * 3,
            "rank": [1, 11, 12],
            "interaction_id": ["s1/0", "s1/1", "s1/0"],
            "score": [1.0, 0.5, 0.5],
        },
    )
    made = missed_gold({"p": run}, asked, interactions(ROWS), notes(["food"], ["open/door"], ["pet/my_dog"]), 10)
    assert figures(made) == {
        ("a", "q", "p", "gold"): 2,
        ("a", "q", "p", "untagged"): 1,
        ("a", "q", "p", "missed"): 1,
        ("a", "q", "p", "missed_untagged"): 0,
        ("b", "q", "p", "gold"): 1,
        ("b", "q", "p", "untagged"): 0,
        ("b", "q", "p", "missed"): 1,
        ("b", "q", "p", "missed_untagged"): 0,
    }


def test_expected_texts_are_evidence_where_no_id_is_named():
    asked = questions([("a", "q", [], [], [], ["TWO"])])
    made = figures(missed_gold({"p": _no_runs()}, asked, interactions(ROWS), notes([], [], []), 10))
    assert (made["a", "q", "p", "gold"], made["a", "q", "p", "missed_untagged"]) == (1, 1)


def _no_runs():
    from schemas.tables import empty

    return empty("runs")


def test_tags_by_case():
    made = figures(tag_figures(notes(["x", "y"], ["x"], [])))
    assert [made["a", "", "", name] for name in ("notes", "tag_uses", "tags", "tags_once")] == [2, 3, 2, 1]
    assert [made["b", "", "", name] for name in ("notes", "tag_uses", "tags", "tags_once")] == [1, 0, 0, 0]


def test_degrees_by_case():
    nodes = build(
        "nodes",
        {
            "case_id": ["a"] * 3 + ["b"],
            "graph": ["g"] * 4,
            "node_id": [0, 1, 2, 0],
            "kind": ["tag", "file", "file", "file"],
            "key": ["t", "1", "2", "1"],
            "text": [None] * 4,
            "interaction_id": [None, "1", "2", "1"],
        },
    )
    edges = build(
        "edges",
        {
            "case_id": ["a", "a"],
            "graph": ["g", "g"],
            "source": [0, 0],
            "target": [1, 2],
            "kind": ["k", "k"],
            "weight": [1.0, 1.0],
            "interaction_id": [None, None],
        },
    )
    made = figures(degree_figures("g", nodes, edges))
    own = {name: made["a", "", "g", name] for name in ("nodes", "edges", "isolated_files", "degree_p50", "degree_max")}
    assert own == {"nodes": 3, "edges": 2, "isolated_files": 0, "degree_p50": 1, "degree_max": 2}
    assert (made["b", "", "g", "isolated_files"], made["b", "", "g", "degree_max"]) == (1, 0)
