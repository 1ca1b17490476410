from __future__ import annotations

import asyncio
import importlib.util
from pathlib import Path

import pytest

from schemas import tables
from schemas.errors import MissingDependencyError
from transforms.extractors import make

pytest.importorskip("spacy", reason="spaCy is not installed (extra 'spacy')")

_spec = importlib.util.spec_from_file_location("extract_tools", Path(__file__).with_name("extract_tools.py"))
extract_tools = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(extract_tools)


def test_fields():
    table = extract_tools.interactions(
        {"user": "Yesterday Melanie Smith bought a red violin in London for $200 from Google.", "speakers": ["Ann"]},
        {"user": "", "assistant": "Paris has old museums."},
        {"user": "..."},
    )
    notes = asyncio.run(make("spacy", {}).extract(table, 1))
    tables.validate("notes", notes)
    first, second, third = notes.to_pylist()
    assert first["who"][0] == "ann"
    assert first["when"] == ["2023/05/07"]
    assert first["where"] == ["london"]
    assert "violin/red" in first["what"]
    assert {"google", "dollar/200"} <= set(first["extra"])
    assert (second["where"], second["status"]) == ([], "ok")
    assert third["status"] == "empty"


def test_unknown_model():
    with pytest.raises(MissingDependencyError, match="no_such_model"):
        make("spacy", {"model": "no_such_model"})
