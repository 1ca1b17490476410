"""A shard that fails again and again is set aside: the run ends without it, and the next run heals it."""

from dataclasses import replace

import pytest

from pipelines import driver, query
from pipelines.attempts import Attempts
from pipelines.failures import ShardsAsideError
from pipelines.load import Load
from pipelines.planner import unit_fingerprint
from pipelines.progress import Silent
from pipelines.stage import Item, Unit
from pipelines.store import Store
from schemas.errors import StoreError, TagloomError
from schemas.ids import shard_of
from tests.integration.poison import installed
from tests.pipelines.corpora import configure, live, question, run, session, tables, write_lines
from transforms import merge
from transforms.graphs import taggraph

CASES = ("a", "b", "c", "d", "e", "f")
SHARDS = 8
POISONED = {"extract.extractor": "poisoned", "shards": SHARDS, "rank.presets": ["bm25", "taggraph-basic"]}


@pytest.fixture
def poison(tmp_path, monkeypatch):
    with installed(tmp_path / "plugin", monkeypatch) as made:
        yield made


@pytest.fixture
def talks(tmp_path):
    lines = [session(case, 1, f"I live in town {case}.", "Good.", f"I met Ann {case}.", "Fine.") for case in CASES]
    asked = [question(case, f"Who is in {case}?", "s1") for case in CASES]
    return write_lines(tmp_path / "talks.jsonl", *lines, *asked)


class Told(Silent):
    def __init__(self):
        self.heard = []

    def started(self, shard):
        self.heard.append(("started", shard))

    def finished(self, shard, cost):
        assert cost.seconds > 0
        self.heard.append(("finished", shard))

    def failed(self, failure):
        self.heard.append(("failed", failure.stage, failure.shard, failure.attempt, failure.kind, failure.aside))


def shard(case):
    return shard_of(case, SHARDS)


def test_a_shard_that_always_fails_is_set_aside_and_healed(poison, talks, tmp_path):
    run(tmp_path / "calm", talks, **POISONED)
    bad = shard("c")
    mates = sorted(case for case in CASES if shard(case) == bad)
    corpus = tmp_path / "c"
    poison.tries()
    poison.fail(raises=["c"])
    told = Told()
    result = driver.run(configure(corpus, talks, **POISONED), progress=told)
    assert [one for one in told.heard if one[0] == "failed"] == [
        ("failed", "extract", bad, 1, "RuntimeError", False),
        ("failed", "extract", bad, 2, "RuntimeError", False),
        ("failed", "extract", bad, 3, "RuntimeError", True),
    ]
    others = sorted({shard(case) for case in CASES} - {bad})
    assert sorted({one[1] for one in told.heard if one[0] == "finished"}) == sorted({*others, bad, 0})
    assert sum(mates == sorted(cases) for _, cases in poison.tries()) == 3

    with pytest.raises(ShardsAsideError) as caught:
        driver.check_finished(result)
    assert caught.value.exit_code == 3
    named = f"case {mates[0]}" if len(mates) == 1 else f"cases {', '.join(mates)}"
    assert caught.value.message == (
        f"1 shard was set aside: extract, shard {bad} ({named}): RuntimeError: poison in {mates[0]}. "
        f"{len(mates)} questions of theirs are not scored."
    )

    # The head moved, and what reads the shard's notes lacks the shard.
    generation = Store.open(str(corpus)).generation()
    reason = f"RuntimeError: poison in {mates[0]}"
    assert generation.head["aside"] == {"extract": {str(bad): reason}}
    calm = Store.open(str(tmp_path / "calm")).generation()
    untouched = {"ingest", "questions", "index/raw"}
    for unit in generation.units:
        made, whole = generation.manifest(unit), calm.manifest(unit)
        if unit in untouched:
            assert made.fingerprint == whole.fingerprint and not made.aside
        elif whole.whole:
            assert made.fingerprint != whole.fingerprint and set(made.aside) == {bad}
        else:
            assert [p.shard for p in made.parts] == [p.shard for p in whole.parts if p.shard != bad]
            assert set(made.aside) == {bad}
    assert generation.manifest("extract").aside == {bad: reason}
    assert generation.manifest("graph/taggraph").aside == {bad: "'extract' lacks it"}
    scored = generation.table("question_metrics")["case_id"].unique().to_pylist()
    assert sorted(scored) == sorted(set(CASES) - set(mates))

    # The same again: the parts that are there are not made again, and the manifests are the same.
    first = {unit: generation.units[unit] for unit in generation.units}
    poison.tries()
    again = run(corpus, talks, **POISONED)
    assert dict(again.generation.units) == first
    assert [sorted(cases) for _, cases in poison.tries()] == [mates] * 3
    assert sum(again.made.values()) == 0

    poison.heal()
    healed = run(corpus, talks, **POISONED)
    assert healed.aside == {} and "aside" not in healed.generation.head
    assert driver.check_finished(healed) is None
    assert [sorted(cases) for _, cases in poison.tries()] == [mates]
    assert healed.generation.units == calm.units
    assert live(corpus) == live(tmp_path / "calm")
    assert set(tables(tmp_path / "calm")) <= set(tables(corpus))


def test_a_failure_that_passes_costs_one_more_try(poison, talks, tmp_path):
    run(tmp_path / "calm", talks, **POISONED)
    poison.fail(raises=["d"], once=True)
    told = Told()
    result = driver.run(configure(tmp_path / "c", talks, **POISONED), progress=told)
    assert [one[3:] for one in told.heard if one[0] == "failed"] == [(1, "RuntimeError", False)]
    assert result.aside == {} and live(tmp_path / "c") == live(tmp_path / "calm")


def test_a_graph_and_a_merge_that_fail_are_set_aside_alike(talks, tmp_path, monkeypatch):
    """Beam's stages: what fails in the process of the runner."""
    own = {"shards": SHARDS, "rank.presets": ["bm25", "taggraph-basic"]}
    run(tmp_path / "calm", talks, **own)
    bad, worse = sorted({shard(case) for case in CASES})[:2]
    real_build, real_merge = taggraph.build, merge.merge

    def build(tables, options):
        if shard(tables["notes"]["case_id"][0].as_py()) == bad:
            raise ValueError("no graph")
        return real_build(tables, options)

    def merged(fragments):
        found = real_merge(fragments)
        if shard(found.interactions["case_id"][0].as_py()) == worse:
            raise ValueError("no merge")
        return found

    with monkeypatch.context() as patch:
        patch.setattr(taggraph, "build", build)
        patch.setattr(merge, "merge", merged)
        result = run(tmp_path / "c", talks, **own)
    assert {unit: set(found) for unit, found in result.aside.items()} == {
        "ingest": {worse}, "questions": {worse}, "graph/taggraph": {bad},
    }  # fmt: skip
    assert set(result.manifests["extract"].aside) == {worse}
    assert set(result.manifests["rank/bm25"].aside) == {worse}
    assert set(result.manifests["rank/taggraph-basic"].aside) == {bad, worse}
    error = driver.shards_aside(result)
    assert error.message.startswith("2 shards were set aside: ingest, shard ") and "no graph" in error.message
    healed = run(tmp_path / "c", talks, **own)
    assert healed.aside == {}
    assert healed.generation.units == Store.open(str(tmp_path / "calm")).generation().units
    assert live(tmp_path / "c") == live(tmp_path / "calm")


def test_a_question_to_a_case_that_was_set_aside_is_told_so(poison, talks, tmp_path):
    poison.fail(raises=["a"])
    run(tmp_path / "c", talks, **POISONED)
    generation = Store.open(str(tmp_path / "c")).generation()
    with pytest.raises(StoreError, match=f"case 'a' lies in shard {shard('a')}, which 'index/note' lacks: 'extract'"):
        query.answer(generation, "a", "Who is Ann?", "taggraph-basic", 3)
    other = next(case for case in CASES if shard(case) != shard("a"))
    assert query.answer(generation, other, f"Ann {other}", "taggraph-basic", 3).num_rows


def test_where_every_shard_fails_the_run_ends_with_the_first_error(poison, talks, tmp_path):
    poison.fail(raises=CASES)
    with pytest.raises(TagloomError, match=r"extract, shard \d: RuntimeError: poison in"):
        run(tmp_path / "c", talks, **POISONED)
    assert len(poison.tries()) == 9, "three shards, three times each"
    assert Store.open(str(tmp_path / "c")).heads() == {}


def test_a_damaged_part_still_ends_the_run_at_once(poison, talks, tmp_path):
    corpus = tmp_path / "c"
    run(corpus, talks, stages=(), **POISONED)
    part = next(iter((corpus / "tables" / "interactions").rglob("*.parquet")))
    data = part.read_bytes()
    part.write_bytes(data[:40] + bytes(40) + data[80:])  # one of another size would be made anew
    with pytest.raises(StoreError):
        run(corpus, talks, **POISONED)


def test_a_shard_added_and_failed_does_not_pass_for_the_generation_before(poison, talks, tmp_path):
    """The parts that are there are those of the generation before, and yet one is missing."""
    corpus = tmp_path / "c"
    before = run(corpus, talks, **POISONED)
    new = next(case for case in map(str, range(100)) if shard(case) not in {shard(one) for one in CASES})
    more = write_lines(tmp_path / "more.jsonl", session(new, 1, "Something new.", "Yes."))
    poison.fail(raises=[new])
    result = run(corpus, more, append=True, **POISONED)
    assert set(result.aside["extract"]) == {shard(new)}
    made, old = result.manifests["extract"], before.manifests["extract"]
    assert made.parts == old.parts and made.fingerprint != old.fingerprint
    assert set(result.manifests["rank/bm25"].aside) == {shard(new)}
    # Without that input the generation is what it was, and lacks nothing.
    again = run(corpus, talks, **POISONED)
    assert again.generation.units == before.generation.units and not again.aside
    assert not again.manifests["extract"].aside


def item(number, *units, whole=False):
    made = tuple(Unit(name, {}, (), (), whole=whole) for name in units or ("index/raw",))
    return Item("memory://none", 8, "index", number, made, ("k",) * len(made), {})


def fail(attempts, number, times=3, error=None, **more):
    return [attempts.failed(item(number), error or ValueError(f"bad {number}"), **more).aside for _ in range(times)]


def test_attempts_are_counted_by_shard_and_errors_that_concern_the_run_end_it():
    attempts = Attempts([item(n) for n in range(9)])
    assert fail(attempts, 1) == [False, False, True]
    assert fail(attempts, 2) == [False, False, True]
    failure = attempts.failed(item(5), RuntimeError("gone\n away"), lost=True)
    assert (failure.kind, failure.reason) == ("lost", "the worker was lost: gone away")
    with pytest.raises(StoreError, match="no space"):
        attempts.failed(item(6), OSError("no space"))
    assert not attempts.failed(item(6), OSError("no space"), lost=True).aside
    with pytest.raises(TagloomError, match="index, shard 1: ValueError: bad 1"):
        fail(attempts, 3)


def test_success_says_that_the_shards_are_to_blame():
    attempts = Attempts([item(n) for n in range(9)])
    attempts.succeeded()
    assert [fail(attempts, n)[-1] for n in range(5)] == [True] * 5


def test_shards_that_failed_before_do_not_count_as_a_sign():
    attempts = Attempts([item(n) for n in range(9)], kept=True, known=(1, 2, 3, 4))
    assert [fail(attempts, n)[-1] for n in (1, 2, 3, 4, 5, 6)] == [True] * 6
    with pytest.raises(TagloomError, match="bad 5"):
        fail(attempts, 7)


def test_one_shard_alone_is_set_aside_only_where_others_are_kept():
    assert fail(Attempts([item(1)], kept=True), 1)[-1]
    with pytest.raises(TagloomError, match="bad 1"):
        fail(Attempts([item(1)]), 1)


def test_a_part_over_all_shards_ends_the_run():
    attempts = Attempts([item(0, "route/x", whole=True)], kept=True)
    whole = item(0, "route/x", whole=True)
    attempts.failed(whole, ValueError("no"))
    attempts.failed(whole, ValueError("no"))
    with pytest.raises(TagloomError, match="ValueError: no"):
        attempts.failed(whole, ValueError("no"))


def test_the_last_try_has_a_worker_to_itself():
    attempts, load = Attempts([item(n) for n in range(4)]), Load(None)
    attempts.failed(item(1), RuntimeError("x"), lost=True)
    assert not attempts.alone(item(1))
    attempts.failed(item(1), RuntimeError("x"), lost=True)
    assert attempts.alone(item(1)) and not attempts.alone(item(2))
    load.give(0, item(2))
    assert load.free([0], alone=True) is None, "somebody is at work there"
    assert load.free([0, 1], alone=True) == 1
    load.give(1, item(1), alone=True)
    assert [load.free([1]), load.free([0, 1])] == [None, 0]
    load.done(1, item(1))
    assert load.free([1]) == 1


def test_a_failed_item_goes_to_another_worker_where_there_is_one():
    load = Load(None)
    assert load.free([0, 1], but={0}) == 1
    load.give(1, item(1))
    load.give(1, item(2))
    assert load.free([0, 1], but={0}) is None, "it waits for the other one"
    assert load.free([0], but={0}) == 0


def test_a_worker_gets_no_more_than_its_share():
    load = Load(1000)
    for number in range(3):
        assert load.free([0], most=3) == 0
        load.give(0, item(number))
    assert [load.free([0], most=3), load.free([0, 1], most=3), load.free([0])] == [None, 1, 0]
    assert load.free([0, 1], but={1}, most=3) is None, "it waits for that one, and is not piled on it"
    assert load.busy() == {0}
    load.done(0, item(0))
    assert load.free([0], most=3) == 0


def test_a_fingerprint_names_what_is_left_out():
    keys = {0: "a", 1: "b"}
    assert unit_fingerprint("extract", keys) == unit_fingerprint("extract", keys, {})
    assert len({unit_fingerprint("extract", keys, own) for own in ((), (2,), (3,))}) == 3


def test_a_manifest_keeps_what_is_left_out(tmp_path):
    store = Store.create(str(tmp_path / "c"), 8)
    from pipelines.store import Manifest

    made = Manifest("extract", "f", 1, {}, ("notes",), {}, (), aside={10: "x", 2: "y\u0000"})
    store.write_manifest(made)
    assert store.read_manifest("extract", "f") == made
    plain = replace(made, fingerprint="g", aside={})
    store.write_manifest(plain)
    assert store.read_manifest("extract", "g") == plain
