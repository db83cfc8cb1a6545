"""The pipeline's clock, in one place so that weeks can pass in a test, and times as people read them."""

from __future__ import annotations

from datetime import UTC, datetime


def now() -> datetime:
    """The present, aware, in UTC."""
    return datetime.now(UTC)


def span(seconds: float | None) -> str:
    """A stretch of time in its largest unit of which it has two, as in `36 h`; `never` without one."""
    if seconds is None:
        return "never"
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


def minute(moment: datetime | None) -> str:
    """A moment in UTC to the minute, as in `2026-03-01 12:00`; empty without one."""
    return "" if moment is None else f"{moment.astimezone(UTC):%Y-%m-%d %H:%M}"
