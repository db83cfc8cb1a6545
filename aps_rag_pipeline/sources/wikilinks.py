"""Where the links and pictures of a wiki page lead, by the rules of its markup."""

from __future__ import annotations

import hashlib
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from urllib.parse import quote, unquote

from aps_rag_pipeline.content.assembly import Picture
from aps_rag_pipeline.content.pages import Target
from aps_rag_pipeline.records import Link
from aps_rag_pipeline.sources.base import SourceContext, UnreadableError
from aps_rag_pipeline.sources.companions import companion, media_type, read_companion

#: Endings of pages -> their markup, in the order in which the first of two pages of one name has the bare id.
MARKUPS: dict[str, str] = {
    ".md": "markdown",
    ".markdown": "markdown",
    ".html": "html",
    ".htm": "html",
    ".rst": "rest",
    ".rest": "rest",
    ".wiki": "mediawiki",
    ".mediawiki": "mediawiki",
    ".mw": "mediawiki",
    ".dokuwiki": "dokuwiki",
    ".txt": "dokuwiki",
}
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)
_FETCHED = ("http://", "https://", "ftp://", "mailto:")
_DOKUWIKI_UNCLEAN = re.compile(r"[^\w./-]+")


def page_id(name: str) -> str:
    """The id of a page: its path without the ending."""
    stem, ending = posixpath.splitext(name)
    return stem if ending.lower() in MARKUPS else name


class Shelf(Protocol):
    """Where the pages and pictures of a wiki lie."""

    def first_page(self, candidates: Iterable[str]) -> str:
        """The first id that is a page's; empty where none is."""
        ...

    def picture(self, address: str, places: Iterator[str]) -> Picture | None:
        """The picture at the first place that holds one. `address` is what the page says."""
        ...


@dataclass(frozen=True)
class Folder:
    """A shelf of files."""

    root: Path
    context: SourceContext

    def first_page(self, candidates: Iterable[str]) -> str:
        for candidate in candidates:
            names = (self.root / f"{candidate}{ending}" for ending in MARKUPS)
            if candidate and companion(self.root, names) is not None:
                return candidate
        return ""

    def picture(self, address: str, places: Iterator[str]) -> Picture | None:
        if "://" in address or "\x00" in address:
            return None
        path = companion(self.root, (self.root / place for place in places))
        if path is None:
            return None
        try:
            data = read_companion(path, self.context)
        except UnreadableError:
            return None  # the page is worth having without it
        kind = media_type(path.name, data)
        return Picture(path.name, data, kind) if kind.startswith("image/") else None


@dataclass(frozen=True)
class PageLinks:
    """Resolves addresses in one page. `name` is the page's path on the shelf.

    Where pages are called by title and not by path, `titled` gives the id of the page that a title names.
    """

    shelf: Shelf
    name: str
    markup: str
    titled: Callable[[str], str] | None = None

    def link(self, target: Target) -> Link | None:
        """A typed link; None for a place inside the page itself."""
        address = target.address
        if address.lower().startswith(_FETCHED):
            return Link("url", address, target.text)
        kind, colon, rest = address.partition(":")
        if colon and kind == "wiki":
            return self._page(self._named_pages(unquote(rest.partition("#")[0])), target.text)
        if colon and kind == "media":
            return Link("file", self._media_path(rest), target.text)
        if _SCHEME.match(address) or address.startswith("//"):
            return Link("url", address, target.text)
        path = unquote(address.partition("#")[0].partition("?")[0])
        return self._relative(path, target.text) if path else None

    def find_picture(self, address: str) -> Picture | None:
        """The picture behind an address, where the wiki itself holds it."""
        address = address.removeprefix("media:") if self.markup not in ("html", "markdown", "rest") else address
        return self.shelf.picture(address, self._media_places(address))

    @property
    def _folder(self) -> str:
        return posixpath.dirname(self.name)

    def _relative(self, path: str, text: str) -> Link | None:
        _, ending = posixpath.splitext(path.rstrip("/"))
        places = list(self._places(path.rstrip("/")))
        if ending.lower() in MARKUPS:
            return self._page([page_id(place) for place in places], text)
        pages = [found for place in places for found in (place, f"{place}/index", f"{place}/README")]
        if self.shelf.first_page(pages) or not ending:
            return self._page(pages, text)
        return Link("file", places[0] if places else path, text)

    def _places(self, path: str) -> Iterator[str]:
        """Paths below the root that a relative one may mean; an absolute one begins at any folder above the page."""
        if not path.startswith("/"):
            yield from _inside(posixpath.join(self._folder, path))
            return
        folder = self._folder
        while True:
            yield from _inside(posixpath.join(folder, path.lstrip("/")))
            if not folder:
                return
            folder = posixpath.dirname(folder)

    def _page(self, candidates: list[str], text: str) -> Link | None:
        """A link to the first candidate that exists, else to the first: a page that is still to be written."""
        if not candidates:
            return None
        return Link("wiki", self.shelf.first_page(candidates) or candidates[0], text)

    def _named_pages(self, target: str) -> list[str]:
        target = target.strip()
        if self.titled is not None:
            named = self.titled(target)
            return [named] if named else []
        if self.markup == "dokuwiki":
            return self._dokuwiki_pages(target)
        if self.markup == "mediawiki":
            return self._mediawiki_pages(target)
        return [page_id(place) for place in self._places(target)]

    def _base(self) -> str:
        """The folder of the pages of a DokuWiki installation, with a slash; empty where the feed is that folder."""
        match = re.match(r"(.*?/)?pages/", self.name)
        return match[0] if match else ""

    def _dokuwiki_path(self, target: str, base: str) -> str:
        target = target.replace("/", ":")
        here = posixpath.dirname(self.name.removeprefix(self._base()))
        if target.startswith(":") or (":" in target and not target.startswith(".")):
            here = ""
        while target.startswith(".."):
            here, target = posixpath.dirname(here), target[2:].lstrip(":")
        path = target.removeprefix(".").strip(":").replace(":", "/")
        return posixpath.join(base, here, path)

    def _dokuwiki_pages(self, target: str) -> list[str]:
        start = target.endswith((":", "/"))
        path = self._dokuwiki_path(target, self._base())
        clean = _DOKUWIKI_UNCLEAN.sub("_", path.lower()).strip("_")
        last = posixpath.basename(clean)
        spellings = [clean, quote(clean), path]
        if start:
            spellings = [f"{clean}/start", f"{clean}/{last}", clean]
        return [found for place in (*spellings, f"{clean}/start", f"{clean}/{last}") for found in _inside(place)]

    def _mediawiki_pages(self, target: str) -> list[str]:
        title = "_".join(target.split())
        title = title[:1].upper() + title[1:]
        spellings = (title, title.replace("_", " "), title.replace(":", "/"), title.lower())
        folders = dict.fromkeys((self._folder, ""))
        return [found for name in spellings for folder in folders for found in _inside(posixpath.join(folder, name))]

    def _media_path(self, name: str) -> str:
        return next(iter(self._media_places(name)), name)

    def _media_places(self, address: str) -> Iterator[str]:
        path = unquote(address.partition("#")[0].partition("?")[0]).strip()
        if self.markup == "dokuwiki":
            base = self._base().removesuffix("pages/")
            spelled = self._dokuwiki_path(path, "")
            for name in dict.fromkeys((spelled, spelled.lower())):
                yield from _inside(posixpath.join(base, "media", name))
                yield from _inside(name)
            yield from _inside(posixpath.join(self._folder, path.rsplit(":", 1)[-1]))
        elif self.markup == "mediawiki":
            name = "_".join(path.split())
            name = name[:1].upper() + name[1:]
            # MediaWiki files uploads under the first digits of the MD5 of their name.
            digest = hashlib.md5(name.encode(), usedforsecurity=False).hexdigest()
            for folder in ("images", f"images/{digest[0]}/{digest[:2]}", self._folder, f"{self._folder}/images", ""):
                yield from _inside(posixpath.join(folder, name))
                yield from _inside(posixpath.join(folder, path))
        else:
            yield from self._places(path)


def _inside(path: str) -> Iterator[str]:
    """A path in its plain form, unless it leads out of the root."""
    plain = posixpath.normpath(path)
    if plain != "." and not plain.startswith(("../", "/")) and plain != "..":
        yield plain
