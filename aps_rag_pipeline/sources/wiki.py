"""Pages of a wiki: kept as files in Markdown, HTML, reStructuredText, DokuWiki or MediaWiki markup, or asked from a
MediaWiki or a Confluence."""

from __future__ import annotations

import hashlib
import posixpath
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar

from aps_rag_pipeline.content.text import decode, is_binary
from aps_rag_pipeline.records import Record
from aps_rag_pipeline.sources.base import Failure, Source, UnreadableError, Upsert
from aps_rag_pipeline.sources.files import FileEntry, FileSource, Listing, Unit
from aps_rag_pipeline.sources.wikilinks import MARKUPS, Folder, PageLinks, page_id
from aps_rag_pipeline.sources.wikis.confluence import Confluence
from aps_rag_pipeline.sources.wikis.mediawiki import MediaWiki
from aps_rag_pipeline.sources.wikis.pages import WikiPage, page_record

_PICTURES = (".png", ".jpg", ".jpeg", ".gif", ".bmp", ".tif", ".tiff", ".webp")


class WikiFiles(FileSource):
    """One record a page. Pages that differ in their ending only are one unit: the first has the bare id."""

    key: ClassVar[str] = "wiki"
    patterns: ClassVar[tuple[str, ...]] = tuple(f"*{ending}" for ending in (*MARKUPS, *_PICTURES))

    def units(self, listing: Listing) -> Iterator[Unit]:
        pages: dict[str, list[FileEntry]] = {}
        pictures = hashlib.blake2b(digest_size=16)
        for entry in listing.files:
            if _ending(entry) in MARKUPS:
                pages.setdefault(page_id(entry.name), []).append(entry)
            else:
                pictures.update(entry.state.encode("utf-8", "backslashreplace"))
        # Which page shows which picture is known only once it is read, so a moved picture has every page read again;
        # the content hash then finds the few that changed.
        state = FileEntry(self._root, f"pictures {pictures.hexdigest()}", 0, 0, 0)
        order = list(MARKUPS)
        for name, entries in pages.items():
            yield Unit(name, (*sorted(entries, key=lambda entry: order.index(_ending(entry))), state))

    def read(self, unit: Unit) -> Iterator[Upsert | Failure]:
        pages = [entry for entry in unit.files if _ending(entry) in MARKUPS]
        for number, entry in enumerate(pages):
            record_id = unit.name if number == 0 else entry.name
            try:
                yield Upsert(self._record(entry, record_id), unit.name, entry.name)
            except UnreadableError as error:
                if len(pages) == 1:
                    raise
                yield Failure(
                    unit.name, entry.name, entry.name, str(error), error.remedy, error.permanent, record_id=record_id
                )

    @property
    def _root(self) -> Path:
        location = self.feed.location
        return location if location.is_dir() else location.parent

    def _record(self, entry: FileEntry, record_id: str) -> Record:
        data = self.load(entry)
        if is_binary(data):
            raise UnreadableError("not a text file", remedy="save the page as text or leave it out with `exclude`")
        markup = MARKUPS[_ending(entry)]
        written = datetime.fromtimestamp(entry.mtime_ns / 1e9, UTC)
        page = WikiPage(record_id, decode(data, self.feed.encoding), markup, modified_at=written)
        links = PageLinks(Folder(self._root, self.context), entry.name, markup)
        return page_record(page, links, self.feed, self.context)


def _ending(entry: FileEntry) -> str:
    return posixpath.splitext(entry.name)[1].lower()


FORMS: dict[str, type[Source]] = {"files": WikiFiles, "mediawiki": MediaWiki, "confluence": Confluence}
