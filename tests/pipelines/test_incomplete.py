"""A generation that lacks shards: what reads it leaves them out alike everywhere, and says so."""

import logging
import shutil
from contextlib import contextmanager

import pytest

from jobs.export import export
from jobs.report import write_report
from pipelines import asides, driver, reindex, status
from pipelines.compare import compare
from pipelines.execute import make_items
from pipelines.experimenting import Wanted
from pipelines.experimenting import run as experiment
from pipelines.planner import plan_unit
from pipelines.stage import Output, Stage, Unit, part_key
from pipelines.store import Manifest, Store
from pipelines.trial import Trial
from schemas.errors import StoreError, UsageError
from schemas.ids import shard_of
from tests.integration.poison import installed
from tests.pipelines.corpora import configure, question, run, session, write_lines
from transforms import merge

CASES = ("a", "b", "c", "d", "e", "f")
SHARDS = 8
OWN = {"shards": SHARDS, "rank.presets": ["bm25", "taggraph-basic"]}
POISONED = {**OWN, "extract.extractor": "poisoned"}


def shard(case):
    return shard_of(case, SHARDS)


LAST = next(case for case in map(str, range(100)) if shard(case) not in {shard(one) for one in CASES})
"""A case that is alone in its shard."""


@pytest.fixture
def talks(tmp_path):
    return lines_of(tmp_path / "talks.jsonl", CASES)


def lines_of(path, cases):
    lines = [session(case, 1, f"I live in town {case}.", "Good.", f"I met Ann {case}.", "Fine.") for case in cases]
    return write_lines(path, *lines, *(question(case, f"Who is in {case}?", "s1") for case in cases))


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A corpus that has all, made into one that lacks a new shard, which failed in extract; and who lets it fail."""
    folder = tmp_path_factory.mktemp("incomplete")
    with pytest.MonkeyPatch.context() as patch, installed(folder / "plugin", patch) as poison:
        before = run(folder / "c", lines_of(folder / "talks.jsonl", CASES), **POISONED)
        poison.fail(raises=[LAST])
        run(folder / "c", lines_of(folder / "more.jsonl", [LAST]), append=True, **POISONED)
        yield folder / "c", before.generation, poison


@pytest.fixture
def poison(built):
    yield built[2]
    built[2].fail(raises=[LAST])


@pytest.fixture
def lacking(built, tmp_path):
    return str(shutil.copytree(built[0], tmp_path / "c"))


# -- plans ------------------------------------------------------------------------------------------------------------


def nothing(inputs, units):
    return [Output({})]


STAGE = Stage("index", 1, "ray", lambda config: [], nothing)
OF_ALL = Unit("index/all", {"x": 1}, ("one", "two", "pool"), ("metrics",), whole=True)
UPSTREAM = {"one": {0: "a0", 3: "a3", 5: "a5"}, "two": {0: "b0", 5: "b5"}, "pool": {0: "p"}}


def test_a_part_over_all_shards_reads_no_shard_that_some_input_lacks(tmp_path):
    store = Store.create(str(tmp_path / "c"), SHARDS)
    aside = {"two": {3: "failed"}, "pool": {0: "failed", 3: "'two' lacks it"}}
    planned = plan_unit(store, STAGE, OF_ALL, UPSTREAM, None, aside, ["pool"])
    reads = [("one", [(5, "a5")]), ("two", [(5, "b5")]), ("pool", [(0, "p")])]
    assert planned.keys == {0: part_key(STAGE, OF_ALL, reads)}
    assert planned.aside == {0: "'pool' lacks it", 3: "'pool' lacks it"}
    manifests = {
        name: Manifest(name, "f", 1, {}, (), {}, (), whole=name == "pool") for name in ("ingest", "one", "two", "pool")
    }
    (item,) = make_items(store, [planned], UPSTREAM, manifests)
    assert item.parts == {name: tuple(found) for name, found in reads}

    healthy = plan_unit(store, STAGE, OF_ALL, UPSTREAM, None)
    reads = [(name, sorted(UPSTREAM[name].items())) for name in OF_ALL.reads]
    assert healthy.keys == {0: part_key(STAGE, OF_ALL, reads)} and not healthy.aside
    assert healthy.fingerprint != planned.fingerprint


def test_a_shard_is_left_out_by_whoever_reads_a_whole_that_lacks_it(tmp_path):
    store = Store.create(str(tmp_path / "c"), SHARDS)
    unit = Unit("index/each", {}, ("one",), ("runs",), reads_whole=("pool",))
    planned = plan_unit(store, STAGE, unit, UPSTREAM, None, {"pool": {3: "failed"}}, ["pool"])
    assert sorted(planned.keys) == [0, 5] and planned.aside == {3: "'pool' lacks it"}


def test_a_whole_over_incomplete_inputs_is_not_that_of_before(built):
    corpus, before, _ = built
    made, old = Store.open(str(corpus)).generation().manifest("evaluate"), before.manifest("evaluate")
    assert made.aside == {shard(LAST): "'evaluate/questions' lacks it"} and not old.aside
    assert made.parts == old.parts, "it is made of the same"
    assert made.fingerprint != old.fingerprint


# -- readers ----------------------------------------------------------------------------------------------------------


def told(caplog):
    return [record.getMessage() for record in caplog.records if "is incomplete" in record.getMessage()]


def test_who_reads_it_says_so(lacking, tmp_path, caplog):
    generation = Store.open(lacking).generation()
    remark = asides.remark(generation)
    assert remark == (
        f"generation 'main' is incomplete: it lacks 1 shard that failed ({shard(LAST)} in 'extract'); "
        "'tagloom run' makes what is missing"
    )
    assert asides.remark(generation, ["ingest", "questions", "no such unit"]) == ""
    with caplog.at_level(logging.WARNING):
        export(generation, "interactions", target=tmp_path / "i.csv")
        assert told(caplog) == []
        export(generation, "notes", target=tmp_path / "n.csv")
        assert told(caplog) == [remark]
        caplog.clear()
        experiment(lacking, "main", Wanted("ablation", ("bm25", "taggraph-basic")), workers=0)
        (line,) = told(caplog)
        assert f"({shard(LAST)} in 'index/note')" in line
    assert compare(Store.open(lacking), "main", "main").remarks.count(remark) == 2
    write_report(lacking, ["main"], str(tmp_path / "r.html"), False)
    assert "Generation &#39;main&#39; is incomplete" in (tmp_path / "r.html").read_text()


def test_cases_are_not_pooled_where_some_are_missing(lacking, poison, tmp_path):
    with pytest.raises(StoreError, match="cases cannot be pooled: generation 'main' is incomplete"):
        experiment(lacking, "main", Wanted("pooled", ("bm25", "taggraph-basic")), workers=0)
    poison.heal()
    run(lacking, **POISONED)
    assert experiment(lacking, "main", Wanted("pooled", ("bm25", "taggraph-basic")), workers=0).results.num_rows


def test_a_trial_goes_on_from_it(lacking, tmp_path):
    """What failed has nothing that could stay; the parts of the other cases do."""
    given = {"compute.workers": 0, "extract.extractor": "lexical", "rank.presets": OWN["rank.presets"]}
    done = reindex.run(reindex.prepare(configure(lacking, **given), trial=Trial(("a",))))
    assert done.result.made["extract"] == len({shard("a")})
    assert set(done.result.aside["extract"]) == {shard(LAST)}, "it is tried again, and fails again"


def test_a_trial_is_refused_where_what_made_the_others_has_changed(lacking, monkeypatch):
    given = {"compute.workers": 0, "extract.extractor": "lexical"}
    generation = Store.open(lacking).generation()
    old = {"extract": {**generation.head["config"]["extract"], "ontology_window": 9}}
    changed = {**generation.head, "config": {**generation.head["config"], **old}}
    Store.open(lacking).move_heads({"main": changed})
    with pytest.raises(UsageError, match="other cases would be made anew as well"):
        reindex.prepare(configure(lacking, **given), trial=Trial(("a",)))


# -- ingest -----------------------------------------------------------------------------------------------------------


@contextmanager
def failing(monkeypatch, case, table):
    """Let the merge of a case's shard fail as it writes a table."""
    real = Store.write_part

    def write(self, number, key, written, stats=None):
        if number == shard(case) and table in written:
            raise ValueError(f"no {table}")
        return real(self, number, key, written, stats)

    with monkeypatch.context() as patch:
        patch.setattr(Store, "write_part", write)
        yield


def test_what_a_failed_merge_left_is_not_taken_unseen(talks, tmp_path, monkeypatch):
    with failing(monkeypatch, "c", "questions"):
        result = run(tmp_path / "c", talks, stages=(), **OWN)
    for unit in ("ingest", "questions"):
        assert set(result.manifests[unit].aside) == set(result.aside[unit]) == {shard("c")}
        assert shard("c") not in {part.shard for part in result.manifests[unit].parts}
    left = {shard(case) for case in CASES} - {shard("c")}
    assert (result.made["ingest"], result.made["questions"]) == (len(left), len(left))
    healed = run(tmp_path / "c", talks, stages=(), **OWN)
    assert not healed.aside and not healed.manifests["ingest"].aside


def test_inputs_that_wait_say_what_they_lack(talks, tmp_path, monkeypatch):
    corpus = tmp_path / "c"
    whole = run(corpus, talks, **OWN)
    more = write_lines(tmp_path / "more.jsonl", session("c", 2, "I moved to Rome.", "When?"))
    real = merge.merge

    def merged(fragments):
        found = real(fragments)
        if "s2" in found.interactions["session_id"].to_pylist():
            raise ValueError("no merge")
        return found

    with monkeypatch.context() as patch:
        patch.setattr(merge, "merge", merged)
        result = run(corpus, more, append=True, stages=(), **OWN)
    with pytest.raises(asides.ShardsAsideError):
        driver.check_finished(result)
    generation = Store.open(str(corpus)).generation()
    assert generation.units == whole.generation.units and "aside" not in generation.head
    reason = {str(shard("c")): "ValueError: no merge"}
    assert generation.head["pending_aside"] == {"ingest": reason, "questions": reason}
    (told_,) = status.describe(str(corpus))["generations"]
    wanted = f"set aside in ingest, of the inputs that wait: shard {shard('c')} (ValueError: no merge); "
    assert any(remark.startswith(wanted) for remark in told_["remarks"])
    assert told_["pending_aside"] == generation.head["pending_aside"]
    run(corpus, stages=(), **OWN)
    assert Store.open(str(corpus)).generation().head["pending_aside"] == {}
    healed = run(corpus, **OWN)
    assert not healed.aside and not healed.generation.head.get("pending_aside")


def test_questions_that_nobody_could_count_are_named(talks, tmp_path, monkeypatch):
    with failing(monkeypatch, "c", "interactions"):
        result = run(tmp_path / "c", talks, **OWN)
    assert asides.not_scored(result.manifests) == 0 and asides.unknown_questions(result.manifests) == 1
    assert driver.shards_aside(result).message.endswith(
        " How many questions the logs of 1 shard hold is not known; none of them is scored."
    )
