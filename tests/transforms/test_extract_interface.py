from __future__ import annotations

import sys
import types

import pytest

from schemas import registry
from schemas.errors import ConfigError, MissingDependencyError, UsageError
from transforms import extractors


def test_own_modules_are_found():
    assert {"lexical", "replay", "spacy"} <= set(extractors.names())
    assert not [name for name in extractors.names() if name.startswith("_")]
    module = extractors.load("lexical")
    assert (module.NAME, module.VERSION >= 1) == ("lexical", True)


def test_unknown_name():
    with pytest.raises(UsageError, match="lexcal") as caught:
        extractors.load("lexcal")
    assert "Did you mean 'lexical'?" in caught.value.remedy
    assert "replay" in caught.value.remedy


def test_options_are_checked():
    with pytest.raises(ConfigError, match="no option 'modle'") as caught:
        extractors.fingerprint_parts("spacy", {"modle": "x"})
    assert caught.value.where == "extract.options.modle"
    assert "Did you mean 'model'?" in caught.value.remedy
    with pytest.raises(ConfigError, match="greater than or equal to 1"):
        extractors.fingerprint_parts("spacy", {"batch_size": 0})
    with pytest.raises(ConfigError, match="no option") as caught:
        extractors.make("lexical", {"a": 1})
    assert "has no options" in caught.value.remedy


def test_fingerprint_parts_hold_the_whole_options():
    assert extractors.fingerprint_parts("spacy", {}) == {
        "name": "spacy",
        "version": extractors.load("spacy").VERSION,
        "options": {"model": "en_core_web_sm", "batch_size": 64},
    }


def _plugin(monkeypatch, module):
    monkeypatch.setitem(sys.modules, "some_plugin", module)
    named = {"tagloom.extractors": {"mine": "some_plugin"}}
    monkeypatch.setattr(registry, "theirs", lambda group: named.get(group, {}))


def test_third_parties(monkeypatch):
    module = types.ModuleType("some_plugin")
    lexical = extractors.load("lexical")
    module.NAME, module.VERSION, module.Options, module.make = "mine", 3, lexical.Options, lexical.make
    _plugin(monkeypatch, module)
    assert "mine" in extractors.names()
    assert extractors.load("mine") is module
    assert extractors.fingerprint_parts("mine", {})["version"] == 3


def test_third_party_module_that_is_no_extractor(monkeypatch):
    _plugin(monkeypatch, types.ModuleType("some_plugin"))
    with pytest.raises(ConfigError, match="lacks NAME, VERSION, Options, make"):
        extractors.load("mine")


def test_third_party_module_that_lacks_a_library(monkeypatch):
    monkeypatch.setattr(registry, "theirs", lambda group: {"mine": "no_such_library_here"})
    with pytest.raises(MissingDependencyError, match="no_such_library_here"):
        extractors.load("mine")


def test_spacy_missing_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "spacy", None)
    with pytest.raises(MissingDependencyError) as caught:
        extractors.make("spacy", {})
    assert "pip install 'tagloom[spacy]'" in caught.value.remedy
