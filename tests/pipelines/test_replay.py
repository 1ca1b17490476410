"""Replay files: they agree with what they were recorded from, and tell what has changed."""

import json
import shutil

import pytest

from pipelines import replay
from pipelines.experimenting import Wanted, run
from pipelines.store import Store
from schemas.errors import InputError, UsageError
from tests.pipelines import corpora

PRESETS = ["bm25", "adaptivegraph"]


@pytest.fixture(scope="module")
def corpus(logs, tmp_path_factory):
    where = tmp_path_factory.mktemp("replay") / "corpus"
    corpora.run(where, logs, shards=4, **{"rank.presets": PRESETS, "evaluate.resamples": 200})
    run(str(where), "main", Wanted("distractors", (), None, {"counts": [1]}), workers=0)
    return where


def generation(corpus):
    return Store.open(str(corpus)).generation()


def states(checked, section):
    return {one.what: one.state for one in checked.findings if one.section == section}


def test_what_was_recorded_follows(corpus):
    path = replay.keep(generation(corpus), "distractors")
    kept = replay.read(str(corpus / path))
    found = replay.check(kept, generation(corpus), recompute=True)
    assert found.follows
    assert {one.state for one in found.findings} == {"agrees"}
    # The results, and up to three shards of the variant.
    assert 2 <= len(states(found, "recomputed")) <= 4
    assert "computed again" in found.verdict
    assert "extract" in kept["units"]
    assert "rank/bm25" not in kept["units"]


def test_a_whole_generation(corpus):
    kept = json.loads(json.dumps(replay.record(generation(corpus))))
    assert set(kept["units"]) == set(generation(corpus).head["units"])
    found = replay.check(kept, generation(corpus), recompute=True)
    assert found.follows
    assert {name.partition(",")[0] for name in states(found, "recomputed")} == {"rank/bm25", "rank/adaptivegraph"}


def test_no_place_and_no_text_of_the_data(corpus):
    kept = replay.record(generation(corpus), "distractors")
    text = json.dumps(kept)
    assert str(corpus.parent) not in text
    assert "file://" not in text
    some = generation(corpus).table("interactions")["user_text"][0].as_py()
    assert some
    assert some not in text


def test_changes_are_told(corpus):
    kept = replay.record(generation(corpus), "distractors")
    changed = json.loads(json.dumps(kept))
    changed["inputs"][0]["digest"] = "0" * 32
    changed["environment"]["libraries"]["numpy"] = "1.0"
    changed["code"]["source"] = "other"
    changed["units"]["extract"]["parts"][0]["tables"]["notes"]["sha256"] = "0"
    changed["units"]["extract/gone"] = changed["units"]["extract"]
    found = replay.check(changed, generation(corpus))
    assert not found.follows
    assert states(found, "data")["extract"] == "differs"
    assert states(found, "data")["extract/gone"] == "missing"
    assert "differs" in states(found, "inputs").values()
    assert states(found, "environment")["numpy"] == "differs"
    assert states(found, "code") == {"version": "agrees", "source": "differs"}
    drift = {**kept, "environment": changed["environment"]}
    assert replay.check(drift, generation(corpus)).follows
    assert "--recompute" in replay.check(drift, generation(corpus)).verdict


def test_bytes_on_storage_are_looked_at(corpus, tmp_path):
    where = tmp_path / "corpus"
    shutil.copytree(corpus, where)
    kept = replay.record(generation(where))
    part = generation(where).manifest("rank/bm25").parts[0]
    path = where / generation(where).store.part_path("runs", part.shard, part.key)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))
    found = replay.check(kept, generation(where))
    assert states(found, "data")["rank/bm25"] == "differs"
    path.unlink()
    assert states(replay.check(kept, generation(where)), "data")["rank/bm25"] == "differs"


def test_recomputing_finds_other_results(corpus):
    kept = json.loads(json.dumps(replay.record(generation(corpus))))
    for part in kept["units"]["rank/bm25"]["parts"]:
        part["tables"]["runs"]["sha256"] = "0"
    found = replay.check(kept, generation(corpus), recompute=True)
    assert "differs" in states(found, "recomputed").values()
    assert not found.follows


def test_without_a_corpus_only_the_environment_counts(corpus):
    found = replay.check(replay.record(generation(corpus)), None)
    assert {one.section for one in found.findings} == {"code", "environment"}


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"replay": 2}', '{"replay": 1}', "\0\xff"],
)
def test_nonsense_is_no_replay_file(tmp_path, text):
    (tmp_path / "r.json").write_text(text, encoding="latin-1")
    with pytest.raises(InputError):
        replay.read(str(tmp_path / "r.json"))
    with pytest.raises(InputError):
        replay.read(str(tmp_path / "none.json"))


def test_a_damaged_file_is_told(corpus, tmp_path):
    kept = json.loads(json.dumps(replay.record(generation(corpus))))
    kept["units"]["ingest"]["parts"] = [{"shard": 0}]
    (tmp_path / "r.json").write_text(json.dumps(kept))
    with pytest.raises(InputError, match="is damaged"):
        replay.read(str(tmp_path / "r.json"))


def test_an_experiment_that_was_not_run(corpus):
    with pytest.raises(UsageError, match="has no experiment 'ablation'"):
        replay.record(generation(corpus), "ablation")


@pytest.mark.parametrize(
    ("settings", "kept"),
    [
        ({"api_key": "sk-1"}, {"api_key": "(left out)"}),
        ({"extra_body": {"headers": {"X": "sk-1"}}}, {"extra_body": {"headers": "(left out)"}}),
        ({"notes": "/home/me/notes.parquet"}, {"notes": "(place)/notes.parquet"}),
        ({"model": "C:\\models\\a.gguf"}, {"model": "(place)/a.gguf"}),
        ({"files": ["s3://bucket/x/y.json"]}, {"files": ["(place)/y.json"]}),
        ({"max_tokens": 20, "key_env": "OPENAI_API_KEY"}, {"max_tokens": 20, "key_env": "OPENAI_API_KEY"}),
    ],
)
def test_settings_without_secrets_and_places(settings, kept):
    assert replay._plain(settings) == kept
