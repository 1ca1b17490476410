"""`plan` and `reindex` as a person at a terminal meets them."""

import json
import re
import shutil
import sys
from pathlib import Path

import pytest

from tests.engines.stub_server import running
from tests.jobs.calls import call
from tests.pipelines.corpora import run, session, write_lines

CASES = [f"case{n}" for n in range(6)]
ALIKE = ["--set", "graph.options={taggraph: {shared_attributes: 1}}"]


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cli-reindex")
    lines = [session(case, 1, f"My cat called Miso likes {case}.", "A lovely name.") for case in CASES]
    few = {"rank.presets": ["bm25-raw", "taggraph-basic"], "evaluate.resamples": 100}
    run(folder / "c", write_lines(folder / "a.jsonl", *lines), **few)
    return folder / "c"


@pytest.fixture
def corpus(built, tmp_path) -> str:
    return str(shutil.copytree(built, tmp_path / "c"))


@pytest.fixture(scope="module")
def stub():
    with running() as server:
        yield server


def asks(server):
    options = f"extract.options={{base_url: '{server.base_url}'}}"
    return ["--set", "extract.extractor=openai", "--set", "extract.model=stub", "--set", options]


def reindex(capsys, corpus, *arguments):
    return call(capsys, "reindex", "-C", corpus, "--workers", "0", "-q", *arguments)


def names(corpus):
    return sorted(json.loads((Path(corpus) / "heads.json").read_text()))


def test_reindex_tells_what_changed_and_what_to_do_next(corpus, capsys):
    code, out, _ = reindex(capsys, corpus, *ALIKE, "--dry-run")
    assert (code, names(corpus)) == (0, ["main"])
    assert "generation 'main-2' would be made from 'main'" in out
    assert "configuration changed: options" in out
    code, out, _ = reindex(capsys, corpus, *ALIKE)
    assert code == 0
    assert "generation 'main-2' made from 'main'\n" in out
    assert "  graph.options.taggraph.shared_attributes: none -> 1\n" in out
    assert re.search(r"parts made: graph/taggraph \d of \d, ", out)
    assert out.endswith(f"next: tagloom compare -C {corpus} main main-2\n")
    assert "nothing to do: generation 'main-2' is the same already" in reindex(capsys, corpus, *ALIKE)[1]
    assert "nothing to do: generation 'main' is the same already" in reindex(capsys, corpus)[1]
    code, out, _ = reindex(capsys, corpus, *ALIKE, "--name", "main")
    assert "generation 'main' made from 'main'; what 'main' was stays as 'main-1'" in out
    assert out.endswith(f"next: tagloom compare -C {corpus} main-1 main\n")
    assert names(corpus) == ["main", "main-1", "main-2"]


def test_reindex_as_json(corpus, capsys):
    told = json.loads(reindex(capsys, corpus, *ALIKE, "--dry-run", "--json")[1])
    assert (told["generation"], told["from"], told["kept"], told["cost"]) == ("main-2", "main", None, None)
    told = json.loads(reindex(capsys, corpus, *ALIKE, "--json")[1])
    assert told["settings"] == {"graph.options.taggraph.shared_attributes": [None, 1]}
    assert told["parts_made"]["graph/taggraph"] == told["parts"]["graph/taggraph"]
    assert (told["parts_made"]["ingest"], told["equal"]) == (0, None)


def test_a_run_file_gives_settings_alone(corpus, tmp_path, capsys):
    path = tmp_path / "run.yaml"
    path.write_text(f"corpus: {corpus}\ninputs: [nowhere.jsonl]\nname: main\nextract: {{ontology_window: 3}}\n")
    code, out, _ = call(capsys, "reindex", str(path), "-q", "--workers", "0")
    assert code == 0
    assert "extract.ontology_window: 1 -> 3" in out
    assert names(corpus) == ["main", "main-2"]


def test_a_trial_on_some_cases_and_its_cost(stub, corpus, capsys):
    code, out, _ = reindex(capsys, corpus, *asks(stub), "--cases", "case1", "--cases", "case2", "--dry-run")
    assert code == 0
    assert "the new extractor is for 2 cases, the others keep theirs" in out
    assert "extract.extractor: lexical -> openai" in out
    assert re.search(r"^extract +openai stub +2 +0 +[\d,]+ +[\d,]+ +- +-$", out, re.MULTILINE)
    assert "no rate was measured here yet" in out
    assert reindex(capsys, corpus, *asks(stub), "--cases", "case1", "--cases", "case2")[0] == 0
    assert "generation 'main-2': openai stub for 2 cases, else lexical" in call(capsys, "status", "-C", corpus)[1]
    assert re.search(r"journal openai-\S+: 2 replies", call(capsys, "status", "-C", corpus)[1])
    prices = ["--set", "extract.prices={prompt: 1000000}"]
    out = call(capsys, "plan", "-C", corpus, *asks(stub), *prices)[1]
    line = re.search(r"^extract +openai stub +4 +2 +([\d,]+) +[\d,]+ +\S+ s +([\d,]+)\.\d\d$", out, re.MULTILINE)
    assert line and line[1] == line[2], "a token costs one"


@pytest.mark.parametrize(("answer", "code"), [("n", 1), ("y", 0)])
def test_a_person_is_asked_before_a_model_is(stub, corpus, capsys, monkeypatch, answer, code):
    import io

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    before = stub.stats()["requests"]
    monkeypatch.setattr(sys, "stdin", Terminal(f"{answer}\n"))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    given, _, err = reindex(capsys, corpus, *asks(stub), "--set", "extract.temperature=0.7")
    assert (given, stub.stats()["requests"] - before) == (code, 6 if code == 0 else 0)
    assert "estimated: 6 requests, " in err
    assert "Go on?" in err
    assert ("nothing was done" in err) == (answer == "n")
    assert ("main-2" in names(corpus)) == (answer == "y")
    monkeypatch.setattr(sys, "stdin", Terminal(""))
    assert reindex(capsys, corpus, *ALIKE)[0] == 0, "nobody is asked where no model is"


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["--cases", "case9"], 2, "no case is called 'case9'"),
        (["--cases", "case1", "--sample", "0.1"], 2, "exclude each other"),
        (["--sample", "2"], 2, "no share above 0"),
        (["--budget-tokens", "100"], 2, "asks no model"),
        (["--retry-failed"], 2, "asks no model"),
        (["--from", "nothing"], 1, "no generation is called 'nothing'"),
        (["--keep", "old"], 2, "nothing is called 'main-2' yet"),
        (["--name", "../x"], 2, "no name of a generation"),
        (["--set", "extract.extractor=lexica"], 2, "Did you mean 'lexical'?"),
        (["--set", "extract.model=gpt"], 2, "asks no model"),
    ],
)
def test_mistakes(corpus, capsys, arguments, code, says):
    window = [] if "extract" in arguments[-1] else ["--set", "extract.ontology_window=3"]
    given, out, err = reindex(capsys, corpus, *arguments, *window)
    assert (given, out) == (code, "")
    assert says in err
    assert names(corpus) == ["main"]
