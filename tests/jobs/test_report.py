"""`write_report` on a corpus whose texts, ids and names attack the page; as bytes, and in a real browser."""

import base64
import json
import re
import zlib
from html.parser import HTMLParser
from pathlib import Path

import polars as pl
import pytest

from jobs.report import Report, write_report
from jobs.report.browse import EXCERPT, TOP
from pipelines.store import Manifest, Store
from schemas.errors import StoreError, UsageError
from schemas.tables import build
from tests.jobs.report_browser import Browser, find
from tests.pipelines import corpora
from tests.pipelines.corpora import question, session, write_lines
from transforms.interactions import full_text

BREAKS = "</script><script>window.hurt=1;alert(1)</script>"
IMAGE = '<img src=x onerror="window.hurt=2;alert(2)">'
ODD = "a\u2028b\u2029c\u202ed \x1b[2J\x07 {{ 7*7 }} ${7*7} &lt;b&gt; \U0001f600 日本"
LONG = "fish " * 20_000
TEXTS = (
    f"My cat Miso eats fish. {BREAKS}",
    f"Fish is dear {IMAGE}",
    f"Rain and fish again {ODD}",
    f"Miso {LONG}",
    "=HYPERLINK(1) fish ]]> --> <!-- </textarea></style></title>",
)
CASES = ("alma", f"b {BREAKS}", f"c/../{IMAGE}")
PRESETS = ["bm25", "bm25-raw", "adaptivegraph", "adaptivegraph-no-diffusion"]


def lines(cases=CASES):
    for case in cases:
        yield session(case, 1, *(part for text in TEXTS for part in (text, "Indeed.")))
        yield session(case, 2, "Nothing of interest.", "Quite.")
        yield {**question(case, f"What does Miso eat? {BREAKS}", "s1"), "gold_message_ids": ["s1:0"], "type": IMAGE}
        yield {**question(case, f"Where is fish? {IMAGE} {ODD}", "s1"), "type": "plain", "answer": BREAKS}
        yield {**question(case, "Who said it?"), "expected_contains": ["FISH", "miso"], "type": "texts"}
        yield {**question(case, "Unanswerable?"), "answerable": False, "type": "plain"}


def results():
    """An experiment with a curve, its differences, sizes and plain values; names are hostile."""
    rows = []
    for n, preset in enumerate(("bm25", IMAGE)):
        for x in (0, 3, 8):
            rows.append((f"distractors={x}", float(x), preset, None, "session", "mrr", 0.9 - 0.1 * n - x / 100, True))
            if n:
                rows.append((f"distractors={x}", float(x), preset, "bm25", "session", "mrr", -0.1, True))
    rows.append((BREAKS, None, "bm25", None, "session", "recall@10", 0.5, True))
    rows.append((BREAKS, None, "", None, "", "bytes", 12345.0, False))
    names = ("variant", "x", "retriever", "baseline", "level", "metric", "value")
    table = {name: [row[n] for row in rows] for n, name in enumerate(names)}
    table |= {
        "low": [r[6] - 0.05 if r[7] else None for r in rows],
        "high": [r[6] + 0.05 if r[7] else None for r in rows],
    }
    table |= {"experiment": ["distractors"] * len(rows), "scope": ["all"] * len(rows), "p_value": [None] * len(rows)}
    return build("results", {**table, "questions": [9] * len(rows), "cases": [3] * len(rows)})


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> str:
    """Generations main, bare (read only), unjudged (ranked only), and second (a copy of main)."""
    folder = tmp_path_factory.mktemp("reported")
    file = write_lines(folder / "a.jsonl", *lines())
    corpora.run(folder / "c", file, **{"shards": 2, "rank.presets": PRESETS})
    store = Store.open(str(folder / "c"))
    part = store.write_part(0, "made", {"results": results()})
    store.write_manifest(Manifest("experiment/distractors", "made", 1, {}, ("results",), {}, (part,), {"seconds": 2.0}))
    head = store.heads()["main"]
    units = {**head["units"], "experiment/distractors": "made"}

    def only(*kept):
        return {**head, "units": {name: mark for name, mark in units.items() if name.startswith(kept)}}

    store.move_heads(
        {
            "main": only(""),
            "second": only(""),
            "bare": only("ingest", "questions"),
            "unjudged": only("ingest", "questions", "rank/bm25"),
        }
    )
    return str(folder / "c")


@pytest.fixture(scope="module")
def report(corpus, tmp_path_factory) -> Path:
    return write_report(corpus, [], str(tmp_path_factory.mktemp("report") / "r.html"), False).target


class Elements(HTMLParser):
    """Start tags with their attributes, and the content of scripts with an id."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.tags, self.data, self.texts, self._id = [], {}, [], None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self._id = dict(attrs).get("id") if tag == "script" else None

    def handle_endtag(self, tag):
        self._id = None if tag == "script" else self._id

    def handle_data(self, data):
        if self._id:
            self.data[self._id] = self.data.get(self._id, "") + data
        else:
            self.texts.append(data)


def unpacked(path: Path) -> dict:
    data = Elements(path.read_text()).data
    told = json.loads(data.pop("collections"))
    return {"collections": told, **{k: json.loads(zlib.decompress(base64.b64decode(v), -15)) for k, v in data.items()}}


def expected(corpus, preset, name="main"):
    """(case, question id) -> the first results as (interaction, text shown), straight from the tables."""
    generation = Store.open(corpus).generation(name)
    interactions = generation.table("interactions")
    said = pl.DataFrame(
        {
            "case_id": interactions["case_id"].to_pylist(),
            "interaction_id": interactions["interaction_id"].to_pylist(),
            "text": full_text(interactions).to_pylist(),
        }
    )
    runs = pl.from_arrow(generation.table("runs", unit=f"rank/{preset}"))
    runs = runs.with_columns(pl.col("case_id").cast(pl.String)).filter(pl.col("rank") <= TOP)
    joined = runs.join(said, on=["case_id", "interaction_id"]).sort("case_id", "question_id", "rank")
    found: dict = {}
    for row in joined.iter_rows(named=True):
        own = found.setdefault((row["case_id"], row["question_id"]), [])
        own.append((row["interaction_id"], row["text"][:EXCERPT]))
    return found


# -- the file -------------------------------------------------------------------------------------------------------


def test_the_same_corpus_gives_the_same_bytes_and_nothing_is_left_beside(corpus, report, tmp_path):
    made = write_report(corpus, ["main"], str(tmp_path / "again.html"), False)
    assert made == Report(tmp_path / "again.html", report.stat().st_size, ("main",), 4, 12)
    assert made.target.read_bytes() == report.read_bytes()
    assert [path.name for path in tmp_path.iterdir()] == ["again.html"]


def test_the_file_needs_no_network_and_forbids_itself_any(report):
    text = report.read_text()
    page = Elements(text)
    assert not {tag for tag, _ in page.tags} & {"link", "img", "iframe", "object", "embed", "base", "image", "use"}
    assert not [a for _, a in page.tags if {"src", "style", "onclick", "onerror", "xlink:href"} & set(a)]
    assert all(a["href"].startswith("#") for _, a in page.tags if "href" in a)
    assert not re.search(r"url\(|@import|https?://", re.sub(r">[A-Za-z0-9+/=]+</script>", "", text))
    (policy,) = [a["content"] for tag, a in page.tags if tag == "meta" and a.get("http-equiv")]
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy


def test_ids_in_the_page_are_its_own_and_links_lead_somewhere(report):
    page = Elements(report.read_text())
    ids = [a["id"] for _, a in page.tags if "id" in a]
    assert len(ids) == len(set(ids))
    assert all(re.fullmatch(r"[a-z0-9-]+", one) for one in ids)
    assert {a["href"][1:] for _, a in page.tags if "href" in a} <= set(ids)


@pytest.mark.parametrize("preset", PRESETS)
def test_the_results_are_those_of_the_tables(corpus, report, preset):
    made = unpacked(report)
    (told,) = made["collections"]
    index, number = made["index-0"], told["presets"].index(preset)
    found = {}
    for n, start in enumerate(index["starts"]):
        block = made[f"block-0-{n}"]
        at = 0
        for own, count in enumerate(block["top"][number]["n"]):
            rows = block["top"][number]["row"][at : at + count]
            at += count
            if rows:
                case = index["cases"][index["case"][start + own]]
                found[case, block["question"][own]] = [(block["id"][row], block["text"][row]) for row in rows]
    assert found == expected(corpus, preset)
    assert len(found) >= 6


def test_evidence_is_marked_and_the_first_rank_told(report):
    made = unpacked(report)
    index, block = made["index-0"], made["block-0-0"]
    assert index["types"] == [IMAGE, "plain", "texts"]
    golds = dict(zip(block["question"], block["gold"]["all"], strict=True))
    assert golds == {"What does Miso eat? ": 1, "Where is fish? <img ": 5, "Who said it?": 2, "Unanswerable?": 0}
    ranks = index["first"][0]
    assert [ranks[n] for n in range(4)][2:] == [-1, -1]
    assert ranks[0] >= 1


def test_a_generation_that_is_not_judged_still_shows_its_results(corpus, tmp_path):
    made = write_report(corpus, ["unjudged"], str(tmp_path / "r.html"), False)
    assert (made.presets, made.questions) == (2, 12)
    assert "Rankings have not been judged yet" in made.target.read_text()
    data = unpacked(made.target)
    assert set(data["index-0"]["first"][0]) == {-1}
    assert sum(data["block-0-0"]["top"][0]["n"]) > 0


def test_generations_over_the_same_questions_share_their_texts(corpus, report, tmp_path):
    made = write_report(corpus, ["main", "second", "main"], str(tmp_path / "r.html"), False)
    assert (made.generations, made.presets, made.questions) == (("main", "second"), 8, 12)
    (told,) = unpacked(made.target)["collections"]
    assert told["presets"][:5] == [
        "main: bm25",
        "main: bm25-raw",
        f"main: {PRESETS[2]}",
        f"main: {PRESETS[3]}",
        "second: bm25",
    ]


def test_what_is_missing_is_said_and_no_empty_plot_is_drawn(corpus, tmp_path):
    text = write_report(corpus, ["bare"], str(tmp_path / "r.html"), False).target.read_text()
    assert "No preset has ranked yet: tagloom run." in text
    assert "There are no notes yet" in text
    assert "There are no graphs yet" in text
    assert "No experiment was run" in text
    shown = text.partition("<main")[2].partition('id="g0-costs"')[0]
    assert "<svg" not in shown
    assert "<table" not in shown


def test_one_case_is_drawn_by_question_and_one_preset_has_no_differences(tmp_path):
    file = write_lines(tmp_path / "a.jsonl", *lines(CASES[:1]))
    corpora.run(tmp_path / "c", file, **{"rank.presets": ["bm25"]})
    text = write_report(str(tmp_path / "c"), [], str(tmp_path / "r.html"), False).target.read_text()
    assert "[95 % bootstrap interval by question]" in text
    assert "One preset alone has no differences." in text
    assert "No preset is a variant of another one" in text


def test_logs_without_questions(tmp_path):
    file = write_lines(tmp_path / "a.jsonl", session("case", 1, "Hello.", "Hi."))
    corpora.run(tmp_path / "c", file, **{"rank.presets": ["bm25"]})
    made = write_report(str(tmp_path / "c"), [], str(tmp_path / "r.html"), False)
    text = made.target.read_text()
    assert (made.questions, made.presets) == (0, 1)
    assert "The logs hold no questions, so no preset can be judged." in text
    assert "There are no questions to look through." in text


def test_explanations_stand_with_their_question_and_preset(corpus, tmp_path):
    def explain(name, case, asked, preset):
        return f"{name}: {asked} {BREAKS}" if preset == "bm25" and asked == "Who said it?" and case == "alma" else None

    made = write_report(corpus, [], str(tmp_path / "r.html"), False, explain)
    blocks = [data for name, data in unpacked(made.target).items() if name.startswith("block")]
    told = [text for block in blocks for text in block["why"][0].values()]
    assert told == [f"main: Who said it? {BREAKS}"]
    assert not any(block["why"][1] for block in blocks)


def test_a_report_that_fails_leaves_the_old_one(corpus, tmp_path):
    target = tmp_path / "r.html"
    target.write_text("old")

    def fail(*names):
        raise StoreError("lost")

    with pytest.raises(StoreError, match="lost"):
        write_report(corpus, [], str(target), True, fail)
    assert target.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["r.html"]
    with pytest.raises(UsageError, match="is there already"):
        write_report(corpus, [], str(target), False)
    write_report(corpus, ["bare"], str(target), True)
    assert target.read_text().startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("names", "to", "says"),
    [
        (["mian"], "r.html", "no generation is called 'mian'"),
        ([], ".", "is a folder"),
        ([], "r.pdf", "is not named as an HTML file"),
        ([], "s3://bucket/r.html", "is not a local path"),
    ],
)
def test_mistakes(corpus, tmp_path, monkeypatch, names, to, says):
    monkeypatch.chdir(tmp_path)
    with pytest.raises((StoreError, UsageError), match=says):
        write_report(corpus, names, to, False)
    assert list(tmp_path.iterdir()) == []


# -- in a browser ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    program = find()
    if program is None:
        pytest.skip("no Chromium found: install one, or name it in TAGLOOM_CHROMIUM")
    opened = Browser(program, tmp_path_factory.mktemp("browser"))
    yield opened
    opened.close()


def opened(browser, report, fragment="", **kinds):
    browser.open(report, fragment, **kinds)
    shown = "#detail h3" if fragment else "#list table"
    browser.wait(f"document.querySelector('{shown}') !== null")


def quiet(browser) -> bool:
    """Nothing of the logs ran, nothing was asked of a network, nothing was complained about."""
    asked = [event["request"]["url"] for event in browser.told("Network.requestWillBeSent")]
    assert all(url.startswith(("file://", "about:")) for url in asked), asked
    bad = ("Page.javascriptDialogOpening", "Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")
    assert browser.told(*bad) == []
    return browser.run("window.hurt === undefined")


def test_texts_reach_the_page_as_they_are_and_run_nothing(browser, corpus, report):
    opened(browser, report)
    texts = expected(corpus, "bm25")
    index = unpacked(report)["index-0"]
    cuts = []
    for n, text in enumerate(index["text"]):
        browser.run(f"location.hash = '#q0-{n}'")
        browser.wait(f"document.querySelector('#detail h3')?.textContent === {json.dumps(text)}")
        browser.run("document.querySelectorAll('.chips button[aria-pressed=false]').forEach((b) => b.click())")
        said = browser.run("[...document.querySelector('.card').querySelectorAll('.said')].map((e) => e.textContent)")
        asked = browser.run("[...document.querySelectorAll('#detail .about dd')].map((e) => e.textContent)")
        assert asked[0] == index["cases"][index["case"][n]]
        assert said == [shown for _, shown in texts.get((asked[0], asked[1]), [])]
        cuts += browser.run("[...document.querySelectorAll('.cut')].map((e) => e.textContent)")
    length = len(f"{TEXTS[3]}\nIndeed.") - EXCERPT
    assert f" … {length:,} more characters" in cuts
    assert quiet(browser)


def test_every_table_and_drawing_can_be_read_without_seeing_it(browser, report):
    opened(browser, report, "#q0-0")
    assert browser.run(
        "[...document.querySelectorAll('table')].every((t) => t.caption && t.caption.textContent.trim())"
    )
    assert browser.run("[...document.querySelectorAll('th')].every((t) => t.scope)")
    mute = (
        "[...document.querySelectorAll('main svg')].filter((s) => !s.closest('[role=img], [aria-hidden=true]')).length"
    )
    assert browser.run(mute) == 0
    assert browser.run("document.querySelectorAll('figure svg[role=img]').length") >= 2
    named = "(e) => e.labels?.length || e.textContent.trim()"
    assert browser.run(f"[...document.querySelectorAll('button, input, select')].every({named})")
    assert browser.run("document.querySelector('main').textContent.includes('undefined')") is False
    assert browser.run("document.querySelector('main').textContent.includes('NaN')") is False


def test_questions_are_found_filtered_and_turned(browser, report):
    opened(browser, report)
    asked = "[...document.querySelectorAll('#list tbody button')].map((e) => e.textContent)"
    assert len(browser.run(asked)) == 12

    def write(field, value, event="change"):
        element = f"document.getElementById('field-{field}')"
        browser.run(f"{element}.value = {json.dumps(value)}; {element}.dispatchEvent(new Event('{event}'))")

    write("text", "WHO SAID", "input")
    assert browser.run(asked) == ["Who said it?"] * 3
    browser.run("document.querySelector('#list tbody button').click()")
    browser.wait("document.querySelector('#detail h3')?.textContent === 'Who said it?'")
    assert browser.run("document.activeElement.tagName") == "H3"
    browser.run(
        "[...document.querySelectorAll('#detail button')].find((b) => b.textContent === 'Next question').click()"
    )
    browser.wait("document.querySelectorAll('#list tr')[2].className === 'current'")
    write("text", "", "input")
    write("outcome", "unjudged")
    assert {text[:8] for text in browser.run(asked)} == {"Who said", "Unanswer", "Where is"}
    write("outcome", "first")
    write("b", "0")
    assert browser.run("document.querySelector('#list').textContent") == "No question is like that."
    cards = "[...document.querySelectorAll('.card h4')].map((e) => e.textContent)"
    assert browser.run(cards) == ["bm25"]
    browser.run("document.querySelectorAll('#detail .chips button')[1].click()")
    assert browser.run("document.activeElement.textContent").startswith("bm25-raw: ")
    assert browser.run(cards) == ["bm25", "bm25-raw"]
    assert quiet(browser)


def test_a_phone_never_scrolls_sideways_and_dark_is_dark(browser, report):
    opened(browser, report, "#q0-1", width=390, height=844, dark=True)
    browser.run("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    browser.run("document.querySelectorAll('.chips button[aria-pressed=false]').forEach((b) => b.click())")
    assert browser.run("document.documentElement.scrollWidth") == 390
    assert browser.run("getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 26)"
    inside = "(e) => e.getBoundingClientRect().right <= 391"
    assert browser.run(f"[...document.querySelectorAll('main p, main h3, main dl, figure, .cards')].every({inside})")


def test_print_leaves_out_what_cannot_be_used_on_paper(browser, report):
    opened(browser, report, "#q0-1", dark=True)
    browser.send("Emulation.setEmulatedMedia", media="print", features=[])
    shown = "getComputedStyle(document.querySelector('{}')).display"
    assert [browser.run(shown.format(name)) for name in ("nav", "#browser form", "#list", "#detail")] == [
        "none",
        "none",
        "none",
        "block",
    ]
    assert browser.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    browser.send("Emulation.setEmulatedMedia", media="", features=[])
    printed = base64.b64decode(browser.send("Page.printToPDF")["data"])
    assert printed.startswith(b"%PDF")


def test_an_old_browser_is_told_and_sees_the_rest(browser, report):
    added = browser.send("Page.addScriptToEvaluateOnNewDocument", source="delete window.DecompressionStream")
    browser.open(report)
    assert "needs a browser with JavaScript" in browser.run("document.querySelector('#browser-note').innerText")
    assert browser.run("document.querySelector('#browser').hidden")
    assert browser.run("document.querySelectorAll('table').length") > 5
    browser.send("Page.removeScriptToEvaluateOnNewDocument", identifier=added["identifier"])
    assert quiet(browser)
