from collections import Counter
from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest

from transforms.timestamps import micros, parse_time

BERLIN = ZoneInfo("Europe/Berlin")
NAIVE, FREE, BAD = {"naive_time": 1}, {"free_text_time": 1, "naive_time": 1}, {"unparsed_time": 1}


def utc(*parts):
    return datetime(*parts, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "expected", "counts"),
    [
        ("2023/05/30 (Tue) 23:40", utc(2023, 5, 30, 21, 40), NAIVE),
        ("2023/12/30 (Sat) 00:10", utc(2023, 12, 29, 23, 10), NAIVE),
        ("2023-05-30T23:40:59.123Z", utc(2023, 5, 30, 23, 40, 59, 123000), {}),
        ("2023-05-30T23:40:59.123456789+05:30", utc(2023, 5, 30, 18, 10, 59, 123456), {}),
        ("2023-05-30 23:40 -0200", utc(2023, 5, 31, 1, 40), {}),
        ("20230530T234059Z", utc(2023, 5, 30, 23, 40, 59), {}),
        ("2016-12-31T23:59:60Z", utc(2016, 12, 31, 23, 59, 59), {}),
        ("2023-05-30", utc(2023, 5, 29, 22), NAIVE),
        ("1:56 pm on 8 May, 2023", utc(2023, 5, 8, 11, 56), NAIVE),
        ("12:09 am on 13 September, 2023", utc(2023, 9, 12, 22, 9), NAIVE),
        ("12:30 pm on 1 January, 2024", utc(2024, 1, 1, 11, 30), NAIVE),
        (1685490000, utc(2023, 5, 30, 23, 40), {}),
        (1685490000.5, utc(2023, 5, 30, 23, 40, 0, 500000), {}),
        (1685490000123, utc(2023, 5, 30, 23, 40, 0, 123000), {}),
        ("1685490000", utc(2023, 5, 30, 23, 40), {}),
        (1685490000123456789, utc(2023, 5, 30, 23, 40, 0, 123456), {}),
        ("8 May 2023", utc(2023, 5, 7, 22), FREE),
        ("May 8th, 2023 at 3pm", utc(2023, 5, 8, 13), FREE),
        ("March-15-2024", utc(2024, 3, 14, 23), FREE),
        ("Tue, 30 May 2023 23:40:00 +0200", utc(2023, 5, 30, 21, 40), {"free_text_time": 1}),
        (datetime(2023, 5, 30, 12), utc(2023, 5, 30, 10), NAIVE),
        (datetime(2023, 5, 30, 12, tzinfo=timezone(timedelta(hours=1))), utc(2023, 5, 30, 11), {}),
        (None, None, {}),
        ("", None, {}),
    ],
)
def test_known_forms(value, expected, counts):
    repairs: Counter[str] = Counter()
    assert parse_time(value, BERLIN, repairs) == expected
    assert repairs == counts


@pytest.mark.parametrize(
    "value",
    [
        *("yesterday", "last Tuesday", "3 days ago", "Tuesday", "10:00", "May 2023", "Monday 9:00 AM", "2023"),
        *(
            "2023-02-30",
            "2023-05-30T25:00",
            "0001-01-01T00:00+14:00",
            "9999-12-31T23:59-12:00",
            "99:99 pm on 8 May, 2023",
        ),
        *("1:00 pm on 8 Foo, 2023", "2023530", "\x00\ud83d 2023 x", "x" * 10000, "9" * 400, 2023, 0, -5, 1e300),
        *(float("nan"), float("inf"), 10**40, True, [], {}),
    ],
)
def test_relative_or_broken_times_are_none_and_counted(value):
    repairs: Counter[str] = Counter()
    assert parse_time(value, UTC, repairs) is None
    assert repairs == BAD


def test_dates_that_sort_wrongly_as_text_sort_rightly_as_times():
    written = ["10:00 am on 2 January, 2024", "9:00 am on 10 March, 2023", "2023/11/30 (Thu) 08:00", "2023-9-1"]
    times = [parse_time(one, UTC) for one in written]
    order = sorted(range(4), key=lambda i: times[i])
    assert order == [1, 3, 2, 0]
    assert sorted(written) != [written[i] for i in order]


def test_the_clock_does_not_matter():
    assert parse_time("Friday 8 May 2020", UTC) == utc(2020, 5, 8)


def test_micros():
    assert micros(utc(1970, 1, 1, 0, 0, 1)) == 1_000_000
    assert micros(utc(1969, 12, 31, 23, 59, 59)) == -1_000_000
    assert micros(None) is None
