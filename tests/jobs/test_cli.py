"""The command, as a person at a terminal meets it."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from jobs import cli, console, options
from tests.jobs.calls import call
from tests.pipelines.corpora import live, question, session, write_lines
from transforms.formats import READERS

FEW = ["--workers", "0", "--preset", "bm25", "--preset", "adaptivegraph", "--set", "evaluate.resamples=200", "-q"]


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("cli")
    cats = [session(f"case{n}", 1, f"My cat number {n} is called Miso 🐈.", "A lovely name.") for n in range(3)]
    return write_lines(folder / "a.jsonl", *cats, question("case1", "What is the cat called?", "s1"))


@pytest.fixture(scope="module")
def corpus(source, tmp_path_factory) -> str:
    where = str(tmp_path_factory.mktemp("cli-corpus") / "c")
    with pytest.raises(SystemExit) as done:
        cli.main(["run", "-C", where, str(source), *FEW])
    assert done.value.code == 0
    return where


def test_run_shows_presets_by_metric_and_where_everything_lies(corpus, source, capsys):
    code, out, _ = call(capsys, "run", "-C", corpus, str(source), *FEW)
    assert code == 0
    assert "3 cases, 3 interactions, 1 questions, 0 rejects" in out
    assert re.search(r"^bm25 +1\.000", out, re.MULTILINE)
    assert f"corpus: {corpus}" in out
    assert "0 parts made" in out


def test_json_is_one_document_on_standard_output(corpus, source, capsys):
    code, out, _ = call(capsys, "run", "-C", corpus, str(source), *FEW, "--json")
    assert code == 0
    told = json.loads(out)
    assert told["cases"] == 3
    assert {m["retriever"] for m in told["metrics"]} == {"bm25", "adaptivegraph"}
    for command in (["plan", "-C", corpus, str(source)], ["status", "-C", corpus], ["gc", "-C", corpus, "--dry-run"]):
        assert json.loads(call(capsys, *command, "--json")[1])
    assert json.loads(call(capsys, "doctor", "--json")[1])["formats"] == sorted(READERS)


def test_a_run_file_holds_a_whole_run(source, tmp_path, capsys):
    path = tmp_path / "run.yaml"
    path.write_text(
        f"corpus: {tmp_path / 'c'}\ninputs: [{source}]\ncompute: {{workers: 0}}\n"
        "rank: {presets: [bm25]}\nevaluate: {resamples: 200}\n"
    )
    assert "does not exist yet" in call(capsys, "plan", str(path))[1]
    assert call(capsys, "run", str(path), "-q")[0] == 0
    code, out, _ = call(capsys, "plan", str(path), "--set", "rank.depth=7")
    assert code == 0
    assert "configuration changed: rank.depth" in out
    assert "2 parts to make" not in out or "reused" in out
    assert "nothing to do" in call(capsys, "plan", str(path))[1]


def test_query_shows_texts(corpus, capsys):
    code, out, _ = call(capsys, "query", "-C", corpus, "--case", "case2", "the cat", "-k", "2")
    assert code == 0
    assert out.startswith("1. s1/0   2024-01-01 10:00   score ")
    assert "My cat number 2 is called Miso 🐈." in out
    assert "nothing in case 'case2' matches" in call(capsys, "query", "-C", corpus, "--case", "case2", "xyzzy")[1]
    code, _, err = call(capsys, "query", "-C", corpus, "the cat")
    assert code == 2
    assert "the corpus has 3 cases" in err
    assert "Name one: case0, case1, case2" in err


def test_export_status_gc_synth(corpus, tmp_path, capsys):
    target = tmp_path / "x.csv"
    code, out, _ = call(capsys, "export", "-C", corpus, "interactions", "--to", str(target))
    assert code == 0
    assert out == f"3 rows -> {target}\n"
    assert "Miso" in target.read_text()
    for what, name in (("qrels", "q.trec"), ("runs", "r.trec"), ("qrels", "q.txt"), ("graphs", "g.v1")):
        assert call(capsys, "export", "-C", corpus, what, "--to", str(tmp_path / name))[0] == 0
    code, _, err = call(capsys, "export", "-C", corpus, "notes", "--to", str(tmp_path / "x.xlsx"))
    assert (code, "no format goes with '.xlsx'" in err) == (2, True)
    assert "generation 'main'" in call(capsys, "status", "-C", corpus)[1]
    assert "would remove 0 files" in call(capsys, "gc", "-C", corpus, "--dry-run")[1]
    code, out, _ = call(capsys, "synth", "--to", str(tmp_path / "s"), "--size", "20")
    assert code == 0
    assert "20 interactions" in out
    assert call(capsys, "synth", "--to", str(tmp_path / "s"), "--size", "20")[0] == 2
    assert call(capsys, "synth", "--to", str(tmp_path / "s"), "--size", "20", "--overwrite")[0] == 0


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["run", "-C", "{tmp}/c", "{tmp}/none.jsonl"], 1, "no such file or folder"),
        (["run", "-C", "{tmp}/c"], 1, "no corpus here and no input given"),
        (["run", "{source}"], 2, "'corpus' is not set"),
        (["run", "-C", "{tmp}/c", "{source}", "--preset", "bm52"], 2, "Did you mean 'bm25'?"),
        (["run", "-C", "{tmp}/c", "{source}", "--format", "locom"], 1, "Did you mean 'locomo'?"),
        (["run", "-C", "{tmp}/c", "{source}", "--set", "rank.dept=1"], 2, "Did you mean 'rank.depth'?"),
        (["run", "-C", "{tmp}/c", "{source}", "--set", "extract.extractor=lexica"], 2, "Did you mean 'lexical'?"),
        (["run", "-C", "{tmp}/c", "{source}", "--set", "ingest.timezone=Mars"], 2, "no time zone is called 'Mars'"),
        (["run", "-C", "{tmp}/c", "{source}", "--workers", "two"], 2, "neither a number nor auto"),
        (["run", "-C", "{tmp}/c", "{source}", "--beam.runner"], 2, "needs a value"),
        (["run", "-C", "nosuch://x", "{source}"], 1, "nosuch"),
        (["run", "--nonsense"], 2, "No such option"),
        (["runn"], 2, "No such command"),
        (["query", "-C", "{tmp}/none", "x"], 1, "no corpus here"),
        (["export", "-C", "{corpus}", "nodez"], 2, "nodez"),
        (["status", "-C", "{tmp}"], 1, "no corpus here"),
        (["synth", "--to", "{tmp}/s", "--size", "3"], 2, "greater than or equal to 10"),
    ],
)
def test_errors_say_what_where_and_what_to_do(arguments, code, says, source, corpus, tmp_path, capsys):
    filled = [a.format(tmp=tmp_path, source=source, corpus=corpus) for a in arguments]
    got, _, err = call(capsys, *filled)
    assert says in err
    assert got == code


def test_rejects_above_the_limit_end_with_3_after_the_results(tmp_path, capsys):
    path = tmp_path / "bad.jsonl"
    path.write_text("{broken\n" + json.dumps(session("a", 1, "hello there", "hi")) + "\n")
    code, out, err = call(capsys, "run", "-C", str(tmp_path / "c"), str(path), *FEW)
    assert code == 3
    assert "1 cases, 1 interactions" in out
    assert "1 of 2 records were rejected (50.0%)" in err
    assert f"tagloom export -C {tmp_path / 'c'} rejects" in err


def test_beam_options_reach_the_configuration():
    assert options.take_beam_options(["run", "--beam.runner=X", "--beam.flink_master", "h:1", "in", "-q"]) == [
        "run",
        "in",
        "-q",
    ]
    assert options._beam_settings == ["beam.runner=X", "beam.flink_master=h:1"]


@pytest.mark.parametrize(
    "command", [[], *([name] for name in sorted(c.name or c.callback.__name__ for c in cli.app.registered_commands))]
)
def test_every_command_has_help_with_an_example(command, capsys):
    code, out, _ = call(capsys, *command, "--help")
    assert code == 0
    assert "Example: tagloom" in out


def test_emoji_on_a_console_that_knows_only_ascii(corpus):
    env = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    command = [str(Path(sys.executable).with_name("tagloom")), "query", "-C", corpus, "--case", "case2", "cat"]
    done = subprocess.run(command, capture_output=True, env=env, check=False)
    assert done.returncode == 0
    assert b"Miso ?." in done.stdout


def test_ctrl_c_says_that_nothing_is_lost(monkeypatch, corpus, source, capsys):
    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("pipelines.driver.run", interrupted)
    code, _, err = call(capsys, "run", "-C", corpus, str(source), *FEW)
    assert code == 130
    assert "finished parts stay" in err


def test_texts_cannot_drive_the_terminal():
    assert console.printable("a\x1b[2Jb\tc\nd\x07") == "a\\x1b[2Jb\tc\nd\\x07"


def test_a_memory_corpus_cannot_outlive_the_process_but_runs(source, capsys):
    assert call(capsys, "run", "-C", "memory://cli-test", str(source), *FEW)[0] == 0
    assert live("memory://cli-test")
