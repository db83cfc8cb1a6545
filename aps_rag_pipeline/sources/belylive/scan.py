"""Log documents of a BELY server, one unit each.

What decides is the listing of all documents with the time of their last change, which every save of an entry, a reply
or a section moves. Three things it may not show, and how they are seen all the same:

- An entry that changed while its document stayed: searches show entries by the time of their own last change. They go
  back three days behind the newest change that the last sync knew, in the server's own times, and what they showed is
  remembered (`Sightings`), so that the overlap reads nothing twice.
- A change in the very second in which the document was read, times being whole seconds: a document that changed within
  two seconds of the server's clock has no token and is read again with the next sync.
- A deleted document, of which nothing remains: it is missing in the listing, and the server says that it is not there.

Reactions move no time and are no content. What moves no time at all, a row changed in the database by hand, is found
by the weekly reconciliation.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from aps_rag_pipeline.settings import Feed
from aps_rag_pipeline.sources.base import Failure, FeedError, Ignored, SourceContext, UnreadableError, Upsert
from aps_rag_pipeline.sources.belylive.attachments import FilesOnServer, NoFiles
from aps_rag_pipeline.sources.belylive.client import Bely, MissingError, ServerError
from aps_rag_pipeline.sources.belylive.options import BelyOptions
from aps_rag_pipeline.sources.belylive.searching import Finding, find_changes, flood, iso, time_of
from aps_rag_pipeline.sources.belylive.sightings import Sightings
from aps_rag_pipeline.sources.jsonfiles import JsonObject, Value, at, sequence, string
from aps_rag_pipeline.sources.live import Listed, LiveSource, Memory, Scan, digest
from aps_rag_pipeline.sources.logbooks.dialects import read_values
from aps_rag_pipeline.sources.logbooks.threads import ThreadWriter
from aps_rag_pipeline.sources.logbooks.units import as_far_as_given, unit_records
from aps_rag_pipeline.sources.net.errors import GoneError, OutageError
from aps_rag_pipeline.sources.options import demand_user_and_password, http_url, read_options

#: How far searches go back behind the newest known change: clocks that were set, saves that took long.
OVERLAP = timedelta(days=3)
#: Documents that are asked for at first; twice as many until the server has no more.
FIRST_LIMIT = 1000
_SAME_SECOND = timedelta(seconds=2)


@dataclass(frozen=True)
class LogDocument(Listed):
    """A log document as the listing gives it."""

    document: JsonObject = field(default_factory=dict)


@dataclass
class _Listing:
    """The documents of some logbook types by id, the types that each stands in, and the server's clock."""

    documents: dict[str, JsonObject] = field(default_factory=dict)
    logbooks: dict[str, set[int]] = field(default_factory=dict)
    nameless: list[str] = field(default_factory=list)
    ungiven: list[str] = field(default_factory=list)
    now: datetime | None = None


class BelyScan(Scan[LogDocument]):
    """One look at a server."""

    def __init__(self, feed: Feed, context: SourceContext, memory: Memory, options: BelyOptions) -> None:
        super().__init__(feed, context, memory)
        self.options = options
        address = http_url(feed, "the portal of BELY")
        demand_user_and_password(feed, "BELY")
        self.client = Bely(address, context.network, feed.credentials)
        self._elsewhere: set[str] | None = None

    def close(self) -> None:
        self.client.close()

    def units(self) -> Iterator[LogDocument | Failure | Ignored]:
        chosen, _ = self._logbook_types()
        listing = self._list(chosen)
        notes = self.memory.notes
        notes["sections"] = {name: ids for name, ids in notes.get("sections", {}).items() if name in listing.documents}
        sightings, reason = self._search(chosen, listing)
        if reason:
            yield Ignored(self.client.place, reason)
        for name in listing.ungiven:
            yield Ignored(f"{self.client.place} logbook {name}", "a logbook that only groups others")
        for place in listing.nameless:
            yield Failure(place, place, place, "a log document without an id", "mend it in the log book", True)
        for name, document in listing.documents.items():
            yield LogDocument(name, self._state(name, document, listing, sightings), document)

    def read(self, unit: LogDocument) -> Iterator[Upsert | Failure | Ignored]:
        place = f"{self.client.place} document {unit.name}"
        try:
            entries = self.client.entries(int(unit.name))
            sections = self.client.sections(int(unit.name))
        except GoneError as error:
            if isinstance(error, MissingError):
                raise
            raise OutageError(str(error)) from error  # a proxy's, or a wrong address: no proof that it is gone
        parts: list[dict[str, object]] = []
        ids: list[str] = []
        for section in sections:
            section_id = string(section.get("id"))
            if not section_id.isdecimal():
                raise UnreadableError(f"{place}: a section without an id", remedy="mend it in the log book")
            try:
                parts.append({**section, "entries": self.client.entries(int(section_id))})
            except GoneError as error:
                raise OutageError(f"{error}; its section was listed a moment ago") from error
            ids.append(section_id)
        self.memory.notes["sections"].pop(unit.name, None)
        if ids:
            self.memory.notes["sections"][unit.name] = ids
        bundle = {"document": unit.document, "entries": entries, "sections": parts}
        files = FilesOnServer(self.client, self.context, self.memory, unit.name)
        writer = ThreadWriter(self.feed, self.context, unit.name, files if self.options.attachments else NoFiles())
        reading = read_values([Value(bundle, place)], unit.name, "bely")
        yield from unit_records(as_far_as_given(reading, unit.name), writer)

    def gone(self, name: str) -> bool:
        if self._elsewhere is None:
            _, others = self._logbook_types()
            self._elsewhere = set(self._list(others).documents)
        if name in self._elsewhere or not name.isdecimal():
            return True  # it was moved to a logbook that is not read, or is no document of a server at all
        try:
            self.client.entries(int(name))
        except MissingError:
            return True
        except ServerError as error:
            if error.name == "InvalidArgument":
                return True  # the id belongs to something else now
            raise
        except GoneError as error:
            raise OutageError(str(error)) from error
        return False

    def alive(self) -> bool:
        try:
            return bool(self.client.logbook_types())
        except FeedError:
            return False

    def _logbook_types(self) -> tuple[dict[int, str], dict[int, str]]:
        """Id → name of the logbook types that are read, and of the others."""
        found: dict[int, tuple[str, set[str]]] = {}
        for kind in self.client.logbook_types():
            number = string(kind.get("id"))
            if number.isdecimal():
                names = [string(kind.get(key)) for key in ("name", "displayName", "longDisplayName")]
                found[int(number)] = (names[1] or names[0], {number, *(name.casefold() for name in names if name)})
        if not found:
            raise FeedError(f"{self.client.place}: has no logbook types; check that `url` is the portal's own address")
        wanted = [name.strip().casefold() for name in self.options.logbooks]
        unknown = [name for name in wanted if not any(name in names for _, names in found.values())]
        if unknown:
            known = ", ".join(name for name, _ in found.values())
            raise FeedError(f"{self.client.place}: options.logbooks: no {', '.join(unknown)}; there are: {known}")
        chosen = {n: shown for n, (shown, names) in found.items() if not wanted or names.intersection(wanted)}
        return chosen, {n: shown for n, (shown, _) in found.items() if n not in chosen}

    def _list(self, logbooks: dict[int, str]) -> _Listing:
        listing = _Listing()
        sizes: dict[str, int] = self.memory.notes.setdefault("sizes", {})
        for logbook, shown in logbooks.items():
            limit = FIRST_LIMIT
            while limit <= sizes.get(str(logbook), 0):
                limit *= 2
            try:
                documents, now = self.client.documents(logbook, limit)
                while len(documents) == limit:
                    limit *= 2
                    documents, now = self.client.documents(logbook, limit)
            except ServerError as error:
                if error.name != "InvalidArgument":
                    raise
                listing.ungiven.append(shown)
                continue
            listing.now = now or listing.now
            sizes[str(logbook)] = len(documents)
            for number, document in enumerate(documents, 1):
                name = string(document.get("id"))
                if not name.isdecimal():
                    listing.nameless.append(f"{self.client.place} logbook {shown}: document {number}")
                    continue
                listing.documents.setdefault(name, document)
                listing.logbooks.setdefault(name, set()).add(logbook)
        return listing

    def _search(self, chosen: dict[int, str], listing: _Listing) -> tuple[Sightings, str]:
        """The sightings up to now, and why a search could not help."""
        notes = self.memory.notes
        moved = [time for document in listing.documents.values() if (time := self._moved(document))]
        sightings = Sightings(notes)
        newest = _newest(moved, listing.now)
        if not newest:
            return sightings, ""
        start = notes.get("since", "")
        if not start or start > newest:  # noted while the clock was ahead
            start = _earlier(newest)
        sections = {section: name for name, ids in notes["sections"].items() for section in ids}
        try:
            finding = find_changes(
                self.client, datetime.fromisoformat(start), list(chosen), sections, self.context.zone
            )
        except GoneError:
            return sightings, "this server cannot search; changes that move no document's time are found weekly"
        self._remember(sightings, finding, start, moved, listing)
        return sightings, ""

    def _remember(
        self, sightings: Sightings, finding: Finding, start: str, moved: list[str], listing: _Listing
    ) -> None:
        sightings.look(finding.seen, start)
        since = max(start, _earlier(_newest([*moved, *finding.times()], listing.now)))
        sightings.fold(since)
        floods = {flood(logbook) for logbooks in listing.logbooks.values() for logbook in logbooks}
        sightings.keep({*listing.documents, *floods})
        self.memory.notes.update(sightings.notes(), since=since)

    def _state(self, name: str, document: JsonObject, listing: _Listing, sightings: Sightings) -> str:
        moved = self._moved(document)
        if not moved:
            return ""
        times = [datetime.fromisoformat(time) for time in (moved, sightings.newest(name)) if time]
        if listing.now is not None and any(abs(listing.now - time) <= _SAME_SECOND for time in times):
            return ""
        named = [
            [string(at(item, "displayName")) or string(at(item, "name")) for item in sequence(document.get(key))]
            for key in ("entityTypeList", "itemTypeList")
        ]
        seen = [sightings.token(flood(logbook)) for logbook in sorted(listing.logbooks[name])]
        made = time_of(at(document, "moreInfo.createdOnDateTime"), self.context.zone)
        words = (string(document.get(key)) for key in ("name", "description"))
        return digest(moved, made, *words, *named, document.get("access"), sightings.token(name), *seen)

    def _moved(self, document: JsonObject) -> str:
        return time_of(at(document, "moreInfo.lastModifiedOnDateTime"), self.context.zone)


def _newest(times: list[str], now: datetime | None) -> str:
    """The latest time that can be right by the server's clock: one far ahead must not hide what comes before it. Where
    none can, it is that clock that is wrong."""
    tomorrow = iso(now + timedelta(days=1)) if now else ""
    return max([time for time in times if time <= tomorrow] or times, default="")


def _earlier(newest: str) -> str:
    return iso(datetime.fromisoformat(newest) - OVERLAP)


class BelyRest(LiveSource[LogDocument]):
    """A BELY server by its REST interface."""

    key = "bely"
    version = 1
    unit_is_record = False  # a document holds many entries

    def scan(self, memory: Memory) -> Scan[LogDocument]:
        return BelyScan(self.feed, self.context, memory, read_options(self.feed, BelyOptions))
