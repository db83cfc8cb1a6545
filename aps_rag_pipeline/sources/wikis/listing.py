"""What a MediaWiki lists: pages with their revision, redirects, and which page shows which upload."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from aps_rag_pipeline.sources.base import Failure
from aps_rag_pipeline.sources.wikis.naming import Json
from aps_rag_pipeline.sources.wikis.uploads import Upload

if TYPE_CHECKING:
    from aps_rag_pipeline.sources.wikis.site import Site


def title_id(title: str) -> str:
    """The id of a title: underscores for spaces, as in the wiki's own addresses and in file names."""
    return "_".join(title.split())


@dataclass
class Listing:
    """The wiki at the time of the scan, by page id. Redirects are no pages of their own."""

    pages: dict[str, Json] = field(default_factory=dict)
    redirects: dict[str, Json] = field(default_factory=dict)
    #: Id of a redirect → the title it leads to.
    leads_to: dict[str, str] = field(default_factory=dict)
    uploads: dict[str, Upload] = field(default_factory=dict)
    shown: dict[str, set[str]] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)

    def aliases(self) -> dict[str, set[str]]:
        """Page id → ids of the redirects that lead to it, by way of others too."""
        target_of = {title_id(self.redirects[i]["title"]): title_id(t) for i, t in self.leads_to.items()}
        pages = {title_id(page["title"]): number for number, page in self.pages.items()}
        found: dict[str, set[str]] = {}
        for start in target_of:
            seen, at = {start}, target_of[start]
            while at in target_of and at not in seen:
                seen.add(at)
                at = target_of[at]
            if at in pages:
                found.setdefault(pages[at], set()).update(seen)
        return found

    def uploads_of(self, number: str) -> list[Upload]:
        """The uploads that a page shows, by name; those of another repository are not known here."""
        return [self.uploads[name] for name in sorted(self.shown.get(number, ())) if name in self.uploads]


def list_wiki(site: Site, namespaces: tuple[int, ...], pictures: bool) -> Listing:
    """Ask for everything but the texts. A page that is listed in an odd way is a failure of its own.

    Raises:
        OutageError: part of it cannot be had.
    """
    listing = Listing()
    for namespace in namespaces:
        _list_pages(site, namespace, listing)
    for namespace in namespaces:
        known = {"arnamespace": namespace, "arprop": "ids|title", "arlimit": "max"}
        for item in _items(site, "allredirects", ("fromid", "title"), **known):
            if str(item["fromid"]) in listing.redirects:
                listing.leads_to[str(item["fromid"])] = str(item["title"])
    if pictures:
        _list_uploads(site, listing)
    return listing


def _list_pages(site: Site, namespace: int, listing: Listing) -> None:
    # The properties of a page may come in pieces, a reply at a time.
    pages: dict[str, Json] = {}
    strange: list[tuple[Json, str]] = []
    for said in site.pages_of(generator="allpages", gapnamespace=namespace, gaplimit="max", prop="info"):
        for page in values(said.get("pages")):
            if isinstance(page.get("pageid"), int):
                pages.setdefault(str(page["pageid"]), {}).update(page)
            else:
                strange.append((page, f"without a page id ({page.get('invalidreason', 'no reason given')})"))
    for number, page in pages.items():
        if not isinstance(page.get("title"), str) or not page["title"]:
            strange.append((page, "without its title"))
        elif "redirect" in page:
            listing.redirects[number] = page
        elif not isinstance(page.get("lastrevid"), int):
            strange.append((page, "without its revision"))
        else:
            listing.pages[number] = page
    for page, lack in strange:
        shown = str(page.get("title") or "a page without a title")
        name = str(page.get("pageid") or shown)
        reason = f"the wiki lists it {lack}"
        listing.failures.append(Failure(name, name, f"{site.api} {shown}", reason, "look at it in the wiki"))


def _list_uploads(site: Site, listing: Listing) -> None:
    for item in _items(site, "allfileusages", ("fromid", "title"), afprop="ids|title", aflimit="max"):
        if str(item["fromid"]) in listing.pages:
            name = title_id(str(item["title"]).partition(":")[2])
            listing.shown.setdefault(str(item["fromid"]), set()).add(name)
    if listing.shown:
        for item in _items(site, "allimages", ("name", "url", "sha1"), aiprop="url|sha1", ailimit="max"):
            name, sha1 = title_id(str(item["name"])), str(item["sha1"])
            listing.uploads[name] = Upload(name, str(item["url"]), f"{name} {sha1}", sha1)


def _items(site: Site, name: str, needed: tuple[str, ...], **params: Any) -> Iterator[Json]:
    """Items of a list that have what is needed; those that lack it are hidden from this reader."""
    for said in site.pages_of(list=name, **params):
        yield from (item for item in values(said.get(name)) if all(key in item for key in needed))


def values(found: Any) -> list[Json]:
    values = list(found.values()) if isinstance(found, dict) else found if isinstance(found, list) else []
    return [value for value in values if isinstance(value, dict)]
