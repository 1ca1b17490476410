"""Log records as JSON: valid, on one line, with what they are about; here and in workers."""

import asyncio
import json
import logging
import subprocess
import sys
import threading

import pytest

from pipelines import logs, work
from schemas.errors import UsageError


def formatted(message, *args, exc_info=None, level=logging.WARNING):
    record = logging.LogRecord("pipelines.x", level, "f.py", 1, message, args, exc_info)
    return logs.JsonFormatter().format(record)


def test_one_line_of_json_with_ids():
    with logs.about(run="r1", generation="main"), logs.about(stage="index", shard=0):
        line = formatted("%d of %s", 3, "many", level=logging.INFO)
    found = json.loads(line)
    assert list(found) == ["time", "level", "run", "generation", "stage", "shard", "logger", "message"]
    assert (found["level"], found["run"], found["stage"], found["shard"]) == ("info", "r1", "index", 0)
    assert found["message"] == "3 of many"
    assert found["time"].endswith("Z")
    assert list(json.loads(formatted("after"))) == ["time", "level", "logger", "message"]


@pytest.mark.parametrize("text", ["two\nlines", "\x1b[31mred\x9b", 'quote " and \\', "snow ☃", "\ud800"])
def test_hostile_text_stays_text(text):
    line = formatted("%s", text)
    assert line.isascii() and line.isprintable()
    assert json.loads(line)["message"] == text


def test_an_exception_is_a_field():
    try:
        raise ValueError("bad")
    except ValueError:
        found = json.loads(formatted("it failed", exc_info=sys.exc_info()))
    assert found["message"] == "it failed"
    assert found["trace"].endswith("ValueError: bad")


def test_tasks_side_by_side_keep_their_own_ids():
    async def one(shard):
        with logs.about(shard=shard):
            await asyncio.sleep(0.01)
            return logs.ids()["shard"]

    async def both():
        return await asyncio.gather(one(1), one(2))

    assert asyncio.run(both()) == [1, 2]
    assert "shard" not in logs.ids()


def test_threads_of_libraries_take_the_ids_of_the_process():
    seen = []
    with logs.about(whole_process=True, run="r1"), logs.about(stage="index"):
        thread = threading.Thread(target=lambda: seen.append(logs.ids()))
        thread.start()
        thread.join()
    assert seen == [{"run": "r1"}]
    assert logs.ids() == {}


def test_an_error_can_still_be_told_of_its_run():
    with pytest.raises(KeyError), logs.about(whole_process=True, run="r2"):
        logs.mark(stage="index")
        raise KeyError
    assert logs.ids() == {}
    assert logs.last() == {"run": "r2", "stage": "index"}


def test_another_format_is_refused(monkeypatch):
    monkeypatch.setenv(logs.VARIABLE, "xml")
    with pytest.raises(UsageError, match="xml"):
        logs.as_json()


def test_a_worker_logs_as_its_driver_does(monkeypatch):
    monkeypatch.setenv(logs.VARIABLE, "json")
    with logs.about(whole_process=True, run="r1", generation="g"), logs.about(stage="x"):
        carried = logs.carried()
    assert carried == {"ids": {"run": "r1", "generation": "g"}, "json": True}
    script = f"""
import logging
from pipelines import logs
logs.take({carried!r})
with logs.about(stage="rank", shard=3):
    logging.getLogger("pipelines.rank").info("at %s", "work")
    logging.getLogger("somebody").info("never shown")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    (line,) = done.stderr.splitlines()
    found = json.loads(line)
    del found["time"]
    assert found == {
        **{"level": "info", "run": "r1", "generation": "g", "stage": "rank", "shard": 3},
        **{"logger": "pipelines.rank", "message": "at work"},
    }


def test_an_item_marks_what_is_logged_while_it_runs(monkeypatch, tmp_path):
    from types import SimpleNamespace

    from pipelines.stage import Item

    seen = []

    def process(inputs, units):
        seen.append(logs.ids())
        return []

    monkeypatch.setattr(work, "load_stage", lambda name: SimpleNamespace(process=process))
    work.run(Item(str(tmp_path), 8, "index", 5, (), (), {}))
    assert seen == [{"stage": "index", "shard": 5}]
