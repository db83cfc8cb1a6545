"""Times as a content server writes them: naive, in the form and zone that the reply itself states."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, tzinfo
from zoneinfo import ZoneInfo

from aps_rag_pipeline.content.dates import DateOrder, iso_utc, parse_time

_TIMESTAMP = re.compile(r"\{ts\s*'([^']+)'\}$")
_SHORT_YEAR = re.compile(r"^(\d{1,2})([/.-])(\d{1,2})\2(\d{2})(?!\d)")
#: `M/d{/yy}{ h:mm[:ss]{ aa}[zzz]}!mAM,PM!tAmerica/Chicago`: the zone stands behind `!t`.
_ZONE = re.compile(r"!t([\w/+-]+)")
_ORDERS: dict[str, DateOrder] = {"M": "mdy", "d": "dmy", "y": "ymd"}
#: Short years from here on are of the last century, as Java reads them.
_CENTURY_BORDER = 70


@dataclass(frozen=True)
class Times:
    """How times of one reply are to be read."""

    zone: tzinfo
    order: DateOrder

    @staticmethod
    def of(local: Mapping[str, str], zone: tzinfo, order: DateOrder) -> Times:
        """As `blDateFormat` of the reply says; `zone` and `order` stand in where it says nothing."""
        pattern = local.get("blDateFormat", "")
        stated = _ZONE.search(pattern)
        first = next((letter for letter in pattern.partition("!")[0] if letter in "Mdy"), "")
        if pattern.startswith("'{ts"):
            first = "y"
        return Times(_zone(stated[1], zone) if stated else zone, _ORDERS.get(first, order))

    def moment(self, text: str) -> datetime | None:
        """An aware UTC time, or None where the text is none."""
        stamp = _TIMESTAMP.match(text.strip())
        if stamp:
            return parse_time(stamp[1], self.zone, "ymd")
        return parse_time(_SHORT_YEAR.sub(_long_year, text.strip(), count=1), self.zone, self.order)

    def stated(self, text: str, shown_in: tzinfo) -> str:
        """The time for people: a day where it is that day's midnight in `shown_in`, else UTC; what is no time stays."""
        moment = self.moment(text)
        if moment is None:
            return text
        there = moment.astimezone(shown_in)
        return f"{there:%Y-%m-%d}" if (there.hour, there.minute, there.second) == (0, 0, 0) else iso_utc(moment)


def _long_year(match: re.Match[str]) -> str:
    first, mark, second, year = match.groups()
    century = 20 if int(year) < _CENTURY_BORDER else 19
    return f"{first}{mark}{second}{mark}{century}{year}"


def _zone(name: str, otherwise: tzinfo) -> tzinfo:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        return otherwise
