"""`tagloom compare`, as a person at a terminal meets it."""

import json
import re

import polars as pl
import pyarrow as pa
import pytest

from jobs import compare_view
from schemas import comparison
from schemas.errors import UsageError
from tests.jobs.calls import call
from tests.pipelines import corpora
from tests.pipelines.corpora import question, session, write_lines
from transforms.compare import Comparison, Side, summary_table
from transforms.compare_graphs import compare_graphs, measure
from transforms.compare_notes import compare_notes

HOSTILE = "x\n\x1b[2J\r=1+1 " + "y" * 500


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("compared")
    lines = []
    for n in range(3):
        lines.append(
            session(f"case{n}", 1, f"My cat number {n} is called Miso.", "A lovely name.", "I like tea.", "Me too.")
        )
        lines.append({**question(f"case{n}", "What is the cat called?", "s1"), "gold_message_ids": ["s1:0"]})
    file = write_lines(folder / "a.jsonl", *lines)
    settings = {"shards": 2, "rank.presets": ["bm25", "taggraph-basic"]}
    corpora.run(folder / "c", file, **settings)
    corpora.run(folder / "c", name="wide", **{**settings, "graph.options": {"taggraph": {"max_neighbours": 1}}})
    return str(folder / "c")


def test_the_tables_of_a_comparison(corpus, capsys):
    code, out, _ = call(capsys, "compare", "-C", corpus, "main", "wide")
    assert code == 0
    assert out.startswith("A = main: lexical\nB = wide: lexical\n3 cases and 6 interactions are in both; only in A: 0")
    assert re.search(r"^notes +6 +6 +0$", out, re.MULTILINE)
    assert "mean Jaccard 1 over the 6 with a tag" in out
    assert re.search(r"^all +(\d+) +\1 +\1 +1 +1 +1$", out, re.MULTILINE)
    assert re.search(
        r"^bm25 +mrr +\d\.\d{3} +\d\.\d{3} +\+0\.000 \[\+0\.000, \+0\.000\] +- +1\.0000 +1\.0000$", out, re.MULTILINE
    )
    assert "questions of bm25 by rank of the first gold: gained 0, lost 0, same 3" in out
    assert "tags gained: 0" in out
    assert re.search(r"^requests +- +- +-$", out, re.MULTILINE)
    shown = call(capsys, "compare", "-C", corpus, "main", "wide", "--preset", "taggraph-basic", "--cases", "case1")[1]
    assert "questions of taggraph-basic" in shown
    assert "1 cases and 2 interactions" in shown


def test_json_is_one_document(corpus, capsys):
    code, out, _ = call(capsys, "compare", "-C", corpus, "main", "wide", "--json")
    told = json.loads(out)
    assert (code, told["level"], told["remarks"], told["cases"]) == (0, "interaction", [], None)
    assert told["a"] == {"name": "main", "extractor": "lexical"}
    assert {row["section"] for row in told["summary"]} >= {"notes", "tags", "agreement", "graph", "metrics", "cost"}
    assert len(told["metrics"]) == 8
    assert told["tags"] == []
    assert told["questions"] == []


def test_parquet_files_are_guarded_like_an_export(corpus, tmp_path, capsys):
    target = tmp_path / "x"
    command = ["compare", "-C", corpus, "main", "wide", "--to", str(target)]
    code, out, _ = call(capsys, *command)
    assert code == 0
    assert out.endswith(f"rows -> 4 files in {target}\n")
    before = {path.name: path.read_bytes() for path in target.iterdir()}
    assert sorted(before) == [f"{name}.parquet" for name in sorted(comparison.SCHEMAS)]
    for name, layout in comparison.SCHEMAS.items():
        assert pl.read_parquet(target / f"{name}.parquet").columns == layout.names
    assert pl.read_parquet(target / "questions.parquet").height == 6
    code, _, err = call(capsys, *command)
    assert (code, "is not empty" in err) == (2, True)
    assert call(capsys, *command, "--overwrite")[0] == 0
    assert {path.name: path.read_bytes() for path in target.iterdir()} == before
    (target / "thesis.txt").write_text("mine")
    code, _, err = call(capsys, *command, "--overwrite")
    assert (code, "also holds other files" in err) == (2, True)
    assert (target / "thesis.txt").read_text() == "mine"


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["main", "wyde"], 1, "no generation is called 'wyde'"),
        (["main"], 2, "Missing argument"),
        (["main", "wide", "--preset", "bm52"], 2, "Did you mean 'bm25'?"),
        (["main", "wide", "--cases", "cas1"], 2, "Did you mean 'case1'?"),
        (["main", "wide", "--to", "s3://bucket/x"], 2, "is not a local path"),
    ],
)
def test_mistakes(corpus, capsys, arguments, code, says):
    got, _, err = call(capsys, "compare", "-C", corpus, *arguments)
    assert (got, says in err) == (code, True), err


def hostile() -> Comparison:
    """One note with a hostile tag on one side, and a question full of such text."""
    from tests.transforms.test_compare import notes

    figures, tags = compare_notes([(notes(("c", "i", "ok", {"what": [HOSTILE]})), notes(("c", "i", "ok", {})))])
    nothing = measure(
        pa.table({n: pa.array([], k) for n, k in _NODES}), pa.table({n: pa.array([], k) for n, k in _EDGES})
    )
    figures += compare_graphs(HOSTILE, nothing, nothing)
    row = dict.fromkeys(comparison.SCHEMAS["questions"].names, HOSTILE)
    row |= {"mrr_a": 1.0, "mrr_b": 0.0, "difference": -1.0, "rank_a": 1, "rank_b": None, "gold_ids": [HOSTILE]}
    row |= {"retriever": "bm25", "first_b": None, "first_b_text": None}
    numbers = dict.fromkeys(comparison.SCHEMAS["metrics"].names, 0.5) | {"questions": 1, "cases": 1}
    metric = numbers | {"retriever": "bm25", "level": "interaction", "metric": "mrr", "low": None, "high": None}
    return Comparison(
        Side("main", HOSTILE),
        Side("main-2", "lexical"),
        None,
        "interaction",
        (HOSTILE,),
        summary_table(figures),
        tags,
        comparison.build("metrics", {name: [value] for name, value in metric.items()}),
        comparison.build("questions", {name: [value] for name, value in row.items()}),
    )


_NODES = (("case_id", pa.string()), ("node_id", pa.int32()), ("kind", pa.string()))
_EDGES = (("case_id", pa.string()), ("source", pa.int32()), ("target", pa.int32()), ("kind", pa.string()))


def test_texts_can_neither_drive_the_terminal_nor_break_the_tables(capsys):
    compare_view.show(hostile(), "./c")
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "what: x \\x1b[2J =1+1 yyy" in out
    assert "lost: rank 1 -> none" in out
    assert "    B 1st nothing" in out
    assert max(map(len, out.splitlines())) < 260


def test_a_folder_that_is_taken_is_refused_before_anything_is_written(tmp_path):
    (tmp_path / "x").write_text("a file")
    with pytest.raises(UsageError, match="is a file"):
        compare_view.write(hostile(), str(tmp_path / "x"), overwrite=True)
    assert (tmp_path / "x").read_text() == "a file"
    written = compare_view.write(hostile(), str(tmp_path / "y"), overwrite=False)
    assert pl.read_parquet(tmp_path / "y" / "tags.parquet")["tag"].to_list() == [HOSTILE]
    assert written.rows == sum(pl.read_parquet(file).height for file in written.files)
