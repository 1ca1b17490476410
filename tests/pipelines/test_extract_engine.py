"""The extract stage with an engine: a server on loopback that fails as asked, the journal, and mixed extractors."""

import asyncio
import contextlib
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from types import SimpleNamespace

import pyarrow.parquet as pq
import pytest

import tagloom
from pipelines import driver, extract
from pipelines.desk import Engine, JournalDesk, Room
from pipelines.spent import BudgetError
from pipelines.store import Store
from schemas.errors import ConfigError, MissingDependencyError, UsageError
from tests.engines.llama_server import weights
from tests.engines.stub_server import running
from tests.pipelines.corpora import configure, live, run, session, write_lines
from transforms.engines import EngineError
from transforms.tasks import Result


@pytest.fixture(scope="module")
def stub():
    with running() as server:
        yield server


def asks(server, **more):
    """Settings that ask a stub server."""
    options = {"base_url": server.base_url, "patience": 20.0, **more.pop("options", {})}
    return {"extract.extractor": "openai", "extract.model": "stub", "extract.options": options, **more}


def generation(corpus, name="main"):
    return Store.open(str(corpus)).generation(name)


def notes(corpus):
    return generation(corpus).table("notes").to_pylist()


def test_every_interaction_gets_a_note_and_a_second_corpus_the_same_bytes(stub, logs, tmp_path):
    before = stub.stats()["requests"]
    result = run(tmp_path / "a", logs, **asks(stub))
    found = notes(tmp_path / "a")
    assert len(found) == 120 and {n["status"] for n in found} == {"ok"}
    assert all(n["what"] and n["prompt_tokens"] > 100 for n in found)
    spent = result.manifests["extract"].run
    assert spent["requests"] == 120 == stub.stats()["requests"] - before
    assert spent["prompt_tokens"] == sum(n["prompt_tokens"] for n in found)
    assert spent["model"] == "stub" and len(spent["journal"]) == 1
    run(tmp_path / "b", logs, **asks(stub))
    assert live(tmp_path / "a") == live(tmp_path / "b")


def test_parts_that_are_gone_come_back_from_the_journal(stub, logs, tmp_path):
    run(tmp_path / "a", logs, **asks(stub))
    expected = live(tmp_path / "a")
    for path in (tmp_path / "a" / "tables" / "notes").rglob("*.parquet"):
        path.unlink()
    (tmp_path / "a" / "heads.json").unlink()
    before = stub.stats()["requests"]
    result = run(tmp_path / "a", logs, **asks(stub))
    assert stub.stats()["requests"] == before
    assert result.asked["extract"]["requests"] == 0 and result.asked["extract"]["from_journal"] == 120
    assert live(tmp_path / "a") == expected
    assert result.made["extract"] > 0


def test_faults_leave_no_trace(stub, logs, tmp_path):
    run(tmp_path / "calm", logs, **asks(stub))
    faults = [f"--fault={kind}:0.08" for kind in ("429", "500", "half", "garbage", "nothing")]
    with running("--retry-after", "0", *faults) as bad:
        result = run(tmp_path / "bad", logs, **asks(bad))
    assert live(tmp_path / "bad") == live(tmp_path / "calm")
    assert sum(result.manifests["extract"].run["retried"].values()) > 0


def test_all_tasks_of_an_engine(stub, logs, tmp_path):
    tasks = ["notes", "facts", "reflections", "entities", "triples"]
    run(tmp_path / "a", logs, **asks(stub), **{"extract.tasks": tasks})
    found = generation(tmp_path / "a")
    rows = {
        name: found.table(name).num_rows
        for name in ("facts", "concepts", "reflections", "entities", "relations", "triples")
    }
    assert rows["concepts"] == 120 and all(rows.values())
    facts = {(f["case_id"], f["fact_id"]) for f in found.table("facts").to_pylist()}
    for one in found.table("reflections").to_pylist():
        assert {(one["case_id"], fact) for fact in one["fact_ids"]} <= facts
    assert set(found.tables()["outcomes"]) == {f"extract/{t}" for t in tasks[1:]}
    again = run(tmp_path / "a", logs, **asks(stub), **{"extract.tasks": tasks[:2]})
    assert sum(again.made.values()) == 0, "leaving tasks out makes nothing"


def test_an_own_prompt_changes_extract_and_what_follows_alone(stub, logs, tmp_path):
    from importlib.resources import files

    run(tmp_path / "a", logs, **asks(stub))
    own = tmp_path / "mine.md"
    own.write_text(
        files("transforms.prompts")
        .joinpath("notes.md")
        .read_text()
        .replace("=== user ===", "Be brief.\n=== user ===", 1)
    )
    result = run(tmp_path / "a", logs, **asks(stub), **{"extract.prompt": str(own)})
    made = {unit for unit, count in result.made.items() if count}
    assert made >= {"extract", "index/note", "graph/taggraph"}
    assert not made & {"ingest", "questions", "index/raw", "rank/bm25-raw"}


def test_a_generation_keeps_the_text_of_its_prompt(stub, tmp_path):
    from importlib.resources import files

    log = write_lines(tmp_path / "a.jsonl", session("ann", 1, "I adopted a cat.", "Lovely!"))
    own = tmp_path / "mine.md"
    own.write_text(
        files("transforms.prompts")
        .joinpath("notes.md")
        .read_text()
        .replace("=== user ===\n", "=== user ===\nBe brief.\n")
    )
    run(tmp_path / "c", log, **asks(stub), **{"extract.prompt": str(own)})
    first = live(tmp_path / "c")
    own.write_text("not a prompt at all")
    (tmp_path / "c").rename(tmp_path / "moved")
    before = stub.stats()["requests"]
    result = run(tmp_path / "moved")
    assert sum(result.made.values()) == 0 and live(tmp_path / "moved") == first
    run(tmp_path / "moved", write_lines(tmp_path / "b.jsonl", session("bob", 1, "I sold my car.", "Oh.")), append=True)
    assert stub.stats()["requests"] == before + 1
    assert str(tmp_path) not in (tmp_path / "moved" / "heads.json").read_text()


def test_a_new_session_asks_for_its_own_interactions_alone(stub, tmp_path):
    lines = [session(c, n, f"I saw {c} number {n}.", "Nice.") for c in ("ann", "bob", "eve") for n in (1, 2, 3)]
    log = write_lines(tmp_path / "a.jsonl", *lines)
    run(tmp_path / "c", log, **asks(stub))
    before = stub.stats()["requests"]
    log = write_lines(tmp_path / "a.jsonl", *lines, session("bob", 4, "I saw a whale.", "Where?"))
    result = run(tmp_path / "c", log, **asks(stub))
    assert stub.stats()["requests"] == before + 1
    assert result.made["extract"] == 1
    run(tmp_path / "fresh", log, **asks(stub))
    assert live(tmp_path / "c") == live(tmp_path / "fresh")


def test_cases_that_are_not_there_are_told(stub, tmp_path, caplog):
    log = write_lines(tmp_path / "a.jsonl", session("ann", 1, "I adopted a cat.", "Lovely!"))
    some = {"extract.cases": ["ann", "nobody"], "extract.rest": {"extractor": "lexical"}, "rank.presets": ["bm25"]}
    run(tmp_path / "c", log, **asks(stub), **some)
    assert "1 of the cases named are not in the corpus: nobody" in caplog.text


def test_a_trial_keeps_the_further_tasks_of_the_rest(stub, logs, tmp_path):
    rest = {
        "extractor": "openai",
        "model": "stub",
        "tasks": ["notes", "facts"],
        "options": asks(stub)["extract.options"],
    }
    cases = ["user-000000", "user-000001"]
    run(
        tmp_path / "a",
        logs,
        **asks(stub, **{"extract.model": "other"}),
        **{"extract.cases": cases, "extract.rest": rest},
    )
    of = {c["case_id"] for c in generation(tmp_path / "a").table("concepts").to_pylist()}
    assert of == {n["case_id"] for n in notes(tmp_path / "a")} - set(cases) and of


@pytest.mark.parametrize("window", [0, 1])
def test_an_edit_and_a_deletion_ask_for_what_they_touch_and_equal_a_fresh_build(stub, tmp_path, window):
    lines = [
        session(c, n, f"I saw {c} number {n} at the harbour.", "Nice.") for c in ("ann", "bob") for n in (1, 2, 3, 4)
    ]
    more = {**asks(stub), "extract.ontology_window": window, "rank.presets": ["bm25"]}
    run(tmp_path / "c", write_lines(tmp_path / "a.jsonl", *lines), **more)
    lines[1]["messages"][0]["content"] = "I saw a walrus on the ice."
    steps = [("edit", list(lines)), ("delete", lines[:2] + lines[3:])]
    for name, now in steps:
        before = stub.stats()["requests"]
        log = write_lines(tmp_path / "a.jsonl", *now)
        result = run(tmp_path / "c", log, **more)
        asked = stub.stats()["requests"] - before
        # With a window, later pieces of the case may be shown other terms, and are then asked again, too.
        assert asked == {"edit": 1, "delete": 0}[name] if window == 0 else asked <= 3
        assert result.made["extract"] == 1
        run(tmp_path / name, log, **more)
        assert live(tmp_path / "c") == live(tmp_path / name)


def test_an_extractor_for_some_cases_leaves_the_other_shards(stub, logs, tmp_path):
    base = run(tmp_path / "a", logs)
    cases = sorted({n["case_id"] for n in notes(tmp_path / "a")})
    mixed = {**asks(stub), "extract.cases": cases[:1], "extract.rest": {"extractor": "lexical"}}
    before = stub.stats()["requests"]
    result = run(tmp_path / "a", logs, **mixed)
    wanted = [n for n in notes(tmp_path / "a") if n["case_id"] == cases[0]]
    assert stub.stats()["requests"] == before + len(wanted)
    assert all(bool(n["prompt_tokens"]) == (n["case_id"] == cases[0]) for n in notes(tmp_path / "a"))
    assert result.made["extract"] == 1
    old = {p.shard: p.key for p in base.manifests["extract"].parts}
    new = {p.shard: p.key for p in result.manifests["extract"].parts}
    assert sum(old[shard] != key for shard, key in new.items()) == 1
    run(tmp_path / "fresh", logs, **mixed)
    assert live(tmp_path / "a") == live(tmp_path / "fresh")


def test_a_budget_stops_the_run_and_keeps_what_was_answered(logs, tmp_path):
    with running("--delay", "0.1") as slow:
        one = {"options": {"concurrency": 4}}
        with pytest.raises(BudgetError, match="tokens were asked for"):
            run(tmp_path / "a", logs, **asks(slow, **one), **{"extract.budget_tokens": 1000})
        asked = slow.stats()["requests"]
        assert 0 < asked < 120
        run(tmp_path / "a", logs, **asks(slow, **one))
        assert slow.stats()["requests"] <= 120 + 4, "only what was in flight is asked again"


def test_a_rejected_key_stops_the_run_without_telling_it(logs, tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-wrong-and-secret")
    with running("--key", "right") as guarded, pytest.raises(EngineError) as caught:
        run(tmp_path / "a", logs, **asks(guarded))
    assert "OPENAI_API_KEY" in str(caught.value) and "secret" not in str(caught.value)
    assert "secret" not in "".join(p.read_text(errors="replace") for p in (tmp_path / "a").rglob("*.json"))


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"extract.extractor": "openai"}, "model"),
        ({"extract.extractor": "opnai"}, "openai"),
        ({"extract.model": "gpt"}, "asks no model"),
        ({"extract.tasks": ["notes", "facts"]}, "notes alone"),
        ({"extract.extractor": "openai", "extract.model": "m", "extract.tasks": ["facts"]}, "lacks notes"),
        ({"extract.extractor": "openai", "extract.model": "m", "extract.tasks": ["notes", "facs"]}, "facts"),
        (
            {"extract.extractor": "openai", "extract.model": "m", "extract.tasks": ["notes", "reflections"]},
            "lacks facts",
        ),
        ({"extract.extractor": "openai", "extract.model": "m", "extract.options": {"concurency": 3}}, "concurrency"),
        ({"extract.extractor": "openai", "extract.model": "m", "extract.prompt": "none.md"}, "none.md"),
    ],
)
def test_wrong_settings_leave_no_corpus_and_name_the_remedy(logs, tmp_path, settings, says):
    with pytest.raises((ConfigError, UsageError, MissingDependencyError)) as caught:
        run(tmp_path / "a", logs, **settings)
    assert says in str(caught.value)
    assert not (tmp_path / "a" / "corpus.json").exists()


def test_tasks_come_after_those_that_they_read_and_once_each(stub, tmp_path):
    tasks = ["reflections", "notes", "facts", "notes"]
    made = extract.units(configure(tmp_path, **asks(stub), **{"extract.tasks": tasks}))
    assert [unit.name for unit in made] == ["extract", "extract/facts", "extract/reflections"]


def test_what_shows_no_vocabulary_depends_on_none_of_its_settings(stub, tmp_path):
    def configs(**more):
        made = extract.units(configure(tmp_path, **asks(stub), **{"extract.tasks": ["notes", "triples"]}, **more))
        return [unit.config for unit in made]

    (notes_a, triples_a), (notes_b, triples_b) = configs(), configs(**{"extract.ontology_tokens": 50})
    assert notes_a != notes_b and triples_a == triples_b
    assert (
        configs(**{"extract.ontology_window": 0})[0]
        == configs(**{"extract.ontology_window": 0, "extract.ontology_tokens": 50})[0]
    )


def test_failures_are_counted_by_kind_whatever_part_of_a_text_they_befell():
    desk = JournalDesk(SimpleNamespace(context=1, slots=1), None, "", 0, counts := Counter())
    for error in ("HTTP 400: bad", "part 2 of 9: HTTP 400: worse", "the reply is empty (twice)"):
        desk.done(Result(None, "failed", error))
    assert counts == {"pieces.failed": 3, "failed.HTTP 400": 2, "failed.the reply is empty": 1}


def test_a_model_that_was_replaced_under_its_name_is_another_engine():
    async def opened():
        room = Room()
        options = {"base_url": "http://localhost:1/v1"}
        made = [await room.engine(Engine("openai", "m", options, {"content": c})) for c in ("old", "old", "new")]
        await room.close()
        return made

    first, same, other = asyncio.run(opened())
    assert first is same and first is not other


def test_a_memory_asks_the_engine_for_what_is_new(stub, tmp_path):
    log = write_lines(tmp_path / "a.jsonl", session("ann", 1, "I adopted a cat.", "Lovely!"))
    run(tmp_path / "c", log, **asks(stub), **{"rank.presets": ["bm25", "adaptivegraph"]})
    before = stub.stats()["requests"]
    with tagloom.Memory(str(tmp_path / "c"), "ann") as memory:
        memory.remember("The cat is called Miso.")
        assert "Miso" in memory.query("What is the cat called?", retriever="adaptivegraph")[0].text
        assert stub.stats()["requests"] == before + 1
        memory.query("And who is Miso?", retriever="adaptivegraph")
        assert stub.stats()["requests"] == before + 1
    result = driver.run(configure(tmp_path / "c"))
    assert stub.stats()["requests"] == before + 1, "a run takes the reply over"
    assert result.made["extract"] == 1


def test_metrics_are_served_while_the_engine_works(logs, tmp_path):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with running("--delay", "0.3") as slow:
        command = [sys.executable, "-m", "jobs.cli", "run", "-C", str(tmp_path / "c"), str(logs), "--quiet"]
        settings = {
            "extract.extractor": "openai",
            "extract.model": "stub",
            "extract.options.base_url": slow.base_url,
            "extract.options.concurrency": 2,
            "compute.metrics": f"127.0.0.1:{port}",
        }
        sets = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
        process = subprocess.Popen([*command, *sets], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            text = ""
            for _ in range(2000):
                if process.poll() is not None or ("tagloom_requests_total" in text and 'status="ok"' in text):
                    break
                with contextlib.suppress(OSError):
                    text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5).read().decode()
                time.sleep(0.05)
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=60)
    assert "tagloom_slots 2.0" in text and "tagloom_pieces_wanted 120.0" in text


def test_replies_are_parquet_that_anybody_can_read(stub, logs, tmp_path):
    run(tmp_path / "a", logs, **asks(stub))
    rows = pq.ParquetDataset(sorted(map(str, (tmp_path / "a" / "journal").rglob("*.parquet")))).read()
    assert rows.num_rows == 120 and set(rows["kind"].cast("string").to_pylist()) == {"reply"}


def test_a_real_model_on_the_cpu(tmp_path):
    """SmolLM2-135M in llama.cpp: what it says is nonsense, but every note follows the schema."""
    told = {"ann": "My sister Ana and I ran in Porto.", "bob": "I sold my car on Monday."}
    logs = write_lines(tmp_path / "a.jsonl", *(session(c, n, t, "I see.") for c, t in told.items() for n in (1, 2)))
    settings = {
        "extract.extractor": "llamacpp",
        "extract.model": str(weights()),
        "extract.options": {"threads": 1, "parallel": 2},
        "extract.max_tokens": 128,
        "rank.presets": ["bm25"],
        "extract.ontology_window": 0,
    }
    result = run(tmp_path / "a", logs, **settings)
    found = notes(tmp_path / "a")
    assert len(found) == 4
    assert sum(n["status"] in ("ok", "repaired") for n in found) >= 3
    assert all(n["completion_tokens"] > 0 for n in found if n["status"] != "failed")
    assert result.asked["extract"]["requests"] >= 4
    for path in (tmp_path / "a" / "tables" / "notes").rglob("*.parquet"):
        path.unlink()
    (tmp_path / "a" / "heads.json").unlink()
    again = run(tmp_path / "a", logs, **settings)
    assert again.asked["extract"]["requests"] == 0
    assert notes(tmp_path / "a") == found
