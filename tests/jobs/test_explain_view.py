"""How explanations are shown: as text, as JSON, as a drawing."""

import json
import xml.etree.ElementTree as ET

import pytest

from indexers.explain import Edge, Explanation, Part, Step
from jobs.explain_drawing import svg
from jobs.explain_view import as_dict, as_text

CHRONO = (Edge("chronological"),)
HOSTILE = "<script>alert(1)</script>\"'&\x1b[2J\x00\ud800]]>\u2028" + "y" * 100_000


def path():
    return Part(
        "path",
        "walks along",
        0.06,
        ("lisbon", "trip"),
        (
            Step(3, "tag", (), 0.1, "travel/lisbon", ""),
            Step(4, "topic", (Edge("tag_topic"),), 0.08, "travel/lisbon", ""),
            Step(0, "file", (Edge("topic_file"), Edge("about", against=True)), 0.06, "s1/0", ""),
            Step(1, "file", CHRONO, 0.06, "s1/1", ""),
            Step(2, "file", CHRONO, 0.06, "s1/2", ""),
        ),
    )


def diffusion():
    beginning = Part(
        "beginning", "other walks that begin with", 0.03, (), (Step(5, "fact", (), 0.03, "f1", "A claim"),)
    )
    parts = (path(), beginning, Part("rest", "all other walks", 0.0099))
    return Explanation("PageRank", 0.1, parts, (), "taggraph")


def blend():
    term = Part("term", "lisbon", 6.0, ("lisbon",), facts=(("count", 2), ("idf", 1.23456)))
    again = Part("term", "trip", 2.0, ("trip",), facts=(("count", 1), ("times asked", 2)))
    text = Explanation("BM25 over the note", 8.0, (term, again), ("in no file of the case: zzz",))
    arms = (
        Part("arm", "bm25", 0.6, facts=(("rank", 2),), inner=text),
        Part("arm", "adaptivegraph", 0.3, inner=diffusion()),
        Part("vector", "cosine", 0.1),
    )
    return Explanation("blend", 1.0, arms)


def test_text_of_paths():
    assert as_text(diffusion()).splitlines() == [
        "PageRank: 0.1",
        " 60.0%  0.06  walks along",
        '        "lisbon" "trip" -> tag travel/lisbon [100.0%] -tag_topic-> topic travel/lisbon [80.0%] '
        "-topic_file/about backwards-> file s1/0 -chronological x2-> file s1/2",
        " 30.0%  0.03  other walks that begin with",
        "        fact A claim -> ...",
        "  9.9%  0.0099  all other walks",
        "remainder: 1.0e-04",
    ]


def test_text_of_arms_and_words():
    lines = as_text(blend()).splitlines()
    assert lines[:8] == [
        "blend: 1",
        " 60.0%  0.6  bm25 (rank 2)",
        "        BM25 over the note: 8",
        "        share  value  word    count    idf  times asked",
        "        -----  -----  ------  -----  -----  -----------",
        "        75.0%      6  lisbon      2  1.235",
        "        25.0%      2  trip        1                   2",
        "        note: in no file of the case: zzz",
    ]
    assert " 30.0%  0.3  adaptivegraph" in lines
    assert "         60.0%  0.06  walks along" in lines
    assert lines[-1] == " 10.0%  0.1  cosine"


def test_text_of_what_is_not_ranked():
    tag = Part("tag", "a matched tag, elsewhere", 0.0, ("rome",), (Step(1, "tag", (), None, "travel/rome"),))
    told = as_text(Explanation("traversal", 0.0, (tag,), ("none is near",), "taggraph"))
    assert told.splitlines() == [
        "traversal: 0",
        "     -  0  a matched tag, elsewhere",
        '        "rome" -> tag travel/rome',
        "note: none is near",
    ]


def test_json_holds_everything():
    told = json.loads(json.dumps(as_dict(blend())))
    assert (told["score"], told["remainder"], told["graph"], told["remarks"]) == (1.0, pytest.approx(0), None, [])
    arm = told["parts"][1]
    assert (arm["share"], arm["inner"]["graph"], arm["facts"]) == (0.3, "taggraph", {})
    first = arm["inner"]["parts"][0]
    assert first["words"] == ["lisbon", "trip"]
    assert first["steps"][2] == {
        "node": 0,
        "kind": "file",
        "name": "s1/0",
        "text": "",
        "edges": [{"kind": "topic_file", "against": False}, {"kind": "about", "against": True}],
        "value": 0.06,
    }
    assert arm["inner"]["remainder"] == pytest.approx(0.0001)
    assert told["parts"][0]["inner"]["parts"][0]["facts"] == {"count": 2, "idf": 1.23456}
    assert as_dict(Explanation("none", 0.0, (Part("tag", "x", 0.0),)))["parts"][0]["share"] is None


SVG = "{http://www.w3.org/2000/svg}"


def texts(drawing):
    return ["".join(node.itertext()) for node in ET.fromstring(drawing).iter(f"{SVG}text")]


def test_drawing_of_paths():
    drawn = svg(diffusion(), "s1/2", "why s1/2")
    found = texts(drawn)
    assert found[:4] == ["question words", "seeds", "nodes between", "interaction"]
    for text in ("lisbon", "trip", "travel/lisbon", "tag", "topic", "s1/0", "A claim", "s1/2", "chronological x2"):
        assert text in found, text
    assert found.count("60.0%") == 5  # two words, and three lines of the path
    assert "30.0%" in found
    root = ET.fromstring(drawn)
    assert root.get("role") == "img"
    assert root.find(f"{SVG}title").text == "why s1/2"
    lines = [node for node in root.iter(f"{SVG}path") if node.get("fill") == "none"]
    assert [line.get("stroke-dasharray") for line in lines if line.get("stroke-width") == "3.10"] == ["5 4"]
    assert {line.get("stroke-width") for line in lines} >= {"5.20", "3.10"}


def test_arms_share_what_they_add():
    found = texts(svg(blend(), "s1/2", "t"))
    # 0.6 of the score comes through bm25, three quarters of that for one word.
    assert {"60.0%", "45.0%", "15.0%", "30.0%", "18.0%", "10.0%"} <= set(found)


def test_what_adds_nothing_is_told_and_not_drawn():
    tag = Part("tag", "a matched tag, elsewhere", 0.0, ("rome",), (Step(1, "tag", (), None, "travel/rome"),))
    idle = Explanation("traversal", 0.0, (tag,), ("none is near",), "taggraph")
    whole = Explanation("blend", 1.0, (Part("vector", "cosine", 1.0), Part("arm", "tags", 0.0, inner=idle)))
    assert as_text(whole).splitlines()[1:] == [
        "100.0%  1  cosine",
        "  0.0%  0  tags",
        "        traversal: 0",
        "        note: none is near",
    ]
    assert "tags" not in texts(svg(whole, "s1/2", "t"))
    assert "travel/rome" in texts(svg(idle, "s1/2", "t"))


def test_nothing_but_the_interaction_where_nothing_leads():
    found = texts(svg(Explanation("BM25", 0.0, (), ("nothing",)), "s1/2", "t"))
    assert found == ["interaction", "interaction", "s1/2"]


def test_drawing_is_safe_inside_a_page():
    step = Step(1, HOSTILE, (Edge(HOSTILE),), 0.5, HOSTILE, HOSTILE)
    part = Part("path", HOSTILE, 0.5, (HOSTILE,), (Step(0, "tag", (), 0.5, HOSTILE, ""), step))
    whole = Explanation(
        HOSTILE, 1.0, (part, Part("arm", HOSTILE, 0.5, inner=Explanation("x", 1.0, (part,)))), (), HOSTILE
    )
    drawn = svg(whole, HOSTILE, HOSTILE)
    root = ET.fromstring(drawn)
    assert {node.tag.removeprefix(SVG) for node in root.iter()} == {"svg", "title", "rect", "text", "path", "g"}
    assert not [name for node in root.iter() for name in node.attrib if name == "id" or name.startswith("on")]
    assert "<script" not in drawn
    assert len(drawn) < 20_000
    assert drawn.encode() == svg(whole, HOSTILE, HOSTILE).encode()


def test_text_is_cut_and_keeps_to_its_line():
    part = Part("path", "walks along", 0.5, (HOSTILE,), (Step(0, "tag", (), 0.5, HOSTILE, ""),))
    told = as_text(Explanation("PageRank", 1.0, (part,), (), "g"))
    assert max(map(len, told.split("\n"))) < 200
    assert len(told.split("\n")) == 4


def test_many_parts_are_drawn_as_one():
    parts = tuple(Part("term", f"word{n}", 1.0, (f"word{n}",)) for n in range(20))
    found = texts(svg(Explanation("BM25", 20.0, parts), "s1/2", "t"))
    assert "12 more" in found
    assert "60.0%" in found


def test_lines_never_pass_behind_boxes():
    long_ = Part(
        "path", "p", 0.5, ("a",), tuple(Step(n, "topic", CHRONO if n % 2 else (), 0.5, f"n{n}") for n in range(6))
    )
    short = Part("path", "p", 0.5, ("a",), (Step(9, "tag", (), 0.5, "n9"), Step(5, "topic", CHRONO, 0.5, "n5")))
    root = ET.fromstring(svg(Explanation("PageRank", 1.0, (long_, short), (), "g"), "x", "t"))
    boxes = [
        (float(r.get("x")), float(r.get("y")), float(r.get("width")), float(r.get("height")))
        for g in root.iter(f"{SVG}g")
        for r in g.iter(f"{SVG}rect")
    ]
    (straight,) = [p for p in root.iter(f"{SVG}path") if p.get("fill") == "none" and p.get("d").count("H") > 1]
    pieces = straight.get("d").split("C")
    level = {float(piece.split("H")[0].split()[-1]) for piece in pieces[1:-1]}
    for x, y, width, height in boxes:
        if x > 300 and x + width < max(b[0] for b in boxes):
            assert not any(y <= row <= y + height for row in level)
