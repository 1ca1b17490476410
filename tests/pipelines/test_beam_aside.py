"""Shards that fail on Beam, in ingest's merge and in graph: set aside by a run, made whole by the next."""

import pytest

from pipelines import driver
from pipelines.failures import ShardsAsideError
from pipelines.gc import gc
from pipelines.store import Store
from schemas.errors import InputError, TagloomError
from schemas.ids import shard_of
from tests.pipelines.corpora import configure, live, run, session, write_lines
from transforms import graphs, merge

CASES = ("a", "b", "c", "d", "e", "f")
SHARDS = 8
SETTINGS = {"shards": SHARDS, "rank.presets": ["bm25", "taggraph-basic"]}
STAGES = ["extract", "graph"]


@pytest.fixture
def talks(tmp_path):
    lines = [session(case, 1, f"I live in town {case}.", "Good.", f"I met Ann {case}.", "Fine.") for case in CASES]
    return write_lines(tmp_path / "talks.jsonl", *lines)


def poison(monkeypatch, module, name, case, cases_of):
    """Make a function of ours fail where a case is in the work; return what undoes it."""
    whole = getattr(module, name)

    def poisoned(*given):
        if case in cases_of(*given):
            raise ValueError(f"{case} is\npoison")
        return whole(*given)

    monkeypatch.setattr(module, name, poisoned)
    return lambda: monkeypatch.setattr(module, name, whole)


def of_fragments(fragments):
    return {case for one in fragments for case in one.sessions["case_id"].to_pylist()}


def of_notes(tables, *_):
    return set(tables["notes"]["case_id"].to_pylist())


def test_shards_are_set_aside_and_healed(talks, tmp_path, monkeypatch):
    one, other = shard_of("c", SHARDS), shard_of("b", SHARDS)
    left = {case for case in CASES if shard_of(case, SHARDS) not in (one, other)}
    assert one != other and left
    run(tmp_path / "calm", talks, stages=STAGES, **SETTINGS)
    heal = [
        poison(monkeypatch, merge, "merge", "c", of_fragments),
        poison(monkeypatch, graphs.load("taggraph"), "build", "b", of_notes),
    ]
    why = {"ingest": {one: "c"}, "questions": {one: "c"}, "graph/taggraph": {other: "b"}}
    corpus = tmp_path / "c"
    for _ in range(2):  # and the same again: what failed before is tried again, the rest stays
        result = driver.run(configure(corpus, talks, **SETTINGS), stages=STAGES)
        assert result.aside == {
            unit: {shard: f"ValueError: {case} is poison" for shard, case in own.items()} for unit, own in why.items()
        }
        with pytest.raises(ShardsAsideError, match="2 shards were set aside"):
            driver.check_finished(result)
        generation = Store.open(str(corpus)).generation()
        for unit, own in why.items():
            assert not set(own) & {part.shard for part in generation.manifest(unit).parts}
        assert set(generation.table("nodes")["case_id"].to_pylist()) == left
    for undo in heal:
        undo()
    healed = run(corpus, talks, stages=STAGES, **SETTINGS)
    assert not healed.aside
    assert {unit: healed.made[unit] for unit in why} == {"ingest": 1, "questions": 1, "graph/taggraph": 2}
    assert live(corpus) == live(tmp_path / "calm")


def test_what_beam_made_is_known_without_reading_it(talks, tmp_path, monkeypatch):
    found, adopt = [], Store.adopt_part

    def adopted(store, *given, **named):
        found.append(adopt(store, *given, **named))
        return found[-1]

    monkeypatch.setattr(Store, "adopt_part", adopted)
    result = run(tmp_path / "c", talks, stages=STAGES, **SETTINGS)
    assert not any(found)
    monkeypatch.undo()
    store = Store.open(str(tmp_path / "c"))
    for manifest in result.manifests.values():
        for part in manifest.parts:
            assert part == store.adopt_part(manifest.tables, part.shard, part.key)
    assert result.manifests["graph/taggraph"].run["busy_seconds"] > 0


def test_where_all_shards_fail_the_run_ends_and_no_head_moves(talks, tmp_path, monkeypatch):
    monkeypatch.setattr(merge, "merge", lambda fragments: 1 // 0)
    with pytest.raises(TagloomError, match=r"merging shard \d: ZeroDivisionError"):
        run(tmp_path / "c", talks, stages=STAGES, **SETTINGS)
    assert Store.open(str(tmp_path / "c")).heads() == {}


def test_a_file_that_cannot_be_read_ends_the_run_and_is_named(talks, tmp_path, monkeypatch):
    from pipelines import ingest_read

    other = write_lines(tmp_path / "other.jsonl", session("z", 1, "Hello.", "Hi."))
    whole = ingest_read.open_source

    def broken(stream, source, config):
        if source.name == "other.jsonl":
            raise RecursionError("too deep")
        return whole(stream, source, config)

    monkeypatch.setattr(ingest_read, "open_source", broken)
    with pytest.raises(TagloomError, match=r"other\.jsonl: RecursionError: too deep"):
        run(tmp_path / "c", talks, other, stages=STAGES, **SETTINGS)
    monkeypatch.undo()
    talks.write_text("\x00\x01 nothing that we know")
    with pytest.raises(InputError, match=r"talks\.jsonl"):
        run(tmp_path / "c2", talks, **SETTINGS)


def test_notes_of_a_run_that_was_killed_are_swept(talks, tmp_path):
    run(tmp_path / "c", talks, stages=(), **SETTINGS)
    left = tmp_path / "c" / "runs" / "aside" / "merge-0-stop.json"
    left.parent.mkdir(parents=True)
    left.write_text("{}")
    assert gc(Store.open(str(tmp_path / "c"))).files == ("runs/aside/merge-0-stop.json",)
    assert not left.exists()
