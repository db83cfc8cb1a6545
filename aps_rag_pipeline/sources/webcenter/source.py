"""Controlled documents of a content server. A unit is a content id, its record the latest released revision."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import PurePosixPath
from typing import ClassVar

from aps_rag_pipeline.content.assembly import Partition
from aps_rag_pipeline.content.dates import iso_utc
from aps_rag_pipeline.content.partition import partition
from aps_rag_pipeline.records import Record
from aps_rag_pipeline.settings import Feed
from aps_rag_pipeline.sources.base import Failure, FeedError, Ignored, SourceContext, UnreadableError, Upsert
from aps_rag_pipeline.sources.documents import SOURCE, DocumentMaker, OtherRevision, first_readable
from aps_rag_pipeline.sources.live import Listed, LiveSource, Memory, Scan, digest
from aps_rag_pipeline.sources.net.errors import GoneError, OutageError
from aps_rag_pipeline.sources.options import read_options
from aps_rag_pipeline.sources.sidecar import Description
from aps_rag_pipeline.sources.webcenter.binder import Binder, DeniedError, Row
from aps_rag_pipeline.sources.webcenter.listing import list_all
from aps_rag_pipeline.sources.webcenter.options import Rendition, WebCenterOptions
from aps_rag_pipeline.sources.webcenter.service import Page, Service
from aps_rag_pipeline.sources.webcenter.times import Times

#: Fields of a search row that move although nothing moved that a reader can see.
_VOLATILE = frozenset(
    ("SCORE", "srfDocSnippet", "dCheckoutUser", "dIsCheckedOut", "dIndexerState", "dIndexedID", "dProcessingState")
)
#: What numbers a revision among those of its document, and among all.
_NUMBERS = ("dRevisionID", "dID")
_DATE_FIELD = re.compile(r"Date$")


@dataclass(frozen=True)
class Item(Listed):
    """A content id with the row of its revision that the search gives."""

    row: Mapping[str, str] = field(default_factory=dict, compare=False)


class DocumentScan(Scan[Item]):
    """A look at a content server.

    The search lists everything released that the account may read, whatever its date: no watermark narrows it, so that
    a late check-in, an edit of an old document's metadata and a wrong clock are all seen. The token of a document is
    its whole search row without what is no content; times in it are compared as moments, so that another date format
    or time zone of the server moves nothing.

    The search index lags behind. What is not yet in it is listed by a later scan. What is still in it has the server's
    own DOC_INFO asked before anything is believed, and what has left it is asked for by name before it is gone.
    """

    def __init__(self, feed: Feed, context: SourceContext, memory: Memory) -> None:
        super().__init__(feed, context, memory)
        self.options = read_options(feed, WebCenterOptions)
        self.service = Service(feed, context.network)

    def units(self) -> Iterator[Item | Failure | Ignored]:
        place = self.service.address
        listing = list_all(self._page, place)
        times = self._times(listing.binder)
        newest: dict[str, Row] = {}
        for row in listing.rows.values():
            name, revision = _content_id(row), row.get("dID", "").strip()
            if not name:
                item = f"dID={revision}"
                reason = "a document without a content id"
                yield Failure(item, item, f"{place} {item}", reason, "give it one, or leave it out of the query", True)
            elif name not in newest or _number(newest[name]) < _number(row):
                newest[name] = row
        for name, row in newest.items():
            yield Item(name, _token(row, times), row)

    def read(self, unit: Item) -> Iterator[Upsert | Failure | Ignored]:
        place = f"{self.service.address} {unit.name}"
        try:
            binder = self._released(unit.name)
        except DeniedError as error:
            # Who may see it can no longer be told, so nobody is shown it; it is asked for again each time.
            yield Failure(unit.name, f"{unit.name} (access)", place, str(error), "or leave it out of the query", False)
            return
        row = binder.rows("DOC_INFO")[0]
        used: dict[str, str] = {}
        renditions = [
            (_file_name(row, rendition), partial(self._partition, unit, row, rendition, used))
            for rendition in _existing(row, self.options.renditions)
        ]
        name, found = first_readable(renditions)
        self.memory.files[unit.name] = used  # files of older revisions are not asked for again
        yield Upsert(self._record(unit.name, binder, row, name, found), unit.name, f"{place} dID={row.get('dID', '')}")

    def gone(self, name: str) -> bool:
        """What the server has no released revision of, or shows this account no more, is gone. What it has must be
        left out by the query, not by the index, to be gone."""
        try:
            self._released(name)
        except (GoneError, DeniedError):
            return True
        if not self.options.query:
            return False
        by_name = f"dDocName <matches> `{name}`"
        return self._finds(name, by_name) and not self._finds(name, f"({self.options.query}) <AND> {by_name}")

    def alive(self) -> bool:
        try:
            self.service.search(self.options.query, 1, 1, self.options.sort)
        except FeedError:
            return False
        return True

    def close(self) -> None:
        self.service.close()

    def _page(self, first: int) -> Page:
        return self.service.search(self.options.query, first, self.options.page_size, self.options.sort)

    def _finds(self, name: str, query: str) -> bool:
        page = self.service.search(query, 1, self.options.page_size, self.options.sort)
        return any(_content_id(row) == name for row in page.rows)

    def _released(self, name: str) -> Binder:
        """DOC_INFO of the latest released revision.

        Raises:
            GoneError: there is none.
            OutageError: the reply does not tell.
        """
        binder = self.service.info(name)
        for attempt in (1, 2):
            if Description("", _values(binder.rows("DOC_INFO")[0], "")).in_force:
                return binder
            # Some servers answer with the latest revision, released or not.
            history = self._revisions(binder)
            if not history:
                raise OutageError(f"{self.service.address}: the reply does not tell the revisions of {name}")
            if attempt == 2 or not history[0].in_force:
                break
            binder = self.service.revision(name, history[0].text("dID"))
        raise GoneError(f"{self.service.address}: {name} has no released revision")

    def _partition(self, unit: Item, row: Row, rendition: Rendition, used: dict[str, str]) -> Partition:
        told = row.get("dFileSize", "").strip()
        size = int(told) if told.isdecimal() and rendition == "Primary" else None
        self._check_size(size or 0)
        if rendition == "Web" and unit.row.get("dID") == row.get("dID"):
            web = unit.row.get("WebFileSize", "").strip()
            size = int(web) if web.isdecimal() else None
        # A revision's file stays as it is, except where a site replaces it in place: then its size tells mostly.
        key = f"{rendition} {row.get('dID', '')} {told}".rstrip()
        kind = row.get("dFormat", "").lower() if rendition == "Primary" else _web_kind(row)
        fetch = partial(self.service.file, row, rendition, kind, size)
        used[key] = self.memory.attachment(self.context.blobs, unit.name, key, fetch)
        data = self.context.blobs.get(used[key])
        if not data.strip():
            raise UnreadableError("the file is empty", remedy="check in a file, or another rendition")
        self._check_size(len(data))
        return partition(
            data,
            _file_name(row, rendition),
            self.context.limits,
            self.context.blobs,
            self.context.zone,
            encoding=self.feed.encoding,
        )

    def _check_size(self, size: int) -> None:
        limit = self.context.limits.max_file_mb
        if size > limit * 1e6:
            reason = f"{size / 1e6:.0f} MB, more than limits.max_file_mb ({limit:g})"
            raise UnreadableError(reason, remedy="raise the limit or split it")

    def _record(self, name: str, binder: Binder, row: Row, file: str, found: Partition) -> Record:
        times = self._times(binder)
        kept = {ours: value for ours, theirs in self.options.fields.items() if (value := row.get(theirs, "").strip())}
        current = Description(name, {**_values(row, self._in_date(row, times)), "content_id": name}, kept)
        revisions = self._revisions(binder)
        number = next((_order(other) for other in revisions if other.text("dID") == row.get("dID", "").strip()), 0)
        history = [OtherRevision(other, _order(other) < number) for other in revisions if _order(other) != number]
        maker = DocumentMaker(self.feed, self.context.zone, file, found, current)
        return maker.record(
            name,
            self.options.labels_of(row, self.feed.access),
            times.moment(row.get("dReleaseDate", "")) or times.moment(row.get("dCreateDate", "")),
            identity=name,
            history=history,
            address=self.service.link(name),
        )

    def _revisions(self, binder: Binder) -> list[Description]:
        """The revisions of a document in the words of the table that describes files: those in force first, of these
        the latest. Labels do not tell which is later: `021` comes after `0110`."""
        times = self._times(binder)
        found = [
            Description(
                "", {**_values(row, self._in_date(row, times)), **{n: row.get(n, "").strip() for n in _NUMBERS}}
            )
            for row in binder.rows("REVISION_HISTORY")
        ]
        return sorted(found, key=lambda revision: (revision.in_force, _order(revision)), reverse=True)

    def _in_date(self, row: Row, times: Times) -> str:
        return times.stated(row.get("dInDate", ""), self.context.zone)

    def _times(self, binder: Binder) -> Times:
        return Times.of(binder.local, self.context.zone, self.feed.date_order)


class WebCenter(LiveSource[Item]):
    """`form: webcenter`."""

    key: ClassVar[str] = SOURCE
    version: ClassVar[int] = 10

    def scan(self, memory: Memory) -> DocumentScan:
        return DocumentScan(self.feed, self.context, memory)


def _content_id(row: Row) -> str:
    return " ".join(row.get("dDocName", "").split())


def _number(row: Row) -> int:
    text = row.get("dID", "").strip()
    return int(text) if text.isdecimal() else 0


def _order(revision: Description) -> int:
    return next((int(text) for name in _NUMBERS if (text := revision.text(name)).isdecimal()), 0)


def _token(row: Row, times: Times) -> str:
    """A blank field says as much as one that the server does not have."""
    seen = []
    for name, value in sorted(row.items()):
        if not value.strip() or name in _VOLATILE:
            continue
        moment = times.moment(value) if _DATE_FIELD.search(name) else None
        seen.append(f"{name}={iso_utc(moment) if moment else value}")
    return digest(*seen)


def _values(row: Row, in_date: str) -> dict[str, str]:
    return {
        "title": row.get("dDocTitle", ""),
        "revision": row.get("dRevLabel", ""),
        "status": row.get("dStatus", ""),
        "author": row.get("dDocAuthor", ""),
        "in_date": in_date,
    }


def _file_name(row: Row, rendition: Rendition) -> str:
    extension = row.get("dExtension", "").strip()
    native = row.get("dOriginalName", "").replace("\\", "/").rsplit("/", 1)[-1].strip()
    native = native or f"{_content_id(row)}.{extension}".rstrip(".")
    web = row.get("dWebExtension", "").strip()
    return native if rendition == "Primary" or not web else str(PurePosixPath(native).with_suffix(f".{web}"))


def _existing(row: Row, wanted: tuple[Rendition, ...]) -> tuple[Rendition, ...]:
    """The renditions that a revision has: without a conversion the web-viewable file is the native one."""
    web = row.get("dWebExtension", "").strip().lower()
    if web and web != row.get("dExtension", "").strip().lower():
        return wanted
    return wanted[:1]


def _web_kind(row: Row) -> str:
    return "text/html" if row.get("dWebExtension", "").lower() in ("htm", "html", "hcst", "xhtml") else ""
