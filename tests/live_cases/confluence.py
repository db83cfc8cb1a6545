"""A Confluence Data Center server below a context path, or a Cloud site that has the search, and single pages by
version 2 of its interface."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from werkzeug import Request, Response

Json = dict[str, Any]


@dataclass
class Attached:
    id: str
    version: int
    data: bytes


@dataclass
class Content:
    id: int
    space: str
    title: str
    storage: str
    kind: str = "page"
    version: int = 1
    status: str = "current"
    parent: int = 0
    labels: list[str] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)
    users: list[str] = field(default_factory=list)
    files: dict[str, Attached] = field(default_factory=dict)


class Confluence:
    """`most` is the limit that the server lowers every other to. `hidden` pages are filtered out of the listing's pages
    after these have been cut, and answer 404; `forbidden` ones answer 403; those `unindexed` no search finds.
    Pages of kind `folder` are in no listing, and without `tells_folders` nothing is said of their restrictions."""

    context = "/confluence"

    def __init__(self, cloud: bool = False, most: int = 100) -> None:
        self.cloud, self.most = cloud, most
        self.context = "/wiki" if cloud else "/confluence"
        self.now = datetime(2025, 11, 1, 12, tzinfo=UTC)
        self.pages: dict[int, Content] = {}
        self.hidden: set[int] = set()
        self.forbidden: set[int] = set()
        self.unindexed: set[int] = set()
        self.tells_folders = False
        self.authorization = ""
        self.people = {"8a7f808": "Kavya Rao"}
        self._next = 1000

    def number(self) -> int:
        self._next += 1
        return self._next

    def page(self, space: str, title: str, storage: str, **more: Any) -> Content:
        """Create a page, or save a new version of the current one of this title."""
        self.now -= timedelta(minutes=7)  # a clock that goes backwards
        page = self.find(space, title)
        if page is None:
            page = Content(self.number(), space, title, storage, **more)
            self.pages[page.id] = page
        else:
            page.storage, page.version = storage, page.version + 1
        return page

    def find(self, space: str, title: str) -> Content | None:
        found = (p for p in self.pages.values() if (p.space, p.title, p.status) == (space, title, "current"))
        return next(found, None)

    def attach(self, page: Content, name: str, data: bytes) -> None:
        """A new version of an attachment, which leaves the page's own version alone."""
        known = page.files.get(name)
        page.files[name] = Attached(
            known.id if known else f"att{self.number()}", known.version + 1 if known else 1, data
        )

    def __call__(self, environ: Any, start_response: Callable[..., Any]) -> Any:
        request = Request(environ)
        return self._answer(request)(environ, start_response)

    def _answer(self, request: Request) -> Response:
        if self.authorization and request.headers.get("Authorization") != self.authorization:
            return Response("<html><title>Unauthorized (401)</title></html>", 401, mimetype="text/html")
        path = request.path.removeprefix(self.context)
        if path.startswith("/download/attachments/"):
            return self._download(path)
        if path == "/rest/api/content/search":
            return self._search(request)
        if path == "/rest/api/user":
            name = self.people.get(request.args.get("key") or request.args.get("accountId") or "")
            return _json({"type": "known", "displayName": name}) if name else _error(404, "No user found")
        if found := re.fullmatch(r"/rest/api/content/(\d+)/restriction/byOperation/read", path):
            return self._restriction(int(found[1]))
        if self.cloud and (found := re.fullmatch(r"/api/v2/(page|blogpost)s/(\d+)", path)):
            return self._version_2(found[1], int(found[2]))
        if self.cloud:
            return _error(410, "This deprecated endpoint has been removed.")
        if path == "/rest/api/space":
            keys = sorted({page.space for page in self.pages.values()})
            return self._listing(request, [{"key": k, "type": "global"} for k in keys if not k.startswith("~")])
        if path == "/rest/api/content":
            return self._contents(request)
        if found := re.fullmatch(r"/rest/api/content/(\d+)", path):
            return self._content(request, int(found[1]))
        return Response("<html><title>Not Found</title></html>", 404, mimetype="text/html")

    def _contents(self, request: Request) -> Response:
        space, status = request.args.get("spaceKey", ""), request.args.get("status", "current")
        if space not in {page.space for page in self.pages.values()}:
            return _error(404, f"No space with key : {space}")
        kind = request.args.get("type", "page")
        here = [
            p for p in self.pages.values() if p.space == space and p.kind == kind and p.status in (status, "archived")
        ]
        return self._listing(request, [self._described(page, request) for page in here])

    def _content(self, request: Request, number: int) -> Response:
        page = self.pages.get(number)
        if number in self.forbidden:
            return _error(403, "User not permitted to view page")
        if page is None or number in self.hidden or page.status != request.args.get("status", "current"):
            return _error(404, f"No content found with id: ContentId{{id={number}}}")
        return _json({**self._described(page, request), "_links": self._links(page, alone=True)})

    def _restriction(self, number: int) -> Response:
        page = self.pages.get(number)
        if page is None or number in self.forbidden:
            return _error(404, f"No content found with id: ContentId{{id={number}}}")
        told = page.kind != "folder" or self.tells_folders
        return _json(_restricted(page.groups if told else [], page.users if told else []))

    def _version_2(self, kind: str, number: int) -> Response:
        page = self.pages.get(number)
        if page is None or page.kind != kind or number in self.hidden | self.forbidden or page.status == "trashed":
            told = {"status": 404, "code": "NOT_FOUND", "title": "Not Found", "detail": None}
            return _json({"errors": [told]}, 404)
        return _json({"id": str(page.id), "status": page.status, "title": page.title, "spaceId": "98307"})

    def _search(self, request: Request) -> Response:
        cql = request.args.get("cql", "")
        space = re.search(r'space = "([^"]+)"', cql)
        unseen = self.forbidden | self.unindexed
        here = [p for p in self.pages.values() if p.status == "current" and p.id not in unseen]
        here = [p for p in here if space is None or p.space == space[1]]
        if found := re.fullmatch(r"id = (\d+)", cql):
            here = [page for page in here if page.id == int(found[1]) and page.id not in self.hidden]
        if "space.type = global" in cql:
            here = [page for page in here if not page.space.startswith("~")]
        if cql.startswith("type = attachment"):
            rows = [self._attachment(page, name) for page in here for name in page.files]
        else:
            kinds = re.search(r"type in \(([^)]*)\)", cql)
            wanted = kinds[1].split(", ") if kinds else ["page", "blogpost"]
            rows = [self._described(page, request) for page in here if page.kind in wanted]
        return self._listing(request, rows)

    def _listing(self, request: Request, rows: list[Json]) -> Response:
        limit = min(int(request.args.get("limit", "25")), self.most)
        start = int(request.args.get("cursor", "").removeprefix("at-") or request.args.get("start", "0"))
        # Pages that this reader may not see are taken out after the page has been cut.
        hidden = {str(number) for number in self.hidden}
        shown = [row for row in rows[start : start + limit] if row.get("id") not in hidden]
        links: Json = {"base": request.host_url.rstrip("/") + self.context, "context": self.context}
        if start + limit < len(rows):
            going_on = {"cursor": f"at-{start + limit}"} if self.cloud else {"start": start + limit}
            asked = {k: v for k, v in request.args.items() if k not in ("start", "cursor", "limit")}
            path = request.path.removeprefix(self.context)
            links["next"] = f"{path}?{urlencode({**asked, 'limit': limit, **going_on})}"
        return _json({"results": shown, "start": start, "limit": limit, "size": len(shown), "_links": links})

    def _described(self, page: Content, request: Request) -> Json:
        expand = set(request.args.get("expand", "").split(","))
        said: Json = {"id": str(page.id), "type": page.kind, "status": page.status, "title": page.title}
        said["_links"] = self._links(page)
        if "space" in expand:
            said["space"] = {"key": page.space, "type": "global"}
        if "version" in expand:
            said["version"] = {"number": page.version, "when": self.now.isoformat(), "by": {"displayName": "An Editor"}}
        if "history" in expand:
            said["history"] = {
                "createdDate": "2025-01-02T03:04:05.000-06:00",
                "createdBy": {"displayName": "Nils Ingram"},
            }
        if "ancestors" in expand:
            said["ancestors"] = [{"id": str(p.id), "type": p.kind, "title": p.title} for p in self._above(page)]
        if "metadata.labels" in expand:
            said["metadata"] = {"labels": {"results": [{"prefix": "global", "name": name} for name in page.labels]}}
        if "restrictions.read.restrictions.group" in expand:
            said["restrictions"] = {"read": _restricted(page.groups, page.users)}
        if "body.storage" in expand:
            said["body"] = {"storage": {"value": page.storage, "representation": "storage"}}
        return said

    def _above(self, page: Content) -> list[Content]:
        above = []
        while page.parent:
            page = self.pages[page.parent]
            above.insert(0, page)
        return above

    def _links(self, page: Content, alone: bool = False) -> Json:
        links = {"webui": f"/display/{page.space}/{page.title.replace(' ', '+')}"}
        return {**links, "base": "https://wiki.example/confluence"} if alone else links

    def _attachment(self, page: Content, name: str) -> Json:
        found = page.files[name]
        download = f"/download/attachments/{page.id}/{name}?version={found.version}&api=v2"
        return {
            "id": found.id, "type": "attachment", "status": "current", "title": name,
            "version": {"number": found.version}, "container": {"id": str(page.id), "type": "page"},
            "_links": {"download": download},
        }  # fmt: skip

    def _download(self, path: str) -> Response:
        _, _, _, number, name = path.split("/", 4)
        page = self.pages.get(int(number))
        if page is None or name not in page.files:
            return Response("<html><title>Page Not Found</title></html>", 404, mimetype="text/html")
        return Response(page.files[name].data, mimetype="application/octet-stream")


def _restricted(groups: list[str], users: list[str]) -> Json:
    named = {"results": [{"type": "group", "name": name} for name in groups]}
    persons = {"results": [{"type": "known", "username": name} for name in users]}
    return {"operation": "read", "restrictions": {"group": named, "user": persons}}


def _json(value: Json, status: int = 200) -> Response:
    return Response(json.dumps(value), status, mimetype="application/json")


def _error(status: int, message: str) -> Response:
    return _json({"statusCode": status, "data": {"authorized": False}, "message": message}, status)
