"""Pages of a wiki kept as files: Markdown, HTML, reStructuredText, DokuWiki and MediaWiki."""

from __future__ import annotations

import hashlib
import logging
import posixpath
from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import ClassVar

from aps_rag_pipeline.content.dates import iso_utc, parse_time
from aps_rag_pipeline.content.dokuwiki import dokuwiki_to_html
from aps_rag_pipeline.content.front_matter import Value, split_front_matter
from aps_rag_pipeline.content.guard import reading
from aps_rag_pipeline.content.mediawiki import mediawiki_to_html
from aps_rag_pipeline.content.pages import Page, markdown_to_html, partition_page
from aps_rag_pipeline.content.references import find_references
from aps_rag_pipeline.content.rest import rest_to_html
from aps_rag_pipeline.content.tables import slug
from aps_rag_pipeline.content.text import decode, is_binary
from aps_rag_pipeline.content.wikilines import WikiText, plain_html
from aps_rag_pipeline.records import FieldValue, Link, Record
from aps_rag_pipeline.sources.base import Failure, Source, UnreadableError, Upsert
from aps_rag_pipeline.sources.files import FileEntry, FileSource, Listing, Unit
from aps_rag_pipeline.sources.tabular import labels
from aps_rag_pipeline.sources.wikilinks import MARKUPS, PageLinks, page_id

log = logging.getLogger(__name__)

_PICTURES = (".png", ".jpg", ".jpeg", ".gif", ".bmp", ".tif", ".tiff", ".webp")
_CREATED = ("created", "created_at", "date", "published")
_MODIFIED = ("updated", "modified", "modified_at", "last_modified", "lastmod", "last_updated")
_AUTHORS = ("author", "authors", "owner")
_TAGS = ("tags", "categories", "keywords")
_KNOWN = frozenset(("title", "access", *_CREATED, *_MODIFIED, *_AUTHORS, *_TAGS))


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
        text = decode(data, self.feed.encoding)
        markup = MARKUPS[_ending(entry)]
        values, body = split_front_matter(text)
        links = PageLinks(self._root, entry.name, markup, self.context)
        with reading(markup):
            marked = _to_html(markup, body, entry.name)
            page = partition_page(marked.html, self.context.blobs, self.context.zone, links.find_picture)
        return self._assembled(entry, record_id, values, marked, page, links)

    def _assembled(
        self,
        entry: FileEntry,
        record_id: str,
        values: dict[str, Value],
        marked: WikiText,
        page: Page,
        links: PageLinks,
    ) -> Record:
        stem = posixpath.basename(page_id(entry.name))
        title = _text(values.get("title", "")) or page.heading or page.title
        template = self.feed.url_template
        return Record(
            source=self.key,
            feed=self.feed.name,
            id=record_id,
            title=title or " ".join(stem.replace("_", " ").split()) or stem,
            created_at=self._time(values, _CREATED) or page.created_at,
            modified_at=self._time(values, _MODIFIED)
            or page.modified_at
            or datetime.fromtimestamp(entry.mtime_ns / 1e9, UTC),
            author=next((said for name in _AUTHORS if (said := _text(values.get(name, "")))), page.author),
            url=template.format(id=record_id) if template else "",
            parts=tuple(page.parts),
            attachments=tuple(page.attachments),
            fields=self._fields(values, marked),
            links=_links(record_id, marked, page, links),
            access=self._access(values),
        )

    def _time(self, values: dict[str, Value], names: tuple[str, ...]) -> datetime | None:
        stated = (values[name] for name in names if values.get(name))
        zone, order = self.context.zone, self.feed.date_order
        return next((time for value in stated if (time := parse_time(value, zone, order))), None)

    def _fields(self, values: dict[str, Value], marked: WikiText) -> dict[str, FieldValue]:
        fields: dict[str, FieldValue] = {}
        for name, value in values.items():
            if name not in _KNOWN and value not in ("", []):
                fields[slug(name)] = self._field(value)
        for name in (*_CREATED, *_MODIFIED):
            if values.get(name) and parse_time(values[name], self.context.zone, self.feed.date_order) is None:
                fields[f"{name}_raw"] = _text(values[name])
        tags = [tag for name in _TAGS for tag in _list(values.get(name, "")) if tag]
        if tags or marked.tags:
            fields["tags"] = list(dict.fromkeys([*tags, *marked.tags]))
        if marked.redirect:
            fields["redirect_to"] = marked.redirect
        return fields

    def _field(self, value: Value) -> FieldValue:
        if isinstance(value, datetime):
            return iso_utc(value if value.tzinfo else value.replace(tzinfo=self.context.zone))
        return value.isoformat() if isinstance(value, date) else value

    def _access(self, values: dict[str, Value]) -> tuple[str, ...]:
        if "access" not in values:
            return self.feed.access
        # A label that is stated and cannot be read admits nobody.
        stated = values["access"]
        written = stated if isinstance(stated, list) else [stated] if isinstance(stated, str) else []
        return tuple(sorted({label for text in written for label in labels(text)}))


def _to_html(markup: str, text: str, name: str) -> WikiText:
    if markup == "html":
        return WikiText(text)
    if markup == "markdown":
        return WikiText(markdown_to_html(text))
    try:
        if markup == "dokuwiki":
            return dokuwiki_to_html(text)
        return mediawiki_to_html(text) if markup == "mediawiki" else WikiText(rest_to_html(text))
    except (UnreadableError, MemoryError):
        raise
    except Exception:
        # Markup that its own parser stumbles over is still text that people wrote.
        log.warning("%s: read as plain text, since its %s markup cannot be parsed", name, markup, exc_info=True)
        return WikiText(plain_html(text))


def _links(record_id: str, marked: WikiText, page: Page, links: PageLinks) -> tuple[Link, ...]:
    from aps_rag_pipeline.content.pages import Target

    targets = [Target(f"wiki:{marked.redirect}", "")] if marked.redirect else []
    stated = [link for target in (*targets, *page.targets) if (link := links.link(target)) is not None]
    stated += [link for part in page.parts for link in find_references(part.text)]
    found: dict[tuple[str, str], Link] = {}
    for link in stated:
        if (link.kind, link.target) not in (("wiki", record_id), ("wiki", f"WIKI:{record_id}")):
            found.setdefault((link.kind, link.target), link)
    return tuple(found.values())


def _ending(entry: FileEntry) -> str:
    return posixpath.splitext(entry.name)[1].lower()


def _text(value: Value) -> str:
    if isinstance(value, list):
        return ", ".join(value)
    return value.isoformat() if isinstance(value, date) else str(value)


def _list(value: Value) -> list[str]:
    return value if isinstance(value, list) else [part.strip() for part in _text(value).split(",")]


FORMS: dict[str, type[Source]] = {"files": WikiFiles}
