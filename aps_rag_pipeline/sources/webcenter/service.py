"""The services of a content server that are asked."""

from __future__ import annotations

import json
from dataclasses import dataclass
from urllib.parse import urlencode

import httpx

from aps_rag_pipeline.settings import Feed, Network
from aps_rag_pipeline.sources.net.errors import GoneError, OutageError
from aps_rag_pipeline.sources.net.http import refuse_page
from aps_rag_pipeline.sources.net.signin import signed_in
from aps_rag_pipeline.sources.options import http_url
from aps_rag_pipeline.sources.webcenter.binder import Binder, Row, read_binder
from aps_rag_pipeline.sources.webcenter.options import Rendition

_HTML_KINDS = ("text/html", "application/xhtml+xml")


@dataclass(frozen=True)
class Page:
    """Rows of a search, from `first` (1-based) on, out of `total`."""

    binder: Binder
    rows: tuple[Row, ...]
    first: int
    total: int


class Service:
    """A content server, asked with the feed's account. Safe to use from several threads."""

    def __init__(self, feed: Feed, network: Network) -> None:
        url = http_url(feed, "a content server, before /idcplg")
        self.address = url if url.endswith("/idcplg") else f"{url}/idcplg"
        self._http = signed_in(feed, network)

    def close(self) -> None:
        self._http.close()

    def link(self, name: str) -> str:
        """Where a reader finds a document."""
        return f"{self.address}?{urlencode({'IdcService': 'DOC_INFO_BY_NAME', 'dDocName': name})}"

    def ask(self, service: str, about: str = "", **parameters: str | int) -> Binder:
        """A reply that reports success.

        Raises:
            GoneError: there is no such item.
            DeniedError: the account may not see it.
            OutageError: no reply that can be trusted, or an error of another kind.
        """
        place = f"{self.address} {service} {about}".rstrip()
        try:
            value = self._http.json(self.address, params={"IdcService": service, "IsJson": 1, **parameters})
        except GoneError as error:  # the address itself, not an item
            raise OutageError(f"{error}; mend `url` of the feed") from error
        return read_binder(value, place)

    def search(self, query: str, first: int, count: int, sort: str) -> Page:
        """Released content in the order of `sort`, oldest first. The server may give fewer rows than `count`.

        Raises:
            OutageError: no rows that can be trusted.
        """
        try:
            binder = self.ask(
                "GET_SEARCH_RESULTS",
                QueryText=query,
                SearchQueryFormat="Universal",
                SortField=sort,
                SortOrder="Asc",
                ResultCount=count,
                StartRow=first,
            )
        except GoneError as error:
            raise OutageError(str(error)) from error
        total = binder.number("TotalRows")
        if total is None or "SearchResults" not in binder.sets:
            raise OutageError(f"{self.address}: the search does not say what it found; check `url` and options.query")
        return Page(binder, binder.rows("SearchResults"), first, total)

    def info(self, name: str) -> Binder:
        """The latest released revision of a content id, and its other revisions."""
        return self._described("DOC_INFO_BY_NAME", name, dDocName=name, RevisionSelectionMethod="LatestReleased")

    def revision(self, name: str, revision: str) -> Binder:
        """One revision, by its dID."""
        return self._described("DOC_INFO", name, dID=revision, dDocName=name)

    def _described(self, service: str, name: str, **parameters: str | int) -> Binder:
        """Success without a description proves nothing about a document, least of all that it is gone."""
        binder = self.ask(service, name, **parameters)
        if not binder.rows("DOC_INFO"):
            raise OutageError(f"{self.address} {service} {name}: the reply reports no error and describes no document")
        return binder

    def file(self, row: Row, rendition: Rendition, media_type: str, size: int | None) -> bytes:
        """The file of a revision.

        Args:
            row: its DOC_INFO.
            media_type: what the file is, as far as the server knows.
            size: its length in bytes, where known.

        Raises:
            OutageError: not the file came, or not all of it. That there is none is also told so: the document exists.
            TooLargeError: it is above the limit.
        """
        name, revision = row.get("dDocName", ""), row.get("dID", "")
        place = f"{self.address} GET_FILE {name} dID={revision} {rendition}"
        parameters: dict[str, str | int] = {"IdcService": "GET_FILE", "dID": revision, "dDocName": name}
        parameters |= {"Rendition": rendition, "allowInterrupt": 1, "IsJson": 1}
        try:
            reply = self._http.request("GET", self.address, params=parameters)
        except GoneError as error:
            raise OutageError(str(error)) from error
        data = reply.content
        if size is not None and len(data) == size:
            return data
        _check_message(reply, place)
        if media_type not in _HTML_KINDS:
            original = row.get("dOriginalName", "") if rendition == "Primary" else ""
            refuse_page(data, reply.headers.get("Content-Type", ""), original or name, place)
        if size is not None or not data:
            raise OutageError(f"{place}: {len(data)} bytes came where the server tells of {size or 'more'}")
        return data


def _check_message(reply: httpx.Response, place: str) -> None:
    """An error comes as a reply in JSON where the file was due, with a good status."""
    if reply.content.lstrip()[:1] != b"{":
        return
    try:
        value = json.loads(reply.content)
    except ValueError:
        return
    if isinstance(value, dict) and "LocalData" in value:
        try:
            read_binder(value, place)
        except GoneError as error:
            raise OutageError(str(error)) from error
