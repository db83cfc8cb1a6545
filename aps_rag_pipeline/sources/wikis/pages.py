"""A page of a wiki as a record: the same one whether it was read from a file or asked from a service."""

from __future__ import annotations

import logging
import posixpath
import re
from dataclasses import dataclass
from datetime import date, datetime

from aps_rag_pipeline.content.dates import iso_utc, parse_time
from aps_rag_pipeline.content.front_matter import Value, split_front_matter
from aps_rag_pipeline.content.isolation import Job, page_apart
from aps_rag_pipeline.content.pages import Page, Target
from aps_rag_pipeline.content.references import find_references
from aps_rag_pipeline.content.tables import slug
from aps_rag_pipeline.content.wikilines import WikiText
from aps_rag_pipeline.records import FieldValue, Link, Record
from aps_rag_pipeline.settings import Feed
from aps_rag_pipeline.sources.base import SourceContext
from aps_rag_pipeline.sources.tabular import labels
from aps_rag_pipeline.sources.wikilinks import PageLinks

log = logging.getLogger(__name__)

_CREATED = ("created", "created_at", "date", "published")
_MODIFIED = ("updated", "modified", "modified_at", "last_modified", "lastmod", "last_updated")
_AUTHORS = ("author", "authors", "owner")
_TAGS = ("tags", "categories", "keywords")
_KNOWN = frozenset(("title", "access", *_CREATED, *_MODIFIED, *_AUTHORS, *_TAGS))
_HEADING = re.compile(r"<h([1-6])\b")


@dataclass(frozen=True)
class WikiPage:
    """A page as it was found: its text, and what its wiki says of it beside the text.

    What the text's own front matter states goes before `author` and `created_at`. `title` is the wiki's; a page may
    overrule it by its only heading of the first level, unless the wiki shows titles above every page (`titled`).
    """

    id: str
    text: str
    markup: str
    title: str = ""
    titled: bool = False
    author: str = ""
    created_at: datetime | None = None
    modified_at: datetime | None = None
    url: str = ""
    tags: tuple[str, ...] = ()
    former_ids: tuple[str, ...] = ()
    links: tuple[Link, ...] = ()
    #: None where the wiki has no labels of its own: those of the front matter or the feed hold.
    access: tuple[str, ...] | None = None


def page_record(found: WikiPage, links: PageLinks, feed: Feed, context: SourceContext) -> Record:
    """The record of a page; its pictures go through `links`.

    Raises:
        UnreadableError: its markup cannot be read, or not within the limits.
    """
    values, body = split_front_matter(found.text)
    job = Job(found.id, context.limits, context.zone, task="page", markup=found.markup)
    read = page_apart(body, job, context.blobs, links.find_picture)
    if read.trouble:
        log.warning("%s: %s", found.id, read.trouble)
    return _Making(found, feed, context, values, read.marked, read.page).record(links)


@dataclass(frozen=True)
class _Making:
    found: WikiPage
    feed: Feed
    context: SourceContext
    values: dict[str, Value]
    marked: WikiText
    page: Page

    def record(self, links: PageLinks) -> Record:
        found, page, template = self.found, self.page, self.feed.url_template
        return Record(
            source=self.feed.source,
            feed=self.feed.name,
            id=found.id,
            title=self._title(),
            created_at=self._time(_CREATED) or page.created_at or found.created_at,
            modified_at=self._time(_MODIFIED) or page.modified_at or found.modified_at,
            author=next((said for name in _AUTHORS if (said := _text(self.values.get(name, "")))), page.author)
            or found.author,
            url=template.format(id=found.id) if template else found.url,
            parts=tuple(page.parts),
            attachments=tuple(page.attachments),
            fields=self._fields(),
            links=_links(found, self.marked, page, links),
            access=self._access(),
        )

    def _title(self) -> str:
        stated = _text(self.values.get("title", ""))
        heading = self.page.heading or self.page.title
        if self.found.titled or (self.found.title and not _has_one_title(self.marked.html)):
            heading = self.found.title
        stem = posixpath.basename(self.found.id)
        return stated or heading or " ".join(stem.replace("_", " ").split()) or stem

    def _time(self, names: tuple[str, ...]) -> datetime | None:
        stated = (self.values[name] for name in names if self.values.get(name))
        zone, order = self.context.zone, self.feed.date_order
        return next((time for value in stated if (time := parse_time(value, zone, order))), None)

    def _fields(self) -> dict[str, FieldValue]:
        fields: dict[str, FieldValue] = {}
        for name, value in self.values.items():
            if name not in _KNOWN and value not in ("", []):
                fields[slug(name)] = self._field(value)
        for name in (*_CREATED, *_MODIFIED):
            stated = self.values.get(name)
            if stated and parse_time(stated, self.context.zone, self.feed.date_order) is None:
                fields[f"{name}_raw"] = _text(stated)
        tags = [tag for name in _TAGS for tag in _list(self.values.get(name, "")) if tag]
        if tags or self.marked.tags or self.found.tags:
            fields["tags"] = list(dict.fromkeys([*tags, *self.marked.tags, *self.found.tags]))
        if self.marked.redirect:
            fields["redirect_to"] = self.marked.redirect
        if self.found.former_ids:
            fields["former_ids"] = list(self.found.former_ids)
        return fields

    def _field(self, value: Value) -> FieldValue:
        if isinstance(value, datetime):
            return iso_utc(value if value.tzinfo else value.replace(tzinfo=self.context.zone))
        return value.isoformat() if isinstance(value, date) else value

    def _access(self) -> tuple[str, ...]:
        if self.found.access is not None:
            return self.found.access
        if "access" not in self.values:
            return self.feed.access
        # A label that is stated and cannot be read admits nobody.
        stated = self.values["access"]
        written = stated if isinstance(stated, list) else [stated] if isinstance(stated, str) else []
        return tuple(sorted({label for text in written for label in labels(text)}))


def _has_one_title(html: str) -> bool:
    levels = _HEADING.findall(html)
    return levels[:1] == ["1"] and levels.count("1") == 1


def _links(here: WikiPage, marked: WikiText, page: Page, links: PageLinks) -> tuple[Link, ...]:
    targets = [Target(f"wiki:{marked.redirect}", "")] if marked.redirect else []
    stated = [*here.links]
    stated += [link for target in (*targets, *page.targets) if (link := links.link(target)) is not None]
    stated += [link for part in page.parts for link in find_references(part.text)]
    found: dict[tuple[str, str], Link] = {}
    for link in stated:
        if (link.kind, link.target) not in (("wiki", here.id), ("wiki", f"WIKI:{here.id}")):
            found.setdefault((link.kind, link.target), link)
    return tuple(found.values())


def _text(value: Value) -> str:
    if isinstance(value, list):
        return ", ".join(value)
    return value.isoformat() if isinstance(value, date) else str(value)


def _list(value: Value) -> list[str]:
    return value if isinstance(value, list) else [part.strip() for part in _text(value).split(",")]
