"""What an engine will be asked: counted by hand on small texts, and against what a server then counted."""

import shutil

import pytest

from pipelines import driver, estimate, planner_view
from pipelines.estimate import Load, Rate, by_case, of_unit, price, rates, rules, summed, total
from pipelines.ingest import shard_keys
from pipelines.store import Manifest, Store
from schemas.config import ExtractConfig, PricesConfig
from tests.engines.stub_server import running
from tests.pipelines import corpora
from tests.pipelines.corpora import session, write_lines
from transforms import prompts, tasks
from transforms.engines._estimate import tokens

CASES = [f"case{n:02d}" for n in range(12)]
TEXT = "My cat called Miso likes fish."
FEW = {"rank.presets": ["bm25-raw"], "evaluate.resamples": 100}


def configure(corpus, *inputs, **given):
    return corpora.configure(corpus, *inputs, **FEW, **given)


def run(corpus, *inputs, **given):
    return corpora.run(corpus, *inputs, **FEW, **given)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Twelve cases of one interaction each, and the corpus of them."""
    folder = tmp_path_factory.mktemp("estimate")
    lines = [session(case, n, TEXT, "A lovely name.") for n, case in enumerate(CASES, 1)]
    run(folder / "c", write_lines(folder / "a.jsonl", *lines))
    return folder / "c"


@pytest.fixture(scope="module")
def stub():
    with running() as server:
        yield server


@pytest.fixture
def corpus(built, tmp_path):
    return shutil.copytree(built, tmp_path / "c")


def asks(server=None, **more):
    options = {"base_url": server.base_url, "patience": 20.0} if server else {}
    return {"extract.extractor": "openai", "extract.model": "stub", "extract.options": options, **more}


def engine(**more) -> ExtractConfig:
    return ExtractConfig(extractor="openai", model="m", **more)


def reader(corpus):
    """What is there of interactions in each shard."""
    store = Store.open(str(corpus))
    keys = shard_keys(store.storage, store.heads()["main"]["sources"])["ingest"]
    return keys, lambda unit, table, shard: store.read_part(table, shard, keys[shard]) if unit == "ingest" else None


def constant(extract, task="notes"):
    """Tokens of the template of a prompt, as counted."""
    prompt = prompts.chosen(extract.tasks, extract.prompt)[task]
    empty = prompts.messages(prompt, dict.fromkeys(tasks.load(task).PLACEHOLDERS, ""))
    return sum(tokens(text) for _, text in empty)


def test_loads_by_hand():
    extract = engine(ontology_tokens=100, max_tokens=300)
    (rule,) = rules(extract, "extract")
    size = constant(extract)
    load = rule.load(2, 120, 3)
    assert load == Load(2, 3, (120 + 2 * size) * 0.75 + 100, 2 * 100, 120 + 2 * size + 2 * (100 + 300))
    assert summed([load, Load(1)], 2.0) == Load(6, 6, load[2] * 2, 400, load[4] * 2)
    assert summed([]) == Load()
    assert rule.groups(21) == rule.load(3, 1800)


def test_without_an_ontology_no_prompt_has_one():
    assert rules(engine(ontology_window=0), "extract")[0].vocabulary == 0
    assert rules(engine(), "extract")[0].vocabulary == 400


def test_extractors_that_ask_nothing_have_no_rule():
    assert rules(ExtractConfig(), "extract") == []
    assert rules(engine(), "extract/facts") == []
    mixed = engine(cases=("a",), rest=ExtractConfig())
    assert [rule.rest for rule in rules(mixed, "extract")] == [False]
    whole = ExtractConfig(cases=("a",), rest=engine())
    assert [rule.rest for rule in rules(whole, "extract")] == [True]


def test_replies_are_as_long_as_the_last_ones_of_their_task():
    known = [Rate("extract", "other", 0.1, 50.0), Rate("extract", "m", 0.1, 70.0), Rate("extract/facts", "m", 0.1, 9.0)]
    both = engine(tasks=("notes", "facts"), max_tokens=600)
    assert rules(both, "extract", known)[0].reply == 70
    assert rules(both, "extract", known[:1])[0].reply == 50
    assert rules(both, "extract/facts", known[:2])[0].reply == 200, "a third of the limit"
    assert rules(engine(max_tokens=16), "extract", known)[0].reply == 16


def test_prices_by_hand():
    assert price(PricesConfig(), 10, 10, 1.0) is None
    assert price(PricesConfig(prompt=2.0, completion=10.0), 3e6, 5e5, None) == 11.0
    assert price(PricesConfig(prompt=2.0), 3e6, 5e5, 7200.0) == 6.0
    assert price(PricesConfig(hour=3.0), 3e6, 5e5, 7200.0) == 6.0
    assert price(PricesConfig(hour=3.0, prompt=1.0), 3e6, 5e5, None) is None


def test_shares_of_cases_are_counted_by_their_own_extractor(built):
    keys, read = reader(built)
    mixed = engine(cases=(CASES[0], CASES[5]), rest=engine(max_tokens=20, cases=(CASES[1],), rest=ExtractConfig()))
    found = rules(mixed, "extract")
    asked = [(case, found.index(rule)) for shard in keys for rule, case, _ in by_case(found, mixed, shard, read)]
    assert sorted(asked) == [(CASES[0], 0), (CASES[1], 1), (CASES[5], 0)]


def test_of_many_shards_some_are_read_and_scaled(built, monkeypatch):
    keys, read = reader(built)
    shards = sorted(keys)
    seen = []

    def watching(unit, table, shard):
        seen.append(shard)
        return read(unit, table, shard)

    (whole,) = of_unit(engine(), "extract", shards, watching)
    assert (whole.requests, sorted(seen)) == (12, shards)
    seen.clear()
    monkeypatch.setattr(estimate, "SAMPLED", 2)
    (part,) = of_unit(engine(), "extract", shards, watching)
    middle = shards[len(shards) // 2]
    assert seen == [shards[0], middle]
    rows = sum(read("ingest", "interactions", shard).num_rows for shard in seen[:2])
    assert part.requests == round(rows * len(shards) / 2)


def test_a_task_over_what_is_not_made_yet_is_counted_by_interactions(tmp_path):
    lines = [session("ann", n, TEXT, "Nice.") for n in range(1, 22)]
    run(tmp_path / "c", write_lines(tmp_path / "a.jsonl", *lines))
    keys, read = reader(tmp_path / "c")
    both = engine(tasks=("notes", "facts", "reflections"))
    asked = {
        u: of_unit(both, u, sorted(keys), read)[0].requests for u in ("extract", "extract/facts", "extract/reflections")
    }
    assert asked == {"extract": 21, "extract/facts": 21, "extract/reflections": 3}


def test_input_that_is_not_read_yet_is_counted_by_its_bytes():
    (one,) = of_unit(engine(), "extract", [], lambda *_: None, unread=10_500)
    assert one.requests == 11
    assert (
        of_unit(engine(cases=("a",), rest=ExtractConfig()), "extract", [], lambda *_: None, unread=10_500)[0].requests
        == 0
    )


def test_rates_are_those_of_the_latest_manifests(corpus):
    store = Store.open(str(corpus))
    head = store.heads()["main"]
    assert rates([store.generation()]) == [], "lexical asks nothing"
    marks = {}
    for mark, made_at, requests in (
        ("a" * 32, "2024-01-01", 10),
        ("b" * 32, "2024-01-02", 0),
        ("c" * 32, "2024-01-03", 4),
    ):
        facts = {"requests": requests, "prompt_tokens": 900, "completion_tokens": 100, "seconds": 50.0, "model": "m"}
        store.write_manifest(Manifest("extract", mark, 1, {}, (), {}, (), {**facts, "made_at": made_at}))
        marks[mark[0]] = {**head, "units": {"extract": mark}}
    store.move_heads(marks)
    every = [store.generation(name) for name in ("a", "b", "c", "main")]
    assert rates(every) == [Rate("extract", "m", 0.05, 25.0), Rate("extract", "m", 0.05, 10.0)]


def test_time_goes_by_the_same_model_first():
    known = [
        Rate("extract", "other", 1.0, 10.0),
        Rate("extract/facts", "m", 0.5, 10.0),
        Rate("extract", "m", 0.25, 10.0),
    ]

    def seconds(known):
        (one,) = of_unit(engine(), "extract", [], lambda *_: None, known=known, unread=1000)
        return one.seconds and one.seconds / (one.prompt_tokens + one.completion_tokens), one.measured

    for count, expected in ((3, (0.25, "m")), (2, (0.5, "m")), (1, (1.0, "other"))):
        rate, model = seconds(known[:count])
        assert (rate, model) == (pytest.approx(expected[0], rel=0.01), expected[1])
    assert seconds([]) == (None, "")


def test_a_sum_with_an_unknown_part_is_unknown():
    lines = of_unit(engine(prices=PricesConfig(prompt=1.0)), "extract", [], lambda *_: None, unread=1000)
    assert total(lines)["requests"] == 1
    assert (total(lines)["seconds"], total(lines)["price"]) == (None, lines[0].price)


def test_plan_before_and_after_a_run(stub, built, corpus, tmp_path):
    log = built.parent / "a.jsonl"
    rough = planner_view.plan(configure(tmp_path / "new", log, **asks(stub)), append=False)
    assert rough.cost is not None and rough.cost.rough
    assert rough.cost.total["requests"] == -(-log.stat().st_size // 1000)
    config = configure(corpus, log, **asks(stub, **{"extract.prices": {"prompt": 1.0, "completion": 4.0}}))
    exact = planner_view.plan(config, append=False)
    (line,) = exact.cost.units
    assert (line.requests, line.answered, exact.cost.rough) == (12, 0, False)
    assert next(u for u in exact.units if u.unit == "extract").estimate == "~12 requests"
    assert line.price == pytest.approx((line.prompt_tokens + 4 * line.completion_tokens) / 1e6, rel=1e-3)
    assert (line.seconds, "no rate was measured here yet" in exact.cost.remarks) == (None, True)
    before = stub.stats()["requests"]
    spent = driver.run(config).manifests["extract"].run
    assert stub.stats()["requests"] - before == 12
    assert line.most_tokens > spent["prompt_tokens"] + spent["completion_tokens"]
    done = planner_view.plan(config, append=False)
    assert done.cost.total["requests"] == done.cost.total["seconds"] == 0
    for path in (corpus / "tables" / "notes").rglob("*.parquet"):
        path.unlink()
    (line,) = planner_view.plan(config, append=False).cost.units
    assert (line.requests, line.answered) == (0, 12), "the journal knows them all"
    more = configure(corpus, log, **asks(stub, **{"extract.temperature": 0.5, "extract.model": "next"}))
    cost = planner_view.plan(more, append=False).cost
    assert cost.units[0].seconds == pytest.approx(
        (cost.units[0].prompt_tokens + cost.units[0].completion_tokens)
        * spent["seconds"] / (spent["prompt_tokens"] + spent["completion_tokens"]), rel=0.01,
    )  # fmt: skip
    assert "time at the rate last measured here, of stub" in cost.remarks
    assert planner_view.plan(configure(corpus, log), append=False).cost is None
