from __future__ import annotations

import asyncio
import importlib.util
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from schemas import tables
from schemas.errors import ConfigError, InputError
from transforms.extractors import fingerprint_parts, lexical, make

_spec = importlib.util.spec_from_file_location("extract_tools", Path(__file__).with_name("extract_tools.py"))
extract_tools = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(extract_tools)
interactions = extract_tools.interactions

LOCOMO = Path(__file__).parents[3] / "shared/data/locomo/locomo10.json"


def replay(options, table):
    notes = asyncio.run(make("replay", options).extract(table, 0))
    tables.validate("notes", notes)
    return notes


def test_notes_are_taken_over(tmp_path):
    table = interactions({"user": "The violin"}, {"user": "A flute"}, {"case": "b", "user": "The drum"})
    notes = lexical.extract(table)
    path = tmp_path / "notes.parquet"
    pq.write_table(notes.take(pa.array([2, 0])), path)
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
    assert before["options"] == {"notes": None, "observations": str(path)}
    path.write_text("[ ]")
    after = fingerprint_parts("replay", {"observations": str(path)})
    assert before["files"].keys() == after["files"].keys() == {"observations"}
    assert before["files"] != after["files"]


@pytest.mark.parametrize("option", ["notes", "observations"])
def test_files_that_cannot_be_used(tmp_path, option):
    missing = str(tmp_path / "none")
    with pytest.raises(InputError) as caught:
        make("replay", {option: missing})
    assert caught.value.where == missing
    with pytest.raises(InputError):
        fingerprint_parts("replay", {option: missing})
    other = tmp_path / "other"
    other.write_text('{"a": 1}')
    with pytest.raises(InputError):
        make("replay", {option: str(other)})
    with pytest.raises(InputError):
        make("replay", {option: "nosuchscheme://x"})


def test_another_table(tmp_path):
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"a": [1]}), path)
    with pytest.raises(InputError, match="no notes table"):
        make("replay", {"notes": str(path)})


@pytest.mark.parametrize("options", [{}, {"notes": "a", "observations": "b"}, {"notes": ""}])
def test_exactly_one_source(options):
    with pytest.raises(ConfigError):
        make("replay", options)


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
