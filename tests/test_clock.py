from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from aps_rag_pipeline import clock


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (None, "never"), (-3, "0 s"), (0.4, "0 s"), (119.4, "119 s"), (120, "2 min"), (7199, "120 min"), (7200, "2 h"),
        (172_800, "2 d"), (845_722.4, "10 d"),
    ],
)  # fmt: skip
def test_a_span_is_told_in_its_largest_unit_of_which_it_has_two(seconds: float | None, said: str) -> None:
    assert clock.span(seconds) == said


def test_a_moment_is_told_to_the_minute_in_utc() -> None:
    assert clock.minute(datetime(2026, 3, 1, 7, 59, 59, tzinfo=timezone(timedelta(hours=-6)))) == "2026-03-01 13:59"
    assert clock.minute(datetime(2026, 3, 1, tzinfo=UTC)) == "2026-03-01 00:00"
    assert clock.minute(None) == ""
