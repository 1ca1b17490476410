"""The driver: one rule for resume, increment and comparison; the same bytes whatever happens on the way."""

import asyncio
import json
import subprocess
import sys

import pytest

from pipelines import driver, planner_view
from pipelines.gc import gc
from pipelines.lock import writing
from pipelines.query import answer
from pipelines.store import Store
from schemas.errors import InputError, LockedError, StoreError, TooManyRejectsError, UsageError
from tests.pipelines.corpora import configure, live, question, run, session, tables, write_lines

EVALUATE = ("evaluate/questions", "evaluate")


@pytest.fixture
def small(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    cats = [session(f"case{n}", 1, f"My cat number {n} is called Miso.", "A lovely name.") for n in range(12)]
    write_lines(folder / "a.jsonl", *cats, question("case3", "What is the cat called?", "s1"))
    return folder


def test_run_makes_every_table_and_a_second_run_makes_nothing(logs, tmp_path):
    first = run(tmp_path / "c", logs)
    assert first.manifests["ingest"].rows("interactions") == 120
    assert sum(first.made.values()) > 0
    before = tables(tmp_path / "c")
    second = run(tmp_path / "c", logs)
    assert set(second.made.values()) == {0}
    assert tables(tmp_path / "c") == before
    held = first.generation.tables()
    assert {"interactions", "questions", "rejects", "notes", "nodes", "edges", "matrices", "postings"} <= set(held)
    assert {"vocabulary", "runs", "question_metrics", "metrics", "comparisons"} <= set(held)


def test_two_corpora_from_the_same_input_have_the_same_bytes(logs, tmp_path):
    run(tmp_path / "one", logs)
    run(tmp_path / "two", logs, **{"ingest.split_mb": 1, "compute.workers": 0})
    assert sorted(live(tmp_path / "one").values()) == sorted(live(tmp_path / "two").values())


def test_appending_touches_only_the_shards_whose_cases_changed(small, tmp_path):
    corpus = tmp_path / "c"
    first = run(corpus, small)
    shards = {part.shard for part in first.manifests["ingest"].parts}
    assert len(shards) > 2
    more = write_lines(tmp_path / "more.jsonl", session("case3", 2, "Miso met a dog.", "How did that go?"))
    second = run(corpus, more, append=True)
    old = {p.shard: p.key for p in first.manifests["ingest"].parts}
    new = {p.shard: p.key for p in second.manifests["ingest"].parts}
    touched = {shard for shard in new if new[shard] != old.get(shard)}
    assert len(touched) == 1
    for unit in ("extract", "graph/taggraph", "index/note", "rank/bm25"):
        assert second.made[unit] == 1, unit
    assert second.manifests["ingest"].rows("interactions") == 13
    run(tmp_path / "whole", small, more)
    assert live(tmp_path / "whole").keys() == live(corpus).keys()
    assert live(tmp_path / "whole") == live(corpus)


def test_new_questions_touch_no_interaction(small, tmp_path):
    corpus = tmp_path / "c"
    run(corpus, small)
    more = write_lines(tmp_path / "q.jsonl", question("case5", "Which cat is number 5?", "s1"))
    second = run(corpus, more, append=True)
    assert second.made["extract"] == second.made["index/raw"] == 0
    assert second.made["rank/bm25"] == 1


def test_files_of_one_name_are_told_apart_and_a_changed_one_replaces_itself(tmp_path):
    corpus = tmp_path / "c"
    for folder in ("d1", "d2"):
        (tmp_path / folder).mkdir()
    one = write_lines(tmp_path / "d1" / "log.jsonl", session("a", 1, "I have a cat.", "Good."))
    two = write_lines(tmp_path / "d2" / "log.jsonl", session("a", 2, "I have a dog.", "Good."))
    run(corpus, one)
    both = run(corpus, two, append=True)
    assert both.manifests["ingest"].rows("interactions") == 2
    assert set(both.generation.table("interactions")["source"].to_pylist()) == {"log.jsonl", "log.jsonl~2"}
    write_lines(two, session("a", 2, "I have a dog and a parrot.", "Good."), session("a", 3, "Rain.", "Sun."))
    again = run(corpus, two, append=True)
    assert again.manifests["ingest"].rows("interactions") == 3
    assert sorted(s["name"] for s in again.facts["sources"]) == ["log.jsonl", "log.jsonl~2"]
    run(tmp_path / "swapped", two, one)
    run(tmp_path / "straight", one, two)
    assert live(tmp_path / "swapped") == live(tmp_path / "straight")


def test_an_edit_touches_only_its_case_wherever_it_stands_in_the_file(tmp_path):
    corpus, path = tmp_path / "c", tmp_path / "a.jsonl"
    lines = [session(f"case{n}", 1, f"My cat number {n} is called Miso.", "Lovely.") for n in range(12)]
    write_lines(path, *lines)
    first = run(corpus, path)
    write_lines(path, *lines[:3], session("case3", 1, "My dog is called Rex.", "Lovely."), *lines[4:])
    assert run(corpus, path).made["extract"] == 1
    write_lines(path, *lines[:3], *lines[4:])
    last = run(corpus, path)
    run(tmp_path / "fresh", path)
    assert live(corpus) == live(tmp_path / "fresh")
    old, new = ({p.shard: p.key for p in r.manifests["ingest"].parts} for r in (first, last))
    assert len([shard for shard in old if new.get(shard) != old[shard]]) == 1


def test_settings_hold_on_until_inputs_are_named_anew(small, tmp_path):
    corpus = tmp_path / "c"
    assert run(corpus, small, **{"ingest.unit": "message"}).manifests["ingest"].rows("interactions") == 24
    assert run(corpus).manifests["ingest"].rows("interactions") == 24
    assert run(corpus, **{"rank.depth": 5}).config.ingest.unit == "message"
    assert run(corpus, small).manifests["ingest"].rows("interactions") == 12


def test_a_file_that_changed_unseen_is_not_taken_for_what_it_was(small, tmp_path):
    corpus = tmp_path / "c"
    run(corpus, small)
    write_lines(small / "a.jsonl", session("case1", 1, "Something else.", "Yes."))
    with pytest.raises(InputError, match="has changed since"):
        run(corpus, **{"ingest.unit": "message"})


def test_facts_are_those_of_the_present_sources(small, tmp_path):
    corpus = tmp_path / "c"
    run(corpus, small)
    more = write_lines(tmp_path / "q.jsonl", *(question("case5", f"Question {n}?", "s1") for n in range(30)))
    more.write_text(more.read_text() + "{broken\n")
    result = run(corpus, more, append=True)
    assert (result.facts["records"], result.manifests["questions"].rows("rejects")) == (44, 1)
    driver.check_finished(result)


def test_questions_are_tagloom_lines_whatever_the_format_of_the_logs(tmp_path):
    record = {
        "question_id": "q1", "question_type": "t", "question": "Which cat?", "question_date": "2023/05/30 (Tue) 23:40",
        "answer": "Miso", "answer_session_ids": ["s"], "haystack_dates": ["2023/05/20 (Sat) 02:21"],
        "haystack_session_ids": ["s"], "haystack_sessions": [[{"role": "user", "content": "My cat is Miso."}]],
    }  # fmt: skip
    (tmp_path / "l.json").write_text(json.dumps([record]))
    asked = write_lines(tmp_path / "q.jsonl", question("q1", "What is the cat called?", "s"))
    result = run(tmp_path / "c", tmp_path / "l.json", questions=[str(asked)], **{"ingest.format": "longmemeval"})
    assert result.manifests["questions"].rows("questions") == 2
    assert result.manifests["questions"].rows("rejects") == 0


def test_a_corpus_among_the_logs_is_no_input(small):
    run(small / "corpus", small)
    assert set(run(small / "corpus", small).made.values()) == {0}


def test_removed_parts_of_a_finished_unit_are_made_again(small, tmp_path):
    corpus = tmp_path / "c"
    run(corpus, small)
    whole = tables(corpus)
    victim = next((corpus / "tables" / "notes").rglob("*.parquet"))
    victim.unlink()
    assert run(corpus, small).made["extract"] == 1
    assert tables(corpus) == whole


def test_a_kill_while_the_corpus_was_being_made_leaves_no_obstacle(small, tmp_path):
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / f"corpus.json.tmp-{'0' * 32}").write_bytes(b"{")
    run(tmp_path / "c", small)
    assert gc(Store.open(str(tmp_path / "c"))).files == (f"corpus.json.tmp-{'0' * 32}",)


def test_shards_are_fixed_and_wrong_settings_leave_nothing(small, tmp_path):
    with pytest.raises(UsageError):
        run(tmp_path / "c", small, **{"rank.presets": ["bm52"]})
    assert not (tmp_path / "c" / "corpus.json").exists()
    run(tmp_path / "c", small, shards=4)
    with pytest.raises(UsageError, match="has 4 shards, not 64"):
        run(tmp_path / "c", small, shards=64)


def test_damage_names_the_file_and_what_to_do(small, tmp_path):
    corpus = tmp_path / "c"
    run(corpus, small)
    more = write_lines(tmp_path / "more.jsonl", session("case3", 2, "Miso met a dog.", "How?"))
    fragment = next((corpus / "fragments").rglob("00000.interactions.arrow"))
    fragment.write_bytes(fragment.read_bytes()[:100])
    with pytest.raises(StoreError, match=r"interactions\.arrow: is damaged(.|\n)*Remove the folder fragments/"):
        run(corpus, more, append=True)
    (corpus / "heads.json").write_text("[]")
    with pytest.raises(StoreError, match=r"heads\.json: does not hold generations"):
        run(corpus, small)


def test_options_of_a_graph_that_is_not_built(small, tmp_path):
    with pytest.raises(UsageError, match=r"graph\.kinds has no 'tagraph'(.|\n)*Did you mean 'taggraph'"):
        run(tmp_path / "c", small, **{"graph.options": {"tagraph": {}}})


def test_beam_options_that_are_not_known(small, tmp_path):
    with pytest.raises(UsageError, match="Did you mean 'direct_num_workers'"):
        run(tmp_path / "c", small, beam={"direct_num_wrokers": 2})


def test_evidence_that_does_not_resolve_is_no_rejected_record(tmp_path):
    asked = question("a", "Which cat?", *(f"none{n}" for n in range(7)))
    path = write_lines(tmp_path / "a.jsonl", session("a", 1, "I have a cat.", "Good."), asked)
    result = run(tmp_path / "c", path)
    assert result.manifests["questions"].rows("rejects") == 7
    driver.check_finished(result)


def test_a_run_inside_an_event_loop(small, tmp_path):
    async def notebook():
        return run(tmp_path / "c", small)

    assert asyncio.run(notebook()).manifests["ingest"].rows("interactions") == 12


def test_removing_an_input_equals_a_build_without_it(small, tmp_path):
    more = write_lines(tmp_path / "more.jsonl", session("case3", 2, "Miso met a dog.", "How did that go?"))
    run(tmp_path / "c", small, more)
    run(tmp_path / "c", small)
    run(tmp_path / "fresh", small)
    assert live(tmp_path / "c") == live(tmp_path / "fresh")


def test_a_new_preset_ranks_alone(small, tmp_path):
    run(tmp_path / "c", small)
    second = run(tmp_path / "c", small, **{"rank.presets": ["bm25", "taggraph-tfidf"]})
    assert {unit for unit, count in second.made.items() if count} == {
        "rank/taggraph-tfidf",
        "evaluate/questions",
        "evaluate",
    }


def test_missing_parts_alone_are_made_again(logs, tmp_path):
    corpus = tmp_path / "c"
    first = run(corpus, logs)
    whole = tables(corpus)
    for manifest in (corpus / "manifests").rglob("*.json"):
        manifest.unlink()
    (corpus / "heads.json").unlink()
    lost = [p for p in sorted((corpus / "tables").rglob("*.parquet")) if p.parts[-3] in ("notes", "runs")][::3]
    for path in lost:
        path.unlink()
    half = next((corpus / "tables" / "nodes").rglob("*.parquet"))
    half.write_bytes(half.read_bytes()[:100])
    second = run(corpus, logs)
    assert tables(corpus) == whole
    assert sum(second.made.values()) == len(lost) + 1
    assert second.manifests["evaluate"].fingerprint == first.manifests["evaluate"].fingerprint


def test_a_name_keeps_its_generation_while_another_runs(small, tmp_path):
    corpus = tmp_path / "c"
    run(corpus, small)
    before = live(corpus)
    run(corpus, name="short", **{"rank.depth": 3})  # starts from what main has
    assert live(corpus) == before
    assert live(corpus, "short").keys() != before.keys()
    swept = gc(Store.open(str(corpus)))
    assert swept.files == ()
    swept = gc(Store.open(str(corpus)), drop=("short",), dry_run=True)
    assert swept.files
    assert gc(Store.open(str(corpus)), drop=("short",)).files == swept.files
    assert live(corpus) == before
    assert set(Store.open(str(corpus)).heads()) == {"main"}
    assert set(run(corpus, small).made.values()) == {0}
    with pytest.raises(UsageError, match="no generation is called 'none'"):
        gc(Store.open(str(corpus)), drop=("none",))


def test_gc_removes_half_written_files_and_nothing_of_others(small, tmp_path):
    corpus = tmp_path / "c"
    run(corpus, small)
    stray = corpus / "tables" / "notes" / "00000-of-00008" / "k.parquet.tmp-123"
    stray.parent.mkdir(exist_ok=True)
    stray.write_bytes(b"half")
    (corpus / "README.txt").write_text("mine")
    assert gc(Store.open(str(corpus))).files == ("tables/notes/00000-of-00008/k.parquet.tmp-123",)
    assert (corpus / "README.txt").exists()


def test_ingest_alone_keeps_the_finished_generation(small, tmp_path):
    corpus = tmp_path / "c"
    run(corpus, small)
    more = write_lines(tmp_path / "more.jsonl", session("case3", 2, "Miso met a dog.", "How?"))
    run(corpus, more, append=True, stages=())
    generation = Store.open(str(corpus)).generation()
    assert "dog" not in answer(generation, "case3", "dog", "bm25", 5)["text"].to_pylist()
    assert generation.head["pending"]
    run(corpus)
    assert answer(Store.open(str(corpus)).generation(), "case3", "dog", "bm25", 5).num_rows == 1


def test_plan_tells_what_why_and_how_much(small, tmp_path):
    corpus = tmp_path / "c"
    config = configure(corpus, small)
    assert "does not exist yet" in planner_view.plan(config, append=False).ingest[1]
    assert not corpus.exists()
    run(corpus, small)
    assert planner_view.plan(config, append=False).summary.startswith("nothing to do")
    deeper = planner_view.plan(configure(corpus, small, **{"rank.depth": 7}), append=False)
    todo = {u.unit: (u.to_make, u.reason) for u in deeper.units if u.to_make}
    assert set(todo) == {"rank/bm25", "rank/bm25-raw", "rank/taggraph-basic", "rank/adaptivegraph", *EVALUATE}
    assert todo["rank/bm25"][1] == "configuration changed: rank.depth"
    more = write_lines(tmp_path / "more.jsonl", session("case3", 2, "Miso met a dog.", "How?"))
    appended = planner_view.plan(configure(corpus, more), append=True)
    assert not all(u.exact for u in appended.units)
    assert "1 to read" in appended.ingest[0]


def test_rejects_above_the_limit_end_with_code_3_but_finish(tmp_path):
    path = tmp_path / "bad.jsonl"
    path.write_text('{"case_id": "a"\n' + json.dumps(session("a", 1, "hello", "hi")) + "\n")
    config = configure(tmp_path / "c", path)
    result = driver.run(config)
    assert result.manifests["questions"].rows("rejects") == 1
    with pytest.raises(TooManyRejectsError, match="1 of 2 records") as caught:
        driver.check_finished(result)
    assert caught.value.exit_code == 3
    driver.check_finished(driver.run(configure(tmp_path / "c", path, **{"ingest.max_reject_share": 0.5})))


def test_an_empty_corpus_runs_through(tmp_path):
    (tmp_path / "none.jsonl").write_text("  \n")
    result = run(tmp_path / "c", tmp_path / "none.jsonl")
    assert result.manifests["ingest"].rows("interactions") == 0
    assert result.generation.table("metrics").num_rows == 0


def test_no_input_and_missing_input(tmp_path):
    with pytest.raises(InputError, match="no corpus here"):
        run(tmp_path / "c")
    with pytest.raises(InputError, match="no such file"):
        run(tmp_path / "c", tmp_path / "nothing.jsonl")
    assert not (tmp_path / "c").exists()


def test_two_runs_at_once_one_is_refused(small, tmp_path):
    run(tmp_path / "c", small)
    with writing(Store.open(str(tmp_path / "c")).storage), pytest.raises(LockedError, match="another run"):
        run(tmp_path / "c", small)


def test_a_folder_of_something_else_is_left_alone(small, tmp_path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "text.txt").write_text("precious")
    with pytest.raises(StoreError, match="not empty"):
        run(tmp_path / "thesis", small)
    assert [p.name for p in (tmp_path / "thesis").iterdir()] == ["text.txt"]


def test_memory_storage_works_without_workers(small, tmp_path):
    uri = f"memory://{tmp_path.name}"
    run(uri, small)
    run(tmp_path / "disk", small)
    assert live(uri) == live(tmp_path / "disk")
    hits = answer(Store.open(uri).generation(), "case3", "cat", "adaptivegraph", 3)
    assert hits["text"].to_pylist() == ["My cat number 3 is called Miso.\nA lovely name."]


def test_a_corpus_that_has_outgrown_its_shards_is_told(small, tmp_path, monkeypatch, caplog):
    run(tmp_path / "c", small)
    assert not caplog.messages
    monkeypatch.setattr(driver, "LARGE_SHARD_BYTES", 1)
    run(tmp_path / "c", small)
    assert "has 8 shards with some 0 MB of input each" in caplog.messages[0]


def test_query_errors_help(small, tmp_path):
    run(tmp_path / "c", small)
    generation = Store.open(str(tmp_path / "c")).generation()
    with pytest.raises(UsageError, match="Did you mean 'case3'"):
        answer(generation, "case_3", "cat", "bm25", 3)
    with pytest.raises(UsageError, match="Did you mean 'bm25'"):
        answer(generation, "case3", "cat", "bm-25", 3)
    with pytest.raises(StoreError, match="no generation is called 'x'"):
        Store.open(str(tmp_path / "c")).generation("x")


@pytest.mark.parametrize("engine", ["FnApiRunner", pytest.param("DirectRunner", marks=pytest.mark.slow)])
def test_beam_runners_give_the_same_bytes(engine, logs, tmp_path):
    beam = {"runner": engine}
    if engine == "DirectRunner":
        beam |= {"direct_running_mode": "multi_processing", "direct_num_workers": 2}
    run(tmp_path / engine, logs, beam=beam)
    run(tmp_path / "plain", logs)
    assert live(tmp_path / engine) == live(tmp_path / "plain")


def test_a_runner_that_beam_does_not_know(logs, tmp_path):
    with pytest.raises(UsageError, match="no runner 'NoSuchRunner'"):
        run(tmp_path / "c", logs, beam={"runner": "NoSuchRunner"})


def test_imports_of_the_command_line_stay_light():
    code = "import sys, jobs.cli; print(sorted({'ray','apache_beam','polars','scipy','pyarrow'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
