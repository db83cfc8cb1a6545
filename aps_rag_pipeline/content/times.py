"""Times as sources write them, to aware UTC."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Literal

from aps_rag_pipeline.records import as_utc

DateOrder = Literal["mdy", "dmy", "ymd"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NUMBER = re.compile(r"-?\d{1,19}(?:\.\d{1,9})?")
#: Ten digits are seconds and thirteen milliseconds; a number in between is neither in this or the last century.
_MILLISECONDS = 100_000_000_000
_YEARS = range(1900, 2200)
# What a loose date leaves out is taken from these; where the two readings differ, it was no whole date.
_FILL = (datetime(2001, 1, 1), datetime(2004, 12, 28))


def parse_time(value: object, zone: tzinfo, order: DateOrder = "mdy") -> datetime | None:
    """A time from ISO 8601 text, seconds or milliseconds since 1970, or a written date; None when it is no time.

    A time without an offset is read in `zone`; `order` says how 03/04/2025 is meant. A date alone is its midnight.
    """
    if isinstance(value, bool):
        return None
    if isinstance(value, datetime):
        return as_utc(value, zone)
    text = str(value).strip() if isinstance(value, str | int | float) else ""
    if not text:
        return None
    try:
        found = _number(text) or _iso(text, zone) or _loose(text, zone, order)
    except (ValueError, OverflowError):
        return None
    return found if found and found.year in _YEARS else None


def iso(moment: datetime) -> str:
    """The form of a time among a record's fields: ISO 8601 in UTC, whole seconds where it has no fraction."""
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def local(moment: datetime | None, zone: tzinfo) -> str:
    """A time for readers, in their zone, to the minute; nothing for an unknown one."""
    return moment.astimezone(zone).strftime("%Y-%m-%d %H:%M") if moment else ""


def _number(text: str) -> datetime | None:
    if not _NUMBER.fullmatch(text) or len(text) in (4, 8):  # a year, or a date such as 20250412
        return None
    seconds = float(text)
    if abs(seconds) >= _MILLISECONDS:
        seconds /= 1000
    return _EPOCH + timedelta(seconds=seconds)


def _iso(text: str, zone: tzinfo) -> datetime | None:
    if text.isdigit() and len(text) == 4:
        return None
    try:
        return as_utc(datetime.fromisoformat(text), zone)
    except ValueError:
        return None


def _loose(text: str, zone: tzinfo, order: DateOrder) -> datetime | None:
    if len(text) > 60 or not any(char.isdigit() for char in text):
        return None
    from dateutil import parser

    first, second = (
        parser.parse(text, default=fill, dayfirst=order == "dmy", yearfirst=order == "ymd") for fill in _FILL
    )
    return as_utc(first, zone) if first == second else None
