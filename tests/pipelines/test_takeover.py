"""Parts that are there are taken over unread where a manifest names them; what was cut short is made anew."""

import json
from contextlib import contextmanager

import pytest

from pipelines import driver, planner_view
from pipelines.spent import BudgetError, Spent
from pipelines.storage import Storage
from pipelines.store import Store
from schemas.ids import shard_of
from tests.pipelines.corpora import configure, live, question, run, session, tables, write_lines

CASES = ("a", "b", "c", "d", "e", "f")
SHARDS = 8
OWN = {"shards": SHARDS, "rank.presets": ["bm25", "taggraph-basic"]}


@pytest.fixture
def talks(tmp_path):
    lines = [session(case, 1, f"I live in town {case}.", "Good.", f"I met Ann {case}.", "Fine.") for case in CASES]
    asked = [question(case, f"Who is in {case}?", "s1") for case in CASES]
    return write_lines(tmp_path / "talks.jsonl", *lines, *asked)


@contextmanager
def watched(monkeypatch):
    """Yield the files of tables that this process reads in a block."""
    seen = []
    real = {name: getattr(Storage, name) for name in ("read", "find", "open")}

    def spy(name):
        def called(self, path):
            if path.startswith("tables/"):
                seen.append(path.removeprefix("tables/"))
            return real[name](self, path)

        return called

    with monkeypatch.context() as patch:
        for name in real:
            patch.setattr(Storage, name, spy(name))
        yield seen


def test_an_append_reads_no_part_that_it_does_not_touch(talks, tmp_path, monkeypatch):
    corpus = tmp_path / "c"
    run(corpus, talks, **OWN)
    old = set(tables(corpus))
    more = write_lines(tmp_path / "more.jsonl", session("c", 2, "I moved to Rome.", "When?"))
    touched = {shard_of("c", SHARDS)}
    with watched(monkeypatch) as seen:
        result = run(corpus, more, append=True, **OWN)
    assert result.made["ingest"] == result.made["extract"] == len(touched) and seen
    # Only what is computed over all questions reads what others made.
    again = {path for path in old & set(seen) if not path.startswith("question_metrics/")}
    assert again == set()
    calm = run(tmp_path / "calm", talks, more, **OWN)
    assert live(corpus) == live(tmp_path / "calm") and result.generation.units == calm.generation.units


def test_a_plan_and_the_run_after_an_ingest_read_no_old_part(talks, tmp_path, monkeypatch):
    corpus = tmp_path / "c"
    run(corpus, talks, **OWN)
    more = write_lines(tmp_path / "more.jsonl", session("c", 2, "I moved to Rome.", "When?"))
    run(corpus, more, append=True, stages=(), **OWN)
    there = set(tables(corpus))
    with watched(monkeypatch) as seen:
        view = planner_view.plan(configure(corpus, **OWN), append=False)
    assert {one.unit: one.to_make for one in view.units}["extract"] == 1
    assert not there & set(seen)
    # What was ingested waits, and its manifest counts as well.
    yet = write_lines(tmp_path / "yet.jsonl", session("d", 2, "I moved to Oslo.", "When?"))
    with watched(monkeypatch) as seen:
        run(corpus, yet, append=True, stages=(), **OWN)
    assert not there & set(seen)


@pytest.mark.parametrize("left", [0, 0.5])
def test_a_part_that_a_power_failure_cut_short_is_made_anew(talks, tmp_path, left):
    corpus = tmp_path / "c"
    first = run(corpus, talks, **OWN)
    before = tables(corpus)
    cut = {}
    for table in ("interactions", "notes", "metrics"):
        path = next(iter((corpus / "tables" / table).rglob("*.parquet")))
        cut[path] = path.read_bytes()
        path.write_bytes(cut[path][: int(len(cut[path]) * left)])
    result = run(corpus, **OWN)
    made = {unit: count for unit, count in result.made.items() if count}
    assert made == {"ingest": 1, "extract": 1, "evaluate": 1}
    assert tables(corpus) == before and result.generation.units == first.generation.units
    assert not sum(run(corpus, **OWN).made.values())


def test_an_empty_file_is_no_part(tmp_path):
    store = Store.create(str(tmp_path / "c"), SHARDS)
    assert not store.has_part(("notes",), 1, "k")
    store.storage.write(store.part_path("notes", 1, "k"), b"")
    assert not store.has_part(("notes",), 1, "k")
    store.storage.write(store.part_path("notes", 1, "k"), b"x")
    assert store.has_part(("notes",), 1, "k")


def test_a_manifest_of_other_bytes_is_written_again(talks, tmp_path):
    """A part that another version of a library made again may be of another size than before."""
    corpus = tmp_path / "c"
    run(corpus, talks, **OWN)
    store = Store.open(str(corpus))
    path = corpus / store.manifest_path("extract", store.generation().units["extract"])
    told = json.loads(path.read_text())
    told["parts"][0]["tables"]["notes"]["bytes"] += 1
    path.write_text(json.dumps(told))
    run(corpus, **OWN)
    part = store.generation().manifest("extract").parts[0]
    assert part.tables["notes"].bytes == told["parts"][0]["tables"]["notes"]["bytes"] - 1


def test_both_units_of_ingest_tell_what_they_made(talks, tmp_path):
    corpus = tmp_path / "c"
    shards = {shard_of(case, SHARDS) for case in CASES}
    first = run(corpus, talks, stages=(), **OWN)
    assert (first.made["ingest"], first.made["questions"]) == (len(shards), len(shards))
    more = write_lines(tmp_path / "more.jsonl", question("c", "Who is Ann?", "s1"))
    later = driver.run(configure(corpus, more, **OWN), append=True, stages=())
    assert (later.made["ingest"], later.made["questions"]) == (0, 1)


def test_a_worker_that_is_kept_counts_for_each_unit_by_itself():
    def told(worker, requests, tokens):
        return {"id": worker, "in_flight": 0, "slots": 1, "counts": {"requests": requests, "prompt_tokens": tokens}}

    first = Spent(budget=100)
    first.take([told("x", 3, 40)])
    second = Spent(budget=100, earlier=first.tokens, base=first.counted)
    second.take([told("x", 5, 70), told("y", 1, 5)])
    assert (first.facts()["requests"], second.facts()["requests"], second.tokens) == (3, 3, 35)
    second.take([told("y", 1, 6)])
    assert second.tokens == 36, "what x did stays in the sum"
    third = Spent(budget=100, earlier=76, base=second.counted)
    with pytest.raises(BudgetError, match="100 tokens were asked for"):
        third.take([told("x", 9, 94)])
