"""Sweeps and own presets through the command, and what it says when one cannot be."""

import json

import polars as pl
import pytest

from jobs import cli
from tests.jobs.calls import call
from tests.pipelines.corpora import question, session, write_lines

FEW = ["--workers", "0", "--set", "evaluate.resamples=200", "--set", "shards=1", "-q"]
SWEPT = ["adaptivegraph@diffusion.alpha=0.1", "adaptivegraph@diffusion.alpha=0.5"]


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sweep")
    return write_lines(
        folder / "a.jsonl",
        session("a", 1, "My cat is called Miso.", "Lovely.", "The cat sleeps in Lisbon.", "Good."),
        session("a", 2, "We cooked rice."),
        question("a", "Where does the cat sleep?", "s1"),
    )


@pytest.fixture(scope="module")
def swept(source, tmp_path_factory):
    where = str(tmp_path_factory.mktemp("sweep-corpus") / "c")
    path = tmp_path_factory.mktemp("run") / "run.yaml"
    path.write_text(
        f"corpus: {where}\ninputs: [{source}]\n"
        "rank:\n  presets: [bm25, adaptivegraph, mine]\n"
        "  define:\n    mine: {base: bm25, doc: flat, b: 0}\n"
    )
    with pytest.raises(SystemExit) as done:
        cli.main(["run", str(path), "--sweep", "diffusion.alpha=0.1,0.5", *FEW])
    assert done.value.code == 0
    return where


def test_each_value_is_a_preset_with_rows_of_its_own(swept, tmp_path, capsys):
    target = tmp_path / "metrics.parquet"
    assert call(capsys, "export", "-C", swept, "metrics", "--to", str(target))[0] == 0
    # "bm25" has no number diffusion.alpha and stays; "adaptivegraph" itself gives way to its values.
    assert set(pl.read_parquet(target)["retriever"]) == {"bm25", "mine", *SWEPT}


def test_a_swept_preset_can_be_asked(swept, capsys):
    code, out, _ = call(capsys, "query", "-C", swept, "-r", SWEPT[1], "Lisbon", "--json")
    assert code == 0
    (first, *_) = json.loads(out)["hits"]
    assert "cat" in first["text"]
    assert call(capsys, "query", "-C", swept, "-r", "mine", "cat")[0] == 0
    # So can one that was not run, where what it reads is there.
    assert call(capsys, "query", "-C", swept, "-r", "taggraph-basic", "cat")[0] == 0


def test_values_that_were_not_swept_are_not_known(swept, capsys):
    code, _, err = call(capsys, "query", "-C", swept, "-r", "adaptivegraph@diffusion.alpha=0.7", "cat")
    assert code == 2
    assert "no preset is called 'adaptivegraph@diffusion.alpha=0.7'" in err
    assert f"There are: {', '.join(SWEPT)}." in err
    _, _, err = call(capsys, "query", "-C", swept, "-r", "bm25-raw@k1=2", "cat")
    assert "Run with --preset bm25-raw --sweep k1=2." in err


def test_a_preset_whose_unit_the_generation_lacks(swept, capsys):
    code, _, err = call(capsys, "query", "-C", swept, "-r", "bm25-stem", "cat")
    assert code == 1
    assert "generation 'main' holds no 'index/stem'" in err
    assert f"Make it: tagloom run -C {swept} --preset bm25-stem" in err
    code, _, err = call(capsys, "query", "-C", swept, "-r", "gaama", "cat")
    assert code == 1
    assert "holds no 'index/concept'" in err


@pytest.mark.parametrize(
    ("arguments", "says", "remedy"),
    [
        (["--sweep", "diffusion.alpha"], "'diffusion.alpha' is not KEY=V1,V2", "Example: --sweep"),
        (["--sweep", "diffusion.alpha="], "is not KEY=V1,V2", "Example: --sweep"),
        (["--sweep", "=1,2"], "is not KEY=V1,V2", "Example: --sweep"),
        (["--sweep", "k1=[1"], "is not KEY=V1,V2", "Example: --sweep"),
        (["--sweep", "difusion.alpha=0.1"], "none of the presets has a number 'difusion.alpha'", "diffusion.alpha'?"),
        (["--sweep", "diffusion.alpha=1.5"], "diffusion.alpha", "Options:"),
        (["--sweep", "diffusion.alpha=quick"], "diffusion.alpha", "Options:"),
        (["--sweep", "seeds.power=.inf"], "seeds.power", "Options:"),
        (["--sweep", "edges.hub_above=0"], "edges.hub_above", "Options:"),
        (
            ["--set", "rank.define={x: {base: gaama, edges: {weights: {next: -1}}}}", "--preset", "x"],
            "next",
            "Options:",
        ),
        (["--set", "rank.define={x: {base: blend, arms: {dense: {weight: .nan}}}}", "--preset", "x"], "weight", ""),
        (["--sweep", "diffusion=1"], "diffusion", "Options:"),
        (["--sweep", "method=bm25"], "none of the presets has a number 'method'", "Numbers:"),
        (["--preset", "bm52"], "no preset is called 'bm52'", "Did you mean 'bm25'?"),
        (["--set", "rank.define={x: {method: bm52}}", "--preset", "x"], "no method is called 'bm52'", "'bm25'?"),
        (["--set", "rank.define={x: {base: bm25, kk: 2}}", "--preset", "x"], "'x' has no option 'kk'", "Options:"),
        (["--set", "rank.define={bm25: {method: bm25}}"], "'bm25' is the name of a preset of ours", "another name"),
        (["--set", "rank.define={x: bm25}", "--preset", "x"], "rank.define", ""),
        (["--set", "rank.define={x: {base: gaama, graph: tagraph}}", "--preset", "x"], "'tagraph'", "taggraph'?"),
    ],
)
def test_what_cannot_be_is_told_and_leaves_no_corpus(arguments, says, remedy, source, tmp_path, capsys):
    given = arguments if "--preset" in arguments else [*arguments, "--preset", "adaptivegraph"]
    code, _, err = call(capsys, "run", "-C", str(tmp_path / "c"), str(source), *given, *FEW)
    assert says in err
    assert remedy in err
    assert code == 2
    assert not (tmp_path / "c" / "corpus.json").exists()
