"""The journal is paid for: `gc` touches it only when asked, and then only what no generation was made with."""

import asyncio

import pytest

from jobs import cli
from pipelines.gc import gc
from pipelines.journal import Journal, extractors, write_identity
from pipelines.store import Manifest, Store
from schemas.errors import StoreError
from tests.pipelines.replies import entry


@pytest.fixture
def store(tmp_path):
    """A corpus with two generations by a model each, and replies of a third model."""
    made = Store.create(str(tmp_path / "c"), 4)
    old = {"extract": "f2", "extract/facts": "f3"}
    made.storage.write_json("heads.json", {"main": {"units": {"extract": "f1"}}, "old": {"units": old}})
    for unit, mark, run in (
        ("extract", "f1", {"journal": ["one", "shared"]}),
        ("extract", "f2", {"journal": ["two"]}),
        ("extract/facts", "f3", {}),
    ):
        made.write_manifest(Manifest(unit, mark, 1, {}, (), {}, (), run))
    for model in ("one", "shared", "two", "three"):
        write_identity(made.storage, model, {"model": model})
        journal = Journal(made.storage, model, 2)
        journal.add(entry(1))
        asyncio.run(journal.finish())
    made.storage.write("journal/extract/one/00002/0-1-half.parquet.tmp-" + "0" * 32, b"half")
    made.storage.write("journal/extract/three/00002/0-1-bad.parquet.damaged", b"bad")
    return made


def models(store):
    return [held.extractor for held in extractors(store.storage)]


def test_the_journal_stays_and_half_written_files_go(store):
    assert gc(store).files == ("journal/extract/one/00002/0-1-half.parquet.tmp-" + "0" * 32,)
    assert models(store) == ["one", "shared", "three", "two"]


def test_replies_of_models_that_no_generation_was_made_with_go_when_asked(store):
    told = gc(store, journal=True, dry_run=True)
    assert models(store) == ["one", "shared", "three", "two"]
    swept = gc(store, journal=True)
    assert swept == told
    assert sorted({path.split("/")[2] for path in swept.files}) == ["one", "three"]
    assert len(swept.files) == 4
    assert models(store) == ["one", "shared", "two"]
    assert gc(store, journal=True, drop=("old",)).files
    assert models(store) == ["one", "shared"]
    assert Journal(store.storage, "one", 2).find(entry(1).key, 0) == entry(1)


def test_nothing_goes_when_a_manifest_is_missing(store):
    store.storage.remove(store.manifest_path("extract/facts", "f3"))
    with pytest.raises(StoreError, match="missing"):
        gc(store, journal=True)
    assert models(store) == ["one", "shared", "three", "two"]


def test_the_command(store, tmp_path, capsys):
    def told(*options):
        with pytest.raises(SystemExit) as done:
            cli.main(["gc", "-C", str(tmp_path / "c"), *options])
        assert not done.value.code
        return capsys.readouterr().out

    assert "removed 1 files" in told()
    assert "would remove 3 files" in told("--journal", "--dry-run")
    assert "removed 3 files" in told("--journal")
    assert models(store) == ["one", "shared", "two"]
