"""Finding what changed after a time through a search that hides what it cannot show.

The search gives the newest 1,000 entries and does not say that there are more. An end is moved by the server to the end
of a half day or of the next one, so a window can only be cut by days, and shows more than was asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo

from aps_rag_pipeline.content.dates import parse_time
from aps_rag_pipeline.sources.belylive.client import Bely
from aps_rag_pipeline.sources.jsonfiles import JsonObject, string
from aps_rag_pipeline.sources.live import digest

#: What the server shows at most of a kind.
CAP = 1000
_SECOND, _DAY = timedelta(seconds=1), timedelta(days=1)


@dataclass
class Finding:
    """Changes after a time: documents with their sightings, and logbook types of which a day showed too little."""

    seen: dict[str, dict[str, str]] = field(default_factory=dict)

    def add(self, name: str, entry: str, time: str) -> None:
        self.seen.setdefault(name, {})[entry] = time

    def times(self) -> list[str]:
        """Of the changes; the end of a day that showed too little is none."""
        return [time for name, seen in self.seen.items() if name.isdecimal() for time in seen.values()]


def flood(logbook: int) -> str:
    """The name under which a logbook type counts as changed as a whole."""
    return f"logbook {logbook}"


def find_changes(client: Bely, after: datetime, logbooks: list[int], sections: dict[str, str], zone: tzinfo) -> Finding:
    """All entries and sections that were changed after a time.

    Args:
        logbooks: types, by which a day is cut that overflows. Where that does not help either, what the search shows of
            the day stands for the whole type: a change moves an entry to the head of it, so nothing is missed, and all
            documents of the type are read.
        sections: id of a section → its document.
    """
    finding = Finding()
    since = iso(after)

    def take(rows: list[JsonObject]) -> str:
        """Note rows; the oldest time among them if there may be more."""
        times = []
        for row in rows:
            time = time_of(row.get("lastModifiedOn"), zone)
            times.append(time)
            document = string(row.get("logDocumentId"))
            entry = string(row.get("logEntryId")) or string(row.get("objectId"))
            if time > since and document:
                finding.add(sections.get(document, document), entry, time)
        return min(filter(None, times), default=since) if len(rows) >= CAP else ""

    documents, entries = client.search(after - _SECOND)
    for row in documents:
        item, time = string(row.get("objectId")), time_of(row.get("lastModifiedOn"), zone)
        if item in sections and time > since:
            finding.add(sections[item], f"section {item}", time)
    oldest = take(entries)
    for start, end in _days(after, oldest):
        if not take(client.search(start - _SECOND, end)[1]):
            continue
        for logbook in logbooks:
            rows = client.search(start - _SECOND, end, [logbook])[1]
            if take(rows):
                finding.add(flood(logbook), _digest_of(rows), iso(end))
    return finding


def _days(after: datetime, oldest: str) -> Iterator[tuple[datetime, datetime]]:
    """The days from `after` to the oldest time that was shown; none if everything was."""
    if not oldest:
        return
    start, last = after.astimezone(UTC), datetime.fromisoformat(oldest)
    while start <= last:
        midnight = start.replace(hour=0, minute=0, second=0, microsecond=0) + _DAY
        yield start, midnight
        start = midnight


def _digest_of(rows: Iterable[JsonObject]) -> str:
    return digest(*(f"{row.get('logEntryId')} {row.get('objectId')} {row.get('lastModifiedOn')}" for row in rows))


def time_of(value: object, zone: tzinfo) -> str:
    """A time as the server states it, at whole seconds: fractions are lost when it saves; empty where there is none."""
    moment = parse_time(value, zone)
    return iso(moment) if moment else ""


def iso(moment: datetime) -> str:
    return moment.astimezone(UTC).replace(microsecond=0).isoformat()
