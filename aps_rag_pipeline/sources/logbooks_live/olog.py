"""Olog, the log book service of Phoebus and CS-Studio."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import Any
from urllib.parse import quote
from zoneinfo import ZoneInfo

from pydantic import Field, field_validator

from aps_rag_pipeline.settings import Feed
from aps_rag_pipeline.sources.base import Failure, FeedError, Ignored, SourceContext
from aps_rag_pipeline.sources.jsonfiles import JsonObject, Value, at, mapping, sequence, string
from aps_rag_pipeline.sources.live import LiveSource, Memory, digest
from aps_rag_pipeline.sources.logbooks.dialects import read_values
from aps_rag_pipeline.sources.logbooks.model import Entry
from aps_rag_pipeline.sources.logbooks_live.entries import EntriesScan, ThreadUnit
from aps_rag_pipeline.sources.net.errors import GoneError, OutageError
from aps_rag_pipeline.sources.net.http import Http
from aps_rag_pipeline.sources.net.signin import signed_in
from aps_rag_pipeline.sources.options import Options, http_url, read_options

#: The search engine counts no further, and gives nothing beyond.
_WINDOW = 10_000
#: Walks from the newest entry to the oldest before it is given up.
_WALKS = 3
#: What the service gives at most at a time.
_MOST = 1000


class OlogOptions(Options):
    """`options` of an Olog feed."""

    page_size: int = Field(500, ge=2, le=_MOST, description="entries a request; the service gives 1000 at most")
    logbooks: tuple[str, ...] = Field((), description="names of the log books to read; all when left out")
    server_time_zone: str = Field("", description="zone in which a service that ignores `tz` reads times")

    @field_validator("logbooks", mode="before")
    @classmethod
    def _one(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value

    @field_validator("server_time_zone")
    @classmethod
    def _zone(cls, name: str) -> str:
        if name:
            try:
                ZoneInfo(name)
            except (KeyError, ValueError, OSError):
                raise ValueError(f"unknown time zone {name!r}; use an IANA name such as America/Chicago") from None
        return name


@dataclass(frozen=True)
class Page:
    """Newest first. `total` is how many the search matches, None where the service does not say it, or cannot."""

    logs: list[JsonObject]
    total: int | None

    @property
    def oldest(self) -> int | None:
        """The second in which the oldest entry was made."""
        return min((second for log in self.logs if (second := _second(log)) is not None), default=None)

    def ends(self, skip: int, largest: int) -> bool:
        """Whether nothing older can follow. `largest` is the length of the longest page so far."""
        if not self.logs:
            return True
        if self.total is None:
            return len(self.logs) < largest
        return skip + len(self.logs) >= self.total and self.total < _WINDOW


class Olog(LiveSource[ThreadUnit]):
    """A whole Olog service, or some of its log books."""

    key = "bely"
    version = 1

    def scan(self, memory: Memory) -> OlogScan:
        options = read_options(self.feed, OlogOptions)
        http = signed_in(self.feed, self.context.network)
        return OlogScan(self.feed, self.context, memory, http, options)


class OlogScan(EntriesScan):
    """The service sorts by the time of making alone and has no search by the time of change, so the whole log is
    walked and compared.

    A walk goes from the newest entry back, each page ending where the last one began: at the second of the oldest entry
    seen, rounded up, so that pages overlap and what is written meanwhile, being newer, shifts nothing. Paging by `from`
    alone would shift, and ends at the 10,000th entry; it only gets past a second with more entries than a page. The
    zone in which the service reads times is found by the overlap: a page that does not hold what the last one ended
    with was asked for in another zone.
    """

    def __init__(self, feed: Feed, context: SourceContext, memory: Memory, http: Http, options: OlogOptions) -> None:
        super().__init__(feed, context, memory, http)
        self.options = options
        self.base = http_url(feed, "the log book")
        self._search = "/logs/search"
        self._size = options.page_size
        #: How times are told to the service, in the order of trying: in UTC and saying so, then as the facility does.
        self._zones: list[tuple[str, tzinfo]] = [("UTC", UTC), ("", context.zone)]
        if options.server_time_zone:
            self._zones = [("", ZoneInfo(options.server_time_zone))]

    def listing(self) -> Iterator[Entry | Failure | Ignored]:
        for log in self._logs():
            place = f"{self.base}/logs/{string(log.get('id')) or '(no id)'}"
            yield from read_values([Value(log, place)], place, "olog")

    def fetch(self, unit: ThreadUnit, address: str) -> bytes:
        """By the attachment's id; where the service does not know that way, by its entry and name."""
        owner = next((entry for entry in unit.entry.thread() if address in entry.files), unit.entry)
        name = owner.files.get(address, "") or address.rsplit("/", 1)[-1]
        by_name = f"{self.base}/logs/attachments/{owner.id}/{quote(name, safe='')}"
        if not address.startswith("attachment/"):
            return self.http.file(by_name, name)
        try:
            by_id = f"{self.base}/attachment/{quote(address.removeprefix('attachment/'), safe='')}"
            return self.http.file(by_id, name)
        except GoneError:
            return self.http.file(by_name, name)

    def absent(self, name: str) -> bool:
        try:
            log = mapping(self.http.json(f"{self.base}/logs/{quote(name, safe='')}"))
        except GoneError:
            return True
        if not string(log.get("id")):
            raise OutageError(f"{self.base}/logs/{name}: the reply is no log entry")
        return string(log.get("state")).lower() == "inactive" or not self._wanted(log)

    def _wanted(self, log: JsonObject) -> bool:
        names = {string(at(item, "name")).casefold() for item in sequence(log.get("logbooks"))}
        return not self.options.logbooks or any(name.casefold() in names for name in self.options.logbooks)

    # the walk

    def _logs(self) -> Iterator[JsonObject]:
        seen: set[str] = set()
        gap: _GapError | None = None
        for _ in range(_WALKS):
            try:
                yield from self._walk(seen)
                return
            except _GapError as error:
                gap = error  # an entry between two pages may have been deleted meanwhile: then once more is enough
        raise FeedError(
            f"{self.base}: the pages of the log do not meet ({gap}); the service may read times in a zone of its own: "
            "set options.server_time_zone"
        )

    def _walk(self, seen: set[str]) -> Iterator[JsonObject]:
        whole: int | None = None
        end: int | None = None
        skip = largest = 0
        while True:
            page = self._page(end, skip) if end is None or skip else self._next_page(end, seen)
            if end is None and not skip:
                whole = page.total
            fresh = _unseen(page, seen)
            yield from fresh
            largest = max(largest, len(page.logs))
            if page.ends(skip, largest):
                break
            if page.oldest is not None and (end is None or page.oldest + 1 < end):
                end, skip = page.oldest + 1, 0
            elif fresh or not skip:
                skip += len(page.logs)
            elif page.total is None and self._size < _MOST:  # `from` is not heeded; a longer page may get past
                self._size, skip = _MOST, 0
            elif page.total is None and not _unseen(self._page((page.oldest or 1) - 1, 0), set(seen)):
                break
            else:
                raise FeedError(f"{self.base}: after {skip} entries made in one second the service gives no others")
        if whole is not None and len(seen) < whole < _WINDOW:
            yield from self._undated(seen)

    def _undated(self, seen: set[str]) -> Iterator[JsonObject]:
        """What a search by time cannot find, by `from` alone."""
        skip, total = 0, 1
        while skip < total:
            page = self._page(None, skip)
            total = page.total or 0
            yield from _unseen(page, seen)
            skip += max(len(page.logs), 1)
        if len(seen) < total:
            raise OutageError(f"{self.base}{self._search}: gives {len(seen)} of the {total} entries that it counts")

    def _next_page(self, end: int, seen: set[str]) -> Page:
        """The entries up to the second `end`, the last of the page before among them."""
        newest: int | None = None
        for zone in tuple(self._zones):
            page = self._page(end, 0, zone)
            newest = max((second for log in page.logs if (second := _second(log)) is not None), default=None)
            in_time = newest is not None and newest <= _told(end, zone[1])
            if in_time and any(_identity(log) in seen for log in page.logs):
                self._zones.sort(key=lambda other: other is not zone)
                return page
        raise _GapError(f"asked for those up to {end}, the newest that came was made at {newest}")

    def _page(self, end: int | None, skip: int, zone: tuple[str, tzinfo] | None = None) -> Page:
        size = self._size
        if skip + size > _WINDOW:
            raise FeedError(f"{self.base}: {skip} entries made in one second; the service lists no more of them")
        asked: dict[str, str | int] = {"size": size, "limit": size, "sort": "down"}
        if skip:
            asked["from"] = skip
        if self.options.logbooks:
            asked["logbooks"] = ",".join(self.options.logbooks)
        if end is not None:
            name, clock = zone or self._zones[0]
            told = datetime.fromtimestamp(_told(end, clock), clock)
            asked["end"] = f"{told:%Y-%m-%d %H:%M:%S}.000"
            if name:
                asked["tz"] = name
        return self._ask(asked)

    def _ask(self, asked: dict[str, str | int]) -> Page:
        try:
            reply = self.http.json(self.base + self._search, params=asked)
        except GoneError:
            # Services before the search took `search` for the id of an entry.
            if self._search == "/logs" or "end" in asked:
                raise
            reply = self.http.json(self.base + "/logs", params=asked)
            self._search = "/logs"
        if isinstance(reply, list):
            return Page([mapping(log) for log in reply], None)
        found = mapping(reply)
        if not isinstance(found.get("logs"), list):
            told = string(found.get("message")) or string(found.get("error")) or "its keys: " + ", ".join(found)[:80]
            raise OutageError(f"{self.base}{self._search}: the reply holds no list of entries ({told})")
        total = found.get("hitCount")
        return Page(
            [mapping(log) for log in sequence(found["logs"])],
            total if isinstance(total, int) and not isinstance(total, bool) else None,
        )


class _GapError(Exception):
    """A page does not hold what the page before ended with."""


def _told(end: int, zone: tzinfo) -> int:
    """The second to ask for, so that none is passed over where a clock shows an hour twice: services read the first."""
    return end + 3600 * datetime.fromtimestamp(end, zone).fold


def _unseen(page: Page, seen: set[str]) -> list[JsonObject]:
    fresh = [log for log in page.logs if _identity(log) not in seen]
    seen.update(map(_identity, fresh))
    return fresh


def _identity(log: JsonObject) -> str:
    return string(log.get("id")) or digest(repr(sorted(log.items())))


def _second(log: JsonObject) -> int | None:
    """The second in which an entry was made; the present service tells milliseconds, the oldest seconds."""
    made = log.get("createdDate")
    if not isinstance(made, int | float) or isinstance(made, bool):
        return None
    return int(made // 1000 if abs(made) >= 1e11 else made)
