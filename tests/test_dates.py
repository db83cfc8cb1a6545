"""Times and durations: every spelling that states a whole one is read, nothing else is, and nothing is filled in."""

from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aps_rag_pipeline.content.dates import iso_utc, parse_duration, parse_moment, parse_time, unit_seconds

CHICAGO = ZoneInfo("America/Chicago")
NOON = datetime(2025, 3, 4, 18, 0, tzinfo=UTC)  # noon of 4 March 2025 in Chicago


@pytest.mark.parametrize(
    "text",
    [
        "2025-03-04 12:00",
        "2025-03-04T12:00:00",
        "2025-03-04T12:00:00.0000000",
        "2025-03-04T18:00:00Z",
        "2025-03-04T13:00:00-05:00",
        "2025-03-04 19:00 +0100",
        "20250304T180000Z",
        "20250304120000",
        "202503041200",
        "2025/3/4 12:00",
        "03/04/2025 12:00",
        "3/4/25 12:00 PM",
        "03/04/2025 1200",
        "03/04/2025 1200 hours",
        "Tuesday, March 4th, 2025 at 12 pm",
        "4 March 2025, 12h00",
        "04-Mar-25 12:00:00",
        "Mar/04/2025 12:00:00 CST",
        "Mar/04/2025 11:00:00 -07:00",
        "Tue Mar  4 12:00:00 CST 2025",
        "Tue, 04 Mar 2025 13:00:00 -0500 (EST)",
        "2025-03-04 13:00 EST",
        "2025-03-04 13:00 Eastern Time",
        "2025-03-04 13:00 America/New_York",
        "13:00 EST, on March 4, 2025",
        "1741111200",
        "1741111200000",
        "1741111200000000",
        1741111200,
        1741111200.0,
        datetime(2025, 3, 4, 12, 0),
        datetime(2025, 3, 4, 18, 0, tzinfo=UTC),
    ],
)
def test_one_moment_in_many_spellings(text: object) -> None:
    assert parse_time(text, CHICAGO) == NOON


@pytest.mark.parametrize(
    "value",
    [
        "", "n/a", "yesterday", "Friday", "12:30", "5 Mar", "March 2025", "2025", "2025-03", "1.3.5", "45720",
        45720, True, None, "0000-00-00 00:00:00", "1/1/0001", "2025-02-30", "32/13/2025", "25/03/04",
        "2025-03-04 25:00", "2025-03-04 12:61", "2025-03-04 12:00 XYZ", "2025-03-04 noon", "2192003001x",
        "03/04/2025 and 03/05/2025", time(12, 0), "9" * 5000, "Rule_1_3_5",
    ],
)  # fmt: skip
def test_what_states_no_whole_time_gives_none(value: object) -> None:
    assert parse_time(value, CHICAGO) is None


def test_the_order_of_the_feed_decides_an_ambiguous_date() -> None:
    days = {order: parse_moment("03/04/2025", CHICAGO, order) for order in ("mdy", "dmy", "ymd")}
    assert days == {"mdy": date(2025, 3, 4), "dmy": date(2025, 4, 3), "ymd": None}
    assert parse_moment("13/04/2025", CHICAGO, "mdy") == date(2025, 4, 13)
    assert parse_moment("25-03-04", CHICAGO, "ymd") == date(2025, 3, 4)
    assert parse_moment("04.03.2025", CHICAGO, "dmy") == date(2025, 3, 4)
    assert parse_moment("2025-03-04", CHICAGO, "dmy") == date(2025, 3, 4)


def test_a_day_is_its_midnight_in_the_zone() -> None:
    assert parse_time("03/04/2025", CHICAGO) == datetime(2025, 3, 4, 6, tzinfo=UTC)
    assert parse_time(date(2025, 7, 4), CHICAGO) == datetime(2025, 7, 4, 5, tzinfo=UTC)
    assert parse_time("2025-03-04 24:00", CHICAGO) == datetime(2025, 3, 5, 6, tzinfo=UTC)


def test_zone_names_tell_the_repeated_hour_apart_and_follow_the_feed() -> None:
    assert parse_time("11/02/2025 01:30 CDT", CHICAGO) == datetime(2025, 11, 2, 6, 30, tzinfo=UTC)
    assert parse_time("11/02/2025 01:30 CST", CHICAGO) == datetime(2025, 11, 2, 7, 30, tzinfo=UTC)
    # CST is China Standard Time to those who live there.
    assert parse_time("2025-03-04 12:00 CST", ZoneInfo("Asia/Shanghai")) == datetime(2025, 3, 4, 4, tzinfo=UTC)


_FORMS = (
    "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S", "%Y%m%d%H%M%S", "%m/%d/%Y %H:%M:%S", "%d %B %Y %H:%M:%S",
    "%b %d, %Y %I:%M:%S %p", "%d-%b-%Y %H:%M:%S", "%A, %d %B %Y, %H:%M:%S", "%Y/%m/%d %H:%M:%S", "%a %b %d %H:%M:%S %Y",
)  # fmt: skip


@given(st.datetimes(datetime(1900, 1, 2), datetime(2199, 12, 30)), st.sampled_from(_FORMS))
def test_round_trip_of_written_forms(moment: datetime, form: str) -> None:
    moment = moment.replace(microsecond=0)
    assert parse_time(moment.strftime(form), UTC) == moment.replace(tzinfo=UTC)


@given(st.datetimes(datetime(1900, 1, 2), datetime(2199, 12, 30), timezones=st.timezones()))
def test_round_trip_of_iso(moment: datetime) -> None:
    assert parse_time(moment.isoformat(), CHICAGO) == moment.astimezone(UTC)
    assert parse_time(iso_utc(moment), CHICAGO) == moment.astimezone(UTC)


@given(st.text(max_size=40) | st.text("0123456789/-:. TZapm+JanFeb", max_size=25))
def test_any_text_gives_a_time_or_none(text: str) -> None:
    found = parse_time(text, CHICAGO)
    assert found is None or found.tzinfo is UTC
    parse_duration(text, 60)


@pytest.mark.parametrize(
    "text",
    [
        "1:30", "01:30:00", "1.5 h", "1,5 h", "1.5 hrs", "90 min", "90 Minutes", "5400 s", "5,400 sec", "PT1H30M",
        "PT90M", "1h30",        "1h 30m", "1 hr and 30 min", "1 hour, 30 minutes", timedelta(minutes=90), time(1, 30),
    ],
)  # fmt: skip
def test_one_duration_in_many_spellings(text: object) -> None:
    assert parse_duration(text) == 5400


def test_longer_durations() -> None:
    assert parse_duration("2 days, 3:04:05") == 2 * 86400 + 3 * 3600 + 4 * 60 + 5
    assert parse_duration("P1DT2H") == 26 * 3600
    assert parse_duration("1 week") == 7 * 86400
    assert parse_duration("0") is None


@pytest.mark.parametrize(
    "text", ["", "n/a", "3 apples", "-1:30", "P", "P1Y", "about 1 h", "1 h or 2 h", None, True, "1:3"]
)
def test_what_states_no_duration_gives_none(text: object) -> None:
    assert parse_duration(text, 60) is None


def test_a_bare_number_needs_a_unit() -> None:
    assert parse_duration("90") is None
    assert parse_duration("90", 60) == parse_duration(90, 60) == 5400
    assert parse_duration(-1, 60) is None
    headings = (
        "Duration (min)",
        "duration_h",
        "Downtime Hours",
        "Time lost [s]",
        "Duration",
        "h:mm",
        "hours or minutes",
    )
    assert [unit_seconds(heading) for heading in headings] == [60, 3600, 3600, 1, None, None, None]


@given(st.integers(0, 99), st.integers(0, 59), st.integers(0, 59))
def test_round_trip_of_durations(hours: int, minutes: int, seconds: int) -> None:
    total = hours * 3600 + minutes * 60 + seconds
    assert parse_duration(f"{hours}:{minutes:02d}:{seconds:02d}") == total
    assert parse_duration(f"{hours} h {minutes} min {seconds} s") == total
    assert parse_duration(f"PT{hours}H{minutes}M{seconds}S") == total
