"""The commands read and graft, as a person calls them."""

import json

import pytest

from tests.engines.stub_server import running
from tests.jobs.calls import call
from tests.pipelines.corpora import run


@pytest.fixture(scope="module")
def corpus(logs, tmp_path_factory):
    path = tmp_path_factory.mktemp("cli-reader") / "corpus"
    run(path, logs, **{"rank.presets": ["bm25-raw", "gaama"]})
    return str(path)


def test_read_shows_marks_differences_and_where_they_are(corpus, capsys):
    with running() as server:
        engine = ("--engine", "openai", "-m", "stub", "--set", f"extract.options.base_url={server.base_url}")
        common = ("read", "-C", corpus, "--preset", "bm25-raw", "--preset", "gaama", *engine, "--workers", "0", "-q")
        code, out, _ = call(capsys, *common, "--judge")
        assert code == 0
        for words in ("all: 30 questions, 6 cases", "token F1", "judged right", "paired differences to bm25-raw"):
            assert words in out
        code, out, _ = call(capsys, *common, "--judge", "--json")
        told = json.loads(out)
        assert told["engine"] == {} and told["variant"] == "top=5" and len(told["results"]) > 50
    code, out, _ = call(capsys, "export", "-C", corpus, "answers", "--to", f"{corpus}-answers.jsonl")
    assert code == 0 and out.startswith("60 rows")


def test_graft_shows_both_halves(corpus, capsys):
    common = ("graft", "-C", corpus, "--preset", "gaama", "--words", "60", "--workers", "0", "-q")
    code, out, _ = call(capsys, *common)
    assert code == 0
    for words in ("says the gold", "questions that repairs were made from", "questions held out", "gc -C"):
        assert words in out
    code, out, _ = call(capsys, *common, "--json")
    told = json.loads(out)
    assert code == 0 and told["generation"] == "main-graft" and told["counts"]["repairs"] == len(told["repairs"])


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("read", "--preset", "gaama", "--engine", "lexical"), "is no engine"),
        (("read", "--preset", "gaam", "--engine", "openai", "-m", "x"), "Did you mean 'gaama'"),
        (("read", "--preset", "gaama", "--engine", "openai", "-m", "x", "--words", "9999999"), "words"),
        (("graft", "--preset", "gaama", "--share", "0"), "is no share"),
        (("graft", "--preset", "gaama", "--online"), "online mode asks a judge"),
        (("graft", "--preset", "gaama", "--name", "../x"), "is no name"),
    ],
)
def test_what_is_wrong_is_told(corpus, capsys, arguments, told):
    code, _, err = call(capsys, arguments[0], "-C", corpus, *arguments[1:])
    assert code in (1, 2) and told in err
