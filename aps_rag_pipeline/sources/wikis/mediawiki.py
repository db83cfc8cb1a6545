"""A MediaWiki, asked through its API.

A unit is a page by its page id, which a move leaves as it is; its record's id is the title. The token of a page is its
latest revision with its title, its redirects and the uploads it shows, so that an edit, a revert, a move, a new
redirect and a new version of a picture are all seen in the listing, whatever any clock says.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from html import unescape
from typing import Any, ClassVar, Literal

from pydantic import Field

from aps_rag_pipeline.content.dates import parse_time
from aps_rag_pipeline.content.text import clean
from aps_rag_pipeline.settings import Feed
from aps_rag_pipeline.sources.base import Failure, Ignored, SourceContext, UnreadableError, Upsert
from aps_rag_pipeline.sources.former_ids import FormerIds
from aps_rag_pipeline.sources.live import Listed, LiveSource, Memory, Scan, digest
from aps_rag_pipeline.sources.net.errors import GoneError, OutageError
from aps_rag_pipeline.sources.options import Options, http_url, read_options
from aps_rag_pipeline.sources.wikilinks import PageLinks
from aps_rag_pipeline.sources.wikis.listing import list_wiki, title_id, values
from aps_rag_pipeline.sources.wikis.naming import Json, listed
from aps_rag_pipeline.sources.wikis.pages import WikiPage, page_record
from aps_rag_pipeline.sources.wikis.uploads import LiveShelf, Upload, named

Markup = Literal["markdown", "html", "rest", "mediawiki", "dokuwiki", "text"]

#: Content model of a revision -> its markup. `wikitext` and `text` are MediaWiki's own, the others those of extensions
#: and imports that call a markup by its name. Pages of further models are programs and data.
_MODELS: dict[str, Markup] = {
    "wikitext": "mediawiki",
    "text": "text",
    "markdown": "markdown",
    "dokuwiki": "dokuwiki",
    "html": "html",
    "rest": "rest",
}
#: What MediaWiki's own scripts sign with: nobody's name.
# fmt: off
_SYSTEM_USERS = frozenset((
    "Maintenance script", "MediaWiki default", "Conversion script", "Template namespace initialisation script",
    "ScriptImporter", "Delete page script", "Move page script", "Command line script", "Unknown user",
))
# fmt: on


class MediaWikiOptions(Options):
    namespaces: tuple[int, ...] = Field((0,), min_length=1, description="numbers of the namespaces to read")
    markups: dict[str, Markup] = Field({}, description="content model -> markup, for models of extensions")
    pictures: bool = Field(True, description="fetch the pictures that pages show")
    maxlag: float = Field(5, gt=0, description="seconds of database lag at which the wiki may put us off")


@dataclass(frozen=True)
class PageUnit(Listed):
    """A page. `uploads` are those it shows, by name."""

    title: str
    former: tuple[str, ...]
    uploads: dict[str, Upload]


class MediaWikiScan(Scan[PageUnit]):
    def __init__(self, feed: Feed, context: SourceContext, memory: Memory, options: MediaWikiOptions) -> None:
        super().__init__(feed, context, memory)
        self.options = options
        from aps_rag_pipeline.sources.wikis.site import Site  # requests, httpx: only where a service is asked

        self.site = Site(feed, context.network, options.maxlag)
        self._models = {**_MODELS, **options.markups}
        self._ids: frozenset[str] = frozenset()
        self._fetched: dict[str, Json] = {}

    def units(self) -> Iterator[PageUnit | Failure | Ignored]:
        listing = list_wiki(self.site, self.options.namespaces, self.options.pictures)
        ids = {number: title_id(page["title"]) for number, page in listing.pages.items()}
        # What is there but could not be listed keeps its id, and what is known of it.
        odd = {failure.unit for failure in listing.failures} - ids.keys()
        ids |= {number: name for number, name in self.memory.notes.get("ids", {}).items() if number in odd}
        aliases = listing.aliases()
        former = FormerIds(self.memory.notes, ids, aliases)
        self._ids = frozenset(ids.values())
        for number, page in listing.pages.items():
            uploads = listing.uploads_of(number)
            state = digest(
                ids[number],
                page["lastrevid"],
                page.get("contentmodel", ""),
                *sorted(aliases.get(number, ())),
                *(upload.key for upload in uploads),
            )
            by_name = {upload.name: upload for upload in uploads}
            known = "" if number in former.losers else state
            yield PageUnit(number, known, page["title"], former.of(number), by_name)
        yield from listing.failures

    def prefetch(self, units: Sequence[PageUnit]) -> None:
        self._fetched = self._texts([unit.name for unit in units])

    def read(self, unit: PageUnit) -> Iterator[Upsert | Failure | Ignored]:
        page = self._fetched.pop(unit.name, None) or self._texts([unit.name]).get(unit.name)
        if page is None:
            raise OutageError(f"{self.site.api}: no answer about page {unit.title}")
        if "missing" in page or "redirect" in page:
            raise GoneError(f"{unit.title}: it is no longer a page")
        title = page.get("title")
        if not isinstance(title, str) or not title:
            raise OutageError(f"{self.site.api}: page {unit.title} came without its title")
        revision = next(iter(values(page.get("revisions"))), None)
        if revision is None:
            raise OutageError(f"{title}: the wiki gives no text for it")
        main = revision.get("slots", {}).get("main", revision)  # before 1.32 there are no slots
        place = f"{self.feed.place} {title}"
        if "texthidden" in main or "suppressed" in main:
            yield Ignored(place, "its text is hidden from readers")
            return
        model = main.get("contentmodel", "wikitext")
        if not isinstance(model, str) or not model:
            raise OutageError(f"{title}: the wiki does not say what kind of text it is")
        if model not in self._models:
            yield Ignored(place, f"content model {model}: no page of text; options.markups may name its markup")
            return
        text = main.get("*", main.get("content"))
        if not isinstance(text, str):
            raise UnreadableError(
                f"its text cannot be had ({'missing' if 'missing' in main else 'no content'})",
                remedy="look whether the wiki shows the page",
                permanent=False,
            )
        yield from self._record(unit, page, revision, title, clean(text), self._models[model])

    def gone(self, name: str) -> bool:
        pages = self.site.query(pageids=name, prop="info")["query"].get("pages", {})
        page = pages.get(name) if isinstance(pages, dict) else None
        if not isinstance(page, dict):
            raise OutageError(f"{self.site.api}: no answer about page {name}")
        if "missing" in page or "redirect" in page:
            return True
        if not isinstance(page.get("ns"), int):
            raise OutageError(f"{self.site.api}: does not say in which namespace page {name} is")
        return page["ns"] not in self.options.namespaces

    def alive(self) -> bool:
        try:
            self.site.query(meta="siteinfo")
        except OutageError:
            return False
        return True

    def pulse(self) -> str | None:
        """A digest that moves with every edit, creation, upload, deletion, move and restoration.

        Each of them takes a new number in the table of recent changes or of the log. Both are ordered by the server's
        clock, so the greatest number of the latest few hundred is taken rather than that of the first: an entry that a
        clock put hours back still counts. The totals of edits, pages and uploads stand beside it. None where a wiki
        does not say all this.
        """
        said = self.site.query(
            list="recentchanges|logevents",
            rcprop="ids",
            rclimit="max",
            leprop="ids",
            lelimit="max",
            meta="siteinfo",
            siprop="statistics",
        )["query"]
        try:
            newest = [
                max((int(item.get(key, 0)) for item in listed(said[name])), default=0)
                for name, key in (("recentchanges", "rcid"), ("logevents", "logid"))
            ]
            totals = [int(said["statistics"][name]) for name in ("edits", "pages", "images")]
        except (KeyError, TypeError, ValueError):
            return None
        return digest(*newest, *totals)

    def close(self) -> None:
        self.site.close()

    def _texts(self, numbers: list[str]) -> dict[str, Json]:
        """Page id → page with its latest revision. A reply that would be too large comes in several pieces."""
        found: dict[str, Json] = {}
        asked = {"pageids": "|".join(numbers), "prop": "revisions|info", "inprop": "url|displaytitle"}
        kinds = "ids|timestamp|user|content|contentmodel"
        for said in self.site.pages_of(**asked, rvprop=kinds, rvslots="main"):
            pages = said.get("pages", {})
            for number, page in pages.items() if isinstance(pages, dict) else ():
                if isinstance(page, dict):
                    found.setdefault(str(number), {}).update(page)
        return found

    def _record(
        self, unit: PageUnit, page: Json, revision: Json, title: str, text: str, markup: Markup
    ) -> Iterator[Upsert | Failure]:
        record_id = title_id(title)
        user = str(revision.get("user", ""))
        found = WikiPage(
            id=record_id,
            text=text,
            markup=markup,
            title=_shown_title(page, title),
            author="" if user in _SYSTEM_USERS else user,
            modified_at=self._time(revision.get("timestamp")),
            url=str(page.get("fullurl", "")),
            former_ids=tuple(former for former in unit.former if former != record_id),
        )
        shelf = LiveShelf(
            self._ids,
            lambda address: self._upload(unit, address),
            self.site.download,
            unit.name,
            record_id,
            self.context,
            self.memory,
        )
        by_title = (lambda target: self._target(title, target)) if markup == "mediawiki" else None
        links = PageLinks(shelf, record_id, markup, by_title)
        yield Upsert(page_record(found, links, self.feed, self.context), unit.name, f"{self.feed.place} {title}")
        yield from shelf.failures.values()

    def _time(self, stated: Any) -> datetime | None:
        return parse_time(stated, self.context.zone) if isinstance(stated, str) else None

    def _target(self, title: str, target: str) -> str:
        """The id of the page that a link in the page `title` means; a slash at its beginning goes below the page."""
        if target.startswith(("/", "../")):
            return title_id(posixpath.normpath(posixpath.join(title, target.lstrip("/")))).strip("/")
        spelled = title_id(target.replace("_", " "))
        return spelled if self.site.case_sensitive else spelled[:1].upper() + spelled[1:]

    def _upload(self, unit: PageUnit, address: str) -> Upload | None:
        if not self.options.pictures:
            return None
        name = posixpath.basename(address.partition("#")[0].partition("?")[0])
        return named(unit.uploads, name, not self.site.case_sensitive) or self._from_elsewhere(name)

    def _from_elsewhere(self, name: str) -> Upload | None:
        """A file that the listing does not have: of a shared repository, or put into the page a moment ago."""
        said = self.site.query(titles=f"File:{name}", prop="imageinfo", iiprop="url|sha1", redirects=1)["query"]
        for page in values(said.get("pages")):
            for info in values(page.get("imageinfo")):
                if info.get("url") and info.get("sha1"):
                    spelled, sha1 = title_id(str(page["title"]).partition(":")[2]), str(info["sha1"])
                    return Upload(spelled, str(info["url"]), f"{spelled} {sha1}", sha1)
        return None


def _shown_title(page: Json, title: str) -> str:
    shown = unescape(str(page.get("displaytitle", title)))
    stem = posixpath.basename(title)
    return stem if shown == title or "<" in shown else shown


class MediaWiki(LiveSource[PageUnit]):
    """Pages of a MediaWiki. What `options` may hold is in `MediaWikiOptions`."""

    key: ClassVar[str] = "wiki"

    def scan(self, memory: Memory) -> MediaWikiScan:
        http_url(self.feed, "a MediaWiki's api.php")
        return MediaWikiScan(self.feed, self.context, memory, read_options(self.feed, MediaWikiOptions))

    def fingerprint(self) -> str | None:
        with closing(self.scan(Memory())) as scan:
            pulse = scan.pulse()
        return super().fingerprint() if pulse is None else pulse
