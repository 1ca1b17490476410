"""Stage graph: near-duplicates merged by the vectors of the run's embedder, where a kind is told to."""

import pytest

from indexers.embedders import wordllama
from pipelines import embed, graph
from pipelines.store import Store
from schemas.config import RunConfig
from schemas.errors import ConfigError, UsageError
from tests.pipelines.corpora import live, question, run, session, write_lines

CASES = [f"case{n}" for n in range(4)]
RUN = {"rank.presets": ["bm25-raw"], "graph.kinds": ["concept", "taggraph"], "shards": 2}
NEAR = {"graph.options": {"concept": {"merge_cosine": 0.85}}}


def config_of(settings, **more):
    """Return the configuration of the unit of a graph kind, and what a worker needs besides."""
    given = {"corpus": "memory://x", "rank": {"presets": ["bm25-raw"]}, "graph": {"kinds": ["concept"]}, **more}
    given["graph"] |= {"options": {"concept": settings}}
    (unit,) = graph.units(RunConfig.model_validate(given))
    return unit.config, unit.runtime


def test_without_the_option_the_configuration_is_that_of_before():
    before = {"graph": "concept", "version": 1, "options": {"next_across_sessions": True, "merge": "spelling"}}
    assert config_of({}) == (before, {})
    assert config_of({"merge_cosine": None}, embed={"dtype": "float32"}) == (before, {})


def test_with_it_keys_hold_what_embeds():
    config, runtime = config_of({"merge_cosine": 0.85})
    assert config["options"] == {"next_across_sessions": True, "merge": "spelling", "merge_cosine": 0.85}
    # As the stage embed has it.
    given = {"corpus": "memory://x", "rank": {"presets": ["dense"]}}
    assert config["embed"] == embed.units(RunConfig.model_validate(given))[0].config
    assert runtime["embedder"] == "wordllama"
    assert config_of({"merge_cosine": 0.85}, embed={"dtype": "float32"})[0] != config
    with pytest.raises(UsageError, match="no embedder is called 'wordlama'"):
        config_of({"merge_cosine": 0.85}, embed={"embedder": "wordlama"})
    for wrong in (0, 1.5, "near"):
        with pytest.raises(ConfigError, match="merge_cosine"):
            config_of({"merge_cosine": wrong})


def test_a_run_merges_by_vectors_what_spelling_leaves(tmp_path, monkeypatch):
    texts = "The home renovation is going well.", "The house renovation will be late."
    lines = [session(case, n, text, "Good.") for case in CASES for n, text in enumerate(texts, 1)]
    logs = write_lines(tmp_path / "a.jsonl", *lines, question("case0", "What is late?", "s2"))
    opened, own = [], wordllama.open
    monkeypatch.setattr(wordllama, "open", lambda *given: opened.append(1) or own(*given))
    embed._close()
    corpus = tmp_path / "c"
    store = Store.open(str(corpus)) if run(corpus, logs, **RUN) else None
    plain, before = store.generation("main"), live(corpus)
    assert plain.table("merges", unit="graph/concept").num_rows == 0
    assert not opened
    run(corpus, logs, **RUN, **NEAR)
    # All shards, whose threads share the process, were embedded by one model.
    assert len(opened) == 1
    near = store.generation("main")
    merges = near.table("merges", unit="graph/concept").to_pylist()
    assert [(row["case_id"], row["key"], row["into"], row["rule"]) for row in merges] == [
        (case, "house_renovation", "home_renovation", "vector")
        for case in near.table("interactions")["case_id"].to_pylist()[::2]
    ]
    assert [round(row["similarity"], 2) for row in merges] == [0.91] * len(CASES)
    keys = [row["key"] for row in near.table("nodes", unit="graph/concept").to_pylist() if row["kind"] == "concept"]
    assert keys == ["home_renovation"] * len(CASES)
    changed = {unit for unit in near.units if near.units[unit] != plain.units.get(unit)}
    assert "graph/concept" in changed
    assert "graph/taggraph" not in changed
    assert near.manifest("graph/concept").config["embed"]["embedder"] == "wordllama"
    # The same again elsewhere, byte by byte; and without the option what there was.
    run(tmp_path / "d", logs, **RUN, **NEAR)
    assert live(tmp_path / "d") == live(corpus)
    run(corpus, logs, **RUN)
    assert live(corpus) == before
