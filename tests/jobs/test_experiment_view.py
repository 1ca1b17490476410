"""`tagloom experiment` and `tagloom replay` as a person calls them."""

import json

import pyarrow.parquet as pq
import pytest

from tests.jobs.calls import call
from tests.pipelines import corpora


@pytest.fixture(scope="module")
def corpus(logs, tmp_path_factory):
    where = tmp_path_factory.mktemp("experiments") / "corpus"
    corpora.run(where, logs, **{"rank.presets": ["bm25", "bm25-raw"], "evaluate.resamples": 200})
    return str(where)


def test_an_experiment_is_shown_exported_and_replayed(capsys, corpus, tmp_path):
    arguments = ["distractors", "-C", corpus, "--workers", "0", "-q", "--set", "counts=[0, 2]"]
    code, out, _ = call(capsys, "experiment", *arguments)
    assert code == 0
    assert "distractors=2  bm25" in out
    assert "bm25-raw  bm25" in " ".join(out.split()).replace("distractors=2 bm25-raw bm25", "bm25-raw  bm25")
    assert "ms a question" in out
    code, out, _ = call(capsys, "export", "-C", corpus, "results", "--to", str(tmp_path / "r.parquet"))
    assert code == 0
    assert set(pq.read_table(tmp_path / "r.parquet")["experiment"].to_pylist()) == {"distractors"}
    kept = f"{corpus}/experiments/main/distractors/replay.json"
    code, out, _ = call(capsys, "replay", kept, "-C", corpus, "--recompute")
    assert code == 0
    assert "the results follow" in out
    code, out, _ = call(capsys, "status", "-C", corpus)
    assert code == 0
    assert "experiment/distractors" in out


def test_json(capsys, corpus):
    code, out, _ = call(capsys, "experiment", "ablation", "-C", corpus, "-q", "--preset", "bm25", "--json")
    assert code == 0
    made = json.loads(out)
    assert made["experiment"] == "ablation"
    assert {row["retriever"] for row in made["results"]} == {"", "bm25"}


def test_record_and_check(capsys, corpus, tmp_path):
    path = str(tmp_path / "run.json")
    assert call(capsys, "replay", "--record", path, "-C", corpus)[0] == 0
    code, _, err = call(capsys, "replay", "--record", path, "-C", corpus)
    assert code == 2
    assert "is there already" in err
    assert call(capsys, "replay", path, "-C", corpus)[0] == 0
    kept = json.loads((tmp_path / "run.json").read_text())
    kept["inputs"] = []
    (tmp_path / "run.json").write_text(json.dumps(kept))
    code, out, _ = call(capsys, "replay", path, "-C", corpus)
    assert code == 1
    assert "do not follow" in out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["experiment", "nothing", "-C", "CORPUS"], "no experiment is called"),
        (["experiment", "ablation", "-C", "CORPUS", "--set", "x"], "is not KEY=VALUE"),
        (["experiment", "ablation", "-C", "CORPUS", "--set", "x=[1"], "is not KEY=VALUE"),
        (["experiment", "ablation", "-C", "CORPUS", "--workers", "many"], "neither a number"),
        (["replay"], "no replay file is named"),
        (["replay", "x.json", "--recompute"], "nothing can be computed without a corpus"),
        (["replay", "--record", "new.json"], "no corpus is named"),
    ],
)
def test_wrong_calls_say_what_is_wrong(capsys, corpus, tmp_path, monkeypatch, arguments, says):
    monkeypatch.chdir(tmp_path)
    code, _, err = call(capsys, *[corpus if one == "CORPUS" else one for one in arguments])
    assert code == 2
    assert says in err
