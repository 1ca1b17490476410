from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pytest

from transforms.cues import CROSSES, MESSAGE_CUES, QUESTION_CUES, message_cues, question_cues
from transforms.named_times import named_times, times_ago


def messages(*pairs):
    return pa.table(
        {
            name: pa.array([pair[i] for pair in pairs], pa.large_string())
            for i, name in enumerate(("user_text", "assistant_text"))
        }
    )


def test_message_cues_by_hand():
    found = message_cues(
        messages(("I went to Paris last week, with Anna. Did you?", ""), ("", "Sure! 3 ideas."), ("", ""))
    )
    assert found.dtype == np.float32
    rows = [dict(zip(MESSAGE_CUES, row, strict=True)) for row in found.tolist()]
    assert rows[0] == pytest.approx(
        {
            "length": np.log(11),
            "number": 0,
            "date": 1,
            "place": 1,
            "names": 0.4,
            "asks": 0.5,
            "ends_asking": 1,
            "first_person": 0.5,
            "user": 1,
        },
        abs=1e-6,
    )
    assert (rows[1]["number"], rows[1]["user"], rows[1]["asks"]) == (1, 0, 0)
    assert all(value == 0 for value in rows[2].values())


def test_question_cues_by_hand():
    asked = ["When did Caroline go?", "How many times did I run?", "What did you recommend to me?", "", "who was it"]
    found = question_cues(pa.array(asked))
    said = [{name for name, value in zip(QUESTION_CUES, row, strict=True) if value} for row in found.tolist()]
    assert said == [{"when", "name"}, {"how_many", "about_me"}, {"about_me", "about_you"}, set(), {"who"}]


def test_crosses_name_cues_that_exist():
    assert all(left in QUESTION_CUES and right in MESSAGE_CUES for left, right in CROSSES)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("What happened in May 2023?", (2023, 5, 0)),
        ("What did she do on 7 June?", (0, 6, 7)),
        ("What did she do on the 7th of June 2022?", (2022, 6, 7)),
        ("Where were we on December 24th?", (0, 12, 24)),
        ("May I ask what happened?", (0, 0, 0)),
        ("Did they march in 2019?", (2019, 0, 0)),
        ("What about March 3?", (0, 3, 3)),
        ("What did we do in MAY?", (0, 0, 0)),
        ("in 20235", (0, 0, 0)),
        ("", (0, 0, 0)),
        (None, (0, 0, 0)),
    ],
)
def test_named_times(text, expected):
    found = named_times(pa.array([text], pa.string()))
    assert (found.year[0], found.month[0], found.day[0]) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("What did I buy 10 days ago?", (10, 10, 1)),
        ("What did I buy two weeks ago?", (14, 14, 2)),
        ("What did I buy a couple of months ago?", (60.8, 60.8, 6)),
        ("Where was I in the past three weeks?", (0, 21, 1.05)),
        ("Who came last Saturday?", (4, 4, 0.8)),  # asked on a Wednesday
        ("Who came last Wednesday?", (7, 7, 0.8)),
        ("Who came last month?", (8, 55, 6)),
        ("Who called yesterday?", (1, 1, 0.7)),
        ("Who came at last?", None),
        ("", None),
    ],
)
def test_times_ago(text, expected):
    asked = pa.array([datetime(2023, 5, 31, 12, tzinfo=UTC)], pa.timestamp("us", "UTC"))
    found = times_ago(pa.array([text]), asked)
    if expected is None:
        assert np.isnan(found.low[0])
    else:
        assert (found.low[0], found.high[0], found.blur[0]) == pytest.approx(expected)
    assert np.isnan(times_ago(pa.array([text]), pa.nulls(1, pa.timestamp("us", "UTC"))).low[0])
