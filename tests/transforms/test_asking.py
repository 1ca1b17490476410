"""Order, vocabulary, retries, splitting and what is kept, with a desk whose answers the test decides."""

import asyncio
import itertools
import json

import pytest

from schemas.errors import StoreError
from transforms import prompts, tasks
from transforms.asking import Known, Question, ask_all, content_of, estimate, halve, split
from transforms.engines import EngineError, Reply, RequestRefusedError, RequestTooLongError
from transforms.tasks import Case, Piece

GOOD = {"who": [], "what": [], "when": [], "where": [], "why": [], "extra": [], "summary": ""}


def note(*what, **more):
    return json.dumps({**GOOD, "what": list(what), "summary": "Something was said.", **more})


class Desk:
    """Answers by a function of the last user message; remembers all that was asked and kept."""

    def __init__(self, answer, context=8192):
        self.context, self.slots = context, 150
        self.answer = answer
        self.asked, self.kept, self.results = [], [], []
        self.journal = {}
        self.running = self.most = 0

    def count(self, text):
        return len(text.split())

    def known(self, key):
        return self.journal.get(key)

    async def ask(self, request):
        self.asked.append(request)
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(0)
        self.running -= 1
        said = self.answer(request)
        if isinstance(said, Exception):
            raise said
        text, finish = said if isinstance(said, tuple) else (said, "stop")
        return Reply(text, finish, sum(self.count(t) for _, t in request.messages), self.count(text))

    def keep(self, key, kind, reply, error, content):
        self.kept.append((kind, error))
        if kind != "corrupt":
            self.journal[key] = Known(kind, reply, error)

    def done(self, result):
        self.results.append(result)


def case(name, *texts):
    return Case(
        name, [Piece(f"i{n}", text, {"when": "2024-01-01", "speakers": "user"}) for n, text in enumerate(texts)]
    )


def ask(desk, *cases, window=1, tokens=400, max_tokens=200):
    question = Question(tasks.load("notes"), prompts.load("notes"), window, tokens, max_tokens, 0.0)
    return asyncio.run(ask_all(cases, question, desk))


def user(request):
    return request.messages[-1][1]


def test_each_piece_sees_the_tags_of_those_before_it():
    desk = Desk(lambda r: note("pets/miso") if "cat" in user(r) else note("travel/lisbon"))
    ((one, two, three),) = ask(desk, case("a", "my cat", "a trip with the cat", "the trip"))
    assert (one.status, one.record) == (two.status, two.record) and three.status == "ok"
    seen = [("pets/miso" in user(r), "travel/lisbon" in user(r)) for r in desk.asked]
    assert seen == [(False, False), (True, False), (True, False)]


def test_pieces_of_a_window_share_what_they_see_and_run_together():
    desk = Desk(lambda r: note("pets/miso"))
    ask(desk, case("a", "cat one", "cat two", "cat three", "cat four"), window=2)
    assert ["pets/miso" in user(r) for r in desk.asked] == [False, False, True, True]
    assert desk.most == 2


def test_without_a_window_no_piece_sees_tags_and_an_edit_touches_one_request():
    desk = Desk(lambda r: note("pets/miso"))
    ask(desk, case("a", "cat one", "cat two"), window=0)
    assert not any("pets/miso" in user(r) for r in desk.asked)
    before = len(desk.asked)
    ask(desk, case("a", "cat ONE", "cat two"), window=0)
    assert len(desk.asked) == before + 1


def test_hundreds_of_cases_are_in_flight_at_once_and_results_stay_in_order():
    desk = Desk(lambda r: note("n/" + user(r).split("number_")[1].split()[0]))
    found = ask(desk, *(case(f"c{n}", f"number_{n} ") for n in range(300)))
    assert desk.most == 300
    assert [r.record.tags["what"] for (r,) in found] == [(f"n/{n}",) for n in range(300)]


def test_the_system_part_is_the_same_in_every_request():
    desk = Desk(lambda r: note("pets"))
    ask(desk, case("a", "one", "two"), case("b", "three"))
    assert len({r.messages[0] for r in desk.asked}) == 1 and desk.asked[0].messages[0][0] == "system"


def test_a_bad_reply_is_asked_again_with_its_fault_and_leaves_no_trace_in_the_note():
    good = Desk(lambda r: note("pets"))
    ((calm,),) = ask(good, case("a", "my cat"))
    desk = Desk(lambda r: note("pets") if len(r.messages) > 2 else "Sure! Here you go.")
    ((result,),) = ask(desk, case("a", "my cat"))
    assert result == calm
    assert len(desk.asked) == 2
    assert desk.asked[1].messages[:2] == desk.asked[0].messages
    assert [kind for kind, _ in desk.kept] == ["corrupt", "reply"]
    assert desk.kept[0][1] in user(desk.asked[1])
    ask(desk, case("a", "my cat"))
    assert len(desk.asked) == 2, "the good reply is served under the first request's key"


@pytest.mark.parametrize("bad", ["", "   \n\n\n", "no", "I'm sorry, but I can't help with that.", '{"who": 3', "[]"])
def test_two_bad_replies_cost_one_note(bad):
    desk = Desk(lambda r: bad if "poison" in r.messages[1][1] else note("pets"))
    ((one, two, three),) = ask(desk, case("a", "my cat", "poison", "my dog"))
    assert [r.status for r in (one, two, three)] == ["ok", "failed", "ok"]
    assert two.record is None and two.error and two.prompt_tokens > 0
    assert [kind for kind, _ in desk.kept] == ["reply", "corrupt", "corrupt", "failed", "reply"]
    asked = len(desk.asked)
    ((_, again, _),) = ask(desk, case("a", "my cat", "poison", "my dog"))
    assert len(desk.asked) == asked and again == two


def test_a_reply_that_broke_off_is_asked_again_and_one_cut_at_its_limit_is_kept():
    whole = note("pets", who=["ana"])
    half = whole[: whole.index('"when"')]
    desk = Desk(lambda r: whole if len(r.messages) > 2 else half)
    ((result,),) = ask(desk, case("a", "my cat"))
    assert result.status == "ok" and len(desk.asked) == 2
    desk = Desk(lambda r: (half, "length"))
    ((result,),) = ask(desk, case("a", "my cat"))
    assert result.status == "repaired" and "limit" in result.error and len(desk.asked) == 1


def test_a_kept_reply_that_cannot_be_read_is_asked_again():
    desk = Desk(lambda r: note("pets"))
    ask(desk, case("a", "my cat"))
    (key,) = desk.journal
    desk.journal[key] = Known("reply", Reply("garbage", "stop", 1, 1), None)
    ((result,),) = ask(desk, case("a", "my cat"))
    assert result.status == "ok" and len(desk.asked) == 2


def test_a_refused_request_costs_one_note_and_its_reason_is_told():
    desk = Desk(lambda r: RequestRefusedError("killed the engine 3 times") if "poison" in user(r) else note("pets"))
    ((one, two),) = ask(desk, case("a", "poison", "cat"))
    assert (one.status, one.error, two.status) == ("failed", "killed the engine 3 times", "ok")


def test_an_engine_that_is_gone_stops_everything_with_its_own_error():
    desk = Desk(lambda r: StoreError("no space left"))
    with pytest.raises(StoreError, match="no space left"):
        ask(desk, case("a", "one", "two"), case("b", "three"), window=2)


def test_a_text_longer_than_the_context_is_split_and_merged():
    words = [f"word{n}" for n in range(2000)]
    text = " ".join(words)
    desk = Desk(
        lambda r: note(user(r).split("word")[1].split()[0] and "t/word" + user(r).split("word")[1].split()[0]),
        context=1500,
    )
    ((result,),) = ask(desk, case("a", text))
    assert result.status == "ok"
    assert len(desk.asked) >= 2
    sent = " ".join(user(r) for r in desk.asked)
    assert [w for w in words if w not in sent] == []
    assert all(sum(desk.count(t) for _, t in r.messages) + r.max_tokens <= 1500 for r in desk.asked)


def test_a_server_that_says_too_long_gets_halves():
    desk = Desk(lambda r: RequestTooLongError("8192") if len(user(r)) > 3000 else note("pets"))
    ((result,),) = ask(desk, case("a", " ".join(f"cat {n}." for n in range(600))))
    assert result.status == "ok" and len(desk.asked) > 2
    sent = "".join(user(r) for r in desk.asked if len(user(r)) <= 3000)
    assert all(f"cat {n}." in sent for n in range(600))
    asked = len(desk.asked)
    assert ask(desk, case("a", " ".join(f"cat {n}." for n in range(600)))) == [[result]]
    assert len(desk.asked) == asked, "that a text is too long is known too"


def test_a_part_that_fails_is_told_and_the_rest_is_kept():
    text = "fine words. " * 100 + "poison. " + "fine words. " * 100
    desk = Desk(
        lambda r: "nope" if "poison" in r.messages[1][1] else note("pets"),
        context=900,
    )
    ((result,),) = ask(desk, case("a", text))
    assert result.status == "repaired" and result.error.startswith("part ")


def test_a_context_without_room_for_a_text_is_told_before_anything_is_asked():
    desk = Desk(lambda r: note("pets"), context=400)
    with pytest.raises(EngineError, match=r"no room for a text.*notes.*200"):
        ask(desk, case("a", "one"), case("b", "two"))
    assert desk.asked == []


def test_a_text_is_split_also_where_what_stands_beside_it_takes_all_room():
    long = " ".join(f"word{n}" for n in range(2000))
    desk = Desk(lambda r: note("pets"), context=1000)
    crowd = Case("a", [Piece("i", long, {"when": "", "speakers": "name " * 900})])
    ((result,),) = ask(desk, crowd)
    assert result.status == "ok"
    assert max(user(r).count("word") for r in desk.asked) < 300


def test_the_same_request_is_asked_once_however_many_pieces_make_it():
    answers = iter(range(100))
    for window, cases in ((4, [case("a", "hi", "hi", "hi")]), (1, [case("a", "hi"), case("b", "hi")])):
        desk = Desk(lambda r: note(f"n/{next(answers)}"))
        first = ask(desk, *cases, window=window)
        assert len(desk.asked) == 1
        assert ask(desk, *cases, window=window) == first, "a resumed run has the same notes"


def test_pieces_that_see_no_tags_fill_the_engine_from_few_cases():
    desk = Desk(lambda r: note("pets"))
    ask(desk, case("a", *map(str, range(40))), case("b", *map(str, range(40, 80))), window=0)
    assert desk.most == 80


def test_others_get_their_turn_while_many_cases_are_served():
    cases = [case(str(n), f"text {n}") for n in range(500)]
    question = Question(tasks.load("notes"), prompts.load("notes"), 1, 400, 200, 0.0)
    desk = Desk(lambda r: note("pets"))
    desk.slots = 8
    asyncio.run(ask_all(cases, question, desk))
    seen = []

    async def watch():
        while True:
            seen.append(len(desk.results))
            await asyncio.sleep(0)

    async def both():
        watcher = asyncio.ensure_future(watch())
        await ask_all(cases, question, desk)
        watcher.cancel()

    desk.results.clear()
    asyncio.run(both())
    assert len(desk.asked) == 500 and max(b - a for a, b in itertools.pairwise(seen)) <= 16


def test_an_object_in_a_fence_may_lack_fields_and_a_broken_one_may_not():
    desk = Desk(lambda r: '```json\n{"what": ["pets/miso"], "summary": "A cat."}\n```')
    ((result,),) = ask(desk, case("a", "my cat"))
    assert result.status == "repaired" and result.record.tags["what"] == ("pets/miso",) and len(desk.asked) == 1
    desk = Desk(lambda r: '{"what": ["pets/miso"], "summary": "A cat.",}')
    ((result,),) = ask(desk, case("a", "my cat"))
    assert result.status == "failed" and "lacks who" in result.error


def test_a_text_that_never_fits_fails_alone():
    desk = Desk(lambda r: RequestTooLongError("no") if "poison" in user(r) else note("pets"))
    ((one, two),) = ask(desk, case("a", "poison", "cat"))
    assert one.status == "failed" and "context" in one.error and two.status == "ok"


def test_an_empty_record_is_told():
    ((result,),) = ask(Desk(lambda r: json.dumps(GOOD)), case("a", "hm"))
    assert result.status == "empty" and result.error


def test_split_and_halve_lose_nothing():
    desk = Desk(None)
    for text in ("a b c " * 500, "x" * 5000, "line one\n" * 300, "日本語。" * 400):
        parts = split(text, 100, desk)
        assert "".join(parts) == text
        assert "".join(halve(text)) == text
        assert all(part for part in halve(text))


def test_estimates_and_keys():
    assert [estimate(t) for t in ("", "abc", "abcd", "日本")] == [0, 1, 2, 2]
    piece = Piece("i", "text", {"when": "x"})
    assert content_of(piece) == content_of(Piece("other", "text", {"when": "x"}))
    assert content_of(piece) != content_of(Piece("i", "text", {"when": "y"}))
