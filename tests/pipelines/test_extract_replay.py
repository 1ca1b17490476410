"""The extract stage where files that exist already fill the tables of tasks."""

import json
import sys
import types

import pyarrow.compute as pc
import pytest

from pipelines import extract
from pipelines.store import Store
from schemas import registry, tables
from schemas.errors import ConfigError, UsageError
from tests.pipelines.corpora import configure, run, session, write_lines
from transforms.extractors import Filled, lexical

EXTRACT = ("extract",)


def generation(corpus, name="main"):
    return Store.open(str(corpus)).generation(name)


def replays(**options):
    return {"extract.extractor": "replay", "extract.options": {k: str(v) for k, v in options.items()}}


def truth(logs):
    return {name: logs / ".truth" / f"{name}.jsonl" for name in ("entities", "relations")}


def rows(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def in_order(found):
    return sorted(found, key=lambda row: (row["case_id"], row["interaction_id"]))


@pytest.fixture(scope="module")
def oracle(logs, tmp_path_factory):
    """A corpus of synthetic logs whose entities and relations are the truth."""
    corpus = tmp_path_factory.mktemp("oracle")
    return corpus, run(corpus, logs, stages=EXTRACT, **replays(**truth(logs)))


def test_the_truth_becomes_entities_and_relations(logs, oracle):
    corpus, result = oracle
    assert result.manifests["ingest"].rows("interactions") == 120, "the truth itself is no log"
    found = generation(corpus)
    for name in ("entities", "relations"):
        told = rows(logs / ".truth" / f"{name}.jsonl")
        assert in_order(found.table(name).to_pylist()) == in_order(told)
    stats = result.manifests["extract/entities"].stats
    assert {k: v for k, v in stats.items() if k.endswith(("taken", "unknown", "added"))} == {
        "entities_taken": len(rows(truth(logs)["entities"])),
        "relations_taken": len(rows(truth(logs)["relations"])),
    }
    assert stats["pieces_ok"] + stats["pieces_empty"] == 120
    expected = lexical.extract(found.table("interactions"))
    assert found.table("notes").to_pylist() == expected.to_pylist()


def test_files_of_one_task_leave_the_others_as_they_are(logs, oracle, tmp_path):
    corpus, _ = oracle
    triple = {"case_id": "user-000001", "subject": "s", "predicate": "p", "object": "o"}
    ids = generation(corpus).table("interactions").filter(pc.field("case_id") == "user-000001")["interaction_id"]
    triples = write_lines(tmp_path / "t.jsonl", *({**triple, "interaction_id": one} for one in [ids[0].as_py(), "no"]))
    more = replays(**truth(logs), triples=triples)
    result = run(corpus, logs, stages=EXTRACT, name="more", **more)
    assert result.made["extract"] == result.made["extract/entities"] == 0
    assert result.made["extract/triples"] > 0
    stats = result.manifests["extract/triples"].stats
    assert (stats["triples_taken"], stats["triples_unknown"], stats["pieces_ok"]) == (1, 1, 1)
    triples.write_text(triples.read_text() + "\n")
    again = run(corpus, logs, stages=EXTRACT, name="more", **more)
    assert (again.made["extract/entities"], again.made["extract/triples"] > 0) == (0, True)
    dropped = run(corpus, logs, stages=EXTRACT, name="more", **replays(notes_from="lexical"))
    assert (dropped.made["extract"], sorted(dropped.manifests)) == (0, ["extract", "ingest", "questions"])


def test_some_cases_alone(logs, oracle, tmp_path):
    corpus, _ = oracle
    first = {"extract.cases": ["user-000002", "user-000004"], "extract.rest": {"extractor": "lexical"}}
    run(corpus, logs, stages=EXTRACT, name="some", **replays(**truth(logs)), **first)
    found = generation(corpus, "some").table("entities").to_pylist()
    assert in_order(found) == in_order(
        [row for row in rows(truth(logs)["entities"]) if row["case_id"] in first["extract.cases"]]
    )


def test_reflections_come_after_their_facts(tmp_path):
    logs = write_lines(tmp_path / "a.jsonl", session("c", 1, "One", "two", "Three", "four"))
    fact = {"case_id": "c", "fact_id": "f0", "text": "One.", "interaction_ids": ["s1/1"], "concepts": ["one_two"]}
    facts = write_lines(tmp_path / "f.jsonl", fact, {**fact, "fact_id": "f1", "interaction_ids": ["s1/7"]})
    so = {"case_id": "c", "reflection_id": "r", "text": "So.", "fact_ids": ["f0", "f1"], "interaction_ids": []}
    reflections = write_lines(tmp_path / "r.jsonl", {**so, "concepts": []})
    run(tmp_path / "corpus", logs, stages=EXTRACT, **replays(facts=facts, reflections=reflections))
    found = generation(tmp_path / "corpus")
    assert found.table("facts").to_pylist() == [fact]
    assert found.table("concepts")["concepts"].to_pylist() == [[], ["one_two"]]
    assert found.table("reflections").to_pylist() == [
        {**so, "fact_ids": ["f0"], "interaction_ids": ["s1/1"], "concepts": []}
    ]
    assert found.manifest("extract/reflections").stats["evidence_unknown"] == 1


# -- any extractor ----------------------------------------------------------------------------------------------------


@pytest.fixture
def plugin(monkeypatch):
    """An extractor of somebody else that finds one triple in each interaction."""
    module = types.ModuleType("triple_plugin")

    class Maker(lexical.LexicalExtractor):
        async def fill(self, task, source):
            assert task == "triples"
            count = source.num_rows
            columns = {"case_id": source["case_id"], "interaction_id": source["interaction_id"]}
            phrases = {part: [part] * count for part in ("subject", "predicate", "object")}
            return Filled({"triples": tables.build("triples", columns | phrases)}, {"found": count})

    module.NAME, module.VERSION, module.Options = "mine", 1, lexical.Options
    module.make = lambda options: Maker()
    module.tasks = lambda options: {"triples": options}
    monkeypatch.setitem(sys.modules, "triple_plugin", module)
    named = {"tagloom.extractors": {"mine": "triple_plugin"}}
    monkeypatch.setattr(registry, "theirs", lambda group: named.get(group, {}))
    extract._extractor.cache_clear()
    return module


def test_an_extractor_of_somebody_else_fills_a_task(plugin, tmp_path):
    logs = write_lines(tmp_path / "a.jsonl", session("c", 1, "One", "two"), session("d", 1, "Three", "four"))
    mine = {"extract.extractor": "mine"}
    result = run(tmp_path / "corpus", logs, stages=EXTRACT, **mine)
    assert generation(tmp_path / "corpus").table("triples").num_rows == 2
    assert result.manifests["extract/triples"].stats["found"] == 2
    plugin.tasks = lambda options: {"tripels": options}
    with pytest.raises(ConfigError, match="offers 'tripels', which is no task"):
        extract.units(configure(tmp_path / "corpus", logs, **mine))


def test_tasks_that_an_extractor_does_not_do(logs, tmp_path):
    def units(**settings):
        return [unit.name for unit in extract.units(configure(tmp_path / "none", logs, **settings))]

    files = truth(logs)
    assert units(**replays(**files)) == ["extract", "extract/entities"]
    assert units(**replays(**files), **{"extract.tasks": ["notes", "entities"]}) == ["extract", "extract/entities"]
    with pytest.raises(ConfigError, match="'replay' makes notes, entities with these options, not facts") as caught:
        units(**replays(**files), **{"extract.tasks": ["notes", "facts"]})
    assert "choose an engine" in caught.value.remedy
    with pytest.raises(ConfigError, match="'lexical' makes notes alone, not triples"):
        units(**{"extract.tasks": ["notes", "triples"]})
    with pytest.raises(UsageError, match="no extractor and no engine is called 'replai'"):
        units(**{"extract.extractor": "replai"})
    with pytest.raises(ConfigError, match="asks no model"):
        units(**replays(**files), **{"extract.model": "x"})
