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
from typing import Any, ClassVar, Literal, TypeGuard

from pydantic import Field

from aps_rag_pipeline.content.dates import parse_time
from aps_rag_pipeline.content.text import clean
from aps_rag_pipeline.records import Link
from aps_rag_pipeline.settings import Feed
from aps_rag_pipeline.sources.base import Failure, Ignored, SourceContext, Upsert
from aps_rag_pipeline.sources.former_ids import FormerIds
from aps_rag_pipeline.sources.live import Listed, LiveSource, Memory, Scan, digest
from aps_rag_pipeline.sources.net.errors import GoneError, OutageError, RefusedError
from aps_rag_pipeline.sources.options import Options, http_url, read_options
from aps_rag_pipeline.sources.wikilinks import PageLinks
from aps_rag_pipeline.sources.wikis.naming import Json, listed
from aps_rag_pipeline.sources.wikis.pages import WikiPage, page_record
from aps_rag_pipeline.sources.wikis.uploads import LiveShelf, Upload
from aps_rag_pipeline.sources.wikis.viewers import ODD, UntoldError, Viewers

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
    open_folders: bool = Field(False, description="folders of the Cloud are not restricted, which it does not tell")
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
        self._viewers = Viewers(feed.place, options.groups, options.open_folders, self.site.readers)
        self._ids: dict[str, str] = {}
        self._taken: frozenset[str] = frozenset()
        #: Content id → attachments by name, and (space, title) → content id.
        self._attached: dict[str, dict[str, Upload]] = defaultdict(dict)
        self._numbers: dict[tuple[str, str], str] = {}

    def units(self) -> Iterator[ContentUnit | Failure | Ignored]:
        spaces = list(self.options.spaces) or self.site.spaces()
        before: dict[str, str] = self.memory.notes.get("ids", {})
        pages: dict[str, Json] = {}
        odd: set[str] = set()
        refused: list[str] = []
        for space in spaces:
            try:
                found = yield from self._space(space, before, odd)
                pages.update(found)
            except (GoneError, RefusedError) as error:
                refused.append(space)
                # One space costs what lies in it; if all are refused, it is the sign-in.
                if len(refused) == len(spaces):
                    raise
                remedy = "check options.spaces and what the account may see"
                yield Failure(space, space, f"{self.feed.place} {space}", str(error), remedy)
        # What is there but could not be listed keeps its id, and what is known of it.
        kept = {n: name for n, name in before.items() if n in odd or name.partition("/")[0] in refused}
        self._ids = _record_ids(pages, {n: name for n, name in kept.items() if n not in pages})
        self._taken = frozenset(self._ids.values())
        self._numbers = {(_space_of(page), str(page["title"])): number for number, page in pages.items()}
        served: dict[str, str] = self.memory.notes.get("served", {})
        self.memory.notes["served"] = {number: name for number, name in served.items() if number in self._ids}
        former = FormerIds(self.memory.notes, self._ids)
        untold: list[UntoldError] = []
        for number, page in pages.items():
            try:
                yield self._unit(number, page, pages, odd, former)
            except UntoldError as error:
                untold.append(error)
                if len(untold) == len(pages):
                    raise
                yield self._not_understood(f"{_space_of(page)}/{number}", page, str(error))
            except ODD as error:
                reason = f"it is listed in an unexpected shape ({type(error).__name__}: {error})"
                yield self._not_understood(f"{_space_of(page)}/{number}", page, reason)
        yield from self._viewers.failures

    def read(self, unit: ContentUnit) -> Iterator[Upsert | Failure | Ignored]:
        page = self.site.content(unit.number, _BODY)
        storage = _at(page, "body", "storage", "value")
        if not isinstance(storage, str):
            raise OutageError(f"{self.feed.place} {unit.title}: it came without its text")
        shelf = LiveShelf(
            self._taken,
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
        self.memory.notes["served"][unit.number] = unit.record_id
        yield from shelf.failures.values()

    def labels(self, unit: ContentUnit) -> tuple[str, tuple[str, ...]] | None:
        """Of the record that is served, whose id may be one that the page no longer has. Without restrictions the
        page's own text has a say too."""
        if unit.access is None:
            return None
        served = str(self.memory.notes["served"].get(unit.number, unit.record_id))
        return (unit.record_id if served in self._taken else served), unit.access

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
        found, kind = _space_of(page), page.get("type")
        if not found or not isinstance(kind, str) or not kind:
            raise OutageError(f"{self.site.url}: content {number} came without its space or type")
        return found != space or space not in (self.options.spaces or (space,)) or kind not in self.options.kinds

    def alive(self) -> bool:
        try:
            self.site.get("rest/api/space", limit=1)
        except OutageError:
            return False
        return True

    def close(self) -> None:
        self.site.close()

    def _space(self, space: str, before: Mapping[str, str], odd: set[str]) -> Generator[Failure, None, dict[str, Json]]:
        """The pages of a space by content id. Those that cannot be told from their listing are added to `odd`."""
        pages: dict[str, Json] = {}
        for page in self.site.contents(space, self.options.kinds, self._expand):
            if str(page.get("status", "current")) != "current":
                continue
            number = str(page.get("id") or "")
            if (
                number
                and _space_of(page)
                and _is_text(page.get("title"))
                and _at(page, "version", "number") is not None
            ):
                pages[number] = page
                continue
            odd.add(number)
            where = _space_of(page) or space or before.get(number, "").partition("/")[0] or "a space"
            name = f"{where}/{number or page.get('title') or 'a page without a title'}"
            yield self._not_understood(name, page, "it is listed without its id, space, title or version")
        if self.options.attachments:
            yield from self._list_attachments(space)
        return pages

    def _not_understood(self, name: str, page: Json, reason: str) -> Failure:
        return Failure(name, name, f"{self.feed.place} {page.get('title') or name}", reason, "look at it in Confluence")

    def _list_attachments(self, space: str) -> Iterator[Failure]:
        for found in self.site.attachments(space):
            number, version = _at(found, "container", "id"), _at(found, "version", "number")
            address, name = _at(found, "_links", "download"), found.get("title")
            if not (number and version is not None and address):
                continue
            if _is_text(address) and _is_text(name):
                self._attached[str(number)][name] = Upload(name, address, f"{found.get('id')} {version}")
            else:
                item = f"{space or 'attachments'}/{found.get('id')}"
                yield self._not_understood(item, found, "an attachment is listed without its name or address")

    def _unit(
        self, number: str, page: Json, pages: Mapping[str, Json], odd: set[str], former: FormerIds
    ) -> ContentUnit:
        ancestors = [str(found["id"]) for found in listed(page.get("ancestors", [])) if "id" in found]
        parent = self._ids.get(ancestors[-1], "") if ancestors else ""
        labels = page.get("metadata", {}).get("labels", {}).get("results", [])
        tags = tuple(sorted(label["name"] for label in listed(labels) if _is_text(label.get("name"))))
        access = self._access(page, pages, odd, tags)
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

    def _access(
        self, page: Json, pages: Mapping[str, Json], odd: set[str], tags: tuple[str, ...]
    ) -> tuple[str, ...] | None:
        """Who may see a page: those who may view it in Confluence, else by its labels."""
        viewers = self._viewers.of(page, pages, odd) if self.options.restrictions else None
        if viewers is not None:
            return tuple(sorted(viewers))
        labels = {self.options.labels[tag] for tag in tags if tag in self.options.labels}
        return tuple(sorted(labels)) if labels else None

    def _page(self, unit: ContentUnit, page: Json, text: str) -> WikiPage:
        webui = _text_at(page, "_links", "webui")
        return WikiPage(
            id=unit.record_id,
            text=text,
            markup="confluence",
            title=unit.title,
            titled=True,
            author=_text_at(page, "history", "createdBy", "displayName"),
            created_at=parse_time(_text_at(page, "history", "createdDate"), self.context.zone),
            modified_at=parse_time(_text_at(page, "version", "when"), self.context.zone),
            url=f"{_text_at(page, '_links', 'base') or self.site.url}{webui}" if webui else "",
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


def _at(found: Any, *names: str) -> Any:
    """What lies below these names; None where something on the way is not there or no object."""
    for name in names:
        found = found.get(name) if isinstance(found, dict) else None
    return found


def _text_at(found: Any, *names: str) -> str:
    value = _at(found, *names)
    return value if isinstance(value, str) else ""


def _is_text(value: Any) -> TypeGuard[str]:
    return isinstance(value, str) and bool(value)


def _space_of(page: Json) -> str:
    return _text_at(page, "space", "key")


def _plain_id(space: str, title: str) -> str:
    return f"{space}/{'_'.join(title.split())}"


def _record_ids(pages: Mapping[str, Json], kept: Mapping[str, str]) -> dict[str, str]:
    """Content id → record id. Of pages whose titles give the same, the oldest has it; the others add their number.
    `kept` are ids that stay as they are."""
    ids = dict(kept)
    taken = set(kept.values())
    for number in sorted(pages, key=lambda number: (len(number), number)):
        plain = _plain_id(_space_of(pages[number]), str(pages[number]["title"]))
        ids[number] = f"{plain}~{number}" if plain in taken else plain
        taken.add(ids[number])
    return ids


class Confluence(LiveSource[ContentUnit]):
    """Pages of a Confluence. What `options` may hold is in `ConfluenceOptions`."""

    key: ClassVar[str] = "wiki"

    def scan(self, memory: Memory) -> ConfluenceScan:
        http_url(self.feed, "a Confluence")
        return ConfluenceScan(self.feed, self.context, memory, read_options(self.feed, ConfluenceOptions))
