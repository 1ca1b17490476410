from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transforms import tags
from transforms.dates import resolve

WEDNESDAY = "2023-05-10"  # 8 May 2023 is a Monday.


def dates(text, day=WEDNESDAY):
    at = None if day is None else datetime.fromisoformat(day).replace(hour=23, tzinfo=UTC)
    return resolve(pa.array([text]), pa.array([at], pa.timestamp("us", tz="UTC"))).tags.to_pylist()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("today", "2023/05/10"),
        ("Tonight", "2023/05/10"),
        ("this morning", "2023/05/10"),
        ("YESTERDAY", "2023/05/09"),
        ("last night", "2023/05/09"),
        ("tomorrow", "2023/05/11"),
        ("the day before yesterday", "2023/05/08"),
        ("the day after tomorrow", "2023/05/12"),
        ("3 days ago", "2023/05/07"),
        ("two weeks ago", "2023/04/26"),
        ("a week ago", "2023/05/03"),
        ("a couple of days ago", "2023/05/08"),
        ("two months ago", "2023/03"),
        ("a year ago", "2022"),
        ("ten years ago", "2013"),
        ("three days from now", "2023/05/13"),
        ("six months from now", "2023/11"),
        ("last week", "2023/05"),
        ("next week", "2023/05"),
        ("last month", "2023/04"),
        ("this month", "2023/05"),
        ("next month", "2023/06"),
        ("last year", "2022"),
        ("this year", "2023"),
        ("next year", "2024"),
        ("last weekend", "2023/05/06"),
        ("this weekend", "2023/05/13"),
        ("next weekend", "2023/05/20"),
        ("last Tuesday", "2023/05/09"),
        ("last Wednesday", "2023/05/03"),
        ("this past Wednesday", "2023/05/03"),
        ("this Friday", "2023/05/12"),
        ("this Wednesday", "2023/05/10"),
        ("next Wednesday", "2023/05/17"),
        ("next Friday", "2023/05/12"),
        ("on Monday", "2023/05/08"),
        ("on Wednesday", "2023/05/10"),
        ("on Thursday", "2023/05/04"),
        ("in May", "2023/05"),
        ("in December", "2022/12"),
        ("in October", "2023/10"),
        ("in November", "2022/11"),
        ("last May", "2022/05"),
        ("next May", "2024/05"),
        ("last March", "2023/03"),
        ("this August", "2023/08"),
        ("last summer", "2022"),
        ("this summer", "2023"),
        ("next spring", "2024"),
        ("summer 2021", "2021"),
        ("in 2019", "2019"),
        ("May 7", "2023/05/07"),
        ("May 7th, 2022", "2022/05/07"),
        ("7 May 2023", "2023/05/07"),
        ("the 5th of May", "2023/05/05"),
        ("5 May, 2021", "2021/05/05"),
        ("Sept. 3", "2023/09/03"),
        ("Oct 3", "2023/10/03"),
        ("May 2021", "2021/05"),
        ("January of 2020", "2020/01"),
        ("by April 14", "2023/04/14"),
        ("by April 14, 2024", "2024/04/14"),
        ("in May 2022", "2022/05"),
        ("late May 2021", "2021/05"),
        ("by mid-July", "2023/07"),
        ("from 2021-05-07", "2021/05/07"),
        ("on the 5th of May", "2023/05/05"),
        ("2023-05-07", "2023/05/07"),
        ("2023/5/7", "2023/05/07"),
        ("5/7/2023", "2023/05/07"),
        ("25/7/2023", "2023/07/25"),
        ("5/7/23", "2023/05/07"),
    ],
)
def test_readings(text, expected):
    assert dates(f"It was {text}, I think.") == [expected]


@pytest.mark.parametrize(
    ("text", "day", "expected"),
    [
        ("yesterday", "2024-03-01", "2024/02/29"),
        ("yesterday", "2023-03-01", "2023/02/28"),
        ("yesterday", "2023-01-01", "2022/12/31"),
        ("tomorrow", "2023-12-31", "2024/01/01"),
        ("last month", "2023-01-31", "2022/12"),
        ("next month", "2023-01-31", "2023/02"),
        ("a month ago", "2023-03-31", "2023/02"),
        ("next week", "2023-12-28", "2024/01"),
        ("December 24", "2023-01-05", "2022/12/24"),
        ("January 5", "2023-12-20", "2024/01/05"),
        ("February 29", "2023-05-10", "2024/02/29"),
        ("February 29", "2021-05-10", "2020/02/29"),
        ("last Sunday", "2023-05-08", "2023/05/07"),
        ("this weekend", "2023-05-07", "2023/05/06"),
        ("last summer", "2023-09-01", "2023"),
        ("last summer", "2023-08-31", "2022"),
        ("next summer", "2023-01-10", "2023"),
        ("in March", "2023-01-15", "2023/03"),
        ("in November", "2023-01-15", "2022/11"),
        ("last Monday", "1969-12-31", "1969/12/29"),
    ],
)
def test_borders(text, day, expected):
    assert dates(text, day) == [expected]


@pytest.mark.parametrize(
    "text",
    [
        *("May I come?", "every Monday", "Mondays are hard", "February 30", "2023-02-29", "13/13/2023", "June said hi"),
        *("999 years ago from now", "a few days ago", "1/2", "in 2500", "April likes it", "2023-13-01"),
    ],
)
def test_no_date(text):
    assert dates(text, "0500-01-01" if "999" in text else WEDNESDAY) == []


def test_without_a_time_only_absolute_dates():
    text = "Yesterday, last May, May 7, Monday, in 2019, 7 May 2023 and January 2020"
    assert dates(text, None) == ["2019", "2023/05/07", "2020/01"]


def test_order_and_rows():
    texts = pa.chunked_array([["on Monday and yesterday", "nothing"], ["yesterday, yesterday", ""]])
    days = [datetime(2023, 5, 10, tzinfo=UTC), None, datetime(2024, 3, 1, tzinfo=UTC), None]
    found = resolve(texts, pa.chunked_array([pa.array(days, pa.timestamp("us", tz="UTC"))]))
    assert found.rows.tolist() == [0, 0, 2, 2]
    assert found.tags.to_pylist() == ["2023/05/08", "2023/05/09", "2024/02/29", "2024/02/29"]


def test_empty_column():
    found = resolve(pa.array([], pa.large_string()), pa.array([], pa.timestamp("us", tz="UTC")))
    assert (found.rows.tolist(), found.tags.to_pylist()) == ([], [])


@given(st.dates(), st.integers(0, 999))
@settings(deadline=None, max_examples=60)
def test_days_ago_agree_with_the_calendar(day, count):
    from datetime import timedelta

    expected = [(day - timedelta(count)).strftime("%Y/%m/%d")] if day.toordinal() > count else []
    padded = [e.split("/")[0].zfill(4) + e[e.index("/") :] for e in expected]
    assert dates(f"{count} days ago", day.isoformat()) == padded


_PIECES = ["last", "next", "May", "7", "2023", "30", "/", "-", "Tuesday", "ago", "two", "days", "in", "of", "the,", "é"]


@given(st.lists(st.sampled_from(_PIECES), max_size=12))
@settings(deadline=None, max_examples=200)
def test_any_mix_gives_tags_in_normal_form(words):
    for tag in dates(" ".join(words)):
        assert tags.normalise(tag) == tag
        assert len(tag) in (4, 7, 10)
