"""Stretches of time in questions, on the facility's clock."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from query.times import find_window, parse_bound

CHICAGO = ZoneInfo("America/Chicago")
#: A Wednesday, 10:30 in Chicago.
NOW = datetime(2025, 6, 18, 15, 30, tzinfo=UTC)


@dataclass(frozen=True)
class Shift:
    name: str
    start: str


SHIFTS = (Shift("owl", "00:00"), Shift("day", "08:00"), Shift("swing", "16:00"))


def local(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=CHICAGO)


@pytest.mark.parametrize(
    ("text", "start", "end"),
    [
        ("what tripped on 2025-03-14?", "2025-03-14", "2025-03-15"),
        ("what tripped on 3/14/2025", "2025-03-14", "2025-03-15"),
        ("trips on March 14, 2025", "2025-03-14", "2025-03-15"),
        ("trips on 14th of March 2025", "2025-03-14", "2025-03-15"),
        ("trips on March 14", "2025-03-14", "2025-03-15"),
        ("trips on 24 December", "2024-12-24", "2024-12-25"),
        ("trips in March 2025", "2025-03-01", "2025-04-01"),
        ("trips in late March 2025", "2025-03-21", "2025-04-01"),
        ("RF trips in Q2 2024", "2024-04-01", "2024-07-01"),
        ("RF trips in the second quarter of 2024", "2024-04-01", "2024-07-01"),
        ("RF trips in quarter 2 of 2024", "2024-04-01", "2024-07-01"),
        ("trips in 2024", "2024-01-01", "2025-01-01"),
        ("trips in September", "2024-09-01", "2024-10-01"),
        ("what happened yesterday", "2025-06-17", "2025-06-18"),
        ("what happened today", "2025-06-18", "2025-06-19"),
        ("what happened last week", "2025-06-09", "2025-06-16"),
        ("faults this week", "2025-06-16", "2025-06-23"),
        ("faults last month", "2025-05-01", "2025-06-01"),
        ("faults last quarter", "2025-01-01", "2025-04-01"),
        ("faults last year", "2024-01-01", "2025-01-01"),
        ("faults 3 days ago", "2025-06-15", "2025-06-16"),
        ("faults two weeks ago", "2025-06-02", "2025-06-09"),
        ("faults last Monday", "2025-06-16", "2025-06-17"),
        ("what happened last night", "2025-06-17T16:00", "2025-06-18T08:00"),
        ("between 2025-01-05 and 2025-01-07", "2025-01-05", "2025-01-08"),
        ("from March 2025 to May 2025", "2025-03-01", "2025-06-01"),
        ("across the change of clocks on 2025-03-09", "2025-03-09", "2025-03-10"),
    ],
)
def test_phrases(text: str, start: str, end: str) -> None:
    found = find_window(text, NOW, CHICAGO)
    assert found is not None
    assert (found.window.start, found.window.end) == (local(start), local(end))
    assert found.window.start is not None
    assert found.window.start.tzinfo is UTC
    assert found.window.phrase in text


@pytest.mark.parametrize(
    ("text", "start", "end"),
    [
        ("trips since March 2025", "2025-03-01", None),
        ("trips after 2025-03-14", "2025-03-14", None),
        ("trips before 2024-05-01", None, "2024-05-01"),
        ("trips until May 2024", None, "2024-06-01"),
    ],
)
def test_open_ends(text: str, start: str | None, end: str | None) -> None:
    found = find_window(text, NOW, CHICAGO)
    assert found is not None
    assert found.window.start == (local(start) if start else None)
    assert found.window.end == (local(end) if end else None)


def test_the_past_hours_end_now() -> None:
    found = find_window("anything in the last 12 hours?", NOW, CHICAGO)
    assert found is not None
    assert found.window.start == datetime(2025, 6, 18, 3, 30, tzinfo=UTC)
    assert found.window.end is not None
    assert (found.window.end - NOW).total_seconds() == 60


@pytest.mark.parametrize(
    ("text", "start", "end"),
    [
        ("what happened on owl shift on 2025-03-14", "2025-03-14T00:00", "2025-03-14T08:00"),
        ("swing shift of March 14, 2025", "2025-03-14T16:00", "2025-03-15T00:00"),
        ("yesterday's day shift", "2025-06-17T08:00", "2025-06-17T16:00"),
        ("trips on the swing shift", "2025-06-17T16:00", "2025-06-18T00:00"),
        ("trips on owl shift", "2025-06-18T00:00", "2025-06-18T08:00"),
        ("trips on owls last month", "2025-05-01", "2025-06-01"),
    ],
)
def test_shifts(text: str, start: str, end: str) -> None:
    found = find_window(text, NOW, CHICAGO, SHIFTS)
    assert found is not None
    assert (found.window.start, found.window.end) == (local(start), local(end))


@pytest.mark.parametrize(
    "text",
    [
        "what is WRQ:20417",
        "DOWN:2025-0412",
        "open BELY:2025-03-14",
        "S12A:Q3 current",
        "power supply Q2 tripped",
        "the booster may trip on march",
        "why did it trip on 2025-02-31",
        "version 2025.03.14 of the tool",
        "the day shift",
        "",
    ],
)
def test_no_time_is_read_where_none_is_meant(text: str) -> None:
    assert find_window(text, NOW, CHICAGO) is None


@given(st.text(max_size=80))
def test_any_text_is_read_without_error(text: str) -> None:
    found = find_window(text, NOW, CHICAGO, SHIFTS)
    if found is not None and found.window.start and found.window.end:
        assert found.window.start < found.window.end


@given(st.dates(date(1995, 1, 1), date(2025, 6, 18)))
def test_a_day_is_the_same_however_it_is_written(day: date) -> None:
    windows = {
        (found.window.start, found.window.end)
        for form in (
            day.isoformat(),
            f"{day.month}/{day.day}/{day.year}",
            f"{day:%B} {day.day}, {day.year}",
            f"{day.day} {day:%b} {day.year}",
        )
        if (found := find_window(f"trips on {form}?", NOW, CHICAGO))
    }
    assert windows == {(parse_bound(day, CHICAGO), parse_bound(day, CHICAGO, end=True))}


def test_explicit_bounds() -> None:
    assert parse_bound("2025-03-14", CHICAGO) == local("2025-03-14")
    assert parse_bound("2025-03-14", CHICAGO, end=True) == local("2025-03-15")
    assert parse_bound("2025-03-14T08:00", CHICAGO) == local("2025-03-14T08:00")
    assert parse_bound("2025-03-14T08:00+00:00", CHICAGO) == datetime(2025, 3, 14, 8, tzinfo=UTC)
    assert parse_bound(None, CHICAGO) is None
    with pytest.raises(ValueError, match="last tuesday"):
        parse_bound("last tuesday", CHICAGO)
