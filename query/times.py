"""Stretches of time that a question names: dates, months, quarters, years, relative phrases and shifts.

Everything is read on the facility's wall clock and given as aware UTC. Of an ambiguous phrase ("March", "Monday") the
latest one that has begun is meant, because questions are asked about what has happened.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Protocol
from zoneinfo import ZoneInfo

from query.results import Window

#: An explicit bound of time: an aware time, a naive one of the facility's zone, a date, or ISO 8601 text of these.
Bound = datetime | date | str | None


class ShiftLike(Protocol):
    """A shift of the facility's settings: its name and when it starts on the wall clock, `HH:MM`."""

    @property
    def name(self) -> str: ...
    @property
    def start(self) -> str: ...


@dataclass(frozen=True)
class Span:
    """Local wall-clock time from `start` up to `end`, stated by the characters `at` to `to` of the text."""

    start: datetime
    end: datetime
    at: int
    to: int


@dataclass(frozen=True)
class Found:
    window: Window
    spans: tuple[tuple[int, int], ...]  # characters of the text that state it


_MONTHS = {name.lower(): number for number, name in enumerate(calendar.month_name) if name}
_MONTHS |= {name.lower(): number for number, name in enumerate(calendar.month_abbr) if name} | {"sept": 9}
_DAYS = {name.lower(): number for number, name in enumerate(calendar.day_name)}
_NUMBERS = {"a": 1, "an": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8}
_NUMBERS |= {"nine": 9, "ten": 10, "twelve": 12, "couple of": 2, "few": 3}
_ORDINALS = {"first": 1, "1st": 1, "second": 2, "2nd": 2, "third": 3, "3rd": 3, "fourth": 4, "4th": 4}

_MONTH = r"(?P<month>" + "|".join(sorted(_MONTHS, key=len, reverse=True)) + r")\.?"
_YEAR = r"(?P<year>(?:19|20)\d\d)"
_NOT_IN_NAME = r"(?<![\w:/.#-])"
_ENDS = r"(?![\w:/#-]|\.\d)"
_COUNT = r"(?P<count>\d{1,3}|" + "|".join(sorted(_NUMBERS, key=len, reverse=True)) + r")"
_UNIT = r"(?P<unit>hour|day|week|month|quarter|year)s?"
_PATTERNS: dict[str, re.Pattern[str]] = {
    name: re.compile(_NOT_IN_NAME + pattern + _ENDS, re.IGNORECASE)
    for name, pattern in {
        "iso": _YEAR + r"(?P<sign>[-/])(?P<month>\d{1,2})(?P=sign)(?P<day>\d{1,2})(?:[T ]\d\d:\d\d(?::\d\d)?Z?)?",
        "slashed": r"(?P<one>\d{1,2})/(?P<two>\d{1,2})/" + _YEAR,
        "month_day": _MONTH + r"\s+(?P<day>\d{1,2})(?:st|nd|rd|th)?(?:\s*,?\s*" + _YEAR + r")?",
        "day_month": r"(?P<day>\d{1,2})(?:st|nd|rd|th)?\s+(?:of\s+)?" + _MONTH + r"(?:\s*,?\s*" + _YEAR + r")?",
        "month_year": r"(?:(?P<part>early|mid|late)[\s-]+)?" + _MONTH + r"\s*(?:,|of)?\s*" + _YEAR,
        "iso_month": _YEAR + r"-(?P<month>0[1-9]|1[0-2])",
        "quarter": r"(?:q(?:uarter\s+)?(?P<q>[1-4])|(?P<ordinal>first|second|third|fourth|1st|2nd|3rd|4th)\s+quarter)"
        r"\s*(?:,|of)?\s*" + _YEAR,
        "year_quarter": _YEAR + r"[\s-]*q(?P<q>[1-4])",
        "bare_month": r"(?P<lead>in|during|since|of|last|this|early|mid|late|by|until|from)\s+"
        + _MONTH
        + r"(?!\s*,?\s*\d)",
        "bare_year": r"(?P<lead>in|during|since|of|before|after|until|from|year|all)\s+" + _YEAR,
        "year_noun": _YEAR + r"(?=\s+(?:downtime|faults|trips|events|records|shutdown|statistics))",
        "ago": _COUNT + r"\s+" + _UNIT + r"\s+ago",
        "past": r"(?:last|past|previous)\s+" + _COUNT + r"\s+" + _UNIT,
        "unit": r"(?P<which>last|past|previous|this)\s+(?P<unit>week|month|quarter|year)",
        "weekday": r"(?:(?P<which>last|this|on)\s+)(?P<weekday>" + "|".join(_DAYS) + r")",
        "day_word": r"(?P<word>day\s+before\s+yesterday|yesterday|today|tonight|last\s+night|this\s+morning)",
    }.items()
}
_SINCE = re.compile(r"\b(?:since|after|from|starting)\s+(?:the\s+)?$", re.IGNORECASE)
_UNTIL = re.compile(r"\b(?:until|till|up\s+to|through|by)\s+(?:the\s+)?$", re.IGNORECASE)
_BEFORE = re.compile(r"\bbefore\s+(?:the\s+)?$", re.IGNORECASE)
_LEAD = re.compile(r"(?:since|after|from|until|before|by)\s+", re.IGNORECASE)
_BETWEEN = re.compile(r"^\s*(?:and|to|until|till|through|-|–)\s*(?:the\s+)?$", re.IGNORECASE)
_NIGHT = (time(16), time(8))


def find_window(
    text: str,
    now: datetime,
    zone: ZoneInfo,
    shifts: Sequence[ShiftLike] = (),
    day_first: bool = False,
) -> Found | None:
    """The stretch of time that a question is about; None where it names none. `now` is an aware time."""
    local = now.astimezone(zone).replace(tzinfo=None)
    spans = _spans(text, local, day_first)
    shift = _shift(text, shifts, dated=bool(spans))
    if shift is not None:
        span = _of_shift(shift, spans[0] if spans else None, local)
        places = ((span.at, span.to), *((s.at, s.to) for s in spans[:1]))
        return Found(_window(span.start, span.end, zone, text, places), places)
    if not spans:
        return None
    first = spans[0]
    if len(spans) > 1 and _BETWEEN.match(text[first.to : spans[1].at]):
        places = ((first.at, first.to), (spans[1].at, spans[1].to))
        return Found(_window(first.start, max(first.end, spans[1].end), zone, text, places), places)
    places = ((first.at, first.to),)
    own = _LEAD.match(text[first.at : first.to])  # "since March" is one phrase, "since 2025-03-14" is two
    lead = text[: first.at] + (own.group() if own else "")
    if _SINCE.search(lead):
        return Found(_window(first.start, None, zone, text, places), places)
    if _UNTIL.search(lead):
        return Found(_window(None, first.end, zone, text, places), places)
    if _BEFORE.search(lead):
        return Found(_window(None, first.start, zone, text, places), places)
    return Found(_window(first.start, first.end, zone, text, places), places)


def parse_bound(value: Bound, zone: ZoneInfo, end: bool = False) -> datetime | None:
    """An explicit bound as aware UTC. A date, or a text that is one, means its first moment, or as an end its last.

    Raises:
        ValueError: the text is no ISO 8601 date or time.
    """
    if value is None or value == "":
        return None
    if isinstance(value, str):
        try:
            value = date.fromisoformat(value) if len(value) <= 10 else datetime.fromisoformat(value)
        except ValueError:
            raise ValueError(f"{value!r} is no date or time; write it as 2025-03-14 or 2025-03-14T08:00") from None
    if not isinstance(value, datetime):
        value = datetime.combine(value + timedelta(days=1) if end else value, time())
    return (value if value.tzinfo else value.replace(tzinfo=zone)).astimezone(UTC)


def _window(
    start: datetime | None, end: datetime | None, zone: ZoneInfo, text: str, places: Sequence[tuple[int, int]]
) -> Window:
    low, high = min(at for at, _ in places), max(to for _, to in places)
    return Window(
        start=None if start is None else start.replace(tzinfo=zone).astimezone(UTC),
        end=None if end is None else end.replace(tzinfo=zone).astimezone(UTC),
        phrase=text[low:high].strip(),
    )


def _spans(text: str, now: datetime, day_first: bool) -> list[Span]:
    """Every date phrase, in order of appearance; where two overlap, the longer one."""
    found = [span for name, pattern in _PATTERNS.items() for span in _matches(name, pattern, text, now, day_first)]
    kept: list[Span] = []
    for span in sorted(found, key=lambda s: (s.at - s.to, s.at)):
        if all(span.to <= other.at or other.to <= span.at for other in kept):
            kept.append(span)
    return sorted(kept, key=lambda s: s.at)


def _matches(name: str, pattern: re.Pattern[str], text: str, now: datetime, day_first: bool) -> Iterator[Span]:
    for match in pattern.finditer(text):
        try:
            ends = _READERS[name](match.groupdict(), now, day_first)
        except (ValueError, OverflowError):  # the 31st of a short month and the like: no date, so no window
            continue
        yield Span(*ends, match.start(), match.end())


Ends = tuple[datetime, datetime]
Groups = dict[str, str | None]


def _day(day: date) -> Ends:
    start = datetime.combine(day, time())
    return start, start + timedelta(days=1)


def _months(year: int, month: int, count: int = 1) -> Ends:
    last = month - 1 + count
    return datetime(year, month, 1), datetime(year + last // 12, last % 12 + 1, 1)


def _iso(g: Groups, now: datetime, day_first: bool) -> Ends:
    return _day(date(int(g["year"] or 0), int(g["month"] or 0), int(g["day"] or 0)))


def _slashed(g: Groups, now: datetime, day_first: bool) -> Ends:
    one, two, year = int(g["one"] or 0), int(g["two"] or 0), int(g["year"] or 0)
    month, day = (two, one) if (day_first and two <= 12) or one > 12 else (one, two)
    return _day(date(year, month, day))


def _named_day(g: Groups, now: datetime, day_first: bool) -> Ends:
    month, day = _MONTHS[(g["month"] or "").lower()], int(g["day"] or 0)
    if g["year"]:
        return _day(date(int(g["year"]), month, day))
    this = date(now.year, month, day)
    return _day(this if this <= now.date() else date(now.year - 1, month, day))


def _month(g: Groups, now: datetime, day_first: bool) -> Ends:
    name = (g["month"] or "").lower()
    month = int(name) if name.isdigit() else _MONTHS[name]
    start, end = _months(int(g["year"] or 0), month)
    cut = {"early": (0, 10), "mid": (10, 20), "late": (20, 31)}.get((g.get("part") or "").lower())
    return (start + timedelta(days=cut[0]), min(end, start + timedelta(days=cut[1]))) if cut else (start, end)


def _quarter(g: Groups, now: datetime, day_first: bool) -> Ends:
    number = int(g["q"] or 0) or _ORDINALS[(g.get("ordinal") or "").lower()]
    return _months(int(g["year"] or 0), 3 * number - 2, 3)


def _bare_month(g: Groups, now: datetime, day_first: bool) -> Ends:
    month = _MONTHS[(g["month"] or "").lower()]
    return _months(now.year if month <= now.month else now.year - 1, month)


def _bare_year(g: Groups, now: datetime, day_first: bool) -> Ends:
    return _months(int(g["year"] or 0), 1, 12)


def _count(g: Groups) -> int:
    text = (g["count"] or "").lower()
    return int(text) if text.isdigit() else _NUMBERS[text]


def _back(now: datetime, count: int, unit: str) -> datetime:
    if unit in ("month", "quarter", "year"):
        months = count * {"month": 1, "quarter": 3, "year": 12}[unit]
        total = now.year * 12 + now.month - 1 - months
        year, month = divmod(total, 12)
        return now.replace(year=year, month=month + 1, day=min(now.day, calendar.monthrange(year, month + 1)[1]))
    return now - timedelta(hours=count * {"hour": 1, "day": 24, "week": 168}[unit])


def _ago(g: Groups, now: datetime, day_first: bool) -> Ends:
    unit = (g["unit"] or "").lower()
    then = _back(now, _count(g), unit)
    if unit == "hour":
        return then - timedelta(hours=1), then + timedelta(hours=1)
    if unit == "day":
        return _day(then.date())
    return _calendar(then, unit)


def _past(g: Groups, now: datetime, day_first: bool) -> Ends:
    unit = (g["unit"] or "").lower()
    start = _back(now, _count(g), unit)
    whole = start if unit == "hour" else datetime.combine(start.date(), time())
    return whole, now + timedelta(minutes=1)


def _calendar(moment: datetime, unit: str) -> Ends:
    """The calendar week (from Monday), month, quarter or year that a moment lies in."""
    if unit == "week":
        start = datetime.combine(moment.date() - timedelta(days=moment.weekday()), time())
        return start, start + timedelta(days=7)
    if unit == "quarter":
        return _months(moment.year, (moment.month - 1) // 3 * 3 + 1, 3)
    return _months(moment.year, moment.month) if unit == "month" else _months(moment.year, 1, 12)


def _unit(g: Groups, now: datetime, day_first: bool) -> Ends:
    unit = (g["unit"] or "").lower()
    if (g["which"] or "").lower() == "this":
        return _calendar(now, unit)
    return _calendar(_back(_calendar(now, unit)[0], 1, unit), unit)


def _weekday(g: Groups, now: datetime, day_first: bool) -> Ends:
    back = (now.weekday() - _DAYS[(g["weekday"] or "").lower()]) % 7
    if back == 0 and (g["which"] or "").lower() == "last":
        back = 7
    return _day(now.date() - timedelta(days=back))


def _day_word(g: Groups, now: datetime, day_first: bool) -> Ends:
    word = re.sub(r"\s+", " ", (g["word"] or "").lower())
    today = now.date()
    if word == "last night":
        yesterday = today - timedelta(days=1)
        return datetime.combine(yesterday, _NIGHT[0]), datetime.combine(today, _NIGHT[1])
    back = {"yesterday": 1, "day before yesterday": 2}.get(word, 0)
    return _day(today - timedelta(days=back))


_READERS = {
    "iso": _iso,
    "slashed": _slashed,
    "month_day": _named_day,
    "day_month": _named_day,
    "month_year": _month,
    "iso_month": _month,
    "quarter": _quarter,
    "year_quarter": _quarter,
    "bare_month": _bare_month,
    "bare_year": _bare_year,
    "year_noun": _bare_year,
    "ago": _ago,
    "past": _past,
    "unit": _unit,
    "weekday": _weekday,
    "day_word": _day_word,
}


@dataclass(frozen=True)
class _Shift:
    starts: time
    ends: time
    at: int
    to: int


def _shift(text: str, shifts: Sequence[ShiftLike], dated: bool) -> _Shift | None:
    """The shift that a text names ("owl shift"), with its hours. Beside a date its name alone may do ("during owl")."""
    starts = sorted((time.fromisoformat(shift.start), shift.name) for shift in shifts)
    for place, (start, name) in enumerate(starts):
        own = re.escape(name)
        pattern = rf"\b{own}(?:[\s-]+(?:shift|crew|watch)|s)\b"
        if dated:
            pattern += rf"|\bduring\s+(?:the\s+)?{own}\b" + ("" if name.lower() == "day" else rf"|\b{own}\b")
        match = re.search(pattern, text, re.IGNORECASE)
        if match:
            return _Shift(start, starts[(place + 1) % len(starts)][0], match.start(), match.end())
    return None


def _of_shift(shift: _Shift, span: Span | None, now: datetime) -> Span:
    """The hours of a shift on the day named beside it; without one, the latest that has begun.

    A longer stretch beside it stays whole: "owl shifts last month" is about the month.
    """
    if span is not None and span.end - span.start > timedelta(days=2):
        return Span(span.start, span.end, shift.at, shift.to)
    start = datetime.combine(span.start.date() if span else now.date(), shift.starts)
    if span is None and start > now:
        start -= timedelta(days=1)
    end = datetime.combine(start.date(), shift.ends)
    return Span(start, end if end > start else end + timedelta(days=1), shift.at, shift.to)
