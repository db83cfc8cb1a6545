"""Times and durations in the spellings that people and programs use.

Nothing is filled in: a text without year, month and day, or one that can be read in two ways, gives None, and the
caller keeps the text. (General date parsers take what is missing from today's date, which would invent times.)
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from typing import Literal
from zoneinfo import ZoneInfo

from aps_rag_pipeline.records import as_utc

DateOrder = Literal["mdy", "dmy", "ymd"]

_YEARS = range(1900, 2200)
#: Digits before the decimal point of an epoch number -> units in a second.
_EPOCH_UNITS = {9: 1, 10: 1, 13: 10**3, 16: 10**6, 19: 10**9}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_MONTHS = {
    name: number
    for number, names in enumerate(
        (
            "january jan",
            "february feb",
            "march mar",
            "april apr",
            "may",
            "june jun",
            "july jul",
            "august aug",
            "september sep sept",
            "october oct",
            "november nov",
            "december dec",
        ),
        1,
    )
    for name in names.split()
}
_MONTH = "|".join(sorted(_MONTHS, key=len, reverse=True))
#: Offsets in hours of abbreviations that mean one thing to those who write them; the feed's own zone is asked first.
_ZONE_HOURS = {
    **dict.fromkeys(("z", "utc", "gmt", "ut", "wet"), 0),
    **{"est": -5, "edt": -4, "cst": -6, "cdt": -5, "mst": -7, "mdt": -6, "pst": -8, "pdt": -7},
    **{"akst": -9, "akdt": -8, "hst": -10, "cet": 1, "cest": 2, "mez": 1, "mesz": 2, "west": 1, "eet": 2, "eest": 3},
    **{"msk": 3, "jst": 9, "kst": 9},
}
_ZONE_NAMES = {"et": "America/New_York", "ct": "America/Chicago", "mt": "America/Denver", "pt": "America/Los_Angeles"}
_ZONE_NAMES |= {"eastern": _ZONE_NAMES["et"], "central": _ZONE_NAMES["ct"]}
_ZONE_NAMES |= {"mountain": _ZONE_NAMES["mt"], "pacific": _ZONE_NAMES["pt"]}

_WEEKDAY = re.compile(r"^(?:mon|tues?|wed(?:nes)?|thu(?:rs?)?|fri|sat(?:ur)?|sun)(?:day)?\b\.?,?\s*", re.I)
_NUMERIC_DATE = re.compile(r"(\d{1,4})\s*([-/.])\s*(\d{1,2})\s*\2\s*(\d{1,4})(?!\d)")
_DAY_MONTH = re.compile(
    rf"(\d{{1,2}})(?:st|nd|rd|th|\.)?[\s/,-]*(?:of\s+)?({_MONTH})\b\.?[\s/,-]*'?(\d{{4}}|\d{{2}})\b", re.I
)
_MONTH_DAY = re.compile(rf"({_MONTH})\b\.?[\s/,-]*(\d{{1,2}})(?:st|nd|rd|th)?(?:\s*,\s*|[\s/-]+)'?(\d{{4}})\b", re.I)
_YEAR_MONTH = re.compile(rf"(\d{{4}})[\s/,-]*({_MONTH})\b\.?[\s/,-]*(\d{{1,2}})\b", re.I)
_COMPACT = re.compile(r"(\d{4})(\d{2})(\d{2})(?:[T ]?(\d{2})(\d{2})(\d{2})?)?$")
#: As the C library prints a time: the year stands behind the clock.
_CTIME = re.compile(
    rf"({_MONTH})\s+(\d{{1,2}})\s+(\d{{1,2}}:\d{{2}}(?::\d{{2}})?)\s+(?:([a-z]{{1,5}})\s+)?(\d{{4}})$", re.I
)
_CLOCK = re.compile(
    r"(\d{1,2})[:.h](\d{2})(?:[:.](\d{2})(?:[.,:](\d{1,9}))?)?(?!\d)\s*(?:([ap])\.?\s?m\b\.?)?\s*(?:h(?:rs?|ours)?\b)?",
    re.I,
)
_MILITARY = re.compile(r"(\d{2})(\d{2})(\d{2})?(?!\d)\s*(?:h(?:rs?|ours)?\b)?", re.I)
_HOUR = re.compile(r"(\d{1,2})\s*([ap])\.?\s?m\b\.?", re.I)
_JOINT = re.compile(r"^(?:[\s,;@T]|-\s|at\b|on\b)+", re.I)
_OFFSET = re.compile(r"(?:utc|gmt|z)?\s*([+-])(\d{1,2}):?(\d{2})?(?:\s*\(?[A-Za-z ]+\)?)?$", re.I)
_CLOCKED_ISO = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d|\d{8}T\d{4}")
_WORD_START = re.compile(r"(?<=[\s,])\S")


def parse_time(value: object, zone: tzinfo, order: DateOrder = "mdy") -> datetime | None:
    """An aware UTC time, or None where the value is none or can be read in two ways.

    Args:
        value: a text, a number of seconds, milli-, micro- or nanoseconds since 1970, or what a date cell holds. A small
            number is not taken for a spreadsheet's day count: only the cell's own format tells that.
        zone: of times that state none. A day without a time of day is its midnight there.
        order: how 03/04/2025 is meant. A date that only another order can read is read in that one.
    """
    moment = parse_moment(value, zone, order)
    if isinstance(moment, date) and not isinstance(moment, datetime):
        return as_utc(datetime.combine(moment, time()), zone)
    return moment


def parse_moment(value: object, zone: tzinfo, order: DateOrder = "mdy") -> datetime | date | None:
    """Like `parse_time`, but a day without a time of day stays a date."""
    try:
        moment = _moment(value, zone, order)
        if isinstance(moment, datetime):
            moment = as_utc(moment, zone)
    except (ValueError, OverflowError):
        return None
    return moment if moment is not None and moment.year in _YEARS else None


def iso_utc(moment: datetime) -> str:
    """The form in which times stand among a record's fields."""
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _moment(value: object, zone: tzinfo, order: DateOrder) -> datetime | date | None:
    if isinstance(value, datetime | date):
        return value
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return _from_digits(repr(value))
    return _from_text(" ".join(value.split()), zone, order) if isinstance(value, str) else None


def _from_digits(text: str) -> datetime | date | None:
    """Compact calendar dates and epoch numbers; the number of digits tells them apart."""
    if match := _COMPACT.match(text):
        year, month, day, hour, minute, second = (int(group or 0) for group in match.groups())
        if year in _YEARS:
            return datetime(year, month, day, hour, minute, second) if match[4] else date(year, month, day)
    whole, _, fraction = text.partition(".")
    if not whole.isdecimal() or (fraction and not fraction.isdecimal()) or len(whole) not in _EPOCH_UNITS:
        return None
    units = _EPOCH_UNITS[len(whole)]
    seconds, rest = divmod(int(whole), units)
    micros = rest * 10**6 // units if units > 1 else int(fraction[:6].ljust(6, "0"))
    return _EPOCH + timedelta(seconds=seconds, microseconds=micros)


def _from_text(text: str, zone: tzinfo, order: DateOrder) -> datetime | date | None:
    if not text or len(text) > 80:
        return None
    if _CLOCKED_ISO.match(text):
        try:
            return datetime.fromisoformat(text)
        except ValueError:
            pass  # a zone name, an hour 24: the general way reads those
    if text[:4].isdecimal() and (found := _from_digits(text)) is not None:
        return found
    text = _WEEKDAY.sub("", text)
    if match := _CTIME.match(text):
        text = f"{match[1]} {match[2]} {match[5]} {match[3]} {match[4] or ''}".rstrip()
    if dated := _leading_date(text, order):
        day, rest = dated
        return _with_clock(day, rest, zone)
    if clock := _CLOCK.match(text):
        return _clock_first(text, clock.end(), zone, order)
    return None


def _clock_first(text: str, end: int, zone: tzinfo, order: DateOrder) -> datetime | date | None:
    """`12:05 EST, 03/04/2020`: the date stands behind the clock."""
    for start in (match.start() for match in _WORD_START.finditer(text, end)):
        dated = _leading_date(_WEEKDAY.sub("", text[start:]), order)
        if dated and not dated[1]:
            clock = re.sub(r"[\s,]*(?:\bon)?[\s,]*$", "", text[:start])
            return _with_clock(dated[0], clock, zone)
    return None


def _leading_date(text: str, order: DateOrder) -> tuple[date, str] | None:
    """The date that the text begins with, and what follows it."""
    if match := _NUMERIC_DATE.match(text):
        day = _ordered(match[1], match[3], match[4], order)
        return None if day is None else (day, text[match.end() :])
    for pattern, (year, month, dom) in ((_DAY_MONTH, (3, 2, 1)), (_MONTH_DAY, (3, 1, 2)), (_YEAR_MONTH, (1, 2, 3))):
        if match := pattern.match(text):
            day = date(_full_year(match[year]), _MONTHS[match[month].lower()], int(match[dom]))
            return day, text[match.end() :]
    return None


def _ordered(first: str, second: str, third: str, order: DateOrder) -> date | None:
    """A date of three numbers. A four-digit year stands first or last and leaves month and day to `order`."""
    if len(first) == 3 or len(third) == 3 or (len(third) == 1 and len(first) != 4):
        return None
    if len(first) == 4:
        return date(int(first), int(second), int(third)) if len(third) <= 2 else None
    if len(third) == 4:
        if order == "ymd" and int(first) <= 12 and int(second) <= 12 and first != second:
            return None  # the stated order says nothing of the two that remain
        orders: tuple[DateOrder, ...] = ("dmy", "mdy") if order == "dmy" else ("mdy", "dmy")
    else:
        orders = (order,)  # with two digits everywhere any other order would be a guess
    for candidate in orders:
        year, month, day = {
            "mdy": (third, first, second),
            "dmy": (third, second, first),
            "ymd": (first, second, third),
        }[candidate]
        try:
            return date(_full_year(year), int(month), int(day))
        except ValueError:
            continue
    return None


def _full_year(digits: str) -> int:
    if len(digits) == 4:
        return int(digits)
    return int(digits) + (2000 if int(digits) < 69 else 1900)  # as POSIX reads two digits


def _with_clock(day: date, rest: str, zone: tzinfo) -> datetime | date | None:
    rest = _JOINT.sub("", rest)
    if not rest:
        return day
    hour = minute = second = micro = 0
    if match := _CLOCK.match(rest):
        hour, minute, second = int(match[1]), int(match[2]), int(match[3] or 0)
        micro = int((match[4] or "")[:6].ljust(6, "0"))
        half = match[5]
    elif match := _HOUR.match(rest):
        hour, half = int(match[1]), match[2]
    elif match := _MILITARY.match(rest):
        hour, minute, second, half = int(match[1]), int(match[2]), int(match[3] or 0), None
    else:
        return None
    if half and hour <= 12:  # 13:30 PM is written too, and clear
        hour = hour % 12 + (12 if half.lower() == "p" else 0)
    if hour > 24 or minute > 59 or second > 60 or (hour == 24 and (minute or second)):
        return None
    local = datetime.combine(day, time()) + timedelta(hours=hour, minutes=minute, seconds=second, microseconds=micro)
    return _in_zone(local, rest[match.end() :].strip(" ,;"), zone)


def _in_zone(local: datetime, name: str, zone: tzinfo) -> datetime | None:
    """The local time in the zone that is named behind it; an unknown name makes the whole unreadable."""
    if not name:
        return local
    if match := _OFFSET.match(name):
        offset = timedelta(hours=int(match[2]), minutes=int(match[3] or 0))
        return local.replace(tzinfo=timezone(-offset if match[1] == "-" else offset))
    key = name.strip("()[]").casefold().removesuffix(" time")
    for fold in (0, 1):
        here = local.replace(tzinfo=zone, fold=fold)
        if (here.tzname() or "").casefold() == key:
            return here
    if key in _ZONE_HOURS:
        return local.replace(tzinfo=timezone(timedelta(hours=_ZONE_HOURS[key])))
    known = _ZONE_NAMES.get(key, name.strip("()[]") if "/" in name else "")
    try:
        return local.replace(tzinfo=ZoneInfo(known)) if known else None
    except (ValueError, KeyError, OSError):
        return None


# durations

_SECONDS = {
    **dict.fromkeys(("ms", "msec", "millisecond", "milliseconds"), 0.001),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), 3600.0),
    **dict.fromkeys(("d", "day", "days"), 86400.0),
    **dict.fromkeys(("w", "wk", "wks", "week", "weeks"), 604800.0),
}
_NUMBER = r"\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:[.,]\d+)?|\.\d+"
_AMOUNT = re.compile(rf"({_NUMBER})\s*([a-z]+)\b\.?|(\d+):(\d\d)(?::(\d\d(?:[.,]\d+)?))?", re.I)
_BARE = re.compile(rf"(?:{_NUMBER})$")
_ISO_DURATION = re.compile(r"P(?:([\d.,]+)W)?(?:([\d.,]+)D)?(?:T(?:([\d.,]+)H)?(?:([\d.,]+)M)?(?:([\d.,]+)S)?)?$", re.I)
_HOUR_MINUTE = re.compile(r"^(\d+)\s*h\s*(\d{1,2})$", re.I)


def parse_duration(value: object, bare_unit: float | None = None) -> float | None:
    """Seconds, or None where the value states no duration. `1:30` is an hour and a half, `0:01:30` ninety seconds.

    Args:
        bare_unit: seconds that a number without a unit counts (see `unit_seconds`); None: such a number says nothing.
    """
    if isinstance(value, timedelta):
        return value.total_seconds() if value >= timedelta() else None
    if isinstance(value, time):
        return value.hour * 3600.0 + value.minute * 60 + value.second + value.microsecond / 1e6
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value) * bare_unit if bare_unit and value >= 0 else None
    if not isinstance(value, str) or len(value) > 80:
        return None
    text = " ".join(value.split())
    if _BARE.match(text):
        return _number(text) * bare_unit if bare_unit else None
    if (match := _ISO_DURATION.match(text)) and any(match.groups()):
        return sum(_number(g) * s for g, s in zip(match.groups(), (604800, 86400, 3600, 60, 1), strict=True) if g)
    if match := _HOUR_MINUTE.match(text):
        return int(match[1]) * 3600.0 + int(match[2]) * 60
    return _sum_of_amounts(text)


def unit_seconds(heading: str) -> float | None:
    """The seconds of the unit that a heading states (`Downtime (min)`, `duration_h`), if it states exactly one."""
    if ":" in heading:
        return None  # h:mm is a format, not the unit of a bare number
    units = {_SECONDS[word] for word in re.findall(r"[a-z]+", heading.casefold()) if word in _SECONDS}
    return units.pop() if len(units) == 1 else None


def _sum_of_amounts(text: str) -> float | None:
    seconds = 0.0
    position = 0
    for match in _AMOUNT.finditer(text):
        if text[position : match.start()].strip(" ,").casefold() not in ("", "and"):
            return None
        position = match.end()
        if match[3]:
            seconds += int(match[3]) * 3600 + int(match[4]) * 60 + _number(match[5] or "0")
        elif (unit := match[2].casefold()) in _SECONDS:
            seconds += _number(match[1]) * _SECONDS[unit]
        else:
            return None
    return seconds if position and not text[position:].strip(" ,") else None


def _number(text: str) -> float:
    """A decimal number: commas between groups of three are separators, a single other one is the decimal sign."""
    if re.fullmatch(r"\d{1,3}(,\d{3})+(\.\d+)?", text):
        return float(text.replace(",", ""))
    return float(text.replace(",", "."))
