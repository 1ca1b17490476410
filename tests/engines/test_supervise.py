"""Supervision of engines that die."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.errors import ConfigError
from transforms.engines import EngineDiedError, EngineError, Reply, Request, RequestTooLongError
from transforms.engines import _supervise as supervise
from transforms.engines._supervise import SetAsideError, Supervised


def ask(text):
    return Request((("user", text),), None, 8)


class Mortal:
    """An engine that dies of the requests that it is told to die of, after `steps` turns of the loop.

    When it dies, one of its requests hears of it at once; the others hang for ever, as with a real process that is
    stuck: it is the supervisor's part to free them.
    """

    context = 100

    def __init__(self, deadly=(), slots=4, steps=2):
        self.deadly, self.slots, self.steps = deadly, slots, steps
        self.dead = self.closed = False
        self.asked, self.together, self.now = [], [], set()

    def count(self, text):
        return len(text)

    async def complete(self, request):
        text = request.messages[0][1]
        self.asked.append(text)
        self.now.add(text)
        try:
            for _ in range(self.steps):
                self.together.append(frozenset(self.now))
                await asyncio.sleep(0)
                if self.dead:
                    await asyncio.get_running_loop().create_future()
            if text in self.deadly:
                self.dead = True
                raise EngineDiedError(f"killed by {text}")
            if text == "long":
                raise RequestTooLongError("too long")
            return Reply(text.upper(), "stop", len(text), 1, cached_tokens=1)
        finally:
            self.now.discard(text)

    def counters(self):
        return {"retried.busy": float(len(self.asked))}

    async def close(self):
        self.closed = True


class Births:
    """Starts engines one after another and notes the pauses between."""

    def __init__(self, *engines):
        self.engines, self.born, self.pauses = list(engines), [], []

    async def start(self):
        engine = self.engines.pop(0) if self.engines else Mortal()
        if isinstance(engine, Exception):
            raise engine
        self.born.append(engine)
        return engine

    async def sleep(self, seconds):
        self.pauses.append(seconds)
        await asyncio.sleep(0)

    async def supervised(self):
        return await Supervised.start(self.start, sleep=self.sleep)


def run(births, texts):
    """Ask everything at once; return the answers (or errors) in order, and the supervisor."""

    async def main():
        engine = await births.supervised()
        answers = await asyncio.gather(*(engine.complete(ask(t)) for t in texts), return_exceptions=True)
        await engine.close()
        return [a.text if isinstance(a, Reply) else a for a in answers], engine

    return asyncio.run(asyncio.wait_for(main(), 60))


def test_a_quiet_engine_is_only_passed_through():
    births = Births(Mortal(slots=3))
    answers, engine = run(births, [*"abcdefg", "long"])
    assert answers[:7] == list("ABCDEFG")
    assert isinstance(answers[7], RequestTooLongError)
    (only,) = births.born
    assert sorted(only.asked) == [*"abcdefg", "long"]
    assert max(map(len, only.together)) == 3
    assert only.closed
    counters = engine.counters()
    assert (engine.slots, engine.context, engine.count("four"), engine.in_flight) == (3, 100, 4, 0)
    expected = {"requests": 7, "prompt_tokens": 7, "completion_tokens": 7, "cached_tokens": 7, "retried.busy": 8}
    assert {k: counters[k] for k in expected} == expected
    assert counters["engine_deaths"] == counters["engine_restarts"] == 0


def test_requests_in_flight_at_a_death_are_asked_again():
    births = Births(Mortal({"b"}), Mortal())
    answers, engine = run(births, "abcdef")
    assert answers == list("ABCDEF")
    first, second = births.born
    assert first.closed
    assert first.asked[:4] == list("abcd")
    assert set(second.asked) >= {"b", "e", "f"}
    assert engine.counters()["engine_deaths"] == engine.counters()["engine_restarts"] == 1
    assert engine.counters()["requests"] == 6
    assert births.pauses == []


def test_the_guilty_request_is_found_out_alone_and_set_aside():
    births = Births(*(Mortal({"bad"}) for _ in range(3)))
    answers, engine = run(births, ["a", "bad", "c", "d", "e", "f"])
    assert [a for a in answers if isinstance(a, str)] == ["A", "C", "D", "E", "F"]
    assert isinstance(answers[1], SetAsideError)
    assert str(answers[1]) == "killed the engine 3 times: killed by bad"
    assert len(births.born) == 4
    third = births.born[2]
    assert all(group == {"bad"} for group in third.together if "bad" in group)
    assert engine.counters()["engine_deaths"] == 3
    assert engine.counters()["retried.busy"] == sum(len(e.asked) for e in births.born)


def test_two_guilty_requests_are_both_set_aside_and_no_other():
    births = Births(*(Mortal({"x", "y"}, slots=8) for _ in range(6)))
    answers, _ = run(births, ["x", "a", "b", "y", "c"])
    assert [isinstance(a, SetAsideError) for a in answers] == [True, False, False, True, False]
    assert [a for a in answers if isinstance(a, str)] == ["A", "B", "C"]


def test_pauses_double_up_to_a_minute_and_an_engine_that_never_answers_is_given_up():
    texts = [str(i) for i in range(20)]
    births = Births(*(Mortal(set(texts), slots=1) for _ in range(20)))
    answers, engine = run(births, texts)
    assert births.pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert len(births.born) == 11
    assert engine.counters()["engine_restarts"] == 10
    assert sum(isinstance(a, SetAsideError) for a in answers) == 3
    rest = [a for a in answers if not isinstance(a, SetAsideError)]
    assert all(isinstance(a, EngineError) and "ended 10 times without answering: killed by" in a.message for a in rest)


def test_a_reply_ends_the_back_off():
    births = Births(Mortal({"a"}, slots=1), Mortal({"a"}, slots=1), Mortal({"b"}, slots=1), Mortal(slots=1))
    answers, _ = run(births, "ab")
    assert answers == ["A", "B"]
    assert births.pauses == [1]


def test_restarts_that_fail_count_as_restarts():
    births = Births(Mortal({"a"}), EngineError("no memory"), EngineDiedError("ended"), Mortal())
    answers, engine = run(births, "ab")
    assert answers == ["A", "B"]
    assert births.pauses == [1, 2]
    assert engine.counters()["engine_restarts"] == 3
    births = Births(Mortal({"a"}), *(EngineError("no memory") for _ in range(20)))
    answers, _ = run(births, "ab")
    assert [a.message for a in answers] == ["the engine ended 10 times without answering: no memory"] * 2


def test_a_restart_that_can_never_succeed_is_not_tried_again():
    births = Births(Mortal({"a"}), ConfigError("the file is gone"))
    answers, _ = run(births, "abcdefgh")
    assert all(isinstance(a, ConfigError) and a.message == "the file is gone" for a in answers)
    births = Births(Mortal({"a"}), ValueError("odd"))
    answers, _ = run(births, "a")
    assert isinstance(answers[0], EngineError)
    assert "odd" in answers[0].message


def test_an_engine_that_cannot_start_at_all_says_so():
    for error in (EngineError("no model"), EngineDiedError("no model")):
        with pytest.raises(EngineError, match="no model"):
            asyncio.run(Births(error).supervised())


def test_an_engine_that_drops_requests_counts_as_dead():
    class Dropping(Mortal):
        async def complete(self, request):
            await super().complete(request)
            raise asyncio.CancelledError

    answers, engine = run(Births(Dropping()), "a")
    assert answers == ["A"]
    assert engine.counters()["engine_deaths"] == 1


async def settle(turns=20):
    for _ in range(turns):
        await asyncio.sleep(0)


def test_cancelled_requests_release_their_places():
    async def main():
        births = Births(Mortal(slots=2, steps=10**9))
        engine = await births.supervised()
        tasks = [asyncio.create_task(engine.complete(ask(str(i)))) for i in range(6)]
        await settle()
        assert engine.in_flight == 2
        tasks[0].cancel()
        tasks[2].cancel()  # in flight, and waiting
        await settle()
        assert births.born[0].now == {"1", "3"}
        assert engine.in_flight == 2
        for task in tasks:
            task.cancel()
        await settle()
        assert engine.in_flight == 0
        assert births.born[0].now == set()
        births.born[0].steps = 1
        assert (await engine.complete(ask("z"))).text == "Z"
        await engine.close()

    asyncio.run(asyncio.wait_for(main(), 60))


def test_a_request_cancelled_when_its_turn_is_given_passes_it_on():
    async def main():
        engine = await Births(Mortal(slots=1)).supervised()
        first, second, third = (asyncio.create_task(engine.complete(ask(t))) for t in "abc")
        leave = engine._leave

        def leave_and_cancel():
            leave()
            second.cancel()

        await settle(1)
        engine._leave = leave_and_cancel
        assert (await first).text == "A"
        engine._leave = leave
        assert (await third).text == "C"
        assert second.cancelled()
        assert engine.in_flight == 0
        await engine.close()

    asyncio.run(asyncio.wait_for(main(), 60))


def test_a_cancelled_suspect_holds_up_nobody():
    async def main():
        births = Births(Mortal({"s"}, slots=2), Mortal({"s"}, slots=2), Mortal(slots=2, steps=10**9))
        engine = await births.supervised()
        suspect = asyncio.create_task(engine.complete(ask("s")))
        while len(births.born) < 3:
            await asyncio.sleep(0)
        await settle()
        others = [asyncio.create_task(engine.complete(ask(t))) for t in "ab"]
        await settle()
        assert births.born[2].now == {"s"}
        suspect.cancel()
        await settle()
        assert births.born[2].now == {"a", "b"}
        births.born[2].steps = 0
        await engine.close()
        for task in others:
            task.cancel()

    asyncio.run(asyncio.wait_for(main(), 60))


def test_closing_ends_the_waits_of_others():
    async def main():
        births = Births(Mortal({"a"}, slots=1))
        never, cleaned = asyncio.Event(), []

        async def start():
            if births.born:
                try:
                    await never.wait()
                finally:
                    await asyncio.sleep(0)
                    cleaned.append(True)
            return await births.start()

        engine = await Supervised.start(start)
        tasks = [asyncio.create_task(engine.complete(ask(t))) for t in "abc"]
        while not engine.counters()["engine_deaths"]:
            await asyncio.sleep(0)
        await settle()
        await engine.close()
        assert cleaned == [True]
        for error in await asyncio.gather(*tasks, return_exceptions=True):
            assert isinstance(error, EngineError)
            assert "closed" in error.message
        with pytest.raises(EngineError, match="closed"):
            await engine.complete(ask("d"))

    asyncio.run(asyncio.wait_for(main(), 60))


def test_closing_ends_a_request_that_runs_alone_and_starts_nothing_more():
    async def main():
        births = Births(Mortal({"s"}), Mortal({"s"}), Mortal(steps=10**9), ValueError("started once more"))
        engine = await births.supervised()
        suspect = asyncio.create_task(engine.complete(ask("s")))
        while engine.counters()["engine_restarts"] < 2 or not engine.in_flight:
            await asyncio.sleep(0)
        await settle()
        await engine.close()
        with pytest.raises(EngineError, match="closed"):
            await suspect
        await settle()
        assert len(births.engines) == 1
        assert engine.counters()["engine_deaths"] == 2
        assert births.born[2].closed
        assert not births.born[2].now

    asyncio.run(asyncio.wait_for(main(), 60))


def test_counters_neither_shrink_nor_count_twice_while_there_is_no_engine():
    async def main():
        births = Births(Mortal({"a"}))
        seen = []

        async def start():
            if births.born:
                seen.append(engine.counters()["retried.busy"])
            return await births.start()

        engine = await Supervised.start(start)
        await engine.complete(ask("a"))
        assert seen == [1]
        assert engine.counters()["retried.busy"] == 2
        await engine.close()

    asyncio.run(asyncio.wait_for(main(), 60))


def test_the_integral_of_requests_in_flight_and_the_waits(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(supervise, "monotonic", lambda: now[0])

    async def main():
        engine = await Births(Mortal(slots=2, steps=10**9)).supervised()
        tasks = [asyncio.create_task(engine.complete(ask(t))) for t in "abc"]
        await settle()
        now[0] += 10  # two in flight, one waiting
        tasks[0].cancel()
        await settle()
        now[0] += 5  # two in flight
        tasks[1].cancel()
        await settle()
        now[0] += 3  # one in flight
        tasks[2].cancel()
        await settle()
        now[0] += 7  # none
        counters = engine.counters()
        assert counters["busy_slot_seconds"] == 2 * 10 + 2 * 5 + 1 * 3
        assert counters["wall_seconds"] == 10 + 5 + 3 + 7
        assert counters["queue_seconds"] == 10
        await engine.close()

    asyncio.run(asyncio.wait_for(main(), 60))


def test_nothing_is_kept_of_requests_that_are_over():
    async def main():
        engine = await Births(Mortal(steps=1)).supervised()
        alive = len(asyncio.all_tasks())
        await asyncio.gather(*(engine.complete(ask("a")) for _ in range(300)))
        await settle()
        assert not engine._life.dead._callbacks
        assert not engine._waiting
        assert len(asyncio.all_tasks()) == alive
        await engine.close()

    asyncio.run(asyncio.wait_for(main(), 60))


@settings(max_examples=60, deadline=None)
@given(
    texts=st.lists(st.sampled_from(["a", "b", "c", "x", "y"]), min_size=1, max_size=12),
    slots=st.integers(1, 5),
    deaths=st.lists(st.sets(st.sampled_from(["a", "b", "x"])), max_size=6),
)
def test_every_request_ends_once_whatever_dies(texts, slots, deaths):
    births = Births(*(Mortal(deadly, slots=slots) for deadly in deaths))
    births.engines += [Mortal(slots=slots)]
    answers, engine = run(births, texts)
    for text, answer in zip(texts, answers, strict=True):
        assert answer == text.upper() or (isinstance(answer, SetAsideError) and text in set().union(*deaths))
    assert engine.in_flight == 0
    counters = engine.counters()
    assert counters["engine_deaths"] == counters["engine_restarts"] == len(births.born) - 1
    assert counters["requests"] == sum(isinstance(a, str) for a in answers)
    assert counters["busy_slot_seconds"] <= slots * counters["wall_seconds"] + 1e-9
