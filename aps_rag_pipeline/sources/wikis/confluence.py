"""A Confluence, asked through its REST interface.

A unit is a page by its space and content id; its record's id is space and title, and former titles stay known. The
listing carries version, title, place in the tree, labels, restrictions and the versions of attachments: the token is
made of them all, because moves, renamings, labels, restrictions and new attachments leave a page's version alone. A
page in the trash, a draft and an archived page are not listed.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from html import escape
from typing import Any, ClassVar, Literal

from pydantic import Field

from aps_rag_pipeline.content.dates import parse_time
from aps_rag_pipeline.content.text import clean
from aps_rag_pipeline.records import Link
from aps_rag_pipeline.settings import Feed
from aps_rag_pipeline.sources.base import Failure, FeedError, Ignored, SourceContext, Upsert
from aps_rag_pipeline.sources.live import Listed, LiveSource, Memory, Scan, digest
from aps_rag_pipeline.sources.net.errors import GoneError, OutageError, RefusedError
from aps_rag_pipeline.sources.wikilinks import PageLinks
from aps_rag_pipeline.sources.wikis.naming import FormerIds, Json, Options, read_options
from aps_rag_pipeline.sources.wikis.pages import WikiPage, page_record
from aps_rag_pipeline.sources.wikis.uploads import LiveShelf, Upload

_LISTED = "version,ancestors,space,metadata.labels"
_RESTRICTED = "restrictions.read.restrictions.user,restrictions.read.restrictions.group"
_BODY = "body.storage,version,history,space"
#: A person by key, where no name stands beside it.
_MENTION = re.compile(
    r"""<ri:user\b(?![^>]{0,500}ri:username)[^>]{0,500}?ri:(userkey|account-id)=["']([^"'<>]{1,200})["']"""
)


class ConfluenceOptions(Options):
    cloud: bool = Field(False, description="a site of Atlassian's Cloud rather than a server of one's own")
    spaces: tuple[str, ...] = Field((), description="keys of the spaces to read; empty means all but personal ones")
    kinds: tuple[Literal["page", "blogpost"], ...] = Field(("page", "blogpost"), min_length=1)
    attachments: bool = Field(True, description="fetch the pictures that pages show")
    restrictions: bool = Field(True, description="only groups that may view a restricted page get its record")
    groups: dict[str, str] = Field({}, description="Confluence group -> access label; otherwise the group's own name")
    labels: dict[str, str] = Field({}, description="label of a page -> access label of its record")


@dataclass(frozen=True)
class ContentUnit(Listed):
    """A page as it is listed."""

    number: str
    space: str
    record_id: str
    title: str
    parent: str
    tags: tuple[str, ...]
    access: tuple[str, ...] | None
    former: tuple[str, ...]


class ConfluenceScan(Scan[ContentUnit]):
    def __init__(self, feed: Feed, context: SourceContext, memory: Memory, options: ConfluenceOptions) -> None:
        super().__init__(feed, context, memory)
        self.options = options
        from aps_rag_pipeline.sources.wikis.space import Spaces  # requests, httpx: only where a service is asked

        self.site = Spaces(feed, context.network, options.cloud)
        self._expand = f"{_LISTED},{_RESTRICTED}" if options.restrictions else _LISTED
        self._ids: dict[str, str] = {}
        #: Content id → attachments by name, and (space, title) → content id.
        self._attached: dict[str, dict[str, Upload]] = defaultdict(dict)
        self._numbers: dict[tuple[str, str], str] = {}

    def units(self) -> Iterator[ContentUnit | Failure | Ignored]:
        spaces = list(self.options.spaces) or self.site.spaces()
        pages: dict[str, Json] = {}
        refused: list[OutageError] = []
        for space in spaces:
            try:
                found = yield from self._space(space)
                pages.update(found)
            except (GoneError, RefusedError) as error:
                refused.append(error)
                # One space costs what lies in it; if all are refused, it is the sign-in.
                if len(refused) == len(spaces):
                    raise
                remedy = "check options.spaces and what the account may see"
                yield Failure(space, space, f"{self.feed.place} {space}", str(error), remedy)
        self._ids = _record_ids(pages)
        self._numbers = {(_space_of(page), str(page["title"])): number for number, page in pages.items()}
        former = FormerIds(self.memory.notes, self._ids)
        for number, page in pages.items():
            yield self._unit(number, page, pages, former)

    def read(self, unit: ContentUnit) -> Iterator[Upsert | Failure | Ignored]:
        page = self.site.content(unit.number, _BODY)
        storage = page.get("body", {}).get("storage", {}).get("value")
        if not isinstance(storage, str):
            raise OutageError(f"{self.feed.place} {unit.title}: it came without its text")
        shelf = LiveShelf(
            frozenset(self._ids.values()),
            lambda address: self._attachment(unit, address),
            self.site.download,
            unit.name,
            unit.record_id,
            self.context,
            self.memory,
        )
        links = PageLinks(shelf, unit.record_id, "confluence", lambda target: self._target(unit, target))
        found = self._page(unit, page, self._named(clean(storage)))
        place = f"{self.feed.place} {unit.space} {unit.title}"
        yield Upsert(page_record(found, links, self.feed, self.context), unit.name, place)
        yield from shelf.failures.values()

    def gone(self, name: str) -> bool:
        space, _, number = name.rpartition("/")
        try:
            page = self.site.content(number, "space")
        except GoneError:
            return True
        except RefusedError:
            # What this reader may no longer see must not be shown on; other refusals are about the sign-in.
            if self.site.forbids(number):
                return True
            raise
        wanted = self.options.spaces or (space,)
        return _space_of(page) != space or space not in wanted or page.get("type") not in self.options.kinds

    def alive(self) -> bool:
        try:
            self.site.get("rest/api/space", limit=1)
        except OutageError:
            return False
        return True

    def close(self) -> None:
        self.site.close()

    def _space(self, space: str) -> Generator[Failure, None, dict[str, Json]]:
        """The pages of a space by content id."""
        pages: dict[str, Json] = {}
        for page in self.site.contents(space, self.options.kinds, self._expand):
            if str(page.get("status", "current")) != "current":
                continue
            if page.get("id") and page.get("title") and "number" in page.get("version", {}) and _space_of(page):
                pages[str(page["id"])] = page
            else:
                name = f"{space or 'a space'}/{page.get('title') or 'a page without a title'}"
                reason = "it is listed without its id, space or version"
                yield Failure(name, name, f"{self.feed.place} {name}", reason, "look at it in Confluence")
        if self.options.attachments:
            self._list_attachments(space)
        return pages

    def _list_attachments(self, space: str) -> None:
        for found in self.site.attachments(space):
            number = str(found.get("container", {}).get("id", ""))
            version, address = found.get("version", {}).get("number"), found.get("_links", {}).get("download")
            if number and version is not None and address:
                name = str(found["title"])
                self._attached[number][name] = Upload(name, str(address), f"{found['id']} {version}")

    def _unit(self, number: str, page: Json, pages: Mapping[str, Json], former: FormerIds) -> ContentUnit:
        ancestors = [str(found["id"]) for found in page.get("ancestors", ()) if "id" in found]
        parent = self._ids.get(ancestors[-1], "") if ancestors else ""
        tags = tuple(sorted(_names(page.get("metadata", {}).get("labels"))))
        access = self._access(page, pages, tags)
        files = sorted(upload.key for upload in self._attached.get(number, {}).values())
        space, title, record_id = _space_of(page), str(page["title"]), self._ids[number]
        parts = (page["version"]["number"], record_id, title, *ancestors, parent)
        state = digest(*parts, "labels", *tags, "access", access, "files", *files)
        return ContentUnit(
            f"{space}/{number}",
            "" if number in former.losers else state,
            number,
            space,
            record_id,
            title,
            parent,
            tags,
            access,
            former.of(number),
        )

    def _access(self, page: Json, pages: Mapping[str, Json], tags: tuple[str, ...]) -> tuple[str, ...] | None:
        """Who may see a page: its groups of viewers and those of every page above it, else by its labels."""
        if self.options.restrictions:
            above = page.get("ancestors", ())
            chain = [page, *(pages.get(str(found.get("id")), {}) for found in above if found.get("type") != "folder")]
            limits = [limit for found in chain if (limit := self._viewers(found)) is not None]
            if limits:
                return tuple(sorted(frozenset.intersection(*limits)))
        labels = {self.options.labels[tag] for tag in tags if tag in self.options.labels}
        return tuple(sorted(labels)) if labels else None

    def _viewers(self, page: Json) -> frozenset[str] | None:
        """Labels of the groups that may view a page; None where all may. A page above that is not to be seen admits
        nobody, and so does one for single persons only."""
        if not page:
            return frozenset()
        stated = page.get("restrictions", {}).get("read", {}).get("restrictions")
        if not isinstance(stated, dict):
            raise FeedError(
                f"{self.feed.place}: does not say who may view {page.get('title')}; with options.restrictions false "
                "restrictions are left out of account"
            )
        groups, users = _names(stated.get("group")), stated.get("user", {}).get("results", ())
        if not groups and not users:
            return None
        return frozenset(self.options.groups.get(group, group) for group in groups)

    def _page(self, unit: ContentUnit, page: Json, text: str) -> WikiPage:
        history, version = page.get("history", {}), page.get("version", {})
        links = page.get("_links", {})
        webui = str(links.get("webui", ""))
        return WikiPage(
            id=unit.record_id,
            text=text,
            markup="confluence",
            title=unit.title,
            titled=True,
            author=str(history.get("createdBy", {}).get("displayName", "")),
            created_at=parse_time(str(history.get("createdDate", "")), self.context.zone),
            modified_at=parse_time(str(version.get("when", "")), self.context.zone),
            url=f"{links.get('base', self.site.url)}{webui}" if webui else "",
            tags=unit.tags,
            former_ids=unit.former,
            links=(Link("parent", unit.parent),) if unit.parent else (),
            access=unit.access,
        )

    def _named(self, text: str) -> str:
        """The text with names for the people whom it mentions by key."""
        known: dict[str, str] = self.memory.notes.setdefault("people", {})

        def name(match: re.Match[str]) -> str:
            kind, key = match.groups()
            if key not in known:
                known[key] = self.site.user({"key" if kind == "userkey" else "accountId": key})
            return f'{match[0]} ri:username="{escape(known[key])}"' if known[key] else match[0]

        return _MENTION.sub(name, text)

    def _target(self, unit: ContentUnit, target: str) -> str:
        """The id of the page that a link means: `<space>/<title>`, without the space within its own."""
        stated, _, title = target.partition("/")
        space = stated or unit.space
        number = self._numbers.get((space, title))
        return self._ids[number] if number is not None else _plain_id(space, title)

    def _attachment(self, unit: ContentUnit, address: str) -> Upload | None:
        owner, caret, name = address.rpartition("^")
        number: str | None = unit.number
        if caret:
            space, _, title = owner.partition("/")
            number = self._numbers.get((space or unit.space, title))
        return self._attached.get(number or "", {}).get(name)


def _space_of(page: Json) -> str:
    return str(page.get("space", {}).get("key", ""))


def _names(found: Any) -> list[str]:
    results = found.get("results", ()) if isinstance(found, dict) else ()
    return [str(item["name"]) for item in results if isinstance(item, dict) and item.get("name")]


def _plain_id(space: str, title: str) -> str:
    return f"{space}/{'_'.join(title.split())}"


def _record_ids(pages: Mapping[str, Json]) -> dict[str, str]:
    """Content id → record id. Of pages whose titles give the same, the oldest has it; the others add their number."""
    ids: dict[str, str] = {}
    taken: set[str] = set()
    for number in sorted(pages, key=lambda number: (len(number), number)):
        plain = _plain_id(_space_of(pages[number]), str(pages[number]["title"]))
        ids[number] = f"{plain}~{number}" if plain in taken else plain
        taken.add(ids[number])
    return ids


class Confluence(LiveSource[ContentUnit]):
    """Pages of a Confluence. What `options` may hold is in `ConfluenceOptions`."""

    key: ClassVar[str] = "wiki"

    def scan(self, memory: Memory) -> ConfluenceScan:
        return ConfluenceScan(self.feed, self.context, memory, read_options(self.feed, ConfluenceOptions))
