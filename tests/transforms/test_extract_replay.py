from __future__ import annotations

import asyncio
import importlib.util
import json
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas import tables
from schemas.errors import ConfigError, InputError, SchemaError
from transforms import tasks
from transforms.extractors import Filled, fingerprint_parts, lexical, make, tasks_of
from transforms.extractors._filled import complete

_spec = importlib.util.spec_from_file_location("extract_tools", Path(__file__).with_name("extract_tools.py"))
extract_tools = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(extract_tools)
interactions = extract_tools.interactions

OPENIE = Path(__file__).parents[3] / "shared/data/hipporag/openie_musique_train.json"
LOCOMO = Path(__file__).parents[3] / "shared/data/locomo/locomo10.json"


def replay(options, table):
    notes = asyncio.run(make("replay", options).extract(table, 0))
    tables.validate("notes", notes)
    return notes


def fill(options, task, source):
    """Fill a task and check what came out, as the stage does; returns its tables with outcomes, and the counts."""
    filled = asyncio.run(make("replay", options).fill(task, source))
    return complete("replay", tasks.load(task), source, filled), dict(filled.stats)


def lines(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def observed(path, **cases):
    """Write a LoCoMo file; each case gives its entries as (speaker, text, evidence)."""
    records = []
    for case, entries in cases.items():
        session = {}
        for speaker, *entry in entries:
            session.setdefault(speaker, []).append(entry)
        records.append({"sample_id": case, "observation": {"session_1_observation": session}})
    path.write_text(json.dumps(records))
    return str(path)


# -- notes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["parquet", "jsonl"])
def test_notes_are_taken_over(tmp_path, kind):
    table = interactions({"user": "The violin"}, {"user": "A flute"}, {"case": "b", "user": "The drum"})
    notes = lexical.extract(table)
    path = tmp_path / "notes"
    if kind == "parquet":
        pq.write_table(notes.take(pa.array([2, 0, 0])), path)
    else:
        lines(path, *notes.take(pa.array([2, 0, 0])).to_pylist())
    got = replay({"notes": str(path)}, table).to_pylist()
    assert got[0] == notes.to_pylist()[0]
    assert got[2] == notes.to_pylist()[2]
    assert (got[1]["status"], got[1]["what"], got[1]["summary"]) == ("empty", [], "")
    assert "no entry" in got[1]["error"]


def test_observations(tmp_path):
    path = tmp_path / "locomo.json"
    facts = {
        "session_1_observation": {
            "Ann": [["Ann bought a violin in Erie yesterday.", "m0"], ["Ann likes tea.", ["m0", "m2"]]],
            "Bob": [["Bob owns a flute.", "m0"]],
        }
    }
    path.write_text(json.dumps([{"sample_id": "a", "observation": facts}]))
    table = interactions({"speakers": ["Ann"]}, {"user": "violin", "speakers": ["Bob"]}, {}, {"case": "b"})
    got = replay({"observations": str(path)}, table).to_pylist()
    assert [n["status"] for n in got] == ["ok", "empty", "ok", "empty"]
    assert got[0]["summary"] == "Ann bought a violin in Erie yesterday. Ann likes tea. Bob owns a flute."
    assert got[0]["who"] == ["ann", "bob"]
    assert {"violin", "flute"} <= set(got[0]["what"])
    assert (got[0]["where"], got[0]["when"]) == (["erie"], ["2023/05/07"])
    assert (got[1]["who"], got[1]["what"]) == ([], [])
    assert (got[2]["who"], got[2]["what"]) == (["ann"], ["tea"])


def test_the_file_is_part_of_the_fingerprint(tmp_path):
    path = tmp_path / "locomo.json"
    path.write_text("[]")
    before = fingerprint_parts("replay", {"observations": str(path)})
    given = {name: value for name, value in before["options"].items() if value is not None}
    assert given == {"observations": str(path)}
    path.write_text("[ ]")
    after = fingerprint_parts("replay", {"observations": str(path)})
    assert before["files"].keys() == after["files"].keys() == {"observations"}
    assert before["files"] != after["files"]


@pytest.mark.parametrize("option", ["notes", "observations", "facts", "relations", "openie"])
def test_files_that_cannot_be_used(tmp_path, option):
    missing = str(tmp_path / "none")
    with pytest.raises(InputError) as caught:
        make("replay", {option: missing})
    assert caught.value.where == missing
    with pytest.raises(InputError):
        fingerprint_parts("replay", {option: missing}, list(tasks_of("replay", {option: missing}))[-1])
    other = tmp_path / "other"
    other.write_text('{"a": 1}')
    with pytest.raises(InputError):
        make("replay", {option: str(other)})
    with pytest.raises(InputError):
        make("replay", {option: "nosuchscheme://x"})
    other.write_bytes(b"PAR1 and no more")
    with pytest.raises(InputError):
        make("replay", {option: str(other)})


def test_another_table(tmp_path):
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"a": [1]}), path)
    with pytest.raises(InputError, match="no notes table"):
        make("replay", {"notes": str(path)})


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"notes": ""},
        {"facts": "a", "observations": "b"},
        {"entities": "a", "openie": "b"},
        {"triples": "a", "openie": "b"},
        {"notes": "a", "notes_from": "empty"},
        {"notes_from": "spacy"},
    ],
)
def test_options_that_do_not_go_together(options):
    with pytest.raises(ConfigError):
        make("replay", options)


def test_a_secret_in_the_uri_of_a_file_is_refused():
    with pytest.raises(ConfigError, match="the parameter 'sig' is one") as caught:
        make("replay", {"facts": "https://h/facts.jsonl?sig=hunter2"})
    assert "hunter2" not in str(caught.value)


@pytest.mark.skipif(not LOCOMO.exists(), reason="LoCoMo is not beside the checkout (../shared/data/locomo)")
def test_locomo_observations():
    case = json.loads(LOCOMO.read_bytes())[0]
    evidence = {
        message
        for session in case["observation"].values()
        for entries in session.values()
        for _, found in entries
        for message in (found if isinstance(found, list) else [found])
    }
    turns = [t for name, s in case["conversation"].items() if isinstance(s, list) for t in s]
    rows = [{"case": case["sample_id"], "user": t["text"], "messages": [t["dia_id"]]} for t in turns]
    notes = replay({"observations": str(LOCOMO)}, interactions(*rows)).to_pylist()
    assert [n["status"] == "ok" for n in notes] == [t["dia_id"] in evidence for t in turns]


def test_where_notes_come_from(tmp_path):
    table = interactions({"user": "The violin"}, {"user": "A flute"})
    path = observed(tmp_path / "o", a=[("Ann", "Ann owns a drum.", "m0")])
    facts = lines(tmp_path / "f", {"case_id": "a", "fact_id": "f", "text": "x", "interaction_ids": [], "concepts": []})
    assert replay({"observations": path}, table)["what"].to_pylist() == [["drum"], []]
    for options in ({"observations": path, "notes_from": "lexical"}, {"facts": facts}):
        assert replay(options, table).equals(lexical.extract(table))
    empty = replay({"observations": path, "notes_from": "empty"}, table).to_pylist()
    assert [(n["status"], n["who"], n["summary"]) for n in empty] == [("empty", [], "")] * 2
    pq.write_table(lexical.extract(table), tmp_path / "n")
    assert replay({"observations": path, "notes": str(tmp_path / "n")}, table).equals(lexical.extract(table))


# -- which tasks ------------------------------------------------------------------------------------------------------


def test_tasks_are_those_of_the_files(tmp_path):
    given = {name: str(tmp_path / name) for name in ("observations", "reflections", "relations", "openie")}

    def depends(options):
        return {task: sorted(part.model_dump(exclude_none=True)) for task, part in tasks_of("replay", options).items()}

    assert depends(given) == {
        "notes": ["observations"],
        "facts": ["observations"],
        "reflections": ["reflections"],
        "entities": ["openie", "relations"],
        "triples": ["openie"],
    }
    assert depends({"triples": "t"}) == {"notes": ["notes_from"], "triples": ["triples"]}
    assert depends({"notes": "n", "concepts": "c"}) == {"notes": ["notes"], "facts": ["concepts"]}
    assert depends({"notes_from": "empty"}) == {"notes": ["notes_from"]}
    with pytest.raises(ConfigError, match="reflections rest on facts") as caught:
        tasks_of("replay", {"reflections": "r"})
    assert caught.value.where == "extract.options.reflections"


def test_a_task_knows_its_own_files_alone(tmp_path):
    options = {"triples": lines(tmp_path / "t"), "entities": lines(tmp_path / "e")}
    before = {task: fingerprint_parts("replay", options, task) for task in ("notes", "triples", "entities")}
    assert "files" in before["triples"] and before["notes"]["files"] == {}
    (tmp_path / "e").write_text("\n")
    after = {task: fingerprint_parts("replay", options, task) for task in before}
    assert [task for task in before if before[task] != after[task]] == ["entities"]


# -- own tables -------------------------------------------------------------------------------------------------------

FACTS = [
    {"case_id": "b", "fact_id": "x", "text": "B one.", "interaction_ids": ["i0"], "concepts": ["old_drum"]},
    {"case_id": "a", "fact_id": "f2", "text": "Late.", "interaction_ids": ["i2"], "concepts": ["b_c", "d_e"]},
    {"case_id": "a", "fact_id": "f1", "text": "Two.", "interaction_ids": ["i2", "i0", "i9"], "concepts": ["a_b"]},
    {"case_id": "a", "fact_id": "f3", "text": "Nowhere.", "interaction_ids": ["i7", "i8"], "concepts": []},
    {"case_id": "a", "fact_id": "f4", "text": "Without.", "interaction_ids": [], "concepts": []},
    {"case_id": "a", "fact_id": "f2", "text": "Again.", "interaction_ids": ["i0"], "concepts": []},
    {"case_id": "z", "fact_id": "f9", "text": "Elsewhere.", "interaction_ids": ["i0"], "concepts": []},
]
THREE = interactions({}, {}, {}, {"case": "b"})


def as_file(path, name, rows, kind):
    if kind == "jsonl":
        return lines(path, *rows)
    pq.write_table(tables.build(name, {c: [row[c] for row in rows] for c in tables.schema(name).names}), path)
    return str(path)


@pytest.mark.parametrize("kind", ["parquet", "jsonl"])
def test_facts(tmp_path, kind):
    made, counts = fill({"facts": as_file(tmp_path / "f", "facts", FACTS, kind)}, "facts", THREE)
    found = made["facts"].to_pylist()
    assert [(f["case_id"], f["fact_id"], f["interaction_ids"]) for f in found] == [
        ("a", "f1", ["i2", "i0"]),
        ("a", "f2", ["i2"]),
        ("b", "x", ["i0"]),
    ]
    assert counts == {"facts_taken": 3, "facts_unknown": 2, "facts_repeated": 1, "evidence_unknown": 1}
    assert made["concepts"]["concepts"].to_pylist() == [["a_b"], [], ["a_b", "b_c", "d_e"], ["old_drum"]]
    assert made["outcomes"]["status"].to_pylist() == ["ok", "empty", "ok", "ok"]
    assert made["outcomes"]["key"].to_pylist() == ["i0", "i1", "i2", "i0"]


def test_own_concepts_come_before_those_of_facts(tmp_path):
    rows = [
        {"case_id": "a", "interaction_id": "i1", "concepts": ["x_y", "y_z"]},
        {"case_id": "a", "interaction_id": "i1", "concepts": ["no_no"]},
        {"case_id": "a", "interaction_id": "i5", "concepts": ["no_no"]},
        {"case_id": "q", "interaction_id": "i1", "concepts": ["no_no"]},
    ]
    options = {"facts": lines(tmp_path / "f", *FACTS), "concepts": lines(tmp_path / "c", *rows)}
    made, counts = fill(options, "facts", THREE)
    assert made["concepts"]["concepts"].to_pylist() == [[], ["x_y", "y_z"], [], []]
    assert {name: n for name, n in counts.items() if name.startswith("concepts")} == {
        "concepts_taken": 1,
        "concepts_unknown": 1,
        "concepts_repeated": 1,
    }
    alone, _ = fill({"concepts": options["concepts"]}, "facts", THREE)
    assert (alone["facts"].num_rows, alone["concepts"].equals(made["concepts"])) == (0, True)
    assert alone["outcomes"]["status"].to_pylist() == ["empty", "ok", "empty", "empty"]


def reflection(case, key, facts, ids, concepts):
    return {
        "case_id": case,
        "reflection_id": key,
        "text": "So.",
        "fact_ids": facts,
        "interaction_ids": ids,
        "concepts": concepts,
    }


def test_reflections_rest_on_the_facts_that_were_taken(tmp_path):
    rows = [
        reflection("b", "r0", ["x"], ["wrong"], []),
        reflection("a", "r1", ["f2", "f3", "f1"], [], ["m_n"]),
        reflection("a", "r2", ["f3"], ["i0"], []),
        reflection("a", "r1", ["f1"], ["i0"], []),
        reflection("z", "r1", ["f9"], ["i0"], []),
    ]
    options = {"facts": lines(tmp_path / "f", *FACTS), "reflections": lines(tmp_path / "r", *rows)}
    facts = fill(options, "facts", THREE)[0]["facts"]
    made, counts = fill(options, "reflections", facts)
    assert made["reflections"].to_pylist() == [
        reflection("a", "r1", ["f2", "f1"], ["i2", "i0"], ["m_n"]),
        reflection("b", "r0", ["x"], ["i0"], []),
    ]
    assert counts == {
        "reflections_taken": 2,
        "reflections_unknown": 1,
        "reflections_repeated": 1,
        "evidence_unknown": 1,
    }
    outcomes = made["outcomes"].select(["case_id", "key", "status"]).to_pylist()
    assert outcomes == [{"case_id": case, "key": "0", "status": "ok"} for case in "ab"]


def test_entities_and_relations(tmp_path):
    node = {"case_id": "a", "interaction_id": "i1", "kind": "person", "attributes": ["age: 9"], "role": "user"}
    edge = {"case_id": "a", "interaction_id": "i1", "kind": "knows", "attributes": ["since: 2019"]}
    entities = [{**node, "title": "Ann"}, {**node, "title": "Bob", "interaction_id": "i4"}, {**node, "title": "Bo"}]
    relations = [
        {**edge, "source": "ANN", "target": "Cy"},
        {**edge, "source": "Cy", "target": "Bo", "interaction_id": "i0"},
        {**edge, "source": "Bo", "target": "Ann", "case_id": "y"},
    ]
    options = {"entities": lines(tmp_path / "e", *entities), "relations": lines(tmp_path / "r", *relations)}
    made, counts = fill(options, "entities", THREE)
    assert [(e["interaction_id"], e["title"], e["kind"]) for e in made["entities"].to_pylist()] == [
        ("i0", "Cy", "entity"),
        ("i0", "Bo", "entity"),
        ("i1", "Ann", "person"),
        ("i1", "Bo", "person"),
        ("i1", "Cy", "entity"),
    ]
    assert [(r["source"], r["target"]) for r in made["relations"].to_pylist()] == [("Cy", "Bo"), ("ANN", "Cy")]
    assert made["entities"].to_pylist()[2]["attributes"] == ["age: 9"]
    assert counts == {"entities_taken": 2, "entities_unknown": 1, "relations_taken": 2, "ends_added": 3}
    assert made["outcomes"]["status"].to_pylist() == ["ok", "ok", "empty", "empty"]
    alone, counts = fill({"relations": options["relations"]}, "entities", THREE)
    assert (alone["entities"].num_rows, counts) == (4, {"relations_taken": 2, "ends_added": 4})


def test_triples(tmp_path):
    triple = {"case_id": "a", "subject": "s", "predicate": "p", "object": "o"}
    rows = [{**triple, "interaction_id": f"i{n}"} for n in (2, 0, 2, 3)]
    made, counts = fill({"triples": lines(tmp_path / "t", *rows)}, "triples", THREE)
    assert made["triples"]["interaction_id"].to_pylist() == ["i0", "i2", "i2"]
    assert counts == {"triples_taken": 3, "triples_unknown": 1}


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('{"case_id": "a"}', "lacks interaction_id, subject, predicate, object"),
        ("[1, 2]", "holds no object but [1, 2]"),
        ("nonsense", "neither Parquet nor JSON lines"),
        (
            '{"case_id": 7, "interaction_id": "i", "subject": "", "predicate": "", "object": ""}',
            "'case_id' is 7, not a text",
        ),
        (
            '{"case_id": "a", "interaction_id": "i", "subject": null, "predicate": "", "object": ""}',
            "'subject' is null, not a text",
        ),
    ],
)
def test_the_line_that_does_not_fit_is_told(tmp_path, line, says):
    good = '{"case_id": "a", "interaction_id": "i", "subject": "", "predicate": "", "object": "", "more": 1}'
    (tmp_path / "t").write_text(f"{good}\n\n{line}\n{good}\n")
    with pytest.raises(InputError) as caught:
        make("replay", {"triples": str(tmp_path / "t")})
    assert says in caught.value.message
    assert caught.value.where == f"{tmp_path / 't'}, line 3"
    assert "tagloom export triples" in caught.value.remedy


def test_a_column_that_does_not_fit_is_told(tmp_path):
    columns = {c: ["x"] for c in tables.schema("triples").names} | {"object": [["x"]]}
    pq.write_table(pa.table(columns), tmp_path / "t")
    with pytest.raises(InputError, match="column 'object'") as caught:
        make("replay", {"triples": str(tmp_path / "t")})
    assert caught.value.where == str(tmp_path / "t")


def test_lines_with_a_byte_order_mark_and_odd_characters(tmp_path):
    row = {"case_id": "a", "interaction_id": "i0", "subject": "s\ud800", "predicate": "p", "object": "<o>\x00"}
    (tmp_path / "t").write_bytes(b"\xef\xbb\xbf" + json.dumps(row).encode())
    made, _ = fill({"triples": str(tmp_path / "t")}, "triples", THREE)
    assert (
        made["triples"].to_pylist()[0] | {"subject": "s\ufffd", "object": "<o>\ufffd"} == made["triples"].to_pylist()[0]
    )


# -- observations -----------------------------------------------------------------------------------------------------


def test_each_observation_is_a_fact(tmp_path):
    path = observed(
        tmp_path / "o",
        a=[
            ("Ann", "Ann takes a yoga  class.", "D1:1"),
            ("Ann", "Ann owns a violin.", "D1:3, D1:01;D9:9"),
            ("Bob", "Bob likes bread.", ["D:1:1", "D1:2"]),
            ("Bob", "Nobody heard this.", "D7:7"),
            ("Bob", "No message.", ""),
            ("Bob", 7, "D1:1"),
            ("Bob", "Bob likes bread", ["D1:1", "D1:2"]),
        ],
        z=[("Zoe", "Zoe is elsewhere.", "D1:1")],
    )
    table = interactions(
        {"messages": ["D1:1"]}, {"messages": ["D1:2"], "user": "A silver flute"}, {"messages": ["D1:3"]}, {"case": "b"}
    )
    made, counts = fill({"observations": path}, "facts", table)
    assert [(f["fact_id"], f["text"], f["interaction_ids"], f["concepts"]) for f in made["facts"].to_pylist()] == [
        ("i0/f0", "Ann takes a yoga class.", ["i0"], ["yoga_class"]),
        ("i0/f1", "Ann owns a violin.", ["i0", "i2"], ["violin"]),
        ("i0/f2", "Bob likes bread.", ["i0", "i1"], ["bread"]),
    ]
    assert counts == {
        "facts_taken": 3,
        "facts_unknown": 1,
        "facts_repeated": 1,
        "facts_odd": 2,
        "evidence_repaired": 2,
        "evidence_unknown": 1,
    }
    assert made["concepts"]["concepts"].to_pylist() == [
        ["yoga_class", "violin", "bread"],
        ["bread", "flute"],
        ["violin"],
        [],
    ]


def test_notes_of_observations_know_several_messages_in_one_string(tmp_path):
    path = observed(tmp_path / "o", a=[("Ann", "Ann owns a violin.", "D1:1; D1:2")])
    table = interactions({"messages": ["D1:1"]}, {"messages": ["D1:2", "D1:1b"]})
    notes = replay({"observations": path}, table).to_pylist()
    assert [(n["who"], n["what"]) for n in notes] == [(["ann"], ["violin"])] * 2


@pytest.mark.parametrize(
    "text", ["[]", "{}", '[{"sample_id": "a"}]', '[{"observation": {"s": {"A": [["x", "D1:1"]]}}}]', "[7]"]
)
def test_a_file_without_observations(tmp_path, text):
    (tmp_path / "o").write_text(text)
    with pytest.raises(InputError, match="has no LoCoMo observations"):
        make("replay", {"observations": str(tmp_path / "o")})


def test_odd_entries_cost_themselves_alone(tmp_path):
    sessions = {
        "s": {"A": [["Fine.", "D1:1"], "loose", [], None, ["x", "D1:1", "y"], [["x"], "D1:1"], ["x", {"a": 1}]]}
    }
    record = {"sample_id": 5, "observation": {**sessions, "t": 3, "u": {"B": 4}}}
    (tmp_path / "o").write_text(json.dumps([7, None, record, {"sample_id": "b", "observation": "no"}]))
    table = interactions({"case": "5", "messages": ["D1:1"]})
    made, counts = fill({"observations": str(tmp_path / "o")}, "facts", table)
    assert (made["facts"]["text"].to_pylist(), counts) == (["Fine."], {"facts_taken": 1, "facts_odd": 7})


# -- open triples -----------------------------------------------------------------------------------------------------


def openie(path, *docs):
    path.write_text(json.dumps({"docs": list(docs), "avg_ent_chars": float("nan")}))
    return str(path)


def doc(passage, triples, entities=()):
    return {"passage": passage, "extracted_triples": triples, "extracted_entities": list(entities)}


def test_triples_go_to_the_passages_that_they_are_of(tmp_path):
    erie, oslo = ["Erie", "is", "city"], ["Oslo", " is\nvery ", "old"]
    path = openie(
        tmp_path / "x",
        doc("Erie\nErie  is a\u00a0city. ", [erie, ["erie", "IS", "City"], ["a", "b"]], ["Erie", "erie", 7]),
        {"title": "Oslo", "text": "Oslo is old.", "extracted_triples": [oslo, ["", "x", "y"], 3]},
        doc("Nowhere", [["a", "b", "c"]], ["a"]),
        doc("", [["a", "b", "c"]]),
        doc("Erie\nErie is a city.", [["Erie", "lies by", "a lake"]], ["lake"]),
        "no doc",
        {"passage": "Oslo\nOslo is old.", "extracted_triples": None},
    )
    table = interactions({"user": "Oslo\nOslo is old."}, {"user": "x"}, {"case": "b", "user": "Erie\nErie is a city."})
    made, counts = fill({"openie": path}, "triples", table)
    assert [tuple(t.values()) for t in made["triples"].to_pylist()] == [
        ("a", "i0", "Oslo", "is very", "old"),
        ("b", "i0", "Erie", "is", "city"),
        ("b", "i0", "Erie", "lies by", "a lake"),
    ]
    assert counts == {"docs_taken": 4, "triples_odd": 3, "triples_repeated": 1}
    made, counts = fill({"openie": path}, "entities", table)
    assert made["entities"]["title"].to_pylist() == ["Erie", "lake"]
    assert (made["relations"].num_rows, made["outcomes"]["status"].to_pylist()) == (0, ["empty", "empty", "ok"])
    assert counts == {"docs_taken": 4, "entities_odd": 1, "entities_repeated": 1}


@pytest.mark.parametrize("text", ["[]", "{}", '{"docs": {}}', '{"docs": [{"passage": 3}]}', "{"])
def test_a_file_without_passages(tmp_path, text):
    (tmp_path / "x").write_text(text)
    with pytest.raises(InputError):
        make("replay", {"openie": str(tmp_path / "x")})


# -- what holds of all of them ----------------------------------------------------------------------------------------

_IDS = st.sampled_from(["i0", "i1", "i2", "i9"])
_ROWS = st.lists(st.tuples(st.sampled_from("abz"), st.lists(_IDS, max_size=3), st.sampled_from("xyz")), max_size=8)
TABLE = interactions({"user": "A violin"}, {"user": "tea"}, {}, {"case": "b", "user": "A drum"}, {"case": "b"})


def _alike(options, known):
    """Check that two cases at once give what each alone gives, and that every row of theirs is counted once."""
    whole, counts = fill(options, "facts", TABLE)
    apart = [fill(options, "facts", one) for one in (TABLE.slice(0, 3), TABLE.slice(3))]
    for name, table in whole.items():
        assert table.to_pylist() == [row for made, _ in apart for row in made[name].to_pylist()]
    assert Counter(counts) == sum((Counter(own) for _, own in apart), Counter())
    assert sum(n for name, n in counts.items() if name.startswith("facts_")) == known


@settings(max_examples=15, deadline=None)
@given(_ROWS)
def test_cases_do_not_know_of_each_others_facts(tmp_path_factory, rows):
    facts = [
        {"case_id": case, "fact_id": f"f{n % 6}", "text": text, "interaction_ids": ids, "concepts": [f"{text}_{text}"]}
        for n, (case, ids, text) in enumerate(rows)
    ]
    path = lines(tmp_path_factory.mktemp("replay") / "f", *facts)
    _alike({"facts": path}, sum(case in "ab" for case, _, _ in rows))
    nothing, counts = fill({"facts": path}, "facts", TABLE.slice(0, 0))
    assert (counts, {table.num_rows for table in nothing.values()}) == ({}, {0})


@settings(max_examples=5, deadline=None)
@given(_ROWS)
def test_cases_do_not_know_of_each_others_observations(tmp_path_factory, rows):
    entries = {"a": [("Ann", "Ann sings.", "m0")]}
    for case, ids, text in rows:
        entries.setdefault(case, []).append(("Ann", f"{text} sings.", [one.replace("i", "m") for one in ids]))
    path = observed(tmp_path_factory.mktemp("replay") / "o", **entries)
    _alike({"observations": path}, 1 + sum(case in "ab" for case, _, _ in rows))


@pytest.mark.parametrize("task", ["facts", "entities", "triples"])
def test_what_was_filled_can_be_filled_again(tmp_path, task):
    """The tables of a task, written and replayed, are themselves."""
    path = openie(tmp_path / "x", doc("tea", [["a", "b", "c"]], ["q", "r"]))
    told = observed(tmp_path / "o", a=[("A", "A owns a violin.", ["m0", "m2"])], b=[("B", "x", "m0")])
    options = {"facts": {"observations": told}, "entities": {"openie": path}, "triples": {"openie": path}}
    first, _ = fill(options[task], task, TABLE)
    assert sum(table.num_rows for name, table in first.items() if name != "outcomes")
    again = {}
    for name in first.keys() - {"outcomes"}:
        pq.write_table(first[name], tmp_path / name)
        again[name] = str(tmp_path / name)
    second, counts = fill(again, task, TABLE)
    assert all(second[name].equals(first[name]) for name in first)
    assert not [name for name in counts if not name.endswith("_taken")]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda made: {"triples": made["triples"], "facts": made["triples"]}, "gave the tables"),
        (lambda made: {"triples": made["triples"].drop_columns(["object"])}, "columns are"),
        (
            lambda made: {"triples": tables.build("triples", {c: ["b"] for c in tables.schema("triples").names})},
            "such as interaction_id 'b' of case 'b'",
        ),
    ],
)
def test_an_extractor_that_breaks_its_promise(change, says):
    triple = {"case_id": ["a"], "interaction_id": ["i0"], "subject": ["s"], "predicate": ["p"], "object": ["o"]}
    good = {"triples": tables.build("triples", triple)}
    assert complete("mine", tasks.load("triples"), TABLE, Filled(good))["outcomes"].num_rows == 5
    with pytest.raises(SchemaError, match=says):
        complete("mine", tasks.load("triples"), TABLE, Filled(change(good)))


def test_concepts_in_another_order_are_noticed():
    told = tables.build("concepts", {n: TABLE[n] for n in ("case_id", "interaction_id")} | {"concepts": [[]] * 5})
    made = {"facts": tables.empty("facts"), "concepts": told}
    complete("mine", tasks.load("facts"), TABLE, Filled(made))
    with pytest.raises(SchemaError, match="other rows"):
        complete("mine", tasks.load("facts"), TABLE, Filled({**made, "concepts": told.take(pa.array([1, 0, 2, 3, 4]))}))


# -- real files -------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not LOCOMO.exists(), reason="LoCoMo is not beside the checkout (../shared/data/locomo)")
def test_locomo_facts():
    case = json.loads(LOCOMO.read_bytes())[5]
    turns = [t for name, s in case["conversation"].items() if isinstance(s, list) for t in s]
    rows = [{"case": case["sample_id"], "user": t["text"], "messages": [t["dia_id"]]} for t in turns]
    made, counts = fill({"observations": str(LOCOMO)}, "facts", interactions(*rows))
    entries = [e for session in case["observation"].values() for found in session.values() for e in found]
    assert made["facts"].num_rows == len(entries) == counts["facts_taken"]
    # One entry of this conversation names three turns in one string.
    assert counts["evidence_repaired"] == sum("," in e[1] for e in entries if isinstance(e[1], str)) == 1
    named = sum(len(e[1]) if isinstance(e[1], list) else 1 + e[1].count(",") for e in entries)
    assert sum(map(len, made["facts"]["interaction_ids"].to_pylist())) == named
    assert sum(map(bool, made["facts"]["concepts"].to_pylist())) > 0.9 * len(entries)


@pytest.mark.skipif(
    not OPENIE.exists(), reason="HippoRAG's files are not beside the checkout (../shared/data/hipporag)"
)
def test_published_triples():
    docs = json.loads(OPENIE.read_bytes())["docs"]
    table = interactions(*({"user": d["title"] + "\n" + d["text"]} for d in docs))
    made, counts = fill({"openie": str(OPENIE)}, "triples", table)
    whole = [t for d in docs for t in d["extracted_triples"] if len(t) == 3]
    assert counts["docs_taken"] == len(docs) == 1890
    assert counts["triples_odd"] == sum(len(d["extracted_triples"]) for d in docs) - len(whole)
    assert made["triples"].num_rows + counts["triples_repeated"] == len(whole) == 17_234
    distinct = {(n, *(p.lower() for p in t)) for n, d in enumerate(docs) for t in d["extracted_triples"] if len(t) == 3}
    assert made["triples"].num_rows == len(distinct)
