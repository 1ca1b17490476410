"""Stage embed: which texts get vectors, which are embedded again, and which never."""

from dataclasses import dataclass, field, replace
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from pydantic import BaseModel

from indexers import embedders
from pipelines import embed
from pipelines.parquet import encode_table
from pipelines.stage import Inputs
from pipelines.storage import Storage
from pipelines.store import Manifest, Part, Store
from schemas.config import RunConfig
from schemas.errors import SchemaError
from tests.indexers.drawn import questions
from tests.pipelines.corpora import live, question, run, session, write_lines
from tests.transforms.graph_tools import inputs as tables_of


@dataclass
class Counting:
    """An embedder of two letters' counts that keeps what it is asked."""

    asked: list = field(default_factory=list)
    opened: int = 0
    closed: int = 0
    fails: bool = False

    prefixes: dict = field(default_factory=lambda: {"document": "", "query": "query: "})
    counts: dict = field(default_factory=dict)

    def embed(self, texts, purpose):
        if self.fails:
            raise embedders.EmbedderError("out of order")
        self.asked += [(purpose, text) for text in texts]
        rows = np.array([[text.count("a"), text.count("e"), text.count("o")] for text in texts], np.float32)
        rows = rows.reshape(-1, 3)
        return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)

    def close(self):
        self.closed += 1


class Options(BaseModel):
    size: int = 1


@pytest.fixture
def counting(monkeypatch):
    one = Counting()

    def opened(model, options):
        one.opened += 1
        return one

    module = SimpleNamespace(
        NAME="counting", VERSION=1, Options=Options, located=lambda model: model, open=opened,
        identity=lambda model, options: {"model": model, "size": options.size},
    )  # fmt: skip
    load = embedders.load
    monkeypatch.setattr(embedders, "load", lambda name: module if name == "counting" else load(name))
    yield one
    embed._close()


def embedded(store, key, tables, unit="embed/interactions", **own):
    """Run the stage over a part of the first shard as the driver does; returns the vectors and the counts."""
    config = RunConfig.model_validate(
        {"corpus": "x", "rank": {"presets": ["dense", "openclaw"]}, "embed": {"embedder": "counting", **own}}
    )
    (wanted,) = [one for one in embed.units(config) if one.name == unit]
    (read,) = wanted.reads
    if not store.has_part(tables, 0, key):
        store.write_part(0, key, tables)
    given = replace(wanted, runtime={**wanted.runtime, **embed.STAGE.besides(store, wanted, [0])[0]})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Storage, "walk", None)  # a worker lists nothing
        (output,) = embed.process(Inputs(store, {read: [(0, key)]}), [given])
    mark = f"{unit}-{key}-{own}".encode().hex()[:60]
    part = store.write_part(0, mark, output.tables, output.stats)
    store.write_manifest(Manifest(unit, mark, 1, wanted.described, ("vectors",), {}, (part,)))
    return output.tables["vectors"], output.stats


def told(*texts):
    """Return interactions of these texts."""
    rows = [("x", f"i{n}", {"text": text}) for n, text in enumerate(texts)]
    return {"interactions": tables_of(*rows)["interactions"]}


def texts_of(one, purpose="document"):
    found = sorted(text for what, text in one.asked if what == purpose)
    one.asked.clear()
    return found


@pytest.fixture
def store(tmp_path):
    return Store.create(str(tmp_path / "c"), 1)


def test_each_text_is_embedded_once_and_then_only_what_is_new(store, counting):
    made, stats = embedded(store, "one", told("a tale", "one more", "a tale", " "))
    assert texts_of(counting) == [" ", "a tale", "one more"]
    assert made["key"].to_pylist() == ["i0", "i1", "i2", "i3"]
    assert made["vector"][0] == made["vector"][2]
    assert made["vector"][3].as_py() == [0, 0, 0]
    assert stats == {"without_vector": 0}
    embedded(store, "two", told("one more", "something else", "a tale"))
    assert texts_of(counting) == ["something else"]
    embedded(store, "two", told("one more", "something else", "a tale"))
    assert texts_of(counting) == []
    # A question is another text: what the embedder puts before it is part of it.
    asked = {"questions": questions([("x", "a tale")])}
    embedded(store, "asked", asked, "embed/questions")
    assert texts_of(counting, "query") == ["a tale"]


def test_each_shard_is_told_of_its_own_earlier_parts(tmp_path):
    store = Store.create(str(tmp_path / "c"), 4)
    config = RunConfig.model_validate({"corpus": "x", "rank": {"presets": ["dense"]}, "embed": {"dtype": "float16"}})
    unit = embed.units(config)[0]
    parts = [Part(shard, key, {}) for shard, key in ((0, "a"), (1, "b"), (3, "c"))]
    store.write_manifest(Manifest("embed/chunks", "f1", 1, unit.config, ("vectors",), {}, tuple(parts)))
    store.write_manifest(Manifest("embed/user", "f2", 1, unit.config, ("vectors",), {}, (parts[0], Part(1, "d", {}))))
    other = {**unit.config, "dtype": "float32"}
    store.write_manifest(Manifest("embed/user", "f3", 1, other, ("vectors",), {}, (Part(0, "e", {}),)))
    wanted = {0: ("a",), 1: ("b", "d"), 2: ()}
    assert embed.earlier(store, unit, [0, 1, 2]) == {shard: {"earlier": keys} for shard, keys in wanted.items()}


def test_reuse_changes_no_byte(tmp_path, store, counting):
    texts = ("a tale of Rome", "one more", "the other one", "")
    embedded(store, "one", told(texts[1], texts[3], "what is gone since"))
    grown, _ = embedded(store, "two", told(*texts))
    fresh, _ = embedded(Store.create(str(tmp_path / "d"), 1), "two", told(*texts))
    assert encode_table("vectors", grown, None) == encode_table("vectors", fresh, None)


def test_what_makes_other_vectors_embeds_again(store, counting):
    texts = told("a tale", "one more")
    embedded(store, "one", texts)
    for own in ({"dtype": "float32"}, {"options": {"size": 2}}, {"model": "other"}):
        counting.asked.clear()
        embedded(store, "one", texts, **own)
        assert texts_of(counting) == ["a tale", "one more"]
    embedded(store, "one", texts)
    assert texts_of(counting) == []


def test_chunks_reuse_the_vectors_of_whole_interactions(store, counting):
    texts = told("a tale", "x" * 1500 + "\n" + "y" * 1500)
    embedded(store, "one", texts)
    counting.asked.clear()
    made, _ = embedded(store, "one", texts, "embed/chunks")
    assert texts_of(counting) == ["x" * 1500, "y" * 1500]
    assert made["key"].to_pylist() == ["i0#0", "i1#0", "i1#1"]


def test_precision_is_what_it_says(store, counting):
    exact = counting.embed(["a tale"], "document")[0]
    for own, kept in (({}, exact.astype(np.float16).astype(np.float32)), ({"dtype": "float32"}, exact)):
        made, _ = embedded(store, "one", told("a tale"), **own)
        assert np.array(made["vector"][0].as_py(), np.float32).tolist() == kept.tolist()


def test_what_the_model_refuses_is_counted(store, counting):
    # It has vectors of a, e and o alone.
    _, stats = embedded(store, "one", told("hmm", "a tale", "\t", ""))
    assert stats == {"without_vector": 1}


@pytest.mark.slow
def test_a_run_that_goes_on_embeds_what_is_new_and_has_the_bytes_of_one_run(tmp_path, counting):
    settings = {"rank.presets": ["dense"], "embed.embedder": "counting", "shards": 1}
    first = write_lines(tmp_path / "a.jsonl", session("x", 1, "a tale"), question("x", "which tale?", "s1"))
    second = write_lines(tmp_path / "b.jsonl", session("y", 1, "a tale"), session("x", 2, "one more"))
    run(tmp_path / "grown", first, **settings)
    assert sorted(counting.asked) == [("document", "a tale"), ("query", "which tale?")]
    counting.asked.clear()
    run(tmp_path / "grown", second, append=True, **settings)
    assert [text for _, text in counting.asked] == ["one more"]
    run(tmp_path / "new", first, second, **settings)
    assert live(tmp_path / "grown") == live(tmp_path / "new")


def test_one_model_is_loaded_for_all_parts_until_another_is_wanted(counting):
    for _ in range(2):
        with embed.at_work("counting", None, {}) as one:
            assert one is counting
    assert (counting.opened, counting.closed) == (1, 0)
    with embed.at_work("counting", "other", {}):
        assert (counting.opened, counting.closed) == (2, 1)
    with embed.at_work("counting", "other", {"size": 2}):
        assert (counting.opened, counting.closed) == (3, 2)
    counting.fails = True
    with pytest.raises(embedders.EmbedderError), embed.at_work("counting", "other", {"size": 2}) as one:
        one.embed(["x"], "query")
    assert counting.closed == 3
    with embed.at_work("counting", "other", {"size": 2}):
        assert counting.opened == 4


def names(presets, **more):
    config = RunConfig.model_validate({"corpus": "memory://x", "rank": {"presets": presets}, **more})
    return {unit.name: unit.reads for unit in embed.units(config)}


def test_units_are_those_that_presets_read():
    assert names(["bm25", "adaptivegraph"]) == {}
    assert names(["dense"]) == {"embed/interactions": ("ingest",), "embed/questions": ("questions",)}
    assert set(names(["openclaw"])) == {"embed/chunks", "embed/questions"}
    assert names(["gaama", "hipporag"])["embed/concept"] == ("graph/concept",)
    assert set(names(["blend-context"])) == {"embed/interactions", "embed/questions"}
    own = {"presets": ["mine"], "define": {"mine": {"method": "expansion", "graph": "relations"}}}
    assert "embed/relations" in names([], rank=own)


def test_blank_texts_have_no_vector_and_are_no_loss():
    rows = pa.table({"text": ["", " \n", "x", "y"]})
    made = pa.table({"vector": pa.array([[0, 0], [0, 0], [0, 0], [1, 0]], pa.list_(pa.float32()))})
    assert embed.without_vector(made, rows) == 1


def test_a_question_without_a_vector_is_told():
    asked = pa.table({"case_id": ["a", "b"], "question_id": ["q", "q"]})
    vectors = pa.table({"case_id": ["b", "a"], "key": ["q", "q"], "vector": pa.array([[1.0], [2.0]])})
    assert embed.vectors_of(asked, vectors).tolist() == [[2], [1]]
    with pytest.raises(SchemaError, match=r"(?s)a question has no vector.*Run again"):
        embed.vectors_of(asked, vectors.slice(0, 1))
