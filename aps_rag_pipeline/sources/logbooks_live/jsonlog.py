"""Log books that a service gives as JSON, in one reply or in one for each stretch of time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import Field, field_validator

from aps_rag_pipeline import clock
from aps_rag_pipeline.settings import Feed
from aps_rag_pipeline.sources.base import Failure, FeedError, Ignored, SourceContext, UnreadableError
from aps_rag_pipeline.sources.companions import file_name
from aps_rag_pipeline.sources.jsonfiles import Value, mapping, read_json, string
from aps_rag_pipeline.sources.live import LiveSource, Memory
from aps_rag_pipeline.sources.logbooks.dialects import SHAPES, read_values, shape_of
from aps_rag_pipeline.sources.logbooks.model import Entry
from aps_rag_pipeline.sources.logbooks_live.entries import (
    EntriesScan,
    ThreadUnit,
    joined,
    same_origin,
    token,
)
from aps_rag_pipeline.sources.net.errors import OutageError
from aps_rag_pipeline.sources.net.http import Http, parse_json
from aps_rag_pipeline.sources.net.signin import signed_in
from aps_rag_pipeline.sources.options import Options, http_url, read_options

_TRIES = 2


class Windows(Options):
    """Requests by stretches of time, as the log book of the ALS wants them: `?op=retrieve&start=<s>&end=<s>`."""

    since: date = date(2003, 1, 1)
    days: Annotated[int, Field(ge=1)] = 365
    start: str = Field("start", description="parameter with the beginning of a stretch, in seconds since 1970")
    end: str = Field("end", description="parameter with its end")


class JsonOptions(Options):
    """`options` of a JSON feed."""

    dialect: str | None = Field(None, description="shape of the entries; found from their keys when left out")
    parameters: dict[str, str] = Field({}, description="further parameters of the request, such as op: retrieve")
    windows: Windows | None = None
    files_url: str = Field("", description="where relative addresses of attachments start; the feed's when left out")

    @field_validator("dialect")
    @classmethod
    def _known(cls, name: str | None) -> str | None:
        if name is not None and name not in SHAPES:
            raise ValueError(f"there is no dialect {name!r}; there are {', '.join(SHAPES)}")
        return name


class JsonLog(LiveSource[ThreadUnit]):
    """A service that gives its entries as JSON, one list or lines."""

    key = "bely"
    version = 1

    def scan(self, memory: Memory) -> JsonScan:
        options = read_options(self.feed, JsonOptions)
        http = signed_in(self.feed, self.context.network)
        return JsonScan(self.feed, self.context, memory, http, options)


class JsonScan(EntriesScan):
    """All is asked for each time, since such services cannot tell what moved.

    The stretches touch and overlap by a day, and the last one ends a whole stretch after now, so that neither a border
    nor a clock that is wrong hides an entry. What a listing leaves out is gone when a second one does so too.
    """

    def __init__(self, feed: Feed, context: SourceContext, memory: Memory, http: Http, options: JsonOptions) -> None:
        super().__init__(feed, context, memory, http)
        self.options = options
        http_url(feed, "the log book")
        #: Where relative addresses of files start; nothing is fetched from another host.
        self._files = options.files_url or feed.url
        self._second: set[str] | None = None
        self._nameless = False

    def listing(self) -> Iterator[Entry | Failure | Ignored]:
        for name, parameters in self._requests():
            entries: dict[str, Entry] = {}
            for found in read_values(self._values(name, parameters), name, self.options.dialect):
                if not isinstance(found, Entry):
                    yield found
                    continue
                for entry in found.thread():
                    entry.files = {self._own(address): shown for address, shown in entry.files.items()}
                first = entries.setdefault(found.id, found)
                if first is found:
                    yield found
                elif token(first) != token(found):
                    reason = (
                        f"log id {found.id} stands here and, with other content, at {first.place}; the first is kept"
                    )
                    remedy = "remove the one that is wrong"
                    yield Failure(found.place, found.place, found.place, reason, remedy, True, found.id)

    def fetch(self, unit: ThreadUnit, address: str) -> bytes:
        target = joined(self._files, address)
        if not same_origin(target, self._files):
            raise UnreadableError(f"{address} is on another host", remedy="attach the file to the entry")
        shown = next((entry.files[address] for entry in unit.entry.thread() if address in entry.files), "")
        return self.http.file(target, shown if "." in shown else file_name(address))

    def _own(self, address: str) -> str:
        """An address on the host of the feed without that host; others become whole, and are linked to, never
        fetched."""
        target = joined(self._files, address)
        if not same_origin(target, self._files):
            return target
        if "://" not in address:
            return address
        bare = urlsplit(target)._replace(scheme="", netloc="", fragment="").geturl()
        return target if bare.startswith("//") else bare

    def absent(self, name: str) -> bool:
        if self._second is None:
            again = list(self.listing())
            self._second = {found.id for found in again if isinstance(found, Entry)}
            self._nameless = any(isinstance(found, Failure) and not found.record_id for found in again)
        if name in self._second:
            raise FeedError(f"{self.feed.url}: two requests in a row give different entries; nothing is removed")
        if self._nameless:
            raise OutageError(f"{self.feed.url}: an entry came without its id, and may be {name}")
        return True

    def _requests(self) -> Iterator[tuple[str, dict[str, str]]]:
        """Name and parameters of each request."""
        windows = self.options.windows
        if windows is None:
            yield "the log book", self.options.parameters
            return
        start = datetime.combine(windows.since, datetime.min.time(), UTC)
        stretch, last = timedelta(days=windows.days), clock.now()
        while start <= last + stretch:
            end = start + stretch
            span = {windows.start: str(int(start.timestamp())), windows.end: str(int(end.timestamp()))}
            yield f"the log book from {start.date()}", {**self.options.parameters, **span}
            start = end - timedelta(days=1) if windows.days > 1 else end

    def _values(self, name: str, parameters: dict[str, str]) -> list[Value]:
        problem: OutageError | None = None
        for _ in range(_TRIES):
            reply = self.http.request("GET", self.feed.url, params=parameters or None)
            try:
                text = reply.content.decode("utf-8-sig", "replace")
                found = read_json(text, name) if _is_lines(text) else None
                values = found.values if found else [Value(parse_json(reply), name)]
                if found and found.broken:
                    raise OutageError(f"{self.feed.url}: {name}: {found.problem}")
                self._refuse(values, name)
                return values
            except OutageError as error:
                problem = error
            except UnreadableError as error:
                problem = OutageError(f"{self.feed.url}: {name}: {error}")
        assert problem is not None
        raise problem

    def _refuse(self, values: list[Value], name: str) -> None:
        """A reply that is no list of entries must not be taken for an empty one."""
        for item in values:
            reply = mapping(item.value)
            told = reply.get("error") or reply.get("errors")
            if told:
                said = string(told) or json.dumps(told)[:200]
                raise OutageError(f"{self.feed.url}: {name}: the service answers with an error: {said}")
            if not _holds_entries(item.value):
                raise OutageError(f"{self.feed.url}: {name}: {json.dumps(item.value)[:60]} where entries were due")


def _holds_entries(value: object) -> bool:
    """Whether a value is a list, an object around one, or an entry."""
    holder = mapping(value)
    if isinstance(holder.get("data"), dict):
        return _holds_entries(holder["data"])
    lists = (value, *(holder.get(key) for key in ("entries", "logs", "data")))
    return any(isinstance(each, list) for each in lists) or "document" in holder or shape_of(holder) is not None


def _is_lines(text: str) -> bool:
    """Whether a reply may be one JSON value a line."""
    first, _, rest = text.strip().partition("\n")
    if not rest or not first.startswith("{"):
        return False
    try:
        json.loads(first)
    except ValueError:
        return False
    return True
