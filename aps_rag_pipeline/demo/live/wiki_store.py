"""What a MediaWiki keeps: pages with their revisions, the log, recent changes, uploads, what was deleted."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

Json = dict[str, Any]

#: The account that imports files.
IMPORTER = "Maintenance script"


@dataclass(frozen=True)
class Revision:
    id: int
    text: str
    user: str
    time: datetime
    model: str = "wikitext"
    hidden: bool = False


@dataclass
class Page:
    id: int
    title: str
    revisions: list[Revision]
    redirect: str = ""

    @property
    def latest(self) -> Revision:
        return self.revisions[-1]


@dataclass(frozen=True)
class StoredFile:
    """An upload in its latest version."""

    name: str
    data: bytes
    time: datetime

    @property
    def sha1(self) -> str:
        return hashlib.sha1(self.data, usedforsecurity=False).hexdigest()


@dataclass
class WikiStore:
    """A wiki in memory. `now` is the server's clock and may be set to any time.

    `anonymous_may_read` false makes the wiki private; `users` are bot passwords by name. `lag` is the database's, in
    seconds. `reply_chars` is the size above which a reply is cut into several ($wgAPIMaxResultSize).
    """

    case_sensitive: bool = False
    namespaces: dict[int, str] = field(default_factory=lambda: {0: "", 6: "File", 10: "Template", 12: "Help", 14: "C"})
    users: dict[str, str] = field(default_factory=dict)
    anonymous_may_read: bool = True
    lag: float = 0
    reply_chars: int = 8_000_000
    limit: int = 500
    now: datetime = datetime(2025, 11, 1, 12, tzinfo=UTC)
    pages: dict[int, Page] = field(default_factory=dict)
    archive: dict[str, Page] = field(default_factory=dict)
    files: dict[str, StoredFile] = field(default_factory=dict)
    changes: list[Json] = field(default_factory=list)
    log: list[Json] = field(default_factory=list)
    edits: int = 0
    _by_title: dict[str, int] = field(default_factory=dict)
    _page: int = 0
    _revision: int = 0
    _change: int = 0
    _entry: int = 0

    def number_from(self, first: int) -> None:
        """Give the numbers of changes and log entries above `first`."""
        self._change = self._entry = self.edits = first

    def find(self, title: str) -> Page | None:
        return self.pages.get(self._by_title.get(self.normal(title), -1))

    def normal(self, title: str) -> str:
        """A title as the wiki shows it."""
        spaced = " ".join(title.replace("_", " ").split())
        space, colon, name = spaced.partition(":")
        known = next((shown for shown in self.namespaces.values() if shown and shown.lower() == space.lower()), None)
        if colon and known:
            return f"{known}:{self._capital(name.strip())}"
        return self._capital(spaced)

    def namespace(self, title: str) -> int:
        space, colon, _ = title.partition(":")
        return next((n for n, shown in self.namespaces.items() if colon and shown == space), 0)

    def edit(
        self,
        title: str,
        text: str,
        *,
        user: str = IMPORTER,
        model: str | None = None,
        page_id: int | None = None,
        revision_id: int | None = None,
        redirect: str = "",
    ) -> Page:
        """Save a page; a new one unless the title is taken. Ids may be given, for an import."""
        page = self.find(title)
        new = page is None
        if page is None:
            self._page = max(self._page, page_id or 0) + (page_id is None)
            page = Page(page_id or self._page, self.normal(title), [])
            self._place(page)
        self._revision = max(self._revision, revision_id or 0) + (revision_id is None)
        model = model or (page.latest.model if page.revisions else "wikitext")
        # The wiki drops white space at the end of a text before it saves it.
        page.revisions.append(
            Revision(revision_id or self._revision, text.replace("\r\n", "\n").rstrip(), user, self.now, model)
        )
        page.redirect = redirect
        self.edits += 1
        self._changed("new" if new else "edit", page, page.latest.id)
        return page

    def delete(self, title: str, *, user: str = IMPORTER) -> None:
        page = self.find(title)
        assert page is not None, title
        del self.pages[page.id], self._by_title[page.title]
        self.archive[page.title] = page
        self._logged("delete", "delete", page)

    def restore(self, title: str, *, user: str = IMPORTER) -> None:
        page = self.archive.pop(self.normal(title))
        self._place(page)
        self._logged("delete", "restore", page)

    def move(self, old: str, new: str, *, leave_redirect: bool = True, user: str = IMPORTER) -> None:
        """The page keeps its id and gets an empty revision; the old title becomes a redirect with an id of its own."""
        page = self.find(old)
        assert page is not None, old
        assert self.find(new) is None, new
        was = page.title
        del self._by_title[was]
        page.title = self.normal(new)
        self._place(page)
        self._revision += 1
        last = page.latest
        page.revisions.append(Revision(self._revision, last.text, user, self.now, last.model))
        self.edits += 1
        self._logged("move", "move" if leave_redirect else "move_redir", page, {"target_title": page.title})
        if leave_redirect:
            self.edit(was, f"#REDIRECT [[{page.title}]]", user=user, redirect=page.title, model="wikitext")

    def upload(self, name: str, data: bytes) -> None:
        name = self._capital(name.replace(" ", "_"))
        again = name in self.files
        self.files[name] = StoredFile(name, data, self.now)
        self._entry += 1
        self.log.append({"logid": self._entry, "type": "upload", "action": "overwrite" if again else "upload"})
        self._change += 1
        self.changes.append({"type": "log", "rcid": self._change, "time": self.now})

    def _place(self, page: Page) -> None:
        self.pages[page.id] = page
        self._by_title[page.title] = page.id

    def _capital(self, title: str) -> str:
        return title if self.case_sensitive else title[:1].upper() + title[1:]

    def _changed(self, kind: str, page: Page, revision: int) -> None:
        self._change += 1
        self.changes.append(
            {"type": kind, "rcid": self._change, "pageid": page.id, "revid": revision, "time": self.now}
        )

    def _logged(self, kind: str, action: str, page: Page, params: Json | None = None) -> None:
        self._entry += 1
        self.log.append(
            {"logid": self._entry, "type": kind, "action": action, "title": page.title, "params": params or {}}
            | {"time": self.now, "pageid": page.id if action != "delete" else 0}
        )
        self._changed("log", page, 0)
